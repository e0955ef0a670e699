"""Compiled kernels: the proof of one radius, written down as a tree of boxes with a reason for each leaf.

The radius is known already, so this search is simpler than `search.py`: it halves boxes until each has a reason, and
writes down tags and hints as docs/proof-format.md describes. Nothing here has to be sound: whoever reads the file
checks every reason in exact arithmetic. It only has to be right often enough, so hints are rounded to float32 before
they are tried, and a reason is taken only with a little room to spare.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berncert.certification.kernels.boxes import axis_to_halve
from berncert.certification.kernels.compiled import kernel, part
from berncert.certification.kernels.distance import _descend, dual_exponent, length, nearest, support
from berncert.certification.kernels.minorant import fit, gaps
from berncert.certification.kernels.tensor import copy, least, split
from berncert.foundation.arrays import Floats, Ints

POSITIVE, FAR, PLANE, AFFINE, QUADRATIC = 251, 252, 253, 254, 255
"""Tags of leaves; a smaller tag is the axis along which a box is halved."""
ROOM = 2.0**-34
"""The relative room of a reason, more than float64 loses here."""
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
    """(K, N): all classes on the first box."""
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
    curvature: Floats
    matrix: Floats
    slope: Floats
    linear: Floats
    rates: Floats
    t: Floats
    y: Floats
    z: Floats
    ones: Floats


def new_desk(classes: int, sizes: Ints) -> Desk:
    """Memory for one thread."""
    n, d, widest = int(np.prod(sizes)), sizes.size, int(sizes.max())
    line = {name: np.zeros(d) for name in ("slope", "linear", "rates", "t", "y", "z")}
    return Desk(
        heads=np.empty((classes, n)), matrices=np.zeros((d, widest, widest)), path=np.empty((DEPTH + 1, n)),
        centre=np.empty((DEPTH + 1, d)), half=np.empty((DEPTH + 1, d)), here=np.empty(2 * n + 16),
        there=np.empty(2 * n + 16), scratch=np.empty((widest + 3, widest)), net=np.empty((d + 5, max(64, widest))),
        prefix=np.empty((d + 1, d + 2)), odometer=np.empty(d, np.int64), curvature=np.zeros((d, d)),
        matrix=np.zeros((d, d)), ones=np.ones(d), **line,
    )  # fmt: skip


@kernel
def record_row(
    coefficients: Floats, sizes: Ints, claim: Claim, desk: Desk, tags: Any, hints: Any, most: int
) -> tuple[int, int]:
    """Write the trees of all rivals, in the order of the classes: the numbers of tags and of hints.

    The first is -1 where no proof was found with so many tags at the most, -2 where the arrays are too short for them.
    """
    restrictions(sizes, claim.low, claim.high, desk.matrices)
    for k in range(len(coefficients)):
        on_box(coefficients[k], sizes, desk.matrices, desk, desk.heads[k])
    used = hinted = 0
    for k in range(len(coefficients)):
        if k != claim.predicted:
            for i in range(desk.path.shape[1]):
                desk.path[0, i] = desk.heads[claim.predicted, i] - desk.heads[k, i]
            used, hinted = record_rival(sizes, claim, desk, tags, hints, used, hinted, most)
            if used < 0:
                return used, hinted
    return used, hinted


@part
def restrictions(sizes: Ints, low: Floats, high: Floats, out: Floats) -> None:
    """For each axis the matrix from coefficients on [0, 1] to those on [low, high], (d, n + 1, n + 1).

    Coefficient k is the blossom of the line at n - k lows and k highs, which is linear in the coefficients.
    """
    for j in range(sizes.size):
        size = sizes[j]
        for k in range(size):
            line = out[j, k]
            line[:] = 0.0
            line[0] = 1.0
            for step in range(1, size):
                x = high[j] if step <= k else low[j]
                for m in range(step, 0, -1):
                    line[m] = (1.0 - x) * line[m] + x * line[m - 1]
                line[0] *= 1.0 - x


@part
def on_box(b: Floats, sizes: Ints, matrices: Floats, desk: Desk, out: Floats) -> None:
    """The coefficients on a box inside the cube: each axis by its matrix."""
    n = b.size
    copy(b, n, desk.here)
    here, there = desk.here, desk.there
    for j in range(sizes.size):
        size = sizes[j]
        rest = n // size
        for i in range(rest):
            for k in range(size):
                total = 0.0
                for m in range(size):
                    total += matrices[j, k, m] * here[m * rest + i]
                there[i * size + k] = total  # this axis becomes the last
        here, there = there, here
    copy(here, n, out)


@part
def record_rival(
    sizes: Ints, claim: Claim, desk: Desk, tags: Any, hints: Any, used: int, hinted: int, most: int
) -> tuple[int, int]:
    """Append the tree of one rival, whose margin on the first box stands first on the path."""
    d = sizes.size
    for j in range(d):
        desk.centre[0, j] = claim.weight[j] * (0.5 * (claim.low[j] + claim.high[j]) - claim.x0[j])
        desk.half[0, j] = claim.weight[j] * (0.5 * (claim.high[j] - claim.low[j]))
    height = 1
    while height > 0:
        height -= 1
        if used >= most or height + 2 > DEPTH:
            return -1, hinted
        if used >= tags.size or hinted + 4 * d + d * d + 8 > hints.size:
            return -2, hinted
        tag, written = reason(sizes, claim, desk, height, hints[hinted:])
        tags[used] = tag
        used += 1
        hinted += written
        if tag < POSITIVE:
            halve(sizes, desk, height, tag)
            height += 2
    return used, hinted


@part
def halve(sizes: Ints, desk: Desk, at: int, axis: int) -> None:
    """Replace the box by its halves: the lower one on top, which is looked at first."""
    copy(desk.path[at], desk.path.shape[1], desk.here)
    split(desk.here[: desk.path.shape[1]], sizes, axis, desk.path[at + 1], desk.path[at])
    for j in range(sizes.size):
        desk.centre[at + 1, j] = desk.centre[at, j]
        desk.half[at + 1, j] = desk.half[at, j]
    half = 0.5 * desk.half[at, axis]
    desk.centre[at + 1, axis] -= half
    desk.centre[at, axis] += half
    desk.half[at, axis] = desk.half[at + 1, axis] = half


@part
def reason(sizes: Ints, claim: Claim, desk: Desk, at: int, hints: Any) -> tuple[int, int]:
    """Why the box needs no more halving, and the number of hints written; or the axis along which to halve it."""
    d, r, p = sizes.size, claim.radius, claim.norm
    b, centre, half = desk.path[at], desk.centre[at], desk.half[at]
    slope, curvature, t, z = desk.slope, desk.curvature, desk.t, desk.z
    if least(b, b.size) > claim.floor * (1.0 + ROOM) + ROOM * ROOM:
        return POSITIVE, 0
    for j in range(d):
        t[j] = max(0.0, abs(centre[j]) - half[j])
    if length(t, p) > r * (1.0 + ROOM):
        return FAR, 0
    constant = fit(b, sizes, slope, curvature, desk.here, desk.there, desk.scratch)
    shorten(slope)
    for j in range(d):
        shorten(curvature[j])
    affine, quadratic = gaps(b, sizes, constant, slope, curvature, desk.net, desk.prefix, desk.odometer)
    low = constant + affine - claim.floor
    bottom = low
    for j in range(d):
        bottom -= abs(slope[j])
    if bottom > ROOM * (abs(low) + claim.floor) + ROOM * ROOM:
        return PLANE, append(hints, slope, 0)
    if r == np.inf:
        return axis_to_halve(curvature, half, claim.weight, desk.y, quadratic), 0
    nearest(centre, half, slope, low, p, desk.rates, t)
    multiplier = support(t, centre, half, slope, p, z)
    if plane_bound(centre, half, slope, low, p, z, multiplier) > r * (1.0 + ROOM):
        written = append(hints, slope, 0)
        written = append(hints, z, written)
        hints[written] = multiplier
        return AFFINE, written + 1
    if p >= 2.0 and multiplier > 0.0:
        low = constant + quadratic - claim.floor
        if curved_bound(centre, half, slope, low, multiplier, p, desk) > r * r * (1.0 + ROOM):
            return QUADRATIC, append_quadratic(hints, desk, multiplier, p)
    for j in range(d):
        desk.y[j] = min(1.0, max(-1.0, (t[j] - centre[j]) / half[j]))
    return axis_to_halve(curvature, half, claim.weight, desk.y, quadratic), 0


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
    for j in range(d):
        exact = along[j]
        along[j] = np.float64(np.float32(exact))
        gap -= abs(exact - along[j])
    nearest(centre, half, along, gap, p, rates, t)
    multiplier = support(t, centre, half, along, p, z)
    if plane_bound(centre, half, along, gap, p, z, multiplier) > r * (1.0 + ROOM):
        written = append(hints, along, 0)
        written = append(hints, z, written)
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
