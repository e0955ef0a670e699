"""Certificates of tables: nothing admissible within the radius changes the label, and the counterfactual does."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from tables import loans, points_near

from berncert import Status
from berncert.certification.feature_space import DenseSearch
from berncert.estimators import BernsteinClassifier, branching

MODELS: dict[str, Any] = {
    "forest": RandomForestClassifier(20, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=20, random_state=0),
    "neighbours": KNeighborsClassifier(),
    "svc": SVC(),
    "linear svc": LinearSVC(),
    "logistic": LogisticRegression(max_iter=5000),
}
NORMS = [1, 1.5, 2, 3, math.inf]


def assert_holds(model: BernsteinClassifier, x: np.ndarray, c: Any, norm: float, rng: np.random.Generator) -> None:
    """What every certificate claims, attacked with points biased to the counterfactual."""
    rows = np.asarray(c.counterfactual)
    for i in range(len(x)):
        radius = min(c.radius[i], 20.0)
        points = points_near(rng, x[i], rows[i], model.scale_, radius, norm, 400)
        assert (model.predict(points) == c.predicted[i]).all()
        if math.isfinite(c.upper[i]):
            assert model.predict(rows[[i]])[0] == c.rival[i] != c.predicted[i]
            far = np.linalg.norm((rows[i] - x[i]) / model.scale_, ord=norm)
            assert far <= c.upper[i] <= far * (1 + 1e-12)
            assert c.radius[i] <= c.upper[i]
        if c.status[i] is Status.PROVEN:
            assert c.upper[i] - c.radius[i] <= 1e-3 * c.upper[i]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:smoothing to degree 4 has changed")  # which changes no proof
def test_no_row_within_the_radius_changes_its_label(name: str) -> None:
    rng = np.random.default_rng(1)
    x, y = load_iris(return_X_y=True)
    model = BernsteinClassifier(clone(MODELS[name]), degree=4).fit(x[::2], y[::2])
    test = np.concatenate([x[1::16], x[1:9:4] * 1.6])  # the last ones lie outside the domain
    for norm in NORMS:
        c = model.certify(test, norm=norm, threads=1)
        assert_holds(model, test, c, norm, rng)
        assert set(c.status) <= {Status.PROVEN, Status.WHOLE_CUBE}


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_a_projection_keeps_the_law_and_l2_is_exact(norm: float, load: Any) -> None:
    rng = np.random.default_rng(2)
    x, y = load(return_X_y=True)
    model = BernsteinClassifier(KNeighborsClassifier(), degree=3, dim=3).fit(x[::2], y[::2])
    test = x[1::20]
    c = model.certify(test, norm=norm, threads=1)
    assert_holds(model, test, c, norm, rng)
    allowed = {Status.PROVEN, Status.WHOLE_CUBE} | ({Status.PROJECTED} if norm != 2 else set())
    assert set(c.status) <= allowed


def test_a_folded_pipeline_is_projected_to_what_its_model_sees() -> None:
    x, y = load_wine(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), PCA(3), SVC())
    folded = BernsteinClassifier(pipeline, degree=8, fold=True).fit(x[::2], y[::2])
    assert folded.reduction_.dim == 3
    assert folded.agreement_ > 0.9
    c = folded.certify(x[1::15], threads=1)
    assert_holds(folded, x[1::15], c, 2, np.random.default_rng(0))
    assert set(c.status) <= {Status.PROVEN, Status.WHOLE_CUBE}
    # rows that differ only where the pipeline does not look have the same features
    null = np.linalg.svd(folded.reduction_.matrix)[2][-1] * folded.scale_
    np.testing.assert_allclose(folded.features(x[:5] + 3 * null), folded.features(x[:5]), atol=1e-9)
    with pytest.raises(ValueError, match="expected a pipeline"):
        BernsteinClassifier(SVC(), fold=True).fit(x, y)


CONSTRAINTS: dict[str, dict[str, Any]] = {
    "fixed": {"fixed": ["age"]},
    "one-sided": {"increasing": ["income"], "decreasing": ["debt"]},
    "box": {"lower": {"income": 10.0}, "upper": {"debt": 12.0, "age": 70}},
    "moved box": {"lower": {"income": 40.0}},
    "whole": {"whole": ["age", "children"]},
    "categories": {"categories": [["rent", "family", "own"]]},
    "all": {
        "fixed": ["age"], "increasing": ["income"], "whole": ["children"], "categories": [["rent", "family", "own"]],
        "upper": {"income": 90.0},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def loan_model() -> BernsteinClassifier:
    table, y = loans()
    return BernsteinClassifier(LogisticRegression(max_iter=5000), degree=2, dim=None).fit(table, y)


def admissible_rows(
    rng: np.random.Generator, x: np.ndarray, options: dict[str, Any], names: list[str], near: np.ndarray, count: int
) -> np.ndarray:
    """Random admissible rows, many of them near the counterfactual."""
    spread = np.array([20.0, 2.0, 25.0, 10.0, 1.0, 1.0, 1.0])
    rows = x + rng.normal(size=(count, len(x))) * spread * rng.uniform(0, 1.5, (count, 1))
    if np.isfinite(near).all():
        rows[: count // 2] = near + rng.normal(size=(count // 2, len(x))) * spread * 10 ** rng.uniform(
            -5, 0, (count // 2, 1)
        )
    place = names.index
    for j, limit in options.get("lower", {}).items():
        rows[:, place(j)] = np.maximum(rows[:, place(j)], limit)
    for j, limit in options.get("upper", {}).items():
        rows[:, place(j)] = np.minimum(rows[:, place(j)], limit)
    for j in options.get("increasing", ()):
        rows[:, place(j)] = np.maximum(rows[:, place(j)], x[place(j)])
    for j in options.get("decreasing", ()):
        rows[:, place(j)] = np.minimum(rows[:, place(j)], x[place(j)])
    for j in options.get("whole", ()):
        rows[:, place(j)] = np.round(rows[:, place(j)])
    for group in options.get("categories", ()):
        columns = [place(j) for j in group]
        rows[:, columns] = np.eye(3)[rows[:, columns].argmax(axis=1)]
    for j in options.get("fixed", ()):
        rows[:, place(j)] = x[place(j)]
    return rows


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_no_admissible_row_within_the_radius_changes_its_label(
    kind: str, norm: float, loan_model: BernsteinClassifier
) -> None:
    options, rng = CONSTRAINTS[kind], np.random.default_rng(5)
    table, _ = loans(12, seed=9)
    names = list(table.columns)
    c = loan_model.certify(table, norm=norm, threads=1, **options)
    values, found = table.to_numpy(float), c.counterfactual.to_numpy()
    assert list(c.counterfactual.columns) == names
    for i, x in enumerate(values):
        rows = admissible_rows(rng, x, options, names, found[i], 3000)
        far = np.linalg.norm((rows - x) / loan_model.scale_, ord=norm, axis=1)
        frame = table.iloc[[0] * len(rows)].astype(float)
        frame[:] = rows
        flipped = loan_model.predict(frame) != c.predicted[i]
        assert far[flipped].min(initial=math.inf) >= c.radius[i] * (1 - 1e-12)
        if math.isfinite(c.upper[i]):
            again = admissible_rows(rng, x, options, names, np.full(7, np.nan), 1)
            again[0] = found[i]
            snapped = admissible_rows(np.random.default_rng(0), x, options, names, found[i], 2)
            assert snapped.shape == (2, 7)
            assert loan_model.predict(c.counterfactual.iloc[[i]])[0] == c.rival[i] != c.predicted[i]
            for j in options.get("fixed", ()):
                assert found[i, names.index(j)] == x[names.index(j)]
            for j in options.get("whole", ()):
                assert found[i, names.index(j)] == round(found[i, names.index(j)])
            for group in options.get("categories", ()):
                assert sorted(found[i, [names.index(j) for j in group]]) == [0, 0, 1]
            for j in options.get("increasing", ()):
                assert found[i, names.index(j)] >= x[names.index(j)]
            for j, limit in options.get("lower", {}).items():
                assert found[i, names.index(j)] >= limit
            for j, limit in options.get("upper", {}).items():
                assert found[i, names.index(j)] <= limit
        assert c.status[i] in (Status.PROVEN, Status.WHOLE_CUBE)


def test_whole_numbers_and_categories_agree_with_trying_them_all(loan_model: BernsteinClassifier) -> None:
    table, _ = loans(6, seed=11)
    names = list(table.columns)
    free = ["income", "debt"]
    options = {"whole": ["children"], "categories": [["rent", "family", "own"]], "fixed": ["age", *free]}
    c = loan_model.certify(table, threads=1, **options)
    for i, x in enumerate(table.to_numpy(float)):
        best = math.inf
        for children, home in itertools.product(range(-3, 12), range(3)):
            row = x.copy()
            row[names.index("children")] = children
            row[4:] = np.eye(3)[home]
            frame = table.iloc[[0]].astype(float)
            frame[:] = row
            if loan_model.predict(frame)[0] != c.predicted[i]:
                best = min(best, float(np.linalg.norm((row - x) / loan_model.scale_)))
        assert c.upper[i] == pytest.approx(best, rel=1e-9) if math.isfinite(best) else math.isinf(c.upper[i])


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("unit", [1.0, 20.0])
def test_a_category_without_rows_in_training_agrees_with_trying_them_all(norm: float, unit: float) -> None:
    rng = np.random.default_rng(0)
    seen = np.eye(4)[rng.integers(0, 2, 200)]
    x = np.c_[rng.normal(size=200), seen]
    y = x[:, 0] + 2 * seen[:, 0] + 3 * seen[:, 1] > 1.5
    scale = [1.0, unit, 2 * unit, unit, 3 * unit]
    model = BernsteinClassifier(LogisticRegression(), degree=3, dim=None, scale=scale).fit(x, y)
    assert model.reduction_.dim == 3  # the last two categories have no axes
    values = np.linspace(-6, 6, 20001)
    every = np.concatenate([np.c_[values, np.tile(member, (len(values), 1))] for member in np.eye(4)])
    labels = model.predict(every)
    test = np.c_[np.tile([-1.0, 0.3, 2.0], 4), np.repeat(np.eye(4), 3, axis=0)]
    c = model.certify(test, norm=norm, categories=[[1, 2, 3, 4]], threads=1)
    moved = 0
    for i, row in enumerate(test):
        far = np.linalg.norm((every - row) / scale, ord=norm, axis=1)
        best = far[labels != c.predicted[i]].min()
        assert c.radius[i] <= best * (1 + 1e-12)
        assert c.radius[i] == pytest.approx(best, rel=2e-3, abs=2e-3)
        assert sorted(c.counterfactual[i, 1:]) == [0, 0, 0, 1]
        assert c.status[i] is Status.PROVEN
        moved += c.counterfactual[i, 3:].any() != row[3:].any()
    assert moved or unit == 1.0  # where categories are near, some rows go to or from one that was never seen


def test_limits_on_a_category_without_rows_in_training_count() -> None:
    x = np.c_[np.linspace(0, 1, 40), np.tile(np.eye(3)[:2], (20, 1))]
    model = BernsteinClassifier(LogisticRegression(C=50.0), degree=3, dim=None).fit(x, x[:, 0] > 0.5)
    c = model.certify(x[[3, 30]], categories=[[1, 2, 3]], lower={3: 1.0}, threads=1)
    assert (c.counterfactual[:, 1:] == [0, 0, 1]).all()
    assert (c.radius >= 1 / model.scale_[3]).all()
    assert set(c.status) == {Status.PROVEN}
    with pytest.raises(ValueError, match=r"leave a category among the columns \[1, 2, 3\], got none in row 0"):
        model.certify(x[:1], categories=[[1, 2, 3]], upper={1: 0.0, 2: 0.0, 3: 0.0})


def test_one_clock_counts_all_nodes_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    table, y = loans()
    model = BernsteinClassifier(LogisticRegression(max_iter=5000), degree=2, dim=None).fit(table, y)
    options: Any = {"whole": ["age", "children"], "categories": [["rent", "family", "own"]], "threads": 1}
    test, now, given = table[:6], [0.0], []
    free = model.certify(test, **options)
    plain = DenseSearch.solve

    def slow(*arguments: Any, max_seconds: float | None, **others: Any) -> Any:
        given.append((len(arguments[1].features), max_seconds))
        now[0] += 1.0  # as if each node took a second
        return plain(*arguments, max_seconds=None, **others)

    monkeypatch.setattr(DenseSearch, "solve", slow)
    monkeypatch.setattr(branching.time, "monotonic", lambda: now[0])
    c = model.certify(test, max_seconds=3.0, **options)
    assert len(given) <= 3 * len(test)
    assert all(count == 1 and 0 < seconds <= 3.0 for count, seconds in given)
    assert Status.TIME in set(c.status)
    assert (c.radius <= free.upper).all()
    enough = model.certify(test, max_seconds=1e6, **options)
    np.testing.assert_array_equal(enough.upper, free.upper)
    assert list(enough.status) == list(free.status)


def test_counterfactuals_of_a_wanted_label_are_the_nearest() -> None:
    rng = np.random.default_rng(3)
    x, y = load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"])[y]
    model = BernsteinClassifier(SVC(), degree=4).fit(x, labels)
    test = x[::10]
    for wanted in ("versicolor", "virginica"):
        found = model.counterfactuals(test, wanted=wanted, threads=1)
        for i in range(len(test)):
            points = points_near(rng, test[i], found.counterfactual[i], model.scale_, min(found.radius[i], 9), 2, 500)
            if found.radius[i] > 0:
                assert not (model.predict(points) == wanted).any()
            if found.status[i] is Status.PROVEN:
                assert model.predict(found.counterfactual[[i]])[0] == wanted
                assert found.upper[i] - found.radius[i] <= 1e-3 * found.upper[i]
    with pytest.raises(ValueError, match=r"did you mean virginica"):
        model.counterfactuals(test, wanted="virginika")


def test_rows_outside_the_domain_are_exact_too() -> None:
    x = np.linspace(0, 1, 21)[:, None]
    model = BernsteinClassifier(LogisticRegression(C=100.0), degree=4).fit(x, x[:, 0] > 0.5)
    c = model.certify([[2.0], [-3.0]], threads=1)
    boundary = model.certify([[0.9]], threads=1).counterfactual[0, 0]
    assert not model.in_domain([[2.0]])[0]
    np.testing.assert_allclose(c.counterfactual[:, 0], boundary, atol=2e-3)
    np.testing.assert_allclose(c.radius * model.scale_[0], [2 - boundary, boundary + 3], rtol=2e-3)
    assert list(c.status) == [Status.PROVEN, Status.PROVEN]


def test_a_whole_column_that_never_varied_is_whole_in_the_counterfactual() -> None:
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=40), np.full(40, 2.5)]
    model = BernsteinClassifier(LogisticRegression(), degree=2, scale=[1.0, 1.0]).fit(x, x[:, 0] > 0)
    c, free = model.certify(x[:5], whole=[1], threads=1), model.certify(x[:5], threads=1)
    assert np.isin(c.counterfactual[:, 1], [2.0, 3.0]).all()
    assert (model.predict(c.counterfactual) != c.predicted).all()
    np.testing.assert_allclose(c.upper, np.hypot(free.upper, 0.5), rtol=3e-3)
    assert (c.radius <= c.upper).all()
