"""The reasons for which no point of a box is a counterexample, and the tree of boxes that puts them together.

A counterexample is a point x with |w (x - x0)|_p < radius at which the margin over some rival is at most `floor`. A box
is {x : t = w (x - x0) = centre + half y, y in [-1, 1]^d}. Each reason below excludes all counterexamples in its box.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from berncert_check.bernstein import Net, Plane
from berncert_check.norms import dual, norm, square_weights_norm

DEEPEST = 200
"""Each halving makes numbers longer: no box of a tree is halved more often than this."""


class RejectedError(Exception):
    """The claim does not follow from what the file says."""


def refuse(wrong: bool, why: str) -> None:
    """Raise a RejectedError if something is wrong."""
    if wrong:
        raise RejectedError(why)


@dataclass(frozen=True)
class Claim:
    """No counterexample within the limits and the radius (None: at any distance), in the p-norm of weight (x - x0)."""

    x0: list[Fraction]
    weight: list[Fraction]
    low: list[Fraction]
    high: list[Fraction]
    radius: Fraction | None
    norm: Fraction | None
    floor: Fraction


@dataclass(frozen=True)
class Box:
    """A box of points, in units of the weighted distance to the sample, and the margin on it."""

    centre: list[Fraction]
    half: list[Fraction]
    margin: Net | Plane
    depth: int = 0
    """How often the first box was halved to get here."""

    def halves(self, axis: int) -> tuple[Box, Box]:
        """The two halves along an axis: together they are the box."""
        half = [h / 2 if j == axis else h for j, h in enumerate(self.half)]
        low, high = ([c + way * half[j] * (j == axis) for j, c in enumerate(self.centre)] for way in (-1, 1))
        below, above = self.margin.halves(axis)
        return Box(low, half, below, self.depth + 1), Box(high, half, above, self.depth + 1)


def positive(box: Box, claim: Claim, hints: Iterator[float]) -> bool:
    """All coefficients of the margin are above the floor.

    The margin on the box is a weighted mean of its coefficients, so it is above the floor everywhere.
    """
    return box.margin.least() > claim.floor


def far(box: Box, claim: Claim, hints: Iterator[float]) -> bool:
    """The point of the box nearest to the sample is at a distance of at least the radius.

    Along each axis no point of the box is closer than max(0, |centre| - half), and a p-norm grows with each magnitude.
    """
    nearest = [max(Fraction(0), abs(c) - h) for c, h in zip(box.centre, box.half, strict=True)]
    return claim.radius is not None and norm(nearest, claim.norm)[0] >= claim.radius


def plane(box: Box, claim: Claim, hints: Iterator[float]) -> bool:
    """The affine function slope . y + gap is above the floor at its least corner.

    It is at most the margin everywhere on the box (see `gap`), and its least value over y in [-1, 1]^d is gap less the
    magnitudes of its slopes. So the margin is above the floor everywhere.
    """
    slope = take(hints, len(box.half))
    return box.margin.gap(slope, {}) - sum(map(abs, slope)) > claim.floor


def affine(box: Box, claim: Claim, hints: Iterator[float]) -> bool:
    """For a vector z, not 0, and a multiplier >= 0,

        z . t + multiplier (slope . y + gap - floor) >= radius |z|_q  on the whole box, 1/p + 1/q = 1.

    The left side is affine in y: its least value over the box is its value at 0 less the magnitudes of its slopes. At a
    counterexample slope . y + gap <= margin <= floor, so the left side is at most z . t, which is at most |z|_q |t|_p
    (Hoelder) and hence below radius |z|_q: a contradiction.
    """
    d = len(box.half)
    slope, z, (multiplier,) = take(hints, d), take(hints, d), take(hints, 1)
    if claim.radius is None or multiplier < 0 or not any(z):
        return False
    least = multiplier * (box.margin.gap(slope, {}) - claim.floor)
    for zj, c, h, s in zip(z, box.centre, box.half, slope, strict=True):
        least += zj * c - abs(zj * h + multiplier * s)
    return least >= claim.radius * norm(z, dual(claim.norm))[1]


def quadratic(box: Box, claim: Claim, hints: Iterator[float]) -> bool:
    """For p >= 2, weights >= 0 of squares with sum weights_j t_j^2 <= |t|_p^2 and a multiplier >= 0,

        P(y) = sum weights_j t_j^2 + multiplier (Q(y) + gap - floor) >= radius^2  on the whole box,

    Q(y) = slope . y + sum over i <= j of curvature[i, j] y_i y_j. At a counterexample Q + gap <= margin <= floor, so P
    is at most |t|_p^2 and hence below radius^2: a contradiction. Q has no square on an axis of degree 1, where the
    margin has none, and no curvature at all for an affine margin.

    P is a quadratic form with a symmetric matrix. Adding shift_j (y_j^2 - 1), which is <= 0 on the box, with shifts
    that make each diagonal entry at least the sum of the magnitudes beside it, makes it convex (a symmetric diagonally
    dominant matrix has no negative eigenvalue). A convex function is above its tangent at any point `at`, and the least
    value of the tangent over the box is found as in `affine`.
    """
    d, margin = len(box.half), box.margin
    slope, curvature = take(hints, d), {(i, j): take(hints, 1)[0] for j in range(d) for i in range(j + 1)}
    (multiplier,), at = take(hints, 1), take(hints, d)
    weights = [Fraction(1)] * d if claim.norm == 2 else take(hints, d)
    if claim.radius is None or multiplier < 0 or min(weights) < 0 or (claim.norm is not None and claim.norm < 2):
        return False
    bent = any(v and (isinstance(margin, Plane) or (i == j and margin.sizes[j] < 3)) for (i, j), v in curvature.items())
    if bent or norm(weights, square_weights_norm(claim.norm))[1] > 1:
        return False
    least = multiplier * (margin.gap(slope, curvature) - claim.floor)
    matrix = [[multiplier * curvature[min(i, j), max(i, j)] / (1 if i == j else 2) for i in range(d)] for j in range(d)]
    linear = [multiplier * s for s in slope]
    for j, (w, c, h) in enumerate(zip(weights, box.centre, box.half, strict=True)):
        least += w * c * c
        linear[j] += 2 * w * c * h
        matrix[j][j] += w * h * h
        shift = max(Fraction(0), sum(map(abs, matrix[j])) - abs(matrix[j][j]) - matrix[j][j])
        matrix[j][j] += shift
        least -= shift
    for j in range(d):
        along = sum((matrix[i][j] * at[i] for i in range(d)), Fraction(0))
        least -= at[j] * along + abs(linear[j] + 2 * along)  # P(at) - gradient . at - sum of |gradient_j|
    return least >= claim.radius**2


RULES = {251: positive, 252: far, 253: plane, 254: affine, 255: quadratic}


def check_tree(box: Box, claim: Claim, tags: Iterator[int], hints: Iterator[float], name: str) -> int:
    """Check the tree of one rival, whose nodes stand in preorder, lower half first; the number of its nodes.

    A tag below 251 halves the box along that axis: what is excluded in both halves is excluded in the box.
    """
    open_boxes, nodes = [box], 0
    while open_boxes:
        box, tag, nodes = open_boxes.pop(), next(tags, -1), nodes + 1
        if tag in range(min(len(box.half), min(RULES))):
            refuse(box.depth >= DEEPEST, f"{name}: node {nodes} is deeper than {DEEPEST}")
            open_boxes.extend(reversed(box.halves(tag)))
        else:
            refuse(tag not in RULES, f"{name}: node {nodes} is neither halved nor has a reason")
            reason = RULES[tag]
            refuse(not reason(box, claim, hints), f"{name}: the reason {reason.__name__} of node {nodes} does not hold")
    return nodes


def take(hints: Iterator[float], count: int) -> list[Fraction]:
    """The next hints. Any numbers are allowed: bad ones only prove nothing."""
    try:
        part = [Fraction(number) for number in islice(hints, count)]
    except (ValueError, OverflowError) as error:
        raise RejectedError("a hint that is not a finite number") from error
    refuse(len(part) < count, "the hints end before the tree does")
    return part
