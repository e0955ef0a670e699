"""An independent answer to "how far is the nearest point of another class?": try very many points.

It shares nothing with the certifier, not even the evaluation: the polynomial is summed here term by term, from powers
and binomial coefficients. Every distance it returns is that of a point which was tried and has another class, so it
is never below the true distance but for rounding; it exceeds it only by what falls between the points tried.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import binom

Floats = npt.NDArray[np.float64]

GRID = np.linspace(0, 1, 401)
CORNERS = np.arange(8) * np.pi / 4  # where the balls of the l1 and l-inf norms have theirs


class Round(NamedTuple):
    """One look at a sector of directions: its half width in radians, how many directions, how often to halve."""

    half_width: float
    directions: int
    halvings: int


ROUNDS = (Round(np.pi, 360, 9), Round(0.1, 160, 10), Round(0.005, 160, 12))  # all round, then closer and closer


class BruteForce:
    """Tries points of the unit square against the polynomials with the given coefficients, (K, n_1+1, n_2+1)."""

    def __init__(self, coefficients: Floats) -> None:
        self.coefficients = coefficients
        logits = np.einsum("xi,kij,yj->xyk", self._basis(GRID, 0), coefficients, self._basis(GRID, 1), optimize=True)
        self.grid = np.stack(np.meshgrid(GRID, GRID, indexing="ij"), axis=-1).reshape(-1, 2)
        self.grid_logits: Floats = logits.reshape(len(self.grid), -1)

    def distance(self, x0: Floats, norm: float) -> float:
        """To the nearest point found that is not given x0's class; inf if there is none."""
        predicted = int(self._logits(x0[None])[0].argmax())
        others = self.grid[_lost(self.grid_logits, predicted)]
        if not len(others):
            return np.inf
        nearest = others[lengths(others - x0, norm).argmin()]
        gap = 2 * float(GRID[1])
        for half_width, directions, halvings in ROUNDS:
            towards = np.arctan2(*(nearest - x0)[::-1])
            sector = np.append(towards + half_width * np.linspace(-1, 1, directions), CORNERS)
            nearest = self._shrink(x0, nearest, sector, gap, halvings, predicted=predicted, norm=norm)
            gap *= 4 / 2**halvings
        return float(lengths(nearest - x0, norm))

    def _shrink(
        self, x0: Floats, nearest: Floats, sector: Floats, gap: float, halvings: int, *, predicted: int, norm: float
    ) -> Floats:
        """Shrink a ball round x0 while some point of its rim has another class: by `gap`, then by halves of it."""
        found: Floats | None = nearest
        while found is not None:
            nearest = found
            clear = max(float(lengths(nearest - x0, norm)) - gap, 0.0)
            found = self._on_rim(x0, clear, sector, predicted, norm) if clear > 0 else None
        for _ in range(halvings):
            middle = (clear + float(lengths(nearest - x0, norm))) / 2
            found = self._on_rim(x0, middle, sector, predicted, norm)
            if found is None:
                clear = middle
            else:
                nearest = found
        return nearest

    def _on_rim(self, x0: Floats, radius: float, sector: Floats, predicted: int, norm: float) -> Floats | None:
        """The nearest point of another class on the rim of the ball, as far as it lies in the square."""
        directions = np.column_stack([np.cos(sector), np.sin(sector)])
        rim = x0 + radius * directions / lengths(directions, norm)[:, None]
        rim = rim.clip(0, 1)  # brings no coordinate farther from x0, so the points stay in the ball
        others = rim[_lost(self._logits(rim), predicted)]
        return others[lengths(others - x0, norm).argmin()] if len(others) else None

    def _logits(self, points: Floats) -> Floats:
        x, y = points.T
        rows = np.tensordot(self._basis(x, 0), self.coefficients, axes=(1, 1))  # (N, K, n_2 + 1)
        logits: Floats = np.einsum("nkj,nj->nk", rows, self._basis(y, 1))
        return logits

    def _basis(self, t: Floats, axis: int) -> Floats:
        """binom(n, k) t^k (1 - t)^(n - k), (len(t), n + 1)."""
        size = self.coefficients.shape[1 + axis]
        powers = np.vander(t, size, increasing=True)
        basis: Floats = binom(size - 1, np.arange(size)) * powers * np.vander(1 - t, size)
        return basis


def lengths(vectors: Floats, norm: float) -> Floats:
    """The p-norm along the last axis; scaled first, as powers of small numbers vanish for large p."""
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0)
    scaled: Floats = np.linalg.norm(vectors / scale, ord=norm, axis=-1)
    return np.asarray(scale[..., 0] * scaled)


def _lost(logits: Floats, predicted: int) -> npt.NDArray[np.bool_]:
    """Where another class is as good as the predicted one."""
    best_other: Floats = np.delete(logits, predicted, axis=1).max(axis=1)
    return np.asarray(best_other >= logits[:, predicted])
