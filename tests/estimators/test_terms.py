"""Sums of terms: found by asking a model, smoothed term by term; what is no such sum is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, SplineTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC

from berncert import SumHead, smooth
from berncert.estimators import BernsteinClassifier, BernsteinRegressor
from berncert.estimators.reduction import fit_reduction
from berncert.estimators.term_smoothing import raised, smoothed_sum
from berncert.estimators.terms import find_sum

pytestmark = pytest.mark.filterwarnings("ignore:smoothing to degree")
X, Y = load_wine(return_X_y=True)
FEW = X[:, [0, 6, 9, 12]]
scaled = StandardScaler
POLYNOMIAL = {
    "logistic": make_pipeline(scaled(), LogisticRegression()),
    "linear SVC": make_pipeline(scaled(), LinearSVC()),
    "ridge": RidgeClassifier(),
    "SGD": make_pipeline(scaled(), SGDClassifier(random_state=0)),
    "LDA": LinearDiscriminantAnalysis(),
    "multinomial NB": MultinomialNB(),
    "Gaussian NB": GaussianNB(),
    "products": make_pipeline(scaled(), PolynomialFeatures(2), LogisticRegression(max_iter=2000)),
    "QDA": QuadraticDiscriminantAnalysis(),
}
BENDING = {
    "splines": make_pipeline(SplineTransformer(), LogisticRegression(max_iter=2000)),
    "bins": make_pipeline(
        KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"), CategoricalNB()
    ),
    "Bernoulli NB": make_pipeline(scaled(), BernoulliNB()),
    "boosted stumps": GradientBoostingClassifier(n_estimators=20, max_depth=1, random_state=0),
    "histograms": HistGradientBoostingClassifier(max_iter=20, max_depth=1),
    "AdaBoost": AdaBoostClassifier(n_estimators=10, random_state=0),
    "boosted pairs": GradientBoostingClassifier(n_estimators=10, max_depth=2, random_state=0),
    "histograms of pairs": HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=3),
    "shallow forest": RandomForestClassifier(10, max_depth=2, random_state=0),
}
OTHERS = {
    "SVC": SVC(),
    "neighbours": KNeighborsClassifier(),
    "forest": RandomForestClassifier(10, random_state=0),
    "deep boosting": GradientBoostingClassifier(n_estimators=10, max_depth=4, random_state=0),
    "cubes": make_pipeline(scaled(), PolynomialFeatures(3), LogisticRegression(max_iter=5000)),
}


def scores_of(base: Any, rows: np.ndarray) -> np.ndarray:
    """What the model itself says, less the mean over classes."""
    values = base.decision_function(rows) if hasattr(base, "decision_function") else base.predict_log_proba(rows)
    return values - values.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("name", POLYNOMIAL)
def test_models_that_are_polynomials_are_taken_exactly_as_they_are(name: str) -> None:
    model = BernsteinClassifier(POLYNOMIAL[name], degree=3, terms="auto").fit(FEW, Y)
    assert model.form_ == "the base model's own terms"
    ours = model.decision_function(FEW)
    theirs = scores_of(model.estimator_, FEW)
    np.testing.assert_allclose(ours - ours.mean(axis=1, keepdims=True), theirs, atol=1e-8 * np.abs(theirs).max())
    assert model.agreement_ == 1
    bends = name in ("Gaussian NB", "products", "QDA")
    assert bool(model.head_.terms) == bends
    assert set(model.degree_) == ({2} if bends else {1})


@pytest.mark.parametrize("name", BENDING)
def test_terms_smoothed_one_by_one_sum_to_the_dense_polynomial_of_the_model(name: str) -> None:
    degree = 5
    model = BernsteinClassifier(BENDING[name], degree=degree, terms="auto").fit(FEW, Y)
    assert model.form_ == "the base model's own terms"
    assert max(len(columns) for columns in model.terms_ or []) <= 2
    estimator, reduction = model.estimator_, model.reduction_
    in_logs = not hasattr(estimator, "decision_function") and name != "shallow forest"

    def whole(u: torch.Tensor) -> torch.Tensor:
        rows = reduction.rows(u.numpy())
        values = scores_of(estimator, rows) if in_logs or hasattr(estimator, "decision_function") else None
        return torch.from_numpy(estimator.predict_proba(rows) if values is None else values)

    dense = smooth(whole, 4, degree, points=0)
    points = torch.rand((200, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours, theirs = (head(points) for head in (model.head_, dense))
    ours, theirs = (values - values.mean(dim=1, keepdim=True) for values in (ours, theirs))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8 * float(theirs.abs().max()))


@pytest.mark.parametrize("name", OTHERS)
def test_models_that_are_no_sum_are_smoothed_as_without_the_option(name: str) -> None:
    base = OTHERS[name]
    plain, asked = (BernsteinClassifier(base, degree=2, dim=3, terms=terms).fit(FEW, Y) for terms in (None, "auto"))
    assert plain.form_ == asked.form_ == "one polynomial"
    assert asked.terms_ is None
    np.testing.assert_array_equal(asked.coefficients_, plain.coefficients_)


@pytest.mark.parametrize("terms", ["auto", "fit"])
def test_terms_and_a_folded_projection_exclude_each_other(terms: str) -> None:
    base = make_pipeline(scaled(), LogisticRegression())
    with pytest.raises(ValueError, match=f"got fold=True and terms='{terms}'"):
        BernsteinClassifier(base, fold=True, terms=terms).fit(FEW, Y)


def test_a_column_with_an_affine_part_and_a_bent_term_is_named_once() -> None:
    stumps = GradientBoostingClassifier(n_estimators=20, max_depth=1, random_state=0)
    model = BernsteinClassifier(stumps, terms="auto", degree=6).fit(FEW, Y)
    assert model.head_.affine[0].any()  # a slope that keeps flat places from falling by rounding
    assert len(set(model.terms_)) == len(model.terms_)


def step(x: np.ndarray, at: float) -> np.ndarray:
    return (x > at).astype(float)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 4))
def test_the_pairs_of_columns_that_a_score_has_are_found(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(300, 6))
    chosen = {tuple(sorted(rng.choice(6, 2, replace=False).tolist())) for _ in range(count)}
    ends = {pair: rng.uniform(0.2, 0.8, 2) for pair in chosen}

    def score(rows: np.ndarray) -> np.ndarray:
        total = np.sin(5 * rows).sum(axis=1) + 3 * rows[:, 0]
        for (j, k), (a, b) in ends.items():
            total = total + step(rows[:, j], a) * step(rows[:, k], b)
        return np.stack([total, -total], axis=1)

    found = find_sum(score, x, range(6))
    assert found is not None
    assert set(found.pairs) == chosen


def test_a_pair_with_an_effect_in_a_rare_corner_is_found_and_a_triple_is_refused() -> None:
    x = np.random.default_rng(0).uniform(size=(1000, 5))
    pair = find_sum(lambda r: (step(r[:, 1], 0.97) * step(r[:, 3], 0.7))[:, None] + r[:, :1], x, range(5))
    assert pair is not None
    assert pair.pairs == ((1, 3),)
    triple = find_sum(lambda r: (step(r[:, 0], 0.8) * step(r[:, 1], 0.8) * step(r[:, 3], 0.8))[:, None], x, range(5))
    assert triple is None


def test_a_score_that_differs_from_every_sum_at_one_row_is_refused() -> None:
    x = np.random.default_rng(0).uniform(size=(200, 4))

    def score(rows: np.ndarray) -> np.ndarray:
        return rows.sum(axis=1, keepdims=True) + 1e-4 * (rows == x[17]).all(axis=1, keepdims=True)

    assert find_sum(lambda rows: rows.sum(axis=1, keepdims=True), x, range(4)) is not None
    assert find_sum(score, x, range(4)) is None
    assert find_sum(lambda rows: np.full((len(rows), 1), np.nan), x, range(4)) is None


def test_columns_with_two_values_are_exact_at_both_and_columns_that_do_not_vary_have_no_term() -> None:
    rng = np.random.default_rng(0)
    x = np.c_[rng.integers(0, 2, 200), rng.normal(size=200), np.full(200, 3.0)].astype(float)
    y = (x[:, 0] + np.sin(2 * x[:, 1]) > 0.7).astype(int)
    model = BernsteinClassifier(HistGradientBoostingClassifier(max_depth=1), degree=7, terms="auto").fit(x, y)
    assert model.terms_ == [(0,), (1,)]
    assert model.degree_ == (1, 7)
    flipped = x.copy()
    flipped[:, 0] = 1 - x[:, 0]
    change = model.decision_function(flipped) - model.decision_function(x)
    base = model.estimator_.decision_function(flipped) - model.estimator_.decision_function(x)
    np.testing.assert_allclose(change, base, atol=1e-9)


@pytest.mark.parametrize("degrees", [(2, 2), (1, 6), (3, 5)])
def test_raising_the_degree_keeps_the_polynomial(degrees: tuple[int, int]) -> None:
    net = np.random.default_rng(0).normal(size=(3, degrees[0] + 1))
    points = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    zeros = torch.zeros((3, 1), dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    one, other = (SumHead(*zeros, [((0,), torch.from_numpy(n))])(points) for n in (net, raised(net, degrees[1])))
    torch.testing.assert_close(one, other)


def test_regressors_that_are_sums_are_recognised_too_and_others_are_not() -> None:
    x, y = load_diabetes(return_X_y=True)
    linear = BernsteinRegressor(LinearRegression(), terms="auto").fit(x, np.stack([y, -2 * y], axis=1))
    np.testing.assert_allclose(linear.predict(x), linear.estimator_.predict(x), rtol=1e-9)
    assert linear.reduction_.dim == 10
    shallow = BernsteinRegressor(RandomForestRegressor(5, max_depth=2, random_state=0), terms="auto").fit(x, y)
    assert shallow.form_ == "the base model's own terms"
    for base in (PoissonRegressor(), RandomForestRegressor(5, random_state=0)):
        assert BernsteinRegressor(base, terms="auto", degree=2).fit(x, y).form_ == "one polynomial"


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_terms_are_found_whatever_the_unit_of_columns_and_the_offset_of_the_target(unit: float) -> None:
    x, y = load_diabetes(return_X_y=True)
    model = BernsteinRegressor(LinearRegression(), terms="auto").fit(x * unit, y * unit + 1e3 * unit)
    assert model.form_ == "the base model's own terms"
    assert model.agreement_ == pytest.approx(1, abs=1e-9)


def test_an_explainable_boosting_machine_is_recognised_with_its_pairs() -> None:
    glassbox = pytest.importorskip("interpret.glassbox")
    x, y = load_breast_cancer(return_X_y=True)
    base = glassbox.ExplainableBoostingClassifier(n_jobs=1, max_rounds=20, interactions=3, outer_bags=2)
    model = BernsteinClassifier(base, degree=4, terms="auto").fit(x[:, :8], y)
    assert model.form_ == "the base model's own terms"
    assert sum(len(columns) == 2 for columns in model.terms_) == 3


def test_a_sum_is_smoothed_on_a_domain_that_the_user_chooses() -> None:
    domain = (X.min(axis=0) - 1, X.max(axis=0) + 1)
    reduction = fit_reduction(X, np.ones(len(X)), dim=None, keep=[], scale=None, domain=domain)
    base = GaussianNB().fit(X, Y)
    found = find_sum(lambda rows: scores_of(base, rows), X, reduction.kept.tolist())
    assert found is not None
    head = smoothed_sum(found, reduction, 2, X)
    wide = X[:40] + np.linspace(-0.9, 0.9, 40)[:, None]
    np.testing.assert_allclose(
        head(torch.from_numpy(reduction.features(wide))), scores_of(base, wide), rtol=1e-7, atol=1e-5
    )
