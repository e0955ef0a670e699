"""Lengths of rows in every p-norm and at every scale."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from berncert.polynomial.norms import row_norms

ROWS = torch.tensor([[3.0, -4.0, 0.0], [1.0, 1.0, 1.0], [0.2, 0.0, -0.7]], dtype=torch.float64)


def true_norms(rows: Tensor, p: float) -> Tensor:
    """By logarithms, in which nothing overflows."""
    greatest = rows.abs().amax(dim=1)
    if p == math.inf:
        return greatest
    return greatest * torch.exp(torch.logsumexp(p * (rows.abs() / greatest[:, None]).log(), dim=1) / p)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-18, 1e-3, 1.0, 1e3, 1e18])
@pytest.mark.parametrize("p", [1.0, 1.01, 1.5, 2.0, 3.0, 21.0, 101.0, 1e7, math.inf])
def test_rows_have_their_norm_at_every_scale(p: float, scale: float, dtype: torch.dtype) -> None:
    found = row_norms((scale * ROWS).to(dtype), p).double()
    torch.testing.assert_close(found, scale * true_norms(ROWS, p), rtol=1e-5, atol=0)


@pytest.mark.parametrize("p", [1.01, 3.0, 101.0])
def test_the_gradient_has_the_dual_norm_1_and_that_of_zeros_is_finite(p: float) -> None:
    rows = (1e-6 * ROWS).float().requires_grad_()
    (slope,) = torch.autograd.grad(row_norms(rows, p).sum(), rows)
    torch.testing.assert_close(true_norms(slope.double(), p / (p - 1)), torch.ones(3).double(), rtol=1e-4, atol=0)
    zeros = torch.zeros(2, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(row_norms(zeros, p).sum(), zeros)
    assert slope.isfinite().all()
    assert row_norms(zeros, p).tolist() == [0, 0]
