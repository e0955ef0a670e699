"""Compiled kernels: a sum of small polynomials on a box, bounded from below by a sum of functions of one axis each.

Terms in one feature are such functions already. A term in several is at least its cross-sections through a centre,
less what the axes do together: with |d^2 f / dx_i dx_j| <= M on the box and u = x - centre,

    f(x) >= f(centre) + sum of (f(centre + u_i) - f(centre)) - sum over i < j of M_ij |u_i| |u_j|,

and M |u_i| |u_j| <= M/2 (r u_i^2 + u_j^2 / r) for any ratio r. At the centre nothing is lost, and nothing of first
order near it: where the price for distance is bent more than M, the bound is that of the sum itself.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from berncert.certification.kernels.affine import AffineMemory
from berncert.certification.kernels.compiled import kernel, part
from berncert.certification.kernels.line import (
    MOST_HALVINGS,
    add_elevated,
    cost_at,
    curve_at,
    least_on_line,
    restrict_axis,
)
from berncert.certification.kernels.problem import LARGEST_COEFFICIENT
from berncert.certification.kernels.tensor import ROUNDOFF, basis, contract, copy, value_and_gradient, value_at
from berncert.foundation.arrays import Floats, Ints

MOST_SHIFTED = 8.0  # how much more than its part an axis takes over from one that can bear nothing


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


class SumMemory(NamedTuple):
    """Room for one thread to work in."""

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
        flattest, steepest, norm, tolerance, max_boxes, *_errors(weight, bias, flat, terms, begin, exponent),
    )  # fmt: skip
    return problem, exponent


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
        affine=AffineMemory(*(np.empty(classes) for _ in range(2)), *(np.empty(dim) for _ in range(9))),
        mix=np.zeros(classes), margin=np.empty(n), cut=np.empty(n), slope=np.empty(dim), lines=np.empty((dim, widest)),
        together=np.empty(pairs), **{name: np.empty(dim) for name in ("load", "bear", "bend")},
        **{name: np.empty(dim) for name in ("box_low", "box_high", "low", "high", "centre")},
        **{name: np.empty(dim) for name in ("least", "before", "after", "kept", "x", "gradient", "scale")},
        here=np.empty(room), there=np.empty(room),
        scratch=np.empty((4, widest + 2)), point=np.empty(axes), partial=np.empty(axes),
        cells=np.empty((MOST_HALVINGS + 6, widest)), ends=np.empty((MOST_HALVINGS + 6, 3)), work=np.empty(widest + 2),
    )  # fmt: skip


@part
def mix_classes(problem: SumProblem, memory: SumMemory) -> None:
    """The margin that memory.mix says: its affine slopes and the coefficients of its terms."""
    memory.slope[:] = 0.0
    memory.margin[:] = 0.0
    for k in range(memory.mix.size):
        piece = memory.mix[k]
        if piece != 0.0:
            for j in range(memory.slope.size):
                memory.slope[j] += piece * problem.weight[k, j]
            for i in range(memory.margin.size):
                memory.margin[i] += piece * problem.coefficients[k, i]


@part
def margin_of(problem: SumProblem, memory: SumMemory, ahead: int, behind: int) -> None:
    """Make the margin of one class over another the one at hand; -1 stands for no class."""
    memory.mix[:] = 0.0
    if ahead >= 0:
        memory.mix[ahead] = 1.0
    if behind >= 0:
        memory.mix[behind] = -1.0
    mix_classes(problem, memory)


@part
def constant_of(problem: SumProblem, memory: SumMemory) -> float:
    """The constant of the affine part of the margin at hand."""
    total = 0.0
    for k in range(memory.mix.size):
        if memory.mix[k] != 0.0:
            total += memory.mix[k] * problem.bias[k]
    return total


@kernel
def sum_at(problem: SumProblem, memory: SumMemory, k: int, x: Floats) -> float:
    """The logit of class k at a point of the cube, added up in a fixed order."""
    total = problem.bias[k]
    for j in range(x.size):
        total += problem.weight[k, j] * x[j]
    for term in range(problem.begin.size - 1):
        first, last = problem.place[term], problem.place[term + 1]
        for i in range(last - first):
            memory.point[i] = x[problem.axes[first + i]]
        b = problem.coefficients[k, problem.begin[term] : problem.begin[term + 1]]
        total += value_at(b, problem.sizes[first:last], memory.point, memory.here, memory.there, memory.scratch)
    return float(total)


@part
def margin_at(problem: SumProblem, memory: SumMemory, x: Floats) -> float:
    """The margin at hand at a point of the cube; its gradient goes to memory.gradient."""
    total = constant_of(problem, memory)
    for j in range(x.size):
        total += memory.slope[j] * x[j]
        memory.gradient[j] = memory.slope[j]
    for term in range(problem.begin.size - 1):
        first, last = problem.place[term], problem.place[term + 1]
        for i in range(last - first):
            memory.point[i] = x[problem.axes[first + i]]
        b = memory.margin[problem.begin[term] : problem.begin[term + 1]]
        total += value_and_gradient(
            b, problem.sizes[first:last], memory.point, memory.partial, memory.here, memory.there, memory.scratch
        )
        for i in range(last - first):
            memory.gradient[problem.axes[first + i]] += memory.partial[i]
    return float(total)


@part
def cut_terms(problem: SumProblem, memory: SumMemory) -> None:
    """The terms of the margin at hand on the box at hand."""
    copy(memory.margin, memory.margin.size, memory.cut)
    for term in range(problem.begin.size - 1):
        b = memory.cut[problem.begin[term] : problem.begin[term + 1]]
        rest = b.size
        for i in range(problem.place[term], problem.place[term + 1]):
            axis, size = problem.axes[i], problem.sizes[i]
            rest //= size
            restrict_axis(b, size, rest, memory.low[axis], memory.high[axis])


@part
def lay_lines(problem: SumProblem, memory: SumMemory) -> float:
    """The minorant of the margin on the box, around memory.centre: its constant; the rest is left in memory."""
    constant = constant_of(problem, memory)
    for j in range(memory.low.size):
        n = problem.degree[j]
        for k in range(n + 1):
            at = memory.low[j] + (memory.high[j] - memory.low[j]) * (k / n)
            memory.lines[j, k] = memory.slope[j] * at
    pair = 0
    for term in range(problem.begin.size - 1):
        first, last = problem.place[term], problem.place[term + 1]
        b = memory.cut[problem.begin[term] : problem.begin[term + 1]]
        if last - first == 1:
            axis = problem.axes[first]
            add_elevated(b, b.size, memory.lines[axis], problem.degree[axis] + 1, memory.work)
            continue
        for i in range(first, last):
            axis = problem.axes[i]
            width = memory.high[axis] - memory.low[axis]
            piece = (memory.centre[axis] - memory.low[axis]) / width if width > 0.0 else 0.0
            memory.point[i - first] = min(1.0, max(0.0, piece))
        sizes = problem.sizes[first:last]
        for i in range(last - first):
            size = cross_section(b, sizes, memory.point, i, memory.here, memory.there, memory.scratch[0])
            axis = problem.axes[first + i]
            add_elevated(memory.here, size, memory.lines[axis], problem.degree[axis] + 1, memory.work)
        constant -= (last - first - 1) * value_at(b, sizes, memory.point, memory.here, memory.there, memory.scratch)
        pair = bend_together(problem, memory, b, first, last, pair)
    return constant


@part
def cross_section(b: Floats, sizes: Ints, at: Floats, axis: int, here: Floats, there: Floats, weights: Floats) -> int:
    """The polynomial along one axis, the others held at a point: written to `here`; returns its size."""
    source = here
    target = there
    copy(b, b.size, source)
    count, rest = 1, b.size
    for j in range(sizes.size):
        rest //= sizes[j]
        if j == axis:
            count = sizes[j]
            continue
        basis(sizes[j] - 1, at[j], weights)
        contract(source, count, sizes[j], rest, weights, target)
        source, target = target, source
    for k in range(count):
        here[k] = source[k]
    return count


@part
def bend_together(problem: SumProblem, memory: SumMemory, b: Floats, first: int, last: int, pair: int) -> int:
    """For each pair of axes of a term, how much less than its cross-sections it may be, per u_i u_j; the next pair."""
    largest = 0.0
    for v in b:
        largest = max(largest, abs(v))
    outer = b.size
    for i in range(first, last):
        outer //= problem.sizes[i]
        one = problem.axes[i]
        back, on = memory.centre[one] - memory.low[one], memory.high[one] - memory.centre[one]
        inner = outer
        for j in range(i + 1, last):
            inner //= problem.sizes[j]
            two = problem.axes[j]
            back_two, on_two = memory.centre[two] - memory.low[two], memory.high[two] - memory.centre[two]
            memory.together[pair] = 0.0
            if back + on > 0.0 and back_two + on_two > 0.0:
                flattest, steepest = twist(b, outer, problem.sizes[i], inner, problem.sizes[j])
                worst = 0.0
                if (back > 0.0 and back_two > 0.0) or (on > 0.0 and on_two > 0.0):
                    worst = max(worst, -flattest)
                if (back > 0.0 and on_two > 0.0) or (on > 0.0 and back_two > 0.0):
                    worst = max(worst, steepest)
                n = (problem.sizes[i] - 1.0) * (problem.sizes[j] - 1.0) * (1.0 + 32.0 * ROUNDOFF)
                memory.together[pair] = (worst + 8.0 * ROUNDOFF * largest) * n / ((back + on) * (back_two + on_two))
            pair += 1
    return pair


@part
def share_bends(problem: SumProblem, memory: SumMemory, x0: Floats, pull: float, price: float) -> None:
    """Divide M |u_i| |u_j| <= a u_i^2 + b u_j^2, 4 a b = M^2, between the axes: to each what it can bear.

    Any division is sound. With price 0, and where neither axis can bear anything, by how far they go.
    """
    memory.bend[:] = 0.0
    memory.load[:] = 0.0
    for turn in range(2):
        pair = 0
        for term in range(problem.begin.size - 1):
            for i in range(problem.place[term], problem.place[term + 1]):
                for j in range(i + 1, problem.place[term + 1]):
                    if turn == 0:
                        memory.load[problem.axes[i]] += memory.together[pair]
                        memory.load[problem.axes[j]] += memory.together[pair]
                    elif memory.together[pair] > 0.0:
                        share_pair(memory, problem.axes[i], problem.axes[j], memory.together[pair])
                    pair += 1
        if turn == 0:
            for j in range(x0.size):
                memory.bear[j] = 0.0
                if price > 0.0 and memory.load[j] > 0.0:
                    memory.bear[j] = bearable(problem, memory, x0, j, pull, price) / memory.load[j]


@part
def share_pair(memory: SumMemory, i: int, j: int, both: float) -> None:
    """Divide what two axes do together; `bear` is per unit of their load."""
    one, two = memory.bear[i] * both, memory.bear[j] * both
    far = max(memory.centre[i] - memory.low[i], memory.high[i] - memory.centre[i])
    far_two = max(memory.centre[j] - memory.low[j], memory.high[j] - memory.centre[j])
    mine = 0.5 * both * far_two / far
    if one > 0.0 and two > 0.0:
        mine = 0.5 * both * np.sqrt(one / two)
    elif one > 0.0:
        mine = max(mine, min(0.5 * one, MOST_SHIFTED * mine))
    elif two > 0.0:
        yours = 0.25 * both * both / mine
        mine = 0.25 * both * both / max(yours, min(0.5 * two, MOST_SHIFTED * yours))
    if not 1e-100 < mine < 1e100:
        mine = 0.5 * both
    memory.bend[i] += mine * (1.0 + 8.0 * ROUNDOFF)
    memory.bend[j] += 0.25 * both * both / mine * (1.0 + 8.0 * ROUNDOFF)


@part
def bearable(problem: SumProblem, memory: SumMemory, x0: Floats, j: int, pull: float, price: float) -> float:
    """The greatest bend that leaves the centre the best of a few points along an axis, if it is."""
    least = np.inf
    centre = memory.centre[j]
    here = line_value(problem, memory, x0, j, centre, pull, price)
    for end in (memory.low[j], memory.high[j]):
        for piece in (0.05, 0.2, 0.4, 0.6, 0.8, 1.0):
            u = piece * (end - centre)
            if u != 0.0:
                rise = line_value(problem, memory, x0, j, centre + u, pull, price) - here
                least = min(least, rise / (price * u * u))
    return least if least < np.inf else 0.0


@part
def line_value(
    problem: SumProblem, memory: SumMemory, x0: Floats, j: int, x: float, pull: float, price: float
) -> float:
    """What an axis adds at x, without bends."""
    width = memory.high[j] - memory.low[j]
    s = min(1.0, max(0.0, (x - memory.low[j]) / width)) if width > 0.0 else 0.0
    value, _, _ = curve_at(memory.lines[j], problem.degree[j], s, memory.work)
    cost = pull * cost_at(x - x0[j], memory.scale[j], problem.norm) if pull > 0.0 else 0.0
    return float(cost + price * value)


@part
def twist(b: Floats, outer: int, size: int, inner: int, other: int) -> tuple[float, float]:
    """The least and the greatest of the mixed differences along two axes, of strides `outer` and `inner`."""
    flattest, steepest = np.inf, -np.inf
    for i in range(b.size - outer):
        if (i // outer) % size < size - 1 and (i // inner) % other < other - 1:
            both = (b[i + outer + inner] - b[i + outer]) - (b[i + inner] - b[i])
            flattest = min(flattest, both)
            steepest = max(steepest, both)
    return flattest, steepest


@part
def least_of_lines(
    problem: SumProblem, memory: SumMemory, x0: Floats, constant: float, pull: float, price: float, tolerance: float
) -> tuple[float, float, float]:
    """A lower bound of pull norm(scale (x - x0))^p + price margin(x) on the box: (it, the minorant there, the cost).

    memory.least is left where the sum of the lines is nearly least. The margin includes the given constant.
    """
    d = memory.low.size
    total = price * constant
    size = abs(total)
    value, cost = constant, 0.0
    for j in range(d):
        bound, where, paid, piece = least_on_line(
            memory.lines[j], problem.degree[j], memory.low[j], memory.high[j], memory.bend[j], memory.centre[j], x0[j],
            memory.scale[j], problem.norm, pull, price, tolerance, memory.cells, memory.ends, memory.work,
        )  # fmt: skip
        memory.least[j] = where
        total += bound
        size += abs(bound)
        value += piece
        cost += paid
    return total - (d + 8) * ROUNDOFF * size, value, cost
