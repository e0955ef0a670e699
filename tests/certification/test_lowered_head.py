"""A head of a lower degree is as near to the head as it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import berncert
from berncert.certification.feature_space import DenseSearch, posed
from berncert.certification.lowered_head import head_of, lowered, raised
from berncert.certification.methods import Exact
from berncert.polynomial import SmoothedHead


def bent(degree: int, dim: int, scale: float) -> SmoothedHead:
    """A small network, smoothed: nearly a polynomial of a low degree."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(dim, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).double()
    with torch.no_grad():
        layers[-1].weight.mul_(scale)
    return berncert.smooth(layers, dim=dim, degree=degree, points=0)


def searched(head: SmoothedHead) -> DenseSearch:
    found = posed(head, Exact(), 2.0)
    assert isinstance(found, DenseSearch)
    return found


@pytest.mark.parametrize("scale", [1e-6, 1.0, 300.0])
def test_margins_differ_by_no_more_than_the_rounding(scale: float) -> None:
    head = bent(7, 3, scale)
    search = searched(head)
    low = lowered(search)
    assert low is not None
    assert low.problem.coefficients.shape[1] < search.problem.coefficients.shape[1] / 2
    x = torch.rand(2000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[:200] = x[:200].round()
    gap = head(x) - head_of(low)(x)
    worst = float((gap[:, :, None] - gap[:, None]).abs().max())
    assert worst <= math.ldexp(low.rounding, low.exponent)
    assert math.ldexp(low.rounding, low.exponent) <= 2e-3 * float(head.coefficients.abs().max()) * 2


def test_a_head_that_no_lower_degree_comes_near_is_left_alone() -> None:
    coefficients = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert lowered(searched(SmoothedHead(coefficients))) is None
    assert lowered(searched(SmoothedHead(torch.eye(2, dtype=torch.float64)))) is None


def test_raising_the_degree_changes_no_value() -> None:
    low = np.random.default_rng(0).normal(size=4)
    high = raised(3, 7) @ low
    x = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
    first, second = (SmoothedHead(torch.as_tensor(c)[None]) for c in (low, high))
    torch.testing.assert_close(first(x), second(x), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(raised(3, 7).sum(axis=1), 1, rtol=1e-15)
