"""Compiled kernels: the branch and bound that proves the least and the greatest value of each output of a sum."""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import borrowed, kernel, part
from berncert.certification.kernels.distance import distance
from berncert.certification.kernels.problem import Samples
from berncert.certification.kernels.rows import BOXES, expired
from berncert.certification.kernels.search import BUDGET, PROVEN, ROUNDING, TIME
from berncert.certification.kernels.sum_bounds import bound_value
from berncert.certification.kernels.sum_problem import SumMemory, SumProblem
from berncert.certification.kernels.sum_search import SPENT, begin_sum
from berncert.certification.kernels.sum_tree import FINAL, ROOT, Tree, find_box, halve, keep_ends, plant, pop, push
from berncert.certification.kernels.sums import cut_terms, margin_at, margin_of
from berncert.certification.kernels.tensor import copy
from berncert.foundation.arrays import Flags, Floats, Ints

DESCENT_STEPS = 24


@kernel
def range_sum_rows(
    problem: SumProblem,
    memory: SumMemory,
    tree: Tree,
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
    t = borrowed(tree)
    a = borrowed(samples)
    s = borrowed(stop)
    c = borrowed(clock)
    at = borrowed(point)
    for i in range(first, last):
        begin_sum(m, a, i, c)
        for k in range(p.bias.size):
            for side in range(2):
                margin_of(p, m, k if side == 0 else -1, k if side == 1 else -1)
                bound[i, k, side], value[i, k, side], status[i, k, side], boxes[i, k, side] = least_of_sum(
                    p, m, t, a.features[i], a.low[i], a.high[i], a.weight[i], a.target[i], at[i, k, side], s, c
                )
        if stop[0]:
            return


@part
def spread_of(problem: SumProblem, memory: SumMemory) -> float:
    """How far the values of the margin on the box at hand can be apart, by the coefficients of its parts."""
    cut_terms(problem, memory)
    total = 0.0
    for j in range(memory.low.size):
        total += abs(memory.slope[j]) * (memory.high[j] - memory.low[j])
    for term in range(problem.begin.size - 1):
        low, high = np.inf, -np.inf
        for v in memory.cut[problem.begin[term] : problem.begin[term + 1]]:
            low = min(low, v)
            high = max(high, v)
        total += high - low
    return total


@part
def least_of_sum(
    problem: SumProblem,
    memory: SumMemory,
    tree: Tree,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    target: float,
    point: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[float, float, int, int]:
    """Of the margin at hand over the row's box: (bound, value at the point, status, boxes); the point is written."""
    copy(low, x0.size, memory.low)
    copy(high, x0.size, memory.high)
    spread = spread_of(problem, memory)
    noise = 4.0 * (problem.rounding + problem.error)
    allowed = problem.tolerance * spread + noise
    copy(memory.affine.start, x0.size, point)
    best = margin_at(problem, memory, point)
    tree.counts[:] = 0
    push(tree, plant(tree, -1, -1, 0.0, 0.0, 0, -np.inf, 0.0))
    closed = np.inf
    boxes = x0.size - x0.size
    short, late = False, False
    while tree.counts[1] > 0:
        least = tree.bound[tree.heap[0]]
        if least >= best - allowed:
            break
        late = expired(clock, 1.0)
        short = boxes >= problem.max_boxes or tree.counts[0] >= tree.parent.size - 2 or stop[0]
        if late or short:
            break
        box = pop(tree)
        axis = tree.axis[box]
        if axis == FINAL:
            closed = min(closed, least)
            continue
        for piece in range(1 if axis == ROOT else 2):
            child = box if axis == ROOT else halve(tree, box, piece)
            boxes += 1
            clock[BOXES] = boxes
            moved = find_box(tree, child, low, high, memory)
            enough = best - SPENT * allowed
            copy(point, x0.size, memory.centre)
            found, axis_of, tree.place[child] = bound_value(
                problem, memory, x0, weight, target, 0.1 * allowed, tree.bound[child], enough
            )
            moved = keep_ends(tree, child, memory) or moved
            if found == np.inf:
                continue  # no points within the target
            tree.bound[child] = max(tree.bound[child], min(found, enough) if moved else found)
            tree.axis[child] = axis_of if axis_of >= 0 else FINAL
            if tree.bound[child] < enough:
                for side in range(2):
                    copy(memory.after if side == 0 else memory.kept, x0.size, memory.x)
                    best = lower_value(problem, memory, x0, low, high, weight, target, best, point)
            push(tree, child)
    if tree.counts[1] > 0:
        closed = min(closed, tree.bound[tree.heap[0]])
    bound = min(closed, best + problem.rounding)
    if best - bound <= allowed:
        return bound - problem.rounding, best, PROVEN, boxes
    return bound - problem.rounding, best, TIME if late else (BUDGET if short else ROUNDING), boxes


@part
def lower_value(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    target: float,
    best: float,
    point: Floats,
) -> float:
    """Descend from memory.x inside the row's box and target: the least margin found so far; its point is kept."""
    x, y, slope = memory.x, memory.affine.point, memory.affine.slope
    pull_in_sum(problem, memory, x, low, high, weight, target)
    value = margin_at(problem, memory, x)
    pace = 0.25
    for _ in range(DESCENT_STEPS):
        steepest = 0.0
        for j in range(x.size):
            far = min(high[j] - low[j], target / weight[j])
            slope[j] = far * memory.gradient[j]
            steepest = max(steepest, abs(slope[j]))
        moved = 1.0
        while steepest > 0.0 and moved > 0.0 and pace > 1e-9:
            for j in range(x.size):
                far = min(high[j] - low[j], target / weight[j])
                y[j] = min(high[j], max(low[j], x[j] - pace * far * slope[j] / steepest))
            pull_in_sum(problem, memory, y, low, high, weight, target)
            moved = 0.0
            for j in range(x.size):
                moved = max(moved, abs(y[j] - x[j]))
            there = margin_at(problem, memory, y)
            if there < value:
                break
            pace *= 0.25
            moved = 0.0 if pace <= 1e-9 else moved
        if steepest == 0.0 or moved == 0.0 or not there < value:
            break
        copy(y, x.size, x)
        value = there
        pace = min(1.0, 2.0 * pace)
    if value < best:
        copy(x, x0.size, point)
        best = value
    return best


@part
def pull_in_sum(
    problem: SumProblem, memory: SumMemory, x: Floats, low: Floats, high: Floats, weight: Floats, target: float
) -> None:
    """Move a point along its ray to the nearest of the row's box until it is within the target."""
    start = memory.affine.start
    if target < np.inf:
        reached = distance(x, start, weight, problem.norm, memory.affine.vector)
        if reached > target * (1.0 - 1e-13):
            piece = target / reached * (1.0 - 1e-12)
            for j in range(x.size):
                x[j] = min(high[j], max(low[j], start[j] + piece * (x[j] - start[j])))
