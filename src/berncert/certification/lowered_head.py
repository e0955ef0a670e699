"""A head of high degree, replaced by one of a lower degree whose distance from it is known: boxes cost far less."""

from __future__ import annotations

import math

import numpy as np
import torch

from berncert.certification.feature_space import DenseSearch
from berncert.certification.kernels.problem import exponent_of, pose
from berncert.foundation.arrays import Floats
from berncert.polynomial import SmoothedHead

CLOSE = 1e-3
"""No margin may change by more, where coefficients are of magnitude 1."""
FEWER = 0.5
"""Of the coefficients, at most so many may be left."""
WIDER = 1 + 1e-12


def lowered(search: DenseSearch) -> DenseSearch | None:
    """The search for a head of the least degree that is close enough; None where none is that saves much.

    What holds of its margins beyond its `rounding` holds of the head's own: both differ by at most the largest
    difference of their coefficients, once both are written with the same degree. That is in `rounding`.
    """
    problem = search.problem
    shape = tuple(problem.sizes.tolist())
    whole = problem.coefficients.reshape(-1, *shape)
    for degree in range(1, max(shape) - 1):
        sizes = tuple(min(size, degree + 1) for size in shape)
        if math.prod(sizes) > FEWER * math.prod(shape):
            return None
        raising = [raised(low - 1, high - 1) for low, high in zip(sizes, shape, strict=True)]
        low = _along_axes(whole, [np.asarray(np.linalg.pinv(matrix), np.float64) for matrix in raising])
        again = _along_axes(low, raising)
        # the sums of each axis have weights that add up to 1, computed to a few roundings each
        rounding = 8 * (max(shape) + 8) * len(shape) * 2.0**-53 * float(np.abs(low).max())
        lost = 2 * (float(np.abs(again - whole).max()) + rounding) * WIDER
        if lost > CLOSE or not np.abs(low).max() > 0:
            continue
        exponent = exponent_of(low)
        made = pose(low, norm=problem.norm, tolerance=problem.tolerance, max_boxes=problem.max_boxes)
        floor = made.rounding + math.ldexp(problem.rounding + lost, -exponent) * WIDER
        return DenseSearch(made._replace(rounding=floor), search.exponent + exponent)
    return None


def head_of(search: DenseSearch) -> SmoothedHead:
    """The head that is searched."""
    problem = search.problem
    coefficients = np.ldexp(problem.coefficients.reshape(-1, *problem.sizes.tolist()), search.exponent)
    return SmoothedHead(torch.as_tensor(coefficients))


def raised(low: int, high: int) -> Floats:
    """(high + 1, low + 1): coefficients of a Bernstein polynomial, times this, are those of a higher degree."""
    among = math.comb(high, low)
    # j of the low degree's numbers among the first i of the higher one's: no weight is negative, and they sum to 1
    return np.array([
        [math.comb(i, j) * math.comb(high - i, low - j) / among for j in range(low + 1)] for i in range(high + 1)
    ])  # fmt: skip


def _along_axes(coefficients: Floats, matrices: list[Floats]) -> Floats:
    for axis, matrix in enumerate(matrices, start=1):
        coefficients = np.moveaxis(np.tensordot(coefficients, matrix, (axis, 1)), -1, axis)
    return np.ascontiguousarray(coefficients)
