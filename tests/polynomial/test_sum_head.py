"""Sums of small polynomials: the same as the dense polynomial where both fit, and saved as they are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import berncert
from berncert.models.heads import Head, build_head, smoothed
from berncert.polynomial import SmoothedHead, SumHead
from berncert.polynomial.sum_head import smoothed_head

TERMS = [((0,), (5,)), ((2, 1), (3, 2)), ((1,), (2,)), ((3, 0), (2, 4))]
"""The features and the sizes of each axis."""


def random_sum(seed: int = 0, classes: int = 3, dim: int = 4) -> SumHead:
    rng = np.random.default_rng(seed)
    terms = [(axes, torch.tensor(rng.normal(size=(classes, *sizes)))) for axes, sizes in TERMS]
    return SumHead(torch.tensor(rng.normal(size=(classes, dim))), torch.tensor(rng.normal(size=classes)), terms)


def dense(head: SumHead) -> SmoothedHead:
    """The same polynomial: of a degree along each axis that is at least that of every term, elevated exactly."""
    degrees = [1] * head.dim
    for axes, coefficients in head.terms:
        for axis, size in zip(axes, coefficients.shape[1:], strict=True):
            degrees[axis] = math.lcm(degrees[axis], size - 1)
    grid = torch.stack(torch.meshgrid(*(torch.linspace(0, 1, n + 1).double() for n in degrees), indexing="ij"), -1)
    matrix = [torch.linalg.inv(berncert.polynomial.basis(n, torch.linspace(0, 1, n + 1).double())) for n in degrees]
    values = head(grid.reshape(-1, head.dim)).T.reshape(head.classes, *(n + 1 for n in degrees))
    for axis, inverse in enumerate(matrix, start=1):
        values = (values.movedim(axis, -1) @ inverse.T).movedim(-1, axis)
    return SmoothedHead(values)


def test_a_sum_is_the_dense_polynomial_in_value_slope_and_enclosure() -> None:
    head, x = random_sum(), torch.rand(50, 4, generator=torch.Generator().manual_seed(1)).double()
    same = dense(head)
    for mine, other in zip(head.linearise(x), same.linearise(x), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(head(x), same(x), rtol=1e-9, atol=1e-9)
    low, high = head.enclosed()
    assert ((head(x) >= low) & (head(x) <= high)).all()


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, math.inf])
def test_the_pairs_of_classes_of_an_affine_head_are_what_its_slopes_say(norm: float) -> None:
    rng = np.random.default_rng(2)
    head = SumHead(torch.tensor(rng.normal(size=(7, 30))), torch.tensor(rng.normal(size=7)))
    x, labels = torch.tensor(rng.uniform(size=(20, 30))), torch.tensor(rng.integers(0, 7, 20))
    logits, gains = head.steepness(x, labels, norm)
    expected = super(SumHead, head).steepness(x, labels, norm)
    torch.testing.assert_close(logits, expected[0])
    torch.testing.assert_close(gains, expected[1])


def test_no_lead_on_a_box_is_above_the_bound_and_affine_heads_attain_it() -> None:
    rng = np.random.default_rng(3)
    head = random_sum(4)
    low = torch.tensor(rng.uniform(0, 0.5, size=(6, 4)))
    high, labels = low + 0.3, torch.tensor([0, 1, 2, 0, 1, 2])
    bound = head.greatest_lead(low, high, labels)
    x = low[:, None] + (high - low)[:, None] * torch.tensor(rng.uniform(size=(6, 2000, 4)))
    logits = head(x.reshape(-1, 4)).reshape(6, 2000, 3)
    lead = (logits - logits.gather(2, labels[:, None, None].expand(-1, 2000, 1))).amax(dim=1)
    assert (lead <= bound + 1e-12).all()
    straight = SumHead(*head.affine)
    corners = torch.tensor(np.stack(np.meshgrid(*[[0.0, 1.0]] * 4), axis=-1).reshape(-1, 4))
    at = straight((low[:, None] + (high - low)[:, None] * corners).reshape(-1, 4)).reshape(6, 16, 3)
    lead = (at - at.gather(2, labels[:, None, None].expand(-1, 16, 1))).amax(dim=1)
    torch.testing.assert_close(straight.greatest_lead(low, high, labels), lead)


def test_a_sum_is_trained_through_and_saved_as_it_is(tmp_path: Path) -> None:
    fixed = random_sum(5)
    head = fixed.mapped(lambda tensor: torch.nn.Parameter(tensor.clone()))
    assert len(list(head.parameters())) == 6
    x, labels = torch.rand(8, 4).double(), torch.arange(8) % 3
    for norm in (2.0, math.inf):
        head.zero_grad()
        berncert.certified_loss(x, labels, head, 0.1, norm).backward()
        assert all(part.grad is not None and part.grad.abs().sum() > 0 for part in (head.weight, head.term1))
    berncert.save(head, tmp_path / "head.safetensors")
    again = berncert.load(tmp_path / "head.safetensors")
    assert type(again) is SumHead
    assert again.description == head.description
    torch.testing.assert_close(again(x), head(x), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["identity", "affine"])
def test_affine_heads_in_many_features_become_sums_and_in_few_stay_dense(kind: str) -> None:
    for dim, expected in ((16, SmoothedHead), (17, SumHead), (100, SumHead)):
        if dim == 16 and kind == "identity":
            continue  # 2^16 coefficients for each of 16 classes: the other kind is enough
        head = build_head(kind, dim, dim if kind == "identity" else 3, scale=4.0)
        polynomial = smoothed(head)
        assert type(polynomial) is expected
        x = torch.rand(5, dim).double()
        torch.testing.assert_close(polynomial(x), head.double()(x))
    through = smoothed(Head(torch.nn.Linear(40, 2), {"dim": 40, "classes": 2, "degree": 1}), differentiable=True)
    assert isinstance(through, SumHead)
    assert isinstance(through.weight, torch.nn.Parameter)
    assert isinstance(smoothed_head(torch.nn.Linear(40, 2, bias=False), 40, 3), SumHead)


@pytest.mark.parametrize(
    ("weight", "bias", "terms", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(3), [], "shape"),
        (torch.zeros(2, 3), torch.zeros(2), [((0, 0), torch.zeros(2, 2, 2))], "different features"),
        (torch.zeros(2, 3), torch.zeros(2), [((3,), torch.zeros(2, 2))], "from 0 to 2"),
        (torch.zeros(2, 3), torch.zeros(2), [((1, 2), torch.zeros(2, 2))], "one for each axis"),
        (torch.zeros(2, 3), torch.zeros(2), [((1,), torch.zeros(3, 2))], "2 classes"),
        (torch.zeros(2, 3), torch.tensor([0.0, math.nan]), [], "finite"),
    ],
)
def test_what_is_no_sum_is_refused(weight: torch.Tensor, bias: torch.Tensor, terms: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SumHead(weight, bias, terms)


@pytest.mark.parametrize("terms", [[(0, torch.zeros(2, 2))], [torch.zeros(2, 2)], [((0.5,), torch.zeros(2, 2))], [()]])
def test_terms_that_are_no_pairs_are_refused_by_number(terms: list) -> None:
    with pytest.raises(TypeError, match=r"in term 1; write \(\(0,\), coefficients\)"):
        SumHead(torch.zeros(2, 3), torch.zeros(2), [((1,), torch.zeros(2, 2)), *terms])


def test_features_of_a_term_may_be_whole_numbers_of_numpy(tmp_path: Path) -> None:
    line = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    head = SumHead(torch.zeros(2, 3), torch.zeros(2), [((np.int64(2),), line), (np.array([0]), line)])
    assert [term.axes for term in head.terms] == [(2,), (0,)]
    berncert.save(head, tmp_path / "sum.safetensors")  # its description is JSON, which knows no int64
    x = torch.rand(5, 3)
    torch.testing.assert_close(berncert.load(tmp_path / "sum.safetensors")(x), head(x))
