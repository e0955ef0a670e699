"""Compiled kernels: the reason for which a box of a recorded proof needs no more halving, and the hints that show it.

Nothing here has to be sound: whoever reads the file checks every reason in exact arithmetic. It only has to be right
often enough, so hints are rounded to float32 before they are tried, and a reason is taken only with a little room to
spare.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berncert.certification.kernels.boxes import axis_to_halve
from berncert.certification.kernels.compiled import kernel, part
from berncert.certification.kernels.distance import _descend, dual_exponent, length, nearest, support
from berncert.certification.kernels.minorant import fit, gaps
from berncert.certification.kernels.tensor import copy, least
from berncert.foundation.arrays import Floats, Ints

POSITIVE, FAR, PLANE, AFFINE, QUADRATIC = 251, 252, 253, 254, 255
"""Tags of leaves; a smaller tag is the axis along which a box is halved."""
ROOM = 2.0**-34
"""The relative room of a reason, more than float64 loses here."""
FAILING = 0.01
"""Where the squared bound of a box is short of what is needed by more than this part, one of its halves is, too."""
MANY = 2048
"""Coefficients of a box, from which on they are looked at in larger blocks."""
DEPTH = 120
"""Halvings on the way to a leaf, at the most."""


class Claim(NamedTuple):
    """What is to be proven of one row: within the radius, no rival comes nearer than `floor` to the predicted class."""

    x0: Floats
    weight: Floats
    low: Floats
    high: Floats
    """The first box; it contains all points that count."""
    predicted: int
    radius: float
    norm: float
    floor: float


class Desk(NamedTuple):
    """Room to work in, for heads with these degrees."""

    heads: Floats
    """(N K): all classes on the first box, side by side."""
    spare: Floats
    place: Ints
    """(K,): which of the classes on the first box a class is; -1 where it is far below the predicted one."""
    matrices: Floats
    path: Floats
    centre: Floats
    half: Floats
    here: Floats
    there: Floats
    scratch: Floats
    net: Floats
    prefix: Floats
    odometer: Ints
    plan: Ints
    """(DEPTH + 1,): the axis along which to halve a box on the path without a look at it, or -1."""
    curvature: Floats
    matrix: Floats
    slope: Floats
    linear: Floats
    rates: Floats
    t: Floats
    y: Floats
    z: Floats


def new_desk(classes: int, sizes: Ints) -> Desk:
    """Memory for one thread."""
    n, d, widest = int(np.prod(sizes)), sizes.size, int(sizes.max())
    line = {name: np.zeros(d) for name in ("slope", "linear", "rates", "t", "y", "z")}
    return Desk(
        heads=np.empty(n * classes), spare=np.empty(n * classes), place=np.empty(classes, np.int64),
        matrices=np.zeros((d, widest, widest)), path=np.empty((DEPTH + 1, n)), centre=np.empty((DEPTH + 1, d)),
        half=np.empty((DEPTH + 1, d)), here=np.empty(2 * n + 16), there=np.empty(2 * n + 16),
        scratch=np.empty((widest + 3, widest)), net=np.empty((d + 5, max(128, widest))),
        prefix=np.empty((d + 1, d + 2)), odometer=np.empty(d, np.int64), plan=np.empty(DEPTH + 1, np.int64),
        curvature=np.zeros((d, d)), matrix=np.zeros((d, d)), **line,
    )  # fmt: skip


@part
def reason(sizes: Ints, claim: Claim, desk: Desk, at: int, hints: Any) -> tuple[int, int]:
    """Why the box needs no more halving, and the number of hints written; or the axis along which to halve it."""
    d, r, p = sizes.size, claim.radius, claim.norm
    block = 64 if desk.path.shape[1] < MANY else 128
    b, centre, half = desk.path[at], desk.centre[at], desk.half[at]
    slope, curvature, t, z = desk.slope, desk.curvature, desk.t, desk.z
    if least(b, b.size) > claim.floor * (1.0 + ROOM) + ROOM * ROOM:
        return POSITIVE, 0
    for j in range(d):
        t[j] = max(0.0, abs(centre[j]) - half[j])
    if length(t, p) > r * (1.0 + ROOM):
        return FAR, 0
    if desk.plan[at] >= 0:
        axis, desk.plan[at], desk.plan[at + 1] = desk.plan[at], -1, -1
        return int(axis), 0
    constant = fit(b, sizes, slope, curvature, desk.here, desk.there, desk.scratch)
    shorten(slope)
    for j in range(d):
        shorten(curvature[j])
    affine, quadratic = gaps(b, sizes, constant, slope, curvature, desk.net, desk.prefix, desk.odometer, block)
    low = constant + affine - claim.floor
    bottom = low
    for j in range(d):
        bottom -= abs(slope[j])
    if bottom > ROOM * (abs(low) + claim.floor) + ROOM * ROOM:
        return PLANE, append(hints, slope, 0)
    if r == np.inf:
        return divided(desk, at, half, claim.weight, quadratic, 0.0), 0
    nearest(centre, half, slope, low, p, desk.rates, t)
    multiplier = support(t, centre, half, slope, p, z)
    bound = plane_bound(centre, half, slope, low, p, z, multiplier)
    if bound > r * (1.0 + ROOM):
        written = append(hints, slope, 0)
        written = append(hints, z, written)
        hints[written] = multiplier
        return AFFINE, written + 1
    square = max(bound, 0.0) ** 2
    for j in range(d):
        desk.y[j] = min(1.0, max(-1.0, (t[j] - centre[j]) / half[j]))
    if p >= 2.0 and multiplier > 0.0:
        low = constant + quadratic - claim.floor
        curved = curved_bound(centre, half, slope, low, multiplier, p, desk)
        if curved > r * r * (1.0 + ROOM):
            return QUADRATIC, append_quadratic(hints, desk, multiplier, p)
        square = max(square, curved)
    return divided(desk, at, half, claim.weight, quadratic, 1.0 - square / (r * r)), 0


@part
def divided(desk: Desk, at: int, half: Floats, weight: Floats, gap: float, short: float) -> int:
    """The axis along which to halve this box, and plans for its halves, whose places are at + 1 and at.

    Where the bound is short by far, the half with the point where it is attained will most likely fall short, too: it
    is halved without a look at it, along the axis that would be chosen if the curvature were the same everywhere.
    """
    y, curvature, width = desk.y, desk.curvature, desk.linear
    axis = axis_to_halve(curvature, half, weight, y, gap)
    near, other = (at, at + 1) if y[axis] > 0.0 else (at + 1, at)
    desk.plan[near] = desk.plan[other] = -1
    if short > FAILING:
        copy(half, half.size, width)
        width[axis] *= 0.5
        y[axis] = 2.0 * y[axis] - np.copysign(1.0, y[axis])
        for i in range(half.size):
            curvature[i, axis] *= 0.5
            curvature[axis, i] *= 0.5
        desk.plan[near] = axis_to_halve(curvature, width, weight, y, 0.5 * gap)
    return axis


@kernel
def affine_leaf(slope: Floats, bias: float, claim: Claim, hints: Any) -> tuple[int, int]:
    """The reason of the first box for the affine margin bias + slope . x, and the number of hints; 0 if it has none."""
    d, r, p = slope.size, claim.radius, claim.norm
    centre, half, along = np.empty(d), np.empty(d), np.empty(d)
    rates, t, z = np.empty(d), np.empty(d), np.empty(d)
    middle, least, size = bias, 0.0, abs(bias)
    for j in range(d):
        mean, width = 0.5 * (claim.low[j] + claim.high[j]), 0.5 * (claim.high[j] - claim.low[j])
        centre[j], half[j], along[j] = claim.weight[j] * (mean - claim.x0[j]), claim.weight[j] * width, slope[j] * width
        middle += slope[j] * mean
        size += abs(slope[j])
        least -= abs(along[j])
    if middle + least > claim.floor * (1.0 + ROOM) + d * size * ROOM * ROOM:
        return POSITIVE, 0
    for j in range(d):
        t[j] = max(0.0, abs(centre[j]) - half[j])
    if length(t, p) > r * (1.0 + ROOM):
        return FAR, 0
    gap = middle - claim.floor
    nearest(centre, half, along, gap, p, rates, t)
    multiplier = support(t, centre, half, along, p, z)
    if plane_bound(centre, half, along, gap, p, z, multiplier) > r * (1.0 + ROOM):
        written = append(hints, z, 0)
        hints[written] = multiplier
        return AFFINE, written + 1
    return 0, 0


@part
def shorten(values: Floats) -> None:
    """Round to float32, as hints are written."""
    for j in range(values.size):
        values[j] = np.float64(np.float32(values[j]))


@part
def append(hints: Any, values: Floats, at: int) -> int:
    """Write the values from this place on, and return the next place."""
    for j in range(values.size):
        hints[at + j] = values[j]
    return at + values.size


@part
def plane_bound(
    centre: Floats, half: Floats, slope: Floats, low: float, p: float, z: Floats, multiplier: float
) -> float:
    """What the affine reason proves of the distance, with z and the multiplier as they are written."""
    shorten(z)
    factor = np.float64(np.float32(multiplier))
    dual = length(z, dual_exponent(p))
    total = factor * low
    for j in range(z.size):
        total += z[j] * centre[j] - abs(z[j] * half[j] + factor * slope[j])
    return total / dual if dual > 0.0 else 0.0


@part
def curved_bound(
    centre: Floats, half: Floats, slope: Floats, low: float, multiplier: float, p: float, desk: Desk
) -> float:
    """What the quadratic reason proves of the squared distance, with the hints as they are written.

    desk.rates are left as the weights of the squares, desk.y as the point of the tangent.
    """
    d = centre.size
    t, y, weights, matrix, linear = desk.t, desk.y, desk.rates, desk.matrix, desk.linear
    r = length(t, p)
    factor = np.float64(np.float32(2.0 * r * multiplier))
    safe = 1.0 - 2.0**-20 if p > 2.0 else 1.0  # room for the rounding of the weights
    for j in range(d):
        weights[j] = 1.0 if p == 2.0 else (abs(desk.z[j]) if p == np.inf else (abs(t[j]) / r) ** (p - 2.0))
        weights[j] *= safe
        y[j] = min(1.0, max(-1.0, (t[j] - centre[j]) / half[j]))
    shorten(weights)
    total = factor * low
    for j in range(d):
        total += weights[j] * centre[j] * centre[j]
        linear[j] = 2.0 * weights[j] * centre[j] * half[j] + factor * slope[j]
        matrix[j, j] = weights[j] * half[j] * half[j] + factor * desk.curvature[j, j]
        for i in range(j):
            matrix[i, j] = matrix[j, i] = 0.5 * factor * desk.curvature[i, j]
    for j in range(d):
        others = 0.0
        for i in range(d):
            others += abs(matrix[i, j]) if i != j else 0.0
        if matrix[j, j] < others:
            total -= others - matrix[j, j]
            matrix[j, j] = others
    _descend(matrix, linear, y)
    shorten(y)
    for j in range(d):
        along = 0.0
        for i in range(d):
            along += matrix[i, j] * y[i]
        total += y[j] * (linear[j] + along)
        g = linear[j] + 2.0 * along
        total -= g * (1.0 + y[j]) if g > 0.0 else -g * (1.0 - y[j])
    return total


@part
def append_quadratic(hints: Any, desk: Desk, multiplier: float, p: float) -> int:
    """Write slope, curvature (i <= j), multiplier, the tangent's point, and for p > 2 the weights of the squares."""
    at = append(hints, desk.slope, 0)
    d = desk.slope.size
    for j in range(d):
        for i in range(j + 1):
            hints[at] = desk.curvature[i, j]
            at += 1
    hints[at] = 2.0 * length(desk.t, p) * multiplier
    at = append(hints, desk.y, at + 1)
    return append(hints, desk.rates, at) if p > 2.0 else at
