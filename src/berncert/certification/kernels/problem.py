"""What the compiled kernels share: the problem, the same for all samples, and one thread's memory."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from berncert.certification.kernels.lowering import LOWERED_DEGREE, Tables, lowering_tables
from berncert.certification.kernels.tensor import ROUNDOFF
from berncert.foundation.arrays import Floats, Ints

LARGEST_COEFFICIENT = 2.0**1000


class Problem(NamedTuple):
    """Heads are polynomials with coefficients scaled, by a power of two, to magnitudes of at most 1."""

    coefficients: Floats
    """(K, (n_1 + 1) ... (n_d + 1))"""
    sizes: Ints
    """n_j + 1"""
    flattest: Floats
    """(K, d): no slope of a class along an axis is below this, anywhere in the cube."""
    steepest: Floats
    """(K, d): and none is above this."""
    tables: Tables
    norm: float
    tolerance: float
    max_boxes: int
    rounding: float
    """No margin computed in float64, here or by `SmoothedHead`, is further than this from the exact one."""


class Whole(NamedTuple):
    """The polynomials before some axes were held at fixed values; with none held, those of the problem."""

    coefficients: Floats
    sizes: Ints
    held: Ints
    """1 for each axis that is held, else 0."""
    here: Floats
    """Room for the polynomial of one class, twice, and for the weights of an axis."""
    there: Floats
    weights: Floats


class Samples(NamedTuple):
    """What is asked about, row by row, along the axes that are not held."""

    features: Floats
    """(N, d); a sample may lie outside its box."""
    low: Floats
    """(N, d): the box in which other points are looked for, inside the cube, low < high."""
    high: Floats
    weight: Floats
    """(N, d): distances are norms of weight * (x - x0); above 0."""
    held: Floats
    """(N, h): the values at which the other axes are held."""
    target: Floats
    """How far it matters: nothing beyond it is looked at, and a witness within it ends the search."""


class Memory(NamedTuple):
    """One path of boxes, from the first to the one at hand, and room to work in."""

    path: Floats
    sizes: Ints
    centre: Floats
    half: Floats
    error: Floats
    bound: Floats
    margin: Floats
    entire: Floats
    here: Floats
    there: Floats
    scratch: Floats
    net: Floats
    prefix: Floats
    odometer: Ints
    curvature: Floats
    matrix: Floats
    margins: Floats
    left: Floats
    rivals: Ints
    looks: Floats
    slope: Floats
    linear: Floats
    rates: Floats
    gradient: Floats
    t: Floats
    y: Floats
    z: Floats
    x: Floats
    middle: Floats
    halves: Floats
    low: Floats
    """Of the sample at hand: the box in which other points are looked for, inside the cube."""
    high: Floats
    weight: Floats
    """Of the sample at hand: distances are norms of weight * (x - x0)."""
    start: Floats
    """Of the sample at hand: the point of its box nearest to it."""
    landed: Floats


def pose(coefficients: Floats, *, norm: float, tolerance: float, max_boxes: int) -> Problem:
    """The problem of a (K, n_1 + 1, ..., n_d + 1) array of coefficients, which are taken as exact."""
    largest = float(np.abs(coefficients).max())
    if not math.isfinite(largest):
        raise ValueError(
            f"expected finite coefficients, got {largest}; look for what made them so, e.g. a diverged head"
        )
    if not largest < LARGEST_COEFFICIENT:
        raise ValueError(
            f"expected coefficients below 2^1000 in magnitude, got {largest:g}, which overflows when logits are "
            "compared; divide the logits by a constant, which changes no class"
        )
    exponent = exponent_of(coefficients)
    sizes = np.array(coefficients.shape[1:], np.int64)
    degree, dim = int(sizes.max()) - 1, sizes.size
    # two logits, each within the law of `bernstein.evaluate`; and what underflow adds when coefficients are tiny
    rounding = 2.02 * (dim * (4 * degree + 3) + 2) * ROUNDOFF
    underflow = math.ldexp(8.0 * dim * (degree + 2), -1074 - min(exponent, 0))
    scaled = np.ldexp(coefficients, -exponent)
    flattest, steepest = slope_range(scaled)
    return Problem(
        coefficients=np.ascontiguousarray(scaled.reshape(len(scaled), -1)),
        sizes=sizes,
        flattest=flattest,
        steepest=steepest,
        tables=lowering_tables(min(degree, LOWERED_DEGREE)),
        norm=norm,
        tolerance=tolerance,
        max_boxes=max_boxes,
        rounding=rounding + underflow,
    )


def exponent_of(coefficients: Floats) -> int:
    """The power of two by which coefficients are scaled to magnitudes of at most 1."""
    return math.frexp(float(np.abs(coefficients).max()))[1]


def without_axes(problem: Problem, held: Ints) -> tuple[Problem, Whole]:
    """The problem on the axes that are not held, to be filled row by row by `rows.hold`, and what it is filled from.

    Each held axis costs, like an axis in `bernstein.evaluate`, 3 n + n + 1 roundings of each logit.
    """
    n = problem.coefficients.shape[1]
    whole = Whole(
        problem.coefficients, problem.sizes, held, np.empty(n), np.empty(n), np.empty(int(problem.sizes.max()))
    )
    if not held.any():
        return problem, whole
    sizes = problem.sizes[held == 0]
    lost = 2.02 * sum(4 * (int(size) - 1) + 3 for size in problem.sizes[held == 1]) * ROUNDOFF
    classes = len(problem.coefficients)
    small = problem._replace(
        coefficients=np.zeros((classes, int(np.prod(sizes)))),
        sizes=np.ascontiguousarray(sizes),
        flattest=np.zeros((classes, sizes.size)),
        steepest=np.zeros((classes, sizes.size)),
        rounding=problem.rounding + lost,
    )
    return small, whole


def slope_range(coefficients: Floats) -> tuple[Floats, Floats]:
    """The least and the greatest slope of each class along each axis: those of its control net, rounded outwards."""
    low, high = [], []
    for axis, size in enumerate(coefficients.shape[1:], start=1):
        slopes = np.diff(coefficients, axis=axis).reshape(len(coefficients), -1) * (size - 1)
        slack = 8 * (size - 1) * ROUNDOFF
        low.append(slopes.min(axis=1) - slack)
        high.append(slopes.max(axis=1) + slack)
    return np.stack(low, axis=1), np.stack(high, axis=1)


def allocate(problem: Problem) -> Memory:
    """Memory for one thread; what is never touched is never given by the operating system."""
    try:
        return _memory(problem)
    except MemoryError as error:
        n = problem.coefficients.shape[1]
        raise MemoryError(
            f"expected room for a path of {_depth(problem)} boxes with {n} coefficients each, got {error}; lower the "
            "degree or the number of features"
        ) from error


def _depth(problem: Problem) -> int:
    return 64 + 8 * problem.sizes.size


def _memory(problem: Problem) -> Memory:
    classes, n = problem.coefficients.shape
    d = problem.sizes.size
    widest = int(problem.sizes.max())
    depth = _depth(problem)
    return Memory(
        path=np.empty((depth, n)),
        sizes=np.empty((depth, d), np.int64),
        centre=np.empty((depth, d)),
        half=np.empty((depth, d)),
        error=np.empty(depth),
        bound=np.empty(depth),
        margin=np.empty(n),
        entire=np.empty(n),
        here=np.empty(2 * n + 16),
        there=np.empty(2 * n + 16),
        scratch=np.empty((widest + 3, widest)),
        net=np.empty((d + 5, max(64, widest))),
        prefix=np.empty((d + 1, d + 2)),
        odometer=np.empty(d, np.int64),
        curvature=np.empty((d, d)),
        matrix=np.empty((d, d)),
        margins=np.empty(classes),
        left=np.empty(classes),
        rivals=np.empty(classes, np.int64),
        looks=np.empty(classes),
        **{name: np.empty(d) for name in Memory._fields[Memory._fields.index("slope") :]},
    )
