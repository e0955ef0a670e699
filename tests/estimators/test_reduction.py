"""From columns to features: the bounds on rounding against exact rationals, and the laws of the routes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from berncert.estimators.reduction import Reduction, check_sizes, fit_reduction


def table(rng: np.random.Generator, columns: int, offset: float) -> np.ndarray:
    """Columns of very different sizes, far from 0 if so wished."""
    return offset + rng.normal(size=(60, columns)) * 10.0 ** rng.uniform(-3, 3, columns)


def exact_features(reduction: Reduction, row: np.ndarray) -> list[Fraction]:
    """In rationals, before clipping."""
    x = [Fraction(float(v)) for v in row]
    scaled = [
        (x[j] - Fraction(float(reduction.centre[j]))) / Fraction(float(reduction.scale[j])) for j in reduction.mixed
    ]
    axes = [x[j] for j in reduction.kept]
    axes += [
        sum((Fraction(float(a)) * v for a, v in zip(r, scaled, strict=True)), Fraction(0)) for r in reduction.matrix
    ]
    limits = zip(axes, reduction.low, reduction.width, strict=True)
    return [(v - Fraction(float(low))) / Fraction(float(width)) for v, low, width in limits]


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize(("dim", "keep"), [(None, []), (3, []), (4, [1, 5])])
def test_features_are_computed_as_closely_as_is_said(dim: int | None, keep: list[int], offset: float) -> None:
    rng = np.random.default_rng(0)
    x = table(rng, 8, offset)
    reduction = fit_reduction(x, np.ones(len(x)), dim=dim, keep=keep, scale=None, domain=None)
    others = x[:10] + rng.normal(size=(10, 8)) * reduction.scale
    own, growth = reduction.feature_error(x[:10])
    computed = reduction.features(others)
    distance = np.linalg.norm((others - x[:10]) / reduction.scale, ord=math.inf, axis=1)
    for i in range(10):
        for axis, truth in enumerate(exact_features(reduction, others[i])):
            clipped = min(Fraction(1), max(Fraction(0), truth))
            error = abs(clipped - Fraction(float(computed[i, axis])))
            assert error <= Fraction(float(own[i, axis] + growth[axis] * distance[i]))


@pytest.mark.parametrize("norm", [1, 1.5, 2, 3, math.inf])
@pytest.mark.parametrize(("dim", "keep"), [(None, []), (3, []), (4, [1, 5])])
def test_no_route_is_shorter_than_the_distance_of_exact_features(dim: int | None, keep: list[int], norm: float) -> None:
    rng = np.random.default_rng(1)
    x = table(rng, 8, 0.0)
    reduction = fit_reduction(x, np.ones(len(x)), dim=dim, keep=keep, scale=None, domain=None)
    for i in range(8):
        step = rng.normal(size=8) * reduction.scale
        if i % 2 and len(reduction.mixed):  # within the plane of the components, where nothing is lost
            step = np.zeros(8)
            step[reduction.mixed] = (rng.normal(size=len(reduction.matrix)) @ reduction.matrix) * reduction.scale[
                reduction.mixed
            ]
        far = np.linalg.norm(step / reduction.scale, ord=norm)
        one, two = (exact_features(reduction, row) for row in (x[i], x[i] + step))
        moved = np.array([float(b - a) for a, b in zip(one, two, strict=True)])
        for q, weight, gain in reduction.routes(norm):
            assert np.linalg.norm(weight * moved, ord=q) <= gain * far * (1 + 1e-9)
        if norm == 2 and i % 2 and len(reduction.mixed):
            (q, weight, _), *_ = reduction.routes(2)
            assert np.linalg.norm(weight * moved, ord=q) == pytest.approx(far, rel=1e-9)


def test_rows_and_features_are_each_others_inverse_in_the_domain() -> None:
    rng = np.random.default_rng(2)
    x = table(rng, 6, 3.0)
    for dim in (None, 3):
        reduction = fit_reduction(x, np.ones(len(x)), dim=dim, keep=[], scale=None, domain=None)
        u = rng.uniform(size=(20, reduction.dim))
        np.testing.assert_allclose(reduction.features(reduction.rows(u)), u, atol=1e-9)
        moved = reduction.moved(x[:20], u, np.zeros(u.shape, bool))
        np.testing.assert_allclose(reduction.features(moved), u, atol=1e-9)


@pytest.mark.parametrize("dim", [None, 2])
@pytest.mark.parametrize("offset", [0.0, 7.0])
@pytest.mark.parametrize("power", [-1000, -600, 0, 400])
def test_a_column_that_varies_has_its_standard_deviation_whatever_its_unit(
    power: int, offset: float, dim: int | None
) -> None:
    x = offset + np.random.default_rng(3).integers(0, 9, (40, 3)).astype(float)
    x[:, 1] *= 2.0**power
    reduction = fit_reduction(x, np.ones(40), dim=dim, keep=[], scale=None, domain=None)
    expected = np.array([1, 2.0**power, 1]) * (x / [1, 2.0**power, 1]).std(axis=0)
    np.testing.assert_allclose(reduction.scale, expected, rtol=1e-13)


def test_a_distant_mean_does_not_hide_the_deviation_and_a_constant_has_unit_1() -> None:
    steps = np.arange(40.0)
    x = np.stack([2.0**60 + 2.0**13 * steps, np.full(40, 0.1), np.where(steps == 3, 1 + 2.0**-52, 1)], axis=1)
    reduction = fit_reduction(x, np.ones(40), dim=None, keep=[], scale=None, domain=None)
    rare = math.sqrt(1 / 40 * 39 / 40) * 2.0**-52
    np.testing.assert_allclose(reduction.scale, [2.0**13 * steps.std(), 1, rare], rtol=1e-13)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (0.0, 1e160, r"in column 'b', got 0 to 1e\+160: its range is too large to compute with"),
        (-1.5e308, 1.5e308, "in column 'b', got .*: its range is too large"),
        (0.0, 1e-310, "in column 'b', got 0 to 1e-310: its range is too small to compute with"),
    ],
)
def test_ranges_that_cannot_be_computed_with_are_named(low: float, high: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_sizes(np.array([0, low]), np.array([1, high]), ["a", "b"])
    check_sizes(np.array([0, 5.0]), np.array([1e149, 5.0]))
