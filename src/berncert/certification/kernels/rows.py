"""Compiled kernels: what is done when a row begins: its box and weights laid out, fixed axes taken out, its clock."""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import inlined, part
from berncert.certification.kernels.problem import Memory, Problem, Samples, Whole
from berncert.certification.kernels.tensor import ROUNDOFF, basis, contract, copy
from berncert.foundation.arrays import Floats

SHARE, OF_ROW, ROW, BOXES = range(4)
"""The places of a clock: the share of a row's time that is over, the row it was said of, the row at hand, its boxes.

The last two are written by the search, the first two by whoever watches it; a share said of an older row counts not.
"""


def new_clock() -> Floats:
    """The clock of one thread, before its first row."""
    return np.full(4, -1.0)


@inlined
def expired(clock: Floats, share: float) -> bool:
    """Whether this share of the time for the row at hand is over."""
    return bool(clock[OF_ROW] == clock[ROW] and clock[SHARE] >= share)


@part
def slopes(problem: Problem, k: int) -> None:
    """The least and the greatest slope of a class along each axis, rounded outwards, as in `problem.slope_range`."""
    b = problem.coefficients[k]
    rest = b.size
    for j in range(problem.sizes.size):
        size = problem.sizes[j]
        rest //= size
        low, high = np.inf, -np.inf
        for start in range(0, b.size, size * rest):
            for i in range(start, start + (size - 1) * rest):
                rise = b[i + rest] - b[i]
                low = min(low, rise)
                high = max(high, rise)
        slack = 8.0 * (size - 1) * ROUNDOFF
        problem.flattest[k, j] = low * (size - 1) - slack
        problem.steepest[k, j] = high * (size - 1) + slack


@part
def hold(problem: Problem, whole: Whole, values: Floats) -> None:
    """Fill the problem with the polynomials at these values of the held axes, and with their slopes.

    Held axes are summed up one after the other with the convex weights of their basis.
    """
    size = whole.coefficients.shape[1]
    here, there, weights = whole.here, whole.there, whole.weights
    for k in range(whole.coefficients.shape[0]):
        copy(whole.coefficients[k], size, here)
        count, rest, at = 1, size, 0
        for j in range(whole.sizes.size):
            rest //= whole.sizes[j]
            if whole.held[j] == 0:
                count *= whole.sizes[j]
                continue
            basis(whole.sizes[j] - 1, values[at], weights)
            contract(here, count, whole.sizes[j], rest, weights, there)
            here, there = there, here
            at += 1
        copy(here, count, problem.coefficients[k])
        slopes(problem, k)


@part
def begin_row(problem: Problem, memory: Memory, samples: Samples, whole: Whole, i: int, clock: Floats) -> None:
    """Take the sample's fixed axes out of the problem, lay out its box and weights, and start its clock."""
    if samples.held.shape[1] > 0:
        hold(problem, whole, samples.held[i])
    clock[BOXES] = 0.0
    clock[ROW] = i
    for j in range(memory.low.size):
        memory.low[j] = samples.low[i, j]
        memory.high[j] = samples.high[i, j]
        memory.weight[j] = samples.weight[i, j]
        memory.start[j] = min(samples.high[i, j], max(samples.low[i, j], samples.features[i, j]))
