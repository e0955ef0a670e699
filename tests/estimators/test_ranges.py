"""Proven ranges and monotonicity of tables: never exceeded, never violated, in exact rationals too."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from tables import points_near

from berncert.estimators import BernsteinClassifier, BernsteinRegressor, Direction


def exact_value(coefficients: np.ndarray, u: list[Fraction]) -> Fraction:
    """The polynomial at u, in rationals."""
    net = np.array([[Fraction(float(v)) for v in coefficients.ravel()]], dtype=object).reshape(coefficients.shape)
    for x in u:
        n = net.shape[0] - 1
        net = sum(comb(n, k) * x**k * (1 - x) ** (n - k) * net[k] for k in range(n + 1))
    return net


@pytest.mark.parametrize("norm", [1, 2, 3, math.inf])
def test_no_row_within_the_radius_leaves_the_range(norm: float) -> None:
    rng = np.random.default_rng(0)
    x, y = load_diabetes(return_X_y=True)
    for columns, dim in ((slice(0, 4), None), (slice(None), 3)):
        model = BernsteinRegressor(RandomForestRegressor(10, random_state=0), degree=3, dim=dim).fit(x[:, columns], y)
        rows = x[::60, columns]
        low, high = model.bounds(rows, 0.5, norm=norm, threads=1)
        for i, row in enumerate(rows):
            values = model.predict(points_near(rng, row, np.full(row.shape, np.nan), model.scale_, 0.5, norm, 3000))
            assert low[i] <= values.min()
            assert values.max() <= high[i]
            if norm == 2 and dim is None:  # and it is not much wider than what is found
                assert high[i] - low[i] <= 1.35 * np.ptp(values) + 1e-9


def test_ranges_of_probabilities_and_with_fixed_columns() -> None:
    x, y = load_iris(return_X_y=True)
    model = BernsteinClassifier(KNeighborsClassifier(), degree=4).fit(x, y)
    low, high = model.bounds(x[::30], 0.3, threads=1)
    assert low.shape == high.shape == (5, 3)
    assert (low >= -1e-9).all()
    assert (high <= 1 + 1e-9).all()
    fixed_low, fixed_high = model.bounds(x[::30], 0.3, fixed=[0, 1, 2, 3], threads=1)
    np.testing.assert_allclose(fixed_high, model.predict_proba(x[::30]), atol=1e-9)
    np.testing.assert_allclose(fixed_low, fixed_high, atol=1e-9)
    assert (fixed_low >= low - 1e-12).all()
    with pytest.raises(ValueError, match="radius >= 0"):
        model.bounds(x, -1.0)


def test_a_plane_has_the_directions_of_its_factors() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(200, 3))
    model = BernsteinRegressor(Ridge(alpha=1e-9), degree=2, dim=None).fit(x, 2 * x[:, 0] - x[:, 1])
    found = model.monotonicity()
    assert [d.direction for d in found[:2]] == [Direction.INCREASING, Direction.DECREASING]
    assert found[0].slope_lower == pytest.approx(2 * model.scale_[0], rel=1e-3)


def test_proven_monotone_columns_are_never_violated_in_rationals_and_pairs_show_the_others() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(size=(400, 3))
    y = np.exp(x[:, 0]) + np.sin(6 * x[:, 1]) - x[:, 2] ** 2 * (1.2 + x[:, 0])
    model = BernsteinRegressor(
        HistGradientBoostingRegressor(max_iter=60, monotonic_cst=[1, 0, -1]), degree=8, dim=None
    ).fit(x, y)
    found = model.monotonicity(threads=1)
    assert [d.direction for d in found] == [Direction.INCREASING, Direction.NEITHER, Direction.DECREASING]
    for column, sign in ((0, 1), (2, -1)):
        for _ in range(15):
            u = [Fraction(int(v), 997) for v in rng.integers(0, 998, 3)]
            v = list(u)
            v[column] = min(Fraction(1), u[column] + Fraction(int(rng.integers(1, 300)), 997))
            change = exact_value(model.coefficients_[0], v) - exact_value(model.coefficients_[0], u)
            assert sign * change >= 0
    for pair, sign in ((found[1].rising, 1), (found[1].falling, -1)):
        assert pair is not None
        assert (pair[0][[0, 2]] == pair[1][[0, 2]]).all()
        assert pair[1][1] > pair[0][1]
        assert sign * np.diff(model.predict(pair))[0] > 0


def test_a_part_of_the_domain_may_be_monotone_where_the_whole_is_not() -> None:
    x = np.linspace(0, 1, 101)[:, None]
    model = BernsteinRegressor(HistGradientBoostingRegressor(), degree=8).fit(x, (x[:, 0] - 0.5) ** 2)
    assert model.monotonicity()[0].direction is Direction.NEITHER
    assert model.monotonicity(lower={0: 0.75})[0].direction is Direction.INCREASING
    assert model.monotonicity(upper={0: 0.25})[0].direction is Direction.DECREASING


def test_projected_columns_have_directions_too() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    model = BernsteinClassifier(LogisticRegression(max_iter=5000), degree=3, dim=2).fit(x, y)
    found = model.monotonicity(label=0, threads=1)
    assert len(found) == 30
    assert {d.direction for d in found} & {Direction.INCREASING, Direction.DECREASING}
    for d in found:
        if d.direction is Direction.NEITHER:
            assert d.rising is not None
            assert np.diff(model.predict_proba(d.rising)[:, 0])[0] > 0


def test_pairs_are_found_where_the_steepest_point_is_a_corner_without_room() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    model = BernsteinClassifier(LogisticRegression(max_iter=5000), degree=3, dim=3).fit(x, y)
    found = model.monotonicity(threads=1)
    assert Direction.UNKNOWN not in {d.direction for d in found}
    neither = [d for d in found if d.direction is Direction.NEITHER]
    assert len(neither) >= 5
    for d in neither:
        for pair, sign in ((d.rising, 1), (d.falling, -1)):
            assert pair is not None
            assert pair[1][d.column] > pair[0][d.column]
            assert (np.delete(pair[0], d.column) == np.delete(pair[1], d.column)).all()
            assert sign * np.diff(model.predict_proba(pair)[:, 1])[0] > 0
