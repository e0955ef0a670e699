"""Compiled kernels: a sum of small polynomials on a box, bounded from below by a sum of functions of one axis each.

Terms in one feature are such functions already. A term in several is at least its cross-sections through a centre,
less what the axes do together: with |d^2 f / dx_i dx_j| <= M on the box and u = x - centre,

    f(x) >= f(centre) + sum of (f(centre + u_i) - f(centre)) - sum over i < j of M_ij |u_i| |u_j|,

and M |u_i| |u_j| <= M/2 (r u_i^2 + u_j^2 / r) for any ratio r. At the centre nothing is lost, and nothing of first
order near it: where the price for distance is bent more than M, the bound is that of the sum itself.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import kernel, part
from berncert.certification.kernels.line import (
    add_elevated,
    cost_at,
    curve_at,
    least_on_line,
    restrict_axis,
    shave_side,
)
from berncert.certification.kernels.sum_problem import SumMemory, SumProblem
from berncert.certification.kernels.tensor import ROUNDOFF, basis, contract, copy, value_and_gradient, value_at
from berncert.foundation.arrays import Floats, Ints

MOST_SHIFTED = 8.0  # how much more than its part an axis takes over from one that can bear nothing


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
        memory.least[j], memory.floor[j] = where, bound
        total += bound
        size += abs(bound)
        value += piece
        cost += paid
    return total - (d + 8) * ROUNDOFF * size, value, cost


@part
def shave(
    problem: SumProblem, memory: SumMemory, x0: Floats, pull: float, price: float, total: float, enough: float
) -> float:
    """Move the ends of the box inwards, past points where pull norm(..)^p + price margin(x) is at least `enough`.

    `total` is the bound of `least_of_lines`, which was called last, with the same pull and price: where one axis alone
    exceeds its part of it by what is missing, no choice of the others helps. Returns by how much the logarithm of the
    volume has fallen; inf if nothing is left of the box.
    """
    fallen = 0.0
    spare = enough - total + 16.0 * ROUNDOFF * (abs(enough) + abs(total))
    for j in range(memory.low.size):
        fallen += shave_axis(problem, memory, x0, pull, price, j, spare)
    return fallen


@part
def shave_axis(
    problem: SumProblem, memory: SumMemory, x0: Floats, pull: float, price: float, j: int, spare: float
) -> float:
    """Move the ends of one axis inwards, past points that cost more than memory.floor by at least `spare`."""
    low, high = memory.low[j], memory.high[j]
    if not low < high:
        return 0.0
    most = memory.floor[j] + spare + 16.0 * ROUNDOFF * (abs(memory.floor[j]) + abs(spare))
    one, two = low, high
    for side in range(2):
        found = shave_side(
            memory.lines[j], problem.degree[j], low, high, memory.bend[j], memory.centre[j], x0[j], memory.scale[j],
            problem.norm, pull, price, most, side == 1, memory.cells, memory.ends,
        )  # fmt: skip
        one, two = (found, two) if side == 0 else (one, found)
    if not one <= two:
        return np.inf
    if not (one > low or two < high):
        return 0.0
    memory.low[j] = memory.box_low[j] = one
    memory.high[j] = memory.box_high[j] = two
    return float(-np.log(max(1e-6, (two - one) / (high - low))))
