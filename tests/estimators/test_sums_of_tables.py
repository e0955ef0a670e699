"""Tables of many columns through sums of terms: certificates, constraints, ranges, monotonicity, files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tables import loans, points_near

from berncert import Status
from berncert.estimators import BernsteinClassifier, Direction, load
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
