"""Compiled kernels: for each row's box and each rival, an affine function below the margin of the row's class."""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.boxes import narrow
from berncert.certification.kernels.compiled import borrowed, kernel, part
from berncert.certification.kernels.descent import subtract
from berncert.certification.kernels.minorant import fit, gaps
from berncert.certification.kernels.problem import Memory, Problem, Samples, Whole
from berncert.certification.kernels.rows import begin_row
from berncert.certification.kernels.tensor import ROUNDOFF, least
from berncert.foundation.arrays import Flags, Floats, Ints

LOWERING = 0.01  # of the least coefficient's distance from 0 may be spent on lowering degrees


@kernel
def plane_rows(
    problem: Problem,
    memory: Memory,
    whole: Whole,
    samples: Samples,
    first: int,
    last: int,
    stop: Flags,
    clock: Floats,
    predicted: Ints,
    bound: Floats,
    slope: Floats,
) -> None:
    """margin > bound + slope . y on the box, y in [-1, 1]^d its coordinates, as computed in float64 too.

    bound: (N, K); slope: (N, K, d), all 0 where the margin is proven positive on the box: bound is then above 0. Of the
    row's own class bound is inf.
    """
    p = borrowed(problem)
    m = borrowed(memory)
    a = borrowed(samples)
    out = borrowed(slope)
    for i in range(first, last):
        begin_row(p, m, a, whole, i, clock)
        for k in range(p.coefficients.shape[0]):
            out[i, k, :] = 0.0
            bound[i, k] = np.inf if k == predicted[i] else plane(p, m, predicted[i], k, out[i, k])
        if stop[0]:
            return


@part
def plane(problem: Problem, memory: Memory, predicted: int, rival: int, slope: Floats) -> float:
    """The constant; the slope is written."""
    subtract(problem.coefficients, predicted, rival, memory.margin)
    n = memory.margin.size
    error = 2.0 * ROUNDOFF
    lowest = least(memory.margin, n) - error - problem.rounding
    if lowest > 0.0:
        return lowest
    sizes = memory.sizes[0]
    here, there = memory.margin, memory.there
    for j in range(sizes.size):
        sizes[j] = problem.sizes[j]
    spare = LOWERING * abs(lowest)
    for j in range(sizes.size):
        n, error = narrow(problem, memory, here, there, n, sizes, j, memory.low[j], memory.high[j], error, spare)
    b = memory.path[0, :n]
    for i in range(n):
        b[i] = here[i]
    floor = problem.rounding + error
    lowest = least(b, n) - floor
    if lowest > 0.0:
        return lowest
    constant = fit(b, sizes, memory.slope, memory.curvature, memory.here, memory.there, memory.scratch)
    affine, _ = gaps(
        b, sizes, constant, memory.slope, memory.curvature, memory.net, memory.prefix, memory.odometer
    )  # fmt: skip
    size = abs(constant) + abs(affine) + floor
    for j in range(sizes.size):
        slope[j] = memory.slope[j]
    return constant + affine - floor - 4.0 * ROUNDOFF * size
