"""Monotonicity, proven: the range of the derivative's polynomial along a direction of features."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import torch

from berncert.certification.bounds import bounds
from berncert.foundation.arrays import Floats
from berncert.polynomial import PolynomialHead, SmoothedHead, SumHead

ROUNDOFF = 2.0**-53
EXACT_SIZE = 20000
"""Coefficients that are worth looking at in exact rationals: a tenth of a second. On a part of the cube, a tenth."""
FINER = 0.01
"""The tolerance, as a part of the one that is asked for, where nothing but it leaves a direction open."""


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


def slope_head(head: PolynomialHead, output: int, along: Floats) -> tuple[PolynomialHead, list[int], float]:
    """(the derivative of an output along a direction, the features it takes, the error of its values)."""
    moved = {int(axis) for axis in np.flatnonzero(along)}
    terms = [(term.axes, term.coefficients[output].numpy()) for term in head.terms if moved & set(term.axes)]
    involved = sorted({axis for axes, _ in terms for axis in axes}) or [0]
    slopes, error, constant = [], 0.0, 0.0
    for axes, net in terms:
        slope, off = slope_coefficients(net, along[list(axes)])
        slopes.append((tuple(involved.index(axis) for axis in axes), torch.from_numpy(slope)[None]))
        error += off
    if head.affine is not None:
        parts = along * head.affine[0][output].numpy()
        constant, error = float(parts.sum()), error + 2 * len(parts) * ROUNDOFF * float(np.abs(parts).sum())
    if not slopes:
        return SmoothedHead(torch.full((1, 2), constant, dtype=torch.float64)), involved, error
    if len(slopes) == 1 and slopes[0][0] == tuple(range(len(involved))):  # one polynomial in all of them
        whole = slopes[0][1] + constant
        return SmoothedHead(whole), involved, error + ROUNDOFF * float(whole.abs().max())
    weight = torch.zeros((1, len(involved)), dtype=torch.float64)
    error += 4 * (len(slopes) + 1) * ROUNDOFF * (abs(constant) + sum(float(net.abs().max()) for _, net in slopes))
    return SumHead(weight, torch.tensor([constant], dtype=torch.float64), slopes), involved, error


def direction_along(
    head: PolynomialHead,
    output: int,
    along: Floats,
    low: Floats,
    high: Floats,
    *,
    tolerance: float,
    max_boxes: int,
    threads: int | None,
) -> tuple[Direction, float, float, Floats, Floats]:
    """(direction, least slope, greatest slope, where it is least, where it is greatest) on a box of features."""
    at_least, at_greatest = (0.5 * (low + high) for _ in range(2))
    axes = np.flatnonzero(along)
    rises = falls = False
    if len(axes) <= 1:  # the signs of differences are exact
        steps = _signed_steps(head, output, along)
        rises, falls = all((s >= 0).all() for s in steps), all((s <= 0).all() for s in steps)
        if rises and falls:
            return Direction.CONSTANT, 0.0, 0.0, at_least, at_greatest
    slopes, involved, error = slope_head(head, output, along)
    box = low[involved], high[involved]
    for finer in (tolerance, FINER * tolerance):
        found = bounds(slopes, *box, tolerance=finer, max_boxes=max_boxes, threads=threads)
        least, greatest = float(found.lower[0, 0]) - error, float(found.upper[0, 0]) + error
        low_found, high_found = found.least_found[0, 0], found.greatest_found[0, 0]
        if len(axes) == 1:
            tiny = 1e-9 * max(abs(least), abs(greatest))
            signed = head, output, int(axes[0]), low, high
            factor = int(np.sign(along[axes[0]]))
            rises = rises or (least < 0 <= low_found + tiny and never_falls(*signed, factor))
            falls = falls or (greatest > 0 >= high_found - tiny and never_falls(*signed, -factor))
        least, greatest = max(least, 0.0) if rises else least, min(greatest, 0.0) if falls else greatest
        if not (least < 0 < low_found - error or greatest > 0 > high_found + error):
            break  # the tolerance leaves nothing open
    at_least[involved], at_greatest[involved] = found.argmin[0, 0], found.argmax[0, 0]
    if least >= 0:
        return Direction.INCREASING, least, greatest, at_least, at_greatest
    if greatest <= 0:
        return Direction.DECREASING, least, greatest, at_least, at_greatest
    return Direction.UNKNOWN, least, greatest, at_least, at_greatest


def _signed_steps(head: PolynomialHead, output: int, along: Floats) -> list[Floats]:
    """The differences of coefficients along the one axis that moves, of every part of the head."""
    found: list[Floats] = []
    for axis in np.flatnonzero(along).tolist():
        if head.affine is not None:
            found.append(head.affine[0][output, axis].numpy())
        found += [
            np.diff(term.coefficients[output].numpy(), axis=term.axes.index(axis))
            for term in head.terms
            if axis in term.axes
        ]
    return [np.asarray(steps) * np.sign(along.sum()) for steps in found]


def never_falls(head: PolynomialHead, output: int, axis: int, low: Floats, high: Floats, factor: int) -> bool:
    """Whether `factor` times an output never falls along an axis on a box: by its coefficients, in exact rationals.

    The slope's coefficients along the axis are functions of the other features. Of each term the least that each can
    be, by the coefficients again, are added up: if no sum is below 0, no slope is. With terms that share no feature but
    the axis, nothing is lost beyond what a single polynomial's coefficients would lose.
    """
    terms = [term for term in head.terms if axis in term.axes]
    whole = (low == 0).all() and (high == 1).all()
    size = sum(term.coefficients[output].numel() for term in terms)
    if size > (EXACT_SIZE if whole else EXACT_SIZE // 10) or not low[axis] < high[axis]:
        return False
    affine = 0.0 if head.affine is None else float(head.affine[0][output, axis])
    sums = [factor * Fraction(affine) * (Fraction(float(high[axis])) - Fraction(float(low[axis])))]
    for axes, coefficients in terms:
        place = axes.index(axis)
        net = factor * _on_box(coefficients[output].numpy(), low[list(axes)], high[list(axes)])
        steps = np.diff(net, axis=place) * (net.shape[place] - 1)
        least = list(np.moveaxis(steps, place, 0).reshape(steps.shape[place], -1).min(axis=1))
        degree = max(len(sums), len(least))
        pairs = zip(_elevated(sums, degree), _elevated(least, degree), strict=True)
        sums = [one + other for one, other in pairs]
    return min(sums) >= 0


def _elevated(line: list[Fraction], size: int) -> list[Fraction]:
    """The same polynomial in one variable, with so many coefficients."""
    while len(line) < size:
        n = len(line)
        ends = [Fraction(0), *line, Fraction(0)]
        line = [ends[k] * Fraction(k, n) + ends[k + 1] * Fraction(n - k, n) for k in range(n + 1)]
    return line


def _on_box(coefficients: Floats, low: Floats, high: Floats) -> npt.NDArray[np.object_]:
    """The coefficients of a polynomial on a box, exactly."""
    net = np.array([Fraction(float(v)) for v in coefficients.ravel()], dtype=object).reshape(coefficients.shape)
    for j in range(net.ndim):
        n = net.shape[j] - 1
        if low[j] == 0 and high[j] == 1:
            continue
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
    return net
