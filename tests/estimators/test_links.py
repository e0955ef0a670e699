"""Probabilities from scores: the base model's own, found by comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.ensemble import AdaBoostClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB

from berncert.estimators import BernsteinClassifier
from berncert.estimators.links import find_link

pytestmark = pytest.mark.filterwarnings("ignore:smoothing to degree")
X, Y = load_wine(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("base", "link"),
    [
        (LogisticRegression(), "softmax"),
        (SGDClassifier(loss="log_loss", random_state=0), "sigmoids"),
        (GaussianNB(), "softmax"),
        (AdaBoostClassifier(n_estimators=10, random_state=0), "softmax"),
        (GradientBoostingClassifier(n_estimators=10, max_depth=1, random_state=0), "softmax"),
        (RandomForestClassifier(10, max_depth=1, random_state=0), "shares"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_sum_has_probabilities_as_its_base_makes_them(base: Any, link: str, classes: int) -> None:
    x, y = X[classes > Y], Y[classes > Y]
    model = BernsteinClassifier(base, degree=10, terms="auto").fit(x, y)
    ours, theirs = model.predict_proba(x), model.estimator_.predict_proba(x)
    np.testing.assert_allclose(ours.sum(axis=1), 1, rtol=1e-12)
    assert (ours >= 0).all()
    np.testing.assert_array_equal(model.classes_[ours.argmax(axis=1)], model.predict(x))
    assert model.link_[0] == ("softmax" if classes == 2 and link == "sigmoids" else link)
    if set(model.degree_) <= {1, 2}:  # a polynomial already: the same scores, so the same probabilities
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_exponential_loss_has_its_factor_and_scores_without_probabilities_have_none() -> None:
    x, y = X[Y < 2], Y[Y < 2]
    base = GradientBoostingClassifier(n_estimators=10, max_depth=1, loss="exponential")
    name, factor = BernsteinClassifier(base, degree=3, terms="auto").fit(x, y).link_
    assert name == "softmax"
    assert factor == pytest.approx(2, rel=1e-6)
    model = BernsteinClassifier(RidgeClassifier(), terms="auto").fit(x, y)
    assert not hasattr(model, "predict_proba")
    assert model.decision_function(x).shape == (len(x),)


def test_probabilities_that_are_not_made_of_scores_have_no_link() -> None:
    rng = np.random.default_rng(0)
    assert find_link(rng.normal(size=(50, 3)), rng.dirichlet([1, 1, 1], 50)) is None
