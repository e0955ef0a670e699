"""Compiled kernels: the branch and bound that proves the distance to the nearest point that a sum gives a wanted class.

Such a point has g_r = c_r - c_wanted <= 0 for all other classes r at once, and so has any mean of them: each bounds the
distance in a box, and the mean that matters is looked for among those that the relaxation's nearest point violates.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.affine import move
from berncert.certification.kernels.compiled import borrowed, kernel, part
from berncert.certification.kernels.distance import distance
from berncert.certification.kernels.problem import Samples
from berncert.certification.kernels.rows import BOXES, expired
from berncert.certification.kernels.search import BUDGET, PROVEN, ROUNDING, TIME, WHOLE_CUBE
from berncert.certification.kernels.sum_bounds import bound_distance
from berncert.certification.kernels.sum_problem import SumMemory, SumProblem
from berncert.certification.kernels.sum_search import BACKWARDS, SPENT, begin_sum
from berncert.certification.kernels.sum_tree import FINAL, ROOT, Tree, find_box, halve, keep_ends, plant, pop, push
from berncert.certification.kernels.sums import margin_at, margin_of, mix_classes, sum_at
from berncert.certification.kernels.tensor import ROUNDOFF, copy
from berncert.foundation.arrays import Flags, Floats, Ints

SEEKING = 24  # steps of a search for a witness
MIXES = 4  # means of classes tried for one box


@kernel
def wanted_sum_rows(
    problem: SumProblem,
    memory: SumMemory,
    tree: Tree,
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

    A status WHOLE_CUBE means that the class is given nowhere in the box.
    """
    p = borrowed(problem)
    m = borrowed(memory)
    t = borrowed(tree)
    a = borrowed(samples)
    w = borrowed(witness)
    s = borrowed(stop)
    c = borrowed(clock)
    for i in range(first, last):
        begin_sum(m, a, i, c)
        radius[i], upper[i], status[i], boxes[i] = nearest_wanted_sum(
            p, m, t, a.features[i], a.low[i], a.high[i], a.weight[i], wanted[i], w[i], s, c
        )
        if stop[0]:
            return


@part
def nearest_wanted_sum(
    problem: SumProblem,
    memory: SumMemory,
    tree: Tree,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    wanted: int,
    witness: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[float, float, int, int]:
    """One sample: (radius, upper, status, boxes); the witness is written."""
    for j in range(x0.size):
        witness[j] = np.nan
        memory.x[j] = memory.affine.start[j]
    upper = seek_sum(problem, memory, x0, low, high, weight, wanted, np.inf, witness)
    tree.counts[:] = 0
    push(tree, plant(tree, -1, -1, 0.0, 0.0, -1, 0.0, 0.0))
    closed = np.inf
    boxes = x0.size - x0.size
    short, late = False, False
    while tree.counts[1] > 0:
        goal = upper * (1.0 - SPENT * problem.tolerance)
        least = tree.bound[tree.heap[0]]
        if least >= goal:
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
            upper = look_wanted(problem, memory, tree, child, x0, low, high, weight, wanted, upper, witness)
            if tree.bound[child] < upper:
                push(tree, child)
            else:
                closed = min(closed, tree.bound[child])
    if tree.counts[1] > 0:
        closed = min(closed, tree.bound[tree.heap[0]])
    radius = min(closed, upper)
    if radius == np.inf:
        return radius, upper, WHOLE_CUBE, boxes
    if upper - radius <= problem.tolerance * upper < np.inf:
        return radius, upper, PROVEN, boxes
    return radius, upper, TIME if late else (BUDGET if short else ROUNDING), boxes


@part
def look_wanted(
    problem: SumProblem,
    memory: SumMemory,
    tree: Tree,
    box: int,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    wanted: int,
    upper: float,
    witness: Floats,
) -> float:
    """Bound a box by means of classes, each with more of the one that is strongest where the last was nearest."""
    moved = find_box(tree, box, low, high, memory)
    goal = upper * (1.0 - SPENT * problem.tolerance)
    best, price, axis, place = tree.bound[box], tree.price[box], FINAL, 0.0
    for j in range(x0.size):
        nearest = memory.affine.start[j] if upper == np.inf else witness[j]
        memory.centre[j] = min(memory.box_high[j], max(memory.box_low[j], nearest))
    rival, _ = strongest_sum(problem, memory, memory.centre, wanted)
    memory.mix[:] = 0.0
    memory.mix[rival] = 1.0
    for turn in range(MIXES):
        memory.mix[wanted] = -1.0
        mix_classes(problem, memory)
        copy(memory.affine.start if upper == np.inf else witness, x0.size, memory.centre)
        bound, price, found, where = bound_distance(problem, memory, x0, weight, upper, goal, tree.bound[box], price)
        if bound > best or axis == FINAL:
            best, axis, place = max(best, bound), found if found >= 0 else axis, where
        if best >= goal or turn + 1 == MIXES:
            break
        rival, lead = strongest_sum(problem, memory, memory.kept, wanted)
        if lead >= 0.0 or memory.mix[rival] > 0.9:
            break
        for k in range(memory.mix.size):
            memory.mix[k] *= 0.5
        memory.mix[rival] += 0.5
    if keep_ends(tree, box, memory) or moved:
        best = min(best, goal)
    tree.bound[box], tree.price[box], tree.axis[box], tree.place[box] = best, price, axis, place
    if best >= goal:
        return upper
    copy(memory.after, x0.size, memory.x)
    return seek_sum(problem, memory, x0, low, high, weight, wanted, upper, witness)


@part
def strongest_sum(problem: SumProblem, memory: SumMemory, x: Floats, wanted: int) -> tuple[int, float]:
    """The other class that is strongest at x, and by how much the wanted one leads it."""
    rival, most = -1, -np.inf
    for k in range(problem.bias.size):
        if k != wanted:
            value = sum_at(problem, memory, k, x)
            if rival < 0 or value > most:
                rival, most = k, value
    return rival, sum_at(problem, memory, wanted, x) - most


@part
def seek_sum(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    wanted: int,
    upper: float,
    witness: Floats,
) -> float:
    """From memory.x, step onto the tangent of the most violated g_r until none is; then back towards the sample."""
    x = memory.x
    for _ in range(SEEKING):
        rival, lead = strongest_sum(problem, memory, x, wanted)
        if lead > 2.0 * problem.rounding:
            return go_back_sum(problem, memory, x0, low, high, weight, wanted, upper, witness)
        margin_of(problem, memory, rival, wanted)
        value = margin_at(problem, memory, x)
        aim = value + 4.0 * problem.rounding + 1e-3 * abs(value)
        steepness = 0.0
        for j in range(x.size):
            free = memory.gradient[j] if low[j] < high[j] else 0.0
            steepness += (free / weight[j]) ** 2
        if not steepness > 0.0:
            break
        moved = 0.0
        for j in range(x.size):
            new = min(high[j], max(low[j], x[j] - aim * memory.gradient[j] / weight[j] ** 2 / steepness))
            moved = max(moved, abs(new - x[j]))
            x[j] = new
        if not moved > 4.0 * ROUNDOFF:
            break
    return upper


@part
def go_back_sum(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    wanted: int,
    upper: float,
    witness: Floats,
) -> float:
    """From memory.x, of the wanted class, back towards the sample; then along the strongest class's boundary.

    Each point on the boundary is improved by the nearest point of the tangent there.
    """
    flat, x, z = memory.affine, memory.x, memory.affine.point
    for _ in range(4):
        near, far = 0.0, 1.0
        before = upper
        for step in range(BACKWARDS):
            piece = 1.0 if step == 0 else 0.5 * (near + far)
            for j in range(x0.size):
                z[j] = min(high[j], max(low[j], flat.start[j] + piece * (x[j] - flat.start[j])))
            rival, lead = strongest_sum(problem, memory, z, wanted)
            if lead > 2.0 * problem.rounding:
                far = piece
                reached = distance(z, x0, weight, problem.norm, flat.vector) * (1.0 + 2.0 * (x0.size + 16) * ROUNDOFF)
                if reached < upper:
                    upper = reached
                    copy(z, x0.size, witness)
            else:
                near = piece
            if far - near < 0.02 * problem.tolerance * far:
                break
        if (near == 0.0 and far == 1.0) or not upper < before * (1.0 - 0.1 * problem.tolerance):
            break
        copy(witness, x0.size, x)
        rival, lead = strongest_sum(problem, memory, x, wanted)
        margin_of(problem, memory, rival, wanted)
        slope = margin_at(problem, memory, x) * (1.0 - 0.1 * problem.tolerance)
        for j in range(x0.size):
            flat.slope[j] = memory.gradient[j]
            slope += memory.gradient[j] * (flat.start[j] - x[j])
        move(flat, weight, slope + 4.0 * problem.rounding + 0.02 * problem.tolerance * abs(slope), problem.norm)
        for j in range(x0.size):
            x[j] = min(high[j], max(low[j], flat.start[j] + flat.steps[j]))
    return upper
