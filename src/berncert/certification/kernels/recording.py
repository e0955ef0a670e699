"""Compiled kernels: the proof of one radius, written down as a tree of boxes with a reason for each leaf.

The radius is known already, so this search is simpler than `search.py`: it halves boxes until each has a reason, and
writes down tags and hints as docs/proof-format.md describes. Nothing here has to be sound; see `recorded_reason.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berncert.certification.kernels.compiled import borrowed, kernel, part
from berncert.certification.kernels.problem import Problem
from berncert.certification.kernels.recorded_reason import DEPTH, POSITIVE, ROOM, Claim, Desk, reason
from berncert.certification.kernels.tensor import basis, contract, copy, split
from berncert.foundation.arrays import Flags, Floats, Ints

NO_TREE, NO_ROOM = -1, -2


class Claims(NamedTuple):
    """The same of several rows, (N, d) or (N,); the norm and the floor are those of all."""

    x0: Floats
    weight: Floats
    low: Floats
    high: Floats
    predicted: Ints
    radius: Floats
    norm: float
    floor: float


class Heads(NamedTuple):
    """The polynomials of all classes on the cube."""

    coefficients: Floats
    """(later axes, K, earlier axes): so the axes at hand stand first or last, and loops along the others are long."""
    sizes: Ints
    flattest: Floats
    """(K, d): the least slope of a class along an axis."""
    steepest: Floats


def laid_out(problem: Problem) -> Heads:
    """About as many coefficients along the later axes as along the others."""
    sizes, d, later = problem.sizes, problem.sizes.size, 0
    while np.prod(sizes[d - later - 1 :]) <= np.prod(sizes[: d - later - 1]):
        later += 1
    parts = problem.coefficients.reshape(len(problem.coefficients), -1, int(np.prod(sizes[d - later :])))
    laid = np.ascontiguousarray(np.transpose(parts, (2, 0, 1)))
    return Heads(laid, sizes, problem.flattest, problem.steepest)


@kernel
def record_rows(
    heads: Heads, claims: Claims, first: int, last: int, desk: Desk, stop: Flags, tags: Any, hints: Any, most: int,
    ends: Ints,
) -> int:  # fmt: skip
    """Write the trees of the rows first..last - 1, one after the other; the first row for which there was no room.

    Row i has its tags up to ends[i, 0] and its hints up to ends[i, 1], and none where no tree was found with so many
    tags at the most.
    """
    a, b = borrowed(claims), borrowed(heads)
    own, s, t, h = borrowed(desk), borrowed(stop), borrowed(tags), borrowed(hints)
    used = hinted = 0
    for i in range(first, last):
        claim = Claim(a.x0[i], a.weight[i], a.low[i], a.high[i], a.predicted[i], a.radius[i], a.norm, a.floor)
        tagged, written = record_row(b, claim, own, s, t[used:], h[hinted:], most)
        if tagged == NO_ROOM or stop[0]:
            return i
        if tagged != NO_TREE:
            used += tagged
            hinted += written
        ends[i, 0], ends[i, 1] = used, hinted
    return last


@part
def record_row(
    heads: Heads, claim: Claim, desk: Desk, stop: Flags, tags: Any, hints: Any, most: int
) -> tuple[int, int]:
    """Write the trees of all rivals, in the order of the classes: the numbers of tags and of hints.

    The first is NO_TREE where no proof was found with so many tags at the most, NO_ROOM where the arrays are too short.
    """
    sizes, inner, place = heads.sizes, heads.coefficients.shape[0], desk.place
    if tags.size < place.size:
        return NO_ROOM, 0
    chosen = choose(heads, claim, desk)
    restrictions(sizes, claim.low, claim.high, desk.matrices)
    restrict(heads, chosen, desk)
    on_box, margin = desk.heads if sizes.size % 2 == 1 else desk.spare, desk.path[0]
    used = hinted = 0
    for k in range(place.size):
        if k == claim.predicted:
            continue
        if place[k] < 0:
            tags[used] = POSITIVE
            used += 1
            continue
        for start in range(0, margin.size, inner):
            one = on_box[start * chosen + place[claim.predicted] * inner :]
            two = on_box[start * chosen + place[k] * inner :]
            part = margin[start : start + inner]
            for i in range(inner):
                part[i] = one[i] - two[i]
        used, hinted = record_rival(sizes, claim, desk, stop, tags, hints, used, hinted, most)
        if used < 0:
            return used, hinted
    return used, hinted


@part
def choose(heads: Heads, claim: Claim, desk: Desk) -> int:
    """Number the classes that must be looked at: desk.place, -1 for others; how many they are.

    The margin's coefficients on the first box are values of its blossom there, which by the slopes are not far from the
    margin at a point of the box.
    """
    place, d = desk.place, heads.sizes.size
    evaluate_near(heads, claim, desk)
    values = desk.spare if d % 2 == 1 else desk.heads
    chosen = 0
    for k in range(place.size):
        left = values[claim.predicted] - values[k]
        for j in range(d):
            x = min(claim.high[j], max(claim.low[j], claim.x0[j]))
            rise = heads.steepest[claim.predicted, j] - heads.flattest[k, j]
            fall = heads.steepest[k, j] - heads.flattest[claim.predicted, j]
            left -= max(abs(rise), abs(fall)) * max(x - claim.low[j], claim.high[j] - x)
        near = k == claim.predicted or not left > claim.floor + ROOM
        place[k] = chosen if near else -1
        chosen += 1 if near else 0
    return chosen


@part
def evaluate_near(heads: Heads, claim: Claim, desk: Desk) -> None:
    """The values of all classes at the point of the first box that is nearest to the sample.

    Two arrays take turns, axis by axis: the values end in desk.heads, or for an odd number of axes in desk.spare.
    """
    classes, sizes, weights = heads.coefficients.shape[1], heads.sizes, desk.scratch[0]
    d, m = sizes.size, earlier_axes(heads)
    here, there = desk.heads, desk.spare
    copy(heads.coefficients.reshape(heads.coefficients.size), heads.coefficients.size, here)
    left = heads.coefficients.size
    for turn in range(d):
        j = m + turn if turn < d - m else turn - (d - m)
        basis(sizes[j] - 1, min(claim.high[j], max(claim.low[j], claim.x0[j])), weights)
        left //= sizes[j]
        count = 1 if j >= m else classes
        contract(here, count, sizes[j], left // count, weights, there)
        here, there = there, here


@part
def earlier_axes(heads: Heads) -> int:
    """How many axes are laid out as earlier ones."""
    m = 0
    count = 1
    while count < heads.coefficients.shape[2]:
        count *= heads.sizes[m]
        m += 1
    return m


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
def restrict(heads: Heads, chosen: int, desk: Desk) -> None:
    """The coefficients of some classes on a box inside the cube: (earlier axes, chosen classes, later axes).

    Two arrays take turns, axis by axis and once in between: they end in desk.spare, or for an odd number of axes in
    desk.heads.
    """
    inner, classes, earlier = heads.coefficients.shape
    sizes, b = heads.sizes, heads.coefficients
    d, m = sizes.size, earlier_axes(heads)
    size = inner * chosen * earlier
    here, there = desk.heads[:size], desk.spare[:size]
    for k in range(classes):
        if desk.place[k] >= 0:
            for j in range(inner):
                copy(b[j, k], earlier, here[(j * chosen + desk.place[k]) * earlier :])
    along_first(here, there, sizes, m, d, desk.matrices)
    if (d - m) % 2 == 1:
        here, there = there, here
    for k in range(chosen):
        for i in range(earlier):
            line = there[(i * chosen + k) * inner : (i * chosen + k + 1) * inner]
            for j in range(inner):
                line[j] = here[(j * chosen + k) * earlier + i]
    along_first(there, here, sizes, 0, m, desk.matrices)


@part
def along_first(here: Floats, there: Floats, sizes: Ints, first: int, last: int, matrices: Floats) -> None:
    """Coefficients whose first axes are those from first to last - 1, each by its matrix.

    They are in `here`, and the arrays take turns: for an odd number of axes they end in `there`.
    """
    rest = here.size
    for j in range(first, last):
        size = sizes[j]
        block = rest
        rest //= size
        for start in range(0, here.size, block):
            for k in range(size):
                contract(here[start:], 1, size, rest, matrices[j, k], there[start + k * rest :])
        here, there = there, here


@part
def record_rival(
    sizes: Ints, claim: Claim, desk: Desk, stop: Flags, tags: Any, hints: Any, used: int, hinted: int, most: int
) -> tuple[int, int]:
    """Append the tree of one rival, whose margin on the first box stands first on the path."""
    d = sizes.size
    for j in range(d):
        desk.centre[0, j] = claim.weight[j] * (0.5 * (claim.low[j] + claim.high[j]) - claim.x0[j])
        desk.half[0, j] = claim.weight[j] * (0.5 * (claim.high[j] - claim.low[j]))
    height = 1
    desk.plan[0] = -1
    while height > 0:
        height -= 1
        if used >= most or height + 2 > DEPTH or stop[0]:
            return NO_TREE, hinted
        if used >= tags.size or hinted + 4 * d + d * d + 8 > hints.size:
            return NO_ROOM, hinted
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
    split(desk.path[at], sizes, axis, desk.path[at + 1], desk.path[at])  # which reads its own line before it writes
    for j in range(sizes.size):
        desk.centre[at + 1, j] = desk.centre[at, j]
        desk.half[at + 1, j] = desk.half[at, j]
    half = 0.5 * desk.half[at, axis]
    desk.centre[at + 1, axis] -= half
    desk.centre[at, axis] += half
    desk.half[at, axis] = desk.half[at + 1, axis] = half
