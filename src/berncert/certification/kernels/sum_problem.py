"""The problem of a sum of small polynomials, and the memory of a thread that works on it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from berncert.certification.kernels.affine import AffineMemory
from berncert.certification.kernels.line import MOST_HALVINGS
from berncert.certification.kernels.problem import LARGEST_COEFFICIENT
from berncert.certification.kernels.tensor import ROUNDOFF
from berncert.foundation.arrays import Flags, Floats, Ints

CELLS = 32
"""Into so many each axis of a box is divided, to bound terms in two features."""
MOST_PAIRS = 1024  # for which there is a table of cells: 16 MB


class SumProblem(NamedTuple):
    """A sum whose numbers are scaled, by a power of two, to magnitudes of at most 1."""

    weight: Floats
    """(K, d)"""
    bias: Floats
    """(K,)"""
    coefficients: Floats
    """(K, n): the coefficients of all terms, one after the other."""
    begin: Ints
    """(T + 1,): where each term begins among the coefficients."""
    axes: Ints
    """The axes of all terms, one term after the other."""
    sizes: Ints
    """The number of coefficients along each of them."""
    place: Ints
    """(T + 1,): where each term begins among the axes."""
    degree: Ints
    """(d,): the greatest degree along each axis, 1 where no term takes it."""
    pairs: Ints
    """(P,): the terms in two features that are bounded by cells: all of them, or none if they are very many."""
    flattest: Floats
    """(K, d): no slope of a class along an axis is below this, anywhere in the cube."""
    steepest: Floats
    """(K, d): and none is above this."""
    norm: float
    tolerance: float
    max_boxes: int
    rounding: float
    """No margin computed in float64, here or by `SumHead`, is further than this from the exact one."""
    error: float
    """No minorant is further than this from what it would be without rounding."""


class CellTable(NamedTuple):
    """The pairs of each axis; bounds of each cell and each pair of cells of one box, and messages between them."""

    first_pair: Ints
    """(d + 1,): where the pairs of each axis begin among the following:"""
    pair_of: Ints
    """their numbers, one axis after the other,"""
    side_of: Ints
    """whether the axis is the first (0) or the second (1) of the pair's,"""
    partner: Ints
    """and the other axis."""
    nodes: Floats
    """(degree, k, i): the k-th basis polynomial of a degree at the ends of the cells, i / CELLS."""
    live: Flags
    """(P,): whether the pair is in the margin at hand."""
    joined: Ints
    """(d,): how many pairs of an axis are."""
    least: Floats
    """(P, 2, cell, cell): bounds of the pairs of cells; the cell of the first axis comes last in [:, 0], of the second
    in [:, 1]."""
    message: Floats
    """(P, 2, cell): what was moved from a pair to its first and to its second axis."""
    rest: Floats
    """(P,): what is left to a pair, at least."""
    axis: Floats
    """(d, 3, cell): of each cell what it costs without pairs, and with them, and where in it that is least."""
    given: Floats
    """(pairs of one axis, cell)"""
    lines: Floats
    """(d, cell, n + 1): the line of an axis on each cell."""
    strips: Floats
    """(3, n + 1, CELLS + 1)"""
    corners: Floats
    """(3, CELLS + 1, CELLS + 1): a pair and its second derivatives at the corners of the cells."""


class SumMemory(NamedTuple):
    """Room for one thread to work in."""

    table: CellTable

    affine: AffineMemory
    mix: Floats
    """(K,): the margin at hand is the sum of the classes with these factors."""
    margin: Floats
    """Its coefficients on the whole cube."""
    cut: Floats
    """... and on the box at hand."""
    slope: Floats
    """(d,): the slope of its affine part."""
    lines: Floats
    """(d, n + 1): the minorant along each axis, on the box."""
    together: Floats
    """(P,): for each pair of axes of a term, a bound on the mixed second derivative on the box."""
    load: Floats
    """(d,): the sum of these over the pairs of an axis."""
    bear: Floats
    """(d,): the greatest bend that moves the axis nowhere, as far as a few points show."""
    bend: Floats
    """(d,): times the square of the way from the centre, it is subtracted from the line."""
    box_low: Floats
    """(d,): the box at hand."""
    box_high: Floats
    low: Floats
    """(d,): the part of it that is near enough to matter."""
    high: Floats
    centre: Floats
    least: Floats
    """(d,): where the minorant with its price for distance is least, axis by axis."""
    before: Floats
    """(d,): the same at a lower price of the margin, where the minorant is above 0."""
    after: Floats
    """(d,): ... and at a higher one, where it is not."""
    kept: Floats
    """(d,): ... and at the price that gave the best bound."""
    floor: Floats
    """(d,): what the last sum of lines counts for each axis."""
    path_low: Floats
    """(d,): the box at hand before its ends were moved inwards."""
    path_high: Floats
    x: Floats
    gradient: Floats
    scale: Floats
    here: Floats
    there: Floats
    scratch: Floats
    point: Floats
    partial: Floats
    cells: Floats
    ends: Floats
    work: Floats


def pose_sum(
    weight: Floats,
    bias: Floats,
    terms: list[tuple[tuple[int, ...], Floats]],
    *,
    norm: float,
    tolerance: float,
    max_boxes: int,
) -> tuple[SumProblem, int]:
    """The problem of a (K, d) weight, a (K,) bias and terms, all taken as exact; and the exponent of its scale."""
    parts = [weight, bias, *(c for _, c in terms)]
    largest = float(max(np.abs(piece).max() for piece in parts))
    if not largest < LARGEST_COEFFICIENT:
        raise ValueError(
            f"expected weights, biases and coefficients below 2^1000 in magnitude, got {largest:g}, which overflows "
            "when logits are compared; divide the logits by a constant, which changes no class"
        )
    exponent = math.frexp(largest)[1]
    classes, dim = weight.shape
    weight, bias = np.ldexp(weight, -exponent), np.ldexp(bias, -exponent)
    begin = np.cumsum([0, *(c[0].size for _, c in terms)])
    flat = np.empty((classes, int(begin[-1])))
    for (_, c), first in zip(terms, begin, strict=False):
        np.ldexp(c.reshape(classes, -1), -exponent, out=flat[:, first : first + c[0].size])
    axes = np.array([axis for chosen, _ in terms for axis in chosen], np.int64)
    sizes = np.array([size for _, c in terms for size in c.shape[1:]], np.int64)
    degree = np.ones(dim, np.int64)
    np.maximum.at(degree, axes, sizes - 1)
    flattest, steepest = _slope_ranges(weight, flat, terms, begin)
    problem = SumProblem(
        weight, bias, flat, begin, axes, sizes, np.cumsum([0, *(len(chosen) for chosen, _ in terms)]), degree,
        _pairs([chosen for chosen, _ in terms]), flattest, steepest, norm, tolerance, max_boxes,
        *_errors(weight, bias, flat, terms, begin, exponent),
    )  # fmt: skip
    return problem, exponent


def _pairs(chosen: list[tuple[int, ...]]) -> Ints:
    """The terms in two features, unless they are very many."""
    pairs = np.array([number for number, axes in enumerate(chosen) if len(axes) == 2], np.int64)
    return pairs if len(pairs) <= MOST_PAIRS else pairs[:0]


def _nodes(degree: int) -> Floats:
    """The basis polynomials of all degrees up to this one at the ends of the cells, by the recursion of `basis`."""
    at = np.arange(CELLS + 1) / CELLS
    table = np.zeros((degree + 1, degree + 1, CELLS + 1))
    table[0, 0] = 1.0
    for n in range(1, degree + 1):
        table[n, 0] = (1.0 - at) * table[n - 1, 0]
        table[n, 1:] = (1.0 - at) * table[n - 1, 1:] + at * table[n - 1, :-1]
    return table


def _slope_ranges(
    weight: Floats, flat: Floats, terms: list[tuple[tuple[int, ...], Floats]], begin: Ints
) -> tuple[Floats, Floats]:
    """The least and greatest slope of each class along each axis: those of the control nets, rounded outwards."""
    low, high = weight.copy(), weight.copy()
    for (axes, c), first in zip(terms, begin, strict=False):
        net = flat[:, first : first + c[0].size].reshape(c.shape)
        for number, axis in enumerate(axes):
            slopes = np.diff(net, axis=number + 1).reshape(len(net), -1) * (c.shape[number + 1] - 1)
            low[:, axis] += slopes.min(axis=1)
            high[:, axis] += slopes.max(axis=1)
    slack = 8 * ROUNDOFF * (1 + sum(2 * max(c.shape[1:]) for _, c in terms)) * (len(terms) + 1)
    return low - slack, high + slack


def _errors(
    weight: Floats,
    bias: Floats,
    flat: Floats,
    terms: list[tuple[tuple[int, ...], Floats]],
    begin: Ints,
    exponent: int,
) -> tuple[float, float]:
    """Bounds of the rounding of a margin, and of a minorant: every operation on coefficients is a convex combination.

    The first is twice the law of `SumHead.forward`, and what underflow adds when numbers are tiny. The second counts,
    for each term, the difference of two classes, its restriction to a box, cross-sections, elevation and addition.
    """
    dim, count = weight.shape[1], len(terms)
    affine = np.abs(bias) + np.abs(weight).sum(axis=1)
    logit = (dim + count + 2) * affine
    minorant = 4.0 * (len(bias) + 3 * dim + count + 8) * float(affine.max())
    top = max((max(c.shape[1:]) for _, c in terms), default=2)
    for (_, c), first in zip(terms, begin, strict=False):
        m, degrees = c.ndim - 1, [size - 1 for size in c.shape[1:]]
        size = np.abs(flat[:, first : first + c[0].size]).max(axis=1)
        logit = logit + (m * (4 * max(degrees) + 3) + count + 4) * size
        cutting, crossing = sum(8 * n + 4 for n in degrees), sum(4 * n + 3 for n in degrees)
        steps = len(bias) + 4 + cutting + 2 * m * crossing + m * (4 * top + count + dim + 8)
        minorant += 2.0 * steps * float(size.max())
    underflow = math.ldexp(64.0 * (dim + 2 + sum(c.ndim * max(c.shape) for _, c in terms)), -1074 - min(exponent, 0))
    return 2.02 * ROUNDOFF * float(logit.max()) + underflow, 1.1 * ROUNDOFF * minorant + underflow


def allocate_sum(problem: SumProblem) -> SumMemory:
    """Memory for one thread."""
    (classes, dim), n = problem.weight.shape, problem.coefficients.shape[1]
    widest = int(problem.degree.max()) + 1
    largest = int(np.diff(problem.begin).max(initial=1))
    axes = int(np.diff(problem.place).max(initial=1))
    pairs = sum(m * (m - 1) // 2 for m in np.diff(problem.place).tolist())
    room = (axes + 2) * largest + 16
    return SumMemory(
        table=_allocate_table(problem, widest),
        affine=AffineMemory(*(np.empty(classes) for _ in range(2)), *(np.empty(dim) for _ in range(9))),
        mix=np.zeros(classes), margin=np.empty(n), cut=np.empty(n), slope=np.empty(dim), lines=np.empty((dim, widest)),
        together=np.empty(pairs), **{name: np.empty(dim) for name in ("load", "bear", "bend")},
        **{name: np.empty(dim) for name in ("box_low", "box_high", "low", "high", "centre")},
        **{name: np.empty(dim) for name in ("least", "before", "after", "kept", "floor")},
        **{name: np.empty(dim) for name in ("path_low", "path_high", "x", "gradient", "scale")},
        here=np.empty(room), there=np.empty(room),
        scratch=np.empty((4, widest + 2)), point=np.empty(axes), partial=np.empty(axes),
        cells=np.empty((MOST_HALVINGS + 6, widest)), ends=np.empty((MOST_HALVINGS + 6, 3)), work=np.empty(widest + 2),
    )  # fmt: skip


def _allocate_table(problem: SumProblem, widest: int) -> CellTable:
    pairs, dim = len(problem.pairs), len(problem.degree)
    of_axis: list[list[tuple[int, int, int]]] = [[] for _ in range(dim)]
    for pair, term in enumerate(problem.pairs.tolist()):
        one, two = problem.axes[problem.place[term] : problem.place[term] + 2].tolist()
        of_axis[one].append((pair, 0, two))
        of_axis[two].append((pair, 1, one))
    flat = np.array([entry for entries in of_axis for entry in entries], np.int64).reshape(-1, 3)
    pair_of, side_of, partner = (np.ascontiguousarray(column) for column in flat.T)
    count = np.array([len(entries) for entries in of_axis], np.int64)
    bent = dim if pairs else 0
    return CellTable(
        first_pair=np.cumsum([0, *count]), pair_of=pair_of, side_of=side_of, partner=partner, nodes=_nodes(widest - 1),
        live=np.zeros(pairs, np.bool_), joined=count, least=np.empty((pairs, 2, CELLS, CELLS)),
        message=np.empty((pairs, 2, CELLS)), rest=np.empty(pairs), axis=np.empty((bent, 3, CELLS)),
        given=np.empty((count.max(), CELLS)), lines=np.empty((bent, CELLS, widest)),
        strips=np.empty((3, widest, CELLS + 1)), corners=np.empty((3, CELLS + 1, CELLS + 1)),
    )  # fmt: skip
