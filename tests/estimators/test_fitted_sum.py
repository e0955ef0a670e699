"""Sums fitted to models that are none: what they reach, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVC

from berncert.estimators import BernsteinClassifier, BernsteinRegressor
from berncert.estimators.fitted_sum import fitted_sum
from berncert.estimators.reduction import fit_reduction


def test_a_model_that_is_a_sum_of_low_degree_is_reproduced() -> None:
    x = np.random.default_rng(0).uniform(-1, 2, size=(500, 5))
    reduction = fit_reduction(x, np.ones(len(x)), dim=None, keep=[], scale=None, domain=None)

    def outputs(rows: np.ndarray) -> np.ndarray:
        a, b, c, d, _ = rows.T
        return np.stack([a**3 - b * c + 2 * d, 1 - a * b], axis=1)

    head = fitted_sum(outputs, x, reduction)(3)
    ours = head(torch.from_numpy(reduction.features(x))).numpy()
    assert np.abs(ours - outputs(x)).max() < 0.02 * np.ptp(outputs(x))


@pytest.mark.parametrize("base", [RandomForestClassifier(30, random_state=0), SVC()], ids=["forest", "SVC"])
def test_a_fitted_sum_keeps_all_columns_and_says_what_it_is(base: object) -> None:
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    model = BernsteinClassifier(base, terms="fit", degree=4).fit(x[::2], y[::2])
    assert model.form_ == "terms fitted to the base model"
    assert model.reduction_.dim == 30
    assert len(model.terms_) <= 30 + 15
    assert model.agreement(x[1::2]) > 0.95
    assert model.agreement(x[1::2]) == (model.predict(x[1::2]) == model.estimator_.predict(x[1::2])).mean()
    assert hasattr(model, "predict_proba") == hasattr(base, "predict_proba")


def test_a_sum_is_not_fitted_where_the_model_is_one_and_regressors_take_it_too() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    assert BernsteinClassifier(LogisticRegression(max_iter=5000), terms="fit").fit(x, y).form_.endswith("own terms")
    x, y = load_diabetes(return_X_y=True)
    model = BernsteinRegressor(KNeighborsRegressor(30), terms="fit", degree=3).fit(x, y)
    assert model.form_ == "terms fitted to the base model"
    assert model.agreement_ > 0.8


def test_a_degree_is_chosen_for_a_fitted_sum() -> None:
    x, y = load_diabetes(return_X_y=True)
    model = BernsteinRegressor(KNeighborsRegressor(30), terms="fit", degree="auto").fit(x, y)
    assert 1 <= max(model.degree_) <= 32
    with pytest.raises(ValueError, match="terms as None, 'auto' or 'fit', got 'own'"):
        BernsteinRegressor(KNeighborsRegressor(), terms="own").fit(x, y)
