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
LANES = 4
"""Sums are taken as so many side by side, as one would wait for itself."""
WIDTH = 16
"""Loops along columns take a multiple of so many."""


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


class Windows(NamedTuple):
    """Of entries that are maxima: the weights of what they take, in the order of their rows, for each image.

    Their lines have no slope of their own: at_zero only.
    """

    first: Any
    """For each entry, where its weights begin; -1 if it is no maximum."""
    lower: Any
    upper: Any


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
        below, above, down, up = a[n], b[n], low[n], high[n]
        live = np.flatnonzero((below != 0.0) | (above != 0.0) | (down != 0.0) | (up != 0.0))
        end = -(-len(live) // LANES) * LANES
        # side by side; what is beyond the live ones counts for nothing
        own, start, stop, least, most, wide, size, lost, square, taken = np.zeros((10, end))
        for t, j in enumerate(live):
            start[t], stop[t] = down[j], up[j]
            if half[j] > 0.0:  # the others lose nothing by their lines
                wide[t] = half[j]
                least[t], most[t] = at[j] - (below[j] * c[j] + down[j]), at[j] - (above[j] * c[j] + up[j])
        for r in range(rows.shape[1]):
            row, into = rows[n, r], out[n, r]
            for k in range(len(row)):
                w = row[k]
                into[k] = w * (below[k] if w > 0 else above[k])
            for t, j in enumerate(live):
                own[t] = row[j]
            for t in range(end):
                w = own[t]
                taken[t] = w * (start[t] if w > 0 else stop[t])
                size[t] = abs(w)
            total, lines_lose = _added(taken), slack[n] * _added(size)
            for t in range(end):
                w = own[t]
                lost[t] = w * (least[t] if w > 0 else most[t])
                size[t] = abs(w * wide[t])
                square[t] = size[t] * size[t]
                taken[t] = square[t] if lost[t] > 0.0 else 0.0
            if not 1e-140 < _largest(size) < 1e140:  # squares may vanish or overflow
                constant[n, r] = total - lines_lose
                continue
            squares, factor = _added(taken), 0.0
            for _ in range(3):
                factor = 2.0 * max(math.sqrt(squares), 1e-280)
                for t in range(end):
                    taken[t] = square[t] if lost[t] * factor > ball[n] * square[t] else 0.0
                squares = _added(taken)
            for t in range(end):
                taken[t] = lost[t] if lost[t] * factor > ball[n] * square[t] else 0.0
            length = math.sqrt(squares) * (1.0 + 4.0 * (end + 80.0) * 2.0**-53) + 1e-145
            if length * ball[n] < _added(taken):
                for t, j in enumerate(live):
                    if lost[t] * factor > ball[n] * square[t]:
                        w = row[j]
                        into[j] = w * middle[j]
                        total += w * (at[j] - middle[j] * c[j]) - w * (down[j] if w > 0 else up[j])
                total -= length * ball[n]
            constant[n, r] = total - lines_lose


@exact
def _added(numbers: Any) -> Any:
    """The sum of a whole number of lanes, each in order."""
    a = b = c = d = 0.0
    for k in range(0, len(numbers), LANES):
        a += numbers[k]
        b += numbers[k + 1]
        c += numbers[k + 2]
        d += numbers[k + 3]
    return (a + b) + (c + d)


@exact
def _largest(numbers: Any) -> Any:
    """The same for the largest of numbers >= 0."""
    a = b = c = d = 0.0
    for k in range(0, len(numbers), LANES):
        a = numbers[k] if numbers[k] > a else a
        b = numbers[k + 1] if numbers[k + 1] > b else b
        c = numbers[k + 2] if numbers[k + 2] > c else c
        d = numbers[k + 3] if numbers[k + 3] > d else d
    return max(max(a, b), max(c, d))


@exact
def kinked_lines(low: Any, high: Any, left: Any, level: float, a: Any, at: Any, b: Any, up: Any) -> None:
    """Lines a x + at below, and b x + up above, of x where x > 0, else left * x, on intervals (N, K).

    On the convex side the line through 0 with the slope that loses less, `level` for as good as equal; on the other the
    chord.
    """
    for n in range(low.shape[0]):
        for k in range(low.shape[1]):
            from_, to, s = low[n, k], high[n, k], left[k]
            at[n, k] = up[n, k] = 0.0
            if not (from_ < 0.0 and to > 0.0):
                a[n, k] = b[n, k] = 1.0 if from_ >= 0.0 else s
                continue
            chord = (to - s * from_) / (to - from_)
            one, two = s * from_ - chord * from_, to - chord * to
            error = 16.0 * 2.0**-53 * (abs(s) + abs(chord) + 1.0) * max(to, -from_)
            tangent = 1.0 if to > -from_ * level else s
            if s <= 1.0:
                a[n, k], b[n, k], up[n, k] = tangent, chord, max(one, two) + error
            else:
                a[n, k], b[n, k], at[n, k] = chord, tangent, min(one, two) - error


@exact
def kinked_secants(low: Any, high: Any, centre: Any, left: Any, least: Any, most: Any) -> None:
    """Between which slopes the secants of that function lie, from the centre to points of the interval (N, K).

    To the centre's own side of 0 it is that side's slope; beyond 0, a mean of both slopes by the parts of the way.
    """
    for n in range(low.shape[0]):
        for k in range(low.shape[1]):
            c, s = centre[n, k], left[k]
            right = c >= 0.0
            near, far = (1.0, s) if right else (s, 1.0)
            beyond = -low[n, k] if right else high[n, k]
            if beyond <= 0.0:
                least[n, k] = most[n, k] = near
                continue
            share = min(1.0, beyond / max(beyond + abs(c), 1e-280) * (1.0 + 8.0 * 2.0**-53))
            other = near + share * (far - near)
            error = 16.0 * 2.0**-53 * (1.0 + abs(s))
            least[n, k] = min(near, other) - error
            most[n, k] = max(near, other) + error


@exact
def round_lines(a: Any, at: Any, b: Any, up: Any, magnitude: Any, relative: float, low: Any, high: Any) -> None:
    """low and high: at and up with what is lost, `relative` times the largest number on the way of an image's lines.

    What is not a number makes every line of its image none. Lines that are 0 lose nothing.
    """
    for n in range(len(a)):
        largest, fine = 0.0, True
        for k in range(a.shape[1]):
            below = abs(a[n, k]) * magnitude[n, k] + abs(at[n, k])
            above = abs(b[n, k]) * magnitude[n, k] + abs(up[n, k])
            fine = fine and below == below and above == above
            largest = max(largest, max(below, above))
        lost = relative * largest if fine else math.nan
        for k in range(a.shape[1]):
            none = a[n, k] == 0.0 and b[n, k] == 0.0 and at[n, k] == 0.0 and up[n, k] == 0.0
            low[n, k] = 0.0 if none else at[n, k] - lost
            high[n, k] = 0.0 if none else up[n, k] + lost


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
    jobs: Any, members: Any, target: Rows, slack: Any, rows: Rows, bends: Bends, windows: Windows, offsets: Any,
    value_of: Any,
    dual: float, x: Any, starts: Any, rates: Any,
) -> None:  # fmt: skip
    """Write bounds of the target's entries: for each job (image, from, to), of those members.

    Entry j of image n is at least starts[n, 0, j] - rates[n, 0, j] r for images within r, its negative the same with 1.

    offsets: where the entries of each value begin, those of the image first; value_of: the value of each entry.
    A column is a signed entry: the function of the image that stays below it. The bounds are rounded down.
    """
    slot = np.full(len(value_of), -1, np.int64)
    touched = np.empty(len(value_of), np.int64)
    place = np.empty(len(value_of), np.int64)
    counts = np.zeros(len(offsets), np.int64)
    sums = np.empty((len(value_of), 2 * COLUMNS))
    ends = np.empty((4, 2 * COLUMNS))
    constant, start, rate, rounding = ends[0], ends[1], ends[2], ends[3]
    for job in range(len(jobs)):
        n, begin, end = jobs[job]
        width = -(-2 * (end - begin) // WIDTH) * WIDTH  # the last ones stay 0
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
                if windows.first[g] >= 0:
                    for c in range(width):
                        constant[c] += own[c] * (at if own[c] > 0 else up)
                    for k in range(rows.first[g], rows.first[g + 1]):
                        place_of = windows.first[g] + k - rows.first[g]
                        a, b = windows.lower[n, place_of], windows.upper[n, place_of]
                        if a == 0.0 and b == 0.0:
                            continue
                        i = rows.index[k]
                        s = slot[i]
                        if s < 0:
                            touched[offsets[value_of[i]] + counts[value_of[i]]] = i
                            counts[value_of[i]] += 1
                            s = slot[i] = used
                            used += 1
                            sums[s, :width] = 0.0
                        into = sums[s]
                        for c in range(width):
                            into[c] += own[c] * (a if own[c] > 0 else b)
                    continue
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
            rate[c] = (length * (1 + relative) + 1e-150) * (1 + relative)
            start[c] += constant[c] - relative * (abs(constant[c]) + rounding[c]) - 1e-280
        for m in range(begin, end):
            for c in range(2):
                starts[n, c, members[m]] = start[2 * (m - begin) + c]
                rates[n, c, members[m]] = rate[2 * (m - begin) + c]
