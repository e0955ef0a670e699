"""A sum of small polynomials fitted to a model that is none: least squares on its outputs, with smooth terms."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np
import torch
from scipy.linalg import block_diag

from berncert.estimators.reduction import Reduction
from berncert.estimators.selection import most_important
from berncert.estimators.term_smoothing import Nets, head_of
from berncert.foundation.arrays import Floats
from berncert.polynomial import bernstein
from berncert.polynomial.grid import degrees_per_axis
from berncert.polynomial.sum_head import SumHead

PAIRED = 6
"""The columns that matter most, each pair of which has a term."""
PAIR_DEGREE = 3
MOST_ROWS = 3000
"""Rows of the table at which the model is asked, at most, and as many points between two of them."""
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Of the bending of terms, to choose from: the one that does best on a fifth of the points is taken."""
LEVEL = 1e-3
"""The penalty of what a term adds beside bending: it has its share, as constants could be in any term."""


def fitted_sum(outputs: Callable[[Floats], Floats], x: Floats, reduction: Reduction) -> Callable[[Any], SumHead]:
    """Degree -> the head nearest to the outputs (N, K) of a model: a term in each column, and pairs of a few.

    The model is asked at rows and between them, once for all degrees.
    """
    points = _points(x)
    wanted, features = outputs(points), reduction.features(points)
    limits = [max(1, len(np.unique(x[:, column])) - 1) for column in reduction.kept]
    columns = reduction.kept.tolist()
    paired = [columns.index(j) for j in most_important(outputs, x, columns, PAIRED, [])]

    def of_degree(degree: Any) -> SumHead:
        wished = degrees_per_axis(reduction.dim, degree)
        degrees = [min(n, most) for n, most in zip(wished, limits, strict=True)]
        shapes: dict[tuple[int, ...], tuple[int, ...]] = {(axis,): (n,) for axis, n in enumerate(degrees)}
        for pair in combinations(paired, 2):
            shapes[pair] = tuple(min(PAIR_DEGREE, degrees[axis]) for axis in pair)
        nets, constants = _solved(features, wanted, shapes)
        return head_of(nets, constants, reduction.dim)

    return of_degree


def _points(x: Floats) -> Floats:
    """Rows, and points between two rows each."""
    rng = np.random.default_rng(0)
    rows = x[rng.permutation(len(x))[:MOST_ROWS]]
    part = rng.uniform(size=(len(rows), 1))
    return np.concatenate([rows, part * rows + (1 - part) * rows[rng.permutation(len(rows))]])


def _solved(features: Floats, wanted: Floats, shapes: dict[tuple[int, ...], tuple[int, ...]]) -> tuple[Nets, Floats]:
    """The coefficients of the terms, and the constants (K,)."""
    centre = wanted.mean(axis=0)
    parts = [_products(features[:, axes], degrees) for axes, degrees in shapes.items()]
    design = np.concatenate(parts, axis=1)
    penalty = block_diag(*(_bending(degrees) for degrees in shapes.values()))
    test = np.arange(len(design)) % 5 == 0

    def solve(rows: Any, strength: float) -> Floats:
        some = design[rows]
        matrix = some.T @ some + strength * penalty + 1e-10 * len(some) * np.eye(len(penalty))
        found: Floats = np.linalg.solve(matrix, some.T @ (wanted[rows] - centre))
        return found

    def error(strength: float) -> float:
        rest = design[test] @ solve(~test, strength) + centre - wanted[test]
        return float((rest**2).mean())

    solution = solve(slice(None), min(PENALTIES, key=error))
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    nets = {
        axes: values.T.reshape(-1, *(n + 1 for n in degrees))
        for (axes, degrees), values in zip(shapes.items(), np.split(solution, ends), strict=True)
    }
    return nets, centre


def _products(features: Floats, degrees: tuple[int, ...]) -> Floats:
    """(N, (n_1+1) ...): the products of the Bernstein polynomials along each axis."""
    bases = [bernstein.basis(n, torch.from_numpy(features[:, i])).numpy() for i, n in enumerate(degrees)]
    found: Floats = reduce(lambda a, b: (a[:, :, None] * b[:, None]).reshape(len(a), -1), bases)
    return found


def _bending(degrees: tuple[int, ...]) -> Floats:
    """A penalty of the second differences of the coefficients of a term in one column; of a pair, of all of it."""
    size = int(np.prod([n + 1 for n in degrees]))
    if len(degrees) > 1:
        return np.eye(size)
    steps = np.diff(np.eye(size), 2, axis=0)
    found: Floats = steps.T @ steps + LEVEL * np.eye(size)
    return found
