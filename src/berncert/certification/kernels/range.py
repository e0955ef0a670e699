"""Compiled kernels: the branch and bound that proves the least value of one polynomial over a box.

The enclosure, the minorants and the halving are those of the search for the distance, with the value as the objective.
Besides, an axis along which the coefficients never fall (or never rise) on a box is replaced by its face. With a
target, only points within it count: boxes beyond are dropped, and those across its rim get a multiplier for the ball.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.boxes import axis_to_halve, divide, narrow, simplify
from berncert.certification.kernels.compiled import borrowed, kernel, part
from berncert.certification.kernels.distance import convex_least, distance, dual_exponent, length
from berncert.certification.kernels.minorant import fit, gaps
from berncert.certification.kernels.problem import Memory, Problem, Samples, Whole
from berncert.certification.kernels.rows import BOXES, begin_row, expired
from berncert.certification.kernels.search import BUDGET, BUDGET_SHARES, COARSENESS, PROVEN, ROUNDING, TIME
from berncert.certification.kernels.tensor import ROUNDOFF, copy, least, value_and_gradient, value_at
from berncert.foundation.arrays import Flags, Floats, Ints

LOWERING = 0.1  # of the tolerance may be spent on lowering degrees
DESCENT_STEPS = 16
HALVINGS = 46


@kernel
def range_rows(
    problem: Problem,
    memory: Memory,
    whole: Whole,
    samples: Samples,
    first: int,
    last: int,
    stop: Flags,
    clock: Floats,
    bound: Floats,
    value: Floats,
    point: Floats,
    status: Ints,
    boxes: Ints,
) -> None:
    """For the rows first..last - 1 and every output: the least value [.., 0] and the least of its negative [.., 1].

    bound: (N, K, 2) proven; value, point: (N, K, 2) and (N, K, 2, d), what was found and where; status, boxes.
    """
    p = borrowed(problem)
    m = borrowed(memory)
    a = borrowed(samples)
    s = borrowed(stop)
    c = borrowed(clock)
    at = borrowed(point)
    for i in range(first, last):
        begin_row(p, m, a, whole, i, c)
        for k in range(p.coefficients.shape[0]):
            for side in range(2):
                for n in range(m.margin.size):
                    m.margin[n] = p.coefficients[k, n] if side == 0 else -p.coefficients[k, n]
                bound[i, k, side], value[i, k, side], status[i, k, side], boxes[i, k, side] = least_value(
                    p, m, a.target[i], at[i, k, side], s, c
                )
        if stop[0]:
            return


@part
def least_value(
    problem: Problem, memory: Memory, target: float, point: Floats, stop: Flags, clock: Floats
) -> tuple[float, float, int, int]:
    """Of memory.margin over the box of the row: (bound, value at the point, status, boxes); the point is written.

    memory.net is not free for use between the boxes; memory.margin keeps the polynomial on the cube.
    """
    n = memory.margin.size
    whole = memory.entire
    copy(memory.margin, n, whole)
    spread, root = enter_range(problem, memory, whole)
    best = np.inf
    for j in range(memory.x.size):
        memory.x[j] = 0.5 * (memory.low[j] + memory.high[j]) if target == np.inf else memory.start[j]
    best = improve(problem, memory, whole, target, best, point)
    bound = -np.inf
    boxes = n - n
    late = False
    short = False
    spent = True
    noise = 4.0 * (problem.rounding + root)
    for stage in range(len(COARSENESS)):
        tolerance = max(problem.tolerance, COARSENESS[stage]) * spread + noise
        if spent and bound < best - tolerance:
            share = BUDGET_SHARES[stage]
            enter_range(problem, memory, whole)
            found, best, boxes = lowest(
                problem, memory, whole, target, tolerance, share * problem.max_boxes, share, best, boxes, point, stop,
                clock,
            )  # fmt: skip
            bound = max(bound, found)
            late = late or expired(clock, share)
            spent = boxes >= share * problem.max_boxes or expired(clock, share)
            short = short or spent
    if best - bound <= problem.tolerance * spread + noise:
        return bound - problem.rounding, best, PROVEN, boxes
    return bound - problem.rounding, best, TIME if late else (BUDGET if short else ROUNDING), boxes


@part
def enter_range(problem: Problem, memory: Memory, whole: Floats) -> tuple[float, float]:
    """Put the polynomial on the row's box onto the path: the range of its coefficients there, and their error."""
    n = whole.size
    copy(whole, n, memory.margin)
    sizes = memory.sizes[0]
    here, there = memory.margin, memory.there
    error = ROUNDOFF
    for j in range(sizes.size):
        sizes[j] = problem.sizes[j]
    for j in range(sizes.size):
        memory.centre[0, j] = 0.5 * (memory.low[j] + memory.high[j])
        memory.half[0, j] = 0.5 * (memory.high[j] - memory.low[j])
        n, error = narrow(problem, memory, here, there, n, sizes, j, memory.low[j], memory.high[j], error, 0.0)
    copy(here, n, memory.path[0])
    memory.error[0] = error
    memory.bound[0] = least(here, n) - error
    top = -np.inf
    for i in range(n):
        top = max(top, here[i])
    return top - least(here, n), error


@part
def lowest(
    problem: Problem,
    memory: Memory,
    whole: Floats,
    target: float,
    tolerance: float,
    limit: float,
    share: float,
    best: float,
    boxes: int,
    point: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[float, float, int]:
    """Search the box on the path: (a lower bound of the least value, the least value found, boxes)."""
    d = memory.x.size
    closed = np.inf
    ball = euclidean(target, problem.norm, d)
    height = 1
    while height > 0:
        height -= 1
        sizes, half = memory.sizes[height], memory.half[height]
        error = memory.error[height]
        bound = memory.bound[height]
        if bound >= best - tolerance or boxes >= limit or stop[0] or expired(clock, share):
            closed = min(closed, bound)
            continue
        if target < np.inf and beyond(problem, memory, height, target):
            continue
        boxes += 1
        clock[BOXES] = boxes
        n = keep_faces(memory, height, target == np.inf)
        b = memory.path[height, :n]
        lower, axis = value_bound(memory, b, sizes, memory.centre[height], half, error, target, problem.norm, ball)
        bound = max(bound, lower)
        if bound < best - tolerance:
            for j in range(d):
                place = memory.centre[height, j] + half[j] * memory.y[j]
                memory.x[j] = min(memory.high[j], max(memory.low[j], place))
            best = improve(problem, memory, whole, target, best, point)
        if bound >= best - tolerance or half[axis] < 2.0**-HALVINGS or height + 2 > memory.bound.size:
            closed = min(closed, bound)
            continue
        n, error = simplify(problem, memory, height, n, error, LOWERING * tolerance)
        divide(memory, height, n, axis, memory.y[axis] < 0.0, error, bound)
        for i in range(height, height + 2):
            memory.bound[i] = max(bound, least(memory.path[i], n) - memory.error[i])
        height += 2
    return min(closed, best + problem.rounding), best, boxes


@part
def euclidean(target: float, p: float, d: int) -> float:
    """The greatest 2-norm of a vector whose p-norm is at most the target, rounded up."""
    return target if p <= 2.0 else target * d ** (0.5 - 1.0 / p) * (1.0 + 1e-12)


@part
def beyond(problem: Problem, memory: Memory, at: int, target: float) -> bool:
    """Whether the whole box is further from the sample than the target; centres are exact to 64 roundoffs."""
    for j in range(memory.t.size):
        away = abs(memory.centre[at, j] - memory.start[j]) - memory.half[at, j] - 64.0 * ROUNDOFF
        memory.t[j] = memory.weight[j] * max(0.0, away)
    return bool(length(memory.t, problem.norm) > target * (1.0 + 1e-12))


@part
def keep_faces(memory: Memory, at: int, wanted: bool) -> int:
    """Where the coefficients rise, or fall, along a whole axis of the box, keep the face where they are least.

    The axis stays, with two equal coefficients and no width; the new number of coefficients is returned.
    """
    sizes = memory.sizes[at]
    b = memory.path[at]
    n = 1
    for size in sizes:
        n *= size
    rest = n
    for j in range(sizes.size):
        size = sizes[j]
        rest //= size
        if memory.half[at, j] == 0.0 or not wanted:
            continue
        rising, falling = True, True
        for start in range(0, n, size * rest):
            for i in range(start, start + (size - 1) * rest):
                rising = rising and b[i + rest] >= b[i]
                falling = falling and b[i + rest] <= b[i]
            if not rising and not falling:
                break
        if rising or falling:
            from_line = 0 if rising else size - 1
            to = 0
            for start in range(0, n, size * rest):  # never ahead of what is read: to <= start
                face = memory.here[:rest]
                for i in range(rest):
                    face[i] = b[start + from_line * rest + i]
                for i in range(rest):
                    b[to + i] = face[i]
                    b[to + rest + i] = face[i]
                to += 2 * rest
            n = n // size * 2
            sizes[j] = 2
            memory.centre[at, j] += -memory.half[at, j] if rising else memory.half[at, j]
            memory.half[at, j] = 0.0
    return n


@part
def value_bound(
    memory: Memory,
    b: Floats,
    sizes: Ints,
    centre: Floats,
    half: Floats,
    error: float,
    target: float,
    norm: float,
    ball: float,
) -> tuple[float, int]:
    """A lower bound of the polynomial on its box and the axis to halve; memory.y goes near to where it is least.

    Only points within the target of the sample count, and their weighted 2-norm is at most `ball`: for them Q +
    multiplier * (that norm squared - ball squared) is at most Q, whatever the multiplier >= 0.
    """
    d = sizes.size
    slope, curvature, y = memory.slope, memory.curvature, memory.y
    bound = least(b, b.size) - error
    constant = fit(b, sizes, slope, curvature, memory.here, memory.there, memory.scratch)
    affine, quadratic = gaps(b, sizes, constant, slope, curvature, memory.net, memory.prefix, memory.odometer)
    size = abs(constant) + abs(affine) + abs(quadratic) + error
    flat = constant + affine - error - 4.0 * ROUNDOFF * size
    for j in range(d):
        size += abs(slope[j])
        flat -= abs(slope[j])
        y[j] = -np.copysign(1.0, slope[j])
    bound = max(bound, flat - (d + 8) * ROUNDOFF * size)
    if target < np.inf:
        start = constant + affine - error - 4.0 * ROUNDOFF * size
        bound = max(bound, support_bound(memory, start, centre, half, np.inf, norm, target))
        if norm == 1.0:
            for j in range(d):
                level = abs(slope[j]) / (memory.weight[j] * half[j])
                bound = max(bound, support_bound(memory, start, centre, half, level, norm, target))
    total = constant + quadratic - error - 4.0 * ROUNDOFF * size
    for j in range(d):
        memory.linear[j] = slope[j]
        memory.matrix[j, j] = curvature[j, j]
        for i in range(j):
            memory.matrix[i, j] = memory.matrix[j, i] = 0.5 * curvature[i, j]
    curved = convex_least(memory.matrix, memory.linear, total, size, y)
    if ball < np.inf:
        steepness = 0.0
        for j in range(d):
            steepness += (slope[j] / (memory.weight[j] * half[j])) ** 2
        multiplier = 0.5 * np.sqrt(steepness) / ball
        if 0.0 < multiplier < 1e100:
            total -= multiplier * ball * ball * (1.0 + 1e-12)
            size += 2.0 * multiplier * ball * ball
            for j in range(d):
                a = memory.weight[j] * half[j]
                c = memory.weight[j] * (centre[j] - memory.start[j])
                slack = memory.weight[j] * 64.0 * ROUNDOFF  # of the centre and the half
                memory.linear[j] = slope[j] + 2.0 * multiplier * a * c
                memory.matrix[j, j] = curvature[j, j] + multiplier * a * a
                for i in range(j):
                    memory.matrix[i, j] = memory.matrix[j, i] = 0.5 * curvature[i, j]
                total += multiplier * c * c - 4.0 * multiplier * slack * (abs(a) + abs(c) + slack)
                size += multiplier * (abs(a) + abs(c)) ** 2
            copy(y, d, memory.z)
            rounder = convex_least(memory.matrix, memory.linear, total, size, y)
            if rounder > curved:
                curved = rounder
            else:
                copy(memory.z, d, y)
    for j in range(d):
        memory.t[j] = 1.0
    return max(bound, curved), axis_to_halve(curvature, half, memory.t, y, quadratic)


@part
def support_bound(
    memory: Memory, start: float, centre: Floats, half: Floats, level: float, norm: float, target: float
) -> float:
    """A lower bound of start + slope . y over the points of the box within the target of the sample.

    Per unit of the distance the slope is k + h, k being it cut to +-level: k . t >= -dual norm of k * target for these
    points, h . t has its least value on the box. Any level gives a valid bound.
    """
    total = start
    size = abs(start)
    for j in range(centre.size):
        a = memory.weight[j] * half[j]
        c = memory.weight[j] * (centre[j] - memory.start[j])
        g = memory.slope[j] / a
        k = min(level, max(-level, g))
        memory.t[j] = k
        slack = abs(k) * memory.weight[j] * 64.0 * ROUNDOFF  # of the centre and the half
        total -= k * c + abs(g - k) * a + 2.0 * slack
        size += abs(k * c) + abs(g) * a + slack
    far = length(memory.t, dual_exponent(norm)) * target
    total -= far + (4 * centre.size + 64) * ROUNDOFF * (size + far)
    return total if total > -np.inf else -np.inf  # a NaN proves nothing


@part
def pull_in(problem: Problem, memory: Memory, x: Floats, target: float) -> None:
    """Move a point along its ray to the sample until it is within the target."""
    reached = distance(x, memory.start, memory.weight, problem.norm, memory.t)
    if reached > target * (1.0 - 1e-13):
        part = target / reached * (1.0 - 1e-12)
        for j in range(x.size):
            place = memory.start[j] + part * (x[j] - memory.start[j])
            x[j] = min(memory.high[j], max(memory.low[j], place))


@part
def improve(problem: Problem, memory: Memory, whole: Floats, target: float, best: float, point: Floats) -> float:
    """Descend from memory.x inside the row's box and target: the least value found so far, and its point."""
    x, gradient = memory.x, memory.gradient
    if target < np.inf:
        pull_in(problem, memory, x, target)
    value = value_and_gradient(whole, problem.sizes, x, gradient, memory.here, memory.there, memory.scratch)
    best = note(value, x, best, point)
    pace = 0.25
    for _ in range(DESCENT_STEPS):
        steepest = 0.0
        for g in gradient:
            steepest = max(steepest, abs(g))
        if steepest == 0.0 or pace < 1e-9:
            break
        moved = 0.0
        for j in range(x.size):
            width = memory.high[j] - memory.low[j]
            memory.z[j] = min(memory.high[j], max(memory.low[j], x[j] - pace * width * gradient[j] / steepest))
        if target < np.inf:
            pull_in(problem, memory, memory.z, target)
        for j in range(x.size):
            moved = max(moved, abs(memory.z[j] - x[j]))
        if moved == 0.0:
            break
        there = value_at(whole, problem.sizes, memory.z, memory.here, memory.there, memory.scratch)
        if there < value:
            for j in range(x.size):
                x[j] = memory.z[j]
            value = value_and_gradient(whole, problem.sizes, x, gradient, memory.here, memory.there, memory.scratch)
            best = note(value, x, best, point)
            pace = min(1.0, 2.0 * pace)
        else:
            pace *= 0.25
    return best


@part
def note(value: float, x: Floats, best: float, point: Floats) -> float:
    """Keep x if its value is the least so far."""
    if value < best:
        for j in range(x.size):
            point[j] = x[j]
        return value
    return best
