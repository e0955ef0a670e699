"""Compiled: affine bounds of entries that depend on few others, each pulled back along what it depends on only.

Entries of the image and of the results of bent functions are numbered together, in the order in which they are
computed. What such a function takes is affine in those before: `Rows` has these, one for each entry of its result.
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
