"""Affine heads in any number of features: the closed form, the same as the dense search, and never wrong."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import berncert
from berncert import Status, SumHead, certify

NORMS = [1, 1.01, 1.5, 2, 3, 60, math.inf]


def affine_head(rng: np.random.Generator, classes: int, dim: int) -> SumHead:
    weight = rng.normal(size=(classes, dim))
    return SumHead(torch.tensor(weight), torch.tensor(0.3 * rng.normal(size=classes) - weight.sum(axis=1) / 2))


def dense(head: SumHead) -> berncert.SmoothedHead:
    return berncert.smooth(lambda x: head(x), head.dim, 1, points=0)


@pytest.mark.parametrize("norm", NORMS)
def test_the_closed_form_is_what_the_dense_search_finds(norm: float) -> None:
    rng = np.random.default_rng(4)
    for classes, dim in [(2, 1), (2, 3), (4, 4), (3, 6)]:
        head, x = affine_head(rng, classes, dim), rng.uniform(size=(12, dim))
        x[:3] = np.round(x[:3])
        box = {
            "weights": 10 ** rng.uniform(-2, 2, x.shape),
            "lower": np.where(rng.uniform(size=x.shape) < 0.2, np.minimum(x + 0.1, 1), np.maximum(x - 0.4, 0)),
            "upper": 1.0 - np.zeros(x.shape),
        }
        for options in ({}, box):
            mine, theirs = certify(head, x, norm=norm, **options), certify(dense(head), x, norm=norm, **options)
            np.testing.assert_array_equal(mine.predicted, theirs.predicted)
            assert (mine.radius <= theirs.upper * (1 + 1e-12)).all()
            assert (theirs.radius <= mine.upper * (1 + 1e-12)).all()
            close = mine.upper < math.inf
            assert (mine.upper[close] - mine.radius[close] <= 1e-6 * mine.upper[close]).all()
            assert (mine.radius[~close] == math.inf).all()
            assert set(mine.status) <= {Status.PROVEN, Status.WHOLE_CUBE}


def test_witnesses_change_the_class_in_exact_rationals_and_lie_in_the_cube_at_their_distance() -> None:
    rng = np.random.default_rng(5)
    head, x = affine_head(rng, 5, 40), rng.uniform(size=(20, 40))
    weight, bias = head.weight.numpy(), head.bias.numpy()
    c = certify(head, x)
    for row, start in zip(c, x, strict=True):
        assert ((row.witness >= 0) & (row.witness <= 1)).all()
        point = [Fraction(v) for v in row.witness]
        logits = [Fraction(b) + sum(Fraction(w) * v for w, v in zip(ws, point, strict=True))
                  for ws, b in zip(weight, bias, strict=True)]  # fmt: skip
        assert logits[row.rival] > logits[row.predicted]
        squares = sum((v - Fraction(s)) ** 2 for v, s in zip(point, start, strict=True))
        assert Fraction(row.radius) ** 2 <= squares <= Fraction(row.upper) ** 2


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_inside_the_cube_the_radius_is_margin_by_dual_norm_and_no_point_within_it_flips(norm: float) -> None:
    rng = np.random.default_rng(6)
    head = affine_head(rng, 100, 100)
    x = 0.5 + 0.01 * rng.normal(size=(5, 100))
    c = certify(head, x, norm=norm)
    logits, weight = head(torch.tensor(x)).numpy(), head.weight.numpy()
    dual = {1: math.inf, 2: 2, math.inf: 1}[norm]
    for i, row in enumerate(c):
        margins = logits[i, row.predicted] - logits[i]
        steep = np.linalg.norm(weight[row.predicted] - weight, ord=dual, axis=1)
        closed = np.delete(margins, row.predicted) / np.delete(steep, row.predicted)
        assert row.radius == pytest.approx(closed.min(), rel=1e-9)
        steps = rng.normal(size=(20000, 100))
        steps[::2] = (row.witness - x[i]) * (1 + 0.1 * steps[::2])
        steps *= (row.radius * (1 - 1e-12) / np.linalg.norm(steps, ord=norm, axis=1))[:, None]
        assert (head(torch.tensor(np.clip(x[i] + steps, 0, 1))).argmax(dim=1) == row.predicted).all()


def test_a_row_gets_the_same_bits_in_any_batch_and_any_number_of_threads() -> None:
    rng = np.random.default_rng(7)
    head, x = affine_head(rng, 9, 25), rng.uniform(size=(30, 25))
    whole = certify(head, x, threads=2)
    for i in (0, 7, 29):
        alone = certify(head, x[i : i + 1], threads=1)
        for name in ("predicted", "radius", "upper", "witness", "rival"):
            np.testing.assert_array_equal(getattr(alone, name)[0], getattr(whole, name)[i])


def test_ties_whole_cubes_decisions_and_budgets_say_what_they_are() -> None:
    twice = torch.ones(1, 20).expand(2, 20).double()
    assert certify(SumHead(twice, torch.tensor([0.0, 0.0]).double()), np.full((1, 20), 0.5))[0].status is Status.TIE
    apart = certify(SumHead(twice, torch.tensor([0.0, 1.0]).double()), np.full((1, 20), 0.5))[0]
    assert apart.status is Status.WHOLE_CUBE
    assert apart.radius == apart.upper == math.inf
    rng = np.random.default_rng(8)
    head, x = affine_head(rng, 6, 30), rng.uniform(size=(8, 30))
    c = certify(head, x)
    assert (certify(head, x, radius=0.9 * c.radius.min()).status == Status.HOLDS).all()
    assert (certify(head, x, radius=1.1 * c.upper.max()).status == Status.FALLS).all()
    short = certify(head, x, max_boxes=1)
    assert (short.radius <= c.upper).all()


def test_numbers_at_the_ends_of_float64_are_certified_or_refused() -> None:
    rng = np.random.default_rng(9)
    head, x = affine_head(rng, 3, 20), rng.uniform(size=(6, 20))
    plain = certify(head, x)
    for power in (-900, -300, 300, 900):
        scaled = certify(head.mapped(lambda tensor, power=power: torch.ldexp(tensor, torch.tensor(power))), x)
        np.testing.assert_array_equal(scaled.radius, plain.radius)
    with pytest.raises(ValueError, match="2\\^1000"):
        certify(head.mapped(lambda tensor: tensor * 1e305), x)
