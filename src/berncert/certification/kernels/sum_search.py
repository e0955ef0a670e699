"""Compiled kernels: the branch and bound that proves one sample's distance to the decision boundary of a sum.

The boxes of all rivals stand in one heap, the one with the least bound first, so the radius is known at any moment.
Rivals enter with the bound that their greatest slopes prove: most of a thousand are never looked at.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.affine import move
from berncert.certification.kernels.compiled import borrowed, kernel, part
from berncert.certification.kernels.distance import distance, dual_exponent, length
from berncert.certification.kernels.problem import Samples
from berncert.certification.kernels.rows import BOXES, ROW, expired
from berncert.certification.kernels.search import BUDGET, PROVEN, ROUNDING, TIE, TIME, WHOLE_CUBE
from berncert.certification.kernels.sum_bounds import bound_distance
from berncert.certification.kernels.sum_problem import SumMemory, SumProblem
from berncert.certification.kernels.sum_tree import FINAL, ROOT, Tree, find_box, halve, keep_ends, plant, pop, push
from berncert.certification.kernels.sums import margin_at, margin_of, sum_at
from berncert.certification.kernels.tensor import ROUNDOFF, copy
from berncert.foundation.arrays import Flags, Floats, Ints

FEW = 8  # rivals looked at for a first witness
STEPS = 12  # of one descent
SPENT = 0.999  # of the tolerance: rounding must not make a row miss it
BACKWARDS = 30  # halvings of the way back from a point behind the boundary


@kernel
def certify_sum_rows(
    problem: SumProblem,
    memory: SumMemory,
    tree: Tree,
    samples: Samples,
    first: int,
    last: int,
    stop: Flags,
    clock: Floats,
    predicted: Ints,
    radius: Floats,
    upper: Floats,
    witness: Floats,
    rival: Ints,
    status: Ints,
    boxes: Ints,
) -> None:
    """Certify the rows first..last - 1; predicted is the class to hold, or -1 for the one that the sample is given."""
    p = borrowed(problem)
    m = borrowed(memory)
    t = borrowed(tree)
    a = borrowed(samples)
    w = borrowed(witness)
    s = borrowed(stop)
    c = borrowed(clock)
    for i in range(first, last):
        begin_sum(m, a, i, c)
        predicted[i], radius[i], upper[i], rival[i], status[i], boxes[i] = certify_sum(
            p, m, t, a.features[i], a.low[i], a.high[i], a.weight[i], a.target[i], predicted[i], w[i], s, c
        )
        if stop[0]:
            return


@part
def begin_sum(memory: SumMemory, samples: Samples, i: int, clock: Floats) -> None:
    """Lay out the sample's box around the point of it that is nearest, and start its clock."""
    clock[BOXES] = 0.0
    clock[ROW] = i
    flat = memory.affine
    for j in range(flat.start.size):
        x0, low, high = samples.features[i, j], samples.low[i, j], samples.high[i, j]
        s = min(high, max(low, x0))
        flat.start[j] = s
        flat.away[j] = s - x0
        flat.low[j] = low - s
        flat.high[j] = high - s


@part
def certify_sum(
    problem: SumProblem,
    memory: SumMemory,
    tree: Tree,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    target: float,
    given: int,
    witness: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[int, float, float, int, int, int]:
    """One sample: (predicted, radius, upper, rival, status, boxes); the witness is written."""
    values, quick = memory.affine.values, memory.affine.quick
    for k in range(values.size):
        values[k] = sum_at(problem, memory, k, memory.affine.start)
    predicted = int(np.argmax(values)) if given < 0 else given
    witness[:] = np.nan
    lead = dismiss_sum(problem, memory, predicted, weight)
    upper, winner = first_sum_witness(problem, memory, x0, low, high, weight, target, predicted, witness)
    if given < 0 and lead <= 2.0 * problem.rounding:
        return predicted, 0.0, upper, winner, TIE, 0
    tree.counts[:] = 0
    closed = np.inf
    for k in range(values.size):
        if k != predicted:
            if quick[k] >= min(upper, target):
                closed = min(closed, quick[k])
            else:
                push(tree, plant(tree, -1, -1, 0.0, 0.0, k, quick[k], 0.0))
    closed, upper, winner, boxes, short, late = grow(
        problem, memory, tree, x0, low, high, weight, target, predicted, closed, upper, winner, witness, stop, clock
    )
    radius = min(closed, upper, target)
    if radius == np.inf:
        return predicted, radius, upper, winner, WHOLE_CUBE, boxes
    if upper - radius <= problem.tolerance * upper < np.inf:
        return predicted, radius, upper, winner, PROVEN, boxes
    return predicted, radius, upper, winner, TIME if late else (BUDGET if short else ROUNDING), boxes


@part
def grow(
    problem: SumProblem,
    memory: SumMemory,
    tree: Tree,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    target: float,
    predicted: int,
    closed: float,
    upper: float,
    winner: int,
    witness: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[float, float, int, int, bool, bool]:
    """Halve the box with the least bound until that reaches the goal: (radius, upper, winner, boxes, short, late)."""
    boxes = x0.size - x0.size
    short, late = False, False
    room = tree.parent.size - 2
    while tree.counts[1] > 0:
        goal = upper * (1.0 - SPENT * problem.tolerance) if target == np.inf else target
        least = tree.bound[tree.heap[0]]
        if least >= goal or upper < target < np.inf:
            break
        late = expired(clock, 1.0)
        short = boxes >= problem.max_boxes or tree.counts[0] >= room or stop[0]
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
            before = upper
            upper = look(problem, memory, tree, child, x0, low, high, weight, target, predicted, upper, witness)
            winner = tree.rival[box] if upper < before else winner
            if tree.bound[child] < upper:
                push(tree, child)
            else:
                closed = min(closed, tree.bound[child])
    if upper < target < np.inf:
        return 0.0, upper, winner, boxes, short, late  # decided
    if tree.counts[1] > 0:
        closed = min(closed, tree.bound[tree.heap[0]])
    return closed, upper, winner, boxes, short, late


@part
def look(
    problem: SumProblem,
    memory: SumMemory,
    tree: Tree,
    box: int,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    target: float,
    predicted: int,
    upper: float,
    witness: Floats,
) -> float:
    """Bound a box of the tree and look for a witness where its relaxation is nearest: the new `upper`."""
    moved = find_box(tree, box, low, high, memory)
    margin_of(problem, memory, predicted, tree.rival[box])
    goal = upper * (1.0 - SPENT * problem.tolerance) if target == np.inf else target
    copy(memory.affine.start if upper == np.inf else witness, x0.size, memory.centre)
    bound, price, axis, place = bound_distance(
        problem, memory, x0, weight, min(upper, target), goal, tree.bound[box], tree.price[box]
    )
    moved = keep_ends(tree, box, memory) or moved
    tree.bound[box] = max(min(bound, goal) if moved else bound, tree.bound[box])
    tree.price[box], tree.axis[box], tree.place[box] = price, axis if axis >= 0 else FINAL, place
    if tree.bound[box] >= goal:
        return upper
    for side in range(2):
        copy(memory.after if side == 0 else memory.kept, x0.size, memory.x)
        upper = back_to_boundary(problem, memory, x0, low, high, weight, upper, witness)
        upper = descend_sum(problem, memory, x0, low, high, weight, upper, witness)
    return upper


@part
def dismiss_sum(problem: SumProblem, memory: SumMemory, predicted: int, weight: Floats) -> float:
    """A proven distance to each rival, from the greatest slopes in the whole cube; returns the least lead."""
    values, quick, slope = memory.affine.values, memory.affine.quick, memory.gradient
    d = slope.size
    q = dual_exponent(problem.norm)
    lead = np.inf
    for k in range(values.size):
        quick[k] = np.inf
        if k == predicted:
            continue
        margin = values[predicted] - values[k]
        lead = min(lead, margin)
        for j in range(d):
            rise = problem.steepest[predicted, j] - problem.flattest[k, j]
            fall = problem.flattest[predicted, j] - problem.steepest[k, j]
            slope[j] = max(abs(rise), abs(fall)) / weight[j]
        room = margin - 2.0 * problem.rounding
        quick[k] = room / length(slope, q) * (1.0 - 2.0 * (d + 24) * ROUNDOFF) if room > 0.0 else 0.0
    return lead


@part
def first_sum_witness(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    target: float,
    predicted: int,
    witness: Floats,
) -> tuple[float, int]:
    """(upper, rival) from the rivals that their slopes let come nearest; (inf, -1) if none is found."""
    quick = memory.affine.quick
    upper, winner, last = np.inf, -1, -1
    for _ in range(min(FEW, quick.size - 1)):
        rival = -1  # the next after the last, in the order of bounds and numbers
        for k in range(quick.size):
            fresh = last < 0 or quick[k] > quick[last] or (quick[k] == quick[last] and k > last)
            if k != predicted and fresh and (rival < 0 or quick[k] < quick[rival]):
                rival = k
        if rival < 0:
            break
        last = rival
        if quick[rival] < upper and not upper < target < np.inf:
            margin_of(problem, memory, predicted, rival)
            copy(memory.affine.start, x0.size, memory.x)
            found = descend_sum(problem, memory, x0, low, high, weight, upper, witness)
            if found < upper:
                upper, winner = found, rival
    return upper, winner


@part
def descend_sum(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    upper: float,
    witness: Floats,
) -> float:
    """From memory.x, project x0 again and again onto the linearised margin inside its box, keeping the best witness.

    Each point is also moved along its ray from x0 to where the linearised margin vanishes.
    """
    x, flat = memory.x, memory.affine
    d = x0.size
    for _ in range(STEPS):
        value = margin_at(problem, memory, x)
        upper = record_sum(problem, memory, x0, x, value, weight, upper, witness)
        reached = distance(x, x0, weight, problem.norm, flat.vector)
        fall, slope = 0.0, value
        for j in range(d):
            flat.slope[j] = memory.gradient[j]
            fall -= memory.gradient[j] * (x[j] - x0[j])
            slope += memory.gradient[j] * (flat.start[j] - x[j])
        beyond = 4.0 * problem.rounding + 0.02 * problem.tolerance * max(abs(fall), abs(value))
        stretch = 1.0 + (value + beyond) / fall
        if 0.0 < stretch * reached < upper * (1.0 - 1e-2 * problem.tolerance):
            for j in range(d):
                flat.point[j] = min(high[j], max(low[j], x0[j] + stretch * (x[j] - x0[j])))
            there = margin_at(problem, memory, flat.point)
            upper = record_sum(problem, memory, x0, flat.point, there, weight, upper, witness)
        move(flat, weight, slope + beyond, problem.norm)
        moved = 0.0
        for j in range(d):
            new = min(high[j], max(low[j], flat.start[j] + flat.steps[j]))
            moved = max(moved, abs(new - x[j]))
            x[j] = new
        if moved <= 1e-2 * problem.tolerance * reached or moved <= 4.0 * ROUNDOFF:
            break
    return upper


@part
def record_sum(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    x: Floats,
    value: float,
    weight: Floats,
    upper: float,
    witness: Floats,
) -> float:
    """Take x as the witness if its margin is negative beyond rounding and it is the nearest so far."""
    if value < -2.0 * problem.rounding:
        reached = distance(x, x0, weight, problem.norm, memory.affine.vector)
        reached *= 1.0 + 2.0 * (x0.size + 16) * ROUNDOFF
        if reached < upper:
            copy(x, x0.size, witness)
            return reached
    return upper


@part
def back_to_boundary(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    upper: float,
    witness: Floats,
) -> float:
    """From memory.x, if it is behind the boundary, back towards the sample's box by bisection."""
    start, x = memory.affine.start, memory.affine.point
    if not margin_at(problem, memory, memory.x) < -2.0 * problem.rounding:
        return upper
    near, far = 0.0, 1.0
    for step in range(BACKWARDS):
        piece = 1.0 if step == 0 else 0.5 * (near + far)
        for j in range(x0.size):
            x[j] = min(high[j], max(low[j], start[j] + piece * (memory.x[j] - start[j])))
        value = margin_at(problem, memory, x)
        if value < -2.0 * problem.rounding:
            far = piece
            upper = record_sum(problem, memory, x0, x, value, weight, upper, witness)
        else:
            near = piece
        if far - near < 0.02 * problem.tolerance * far:
            break
    return upper
