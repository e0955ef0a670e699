"""Columns that matter most, instead of a projection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import SVC

from berncert.estimators import BernsteinClassifier, BernsteinRegressor
from berncert.estimators.selection import importance, most_important

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(300, 9))
Y = (np.sin(4 * X[:, 3]) + 2 * X[:, 7] ** 2 + 0.3 * X[:, 5] > 1.4).astype(int)


def test_importance_is_the_mean_square_of_what_a_permutation_changes() -> None:
    found = importance(lambda rows: rows @ np.diag([0, 1, 2.0]), X[:, :3], range(3))
    expected = 2 * X[:, :3].var(axis=0) * [0, 1, 4]  # of two independent values of the column
    np.testing.assert_allclose(found, expected / 3, rtol=0.1, atol=1e-12)
    assert most_important(lambda rows: rows @ np.diag([0, 1, 2.0]), X[:, :3], [0, 1, 2], 2, [0]) == [0, 2]


@pytest.mark.parametrize("prefit", [False, True])
def test_the_columns_that_matter_are_kept_and_no_other_changes(prefit: bool) -> None:
    table = pd.DataFrame(X, columns=list("abcdefghi"))
    base = SVC(C=20)
    model = BernsteinClassifier(base.fit(table, Y) if prefit else base, dim="select:3", degree=8, prefit=prefit)
    model.fit(table, Y)
    assert model.reduction_.kept.tolist() == [3, 5, 7]
    assert model.agreement_ > (0.85 if prefit else 0.95)
    if not prefit:
        assert list(model.estimator_.feature_names_in_) == ["d", "f", "h"]
    c = model.certify(table[:20], fixed=["f"], threads=1)
    changed = (c.counterfactual != table[:20]).any()
    assert changed[changed].index.tolist() == ["d", "h"]
    assert (model.predict(c.counterfactual) != c.predicted).all()


def test_kept_columns_are_among_those_selected_and_five_are_the_default() -> None:
    model = BernsteinRegressor(KNeighborsRegressor(), dim="select", degree=2, keep=[0]).fit(X, Y.astype(float))
    assert {0, 3, 7} <= set(model.reduction_.kept.tolist())
    assert model.reduction_.dim == 5


@pytest.mark.parametrize("dim", ["choose", "select:", "select:x", "select:0", "5", "select 3"])
def test_other_words_are_refused(dim: Any) -> None:
    with pytest.raises(ValueError, match=r"expected (dim as a whole number, None, 'select'|a whole number dim >= 1)"):
        BernsteinClassifier(SVC(), dim=dim).fit(X, Y)


def test_more_kept_columns_than_axes_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer kept columns than dim = 2, got 3"):
        BernsteinClassifier(SVC(), dim="select:2", keep=[0, 1, 2]).fit(X, Y)


def test_a_forest_on_few_columns_of_many_is_nearly_as_good() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    model = BernsteinClassifier(RandomForestClassifier(20, random_state=0), dim="select").fit(x[::2], y[::2])
    assert model.score(x[1::2], y[1::2]) > 0.9
    assert model.agreement(x[1::2]) > 0.9
