"""The one-dimensional problem: a known curve, noisy points of it, and a few that lie far off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from berncert.foundation.arrays import Flags, Floats

NOISE, OUTLIERS, SHIFT = 0.2, 0.1, 1.5
"""The standard deviation of the noise; the share of points that are outliers; how far these are moved, up or down."""


def truth(t: Floats) -> Floats:
    """A wave on a slope."""
    return np.asarray(np.sin(2 * np.pi * t) + t)


class Points(NamedTuple):
    t: Floats
    """(N,): in [0, 1], in order."""
    y: Floats
    outlier: Flags


def draw(count: int, generator: np.random.Generator) -> Points:
    """Noisy points of the curve, a tenth of them outliers; the first one at 0, the last one at 1."""
    t = np.sort(generator.random(count))
    t[0], t[-1] = 0.0, 1.0  # the model is smoothed on the range of its training points
    y = truth(t) + NOISE * generator.standard_normal(count)
    outlier = np.zeros(count, dtype=bool)
    outlier[generator.choice(count, round(OUTLIERS * count), replace=False)] = True
    y[outlier] += SHIFT * generator.choice([-1.0, 1.0], outlier.sum())
    return Points(t, y, outlier)


def variation(curve: Floats) -> float:
    """The total variation: how far the curve goes up and down in all."""
    return float(np.abs(np.diff(curve)).sum())


def rmse(curve: Floats, other: Floats) -> float:
    return float(np.sqrt(np.mean((curve - other) ** 2)))


def best(missed: Mapping[Any, float]) -> Any:
    """The setting with the least error; of equal ones the first."""
    return min(missed, key=lambda setting: missed[setting])
