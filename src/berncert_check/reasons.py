"""The reasons for which no point of a box is a counterexample, and the tree of boxes that puts them together.

A counterexample is a point x with |w (x - x0)|_p < radius at which the margin over some rival is at most `floor`. A box
is {x : t = w (x - x0) = centre + half y, y in [-1, 1]^d}. Each reason below excludes all counterexamples in its box.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise

from berncert_check.bernstein import Net, Sum
from berncert_check.norms import dual, norm, square_weights_norm
from berncert_check.proof_file import stop

DEEPEST = 200
"""Each halving makes numbers longer: no box of a tree is halved more often than this."""


Quadratic = tuple[list[Fraction], dict[tuple[int, int], Fraction], Fraction]


class RejectedError(Exception):
    """The claim does not follow from what the file says."""


def refuse(wrong: bool, why: str) -> None:
    """Raise a RejectedError if something is wrong."""
    stop(wrong, RejectedError(why))


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
    margin: Sum
    depth: int = 0
    """How often the first box was halved to get here."""

    def halves(self, axis: int) -> tuple[Box, Box]:
        """The two halves along an axis: together they are the box."""
        half = [h / 2 if j == axis else h for j, h in enumerate(self.half)]
        low, high = ([c + way * half[j] * (j == axis) for j, c in enumerate(self.centre)] for way in (-1, 1))
        below, above = self.margin.halves(axis)
        return Box(low, half, below, self.depth + 1), Box(high, half, above, self.depth + 1)


def positive(box: Box, claim: Claim, hints: Iterator[float], tags: Iterator[int]) -> bool:
    """All coefficients of the margin are above the floor.

    The margin on the box is a weighted mean of its coefficients, so it is above the floor everywhere.
    """
    return box.margin.least() > claim.floor


def far(box: Box, claim: Claim, hints: Iterator[float], tags: Iterator[int]) -> bool:
    """The point of the box nearest to the sample is at a distance of at least the radius.

    Along each axis no point of the box is closer than max(0, |centre| - half), and a p-norm grows with each magnitude.
    """
    nearest = [max(Fraction(0), abs(c) - h) for c, h in zip(box.centre, box.half, strict=True)]
    return claim.radius is not None and norm(nearest, claim.norm)[0] >= claim.radius


def minorant(box: Box, hints: Iterator[float], tags: Iterator[int], *, curved: bool) -> Quadratic:
    """slope, curvature and gap of Q(y) + gap, which is at most the margin everywhere on the box,

    Q(y) = slope . y + sum over i <= j of curvature[i, j] y_i y_j. The affine part of the margin is taken as it is. For
    each term the hints are a Q of its own axes, without squares on axes of degree 1, and the term is at least its Q
    plus the least value of the term less Q. The Q of the margin is the sum of all these, and so is the gap.
    """
    slope, curvature, gap = list(box.margin.slope), dict[tuple[int, int], Fraction](), box.margin.middle
    for axes, net in box.margin.terms:
        steep = take(hints, len(axes))
        pairs = [(i, j) for j in range(len(axes)) for i in range(j + 1)] if curved else []
        bent = dict(zip(pairs, take(hints, len(pairs)), strict=True))
        refuse(any(bent.get((j, j)) and net.sizes[j] == 2 for j in range(len(axes))), "a square along degree 1")
        rest, common = net.less(steep, bent)
        gap += (rest.least() if len(axes) == len(slope) else least_value(rest, tags)) / common
        for j, s in zip(axes, steep, strict=True):
            slope[j] += s
        for (i, j), v in bent.items():
            at = min(axes[i], axes[j]), max(axes[i], axes[j])
            curvature[at] = curvature.get(at, Fraction(0)) + v
    return slope, curvature, gap


def least_value(net: Net, tags: Iterator[int], depth: int = 0) -> Fraction:
    """A number that no value is below: the least coefficient, or the lesser of such numbers of both halves of the box.

    A term in few axes is so looked at in small boxes, which it alone is divided into: the tags stand in preorder, an
    axis of the term to halve it, lower half first, and 251 to take the coefficients. A term in all axes needs none.
    """
    tag = next(tags, -1)
    if tag in range(len(net.sizes)) and depth < DEEPEST:
        cuts = (Fraction(0), Fraction(1, 2), Fraction(1))
        return min(least_value(net.within(tag, *ends), tags, depth + 1) for ends in pairwise(cuts))
    refuse(tag != min(RULES), "a term is neither halved nor looked at")
    return net.least()


def plane(box: Box, claim: Claim, hints: Iterator[float], tags: Iterator[int]) -> bool:
    """The affine function slope . y + gap is above the floor at its least corner.

    It is at most the margin everywhere on the box (see `minorant`), and its least value over y in [-1, 1]^d is gap less
    the magnitudes of its slopes. So the margin is above the floor everywhere.
    """
    slope, _, gap = minorant(box, hints, tags, curved=False)
    return gap - sum(map(abs, slope)) > claim.floor


def affine(box: Box, claim: Claim, hints: Iterator[float], tags: Iterator[int]) -> bool:
    """For a vector z, not 0, and a multiplier >= 0,

        z . t + multiplier (slope . y + gap - floor) >= radius |z|_q  on the whole box, 1/p + 1/q = 1.

    The left side is affine in y: its least value over the box is its value at 0 less the magnitudes of its slopes. At a
    counterexample slope . y + gap <= margin <= floor, so the left side is at most z . t, which is at most |z|_q |t|_p
    (Hoelder) and hence below radius |z|_q: a contradiction.
    """
    slope, _, gap = minorant(box, hints, tags, curved=False)
    z, (multiplier,) = take(hints, len(box.half)), take(hints, 1)
    if claim.radius is None or multiplier < 0 or not any(z):
        return False
    least = multiplier * (gap - claim.floor)
    for zj, c, h, s in zip(z, box.centre, box.half, slope, strict=True):
        least += zj * c - abs(zj * h + multiplier * s)
    return least >= claim.radius * norm(z, dual(claim.norm))[1]


def quadratic(box: Box, claim: Claim, hints: Iterator[float], tags: Iterator[int]) -> bool:
    """For p >= 2, weights >= 0 of squares with sum weights_j t_j^2 <= |t|_p^2 and a multiplier >= 0,

        P(y) = sum weights_j t_j^2 + multiplier (Q(y) + gap - floor) >= radius^2  on the whole box,

    Q + gap being a `minorant`. At a counterexample Q + gap <= margin <= floor, so P is at most |t|_p^2 and hence below
    radius^2: a contradiction.

    P is a quadratic form with a symmetric matrix. Adding shift_j (y_j^2 - 1), which is <= 0 on the box, with shifts
    that make each diagonal entry at least the sum of the magnitudes beside it, makes it convex (a symmetric diagonally
    dominant matrix has no negative eigenvalue). A convex function is above its tangent at any point `at`, and the least
    value of the tangent over the box is found as in `affine`.
    """
    d = len(box.half)
    slope, curvature, gap = minorant(box, hints, tags, curved=True)
    (multiplier,), at = take(hints, 1), take(hints, d)
    weights = [Fraction(1)] * d if claim.norm == 2 else take(hints, d)
    if claim.radius is None or multiplier < 0 or min(weights) < 0 or (claim.norm is not None and claim.norm < 2):
        return False
    if norm(weights, square_weights_norm(claim.norm))[1] > 1:
        return False
    least, along, beside = multiplier * (gap - claim.floor), [Fraction(0)] * d, [Fraction(0)] * d
    for (i, j), v in curvature.items():  # the matrix has half of it at (i, j), half at (j, i)
        for k, other in ((i, j), (j, i)):
            along[k] += multiplier * v / 2 * at[other]
            beside[k] += abs(multiplier * v / 2) * (i != j)
    for j, (w, c, h) in enumerate(zip(weights, box.centre, box.half, strict=True)):
        diagonal = w * h * h + multiplier * curvature.get((j, j), Fraction(0))
        shift = max(Fraction(0), beside[j] - diagonal)
        along[j] += (w * h * h + shift) * at[j]  # now the matrix times `at`
        slope_at = 2 * (w * c * h + along[j]) + multiplier * slope[j]
        least += w * c * c - shift - at[j] * along[j] - abs(slope_at)  # P(at) - gradient . at - sum of |gradient_j|
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
            holds, rule = RULES[tag](box, claim, hints, tags), RULES[tag].__name__
            refuse(not holds, f"{name}: the reason {rule} of node {nodes} does not hold")
    return nodes


def take(hints: Iterator[float], count: int) -> list[Fraction]:
    """The next hints. Any numbers are allowed: bad ones only prove nothing."""
    try:
        part = [Fraction(number) for number in islice(hints, count)]
    except (ValueError, OverflowError) as error:
        raise RejectedError("a hint that is not a finite number") from error
    refuse(len(part) < count, "the hints end before the tree does")
    return part
