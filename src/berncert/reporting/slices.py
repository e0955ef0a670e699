"""A plane through feature space: what can be drawn of a proof in many dimensions, at its true proportions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.interpolate import RectBivariateSpline
from torch import Tensor

from berncert.foundation.arrays import Floats

Head = Callable[[Tensor], Tensor]
"""Takes (M, d) features, returns (M, K) logits."""

IN_LINE = 1e-9  # a direction that keeps less of its length is in line with the others
FINEST, COARSEST = 241, 21  # points along an edge of the grid
MOST_PRODUCTS = 3e9  # of grid points and coefficients: some seconds


@dataclass(frozen=True, eq=False)
class Slice:
    """The points origin + coordinates @ axes: lengths in the plane are Euclidean lengths among the features."""

    origin: Floats
    """(d,): the features that the plane goes through."""
    axes: Floats
    """(2, d) orthonormal directions; (1, d) where there is only one feature."""

    @classmethod
    def through(cls, origin: Floats, targets: Iterable[Floats]) -> Slice:
        """Through the origin and the first two targets that are not in line with it; axes of the cube stand in.

        The first target lies to the right of the origin, the second one above. With two features or one there is no
        choice: the cube itself.
        """
        if len(origin) <= 2:
            return cls(origin, np.eye(len(origin)))
        axes: list[Floats] = []
        for direction in (*(target - origin for target in targets), *np.eye(len(origin))):
            rest = direction
            for _ in range(2):  # the second time removes what rounding left
                rest = rest - sum(((rest @ axis) * axis for axis in axes), np.zeros_like(rest))
            length = np.linalg.norm(rest)
            if np.isfinite(length) and length > IN_LINE * np.linalg.norm(direction):
                axes.append(rest / length)
            if len(axes) == 2:
                break
        return cls(origin, np.array(axes))

    def points(self, coordinates: Floats) -> Floats:
        """The points with these coordinates: (..., 2) -> (..., d)."""
        return self.origin + coordinates @ self.axes

    def coordinates(self, points: Floats) -> Floats:
        """The coordinates of the points, or of the nearest points in the plane: (..., d) -> (..., 2)."""
        found: Floats = (points - self.origin) @ self.axes.T
        return found

    def contains(self, point: Floats) -> bool:
        """Whether the point lies in the plane, but for rounding."""
        return bool(np.allclose(self.points(self.coordinates(point)), point, rtol=0, atol=1e-9))

    def ball_outline(self, norm: float, radius: float, *, count: int = 1440) -> Floats:
        """(count, 2): points once round the p-norm ball about the origin, as the plane cuts it."""
        angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
        directions = np.column_stack([np.cos(angle), np.sin(angle)])
        steps = directions @ self.axes
        longest = np.abs(steps).max(axis=1, keepdims=True)  # divided by it, no power vanishes, however large p
        lengths = np.linalg.norm(steps / longest, ord=norm, axis=1, keepdims=True)
        outline: Floats = radius * (directions / longest) / lengths
        return outline

    def cube_outline(self, low: Floats, high: Floats) -> Floats:
        """(m, 2): the corners, in order, of what the cube has in common with the window from `low` to `high`."""
        corners = [np.array(c) for c in ((low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1]))]
        for axis, start in zip(self.axes.T, self.origin, strict=True):
            for sign, room in ((1.0, start), (-1.0, 1 - start)):  # 0 <= start + axis . c <= 1
                corners = _cut(corners, sign * axis, room)
        return np.array(corners).reshape(-1, 2)


def _cut(corners: list[Floats], slope: Floats, room: float) -> list[Floats]:
    """The part of a convex polygon in which slope . c + room >= 0."""
    kept: list[Floats] = []
    for a, b in zip(corners, corners[1:] + corners[:1], strict=True):
        at_a, at_b = float(slope @ a + room), float(slope @ b + room)
        if at_a >= 0:
            kept.append(a)
        if (at_a > 0 > at_b) or (at_a < 0 < at_b):
            kept.append(a + (b - a) * at_a / (at_a - at_b))
    return kept


SQUARE = Slice(np.zeros(2), np.eye(2))
"""The unit square: two features, which are the coordinates."""


def logits_on(head: Head, cut: Slice, x: Floats, y: Floats) -> Floats:
    """(K, rows, columns): the logits at the grid of these coordinates; beyond the cube, those at its edge."""
    columns, rows = np.meshgrid(x, y)
    points = np.clip(cut.points(np.stack([columns, rows], axis=-1)), 0, 1).reshape(-1, len(cut.origin))
    with torch.no_grad():
        logits: Floats = head(torch.from_numpy(points)).double().numpy().T.reshape(-1, len(y), len(x))
    return logits


def window_logits(
    head: Head, cut: Slice, low: Floats, high: Floats, coefficients: int
) -> tuple[Floats, Floats, Floats]:
    """x, y and the logits there, (K, rows, columns), as fine as a head with so many coefficients allows.

    A head that is costly is asked at fewer points, with a smooth surface through them: logits are polynomials.
    """
    asked = int(np.clip(np.sqrt(MOST_PRODUCTS / coefficients), COARSEST, FINEST))
    x, y = (np.linspace(low[axis], high[axis], asked) for axis in (0, 1))
    logits = logits_on(head, cut, x, y)
    if asked == FINEST:
        return x, y, logits
    fine_x, fine_y = (np.linspace(low[axis], high[axis], FINEST) for axis in (0, 1))
    return fine_x, fine_y, np.stack([RectBivariateSpline(y, x, surface)(fine_y, fine_x) for surface in logits])


def leads_of(logits: Floats) -> Floats:
    """How far each logit is ahead of the best other one: a class is predicted where its lead is positive."""
    second, best = np.sort(logits, axis=0)[-2:]
    leads: Floats = logits - np.where(logits == best, second, best)
    return leads
