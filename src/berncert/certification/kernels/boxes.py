"""Compiled kernels: what is done to one box of the search: enter it, bound it, simplify it, halve it."""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import part
from berncert.certification.kernels.descent import subtract
from berncert.certification.kernels.distance import affine_bound, length, nearest, quadratic_bound, support
from berncert.certification.kernels.lowering import narrow_first
from berncert.certification.kernels.minorant import fit, gaps
from berncert.certification.kernels.problem import Memory, Problem
from berncert.certification.kernels.tensor import ROUNDOFF, copy, least, rotate, split
from berncert.foundation.arrays import Floats, Ints

THINNEST = 2.0**-44  # of a box along an axis, in units of the cube


@part
def enter(problem: Problem, memory: Memory, x0: Floats, predicted: int, rival: int, upper: float, spare: float) -> bool:
    """Put the margin on the part of the sample's box within `upper` onto the path; False if it is positive there."""
    subtract(problem.coefficients, predicted, rival, memory.margin)
    n = memory.margin.size
    error = 2.0 * ROUNDOFF
    if least(memory.margin, n) > problem.rounding + error:
        return False
    sizes = memory.sizes[0]
    here, there = memory.margin, memory.there
    for j in range(x0.size):
        sizes[j] = problem.sizes[j]
    for j in range(x0.size):
        low, high = within(memory, x0, j, upper)
        if low > high:
            return False
        memory.centre[0, j] = memory.weight[j] * (0.5 * ((high - x0[j]) + (low - x0[j])))
        memory.half[0, j] = memory.weight[j] * (0.5 * ((high - x0[j]) - (low - x0[j])))
        n, error = narrow(problem, memory, here, there, n, sizes, j, low, high, error, spare)
    if least(here, n) > problem.rounding + error:
        return False
    copy(here, n, memory.path[0])
    memory.error[0] = error
    memory.bound[0] = 0.0
    return True


@part
def within(memory: Memory, x0: Floats, j: int, upper: float) -> tuple[float, float]:
    """Along an axis, the part of the sample's box within `upper`, rounded outwards; low > high if there is none."""
    low, high = memory.low[j], memory.high[j]
    reach = upper / memory.weight[j]
    if memory.weight[j] != 1.0:
        reach *= 1.0 + 4.0 * ROUNDOFF
    if reach < 1.0 or x0[j] != memory.start[j]:
        low = max(low, np.nextafter(x0[j] - reach, -np.inf))
        high = min(high, np.nextafter(x0[j] + reach, np.inf))
    thin = x0[j] != memory.start[j] or memory.high[j] - memory.low[j] < THINNEST
    if thin and 0.0 <= high - low < THINNEST:  # a wider box only makes the proof say more
        low = max(0.0, low - THINNEST)
        high = min(1.0, high + THINNEST)
    return low, high


@part
def narrow(
    problem: Problem,
    memory: Memory,
    here: Floats,
    there: Floats,
    n: int,
    sizes: Ints,
    axis: int,
    low: float,
    high: float,
    error: float,
    spare: float,
) -> tuple[int, float]:
    """Narrow an axis, which stands first, at the cost of a small part of the tolerance; then make it the last.

    Returns the number of coefficients, which stand in `here` again, and their error.
    """
    size = sizes[axis]
    rest = n // size
    if low > 0.0 or high < 1.0 or size > 2:
        allowance = (spare - error) / (2.0 * sizes.size)
        sizes[axis], made = narrow_first(here, size, rest, low, high, allowance, problem.tables, there, memory.scratch)
        error += made
    else:
        copy(here, n, there)
    rotate(there, sizes[axis], rest, here)
    return rest * sizes[axis], error


@part
def bound_box(
    problem: Problem,
    memory: Memory,
    b: Floats,
    sizes: Ints,
    centre: Floats,
    half: Floats,
    error: float,
    bound: float,
    goal: float,
    slop: float,
) -> tuple[float, int]:
    """A lower bound on the distance to the rival's points in the box (inf if none), and the axis to halve.

    memory.y is left at the point where the bound's relaxation is nearest.
    """
    floor = problem.rounding + error
    if least(b, b.size) > floor:
        return np.inf, 0
    d = sizes.size
    p = problem.norm
    t, y, z, slope, curvature = memory.t, memory.y, memory.z, memory.slope, memory.curvature
    for j in range(d):
        t[j] = max(0.0, abs(centre[j]) - half[j])
    bound = max(bound, length(t, p) * (1.0 - 2.0 * (d + 16) * ROUNDOFF) - slop)
    if bound >= goal:
        return bound, 0
    constant = fit(b, sizes, slope, curvature, memory.here, memory.there, memory.scratch)
    affine, quadratic = gaps(b, sizes, constant, slope, curvature, memory.net, memory.prefix, memory.odometer)
    size = abs(constant) + abs(affine) + abs(quadratic) + floor
    low = constant + affine - floor - 4.0 * ROUNDOFF * size
    bottom = low
    for j in range(d):
        size += abs(slope[j])
        bottom -= abs(slope[j])
    if bottom > (d + 8) * ROUNDOFF * size:
        return np.inf, 0
    nearest(centre, half, slope, low, p, memory.rates, t)
    multiplier = support(t, centre, half, slope, p, z)
    flat = affine_bound(centre, half, slope, low, z, multiplier) - slop
    bound = flat if flat > bound else bound  # not max: a slope near 0 can make it NaN, which proves nothing
    for j in range(d):
        y[j] = min(1.0, max(-1.0, (t[j] - centre[j]) / half[j]))
    if bound < goal < np.inf and multiplier > 0.0 and p > 1.0:
        low = constant + quadratic - floor - 4.0 * ROUNDOFF * size
        curved = quadratic_bound(
            centre, half, slope, curvature, low, p, t, z, multiplier, y, memory.linear, memory.matrix
        )
        bound = curved - slop if curved - slop > bound else bound
    return bound, axis_to_halve(curvature, half, memory.weight, y, quadratic)


@part
def axis_to_halve(curvature: Floats, half: Floats, weight: Floats, y: Floats, gap: float) -> int:
    """The axis whose curvature does most harm where the relaxation is nearest; slivers are not made thinner."""
    widest = 0.0
    for j in range(half.size):
        widest = max(widest, half[j] / weight[j])
    axis = 0
    most = -1.0
    for j in range(half.size):
        width = half[j] / weight[j]
        if width < 1e-6 * widest:
            continue
        score = 2.0 * abs(curvature[j, j]) + 0.1 * abs(gap) * width / widest
        for i in range(half.size):
            if i != j:
                score += abs(curvature[i, j]) * (1.5 - abs(y[i]))
        if score > most:
            most = score
            axis = j
    return axis


@part
def hopeless(b: Floats, floor: float) -> bool:
    """Whether the margin is within rounding of 0, or below, on the whole box: halving it can show nothing more."""
    for v in b:
        if v > floor:
            return False
    return True


@part
def simplify(problem: Problem, memory: Memory, at: int, n: int, error: float, spare: float) -> tuple[int, float]:
    """Lower the degrees of the box at a place of the path where that is almost free: the new count and error."""
    sizes = memory.sizes[at]
    curved = False
    for size in sizes:
        curved = curved or size > 2
    if curved:
        here, there = memory.here, memory.there
        copy(memory.path[at], n, here)
        for j in range(sizes.size):
            n, error = narrow(problem, memory, here, there, n, sizes, j, 0.0, 1.0, error, spare)
        copy(here, n, memory.path[at])
    return n, error


@part
def divide(memory: Memory, at: int, n: int, axis: int, low_first: bool, error: float, bound: float) -> None:
    """Replace the box by its halves along the axis; the one on top, the low or the high one, is looked at first."""
    sizes = memory.sizes[at]
    middle = memory.centre[at, axis]
    half = 0.5 * memory.half[at, axis]
    copy(memory.path[at], n, memory.margin)
    for j in range(sizes.size):
        memory.sizes[at + 1, j] = sizes[j]
        memory.centre[at + 1, j] = memory.centre[at, j]
        memory.half[at + 1, j] = memory.half[at, j]
    low, high = (at + 1, at) if low_first else (at, at + 1)
    split(memory.margin[:n], sizes, axis, memory.path[low], memory.path[high])
    memory.centre[low, axis] = middle - half
    memory.centre[high, axis] = middle + half
    for i in range(at, at + 2):
        memory.half[i, axis] = half
        memory.error[i] = error + 2.0 * (sizes[axis] - 1) * ROUNDOFF
        memory.bound[i] = bound
