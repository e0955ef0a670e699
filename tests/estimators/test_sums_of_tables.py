"""Tables of many columns through sums of terms: certificates, constraints, ranges, monotonicity, files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from tables import loans, points_near

import berncert
from berncert import Status, smooth
from berncert.estimators import BernsteinClassifier, BernsteinRegressor, Direction, load
from berncert.foundation.arguments import dual_norm

X, Y = load_breast_cancer(return_X_y=True)
LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression())


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_a_logistic_model_on_thirty_columns_has_the_radii_of_its_plane(norm: float) -> None:
    wide = (X.min(axis=0) - 50 * X.std(axis=0), X.max(axis=0) + 50 * X.std(axis=0))
    model = BernsteinClassifier(LOGISTIC, terms="auto", domain=wide).fit(X[::2], Y[::2])
    rows = X[1::10]
    scaler, plane = model.estimator_
    slopes = plane.coef_[0] / scaler.scale_ * model.scale_
    expected = np.abs(model.estimator_.decision_function(rows)) / np.linalg.norm(slopes, ord=dual_norm(norm))
    c = model.certify(rows, norm=norm, threads=1)
    assert set(c.status) == {Status.PROVEN}
    np.testing.assert_allclose(c.radius, expected, rtol=2e-3)
    assert (c.radius <= expected * (1 + 1e-9)).all()
    assert (model.predict(c.counterfactual) != c.predicted).all()
    assert c.flips_base.mean() > 0.9


def test_no_row_within_a_radius_changes_its_class() -> None:
    model = BernsteinClassifier(LOGISTIC, terms="auto").fit(X[::2], Y[::2])
    rng, rows = np.random.default_rng(0), X[1::40]
    c = model.certify(rows, threads=1)
    for i, row in enumerate(rows):
        near = points_near(rng, row, c.counterfactual[i], model.scale_, min(c.radius[i], 30.0), 2, 2000)
        assert (model.predict(near) == c.predicted[i]).all()


def test_whole_numbers_categories_and_fixed_columns_are_kept() -> None:
    table, y = loans(300)
    model = BernsteinClassifier(make_pipeline(StandardScaler(), LogisticRegression()), terms="auto").fit(table, y)
    homes = ["rent", "family", "own"]
    limits = {"fixed": ["age"], "whole": ["children"], "categories": [homes], "increasing": ["income"]}
    c = model.certify(table[:20], **limits, threads=1)
    other, rows = c.counterfactual, table[:20].astype(float)
    known = np.isfinite(c.upper)
    assert known.any()
    assert set(c.status[known]) == {Status.PROVEN}
    other, rows = other[known], rows[known]
    assert (other["age"] == rows["age"]).all()
    assert (other["children"] % 1 == 0).all()
    assert (other[homes].sum(axis=1) == 1).all()
    assert (other["income"] >= rows["income"]).all()
    free = model.certify(table[:20], threads=1)
    assert (c.radius >= free.radius * (1 - 2e-3)).all()
    wanted = model.counterfactuals(table[:20], wanted="yes", **limits, threads=1)
    assert (model.predict(wanted.counterfactual[np.isfinite(wanted.upper)]) == "yes").all()


def test_directions_of_a_sum_are_the_signs_of_its_slopes() -> None:
    model = BernsteinClassifier(LOGISTIC, terms="auto").fit(X, Y)
    scaler, plane = model.estimator_
    slopes = plane.coef_[0] / scaler.scale_ * model.scale_
    for found, slope in zip(model.monotonicity(), slopes, strict=True):
        assert found.direction is (Direction.INCREASING if slope > 0 else Direction.DECREASING)
        assert found.slope_lower <= slope / 2 <= found.slope_upper  # half of it for this class
        assert found.slope_upper - found.slope_lower < 1e-6
    for found, opposite in zip(model.monotonicity(label=0), model.monotonicity(label=1), strict=True):
        assert found.slope_lower == pytest.approx(-opposite.slope_upper)


def test_parabolas_of_naive_bayes_are_monotone_where_they_are() -> None:
    model = BernsteinClassifier(GaussianNB(), terms="auto").fit(X[:, :4], Y)
    base = model.estimator_
    found = model.monotonicity(label=1)
    for j, column in enumerate(found):
        at = np.linspace(X[:, j].min(), X[:, j].max(), 50)
        slopes = -(at - base.theta_[1, j]) / base.var_[1, j] + (at - base.theta_[0, j]) / base.var_[0, j]
        expected = slopes / 2 * model.scale_[j]
        assert column.slope_lower <= expected.min() + 1e-6
        assert column.slope_upper >= expected.max() - 1e-6
        turns = (slopes > 0).any() and (slopes < 0).any()
        assert (column.direction is Direction.NEITHER) == turns


@pytest.mark.parametrize("base", [LOGISTIC, GaussianNB()], ids=["plane", "parabolas"])
def test_a_saved_sum_is_the_model(base: object, tmp_path: Path) -> None:
    table = pd.DataFrame(X, columns=[f"c{j}" for j in range(30)])
    model = BernsteinClassifier(base, terms="auto").fit(table, Y)
    model.save(tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.decision_function(table), model.decision_function(table))
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    assert again.form_ == model.form_
    assert again.terms_ == model.terms_
    with pytest.raises(AttributeError, match="has no coefficients_ of one polynomial"):
        _ = again.coefficients_


def boosted(depth: int, rounds: int = 20) -> GradientBoostingClassifier:
    return GradientBoostingClassifier(n_estimators=rounds, max_depth=depth, random_state=0)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("depth", [1, 2])
def test_boosted_trees_on_all_columns_are_certified_and_no_row_within_a_radius_changes(depth: int, norm: float) -> None:
    model = BernsteinClassifier(boosted(depth), terms="auto", degree=6).fit(X[::2], Y[::2])
    assert model.reduction_.dim == 30
    assert max(len(columns) for columns in model.terms_) == depth
    rng, rows = np.random.default_rng(0), X[1::60]
    c = model.certify(rows, norm=norm, tolerance=0.05, max_boxes=2000, threads=1)
    known = np.isfinite(c.upper)
    assert (model.predict(c.counterfactual[known]) != c.predicted[known]).all()
    assert (c.radius > 0).all()
    for i, row in enumerate(rows):
        near = points_near(rng, row, c.counterfactual[i], model.scale_, min(c.radius[i], 30.0), norm, 1000)
        assert (model.predict(near) == c.predicted[i]).all()


def test_a_sum_and_the_dense_polynomial_of_the_same_scores_have_the_same_radii() -> None:
    x, y = load_wine(return_X_y=True)
    model = BernsteinClassifier(boosted(2, 10), terms="auto", degree=4).fit(x[:, [0, 6, 9, 12]], y)
    head, features = model.head_, model.features(x[::9, [0, 6, 9, 12]])
    dense = smooth(lambda u: torch.from_numpy(scores_on(model, u.numpy())), 4, 4, points=0)
    weight = model.reduction_.weight
    one, two = (berncert.certify(h, features, weights=weight, threads=1) for h in (head, dense))
    np.testing.assert_array_equal(one.predicted, two.predicted)
    assert (one.radius <= two.upper * (1 + 1e-9)).all()
    assert (two.radius <= one.upper * (1 + 1e-9)).all()


def scores_on(model: BernsteinClassifier, features: np.ndarray) -> np.ndarray:
    """The base model's own scores at features."""
    return model.estimator_.decision_function(model.reduction_.rows(features))


def test_a_wanted_class_among_three_constraints_and_ranges_of_a_bending_sum() -> None:
    x, y = load_wine(return_X_y=True)
    model = BernsteinClassifier(boosted(1), terms="auto", degree=6).fit(x[::2], y[::2])
    rows = x[1::30]
    c = model.counterfactuals(rows, wanted=1, fixed=[0, 12], whole=[4], tolerance=0.05, max_boxes=2000, threads=1)
    known = np.isfinite(c.upper)
    found = c.counterfactual[known]
    assert known.any()
    assert (model.predict(found) == 1).all()
    np.testing.assert_array_equal(found[:, [0, 12]], rows[known][:, [0, 12]])
    assert (found[:, 4] % 1 == 0).all()
    rng = np.random.default_rng(0)
    low, high = model.bounds(rows, 0.5, threads=1)
    for i, row in enumerate(rows):
        scores = model.decision_function(points_near(rng, row, np.full(13, np.nan), model.scale_, 0.5, 2, 1000))
        assert (low[i] <= scores.min(axis=0)).all()
        assert (scores.max(axis=0) <= high[i]).all()
        assert (high[i] - low[i] <= 3 * np.ptp(scores, axis=0) + 1e-6).all()


def test_ranges_of_a_regression_with_pairs_are_never_left() -> None:
    x, y = load_diabetes(return_X_y=True)
    base = GradientBoostingRegressor(n_estimators=15, max_depth=2, random_state=0)
    model = BernsteinRegressor(base, terms="auto", degree=5).fit(x, y)
    assert model.form_ == "the base model's own terms"
    rng, rows = np.random.default_rng(0), x[::90]
    low, high = model.bounds(rows, 0.3, threads=1)
    for i, row in enumerate(rows):
        values = model.predict(points_near(rng, row, np.full(10, np.nan), model.scale_, 0.3, 2, 1000))
        assert low[i] <= values.min()
        assert values.max() <= high[i]


def test_columns_that_never_fall_in_boosted_pairs_are_proven_so_though_flat_places_are_many() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(size=(500, 6))
    y = np.exp(x[:, 0]) * (1 + x[:, 1]) - 2 * x[:, 2] * (1 + x[:, 3]) + np.sin(7 * x[:, 3]) + x[:, 4]
    base = HistGradientBoostingRegressor(max_depth=2, max_iter=80, monotonic_cst=[1, 0, -1, 0, 1, 0], random_state=0)
    model = BernsteinRegressor(base, terms="auto", degree=8).fit(x, y)
    assert any(len(columns) == 2 for columns in model.terms_)
    found = [column.direction for column in model.monotonicity(threads=1)]
    assert [found[j] for j in (0, 2, 4)] == [Direction.INCREASING, Direction.DECREASING, Direction.INCREASING]
    assert found[3] is Direction.NEITHER
    rows = rng.uniform(size=(2000, 6))
    for j, sign in ((0, 1), (2, -1), (4, 1)):
        more = rows.copy()
        more[:, j] = rng.uniform(rows[:, j], 1.0)
        assert (sign * (model.predict(more) - model.predict(rows)) >= -1e-12).all()


def test_slopes_along_columns_that_are_in_pairs_are_enclosed() -> None:
    x = np.random.default_rng(0).uniform(size=(200, 4))
    x[:2] = [[0] * 4, [1] * 4]
    y = 2 * x[:, 0] + x[:, 0] * x[:, 1] - 3 * x[:, 0] * x[:, 2] + 0.5 * x[:, 3]
    model = BernsteinRegressor(make_pipeline(PolynomialFeatures(2), LinearRegression()), terms="auto").fit(x, y)
    expected = [(-1, 3), (0, 1), (-3, 0), (0.5, 0.5)]  # 2 + b - 3 c, a, -3 a and 1/2
    for found, (least, greatest), unit in zip(model.monotonicity(threads=1), expected, model.scale_, strict=True):
        assert found.slope_lower / unit == pytest.approx(least, abs=0.02)
        assert found.slope_upper / unit == pytest.approx(greatest, abs=0.02)
        assert found.slope_lower / unit <= least + 1e-9
        assert found.slope_upper / unit >= greatest - 1e-9
    directions = [found.direction for found in model.monotonicity(threads=1, lower={0: 0.1}, upper={2: 0.6})]
    assert directions[:2] == [Direction.INCREASING, Direction.INCREASING]
    assert directions[2:] == [Direction.DECREASING, Direction.INCREASING]
