"""Compiled kernels on one Bernstein polynomial over one box: a flat array of coefficients and the size of each axis.

Coefficients are scaled to magnitudes of at most LARGEST before they come here, so every rounding bound below is a
plain number times the unit roundoff.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import inlined, part
from berncert.foundation.arrays import Floats, Ints

ROUNDOFF = 2.0**-53
LARGEST = 2.0  # of any coefficient of a margin


@inlined
def basis(degree: int, x: float, out: Floats) -> None:
    """The degree + 1 Bernstein polynomials at x: >= 0, summing to 1, each with relative error <= 3 degree roundoffs."""
    out[0] = 1.0
    for r in range(1, degree + 1):
        out[r] = x * out[r - 1]
        for k in range(r - 1, 0, -1):
            out[k] = (1.0 - x) * out[k] + x * out[k - 1]
        out[0] = (1.0 - x) * out[0]


@inlined
def contract(source: Floats, count: int, size: int, rest: int, weights: Floats, target: Floats) -> None:
    """(count, size, rest) -> (count, rest): the weighted sum over the middle axis."""
    if rest < 8:
        for c in range(count):
            for i in range(rest):
                at = c * size * rest + i
                total = weights[0] * source[at]
                for k in range(1, size):
                    total += weights[k] * source[at + k * rest]
                target[c * rest + i] = total
        return
    for c in range(count):
        lines = source[c * size * rest : (c + 1) * size * rest]
        out = target[c * rest : (c + 1) * rest]
        one = lines[:rest]
        two = lines[rest : 2 * rest]
        v, w = weights[0], weights[1]
        for i in range(rest):
            out[i] = v * one[i] + w * two[i]
        for k in range(2, size - 1, 2):  # two at a time: half the traffic
            one = lines[k * rest : (k + 1) * rest]
            two = lines[(k + 1) * rest : (k + 2) * rest]
            v, w = weights[k], weights[k + 1]
            for i in range(rest):
                out[i] += v * one[i] + w * two[i]
        if size % 2 == 1:
            one = lines[(size - 1) * rest :]
            v = weights[size - 1]
            for i in range(rest):
                out[i] += v * one[i]


@inlined
def copy(source: Floats, n: int, target: Floats) -> None:
    """target[:n] = source[:n]"""
    one = source[:n]
    out = target[:n]
    for i in range(n):
        out[i] = one[i]


@part
def value_at(b: Floats, sizes: Ints, x: Floats, here: Floats, there: Floats, scratch: Floats) -> float:
    """The polynomial at x in [0,1]^d, in the box's own coordinates."""
    weights = scratch[0]
    rest = b.size
    source = b
    for j in range(sizes.size):
        rest //= sizes[j]
        basis(sizes[j] - 1, x[j], weights)
        contract(source, 1, sizes[j], rest, weights, here)
        source = here
        here, there = there, here
    return float(source[0])


@part
def value_and_gradient(
    b: Floats, sizes: Ints, x: Floats, gradient: Floats, here: Floats, there: Floats, scratch: Floats
) -> float:
    """The polynomial at x, and its gradient into `gradient`; value and d partials are contracted together."""
    d = sizes.size
    weights = scratch[0]
    lower = scratch[1]
    slopes = scratch[2]
    rest = b.size
    source = b
    for j in range(d):
        n = sizes[j] - 1
        rest //= sizes[j]
        basis(n, x[j], weights)
        basis(n - 1, x[j], lower)
        for k in range(n + 1):
            slopes[k] = n * ((lower[k - 1] if k > 0 else 0.0) - (lower[k] if k < n else 0.0))
        contract(source, j + 1, n + 1, rest, weights, here)
        contract(source, 1, n + 1, rest, slopes, here[(j + 1) * rest :])
        source = here
        here, there = there, here
    for j in range(d):
        gradient[j] = source[1 + j]
    return float(source[0])


@part
def split(b: Floats, sizes: Ints, axis: int, low: Floats, high: Floats) -> None:
    """The coefficients on the lower and on the upper half of an axis; errors grow by at most 2 degree roundoffs."""
    size = sizes[axis]
    rest = 1
    for j in range(axis + 1, sizes.size):
        rest *= sizes[j]
    if rest < 8:
        split_lines(b, size, rest, low, high)
        return
    for start in range(0, b.size, size * rest):
        split_block(b[start:], size, rest, low[start:], high[start:])


@part
def split_lines(b: Floats, size: int, rest: int, low: Floats, high: Floats) -> None:
    """De Casteljau at the middle of all lines, of which few lie side by side: a step for each, then the next step.

    No step waits for the one before it, as it would along one line.
    """
    block, n = size * rest, b.size
    copy(b, n, high)
    for i in range(rest):
        for at in range(i, n, block):
            low[at] = high[at]
    for r in range(1, size):
        for k in range(size - r):
            for i in range(k * rest, k * rest + rest):
                for at in range(i, n, block):
                    high[at] = 0.5 * (high[at] + high[at + rest])
        for i in range(rest):
            for at in range(i, n, block):
                low[at + r * rest] = high[at]


@part
def split_block(b: Floats, size: int, rest: int, low: Floats, high: Floats) -> None:
    """The same for `rest` lines side by side."""
    copy(b, size * rest, high)
    copy(b, rest, low)
    for r in range(1, size):
        for k in range(size - r):
            one = high[k * rest : (k + 1) * rest]
            two = high[(k + 1) * rest : (k + 2) * rest]
            for i in range(rest):
                one[i] = 0.5 * (one[i] + two[i])
        copy(high, rest, low[r * rest :])


@part
def rotate(b: Floats, size: int, rest: int, out: Floats) -> None:
    """Make the first axis the last: (size, rest) -> (rest, size)."""
    for k in range(size):
        for i in range(rest):
            out[i * size + k] = b[k * rest + i]


@inlined
def least(b: Floats, n: int) -> float:
    """The least of the first n; four side by side, as the compiler may not reorder."""
    p = q = r = s = np.inf
    for i in range(0, n - 3, 4):
        part = b[i : i + 4]
        p = part[0] if part[0] < p else p
        q = part[1] if part[1] < q else q
        r = part[2] if part[2] < r else r
        s = part[3] if part[3] < s else s
    for i in range(n - n % 4, n):
        p = min(p, b[i])
    return min(min(p, q), min(r, s))


@inlined
def greatest(b: Floats, n: int) -> float:
    """The greatest magnitude of the first n."""
    p = q = r = s = 0.0
    for i in range(0, n - 3, 4):
        part = b[i : i + 4]
        p = max(p, abs(part[0]))
        q = max(q, abs(part[1]))
        r = max(r, abs(part[2]))
        s = max(s, abs(part[3]))
    for i in range(n - n % 4, n):
        p = max(p, abs(b[i]))
    return max(max(p, q), max(r, s))
