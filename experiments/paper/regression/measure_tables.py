"""The part on real tables: cross-validated errors of over-fitted models, raw and smoothed, and proven ranges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from benchmarks.timing import shown
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_wine
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold, train_test_split

from berncert.estimators import BernsteinRegressor
from berncert.foundation.arrays import Floats
from experiments.paper.regression.models import Family, fitted, linear, table_families
from experiments.paper.regression.problem import best, rmse

VALIDATION = 0.25
"""The share of the training rows by which degree and settings are chosen; then all training rows are fitted."""
RADIUS = 0.25
"""Of the proven ranges, in standard deviations of the columns, l2."""

SPREADS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
"""Of the steps that are tried around the most extreme row found so far."""


class Table(NamedTuple):
    name: str
    about: str
    x: Floats
    y: Floats


class Amounts(NamedTuple):
    folds: int = 5
    repeats: int = 1
    dim: int = 5
    degrees: tuple[int, ...] = (1, 2, 4, 8, 12)
    trees: int = 50
    steps: int = 500
    ranges: int = 10
    """Test rows of the first fold whose range is proven."""
    samples: int = 20000
    """Rows tried within each of these ranges."""


AMOUNTS = {
    "small": Amounts(),
    "full": Amounts(repeats=4, degrees=(1, 2, 4, 8, 12, 16), trees=200, ranges=40),
    "toy": Amounts(folds=2, dim=2, degrees=(1, 4), trees=3, steps=20, ranges=2, samples=200),
}


def tables() -> list[Table]:
    """Shipped with scikit-learn: no download."""
    wine = load_wine()
    return [
        Table("diabetes", "the progress of a disease from ten columns", *load_diabetes(return_X_y=True)),
        Table("wine", "alcohol from the other twelve columns", np.delete(wine.data, 0, axis=1), wine.data[:, 0]),
    ]


def measure_tables(amounts: Amounts) -> dict[str, Any]:
    work = [
        (table, repeat * amounts.folds + fold, train, test)
        for table in tables()
        for repeat in range(amounts.repeats)
        for fold, (train, test) in enumerate(KFold(amounts.folds, shuffle=True, random_state=repeat).split(table.x))
    ]
    families = table_families(amounts.trees, amounts.steps)
    rows: list[dict[str, Any]] = []
    ranges: list[dict[str, Any]] = []
    for (table, fold, train, test), family in shown("tables", [(part, one) for part in work for one in families]):
        split = Split.of(table, train, test)
        name = {"table": table.name, "model": family.name}
        measured, model = _measured(family, split, amounts)
        rows.append({**name, "fold": fold, **measured})
        if fold == 0:
            ranges.append({**name, "degree": measured["chosen"], **_checked_ranges(model, split, amounts)})
    rivals = [
        {"table": table.name, "model": linear().name, "fold": fold, **_best_setting(linear(), Split.of(table, *parts))}
        for table, fold, *parts in work
    ]
    about = {
        table.name: {
            "about": table.about, "rows": len(table.x), "columns": table.x.shape[1], "deviation": float(table.y.std())
        }
        for table in tables()
    }  # fmt: skip
    return {
        "amounts": amounts._asdict(), "radius": RADIUS, "tables": about, "rows": rows, "rivals": rivals,
        "ranges": ranges,
    }  # fmt: skip


class Split(NamedTuple):
    """The rows of one fold: to train on, to test on; and the training rows again, split for a choice."""

    x: Floats
    y: Floats
    x_test: Floats
    y_test: Floats
    choice: tuple[Floats, Floats, Floats, Floats]
    """x and x held out, y and y held out."""

    @classmethod
    def of(cls, table: Table, train: Any, test: Any) -> Split:
        x, y = table.x[train], table.y[train]
        choice = train_test_split(x, y, test_size=VALIDATION, random_state=0)
        return cls(x, y, table.x[test], table.y[test], tuple(choice))


def _measured(family: Family, split: Split, amounts: Amounts) -> tuple[dict[str, Any], BernsteinRegressor]:
    """What is measured of a model in one fold, and the smoothed model of the degree chosen."""
    x, held_x, y, held_y = split.choice
    tried, models = smoothed(family, amounts, x, y), smoothed(family, amounts, split.x, split.y)
    missed = {degree: rmse(model.predict(held_x), held_y) for degree, model in tried.items()}
    errors = {degree: rmse(model.predict(split.x_test), split.y_test) for degree, model in models.items()}
    chosen = best(missed)
    raw = fitted(clone(family.overfitted), split.x, split.y)
    measured = {
        "raw": rmse(raw.predict(split.x_test), split.y_test),
        "raw_on_axes": rmse(_on_axes(models[chosen], split.x_test), split.y_test),
        "by_degree": list(errors.values()),
        "chosen": chosen,
        "smoothed": errors[chosen],
        "regularised": _best_setting(family, split),
    }
    return measured, models[chosen]


def smoothed(family: Family, amounts: Amounts, x: Floats, y: Floats) -> dict[int, BernsteinRegressor]:
    """The model, fitted once, smoothed at each degree."""
    models: dict[int, BernsteinRegressor] = {}
    base = family.overfitted
    for degree in amounts.degrees:
        models[degree] = fitted(BernsteinRegressor(base, degree=degree, dim=amounts.dim), x, y)
        base = FrozenEstimator(models[degree].estimator_) if base is family.overfitted else base
    return models


def _on_axes(model: BernsteinRegressor, x: Floats) -> Floats:
    """The base model itself, on the components of the columns on which it was fitted."""
    axes = model.reduction_
    found: Floats = model.estimator_.predict(axes.low + axes.unclipped(x) * axes.width)
    return found


def _best_setting(family: Family, split: Split) -> dict[str, Any]:
    """The family's usual regularisation on all columns, chosen by the same held-out rows, fitted to all of the fold."""
    x, held_x, y, held_y = split.choice
    missed = {
        name: rmse(fitted(clone(model), x, y).predict(held_x), held_y) for name, model in family.regularised.items()
    }
    setting = best(missed)
    final = fitted(clone(family.regularised[setting]), split.x, split.y)
    return {"setting": setting, "error": rmse(final.predict(split.x_test), split.y_test)}


def _checked_ranges(model: BernsteinRegressor, split: Split, amounts: Amounts) -> dict[str, Any]:
    """Proven ranges of the prediction when all columns of a test row change together, checked by trying rows."""
    x = split.x_test[: amounts.ranges]
    lower, upper = model.bounds(x, radius=RADIUS, threads=1)
    generator = np.random.default_rng(0)
    outside, tried, gaps = 0, 0, []
    for row, low, high in zip(x, lower, upper, strict=True):
        found = _tried(model, row, amounts.samples, generator)
        outside, tried = outside + int(((found < low) | (found > high)).sum()), tried + len(found)
        gaps.append(1 - np.ptp(found) / (high - low))
    return {
        "rows": len(x), "sampled": tried, "outside": outside,
        "width": float((upper - lower).mean()), "mean_gap": float(np.mean(gaps)),
    }  # fmt: skip


def _tried(model: BernsteinRegressor, row: Floats, samples: int, generator: np.random.Generator) -> Floats:
    """Predictions for rows within the radius: random ones, then ever closer to those with the least and the most."""

    def predictions(steps: Floats) -> Floats:
        found: Floats = model.predict(row + model.scale_ * steps)
        return found

    steps = _in_ball(generator.standard_normal((samples, len(row))))
    values = [predictions(steps)]
    for sign in (-1, 1):
        centre = steps[(sign * values[0]).argmax()]
        for spread in SPREADS:
            near = np.vstack([centre, centre + spread * generator.standard_normal((samples // 10, len(row)))])
            near = _in_ball(near)
            values.append(predictions(near))
            centre = near[(sign * values[-1]).argmax()]
    return np.concatenate(values)


def _in_ball(steps: Floats) -> Floats:
    """Those that are longer than the radius, shortened to just below it."""
    lengths = np.linalg.norm(steps, axis=1, keepdims=True)
    found: Floats = steps * np.minimum(1, RADIUS * (1 - 1e-9) / lengths)
    return found
