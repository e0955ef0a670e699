"""The conventions of scikit-learn, kept by both estimators; files; and input that makes no sense."""

from __future__ import annotations

import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from tables import loans

from berncert import SmoothingWarning, Status
from berncert.estimators import BernsteinClassifier, BernsteinRegressor, load
from berncert.estimators.columns import side

pytestmark = pytest.mark.filterwarnings("ignore:smoothing to degree")  # of models of noise, or to a degree too low
X, Y = load_iris(return_X_y=True)
FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"])


@parametrize_with_checks(
    [
        BernsteinClassifier(LogisticRegression(), degree=3),
        BernsteinClassifier(RidgeClassifier(), degree=2),
        BernsteinClassifier(DecisionTreeClassifier(random_state=0), degree=4),
        BernsteinClassifier(LogisticRegression(), terms="auto"),
        BernsteinClassifier(DecisionTreeClassifier(max_depth=2, random_state=0), degree=12, terms="auto"),
        BernsteinClassifier(DecisionTreeClassifier(random_state=0), degree=8, dim="select:3", terms="fit"),
        BernsteinRegressor(Ridge(), degree=2),
        BernsteinRegressor(Ridge(), terms="auto"),
    ]
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_clone_pipelines_grids_and_outputs_as_frames() -> None:
    model = BernsteinClassifier(SVC(), degree=2, dim=None)
    assert clone(model).get_params()["degree"] == 2
    pipeline = make_pipeline(StandardScaler(), model).set_output(transform="pandas").fit(FRAME, Y)
    assert list(pipeline[-1].feature_names_in_) == ["a", "b", "c", "d"]
    grid = GridSearchCV(model, {"degree": [1, 3], "dim": [2, None], "estimator__C": [1.0, 9.0]}, cv=2).fit(X, Y)
    assert grid.best_score_ > 0.8
    assert pickle.loads(pickle.dumps(grid.best_estimator_)).score(X, Y) == grid.best_estimator_.score(X, Y)


def test_labels_frames_and_names_are_the_users() -> None:
    labels = np.array(["one", "two", "three"])[Y]
    model = BernsteinClassifier(KNeighborsClassifier(), degree=4).fit(FRAME, labels)
    c = model.certify(FRAME.iloc[::30], threads=1)
    assert list(c.counterfactual.columns) == list(FRAME.columns)
    assert list(c.counterfactual.index) == list(FRAME.index[::30])
    assert set(c.predicted) | set(c.rival) <= set(labels)
    assert "5 rows: 5 PROVEN" in repr(c)
    assert c[2].radius == c.radius[2]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(FRAME[["b", "a", "c", "d"]])


def test_polars_frames_come_back_as_they_went() -> None:
    polars = pytest.importorskip("polars")
    table = polars.DataFrame(X, schema=["a", "b", "c", "d"])
    model = BernsteinClassifier(KNeighborsClassifier(), degree=3).fit(table, Y)
    assert isinstance(model.certify(table[:2], fixed=["a"], threads=1).counterfactual, polars.DataFrame)


def test_prefit_models_are_smoothed_as_they_are() -> None:
    base = RandomForestClassifier(10, random_state=0).fit(FRAME, Y)
    model = BernsteinClassifier(base, degree=8, prefit=True).fit(X, Y)
    assert model.estimator_ is base
    assert model.agreement_ > 0.9
    reduced = BernsteinClassifier(base, degree=8, dim=2, prefit=True).fit(FRAME, Y)
    assert reduced.reduction_.dim == 2
    assert reduced.score(FRAME, Y) > 0.85


def test_sample_weights_reach_the_base_and_the_reduction() -> None:
    weight = np.r_[np.ones(100), np.zeros(50)]
    weighed = BernsteinClassifier(LogisticRegression(max_iter=999), degree=3, dim=2).fit(X, Y, sample_weight=weight)
    fewer = BernsteinClassifier(LogisticRegression(max_iter=999), degree=3, dim=2).fit(X[:100], Y[:100])
    np.testing.assert_allclose(weighed.reduction_.width, fewer.reduction_.width)
    piped = BernsteinClassifier(make_pipeline(StandardScaler(), LogisticRegression()), degree=2)
    piped.fit(X, Y, sample_weight=weight)
    with pytest.raises(ValueError, match="takes sample weights, got KNeighborsClassifier"):
        BernsteinClassifier(KNeighborsClassifier()).fit(X, Y, sample_weight=weight)


def test_the_degree_may_be_chosen() -> None:
    model = BernsteinClassifier(LogisticRegression(max_iter=999), degree="auto").fit(X, Y)
    assert model.degree_[0] >= 2
    assert model.agreement_ > 0.95
    plane = BernsteinRegressor(Ridge(), degree="auto").fit(X[:, :3], X[:, 3])
    assert set(plane.degree_) == {1}  # a plane is a polynomial of degree 1
    assert plane.agreement_ > 0.999


def test_scale_and_domain_are_the_users_if_given() -> None:
    model = BernsteinClassifier(SVC(), degree=4, scale=[1, 1, 2, 2], domain=({"a": 0}, {"a": 10})).fit(FRAME, Y)
    assert model.scale_.tolist() == [1, 1, 2, 2]
    assert model.reduction_.low[0] == 0
    assert model.reduction_.width[0] == 10
    twice = BernsteinClassifier(SVC(), degree=4, scale=[2, 2, 4, 4], domain=({"a": 0}, {"a": 10})).fit(FRAME, Y)
    one, two = (m.certify(FRAME.iloc[::50], threads=1).radius for m in (model, twice))
    np.testing.assert_allclose(one, 2 * two, rtol=1e-3)


def test_what_has_names_is_matched_by_them() -> None:
    polars = pytest.importorskip("polars")
    shuffled = pd.Series({"d": 4.0, "b": 2.0, "a": 1.0, "c": 3.0})
    ways = [shuffled, shuffled.to_frame().T, dict(shuffled), polars.DataFrame(dict(shuffled)), [1, 2, 3, 4]]
    for given in ways:
        np.testing.assert_array_equal(side(given, ["a", "b", "c", "d"], (3, 4), np.nan, "scale"), [[1, 2, 3, 4]] * 3)
    for given in (pd.Series({"b": 2.0}), pd.DataFrame({"b": [2.0] * 3}), polars.DataFrame({"b": [2.0]}), {"b": 2}):
        np.testing.assert_array_equal(side(given, ["a", "b"], (3, 2), -np.inf, "lower"), [[-np.inf, 2]] * 3)
    np.testing.assert_array_equal(side(pd.Series([5.0, 6.0]), None, (1, 2), 0, "lower"), [[5, 6]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pd.Series({"inkome": 1.0}), "column of the table in lower, got 'inkome'; did you mean income"),
        (pd.DataFrame({"x": [1.0], "y": [2.0]}), "column of the table in lower, got 'x'"),
        ([1.0], r"a row of 2 or a table of shape \(3, 2\), got \[1.0\]"),
        (np.zeros((3, 1)), r"got \(3, 1\)"),
        ({"age": "x"}, "a number in lower for column 'age', got 'x'"),
        ({"age": [1.0, 2.0]}, "one for each of 3 rows, in lower for column 'age'"),
        ({"age": 1.0, 0: 2.0}, "each column once in lower"),
    ],
)
def test_limits_that_do_not_fit_the_columns_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        side(given, ["age", "income"], (3, 2), np.nan, "lower")


def test_columns_without_a_scale_keep_their_own() -> None:
    plain = BernsteinClassifier(SVC(), degree=2).fit(FRAME, Y)
    model = BernsteinClassifier(SVC(), degree=2, scale=pd.Series({"b": 9.0})).fit(FRAME, Y)
    assert model.scale_[1] == 9
    np.testing.assert_array_equal(np.delete(model.scale_, 1), np.delete(plain.scale_, 1))


def test_a_degree_is_chosen_where_a_class_is_rare() -> None:
    for rare in range(0, 40, 4):  # the fifth that is held out has the only row of the class, for some
        labels = (X[:40, 0] > 5).astype(int)
        labels[rare] = 2
        model = BernsteinClassifier(LogisticRegression(max_iter=999), degree="auto", dim=2).fit(X[:40], labels)
        assert model.classes_.tolist() == [0, 1, 2]


def test_regressors_have_one_output_or_several() -> None:
    x, y = load_diabetes(return_X_y=True)
    one = BernsteinRegressor(KNeighborsRegressor(20), degree=4, dim=3).fit(x, y)
    assert one.predict(x).shape == (len(x),)
    two = BernsteinRegressor(KNeighborsRegressor(20), degree=4, dim=3).fit(x, np.stack([y, -y], axis=1))
    np.testing.assert_allclose(two.predict(x)[:, 1], -one.predict(x), rtol=1e-9)
    assert two.bounds(x[:3], 0.1, threads=1)[0].shape == (3, 2)


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_a_saved_model_is_the_model(kind: str, tmp_path: Path) -> None:
    base = RandomForestClassifier(5, random_state=0) if kind == "classifier" else RandomForestRegressor(5)
    model = (BernsteinClassifier if kind == "classifier" else BernsteinRegressor)(base, degree=3, dim=3).fit(FRAME, Y)
    model.save(tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(FRAME), model.predict(FRAME))
    np.testing.assert_array_equal(again.bounds(FRAME[:2], 0.1)[0], model.bounds(FRAME[:2], 0.1)[0])


def test_files_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    import skops.io

    (tmp_path / "a").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="expected a skops file"):
        load(tmp_path / "a")
    skops.io.dump(LogisticRegression(), tmp_path / "b")
    with pytest.raises(ValueError, match="got LogisticRegression"):
        load(tmp_path / "b")
    skops.io.dump(Path("x"), tmp_path / "c")
    with pytest.raises(ValueError, match="types that are known, got pathlib"):
        load(tmp_path / "c")


def test_constant_columns_play_no_part() -> None:
    table = np.c_[X, np.full(len(X), 7.0)]
    model = BernsteinClassifier(SVC(), degree=3, dim=None).fit(table, Y)
    assert model.reduction_.dim == 4
    assert model.monotonicity()[4].direction.name == "CONSTANT"
    c = model.certify(table[::40], threads=1)
    assert (c.counterfactual[:, 4] == 7).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x, y: (np.where(x > 5, np.nan, x), y), ValueError, "NaN"),
        (lambda x, y: (np.full(x.shape, "red", dtype=object), y), ValueError, "could not convert string"),
        (lambda x, y: (x, np.zeros(len(y), int)), ValueError, "one class only"),
        (lambda x, y: (x[:0], y[:0]), ValueError, "0 sample"),
        *(
            (lambda x, y, unit=unit: (x * [1, 1, unit, 1], y), ValueError, f"column 2, got .* too {word} to compute")
            for unit, word in [(1e160, "large"), (1e300, "large"), (1e307, "large"), (1e-310, "small")]
        ),
        (lambda x, y: (np.c_[x, x, x, x], y), MemoryError, "lower the degree or the number of .*dim=5"),
    ],
)
def test_tables_that_make_no_sense_are_refused(change: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BernsteinClassifier(SVC(), dim=None).fit(*change(X, Y))


def test_a_target_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match=r"in y, got 2e\+307: its range is too large to compute with"):
        BernsteinRegressor(Ridge()).fit(X, Y * 1e307)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 0}, "degree >= 1, got 0; pass an int from 1"),
        ({"prefit": True}, "expected a fitted model with prefit=True, got SVC .* fit it first, or pass prefit=False"),
        ({"degree": "high"}, "'auto', got 'high'"),
        ({"dim": 0}, "dim >= 1"),
        ({"scale": [1, 1, 0, 1]}, "scale above 0"),
        ({"domain": 3}, r"domain=\(lower, upper\)"),
        ({"domain": ({"a": 9}, {"a": 1})}, "lower <= upper"),
        ({"keep": ["z"], "dim": 2}, "column of the table in keep, got 'z'"),
        ({"estimator": SVC(decision_function_shape="ovo")}, ""),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    model = BernsteinClassifier(**{"estimator": SVC(), **options})
    if not message:  # three classes have three pairs
        model.fit(FRAME, Y)
        return
    with pytest.raises(ValueError, match=message):
        model.fit(FRAME, Y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fixed": ["agee"]}, "got 'agee'; did you mean age"),
        ({"fixed": [9]}, "a number below 7"),
        (
            {"lower": {"income": 9.0}, "upper": {"income": 1.0}},
            "expected an admissible value in every column, got none",
        ),
        ({"categories": [["age", "own"]]}, "exactly one 1 among the columns"),
        ({"whole": ["children"], "lower": {"children": 0.2}, "upper": {"children": 0.8}}, "admissible value"),
        ({"lower": np.zeros((3, 3))}, r"a row of 7 or a table of shape \(10, 7\)"),
        ({"norm": 0.5}, "1 <= p"),
        ({"fixed": ["age"], "lower": {"age": 500.0}}, "got none in row 0, column age: at least 500.0"),
        ({"fixed": ["age"], "upper": {"age": 1.0}}, "got none in row 0, column age"),
        (
            {"categories": ["rent", "family", "own"]},
            r"a list of lists.* write categories=\[\['rent', 'family', 'own'\]\]",
        ),
    ],
)
def test_constraints_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    table, y = loans(60)
    model = BernsteinClassifier(LogisticRegression(max_iter=5000), degree=1, dim=None).fit(table, y)
    with pytest.raises(ValueError, match=message):
        model.certify(table[:10], **options)
    with pytest.raises(TypeError, match="expected constraints out of"):
        model.certify(table[:10], frozen=["age"])


def test_projected_columns_cannot_be_constrained_and_kept_ones_can() -> None:
    table, y = loans(80)
    model = BernsteinClassifier(LogisticRegression(max_iter=5000), degree=2, dim=3, keep=["age"]).fit(table, y)
    c = model.certify(table[:10], fixed=["age"], threads=1)
    assert (c.counterfactual["age"].to_numpy() == table["age"][:10].to_numpy()).all()
    assert Status.PROVEN in set(c.status)
    with pytest.raises(ValueError, match=r"not projected, got income; fit with keep"):
        model.certify(table[:10], fixed=["income"])


def test_importing_the_package_is_light() -> None:
    import subprocess
    import sys

    code = "import sys, berncert.estimators; print(sorted({'torch', 'sklearn', 'numba'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_no_warning_is_given_for_names() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BernsteinClassifier(SVC(), degree=2).fit(FRAME, Y)
        model.certify(FRAME[:3], threads=1)
    assert math.isfinite(model.agreement_)


def test_limits_in_another_order_of_rows_are_refused_and_labels_of_rows_are_no_columns() -> None:
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    model = BernsteinClassifier(LogisticRegression(), degree=2, dim=None).fit(x, x["a"] > 0)
    few = x.iloc[:4]
    low = few - 0.5
    model.certify(few, lower=low, threads=1)
    for lower in (low[::-1], {"a": low["a"][::-1]}):
        with pytest.raises(ValueError, match="expected the rows of lower in the order of the table"):
            model.certify(few, lower=lower, threads=1)
        with pytest.raises(ValueError, match="expected the rows of lower in the order of the table"):
            model.bounds(few, 0.1, lower=lower, threads=1)
    with pytest.raises(ValueError, match="expected the names of columns in lower"):
        model.certify(few, lower=few["a"] - 0.01, threads=1)


@pytest.mark.parametrize(("degree", "ruined"), [(2, True), (8, False)])
def test_a_model_that_smoothing_ruins_is_reported(degree: int, ruined: bool) -> None:
    x, y = load_wine(return_X_y=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", SmoothingWarning)
        model = BernsteinClassifier(SVC(), degree=degree).fit(x[::2], y[::2])
    said = [str(warning.message) for warning in found if warning.category is SmoothingWarning]
    assert bool(said) == (model.agreement_ < 0.75) == ruined
    if ruined:
        assert "the same class as SVC on 40.4 % of the 89 rows; the polynomial gives all of them one class" in said[0]
        assert len(set(model.predict(x[::2]))) == 1
