"""The reasons for which no point of a box is a counterexample, and the tree of boxes that puts them together.

A counterexample is a point x with |w (x - x0)|_p < radius at which the margin over some rival is at most `floor`. A box
is {x : t = w (x - x0) = centre + half y, y in [-1, 1]^d}. Each reason below excludes all counterexamples in its box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from berncert_check.bernstein import Net
from berncert_check.norms import dual, norm, square_weights_norm

POSITIVE, FAR, PLANE, AFFINE, QUADRATIC = 251, 252, 253, 254, 255


class RejectedError(Exception):
    """The claim does not follow from what the file says."""


@dataclass(frozen=True)
class Claim:
    """No counterexample within the radius (None: at any distance) in the p-norm of weight * (x - x0)."""

    x0: list[Fraction]
    weight: list[Fraction]
    radius: Fraction | None
    norm: Fraction | None
    floor: Fraction


@dataclass(frozen=True)
class Box:
    """A box of points, in units of the weighted distance to the sample, and the margin on it."""

    centre: list[Fraction]
    half: list[Fraction]
    margin: Net

    def halves(self, axis: int) -> tuple[Box, Box]:
        """The two halves along an axis: together they are the box."""
        half = [h / 2 if j == axis else h for j, h in enumerate(self.half)]
        ends = zip((-1, 1), self.margin.halves(axis), strict=True)
        low, high = (
            Box([c + way * half[j] if j == axis else c for j, c in enumerate(self.centre)], half, margin)
            for way, margin in ends
        )
        return low, high


def is_positive(box: Box, claim: Claim) -> bool:
    """POSITIVE: all coefficients of the margin are above the floor.

    The margin on the box is a weighted mean of its coefficients, so it is above the floor everywhere.
    """
    return box.margin.least() > claim.floor


def is_far(box: Box, claim: Claim) -> bool:
    """FAR: the point of the box nearest to the sample is at a distance of at least the radius.

    Along each axis no point of the box is closer than max(0, |centre| - half), and a p-norm grows with each magnitude.
    """
    nearest = [max(Fraction(0), abs(c) - h) for c, h in zip(box.centre, box.half, strict=True)]
    return claim.radius is not None and norm(nearest, claim.norm)[0] >= claim.radius


def is_above_plane(box: Box, claim: Claim, slope: list[Fraction]) -> bool:
    """PLANE: slope . y + gap is at most the margin, and above the floor at its least corner."""
    return box.margin.gap(slope, {}) - sum(map(abs, slope)) > claim.floor


def is_beyond_plane(box: Box, claim: Claim, slope: list[Fraction], z: list[Fraction], multiplier: Fraction) -> bool:
    """AFFINE: for a vector z, not 0, and a multiplier >= 0,

        z . t + multiplier (slope . y + gap - floor) >= radius |z|_q  on the whole box, 1/p + 1/q = 1.

    The left side is affine in y: its least value over the box is its value at 0 less the magnitudes of its slopes. At a
    counterexample slope . y + gap <= margin <= floor, so the left side is at most z . t, which is at most |z|_q |t|_p
    (Hoelder) and hence below radius |z|_q: a contradiction.
    """
    if claim.radius is None or multiplier < 0 or not any(z):
        return False
    least = multiplier * (box.margin.gap(slope, {}) - claim.floor)
    for zj, c, h, s in zip(z, box.centre, box.half, slope, strict=True):
        least += zj * c - abs(zj * h + multiplier * s)
    return least >= claim.radius * norm(z, dual(claim.norm))[1]


def is_beyond_quadratic(
    box: Box, claim: Claim, slope: list[Fraction], curvature: dict[tuple[int, int], Fraction], multiplier: Fraction,
    at: list[Fraction], weights: list[Fraction],
) -> bool:  # fmt: skip
    """QUADRATIC: for weights >= 0 of squares with sum weights_j t_j^2 <= |t|_p^2 and a multiplier >= 0,

        P(y) = sum weights_j t_j^2 + multiplier (Q(y) + gap - floor) >= radius^2  on the whole box,

    Q(y) = slope . y + sum over i <= j of curvature[i, j] y_i y_j. At a counterexample Q + gap <= margin <= floor, so P
    is at most |t|_p^2 and hence below radius^2: a contradiction.

    P is a quadratic form with a symmetric matrix. Adding shift_j (y_j^2 - 1), which is <= 0 on the box, with shifts
    that make each diagonal entry at least the sum of the magnitudes beside it, makes it convex (a symmetric diagonally
    dominant matrix has no negative eigenvalue). A convex function is above its tangent at any point `at`, and the least
    value of the tangent over the box is found as in AFFINE.
    """
    if claim.radius is None or multiplier < 0 or min(weights) < 0:
        return False
    if norm(weights, square_weights_norm(claim.norm))[1] > 1:
        return False
    d = len(slope)
    if any(curvature.get((j, j)) and box.margin.sizes[j] < 3 for j in range(d)):
        return False  # no such coefficient: a margin of degree 1 along an axis has no square
    constant = multiplier * (box.margin.gap(slope, curvature) - claim.floor)
    linear, matrix = [], [[Fraction(0)] * d for _ in range(d)]
    for j, (w, c, h) in enumerate(zip(weights, box.centre, box.half, strict=True)):
        constant += w * c * c
        linear.append(2 * w * c * h + multiplier * slope[j])
        matrix[j][j] = w * h * h
    for (i, j), value in curvature.items():
        matrix[i][j] += multiplier * value / (1 if i == j else 2)
        if i != j:
            matrix[j][i] = matrix[i][j]
    for j in range(d):
        shift = max(Fraction(0), sum(abs(matrix[i][j]) for i in range(d) if i != j) - matrix[j][j])
        matrix[j][j] += shift
        constant -= shift
    least = constant
    for j in range(d):
        along = sum((matrix[i][j] * at[i] for i in range(d)), Fraction(0))
        least -= at[j] * along + abs(linear[j] + 2 * along)  # P(at) - gradient . at - sum of |gradient_j|
    return least >= claim.radius**2


def check_tree(box: Box, claim: Claim, tags: Iterator[int], hints: Hints, name: str) -> int:
    """Check the tree of one rival, whose nodes stand in preorder, lower half first; the number of its nodes.

    A tag below 251 halves the box along that axis: what is excluded in both halves is excluded in the box.
    """
    d, open_boxes, nodes = len(claim.x0), [box], 0
    while open_boxes:
        box = open_boxes.pop()
        tag = next(tags, None)
        nodes += 1
        if tag is None:
            raise RejectedError(f"{name}: the tree ends before node {nodes}")
        if tag < d:
            open_boxes.extend(reversed(box.halves(tag)))
        elif not _excluded(box, claim, tag, hints, d):
            raise RejectedError(f"{name}: the reason {tag} of node {nodes} does not hold")
    return nodes


def _excluded(box: Box, claim: Claim, tag: int, hints: Hints, d: int) -> bool:
    if tag == POSITIVE:
        return is_positive(box, claim)
    if tag == FAR:
        return is_far(box, claim)
    if tag == PLANE:
        return is_above_plane(box, claim, hints.take(d))
    if tag == AFFINE:
        return is_beyond_plane(box, claim, hints.take(d), hints.take(d), hints.take(1)[0])
    if tag == QUADRATIC:
        if claim.norm is not None and claim.norm < 2:
            return False
        slope = hints.take(d)
        curvature = {(i, j): hints.take(1)[0] for j in range(d) for i in range(j + 1)}
        multiplier, at = hints.take(1)[0], hints.take(d)
        weights = [Fraction(1)] * d if claim.norm == 2 else hints.take(d)
        return is_beyond_quadratic(box, claim, slope, curvature, multiplier, at, weights)
    raise RejectedError(f"a tag of {tag}, which is neither one of the {d} axes nor a reason")


class Hints:
    """Numbers that the reasons take, one after the other. Any number is allowed: a bad one only proves nothing."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self.numbers, self.used = numbers, 0

    def take(self, count: int) -> list[Fraction]:
        """The next numbers."""
        part = self.numbers[self.used : self.used + count]
        if len(part) < count:
            raise RejectedError("the hints end before the tree does")
        self.used += count
        try:
            return [Fraction(number) for number in part]
        except (ValueError, OverflowError) as error:
            raise RejectedError("a hint that is not a finite number") from error
