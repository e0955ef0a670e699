"""Monotonicity, proven: the range of the derivative's polynomial along a column."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
import torch

from berncert.certification.bounds import bounds
from berncert.estimators.reduction import Reduction
from berncert.foundation.arrays import Floats
from berncert.polynomial import SmoothedHead

ROUNDOFF = 2.0**-53
EXACT_SIZE = 2000
"""Coefficients of a polynomial that are worth looking at in exact rationals: a second or so."""
TOWARDS_CENTRE = (0.0, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
SAMPLES = 50
"""Points that are tried in search of a pair of rows, besides those on the way to the centre."""


class Direction(StrEnum):
    """How an output depends on a column; each value says what that means.

    Example:
        >>> import numpy as np
        >>> from sklearn.linear_model import LinearRegression
        >>> from berncert.estimators import BernsteinRegressor, Direction
        >>> x = np.random.default_rng(0).random((50, 2))
        >>> model = BernsteinRegressor(LinearRegression(), degree=1).fit(x, x[:, 0] - x[:, 1])
        >>> [column.direction.name for column in model.monotonicity()]
        ['INCREASING', 'DECREASING']
    """

    CONSTANT = "the column plays no part"
    INCREASING = "never falls where the column grows, proven"
    DECREASING = "never rises where the column grows, proven"
    NEITHER = "rises at one place and falls at another: two pairs of rows show it"
    UNKNOWN = "neither proven nor refuted within the budget and float64"


@dataclass(frozen=True)
class ColumnDirection:
    """The direction of one output along one column, over the domain or a part of it."""

    column: str | int
    direction: Direction
    slope_lower: float
    """Proven: no slope, per unit of `scale_`, is below; in real arithmetic."""
    slope_upper: float
    """Proven: and none is above."""
    rising: Floats | None
    """(2, columns): two rows that differ in this column only, the second with more of it and a greater output."""
    falling: Floats | None
    """(2, columns): likewise with a smaller output."""

    def __str__(self) -> str:
        return f"{self.column}: {self.direction.name.lower()}, {self.direction.value}"


def slope_coefficients(coefficients: Floats, along: Floats) -> tuple[Floats, float]:
    """The Bernstein coefficients of sum_i along_i * d/du_i, of the polynomial's own degrees, and their error.

    A difference of neighbours is exact to one rounding, raising an axis by one degree takes a mean of two.
    """
    total = np.zeros_like(coefficients)
    size = 0.0
    for axis, factor in enumerate(along):
        if factor == 0:
            continue
        n = coefficients.shape[axis] - 1
        steps = np.moveaxis(np.diff(coefficients, axis=axis), axis, 0) * n
        raised = np.zeros((n + 1, *steps.shape[1:]))
        k = np.arange(n + 1).reshape(-1, *(1,) * (steps.ndim - 1)) / n
        raised[:-1] += (1 - k[:-1]) * steps
        raised[1:] += k[1:] * steps
        total += factor * np.moveaxis(raised, 0, axis)
        size += abs(factor) * float(np.abs(steps).max())
    return total, 16 * (len(along) + 2) * ROUNDOFF * size


def direction_along(
    coefficients: Floats,
    along: Floats,
    low: Floats,
    high: Floats,
    *,
    tolerance: float,
    max_boxes: int,
    threads: int | None,
) -> tuple[Direction, float, float, Floats, Floats]:
    """(direction, least slope, greatest slope, where it is least, where it is greatest) on a box of features."""
    slopes, error = slope_coefficients(coefficients, along)
    axes = np.flatnonzero(along)
    if len(axes) == 1:  # the signs of differences are exact
        steps = np.diff(coefficients, axis=int(axes[0])) * np.sign(along[axes[0]])
        centre = 0.5 * (low + high)
        if (steps == 0).all():
            return Direction.CONSTANT, 0.0, 0.0, centre, centre
    head = SmoothedHead(torch.from_numpy(np.ascontiguousarray(slopes))[None])
    found = bounds(head, low, high, tolerance=tolerance, max_boxes=max_boxes, threads=threads)
    least, greatest = float(found.lower[0, 0]) - error, float(found.upper[0, 0]) + error
    if len(axes) == 1:
        least = max(least, 0.0) if (steps >= 0).all() else least
        greatest = min(greatest, 0.0) if (steps <= 0).all() else greatest
    at_least, at_greatest = found.argmin[0, 0], found.argmax[0, 0]
    if not len(axes):
        return Direction.CONSTANT, 0.0, 0.0, at_least, at_greatest
    if len(axes) == 1 and coefficients.size <= EXACT_SIZE:  # where the least slope is 0, float64 cannot say so
        sign = float(np.sign(along[axes[0]]))
        tiny = 1e-9 * max(abs(least), abs(greatest))
        if -tiny <= least < 0 and never_falls(sign * coefficients, int(axes[0]), low, high):
            least = 0.0
        if 0 < greatest <= tiny and never_falls(-sign * coefficients, int(axes[0]), low, high):
            greatest = 0.0
    if least >= 0:
        return Direction.INCREASING, least, greatest, at_least, at_greatest
    if greatest <= 0:
        return Direction.DECREASING, least, greatest, at_least, at_greatest
    return Direction.UNKNOWN, least, greatest, at_least, at_greatest


def never_falls(coefficients: Floats, axis: int, low: Floats, high: Floats) -> bool:
    """Whether the coefficients on the box never fall along an axis, in exact rationals; nor the polynomial then."""
    net = np.array([Fraction(float(v)) for v in coefficients.ravel()], dtype=object).reshape(coefficients.shape)
    for j in range(net.ndim):
        n = net.shape[j] - 1
        ends = Fraction(float(low[j])), Fraction(float(high[j]))
        lines = np.moveaxis(net, j, 0)
        made = []
        for m in range(n + 1):  # the blossom at m times the upper and n - m times the lower end
            row = lines
            for step in range(n):
                t = ends[1] if step < m else ends[0]
                row = row[:-1] * (1 - t) + row[1:] * t
            made.append(row[0])
        net = np.moveaxis(np.stack(made), 0, j)
    return bool((np.diff(net, axis=axis) >= 0).all())


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
    head: SmoothedHead,
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
    samples = np.random.default_rng(0).uniform(low, high, size=(SAMPLES, len(low)))
    for point in (*(features + t * (centre - features) for t in TOWARDS_CENTRE), *samples):
        found = _pair_at(head, reduction, output, column, np.clip(point, low, high), rises, box)
        if found is not None:
            return found
    return None


def _pair_at(
    head: SmoothedHead,
    reduction: Reduction,
    output: int,
    column: int,
    features: Floats,
    rises: bool,
    box: tuple[Floats, Floats],
) -> Floats | None:
    """Two such rows around these features, if steps of some lengths show it."""
    row = reduction.rows(features[None])[0]
    (low, high), along = box, directions_of_columns(reduction, column)
    for step in (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5):
        ends = np.stack([row, row])
        ends[0, column] -= step * reduction.scale[column]
        ends[1, column] += step * reduction.scale[column]
        # back into the box along the column: both ends must lie in it
        for k, sign in ((0, -1.0), (1, 1.0)):
            room = np.where(sign * along > 0, high - features, features - low) / np.maximum(np.abs(along), 1e-300)
            reach = min(step, float(room[along != 0].min(initial=np.inf)))
            ends[k, column] = row[column] + sign * reach * reduction.scale[column]
        if ends[1, column] <= ends[0, column]:
            continue
        values = head(torch.from_numpy(reduction.features(ends)))[:, output].numpy()
        margin = 1e-12 * float(head.coefficients.abs().max())
        if (values[1] - values[0] > margin) if rises else (values[0] - values[1] > margin):
            return ends
    return None
