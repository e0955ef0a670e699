"""Compiled kernels: the branch and bound that proves one sample's distance to the decision boundary.

For the predicted class a and each rival, the margin c_a - c_rival is a Bernstein polynomial. A box of the cube is
dropped when the margin is proven positive on it, or when the box is proven to hold no point of the rival nearer than
what is already known; else it is halved. Depth first: memory holds one path.
"""

from __future__ import annotations

import numpy as np

from berncert.certify.descent import first_witness, subtract, try_witness
from berncert.certify.distance import affine_bound, dual_exponent, length, nearest, quadratic_bound, support
from berncert.certify.minorant import fit, gaps
from berncert.certify.tensor import ROUNDOFF, borrowed, copy, inlined, kernel, least, narrow_first, rotate, split, value_at

PROVEN, WHOLE_CUBE, TIE, BUDGET, ROUNDING = range(5)
HALVINGS = 46  # of one axis; a box thinner than that is beyond float64


@kernel
def certify_rows(problem, memory, features, first, last, stop, predicted, radius, upper, witness, rival, status, boxes):
    """Certify the rows first..last - 1, one after the other, until done or told to stop."""
    p = borrowed(problem)
    m = borrowed(memory)
    x = borrowed(features)
    w = borrowed(witness)
    s = borrowed(stop)
    for i in range(first, last):
        predicted[i], radius[i], upper[i], rival[i], status[i], boxes[i] = certify_one(p, m, x[i], w[i], s)
        if stop[0]:
            return


@inlined
def certify_one(problem, memory, x0, witness, stop):
    """One sample: (predicted, radius, upper, rival, status, boxes); the witness is written."""
    margins = memory.margins
    for k in range(margins.size):
        margins[k] = value_at(problem.coefficients[k], problem.sizes, x0, memory.here, memory.there, memory.scratch)
    predicted = np.argmax(margins)
    top = margins[predicted]
    for k in range(margins.size):
        margins[k] = top - margins[k] if k != predicted else np.inf
    winner = np.argmin(margins)
    nearest_margin = margins[winner]

    witness[:] = np.nan
    upper, found = first_witness(problem, memory, x0, predicted, witness)
    winner = found if found >= 0 else winner
    closed = np.inf  # the least bound among the boxes dropped because of their distance
    stuck = np.inf  # ... and among those neither dropped nor halved
    boxes = np.int64(0)
    state = TIE
    if nearest_margin <= 2.0 * problem.rounding:
        stuck = 0.0
    else:
        dismiss(problem, memory, predicted, upper)
        rival = np.argmin(margins)
        while margins[rival] < np.inf:
            if enter(problem, memory, x0, predicted, rival, upper, nearest_margin):
                before = upper
                closed, stuck, upper, boxes = explore(
                    problem, memory, x0, predicted, rival, closed, stuck, upper, boxes, nearest_margin, witness, stop
                )
                winner = rival if upper < before else winner
            margins[rival] = np.inf
            rival = np.argmin(margins)
        radius = min(closed, stuck, upper)
        if radius == np.inf:
            state = WHOLE_CUBE
            winner = -1
        elif upper - radius <= problem.tolerance * upper < np.inf:
            state = PROVEN
        else:
            state = BUDGET if boxes >= problem.max_boxes else ROUNDING
    return predicted, min(closed, stuck, upper), upper, winner, state, boxes


@kernel
def dismiss(problem, memory, predicted, upper):
    """Set the margins of those rivals to inf whose slopes, anywhere in the cube, are too small to reach within `upper`."""
    flattest, steepest = problem.flattest, problem.steepest
    slope = memory.slope
    for k in range(memory.margins.size):
        for j in range(slope.size):
            rise = steepest[predicted, j] - flattest[k, j]
            fall = flattest[predicted, j] - steepest[k, j]
            slope[j] = max(abs(rise), abs(fall))
        change = upper * length(slope, dual_exponent(problem.norm)) * (1.0 + 2.0 * (slope.size + 20) * ROUNDOFF)
        if memory.margins[k] - 2.0 * problem.rounding > change:
            memory.margins[k] = np.inf


@kernel
def enter(problem, memory, x0, predicted, rival, upper, nearest_margin):
    """Put the margin on the part of the cube within `upper` onto the path; False if it is positive there anyway."""
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
        low, high = 0.0, 1.0
        if upper < 1.0:
            low = max(0.0, np.nextafter(x0[j] - upper, -1.0))
            high = min(1.0, np.nextafter(x0[j] + upper, 2.0))
        memory.centre[0, j] = 0.5 * ((high - x0[j]) + (low - x0[j]))
        memory.half[0, j] = 0.5 * ((high - x0[j]) - (low - x0[j]))
        here, there, n, error = narrow(problem, memory, here, there, n, sizes, j, low, high, error, nearest_margin)
    if least(here, n) > problem.rounding + error:
        return False
    copy(here, n, memory.path[0])
    memory.error[0] = error
    memory.bound[0] = 0.0
    return True


@kernel
def narrow(problem, memory, here, there, n, sizes, axis, low, high, error, nearest_margin):
    """Narrow an axis, which stands first, at the cost of a small part of the tolerance; then make it the last."""
    size = sizes[axis]
    rest = n // size
    if low > 0.0 or high < 1.0 or size > 2:
        allowance = (0.1 * problem.tolerance * nearest_margin - error) / (2.0 * sizes.size)
        sizes[axis], made = narrow_first(
            here, size, rest, low, high, allowance, problem.tables, there, there, memory.scratch
        )
        error += made
        here, there = there, here
    rotate(here, sizes[axis], rest, there)
    return there, here, rest * sizes[axis], error


@kernel
def explore(problem, memory, x0, predicted, rival, closed, stuck, upper, boxes, nearest_margin, witness, stop):
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
        goal = min(stuck, upper * (1.0 - problem.tolerance))
        axis = 0
        if bound < goal:
            boxes += 1
            bound, axis = bound_box(problem, memory, b, sizes, centre, half, error, bound, goal, slop)
        if bound >= goal:
            closed = min(closed, bound)
            continue
        upper = try_witness(problem, memory, x0, predicted, rival, b, sizes, centre, half, upper, witness)
        spent = boxes >= problem.max_boxes or stop[0] or height + 2 > memory.bound.size
        if spent or half[axis] < reach * 2.0**-HALVINGS or hopeless(b, problem.rounding + error):
            stuck = min(stuck, bound)
            continue
        n, error = simplify(problem, memory, height, n, error, nearest_margin)
        divide(memory, height, n, axis, error, bound)
        height += 2
    return closed, stuck, upper, boxes


@kernel
def bound_box(problem, memory, b, sizes, centre, half, error, bound, goal, slop):
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
    affine, quadratic = gaps(b, sizes, constant, slope, curvature, memory.net, memory.prefix, memory.index)
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
    bound = max(bound, affine_bound(centre, half, slope, low, z, multiplier) - slop)
    for j in range(d):
        y[j] = min(1.0, max(-1.0, (t[j] - centre[j]) / half[j]))
    if bound < goal < np.inf and multiplier > 0.0 and p > 1.0:
        low = constant + quadratic - floor - 4.0 * ROUNDOFF * size
        curved = quadratic_bound(
            centre, half, slope, curvature, low, p, t, z, multiplier, y, memory.linear, memory.matrix
        )
        bound = max(bound, curved - slop)
    return bound, axis_to_halve(curvature, half, y, quadratic)


@kernel
def axis_to_halve(curvature, half, y, gap):
    """The axis whose curvature does most harm where the relaxation is nearest."""
    widest = 0.0
    for h in half:
        widest = max(widest, h)
    axis = 0
    most = -1.0
    for j in range(half.size):
        score = 2.0 * abs(curvature[j, j]) + 0.1 * abs(gap) * half[j] / widest
        for i in range(half.size):
            if i != j:
                score += abs(curvature[i, j]) * (1.5 - abs(y[i]))
        if score > most:
            most = score
            axis = j
    return axis


@kernel
def hopeless(b, floor):
    """Whether the margin is within rounding of 0, or below, on the whole box: halving it can show nothing more."""
    for v in b:
        if v > floor:
            return False
    return True


@kernel
def simplify(problem, memory, at, n, error, nearest_margin):
    """Lower the degrees of the box at a place of the path where that is almost free: the new count and error."""
    sizes = memory.sizes[at]
    curved = False
    for size in sizes:
        curved = curved or size > 2
    if curved:
        here, there = memory.here, memory.there
        copy(memory.path[at], n, here)
        for j in range(sizes.size):
            here, there, n, error = narrow(problem, memory, here, there, n, sizes, j, 0.0, 1.0, error, nearest_margin)
        copy(here, n, memory.path[at])
    return n, error


@kernel
def divide(memory, at, n, axis, error, bound):
    """Replace the box by its halves, the one nearer to the sample on top."""
    sizes = memory.sizes[at]
    middle = memory.centre[at, axis]
    half = 0.5 * memory.half[at, axis]
    copy(memory.path[at], n, memory.margin)
    for j in range(sizes.size):
        memory.sizes[at + 1, j] = sizes[j]
        memory.centre[at + 1, j] = memory.centre[at, j]
        memory.half[at + 1, j] = memory.half[at, j]
    low, high = (at + 1, at) if middle > 0.0 else (at, at + 1)
    split(memory.margin[:n], sizes, axis, memory.path[low], memory.path[high])
    memory.centre[low, axis] = middle - half
    memory.centre[high, axis] = middle + half
    for i in range(at, at + 2):
        memory.half[i, axis] = half
        memory.error[i] = error + 2.0 * (sizes[axis] - 1) * ROUNDOFF
        memory.bound[i] = bound
