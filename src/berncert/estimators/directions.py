"""Column by column, whether an output is proven to rise or to fall, with pairs of rows that show what it does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from berncert.estimators.columns import side
from berncert.estimators.monotone import ColumnDirection, Direction, direction_along
from berncert.estimators.reduction import DOWN, UP, Reduction
from berncert.foundation.arrays import Floats
from berncert.polynomial import PolynomialHead

TOWARDS_CENTRE = (0.0, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
STEPS = (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5)
"""Of a pair of rows, in units of `scale_`."""
SAMPLES = 50
"""Points that are tried in search of a pair of rows, besides those on the way to the centre."""


def directions(
    head: PolynomialHead,
    reduction: Reduction,
    names: list[str] | None,
    output: int,
    limits: tuple[Any, Any],
    **options: Any,
) -> list[ColumnDirection]:
    """Of every column, over the domain or the part of it between two rows, the limits."""
    box = _box(reduction, names, limits)
    columns = range(len(reduction.scale))
    return [_direction(head, reduction, names, output, column, box, **options) for column in columns]


def _box(reduction: Reduction, names: list[str] | None, limits: tuple[Any, Any]) -> tuple[Floats, Floats]:
    """(low, high) in features."""
    count = len(reduction.scale)
    low, high = np.zeros(reduction.dim), np.ones(reduction.dim)
    for given, missing, ends, option in zip(
        limits, (-math.inf, math.inf), (low, high), ("lower", "upper"), strict=True
    ):
        values = side(given, names, (1, count), missing, option)[0]
        if np.isfinite(values[reduction.mixed]).any():
            raise ValueError("expected limits on columns that are not projected; fit with keep=[...] or dim=None")
        for axis, column in enumerate(reduction.kept):
            if np.isfinite(values[column]):
                way = DOWN if ends is low else UP  # outwards: a wider box proves more
                place = (values[column] - reduction.low[axis]) / reduction.width[axis]
                ends[axis] = min(1.0, max(0.0, place * (way if place > 0 else 2 - way)))
    if not (low <= high).all():
        raise ValueError("expected lower <= upper in every column, inside the domain")
    return low, high


def _direction(
    head: PolynomialHead,
    reduction: Reduction,
    names: list[str] | None,
    output: int,
    column: int,
    box: tuple[Floats, Floats],
    **options: Any,
) -> ColumnDirection:
    along = directions_of_columns(reduction, column)
    direction, least, greatest, at_least, at_greatest = direction_along(head, output, along, *box, **options)
    rising = falling = None
    if direction in (Direction.UNKNOWN, Direction.INCREASING):
        rising = pairs_along(head, reduction, output, column, at_greatest, True, box)
    if direction in (Direction.UNKNOWN, Direction.DECREASING):
        falling = pairs_along(head, reduction, output, column, at_least, False, box)
    if direction is Direction.UNKNOWN and rising is not None and falling is not None:
        direction = Direction.NEITHER
    name = names[column] if names is not None else column
    return ColumnDirection(name, direction, least, greatest, rising, falling)


def directions_of_columns(reduction: Reduction, column: int) -> Floats:
    """(axes,): how far each feature moves for one unit of `scale_` of a column, inside the domain."""
    along = np.zeros(reduction.dim)
    kept = [int(j) for j in reduction.kept]
    if column in kept:
        axis = kept.index(column)
        along[axis] = reduction.scale[column] / reduction.width[axis]
    elif column in reduction.mixed:
        place = int(np.flatnonzero(reduction.mixed == column)[0])
        along[len(kept) :] = reduction.matrix[:, place] / reduction.width[len(kept) :]
    return along


def pairs_along(
    head: PolynomialHead,
    reduction: Reduction,
    output: int,
    column: int,
    features: Floats,
    rises: bool,
    box: tuple[Floats, Floats],
) -> Floats | None:
    """Two rows that differ in one column and show that the output rises, or falls, along it.

    Around these features first; a corner may leave no room along the column, so then nearer the centre, then anywhere.
    """
    low, high = box
    centre = 0.5 * (low + high)
    ways = np.array(TOWARDS_CENTRE)[:, None]
    for points in (
        features + ways * (centre - features),
        np.random.default_rng(0).uniform(low, high, size=(SAMPLES, len(low))),
    ):
        ends = _ends(reduction, column, np.clip(points, low, high), box)
        seen = torch.from_numpy(reduction.features(ends.reshape(-1, ends.shape[-1])))
        values = head(seen)[:, output].numpy().reshape(-1, 2)
        margin = 1e-12 * sum(float(tensor.abs().max()) for tensor in head.tensors)
        change = values[:, 1] - values[:, 0] if rises else values[:, 0] - values[:, 1]
        shown = np.flatnonzero((ends[:, 1, column] > ends[:, 0, column]) & (change > margin))
        if len(shown):
            found: Floats = ends[shown[0]]
            return found
    return None


def _ends(reduction: Reduction, column: int, points: Floats, box: tuple[Floats, Floats]) -> Floats:
    """(points x steps, 2, columns): around each point of the features, rows a step below and above along a column."""
    rows = reduction.rows(points)
    (low, high), along = box, directions_of_columns(reduction, column)
    moving = along != 0
    ends = np.repeat(rows[:, None, None], len(STEPS), axis=1).repeat(2, axis=2)
    for k, sign in ((0, -1.0), (1, 1.0)):  # back into the box along the column: both ends must lie in it
        room = np.where(sign * along > 0, high - points, points - low) / np.maximum(np.abs(along), 1e-300)
        most = room[:, moving].min(axis=1, initial=np.inf)
        reach = np.minimum(np.array(STEPS), most[:, None])
        ends[:, :, k, column] += sign * reach * reduction.scale[column]
    return ends.reshape(-1, 2, rows.shape[1])
