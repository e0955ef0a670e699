"""Compiled kernels: a sum on a box, its pairs of features bounded cell by cell, by messages between features.

Every axis of the box is divided into cells. Of a term in two features, what its cross-sections through the centre leave
over has a lower bound for each pair of cells; each axis has a bound of everything else for each of its cells. The least
sum of these, over all choices of a cell for each axis, is below what is looked for. Numbers may be moved between an
axis and its pairs, the messages: any are sound, and the sum of the least of all parts, which is the bound, grows as
they agree. All pairs are taken into account at once, where squares for each pair would add up the worst of each.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import part
from berncert.certification.kernels.line import cost_at, least_on_line
from berncert.certification.kernels.sum_problem import CELLS, CellTable, SumMemory, SumProblem
from berncert.certification.kernels.sums import line_value, margin_at, shave_axis
from berncert.certification.kernels.tensor import ROUNDOFF, basis, copy
from berncert.foundation.arrays import Floats

SWEEPS = 8  # of messages, there and back, for one price
PRICES = 6  # tried for one box
UNARY, BELIEF, WHERE = 0, 1, 2  # of a cell: what it costs, and with its pairs; where in it that is least
APART = 1.1  # prices nearer than this factor are the same
EIGHTH = 0.125 / CELLS**2  # what a curvature of 1 does within a cell, as a part of the whole box


@part
def lay_cells(problem: SumProblem, memory: SumMemory) -> None:
    """The terms in two features on the box at hand, by cells; `lay_lines` was called, and bends are not for them."""
    table = memory.table
    table.joined[:] = 0
    pair, number = 0, 0
    for term in range(problem.begin.size - 1):
        first = problem.place[term]
        count = problem.place[term + 1] - first
        if count == 2:
            largest = 0.0
            for v in memory.margin[problem.begin[term] : problem.begin[term + 1]]:
                largest = max(largest, abs(v))
            table.live[number] = largest > 0.0
            if largest > 0.0:
                for side in range(2):
                    j = problem.axes[first + side]
                    table.joined[j] += 1
                    s = part_of(memory.low[j], memory.high[j], memory.centre[j])
                    away_from(table, s, problem.sizes[first + side] - 1, side, memory.work)
                b = memory.cut[problem.begin[term] : problem.begin[term + 1]]
                lay_pair(table, number, b, problem.sizes[first] - 1, problem.sizes[first + 1] - 1, largest, memory.here)
                memory.together[pair] = 0.0
            number += 1
        pair += count * (count - 1) // 2
    for j in range(memory.low.size):
        if table.joined[j] > 0:
            divide_line(memory.lines[j], problem.degree[j], table.lines[j])


@part
def away_from(table: CellTable, centre: float, n: int, side: int, weights: Floats) -> None:
    """The basis polynomials of degree n at the ends of the cells, less those at the centre: (n + 1, CELLS + 1)."""
    basis(n, centre, weights)
    out, nodes = table.strips[side], table.nodes[n]
    for k in range(n + 1):
        for i in range(CELLS + 1):
            out[k, i] = nodes[k, i] - weights[k]


@part
def lay_pair(table: CellTable, number: int, b: Floats, n: int, m: int, largest: float, bows: Floats) -> None:
    """For each pair of cells a bound of one term less its cross-sections: the least corner, less what bows between.

    Between the corners of a cell, a function is at least the least of them less an eighth of the greatest second
    derivatives along its two axes, if these are positive; and those exceed their own corners in the same way.
    """
    across, along, strips = table.strips[0], table.strips[1], table.strips[2]
    corner = table.corners[0]
    spread(b, n + 1, m + 1, across, along, strips, corner)
    bow, other = 0.0, 0.0
    table.corners[1:] = 0.0
    if n > 1:
        bow = second_differences(b, n, m, True, bows)
        spread(bows, n - 1, m + 1, table.nodes[n - 2], along, strips, table.corners[1])
    if m > 1:
        other = second_differences(b, n, m, False, bows)
        spread(bows, n + 1, m - 1, across, table.nodes[m - 2], strips, table.corners[2])
    slack = ROUNDOFF * largest * (96.0 * (n + m + 4) + n * n + m * m)
    first, second = table.least[number, 0], table.least[number, 1]
    for k in range(CELLS):
        for i in range(CELLS):
            up = max(0.0, greatest_corner(table.corners[1], k, i) + bow)
            up += max(0.0, greatest_corner(table.corners[2], k, i) + other)
            low = min(min(corner[k, i], corner[k + 1, i]), min(corner[k, i + 1], corner[k + 1, i + 1]))
            low -= EIGHTH * up + slack
            first[i, k] = low  # the axis's own cell comes last
            second[k, i] = low


@part
def spread(b: Floats, rows: int, columns: int, across: Floats, along: Floats, strips: Floats, out: Floats) -> None:
    """out[k, l] = the sum of b[i, j] across[i, k] along[j, l]."""
    for i in range(rows):
        strip = strips[i]
        strip[:] = 0.0
        for j in range(columns):
            v, line = b[i * columns + j], along[j]
            for c in range(CELLS + 1):
                strip[c] += v * line[c]
    for k in range(CELLS + 1):
        row = out[k]
        row[:] = 0.0
        for i in range(rows):
            v, strip = across[i, k], strips[i]
            for c in range(CELLS + 1):
                row[c] += v * strip[c]


@part
def second_differences(b: Floats, n: int, m: int, first: bool, out: Floats) -> float:
    """The coefficients of the second derivative along the first axis or the other; how much more it is inside a cell.

    Inside, the second derivative, less its cross-section, exceeds its values at the corners by the second derivatives
    that it has itself.
    """
    rows, columns = (n - 1, m + 1) if first else (n + 1, m - 1)
    step, size = (m + 1, n) if first else (1, m)
    for i in range(rows):
        for j in range(columns):
            at = i * (m + 1) + j
            bow = (b[at + 2 * step] - b[at + step]) - (b[at + step] - b[at])
            out[i * columns + j] = size * (size - 1) * bow
    same, other = 0.0, 0.0
    for i in range(rows):
        for j in range(columns):
            at = i * columns + j
            if i + 2 < rows:
                bow = abs((out[at + 2 * columns] - out[at + columns]) - (out[at + columns] - out[at]))
                same, other = (max(same, bow), other) if first else (same, max(other, bow))
            if j + 2 < columns:
                bow = abs((out[at + 2] - out[at + 1]) - (out[at + 1] - out[at]))
                same, other = (same, max(other, bow)) if first else (max(same, bow), other)
    rest = m if first else n
    return EIGHTH * (2.0 * (size - 2) * (size - 3) * same + rest * (rest - 1) * other)


@part
def greatest_corner(values: Floats, k: int, i: int) -> float:
    """The greatest of the values at the corners of a cell."""
    return float(max(max(values[k, i], values[k + 1, i]), max(values[k, i + 1], values[k + 1, i + 1])))


@part
def divide_line(line: Floats, n: int, pieces: Floats) -> None:
    """The line of an axis on each of its cells."""
    copy(line, n + 1, pieces[0])
    width = CELLS
    while width > 1:
        width //= 2
        for at in range(0, CELLS, 2 * width):  # one piece at `at` becomes two, at `at` and `at + width`
            lower, upper = pieces[at], pieces[at + width]
            copy(lower, n + 1, upper)
            for r in range(1, n + 1):
                for k in range(n + 1 - r):
                    upper[k] = 0.5 * upper[k] + 0.5 * upper[k + 1]
                lower[r] = upper[0]


@part
def end_of_cell(low: float, high: float, k: int) -> float:
    """Where cell k of an interval begins, and the one before it ends."""
    return high if k == CELLS else float(min(high, low + (high - low) * (k / CELLS)))


@part
def part_of(low: float, high: float, x: float) -> float:
    """Where x is between the ends, from 0 to 1."""
    return min(1.0, max(0.0, (x - low) / (high - low))) if high > low else 0.0


@part
def cell_of(low: float, high: float, x: float) -> int:
    """The cell in which x is."""
    return min(CELLS - 1, int(part_of(low, high, x) * CELLS))


@part
def price_cells(
    problem: SumProblem, memory: SumMemory, x0: Floats, pull: float, price: float, tolerance: float
) -> tuple[float, float]:
    """What each cell of an axis costs, in units of the margin; of axes without pairs the whole: (its sum, rounding)."""
    table = memory.table
    total, size = 0.0, 0.0
    for j in range(x0.size):
        n, low, high = problem.degree[j], memory.low[j], memory.high[j]
        cells = CELLS if table.joined[j] > 0 else 1
        most, noise = 0.0, 0.0
        for k in range(n + 1):
            noise = max(noise, 16.0 * n * ROUNDOFF * abs(memory.lines[j, k]))
        for k in range(cells):
            left = low if cells == 1 else end_of_cell(low, high, k)
            right = high if cells == 1 else end_of_cell(low, high, k + 1)
            bound, where, _, _ = least_on_line(
                table.lines[j, k] if cells > 1 else memory.lines[j], n, left, right, memory.bend[j], memory.centre[j],
                x0[j], memory.scale[j], problem.norm, pull, price, tolerance, memory.cells, memory.ends, memory.work,
            )  # fmt: skip
            most = max(most, abs(bound / price))
            if cells == 1:
                memory.least[j], memory.floor[j] = where, bound
                total += bound / price
            else:
                table.axis[j, UNARY, k], table.axis[j, WHERE, k] = bound / price - noise, where
        size += (table.joined[j] + 2.0) * most
    return total, size


@part
def pass_messages(table: CellTable, j: int) -> None:
    """Collect at an axis what its pairs can give, and leave each with an equal part of the sum."""
    belief = table.axis[j, BELIEF]
    copy(table.axis[j, UNARY], CELLS, belief)
    count = 0
    for i in range(table.first_pair[j], table.first_pair[j + 1]):
        pair, side = table.pair_of[i], table.side_of[i]
        if table.live[pair]:
            given = table.given[count]
            given[:] = np.inf
            for other in range(CELLS):
                least, paid = table.least[pair, side, other], table.message[pair, 1 - side, other]
                for k in range(CELLS):
                    v = least[k] - paid
                    given[k] = v if v < given[k] else given[k]
            for k in range(CELLS):
                belief[k] += given[k]
            count += 1
    part = 1.0 / (count + 1)
    count = 0
    for i in range(table.first_pair[j], table.first_pair[j + 1]):
        pair, side = table.pair_of[i], table.side_of[i]
        if table.live[pair]:
            message, given = table.message[pair, side], table.given[count]
            for k in range(CELLS):
                message[k] = given[k] - part * belief[k]
            count += 1


@part
def sum_of_parts(table: CellTable, place: Floats) -> tuple[float, float]:
    """The least of every axis with its messages, and what is left of every pair, at least: (the sum, rounding).

    The places where the axes are least are written.
    """
    total, largest, count = 0.0, 0.0, 0
    for j in range(place.size):
        if table.joined[j] == 0:
            continue
        belief = table.axis[j, BELIEF]
        copy(table.axis[j, UNARY], CELLS, belief)
        for i in range(table.first_pair[j], table.first_pair[j + 1]):
            pair, side = table.pair_of[i], table.side_of[i]
            if table.live[pair]:
                message = table.message[pair, side]
                for k in range(CELLS):
                    belief[k] += message[k]
                    largest = max(largest, abs(message[k]))
        best = 0
        for k in range(1, CELLS):
            if belief[k] < belief[best]:
                best = k
        place[j] = table.axis[j, WHERE, best]
        total += belief[best]
    for pair in range(table.live.size):
        if table.live[pair]:
            found, other, sums = np.inf, table.message[pair, 1], table.given[0]
            sums[:] = np.inf
            for k in range(sums.size):
                row, paid = table.least[pair, 1, k], table.message[pair, 0, k]
                for i in range(sums.size):
                    v = (row[i] - paid) - other[i]
                    sums[i] = v if v < sums[i] else sums[i]
            for v in sums:
                found = min(found, v)
            table.rest[pair] = found
            total += found
            count += 1
    return total, 16.0 * (largest + 4.0) * (count + 1.0) * (count + 1.0)


@part
def least_of_cells(
    problem: SumProblem, memory: SumMemory, x0: Floats, constant: float, pull: float, price: float, tolerance: float
) -> tuple[float, float]:
    """A lower bound of pull norm(scale (x - x0))^p + price margin(x) on the box, and twice what rounding may do to it.

    memory.least is left where the bound's parts are least, which is a guess of where the sum is.
    """
    table = memory.table
    total, size = price_cells(problem, memory, x0, pull, price, tolerance)
    for sweep in range(2 * SWEEPS):
        for turn in range(x0.size):
            j = turn if sweep % 2 == 0 else x0.size - 1 - turn
            if table.joined[j] > 0:
                pass_messages(table, j)
    parts, more = sum_of_parts(table, memory.least)
    noise = 2.0 * (x0.size + table.live.size + 16.0) * ROUNDOFF * (size + more + abs(constant)) * price
    return price * (total + parts + constant) - 0.5 * noise, noise


@part
def climb_cells(
    problem: SumProblem, memory: SumMemory, x0: Floats, constant: float, enough: float, price: float, tolerance: float
) -> tuple[float, float]:
    """The greatest bound found with pull 1, and its price. Any price is sound; the best leaves the margin at 0."""
    best, chosen = -np.inf, price
    low, high = 0.0, np.inf
    for turn in range(PRICES):
        found, _ = least_of_cells(problem, memory, x0, constant, 1.0, price, tolerance)
        if turn == 0:
            copy(memory.least, x0.size, memory.before)
            copy(memory.least, x0.size, memory.after)
        if found > best:
            best, chosen = found, price
            copy(memory.least, x0.size, memory.kept)
        if best >= enough:
            break
        if margin_at(problem, memory, memory.least) > 0.0:
            low = price
            copy(memory.least, x0.size, memory.before)
        else:
            high = price
            copy(memory.least, x0.size, memory.after)
        if high <= low * APART:
            break
        price = 1.6 * price if high == np.inf else (price / 1.6 if low == 0.0 else np.sqrt(low * high))
        if not 1e-200 < price < 1e200:
            break
    return best, chosen


@part
def climb_ball_cells(
    problem: SumProblem, memory: SumMemory, x0: Floats, constant: float, enough: float, pull: float, tolerance: float
) -> tuple[float, float]:
    """The greatest bound of the margin within the ball that multipliers give, and its multiplier: any are sound."""
    best, chosen = -np.inf, pull
    low, high = 0.0, np.inf
    for turn in range(PRICES):
        total, _ = least_of_cells(problem, memory, x0, constant, pull, 1.0, tolerance)
        found = total - pull * (1.0 + (4.0 * problem.norm + 64.0) * ROUNDOFF)
        if turn == 0:
            copy(memory.least, x0.size, memory.before)
            copy(memory.least, x0.size, memory.after)
        if found > best:
            best, chosen = found, pull
            copy(memory.least, x0.size, memory.kept)
        if best >= enough:
            break
        cost = 0.0
        for j in range(x0.size):
            cost += cost_at(memory.least[j] - x0[j], memory.scale[j], problem.norm)
        if cost > 1.0:
            low = pull
            copy(memory.least, x0.size, memory.before)
        else:
            high = pull
            copy(memory.least, x0.size, memory.after)
        if high <= low * APART or high == 0.0:
            break
        if high == np.inf:
            pull = max(2.0 * pull, abs(total) + tolerance)
        else:
            pull = 0.5 * high if low == 0.0 else np.sqrt(low * high)
    return best, chosen


@part
def shave_cells(
    problem: SumProblem, memory: SumMemory, x0: Floats, pull: float, price: float, total: float, noise: float,
    enough: float,
) -> float:  # fmt: skip
    """As `shave`, after `least_of_cells`: cells at the ends go whose best is not below what is enough."""
    table, fallen = memory.table, 0.0
    spare = enough - total + 2.0 * noise + 16.0 * ROUNDOFF * (abs(enough) + abs(total))
    for j in range(x0.size):
        low, high = memory.low[j], memory.high[j]
        if table.joined[j] == 0:
            fallen += shave_axis(problem, memory, x0, pull, price, j, spare)
            continue
        belief = table.axis[j, BELIEF]
        most = belief[0]
        for k in range(CELLS):
            most = min(most, belief[k])
        most += spare / price
        first, last = 0, CELLS
        while first < CELLS and belief[first] >= most:
            first += 1
        while last > first and belief[last - 1] >= most:
            last -= 1
        if first == last:
            return np.inf
        if high > low and (first > 0 or last < CELLS):
            memory.low[j] = memory.box_low[j] = end_of_cell(low, high, first)
            memory.high[j] = memory.box_high[j] = end_of_cell(low, high, last)
            fallen -= np.log(max(1e-6, (memory.high[j] - memory.low[j]) / (high - low)))
    return fallen


@part
def worst_axis_of_cells(
    problem: SumProblem, memory: SumMemory, x0: Floats, pull: float, price: float
) -> tuple[int, float]:
    """The axis to halve, and where: where the best cells below and above the best price differ, or where cells lose."""
    table, harm = memory.table, memory.load
    harm[:] = 0.0
    for number in range(problem.pairs.size):
        if table.live[number]:
            first = problem.place[problem.pairs[number]]
            lost = 0.5 * max(0.0, lost_by_pair(problem, memory, number, problem.axes[first], problem.axes[first + 1]))
            harm[problem.axes[first]] += lost
            harm[problem.axes[first + 1]] += lost
    axis, most, place = -1, -1.0, 0.0
    for j in range(x0.size):
        low, high = memory.low[j], memory.high[j]
        if not high - low > 2.0**-44:
            continue
        lost, at = price * harm[j], 0.5 * (low + high)
        if memory.before[j] != memory.after[j]:
            between = 0.5 * (memory.before[j] + memory.after[j])
            if table.joined[j] > 0:
                belief = table.axis[j, BELIEF]
                jump = price * (belief[cell_of(low, high, between)] - belief[cell_of(low, high, memory.kept[j])])
            else:
                jump = line_value(problem, memory, x0, j, between, pull, price)
                jump -= line_value(problem, memory, x0, j, memory.kept[j], pull, price)
            if jump > lost:
                at = between
            lost += max(0.0, jump)
        if lost > most:
            axis, most, place = j, lost, at
    return axis, place


@part
def lost_by_pair(problem: SumProblem, memory: SumMemory, number: int, one: int, two: int) -> float:
    """How much less than the pair itself, where the bound's parts are least, its part of the bound is."""
    table, term = memory.table, problem.pairs[number]
    b = memory.cut[problem.begin[term] : problem.begin[term + 1]]
    n, m = problem.sizes[problem.place[term]] - 1, problem.sizes[problem.place[term] + 1] - 1
    weights, other = memory.scratch[0], memory.scratch[1]
    lost = -table.rest[number]
    lost -= table.message[number, 0, cell_of(memory.low[one], memory.high[one], memory.kept[one])]
    lost -= table.message[number, 1, cell_of(memory.low[two], memory.high[two], memory.kept[two])]
    for corner in range(4):  # the pair less its cross-sections
        x = memory.kept[one] if corner % 2 == 0 else memory.centre[one]
        y = memory.kept[two] if corner < 2 else memory.centre[two]
        basis(n, part_of(memory.low[one], memory.high[one], x), weights)
        basis(m, part_of(memory.low[two], memory.high[two], y), other)
        value = 0.0
        for r in range(n + 1):
            for c in range(m + 1):
                value += weights[r] * b[r * (m + 1) + c] * other[c]
        lost += value if corner == 0 or corner == 3 else -value
    return float(lost)
