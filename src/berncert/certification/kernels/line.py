"""Compiled kernels on one axis: the least value, proven, of a price for distance plus a polynomial on an interval.

    pull |w (x - x0)|^p + price (H(x) - bend (x - about)^2),    low <= x <= high,

H being in Bernstein form on the interval. The interval is halved until each cell is bounded by its ends and slopes, by
its ends and greatest curvature, or by a tangent and its least curvature: where the function rises, falls, or bends one
way only, that is exact, so few cells are needed. What is computed may be off by `slack`, which is subtracted.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import inlined, part
from berncert.certification.kernels.tensor import ROUNDOFF
from berncert.foundation.arrays import Floats

MOST_CELLS = 400  # of one interval; then what is left counts with the bounds that it has
MOST_HALVINGS = 40
MOST_SHAVINGS = 5  # halvings of an interval whose ends are moved inwards
NEWTON_STEPS = 8


@part
def restrict_axis(b: Floats, size: int, rest: int, low: float, high: float) -> None:
    """The coefficients on [low, high] of an axis, in place, for blocks of (size, rest): convex combinations only.

    Errors grow by at most 8 (size - 1) + 4 roundoffs of the greatest coefficient.
    """
    first = low / high if high > 0.0 else 0.0
    for start in range(0, b.size, size * rest):
        if high < 1.0:
            for r in range(1, size):
                for k in range(size - 1, r - 1, -1):
                    i = start + k * rest
                    for j in range(i, i + rest):
                        b[j] = (1.0 - high) * b[j - rest] + high * b[j]
        if first > 0.0:
            for r in range(1, size):
                for k in range(size - r):
                    i = start + k * rest
                    for j in range(i, i + rest):
                        b[j] = (1.0 - first) * b[j] + first * b[j + rest]


@part
def add_elevated(source: Floats, size: int, target: Floats, wanted: int, work: Floats) -> None:
    """Add a polynomial to one of a degree that is no lower; errors of at most 4 (wanted - size) roundoffs."""
    for k in range(size):
        work[k] = source[k]
    for now in range(size, wanted):  # from degree now - 1 to now
        work[now] = work[now - 1]
        for k in range(now - 1, 0, -1):
            part = k / now
            work[k] = part * work[k - 1] + (1.0 - part) * work[k]
    for k in range(wanted):
        target[k] += work[k]


@inlined
def cost_at(t: float, w: float, p: float) -> float:
    """|w t|^p"""
    v = abs(w * t)
    return v * v if p == 2.0 else (v if p == 1.0 else v**p)


@inlined
def cost_slope(t: float, w: float, p: float, side: float) -> float:
    """Its derivative by t; `side` is the sign of t where t is 0."""
    if p == 2.0:
        return 2.0 * w * w * t
    v = p * w if p == 1.0 else p * w * abs(w * t) ** (p - 1.0)
    return v if t > 0.0 or (t == 0.0 and side > 0.0) else -v


@inlined
def cost_curvature(t: float, w: float, p: float) -> float:
    """Its second derivative, which is inf at 0 for 1 < p < 2."""
    if p == 2.0:
        return 2.0 * w * w
    return 0.0 if p == 1.0 else p * (p - 1.0) * w * w * abs(w * t) ** (p - 2.0)


@part
def curve_at(c: Floats, n: int, s: float, work: Floats) -> tuple[float, float, float]:
    """Value, first and second derivative at s in [0, 1] of a polynomial of degree n >= 1 (de Casteljau)."""
    for k in range(n + 1):
        work[k] = c[k]
    bow = 0.0
    for r in range(n, 0, -1):
        if r == 2:
            bow = n * (n - 1) * ((work[2] - work[1]) - (work[1] - work[0]))
        if r == 1:
            slope = n * (work[1] - work[0])
        for k in range(r):
            work[k] = (1.0 - s) * work[k] + s * work[k + 1]
    return work[0], slope, bow


@part
def least_on_line(
    c: Floats,
    n: int,
    low: float,
    high: float,
    bend: float,
    about: float,
    x0: float,
    w: float,
    p: float,
    pull: float,
    price: float,
    tolerance: float,
    cells: Floats,
    ends: Floats,
    work: Floats,
) -> tuple[float, float, float, float]:
    """(a lower bound of the least value, where it nearly is, there |w (x - x0)|^p, there H(x) - bend (x - about)^2).

    cells, ends: room for MOST_HALVINGS + 4 cells. The bound is within the tolerance of the least value found, unless
    rounding or the number of cells forbids.
    """
    best, where, best_cost, best_value = np.inf, low, 0.0, 0.0
    closed = np.inf
    largest = 0.0
    for k in range(n + 1):
        cells[0, k] = c[k]
        largest = max(largest, abs(c[k]))
    ends[0, 0], ends[0, 1], ends[0, 2] = low, high, 0.0
    height = 1
    if pull > 0.0 and p != 2.0 and low < x0 < high:  # the price for distance has a kink, or none of the bounds below
        halve(cells, ends, 0, n, (x0 - low) / (high - low), x0)
        height = 2
    for count in range(MOST_CELLS):
        if height == 0:
            break
        height -= 1
        b = cells[height]
        left, right, depth = ends[height, 0], ends[height, 1], ends[height, 2]
        h = right - left
        side = 1.0 if left >= x0 else -1.0
        at_left, at_right, slope_left, slope_right, slack = cell_ends(
            b, n, left, right, depth, largest, bend, about, x0, w, p, pull, price, side
        )
        if at_left < best:
            best, where, best_value = at_left, left, b[0] - bend * (left - about) * (left - about)
        if at_right < best:
            best, where, best_value = at_right, right, b[n] - bend * (right - about) * (right - about)
        if not h > 0.0:
            closed = min(closed, min(at_left, at_right) - slack)
            continue
        lower = below_slopes(
            b, n, h, bend, left - about, right - about, price, at_left, at_right, slope_left, slope_right
        )
        if lower < best - tolerance:
            hollow, hump = bowing(b, n, left, right, bend, x0, w, p, pull, price)
            lower = max(lower, min(at_left, at_right) - 0.125 * max(0.0, hump))
            if lower < best - tolerance:
                s = 0.5
                from_s, to_s = 0.0, 1.0
                for _ in range(NEWTON_STEPS):
                    x = min(right, max(left, left + s * h))
                    value, slope, bow = curve_at(b, n, s, work)
                    value -= bend * (x - about) * (x - about)
                    slope = price * (slope - 2.0 * bend * (x - about) * h)
                    bow = price * (bow - 2.0 * bend * h * h)
                    total = price * value
                    if pull > 0.0:
                        total += pull * cost_at(x - x0, w, p)
                        slope += pull * cost_slope(x - x0, w, p, side) * h
                        bow += pull * cost_curvature(x - x0, w, p) * h * h
                    if total < best:
                        best, where, best_value = total, x, value
                    # below a tangent by no more than the least curvature allows, at an end or, bent upwards, inside
                    if hollow > 0.0:
                        under = total - 0.5 * slope * slope / hollow
                        under = max(under, total + min(-slope * s, slope * (1.0 - s)))
                    else:
                        under = total + min(
                            -slope * s + 0.5 * hollow * s * s, slope * (1.0 - s) + 0.5 * hollow * (1.0 - s) * (1.0 - s)
                        )
                    lower = max(lower, under)
                    if lower >= best - 0.5 * tolerance:
                        break
                    if slope > 0.0:
                        to_s = s
                    else:
                        from_s = s
                    s = s - slope / bow if bow > 0.0 else 0.5 * (from_s + to_s)
                    if not from_s < s < to_s:
                        s = 0.5 * (from_s + to_s)
        keep = depth >= MOST_HALVINGS or count + height + 2 >= MOST_CELLS
        middle = 0.5 * (left + right)
        if lower >= best - tolerance or keep or not left < middle < right:
            closed = min(closed, lower - slack)
            continue
        halve(cells, ends, height, n, 0.5, middle)
        height += 2
    if p < np.inf:
        best_cost = cost_at(where - x0, w, p)
    return closed, where, best_cost, best_value


@part
def cell_ends(
    b: Floats,
    n: int,
    left: float,
    right: float,
    depth: float,
    largest: float,
    bend: float,
    about: float,
    x0: float,
    w: float,
    p: float,
    pull: float,
    price: float,
    side: float,
) -> tuple[float, float, float, float, float]:
    """Of a cell: the values at its ends, the slopes there of the price for distance, and what rounding can do."""
    from_left, from_right = left - about, right - about
    cost_left = pull * cost_at(left - x0, w, p) if pull > 0.0 else 0.0
    cost_right = pull * cost_at(right - x0, w, p) if pull > 0.0 else 0.0
    at_left = cost_left + price * (b[0] - bend * from_left * from_left)
    at_right = cost_right + price * (b[n] - bend * from_right * from_right)
    far = max(abs(from_left), abs(from_right))
    slack = price * ((2.0 * n * depth + 12.0 * n * n + 16.0 * n + 64.0) * largest + bend * far * (64.0 * far + 8.0))
    slope_left, slope_right = 0.0, 0.0
    if pull > 0.0:
        slope_left = pull * cost_slope(left - x0, w, p, side)
        slope_right = pull * cost_slope(right - x0, w, p, side)
        slack += (8.0 * p + 64.0) * (1.0 + p * p) * max(cost_left, cost_right)
        slack += 4.0 * max(abs(slope_left), abs(slope_right))
    return at_left, at_right, slope_left, slope_right, slack * ROUNDOFF


@part
def below_slopes(
    b: Floats,
    n: int,
    h: float,
    bend: float,
    from_left: float,
    from_right: float,
    price: float,
    at_left: float,
    at_right: float,
    slope_left: float,
    slope_right: float,
) -> float:
    """The bound of a cell by its values at the ends, the least slope and the greatest."""
    flattest, steepest = np.inf, -np.inf
    for k in range(n):
        flattest = min(flattest, b[k + 1] - b[k])
        steepest = max(steepest, b[k + 1] - b[k])
    fall = price * (n * flattest - 2.0 * bend * from_right * h) + slope_left * h
    rise = price * (n * steepest - 2.0 * bend * from_left * h) + slope_right * h
    return max(at_left + min(0.0, fall), at_right - max(0.0, rise))


@part
def bowing(
    b: Floats,
    n: int,
    left: float,
    right: float,
    bend: float,
    x0: float,
    w: float,
    p: float,
    pull: float,
    price: float,
) -> tuple[float, float]:
    """The least and the greatest second derivative on a cell, by s from 0 to 1."""
    hollow, hump = np.inf, -np.inf
    for k in range(n - 1):
        bow = (b[k + 2] - b[k + 1]) - (b[k + 1] - b[k])
        hollow = min(hollow, bow)
        hump = max(hump, bow)
    if n == 1:
        hollow = hump = 0.0
    h = right - left
    hollow = price * (n * (n - 1) * hollow - 2.0 * bend * h * h)
    hump = price * (n * (n - 1) * hump - 2.0 * bend * h * h)
    if pull > 0.0:
        one = cost_curvature(left - x0, w, p)
        two = cost_curvature(right - x0, w, p)
        hollow += pull * min(one, two) * h * h
        hump += pull * max(one, two) * h * h
    return hollow, hump


@part
def shave_side(
    c: Floats,
    n: int,
    low: float,
    high: float,
    bend: float,
    about: float,
    x0: float,
    w: float,
    p: float,
    pull: float,
    price: float,
    enough: float,
    upper_end: bool,
    cells: Floats,
    ends: Floats,
) -> float:
    """From one end of the interval, how far the function is proven to be at least `enough`: where to end it instead.

    It is the other end if the function is never less.
    """
    largest = 0.0
    for k in range(n + 1):
        cells[0, k] = c[k]
        largest = max(largest, abs(c[k]))
    ends[0, 0], ends[0, 1], ends[0, 2] = low, high, 0.0
    height = 1
    if pull > 0.0 and p != 2.0 and low < x0 < high:
        halve(cells, ends, 0, n, (x0 - low) / (high - low), x0)
        if upper_end:
            swap(cells, ends, 0, n)
        height = 2
    while height > 0:
        height -= 1
        b = cells[height]
        left, right, depth = ends[height, 0], ends[height, 1], ends[height, 2]
        side = 1.0 if left >= x0 else -1.0
        at_left, at_right, slope_left, slope_right, slack = cell_ends(
            b, n, left, right, depth, largest, bend, about, x0, w, p, pull, price, side
        )
        outer: float = right if upper_end else left
        if not (at_right if upper_end else at_left) - slack >= enough:
            return outer
        lower = below_slopes(
            b, n, right - left, bend, left - about, right - about, price, at_left, at_right, slope_left, slope_right
        )
        if lower - slack < enough:
            _, hump = bowing(b, n, left, right, bend, x0, w, p, pull, price)
            lower = max(lower, min(at_left, at_right) - 0.125 * max(0.0, hump))
        if lower - slack >= enough:
            continue
        middle = 0.5 * (left + right)
        if depth >= MOST_SHAVINGS or not left < middle < right:
            return outer
        halve(cells, ends, height, n, 0.5, middle)
        if upper_end:
            swap(cells, ends, height, n)
        height += 2
    return low if upper_end else high


@part
def swap(cells: Floats, ends: Floats, at: int, n: int) -> None:
    """Exchange a cell and the next one."""
    for k in range(n + 1):
        cells[at, k], cells[at + 1, k] = cells[at + 1, k], cells[at, k]
    for k in range(3):
        ends[at, k], ends[at + 1, k] = ends[at + 1, k], ends[at, k]


@part
def halve(cells: Floats, ends: Floats, at: int, n: int, s: float, middle: float) -> None:
    """Replace a cell by its parts below and above s, which is `middle`: errors grow by at most 2 n roundoffs each."""
    upper, lower = cells[at], cells[at + 1]
    lower[0] = upper[0]
    for r in range(1, n + 1):
        for k in range(n + 1 - r):
            upper[k] = (1.0 - s) * upper[k] + s * upper[k + 1]
        lower[r] = upper[0]
    ends[at + 1, 0], ends[at + 1, 1], ends[at + 1, 2] = ends[at, 0], middle, ends[at, 2] + 1.0
    ends[at, 0], ends[at, 2] = middle, ends[at, 2] + 1.0
