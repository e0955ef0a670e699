"""From columns to features in the cube: scaled, perhaps projected, moved into the domain; with what rounding can do.

A column that keeps an axis of its own has the feature clip((x - low) / width). The others are scaled, v = (x - centre)
/ scale, projected, z = matrix v with orthonormal rows, and moved, clip((z - low) / width). Everything is float64 in a
fixed formula, and the error of each feature is bounded below for any order of summation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from berncert.foundation.arguments import dual_norm
from berncert.foundation.arrays import Flags, Floats, Ints

ROUNDOFF = 2.0**-53
UP, DOWN = 1 + 2.0**-48, 1 - 2.0**-48
"""More than the rounding of the few operations by which a bound is computed."""

Route = tuple[float, Floats, float]
"""(q, weight, gain), see `Reduction.routes`."""
LARGEST, NARROWEST = 1e150, 1e-305
"""The largest number whose square is surely finite, and the narrowest range whose parts are not rounded to nothing."""


def check_sizes(low: Floats, high: Floats, names: Sequence[str] | None = None) -> None:
    """Raise a ValueError that names the first column whose numbers are too large, or whose range is too narrow."""
    for column, (least, greatest) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        name = repr(names[column]) if names is not None else str(column)
        got = f"got {least:g} to {greatest:g}"
        if max(abs(least), abs(greatest)) > LARGEST:
            raise ValueError(
                f"expected numbers of at most {LARGEST:g} in column {name}, {got}: its range is too large to compute "
                "with; use a larger unit for this column, or leave it out"
            )
        if 0 < greatest - least < NARROWEST:
            raise ValueError(
                f"expected a range of at least {NARROWEST:g} in column {name}, {got}: its range is too small to "
                "compute with; use a smaller unit for this column, or leave it out"
            )


@dataclass(frozen=True)
class Reduction:
    """The map from columns to features. Axes: first the kept columns, in their order, then the components."""

    scale: Floats
    """(m,): distances are norms of differences divided by it."""
    kept: Ints
    """The columns that have an axis of their own."""
    mixed: Ints
    """The columns that are projected."""
    centre: Floats
    """(m,): of the projection."""
    matrix: Floats
    """(components, len(mixed)), with rows that are orthonormal but for rounding."""
    low: Floats
    """(axes,): where the domain begins, in columns for kept ones, else in components."""
    width: Floats
    """(axes,)"""

    @property
    def dim(self) -> int:
        """The number of axes."""
        return len(self.low)

    @property
    def weight(self) -> Floats:
        """(axes,): how far one unit of a feature is, in units of the distance; rounded, by 1 roundoff at most."""
        return np.concatenate([self.width[: len(self.kept)] / self.scale[self.kept], self.width[len(self.kept) :]])

    def only(self, columns: Sequence[int]) -> Reduction:
        """The same without other axes than those of these columns, all of which have one."""
        places = [self.kept.tolist().index(column) for column in columns]
        return replace(self, kept=self.kept[places], low=self.low[places], width=self.width[places])

    def names(self, names: Sequence[str] | None) -> list[str] | None:
        """The names of the axes, where each is a column that has one."""
        return None if names is None or len(self.mixed) else [names[int(column)] for column in self.kept]

    def components(self, x: Floats) -> Floats:
        """(N, components): of the mixed columns."""
        scaled = (x[:, self.mixed] - self.centre[self.mixed]) / self.scale[self.mixed]
        found: Floats = scaled @ self.matrix.T
        return found

    def axes(self, x: Floats) -> Floats:
        """(N, axes): the kept columns and the components."""
        return np.concatenate([x[:, self.kept], self.components(x)], axis=1) if len(self.mixed) else x[:, self.kept]

    def unclipped(self, x: Floats) -> Floats:
        """(N, axes): the features, where a row outside the domain has some outside [0, 1]."""
        return (self.axes(x) - self.low) / self.width

    def features(self, x: Floats) -> Floats:
        """(N, axes), in [0, 1]."""
        return np.clip(self.unclipped(x), 0.0, 1.0)

    def rows(self, features: Floats) -> Floats:
        """The rows nearest to the centre that have these features; columns that have no part in them are centred."""
        values = self.low + features * self.width
        found = np.tile(self.centre, (len(features), 1))
        count = len(self.kept)
        found[:, self.kept] = values[:, :count]
        if len(self.mixed):
            found[:, self.mixed] += (values[:, count:] @ self.matrix) * self.scale[self.mixed]
        return found

    def moved(self, x: Floats, features: Floats, still: Flags) -> Floats:
        """The rows nearest to x, in l2, with these features; axes that stand still keep what x has along them."""
        found, count = x.copy(), len(self.kept)
        values = self.low + features * self.width
        for axis, column in enumerate(self.kept):
            found[:, column] = np.where(still[:, axis], x[:, column], values[:, axis])
        if len(self.mixed):
            step = np.where(still[:, count:], 0.0, values[:, count:] - self.components(x))
            found[:, self.mixed] += (step @ self.matrix) * self.scale[self.mixed]
        return found

    # ---- what is proven about it ----

    def feature_error(self, x: Floats) -> tuple[Floats, Floats]:
        """(a, b), (N, axes) and (axes,): a feature of a row at distance D from x is computed to within a + b D.

        D in any p-norm: a row of the matrix has its greatest dual norm for p = infinity.
        """
        own = 4 * ROUNDOFF * np.maximum(1.0, np.abs(self.unclipped(x))) * UP
        count = len(self.kept)
        growth = np.zeros(self.dim)
        if len(self.mixed):
            factor = (len(self.mixed) + 6) * ROUNDOFF * 1.01 / self.width[count:]
            scaled = np.abs(x[:, self.mixed] - self.centre[self.mixed]) / self.scale[self.mixed]
            own[:, count:] += factor * (scaled @ np.abs(self.matrix).T) * UP
            growth[count:] = factor * np.abs(self.matrix).sum(axis=1) * UP
        return own, growth

    def routes(self, norm: float) -> list[Route]:
        """(q, weight, gain): the q-norm of weight * (change of exact features) is at most gain * distance in p-norm.

        For p = 2, and without projection, there is one, which is exact but for rounding.
        """
        weight, count = self.weight, len(self.kept)
        if not len(self.mixed):
            return [(norm, weight, UP)]
        stretch = self._spectral_bound()
        if norm == 2:
            return [(2.0, weight, stretch)]
        lengths = rounded_norms(self.matrix, dual_norm(norm))
        alone = np.concatenate([weight[:count], weight[count:] / lengths])
        columns = len(self.kept) + len(self.mixed)
        spread = 1.0 if norm < 2 else columns ** (0.5 - 1 / norm)
        return [(math.inf, alone, UP), (2.0, weight, stretch * spread * UP)]

    def _spectral_bound(self) -> float:
        """At least norm_2 of the matrix (and 1, for kept columns): of M M^T = I + E by the greatest row sum of E."""
        error = np.abs(self.matrix @ self.matrix.T - np.eye(len(self.matrix)))
        rounding = 2 * (len(self.mixed) + 2) * ROUNDOFF * (np.abs(self.matrix) @ np.abs(self.matrix).T)
        return math.sqrt(1 + float((error + rounding).sum(axis=1).max())) * UP

    def distance(self, x: Floats, y: Floats, norm: float, *, up: bool) -> Floats:
        """The distance of rows, rounded up or down."""
        return rounded_norms((y - x) / self.scale, norm, up=up)

    def radius(self, x: Floats, feature_radius: Floats, route: Route) -> Floats:
        """How far, in columns, the features of each row are proven to stay within their radius, as computed."""
        q, weight, gain = route
        own, growth = self.feature_error(x)
        lost = 2 * rounded_norms(weight * own, q)
        rate = (gain + float(rounded_norms((weight * growth)[None], q)[0])) * UP
        with np.errstate(invalid="ignore"):
            left = np.maximum(feature_radius * DOWN - lost, 0.0) / rate * DOWN
        return np.where(np.isinf(feature_radius), math.inf, left)

    def feature_radius(self, x: Floats, radius: float, route: Route) -> Floats:
        """How far the computed features of rows within the radius of each x can be from those of x."""
        q, weight, gain = route
        own, growth = self.feature_error(x)
        lost = 2 * rounded_norms(weight * own, q)
        rate = (gain + float(rounded_norms((weight * growth)[None], q)[0])) * UP
        reach: Floats = (radius * rate + lost) * UP
        return reach


def fit_reduction(
    x: Floats,
    sample_weight: Floats,
    *,
    dim: int | None,
    keep: list[int],
    scale: Floats | None,
    domain: tuple[Floats, Floats] | None,
    directions: Floats | None = None,
) -> Reduction:
    """The reduction of a table. Rows without weight play no part.

    scale: (m,), NaN for the standard deviation.
    directions: (c, m) orthonormal rows in scaled columns, to project to instead of principal components.
    """
    x, sample_weight = x[sample_weight > 0], sample_weight[sample_weight > 0]
    share = (sample_weight / sample_weight.sum())[:, None]
    centre = (share * x).sum(axis=0)
    units = _deviation(x, share)
    if scale is not None:
        units = np.where(np.isnan(scale), units, scale)
    low, high = (x.min(axis=0), x.max(axis=0)) if domain is None else domain
    varying = [j for j in range(x.shape[1]) if high[j] > low[j]]
    if not varying:
        varying = [0]  # a table of constants: any axis will do
    none = np.zeros((0, 0))
    if directions is None and (dim is None or len(varying) <= dim):
        kept = np.array(varying)
        width = np.where(high > low, high - low, 1.0)
        return Reduction(units, kept, np.zeros(0, np.int64), centre, none, low[kept], width[kept])
    kept = np.array([j for j in varying if j in keep], dtype=np.int64)
    mixed = np.array([j for j in varying if j not in keep], dtype=np.int64)
    scaled = (x[:, mixed] - centre[mixed]) / units[mixed]
    if directions is None:
        assert dim is not None
        matrix = _principal(scaled, share, max(1, dim - len(kept)))
    else:
        kept, mixed = np.zeros(0, np.int64), np.arange(x.shape[1])
        scaled, matrix = (x - centre) / units, directions
    parts = scaled @ matrix.T
    bottom = np.concatenate([low[kept], parts.min(axis=0)])
    top = np.concatenate([high[kept], parts.max(axis=0)])
    width = np.where(top > bottom, top - bottom, 1.0)
    return Reduction(units, kept, mixed, centre, np.ascontiguousarray(matrix), bottom, width)


def _deviation(x: Floats, share: Floats) -> Floats:
    """(m,): the standard deviation of each column; 1 where it does not vary.

    Of the columns moved to [0, 1], so that neither a distant mean nor a very small or large unit loses it.
    """
    low, high = x.min(axis=0), x.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    unit = (x - low) / width
    deviation: Floats = np.sqrt((share * (unit - (share * unit).sum(axis=0)) ** 2).sum(axis=0)) * width
    return np.where((high > low) & (deviation > 0), deviation, 1.0)


def _principal(scaled: Floats, share: Floats, count: int) -> Floats:
    """The first principal components, as orthonormal rows; the largest entry of each is positive."""
    _, vectors = np.linalg.eigh(scaled.T @ (share * scaled))
    rows = vectors.T[::-1][:count]
    signs = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])
    return np.ascontiguousarray(rows * signs[:, None])


def rounded_norms(rows: Floats, norm: float, *, up: bool = True) -> Floats:
    """The norms of rows, rounded up or down; of shares of the largest entry, whose powers do not all vanish."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    safe = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)[:, None]
    lengths: Floats = np.linalg.norm(rows / safe, ord=norm, axis=1) * safe[:, 0]
    slack = (rows.shape[1] + 32) * 2 * ROUNDOFF
    rounded: Floats = lengths * (1 + slack if up else 1 - slack)
    return rounded
