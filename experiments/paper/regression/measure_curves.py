"""The one-dimensional part: errors over the degree, an honest choice of it, rivals, and proven bands."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.timing import shown
from scipy.ndimage import gaussian_filter1d

import berncert
from berncert.foundation.arrays import Floats
from experiments.paper.regression.models import Family, curve_families, fitted, smoothers
from experiments.paper.regression.problem import Points, best, draw, rmse, truth, variation

WIDTHS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15)
"""Of the Gaussian that the rival averages with."""
MOVE = 0.03
"""How far the input moves for a band."""
SAMPLES = 201
"""Within an interval of a band, to check it."""
TEST = np.linspace(0, 1, 401)
PLACES = np.linspace(0, 1, 41)
"""Where bands are proven and checked, and at how many."""


class Amounts(NamedTuple):
    training: int = 60
    validation: int = 30
    seeds: int = 20
    degrees: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    steps: int = 2000
    """Of the training of the neural network."""


AMOUNTS = {"small": Amounts(), "full": Amounts(seeds=100), "toy": Amounts(30, 15, 2, (1, 4, 16, 64), 20)}


def measure_curves(amounts: Amounts) -> dict[str, Any]:
    families = curve_families(amounts.steps)
    rows, rivals, drawn = [], [], None
    for seed in shown("curves", range(amounts.seeds)):
        generator = np.random.default_rng(seed)
        training, validation = draw(amounts.training, generator), draw(amounts.validation, generator)
        found = [Fitted.of(family, training) for family in families]
        rows += [{"seed": seed, "model": one.family.name, **_measured(one, validation, amounts)} for one in found]
        rivals += [
            {"seed": seed, "model": rival.name, **_best_setting(rival, training, validation)} for rival in smoothers()
        ]
        if drawn is None:
            drawn = _drawn(found, rows, training)
    return {
        "amounts": amounts._asdict(), "move": MOVE, "samples": SAMPLES, "truth_variation": variation(truth(TEST)),
        "rows": rows, "rivals": rivals, "drawn": drawn,
    }  # fmt: skip


class Fitted(NamedTuple):
    family: Family
    training: Points
    model: Any

    @classmethod
    def of(cls, family: Family, training: Points) -> Fitted:
        return cls(family, training, fitted(family.overfitted, training.t[:, None], training.y))

    def raw(self, t: Floats) -> Floats:
        return np.asarray(self.model.predict(t[:, None]), dtype=np.float64)

    def smoothed(self, degree: int) -> berncert.SmoothedHead:
        return berncert.smooth(lambda features: self.raw(features.numpy()[:, 0])[:, None], dim=1, degree=degree)


def values(head: berncert.SmoothedHead, t: Floats) -> Floats:
    found: Floats = head(torch.from_numpy(np.ascontiguousarray(t))[:, None])[:, 0].numpy()
    return found


def _measured(one: Fitted, validation: Points, amounts: Amounts) -> dict[str, Any]:
    """All of one model on the points of one seed."""
    target = truth(TEST)
    heads = {degree: one.smoothed(degree) for degree in amounts.degrees}
    curves = {degree: values(head, TEST) for degree, head in heads.items()}
    missed = {degree: _missed(values(head, validation.t), validation) for degree, head in heads.items()}
    chosen = best(missed)
    raw = one.raw(TEST)
    return {
        "raw": rmse(raw, target),
        "by_degree": [rmse(curves[degree], target) for degree in amounts.degrees],
        "validation": [missed[degree] for degree in amounts.degrees],
        "chosen": chosen,
        "smoothed": rmse(curves[chosen], target),
        "middle_raw": _middle(raw, target),
        "middle_smoothed": _middle(curves[chosen], target),
        "average": _best_average(one, validation),
        "regularised": _best_setting(one.family, one.training, validation),
        "variation": {"raw": variation(raw), "smoothed": variation(curves[chosen])},
        "band": _checked_band(one, heads[chosen]),
    }


def _missed(predicted: Floats, validation: Points) -> float:
    """The mean absolute error on the validation points, outliers among them: all that a choice is made by."""
    return float(np.abs(predicted - validation.y).mean())


def _middle(curve: Floats, target: Floats) -> float:
    """The error away from both ends, where the smoothed curve keeps the model's own value."""
    inside = (TEST >= 0.1) & (TEST <= 0.9)
    return rmse(curve[inside], target[inside])


def _best_setting(family: Family, training: Points, validation: Points) -> dict[str, Any]:
    """The family's usual regularisation: fitted to the same training points, chosen by the same validation points."""
    models = {name: fitted(model, training.t[:, None], training.y) for name, model in family.regularised.items()}
    setting = best({name: _missed(model.predict(validation.t[:, None]), validation) for name, model in models.items()})
    return {"setting": setting, "error": rmse(models[setting].predict(TEST[:, None]), truth(TEST))}


def _best_average(one: Fitted, validation: Points) -> dict[str, Any]:
    """The plain rival: the model's curve, averaged with a Gaussian; continued as a constant beyond its ends."""
    raw = one.raw(TEST)
    curves = {width: gaussian_filter1d(raw, width * (len(TEST) - 1), mode="nearest") for width in WIDTHS}
    missed = {width: _missed(np.interp(validation.t, TEST, curve), validation) for width, curve in curves.items()}
    width = best(missed)
    return {"width": width, "error": rmse(curves[width], truth(TEST))}


def band(head: berncert.SmoothedHead, places: Floats) -> tuple[Floats, Floats]:
    """Proven: the least and the greatest value when the input moves from each place by up to `MOVE`."""
    low, high = _interval(places)
    found = berncert.bounds(head, low[:, None], high[:, None], threads=1)
    return found.lower[:, 0], found.upper[:, 0]


def _interval(places: Floats) -> tuple[Floats, Floats]:
    return np.maximum(places - MOVE, 0.0), np.minimum(places + MOVE, 1.0)


def _checked_band(one: Fitted, head: berncert.SmoothedHead) -> dict[str, Any]:
    """The proven band beside what dense sampling finds; gaps in shares of the range of the curve's coefficients."""
    lower, upper = band(head, PLACES)
    inside = np.linspace(*_interval(PLACES), SAMPLES, axis=1)
    sampled = values(head, inside.ravel()).reshape(inside.shape)
    raw = one.raw(inside.ravel()).reshape(inside.shape)
    spread = float(head.coefficients.max() - head.coefficients.min()) or 1.0
    gaps = np.maximum(sampled.min(axis=1) - lower, upper - sampled.max(axis=1))
    return {
        "outside": int(((sampled < lower[:, None]) | (sampled > upper[:, None])).sum()),
        "sampled": sampled.size,
        "largest_gap": float(gaps.max() / spread),
        "width": float((upper - lower).mean()),
        "raw_width": float(np.ptp(raw, axis=1).mean()),
    }


def _drawn(found: list[Fitted], rows: list[dict[str, Any]], training: Points) -> dict[str, Any]:
    """What the picture shows of the first seed, to four digits."""
    places = np.linspace(0, 1, 201)
    curves = {}
    for one, row in zip(found, rows, strict=True):
        head = one.smoothed(row["chosen"])
        lower, upper = band(head, places)
        columns = {"raw": one.raw(TEST), "smoothed": values(head, places), "lower": lower, "upper": upper}
        curves[one.family.name] = {"degree": row["chosen"], **{key: _text(column) for key, column in columns.items()}}
    return {"t": _text(training.t), "y": _text(training.y), "outlier": training.outlier.tolist(), "curves": curves}


def _text(column: Floats) -> str:
    """Four digits of each number, in one line: a record stays readable."""
    return " ".join(f"{value:.4f}" for value in column)


def read_column(text: str) -> Floats:
    return np.array([float(word) for word in text.split()])
