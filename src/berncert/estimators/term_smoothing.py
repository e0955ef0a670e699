"""The Bernstein polynomial of a sum: each term is smoothed by itself, and what is one already stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from berncert.estimators.reduction import Reduction
from berncert.estimators.terms import Sum
from berncert.foundation.arrays import Floats
from berncert.polynomial import bernstein
from berncert.polynomial.grid import degrees_per_axis, grid_batches
from berncert.polynomial.sum_head import SumHead

OWN_DEGREES = {1: (1, 2, 3), 2: (1,)}
"""Degrees, by the number of columns, of polynomials that are recognised and taken as they are."""
BETWEEN = (np.arange(16) * 0.6180339887498949 + 0.05) % 1.0
"""Places between the points of any grid, at which a term is compared with a polynomial."""
ROWS = 64
"""Rows of the table at which it is compared, too."""
NOTHING = 1e-14
"""The share of the largest coefficient that is left out as rounding."""
FLAT = 1e-9
"""A least slope along a column that is this share of its greatest stands for 0: the model is flat there."""

Nets = dict[tuple[int, ...], Floats]
"""The coefficients of terms, (K, n_1+1, ...), by their axes."""


def smoothed_sum(found: Sum, reduction: Reduction, degree: Any, x: Floats) -> SumHead:
    """The head on the features of a reduction in which every column that varies has an axis of its own.

    degree: of terms that are no polynomial: one for all axes, or one for each. Along a column with two values it is 1,
    which is exact at both.
    """
    degrees = [
        1 if len(np.unique(x[:, column])) <= 2 else n
        for column, n in zip(reduction.kept, degrees_per_axis(reduction.dim, degree), strict=True)
    ]
    axis_of = {int(column): axis for axis, column in enumerate(reduction.kept)}
    some = x[np.linspace(0, len(x) - 1, min(ROWS, len(x))).astype(int)]
    terms = []
    for columns in [*((j,) for j in found.columns), *found.pairs]:
        axes = tuple(axis_of[j] for j in columns)
        terms.append(_Term(columns, axes, tuple(degrees[axis] for axis in axes), reduction, some[:, columns]))
    effects = found.effects((term.columns, values) for term in terms for values in term.asked())
    nets = {term.axes: term.net(effects, found.tolerance) for term in terms}
    return head_of(nets, found.value, reduction.dim)


@dataclass(frozen=True)
class _Term:
    """A term of the sum, and where it is looked at."""

    columns: tuple[int, ...]
    axes: tuple[int, ...]
    degrees: tuple[int, ...]
    reduction: Reduction
    rows: Floats
    """(P, columns): some rows of the table."""

    def asked(self) -> list[Floats]:
        """Values of its columns: to compare at, on the grids of polynomials that it may be, and on its own grid."""
        grids = [*((q,) * len(self.columns) for q in self._own()), self.degrees]
        between = self._values(self._between())
        return [np.concatenate([between, self.rows]), *(self._values(_grid(degrees)) for degrees in grids)]

    def net(self, effects: Iterator[Floats], tolerance: float) -> Floats:
        """The coefficients, from the effects at what was asked."""
        expected, own, count = next(effects), None, len(self.columns)
        features = np.concatenate([self._between(), self._features()])
        for q in self._own():
            net = _interpolated(_net(next(effects), (q,) * count))
            if own is None and np.abs(_evaluated(net, features) - expected).max() <= 4 * tolerance:
                own = net
        sampled = _net(next(effects), self.degrees)
        return sampled if own is None else own

    def _own(self) -> tuple[int, ...]:
        return tuple(q for q in OWN_DEGREES[len(self.columns)] if q <= max(2, *self.degrees))

    def _between(self) -> Floats:
        return np.stack([np.roll(BETWEEN, 5 * i) for i in range(len(self.columns))], axis=1)

    def _values(self, features: Floats) -> Floats:
        """(P, columns): at these features; whole numbers where they are meant, as between features they are not."""
        low, width = self.reduction.low[list(self.axes)], self.reduction.width[list(self.axes)]
        values = low + features * width
        whole = np.round(values)
        return np.where(np.abs(values - whole) <= 1e-12 * width + 2.0**-50 * np.abs(values), whole, values)

    def _features(self) -> Floats:
        low, width = self.reduction.low[list(self.axes)], self.reduction.width[list(self.axes)]
        return np.clip((self.rows - low) / width, 0.0, 1.0)


def head_of(nets: Nets, value: Floats, dim: int) -> SumHead:
    """The head that is the sum of terms with these coefficients and of constants, (K,).

    What a pair says about one of its columns alone is moved to that column's term: what is left is small. Terms of
    degree 1 in one column are the affine part.
    """
    nets, bias = _alone(nets), value.copy()
    weight = np.zeros((len(value), dim))
    largest = max((float(np.abs(net).max()) for net in nets.values()), default=0.0)
    terms = []
    for axes, net in sorted(nets.items(), key=lambda item: (len(item[0]), item[0])):
        if np.ptp(net.reshape(len(net), -1), axis=1).max() <= NOTHING * largest:
            bias = bias + net.reshape(len(net), -1)[:, 0]
        elif net.shape[1:] == (2,):
            weight[:, axes[0]], bias = net[:, 1] - net[:, 0], bias + net[:, 0]
        else:
            terms.append((axes, np.ascontiguousarray(net)))
    weight = weight + _lift(weight, terms)
    bent = [(axes, torch.from_numpy(net)) for axes, net in terms]
    return SumHead(torch.from_numpy(weight), torch.from_numpy(bias), bent)


def _lift(weight: Floats, terms: Sequence[tuple[tuple[int, ...], Floats]]) -> Floats:
    """Slopes to be added, (K, d): where a model is flat at places and rises elsewhere, rounding must not make it fall.

    Slopes are as their coefficients say, the least of each term over the columns it shares with others.
    """
    lift = np.zeros_like(weight)
    for axis in range(weight.shape[1]):
        lines = [_slopes_along(net, axes.index(axis)) for axes, net in terms if axis in axes]
        if not lines:
            continue
        degree = max(least.shape[1] for least, _ in lines) - 1
        least, greatest = (
            weight[:, axis, None] + np.sum([raised(line[side], degree) for line in lines], axis=0) for side in range(2)
        )
        least, greatest = least.min(axis=1), greatest.max(axis=1)
        size = np.abs(weight[:, axis]) + np.sum([np.maximum(-low, high).max(axis=1) for low, high in lines], axis=0)
        spare = 2.0**-48 * (degree + len(lines)) * size
        rising = (np.abs(least) <= FLAT * size) & (greatest > FLAT * size)
        falling = (np.abs(greatest) <= FLAT * size) & (least < -FLAT * size)
        lift[:, axis] += np.where(rising, np.maximum(spare - least, 0.0), 0.0)
        lift[:, axis] -= np.where(falling, np.maximum(spare + greatest, 0.0), 0.0)
    return lift


def _slopes_along(net: Floats, place: int) -> tuple[Floats, Floats]:
    """The least and the greatest coefficients (K, n) of the slope along one axis, over the others."""
    steps = np.moveaxis(np.diff(net, axis=place + 1), place + 1, 1) * (net.shape[place + 1] - 1)
    steps = steps.reshape(*steps.shape[:2], -1)
    return steps.min(axis=2), steps.max(axis=2)


def _alone(nets: Nets) -> Nets:
    """The same sum, with pairs whose coefficients have mean 0 along each axis."""
    found = dict(nets)
    for axes, net in nets.items():
        if len(axes) == 1:
            continue
        rest = net
        for place, axis in enumerate(axes):
            line = rest.mean(axis=2 - place)
            rest = rest - np.expand_dims(line, 2 - place)
            found[axis,] = _added(found[axis,], line) if (axis,) in found else line
        found[axes] = rest
    return found


def _added(one: Floats, other: Floats) -> Floats:
    """The sum of two polynomials in one variable, (K, n+1) each, of the higher of their degrees."""
    degree = max(one.shape[1], other.shape[1]) - 1
    return raised(one, degree) + raised(other, degree)


def raised(net: Floats, degree: int) -> Floats:
    """The coefficients (K, degree+1) of a polynomial in one variable of at most this degree."""
    for n in range(net.shape[1], degree + 1):
        k = np.arange(n + 1) / n
        ends = np.zeros((len(net), 1))
        net = k * np.concatenate([ends, net], axis=1) + (1 - k) * np.concatenate([net, ends], axis=1)
    return net


def _grid(degrees: Sequence[int]) -> Floats:
    found: Floats = next(grid_batches(degrees, prod(n + 1 for n in degrees))).numpy()
    return found


def _net(values: Floats, degrees: Sequence[int]) -> Floats:
    """(K, n_1+1, ...) of values (P, K) on a grid."""
    return values.T.reshape(-1, *(n + 1 for n in degrees))


def _interpolated(values: Floats) -> Floats:
    """The coefficients of the polynomial with these values on its own grid."""
    for axis in range(1, values.ndim):
        n = values.shape[axis] - 1
        matrix = bernstein.basis(n, torch.linspace(0, 1, n + 1, dtype=torch.float64)).numpy()
        values = np.moveaxis(np.tensordot(np.linalg.inv(matrix), values, axes=(1, axis)), 0, axis)
    return values


def _evaluated(net: Floats, features: Floats) -> Floats:
    found: Floats = bernstein.evaluate(torch.from_numpy(np.ascontiguousarray(net)), torch.from_numpy(features)).numpy()
    return found
