"""The effect of each column: partial dependence of a score, and how far a change of the column alone can move it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from berncert.estimators.monotone import Direction
from berncert.foundation.arrays import Floats

POINTS = 25
ROWS = 200
"""Rows over which a partial dependence is averaged."""


def column_effects(
    model: Any,
    x: Floats,
    columns: Sequence[str],
    *,
    radius: float,
    norm: float,
    label: int | None = None,
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """For each column: the mean score over rows as the column runs through the domain, and a proven range around it.

    The score is that of the last class, or of `label`. The range is that of a typical row (the median of each column)
    with this column set to the value and all columns free to move within the radius.
    """
    number = len(model.classes_) - 1 if label is None else label
    rows = x[np.linspace(0, len(x) - 1, min(ROWS, len(x))).astype(int)]
    directions = model.monotonicity(label=model.classes_[number], threads=threads, max_boxes=2000)
    typical = np.median(x, axis=0)
    found = []
    for j, name in enumerate(columns):
        values = np.linspace(x[:, j].min(), x[:, j].max(), POINTS)
        means, centre = [], np.tile(typical, (POINTS, 1))
        centre[:, j] = values
        for value in values:
            moved = rows.copy()
            moved[:, j] = value
            means.append(float(model._outputs(moved)[:, number].mean()))
        low, high = model.bounds(centre, radius, norm=norm, tolerance=1e-2, max_boxes=2000, threads=threads)
        direction = directions[j].direction
        found.append(
            {
                "column": name,
                "label": str(model.classes_[number]),
                "values": values.tolist(),
                "mean": means,
                "typical": model._outputs(centre)[:, number].tolist(),
                "low": low[:, number].tolist(),
                "high": high[:, number].tolist(),
                "radius": radius,
                "direction": direction.name,
                "meaning": Direction[direction.name].value,
            }
        )
    return found
