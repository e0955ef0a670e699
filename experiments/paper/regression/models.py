"""Over-fitted models, the same models as they are usually regularised, and plain smoothers that anyone might use."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.polynomial import Chebyshev
from scipy.interpolate import make_smoothing_spline
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from berncert.foundation.arrays import Floats


class Family(NamedTuple):
    """A model that fits its training points too closely, and what its users would try against that."""

    name: str
    overfitted: Any
    regularised: dict[str, Any]
    """Setting -> model."""


class LeastSquares(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The polynomial of this degree with the least squared error, on [0, 1]."""

    def __init__(self, degree: int = 1) -> None:
        self.degree = degree

    def fit(self, t: Floats, y: Floats) -> Self:
        self.polynomial_ = Chebyshev.fit(t[:, 0], y, self.degree, domain=[0, 1])
        return self

    def predict(self, t: Floats) -> Floats:
        return np.asarray(self.polynomial_(t[:, 0]))


class SmoothingSpline(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A cubic spline whose second derivative is penalised; constant slope beyond the training points."""

    def __init__(self, penalty: float = 1.0) -> None:
        self.penalty = penalty

    def fit(self, t: Floats, y: Floats) -> Self:
        self.spline_ = make_smoothing_spline(t[:, 0], y, lam=self.penalty)
        return self

    def predict(self, t: Floats) -> Floats:
        return np.asarray(self.spline_(t[:, 0]))


def fitted(model: Any, x: Floats, y: Floats) -> Any:
    """The model, fitted; that training stops before it has converged is intended in over-fitting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(x, y)


def network(*, penalty: float = 0.0, width: int = 64, steps: int = 2000) -> Any:
    """Two hidden layers, trained on all points at once, to the end."""
    return make_pipeline(
        StandardScaler(),
        MLPRegressor(
            hidden_layer_sizes=(width, width), solver="lbfgs", alpha=penalty, tol=1e-9, max_iter=steps,
            max_fun=10 * steps, random_state=0,
        ),
    )  # fmt: skip


def boosting(rounds: int, depth: int) -> Any:
    return GradientBoostingRegressor(n_estimators=rounds, max_depth=depth, random_state=0)


def tree(leaves: int | None = None) -> Any:
    return DecisionTreeRegressor(max_leaf_nodes=leaves, random_state=0)


def curve_families(steps: int) -> list[Family]:
    """Of one column; steps: how long the network is trained."""
    leaves, neighbours, degrees = (2, 3, 4, 6, 8, 12, 16, 24), (1, 2, 3, 5, 8, 12, 20), (1, 2, 3, 4, 5, 7, 9, 12)
    penalties, rounds = (1e-3, 1e-2, 0.1, 1.0), (10, 20, 40, 80, 160)
    return [
        Family("neural network", network(steps=steps),
               {f"penalty {p:g}": network(penalty=p, steps=steps) for p in penalties}),
        Family("decision tree", tree(), {f"{n} leaves": tree(n) for n in leaves}),
        Family("1 nearest neighbour", KNeighborsRegressor(1),
               {f"{k} neighbours": KNeighborsRegressor(k) for k in neighbours}),
        Family("boosting, 500 rounds", boosting(500, 3), {f"{n} rounds": boosting(n, 2) for n in rounds}),
        Family("polynomial, degree 15", LeastSquares(15), {f"degree {n}": LeastSquares(n) for n in degrees}),
    ]  # fmt: skip


def smoothers() -> list[Family]:
    """Fitted to the points themselves, in place of any other model."""
    return [
        Family("smoothing spline", None, {f"{p:.0e}": SmoothingSpline(p) for p in np.logspace(-7, 0, 15)}),
        Family("kernel ridge", None, {
            f"gamma {g}, alpha {a}": KernelRidge(kernel="rbf", gamma=g, alpha=a)
            for g in (5, 10, 20, 50, 100) for a in (0.01, 0.1, 0.3, 1.0)
        }),
    ]  # fmt: skip


def table_families(trees: int, steps: int) -> list[Family]:
    """Of many columns."""
    forest = {
        f"leaves of {n}": RandomForestRegressor(trees, min_samples_leaf=n, random_state=0) for n in (1, 5, 10, 20)
    }
    scaled = {f"{k} neighbours": make_pipeline(StandardScaler(), KNeighborsRegressor(k)) for k in (1, 3, 5, 10, 20, 40)}
    return [
        Family("1 nearest neighbour", make_pipeline(StandardScaler(), KNeighborsRegressor(1)), scaled),
        Family("decision tree", tree(), {f"{n} leaves": tree(n) for n in (3, 5, 8, 12, 20)}),
        Family("boosting", boosting(3 * trees, 4), {f"{n} rounds": boosting(n, 2) for n in (10, 20, 40, 80)}),
        Family("random forest", RandomForestRegressor(trees, random_state=0), forest),
        Family("neural network", network(width=32, steps=steps),
               {f"penalty {p:g}": network(penalty=p, width=32, steps=steps) for p in (0.1, 1.0, 10.0, 100.0)}),
    ]  # fmt: skip


def linear() -> Family:
    """The plain rival on tables."""
    models = {f"penalty {p:g}": make_pipeline(StandardScaler(), Ridge(p)) for p in (0.1, 1.0, 10.0, 100.0)}
    return Family("ridge regression", None, models)
