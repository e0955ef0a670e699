"""Compiled: affine bounds taken back through lines that enclose functions of single entries.

`hull_lines` finds lines for curves, `through_lines` and `through_secants` serve whole rows (`bounds/local.py`), and
`pull_patches` those of entries that depend on few others (`patches.py`). No sum is reordered, and each loop runs along
numbers that lie side by side.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from berncert.extractor.distance_kernels import exact

COLUMNS = 32
"""The most entries that are pulled back together: two numbers of each stand side by side."""


class Rows(NamedTuple):
    """Sparse rows: the numbers of the entries that each takes, with their weights, and a constant."""

    first: Any
    """Where each row begins, and where the last one ends."""
    index: Any
    weight: Any
    bias: Any


class Bends(NamedTuple):
    """For each image and entry: the lines below and above its function, and how far what it takes is rounded."""

    lower_slope: Any
    lower_at_zero: Any
    upper_slope: Any
    upper_at_zero: Any
    slack: Any


class Secants(NamedTuple):
    """For each image and entry: the middle and half of the slopes of secants from the centre, and the value there."""

    middle: Any
    half: Any
    centre: Any
    at_centre: Any


@exact
def through_lines(rows: Any, a: Any, low: Any, b: Any, high: Any, out: Any, constant: Any) -> None:
    """For rows (N, R, K) and lines (N, K): out, the rows times the slopes, and the sums of rows times the constants."""
    for n in range(rows.shape[0]):
        some = np.flatnonzero((low[n] != 0.0) | (high[n] != 0.0))
        below, above = a[n], b[n]
        for r in range(rows.shape[1]):
            row, into, total = rows[n, r], out[n, r], 0.0
            for k in range(len(row)):
                w = row[k]
                into[k] = w * (below[k] if w > 0 else above[k])
            for j in some:
                total += row[j] * (low[n, j] if row[j] > 0 else high[n, j])
            constant[n, r] = total


@exact
def through_secants(
    rows: Any, a: Any, low: Any, b: Any, high: Any, secants: Secants, ball: Any, slack: Any, out: Any, constant: Any
) -> None:
    """The same, but those entries that are better bounded together, by their secants: see `bounds/local.py`."""
    for n in range(rows.shape[0]):
        middle, half = secants.middle[n], secants.half[n]
        at, c = secants.at_centre[n], secants.centre[n]
        live = np.flatnonzero((a[n] != 0.0) | (b[n] != 0.0) | (low[n] != 0.0) | (high[n] != 0.0))
        below, above = at - (a[n] * c + low[n]), at - (b[n] * c + high[n])
        lost, square, chosen = np.empty(len(live)), np.empty(len(live)), np.empty(len(live), np.bool_)
        for r in range(rows.shape[1]):
            row, into = rows[n, r], out[n, r]
            for t, k in enumerate(live):
                w = row[k]
                lost[t] = w * (below[k] if w > 0 else above[k])
                square[t] = (w * half[k]) ** 2
                chosen[t] = lost[t] > 0.0
            for _ in range(3):
                length = max(math.sqrt(_sum(square, chosen)), 1e-280)
                for t in range(len(live)):
                    chosen[t] = 2.0 * lost[t] * length > ball[n] * square[t]
            length = _length(row, half, live, chosen)
            worth = length * ball[n] < _sum(lost, chosen)
            into[:] = 0.0
            total = size = 0.0
            for t, k in enumerate(live):
                w = row[k]
                if worth and chosen[t]:
                    into[k] = w * middle[k]
                    total += w * (at[k] - middle[k] * c[k])
                else:
                    into[k] = w * (a[n, k] if w > 0 else b[n, k])
                    total += w * (low[n, k] if w > 0 else high[n, k])
                size += abs(w)
            constant[n, r] = total - (length * ball[n] if worth else 0.0) - slack[n] * size


@exact
def _sum(numbers: Any, chosen: Any) -> float:
    total = 0.0
    for t in range(len(numbers)):
        if chosen[t]:
            total += numbers[t]
    return total


@exact
def _length(row: Any, half: Any, live: Any, chosen: Any) -> float:
    """The norm_2 of the chosen entries of row times half, rounded up."""
    largest = total = 0.0
    for t, k in enumerate(live):
        if chosen[t]:
            largest = max(largest, abs(row[k] * half[k]))
    if largest == 0.0:
        return 1e-280
    for t, k in enumerate(live):
        if chosen[t]:
            total += (row[k] * half[k] / largest) ** 2
    return math.sqrt(total) * largest * (1.0 + 4.0 * (len(live) + 80.0) * 2.0**-53) + 1e-280


@exact
def hull_lines(points: Any, values: Any, middle: Any, a: Any, low: Any, b: Any, high: Any) -> None:
    """For each row of points (E, m), in order, and values: a line below them, a x + low, and one above, b x + high.

    Each is best at the middle: along the hull there. Where a corner of the hull is there, the slope is halfway between
    those beside it, so that no choice between the two rests on the last bits.
    """
    corners = np.empty(points.shape[1], np.int64)
    for e in range(len(points)):
        x, y = points[e], values[e]
        for side in (1.0, -1.0):
            slope = _hull_slope(x, y, side, middle[e], corners)
            at = math.inf
            for k in range(len(x)):
                at = min(at, side * (y[k] - slope * x[k]))
            if not at < math.inf:  # what is not a number proves nothing
                at = math.nan
            if side > 0.0:
                a[e], low[e] = slope, at
            else:
                b[e], high[e] = slope, -at


@exact
def _hull_slope(x: Any, y: Any, side: float, middle: float, corners: Any) -> Any:
    """The slope of the hull below (side 1) or above (-1) some points, over the middle."""
    count = 0
    for k in range(len(x)):
        if count and not x[k] > x[corners[count - 1]]:  # the same point again
            continue
        while count >= 2:
            i, j = corners[count - 2], corners[count - 1]
            if side * ((y[j] - y[i]) * (x[k] - x[i]) - (y[k] - y[i]) * (x[j] - x[i])) < 0.0:
                break
            count -= 1
        corners[count] = k
        count += 1
    if count < 2:
        return 0.0
    at = 1
    while at < count - 1 and x[corners[at]] < middle:
        at += 1
    i, j = corners[at - 1], corners[at]
    slope = (y[j] - y[i]) / (x[j] - x[i])
    near = 1e-6 * (x[corners[count - 1]] - x[corners[0]])
    if at < count - 1 and x[j] - middle <= near:
        i, j = j, corners[at + 1]
    elif at > 1 and middle - x[i] <= near:
        i, j = corners[at - 2], i
    else:
        return slope
    return (slope + (y[j] - y[i]) / (x[j] - x[i])) / 2.0


@exact
def pull_patches(
    jobs: Any, members: Any, target: Rows, slack: Any, rows: Rows, bends: Bends, offsets: Any, value_of: Any,
    dual: float, x: Any, radius: Any, lower: Any, upper: Any,
) -> None:  # fmt: skip
    """Write bounds of the target's entries: for each job (image, from, to), of those members.

    offsets: where the entries of each value begin, those of the image first; value_of: the value of each entry.
    A column is a signed entry: the function of the image that stays below it. The bounds are rounded down and up.
    """
    slot = np.full(len(value_of), -1, np.int64)
    touched = np.empty(len(value_of), np.int64)
    place = np.empty(len(value_of), np.int64)
    counts = np.zeros(len(offsets), np.int64)
    sums = np.empty((len(value_of), 2 * COLUMNS))
    ends = np.empty((5, 2 * COLUMNS))
    constant, start, rate, rounding, least = ends[0], ends[1], ends[2], ends[3], ends[4]
    for job in range(len(jobs)):
        n, begin, end = jobs[job]
        width = 2 * (end - begin)
        counts[:] = 0
        used = 0
        for c in range(width):
            constant[c] = 0.0
        for m in range(begin, end):  # the rows of the entries, and their negatives
            entry, c = members[m], 2 * (m - begin)
            constant[c] = target.bias[entry] - slack[n, entry]
            constant[c + 1] = -target.bias[entry] - slack[n, entry]
            for k in range(target.first[entry], target.first[entry + 1]):
                i = target.index[k]
                s = slot[i]
                if s < 0:
                    v = value_of[i]
                    touched[offsets[v] + counts[v]] = i
                    counts[v] += 1
                    s = slot[i] = used
                    used += 1
                    for j in range(width):
                        sums[s, j] = 0.0
                sums[s, c] += target.weight[k]
                sums[s, c + 1] -= target.weight[k]
        for v in range(len(offsets) - 1, 0, -1):
            for t in range(offsets[v], offsets[v] + counts[v]):
                g = touched[t]
                own = sums[slot[g]]
                slot[g] = -1
                a, at = bends.lower_slope[n, g], bends.lower_at_zero[n, g]
                b, up = bends.upper_slope[n, g], bends.upper_at_zero[n, g]
                lost, bias = bends.slack[n, g], rows.bias[g]
                if a == 0.0 and b == 0.0:
                    if at != 0.0 or up != 0.0:
                        for c in range(width):
                            constant[c] += own[c] * (at if own[c] > 0 else up)
                    continue
                for c in range(width):
                    w = own[c]
                    y = w * (a if w > 0 else b)
                    constant[c] += w * (at if w > 0 else up) + (y * bias - abs(y) * lost)
                    own[c] = y
                for k in range(rows.first[g], rows.first[g + 1]):
                    i, w = rows.index[k], rows.weight[k]
                    s = slot[i]
                    if s < 0:
                        u = value_of[i]
                        touched[offsets[u] + counts[u]] = i
                        counts[u] += 1
                        s = slot[i] = used
                        used += 1
                        fresh = sums[s]
                        for c in range(width):
                            fresh[c] = w * own[c]
                    else:
                        into = sums[s]
                        for c in range(width):
                            into[c] += w * own[c]
        for c in range(width):
            start[c] = rate[c] = rounding[c] = 0.0
        for t in range(counts[0]):
            i = touched[t]
            place[t] = slot[i]
            own = sums[slot[i]]
            slot[i] = -1
            pixel = x[n, i]
            for c in range(width):
                start[c] += own[c] * pixel
                rounding[c] += abs(own[c] * pixel)
            if dual == 1.0:
                for c in range(width):
                    rate[c] += abs(own[c])
            elif dual == 2.0:
                for c in range(width):
                    rate[c] += own[c] * own[c]
            else:
                for c in range(width):
                    rate[c] = abs(own[c]) if not abs(own[c]) <= rate[c] else rate[c]
        if dual != 1.0 and dual != 2.0 and dual != math.inf:  # powers of what is divided by the largest
            for c in range(width):
                total = 0.0
                for t in range(counts[0]):
                    total += (abs(sums[place[t], c]) / max(rate[c], 1e-280)) ** dual
                rate[c] = total ** (1.0 / dual) * max(rate[c], 1e-280)
        relative = 4.0 * (counts[0] + 80.0) * 2.0**-53
        for c in range(width):
            length = math.sqrt(rate[c]) if dual == 2.0 else rate[c]
            change = radius[n] * (length * (1 + relative) + 1e-150)
            size = abs(constant[c]) + rounding[c] + change
            least[c] = constant[c] + start[c] - change - relative * size - 1e-280
        for m in range(begin, end):
            c = 2 * (m - begin)
            lower[n, members[m]] = least[c]
            upper[n, members[m]] = -least[c + 1]
