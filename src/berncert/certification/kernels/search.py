"""Compiled kernels: the branch and bound that proves one sample's distance to the decision boundary.

For the predicted class a and each rival, the margin c_a - c_rival is a Bernstein polynomial. A box of the cube is
dropped when the margin is proven positive on it, or when the box is proven to hold no point of the rival nearer than
what is already known; else it is halved. Depth first: memory holds one path.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.boxes import bound_box, divide, enter, hopeless, simplify
from berncert.certification.kernels.compiled import borrowed, kernel, part
from berncert.certification.kernels.descent import first_witness, try_witness
from berncert.certification.kernels.distance import dual_exponent, length
from berncert.certification.kernels.problem import Memory, Problem, Samples, Whole
from berncert.certification.kernels.rows import BOXES, begin_row, expired
from berncert.certification.kernels.tensor import ROUNDOFF, copy, least, value_at
from berncert.foundation.arrays import Flags, Floats, Ints

PROVEN, WHOLE_CUBE, TIE, BUDGET, ROUNDING, TIME = range(6)
COARSENESS = (0.0, 0.1, 0.5)  # should the budget end a search, what is left of it goes into coarser ones,
BUDGET_SHARES = (0.6, 0.8, 1.0)  # as a depth-first search cut short says little
LOWERING = 0.1  # of the tolerance may be spent on lowering degrees
HALVINGS = 46  # of one axis; a box thinner than that is beyond float64


@kernel
def certify_rows(
    problem: Problem,
    memory: Memory,
    whole: Whole,
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
    """Certify the rows first..last - 1, one after the other, until done or stopped.

    predicted: the class whose hold is to be proven, or -1 for the one that the sample is given.
    """
    p = borrowed(problem)
    m = borrowed(memory)
    a = borrowed(samples)
    w = borrowed(witness)
    s = borrowed(stop)
    c = borrowed(clock)
    for i in range(first, last):
        begin_row(p, m, a, whole, i, c)
        predicted[i], radius[i], upper[i], rival[i], status[i], boxes[i] = certify_one(
            p, m, a.features[i], a.target[i], predicted[i], w[i], s, c
        )
        if stop[0]:
            return


@part
def certify_one(
    problem: Problem,
    memory: Memory,
    x0: Floats,
    target: float,
    given: int,
    witness: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[int, float, float, int, int, int]:
    """One sample: (predicted, radius, upper, rival, status, boxes); the witness is written."""
    margins = memory.margins
    for k in range(margins.size):
        margins[k] = value_at(
            problem.coefficients[k], problem.sizes, memory.start, memory.here, memory.there, memory.scratch
        )
    predicted = int(np.argmax(margins)) if given < 0 else given
    top = margins[predicted]
    for k in range(margins.size):
        margins[k] = top - margins[k] if k != predicted else np.inf
    nearest_margin = least(margins, margins.size)

    witness[:] = np.nan
    upper, winner = first_witness(problem, memory, x0, target, predicted, witness)
    if given < 0 and nearest_margin <= 2.0 * problem.rounding:
        return predicted, 0.0, upper, winner, TIE, 0
    safe = dismiss(problem, memory, predicted, min(upper, target))
    radius = 0.0
    boxes = margins.size - margins.size  # a literal 0 would be compiled for as a type of its own
    spent = True
    short = False
    late = False
    for stage in range(len(COARSENESS)):
        tolerance = max(problem.tolerance, COARSENESS[stage]) if target == np.inf else problem.tolerance
        unproven = radius < (1.0 - tolerance) * upper if target == np.inf else stage == 0 and target <= upper
        if spent and unproven:
            share = BUDGET_SHARES[stage] if target == np.inf else 1.0
            limit = share * problem.max_boxes
            bound, upper, winner, boxes = prove(
                problem, memory, x0, target, predicted, nearest_margin, tolerance, limit, share, upper, winner, boxes,
                witness, stop, clock,
            )  # fmt: skip
            radius = max(radius, bound)
            late = late or expired(clock, share)
            spent = boxes >= limit or expired(clock, share)
            short = short or spent
    if late:
        radius = max(radius, min(safe, upper, target))
    if radius == np.inf:
        return predicted, radius, upper, winner, WHOLE_CUBE, boxes
    if upper - radius <= problem.tolerance * upper < np.inf:
        return predicted, radius, upper, winner, PROVEN, boxes
    return predicted, radius, upper, winner, TIME if late else (BUDGET if short else ROUNDING), boxes


@part
def prove(
    problem: Problem,
    memory: Memory,
    x0: Floats,
    target: float,
    predicted: int,
    nearest_margin: float,
    tolerance: float,
    limit: float,
    share: float,
    upper: float,
    winner: int,
    boxes: int,
    witness: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[float, float, int, int]:
    """Search the rivals one after the other: (radius, upper, the rival at the witness, boxes)."""
    closed = np.inf  # the least bound among the boxes dropped because of their distance
    stuck = np.inf  # ... and among those neither dropped nor halved
    left = memory.left
    copy(memory.margins, left.size, left)
    rival = int(np.argmin(left))
    while left[rival] < np.inf:
        before = upper
        for spare in (LOWERING * tolerance * max(nearest_margin, 0.0), 0.0):
            far, near = closed, stuck
            if expired(clock, share):
                stuck = 0.0  # nothing was looked at
            elif enter(problem, memory, x0, predicted, rival, min(upper, target), spare):
                closed, stuck, upper, boxes = explore(
                    problem, memory, x0, target, predicted, rival, tolerance, limit, share, closed, stuck, upper, boxes,
                    spare, witness, stop, clock,
                )  # fmt: skip
            if stuck == near or boxes >= limit or spare == 0.0 or expired(clock, share):
                break
            closed, stuck = far, near  # the lowering of degrees may hide the boundary: once more without
        winner = rival if upper < before else winner
        if upper < target < np.inf:
            return 0.0, upper, winner, boxes  # decided; what the other rivals do was not looked at
        left[rival] = np.inf
        rival = int(np.argmin(left))
    return min(closed, stuck, upper, target), upper, winner, boxes


@part
def dismiss(problem: Problem, memory: Memory, predicted: int, upper: float) -> float:
    """Set to inf the margins of rivals whose slopes in the whole cube are too small to close them within `upper`.

    Returns a radius that the slopes prove for all rivals, 0 if they prove none.
    """
    flattest, steepest = problem.flattest, problem.steepest
    slope = memory.slope
    safe = np.inf
    for k in range(memory.margins.size):
        for j in range(slope.size):
            rise = steepest[predicted, j] - flattest[k, j]
            fall = flattest[predicted, j] - steepest[k, j]
            slope[j] = max(abs(rise), abs(fall)) / memory.weight[j]
        steepness = length(slope, dual_exponent(problem.norm))
        change = upper * steepness * (1.0 + 2.0 * (slope.size + 20) * ROUNDOFF)
        if k != predicted:
            room = max(0.0, memory.margins[k] - 2.0 * problem.rounding)
            safe = min(safe, room / steepness * (1.0 - 2.0 * (slope.size + 24) * ROUNDOFF))
        if memory.margins[k] - 2.0 * problem.rounding > change:
            memory.margins[k] = np.inf
    return safe if safe > 0.0 else 0.0


@part
def explore(
    problem: Problem,
    memory: Memory,
    x0: Floats,
    target: float,
    predicted: int,
    rival: int,
    tolerance: float,
    limit: float,
    share: float,
    closed: float,
    stuck: float,
    upper: float,
    boxes: int,
    spare: float,
    witness: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[float, float, float, int]:
    """Search the box on the path for points of the rival nearer than `upper`: the bounds, brought up to date."""
    d = x0.size
    reach = 0.0
    for j in range(d):
        reach = max(reach, abs(memory.centre[0, j]) + memory.half[0, j])
    slop = 2.0 * d * (HALVINGS + 8) * ROUNDOFF * reach  # what rounding of centres and halves can do to a distance
    height = 1
    while height > 0:
        height -= 1
        sizes, centre, half = memory.sizes[height], memory.centre[height], memory.half[height]
        error = memory.error[height]
        n = 1
        for j in range(d):
            n *= sizes[j]
        b = memory.path[height, :n]
        bound = memory.bound[height]
        goal = min(stuck, upper) * (1.0 - tolerance) if target == np.inf else target
        axis = 0
        if bound < goal and expired(clock, share):
            stuck = min(stuck, bound)
            continue
        if bound < goal:
            boxes += 1
            clock[BOXES] = boxes
            bound, axis = bound_box(problem, memory, b, sizes, centre, half, error, bound, goal, slop)
        if bound >= goal:
            closed = min(closed, bound)
            continue
        upper = try_witness(problem, memory, x0, predicted, rival, b, sizes, centre, half, upper, witness)
        if upper < target < np.inf:
            return closed, 0.0, upper, boxes
        spent = boxes >= limit or stop[0] or height + 2 > memory.bound.size
        if spent or half[axis] < reach * 2.0**-HALVINGS or hopeless(b, problem.rounding + error):
            stuck = min(stuck, bound)
            if spare > 0.0 and not spent:
                return closed, stuck, upper, boxes  # to be searched again without lowering
            continue
        n, error = simplify(problem, memory, height, n, error, spare)
        nearer_low = memory.centre[height, axis] > 0.0  # centres are relative to the sample
        divide(memory, height, n, axis, nearer_low, error, bound)
        height += 2
    return closed, stuck, upper, boxes


@kernel
def values_at(problem: Problem, memory: Memory, x: Floats) -> Floats:
    """`all_values`, for Python; valid until the memory is used again."""
    all_values(problem, memory, x)
    return memory.margins


@part
def all_values(problem: Problem, memory: Memory, x: Floats) -> None:
    """The polynomials of all classes at a point of the cube, into memory.margins."""
    for k in range(memory.margins.size):
        memory.margins[k] = value_at(
            problem.coefficients[k], problem.sizes, x, memory.here, memory.there, memory.scratch
        )
