"""Compiled kernels: the branch and bound that proves the distance to the nearest point that is given a wanted class.

Such a point has g_r = c_r - c_wanted <= 0 for all other classes r at once. A box is dropped when one of them is proven
positive on it, or when one of them, or a mean of two, proves that its points are too far. All g_r of a box are kept.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.boxes import bound_box, hopeless, narrow, within
from berncert.certification.kernels.compiled import borrowed, kernel, part
from berncert.certification.kernels.descent import land, slope_at, subtract
from berncert.certification.kernels.distance import distance
from berncert.certification.kernels.problem import Memory, Problem, Samples, Whole
from berncert.certification.kernels.rows import BOXES, begin_row, expired
from berncert.certification.kernels.search import (
    BUDGET,
    BUDGET_SHARES,
    COARSENESS,
    HALVINGS,
    PROVEN,
    ROUNDING,
    TIME,
    WHOLE_CUBE,
    all_values,
)
from berncert.certification.kernels.tensor import ROUNDOFF, copy, split, value_at
from berncert.foundation.arrays import Flags, Floats, Ints

SEEKING = 24  # steps of a search for a witness
PULLING = 20  # halvings of the way back from it


@kernel
def wanted_rows(
    problem: Problem,
    memory: Memory,
    paths: Floats,
    whole: Whole,
    samples: Samples,
    wanted: Ints,
    first: int,
    last: int,
    stop: Flags,
    clock: Floats,
    radius: Floats,
    upper: Floats,
    witness: Floats,
    status: Ints,
    boxes: Ints,
) -> None:
    """The rows first..last - 1: no point of the box closer than radius is given the wanted class, the witness is.

    paths: (depth, K - 1, coefficients). A status WHOLE_CUBE means that the class is given nowhere in the box.
    """
    p = borrowed(problem)
    m = borrowed(memory)
    a = borrowed(samples)
    w = borrowed(witness)
    s = borrowed(stop)
    c = borrowed(clock)
    path = borrowed(paths)
    for i in range(first, last):
        begin_row(p, m, a, whole, i, c)
        radius[i], upper[i], status[i], boxes[i] = nearest_wanted(p, m, path, a.features[i], wanted[i], w[i], s, c)
        if stop[0]:
            return


@part
def nearest_wanted(
    problem: Problem,
    memory: Memory,
    paths: Floats,
    x0: Floats,
    wanted: int,
    witness: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[float, float, int, int]:
    """One sample: (radius, upper, status, boxes); the witness is written."""
    witness[:] = np.nan
    for j in range(x0.size):
        memory.x[j] = memory.start[j]
    upper = seek(problem, memory, x0, wanted, np.inf, witness)
    radius = 0.0
    boxes = x0.size - x0.size
    spent, short, late = True, False, False
    for stage in range(len(COARSENESS)):
        tolerance = max(problem.tolerance, COARSENESS[stage])
        if spent and radius < (1.0 - tolerance) * upper:
            share = BUDGET_SHARES[stage]
            limit = share * problem.max_boxes
            found, upper, boxes = explore_wanted(
                problem, memory, paths, x0, wanted, tolerance, limit, share, upper, boxes, witness, stop, clock
            )
            radius = max(radius, found)
            late = late or expired(clock, share)
            spent = boxes >= limit or expired(clock, share)
            short = short or spent
    if radius == np.inf:
        return radius, upper, WHOLE_CUBE, boxes
    if upper - radius <= problem.tolerance * upper < np.inf:
        return radius, upper, PROVEN, boxes
    return radius, upper, TIME if late else (BUDGET if short else ROUNDING), boxes


@part
def enter_wanted(problem: Problem, memory: Memory, paths: Floats, x0: Floats, wanted: int, upper: float) -> bool:
    """Put all g_r, on the part of the sample's box within `upper`, onto the path; False if there is no such part."""
    sizes = memory.sizes[0]
    worst = 0.0
    at = 0
    for r in range(problem.coefficients.shape[0]):
        if r == wanted:
            continue
        subtract(problem.coefficients, r, wanted, memory.margin)
        here, there = memory.margin, memory.there
        n = memory.margin.size
        error = 2.0 * ROUNDOFF
        for j in range(x0.size):
            sizes[j] = problem.sizes[j]
        for j in range(x0.size):
            low, high = within(memory, x0, j, upper)
            if low > high:
                return False
            memory.centre[0, j] = memory.weight[j] * (0.5 * ((high - x0[j]) + (low - x0[j])))
            memory.half[0, j] = memory.weight[j] * (0.5 * ((high - x0[j]) - (low - x0[j])))
            n, error = narrow(problem, memory, here, there, n, sizes, j, low, high, error, 0.0)
        copy(here, n, paths[0, at])
        worst = max(worst, error)
        at += 1
    memory.error[0] = worst
    memory.bound[0] = 0.0
    return True


@part
def explore_wanted(
    problem: Problem,
    memory: Memory,
    paths: Floats,
    x0: Floats,
    wanted: int,
    tolerance: float,
    limit: float,
    share: float,
    upper: float,
    boxes: int,
    witness: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[float, float, int]:
    """Search the sample's box for points of the wanted class nearer than `upper`: (radius, upper, boxes)."""
    if not enter_wanted(problem, memory, paths, x0, wanted, upper):
        return upper, upper, boxes
    d = x0.size
    closed = np.inf
    reach = 0.0
    for j in range(d):
        reach = max(reach, abs(memory.centre[0, j]) + memory.half[0, j])
    slop = 2.0 * d * (HALVINGS + 8) * ROUNDOFF * reach
    height = 1
    while height > 0:
        height -= 1
        centre, half, error = memory.centre[height], memory.half[height], memory.error[height]
        goal = upper * (1.0 - tolerance)
        bound = memory.bound[height]
        if bound >= goal or expired(clock, share):
            closed = min(closed, bound)
            continue
        boxes += 1
        clock[BOXES] = boxes
        bound, axis = bound_wanted(
            problem, memory, paths[height], memory.sizes[height], centre, half, error, bound, goal, slop
        )
        if bound >= goal:
            closed = min(closed, bound)
            continue
        for j in range(d):
            place = x0[j] + (centre[j] + half[j] * memory.y[j]) / memory.weight[j]
            memory.x[j] = min(memory.high[j], max(memory.low[j], place))
        if distance(memory.x, x0, memory.weight, problem.norm, memory.t) < upper:
            upper = seek(problem, memory, x0, wanted, upper, witness)
        whole = True  # of the wanted class on the whole box, or within rounding of it
        for r in range(paths.shape[1]):
            whole = whole and hopeless(paths[height, r], problem.rounding + error)
        spent = boxes >= limit or stop[0] or height + 2 > memory.bound.size
        if spent or whole or half[axis] < reach * 2.0**-HALVINGS:
            closed = min(closed, bound)
            continue
        divide_wanted(memory, paths, height, axis, error, bound)
        height += 2
    return min(closed, upper), upper, boxes


@part
def bound_wanted(
    problem: Problem,
    memory: Memory,
    all_b: Floats,
    sizes: Ints,
    centre: Floats,
    half: Floats,
    error: float,
    bound: float,
    goal: float,
    slop: float,
) -> tuple[float, int]:
    """The best bound that one g_r, or a mean of two, proves; memory.y goes to where the best relaxation is nearest."""
    d = sizes.size
    best, best_bound, best_axis = 0, -1.0, 0
    for r in range(all_b.shape[0]):
        found, axis = bound_box(problem, memory, all_b[r], sizes, centre, half, error, bound, goal, slop)
        if found >= goal:
            return found, axis
        if found > best_bound:
            best, best_bound, best_axis = r, found, axis
            copy(memory.y, d, memory.landed)
    for j in range(d):
        memory.t[j] = 0.5 + 0.5 * memory.landed[j]
    other, most = -1, 0.0
    for r in range(all_b.shape[0]):
        if r != best:
            value = value_at(all_b[r], sizes, memory.t, memory.here, memory.there, memory.scratch)
            if value > most:
                other, most = r, value
    if other >= 0:
        for part in (0.5, 0.25, 0.75):
            for i in range(all_b.shape[1]):
                memory.margin[i] = (1.0 - part) * all_b[best, i] + part * all_b[other, i]
            found, axis = bound_box(
                problem, memory, memory.margin, sizes, centre, half, error + 8.0 * ROUNDOFF, bound, goal, slop
            )
            if found >= goal:
                return found, axis
            if found > best_bound:
                best_bound, best_axis = found, axis
                copy(memory.y, d, memory.landed)
    copy(memory.landed, d, memory.y)
    return max(bound, best_bound), best_axis


@part
def seek(problem: Problem, memory: Memory, x0: Floats, wanted: int, upper: float, witness: Floats) -> float:
    """From memory.x, step onto the tangent of the most violated g_r until none is; then back towards the sample."""
    x = memory.x
    for _ in range(SEEKING):
        rival, lead = strongest(problem, memory, x, wanted)
        if lead > 2.0 * problem.rounding:
            return go_back(problem, memory, x0, wanted, upper, witness)
        subtract(problem.coefficients, rival, wanted, memory.margin)
        value = slope_at(problem, memory, x)
        copy(x, x.size, memory.y)
        moved = land(problem, memory, memory.y, x, value + 4.0 * problem.rounding + 1e-3 * abs(value))
        if not moved > 4.0 * ROUNDOFF:
            break
    return upper


@part
def strongest(problem: Problem, memory: Memory, x: Floats, wanted: int) -> tuple[int, float]:
    """The other class that is strongest at x, and by how much the wanted one leads it."""
    all_values(problem, memory, x)
    values = memory.margins
    rival = -1
    for r in range(values.size):
        if r != wanted and (rival < 0 or values[r] > values[rival]):
            rival = r
    return rival, values[wanted] - values[rival]


@part
def go_back(problem: Problem, memory: Memory, x0: Floats, wanted: int, upper: float, witness: Floats) -> float:
    """From memory.x, of the wanted class, towards the nearest point of the box to the sample, by bisection."""
    near, far = 0.0, 1.0
    for step in range(PULLING):
        part = 1.0 if step == 0 else 0.5 * (near + far)
        for j in range(x0.size):
            place = memory.start[j] + part * (memory.x[j] - memory.start[j])
            memory.z[j] = min(memory.high[j], max(memory.low[j], place))
        _, lead = strongest(problem, memory, memory.z, wanted)
        if lead > 2.0 * problem.rounding:
            far = part
            reached = distance(memory.z, x0, memory.weight, problem.norm, memory.t)
            reached *= 1.0 + 2.0 * (x0.size + 16) * ROUNDOFF
            if reached < upper:
                upper = reached
                copy(memory.z, x0.size, witness)
        else:
            near = part
    return upper


@part
def divide_wanted(memory: Memory, paths: Floats, at: int, axis: int, error: float, bound: float) -> None:
    """Replace the box by its halves, the one nearer to the sample on top."""
    sizes = memory.sizes[at]
    middle = memory.centre[at, axis]
    half = 0.5 * memory.half[at, axis]
    for j in range(sizes.size):
        memory.sizes[at + 1, j] = sizes[j]
        memory.centre[at + 1, j] = memory.centre[at, j]
        memory.half[at + 1, j] = memory.half[at, j]
    low, high = (at + 1, at) if middle > 0.0 else (at, at + 1)
    for r in range(paths.shape[1]):
        copy(paths[at, r], paths.shape[2], memory.margin)
        split(memory.margin, sizes, axis, paths[low, r], paths[high, r])
    memory.centre[low, axis] = middle - half
    memory.centre[high, axis] = middle + half
    for i in range(at, at + 2):
        memory.half[i, axis] = half
        memory.error[i] = error + 2.0 * (sizes[axis] - 1) * ROUNDOFF
        memory.bound[i] = bound
