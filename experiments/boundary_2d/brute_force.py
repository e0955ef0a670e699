"""An independent answer to "how far is the nearest point of another class?": try very many points.

It shares nothing with the certifier, not even the evaluation: the polynomial is summed here term by term, from powers
and binomial coefficients. Every distance it returns is that of a point which was tried and has another class, so it
is never below the true distance but for rounding; it exceeds it only by what falls between the points tried.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import binom

Floats = npt.NDArray[np.float64]

GRID = np.linspace(0, 1, 401)
STEP = float(GRID[1])
DIRECTIONS = 720
HALVINGS = 20


class BruteForce:
    """Tries points of the unit square against the polynomials with the given coefficients, (K, n_1+1, n_2+1)."""

    def __init__(self, coefficients: Floats) -> None:
        self.coefficients = coefficients
        logits = np.einsum("xi,kij,yj->xyk", self._basis(GRID, 0), coefficients, self._basis(GRID, 1))
        self.grid = np.stack(np.meshgrid(GRID, GRID, indexing="ij"), axis=-1).reshape(-1, 2)
        self.grid_logits: Floats = logits.reshape(len(self.grid), -1)

    def distance(self, x0: Floats, norm: float) -> float:
        """To the nearest point found that is not given x0's class; inf if there is none."""
        predicted = int(self._logits(x0[None])[0].argmax())
        others = self.grid[_lost(self.grid_logits, predicted)]
        if not len(others):
            return np.inf
        nearest = others[lengths(others - x0, norm).argmin()]
        full_circle = np.linspace(0, 2 * np.pi, DIRECTIONS, endpoint=False)
        nearest = self._shrink(x0, nearest, full_circle, predicted, norm)
        for half_width in (0.1, 0.005):  # look again, closer, at the directions round the best one
            towards = np.arctan2(*(nearest - x0)[::-1])
            sector = towards + half_width * np.linspace(-1, 1, DIRECTIONS)
            nearest = self._shrink(x0, nearest, sector, predicted, norm)
        return float(lengths(nearest - x0, norm))

    def _shrink(self, x0: Floats, nearest: Floats, angles: Floats, predicted: int, norm: float) -> Floats:
        """Shrink a ball round x0 for as long as some point of its rim has another class; the last such point."""
        clear = 0.0
        step = 2 * STEP
        while True:  # the rim of a ball without other classes, from `nearest` inwards
            clear = float(lengths(nearest - x0, norm)) - step
            found = self._on_rim(x0, clear, angles, predicted, norm) if clear > 0 else None
            if found is None:
                break
            nearest = found
        clear = max(clear, 0.0)
        for _ in range(HALVINGS):
            middle = (clear + float(lengths(nearest - x0, norm))) / 2
            found = self._on_rim(x0, middle, angles, predicted, norm)
            if found is None:
                clear = middle
            else:
                nearest = found
        return nearest

    def _on_rim(self, x0: Floats, radius: float, angles: Floats, predicted: int, norm: float) -> Floats | None:
        """The nearest point of another class on the rim of the ball, as far as it lies in the square."""
        directions = np.column_stack([np.cos(angles), np.sin(angles)])
        rim = x0 + radius * directions / lengths(directions, norm)[:, None]
        rim = rim.clip(0, 1)  # brings no coordinate farther from x0, so the points stay in the ball
        others = rim[_lost(self._logits(rim), predicted)]
        return others[lengths(others - x0, norm).argmin()] if len(others) else None

    def _logits(self, points: Floats) -> Floats:
        x, y = points.T
        rows = np.tensordot(self._basis(x, 0), self.coefficients, axes=(1, 1))  # (N, K, n_2 + 1)
        return (rows @ self._basis(y, 1)[:, :, None])[..., 0]

    def _basis(self, t: Floats, axis: int) -> Floats:
        """binom(n, k) t^k (1 - t)^(n - k), (len(t), n + 1)."""
        size = self.coefficients.shape[1 + axis]
        powers = np.vander(t, size, increasing=True)
        return binom(size - 1, np.arange(size)) * powers * np.vander(1 - t, size)


def lengths(vectors: Floats, norm: float) -> Floats:
    """The p-norm along the last axis; scaled first, as powers of small numbers vanish for large p."""
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0)
    return scale[..., 0] * np.asarray(np.linalg.norm(vectors / scale, ord=norm, axis=-1))


def _lost(logits: Floats, predicted: int) -> npt.NDArray[np.bool_]:
    """Where another class is as good as the predicted one."""
    return np.delete(logits, predicted, axis=1).max(axis=1) >= logits[:, predicted]
