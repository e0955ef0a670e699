"""Compiled kernels on one Bernstein polynomial over one box: a flat array of coefficients and the size of each axis.

Coefficients are scaled to magnitudes of at most 2 before they come here, so every rounding bound below is a plain
number times the unit roundoff. Kernels never reorder a sum and never fuse operations: the same input gives the same
bits on every machine.
"""

from __future__ import annotations

from functools import cache
from fractions import Fraction
from math import comb
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba.core import cgutils, types
from numba.extending import intrinsic

kernel: Any = numba.njit(cache=True, nogil=True, error_model="numpy")
inlined: Any = numba.njit(cache=True, nogil=True, error_model="numpy", inline="always")
"""A kernel that is compiled as a part of its caller: every level of calls costs compile time."""

ROUNDOFF = 2.0**-53
LARGEST = 2.0  # of any coefficient of a margin
LOWERED_DEGREE = 12  # axes of a higher degree are not lowered: the tables would amplify rounding too much


@intrinsic  # type: ignore[untyped-decorator]
def borrowed(typingctx: Any, value: Any) -> Any:
    """An array, or a named tuple of such, without reference counts: they would cost more than a small kernel does.

    The owner must outlive what is borrowed.
    """

    def strip(context: Any, builder: Any, kind: Any, part: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            parts = [strip(context, builder, k, builder.extract_value(part, i)) for i, k in enumerate(kind)]
            return context.make_tuple(builder, kind, parts)
        if not isinstance(kind, types.Array):
            return part
        array = context.make_array(kind)(context, builder, part)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return strip(context, builder, signature.args[0], args[0])

    return value(value), codegen


@kernel
def basis(degree, x, out):
    """The degree + 1 Bernstein polynomials at x: >= 0, summing to 1, each with relative error <= 3 degree roundoffs."""
    out[0] = 1.0
    for r in range(1, degree + 1):
        out[r] = x * out[r - 1]
        for k in range(r - 1, 0, -1):
            out[k] = (1.0 - x) * out[k] + x * out[k - 1]
        out[0] = (1.0 - x) * out[0]


@kernel
def contract(source, count, size, rest, weights, target):
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


@kernel
def copy(source, n, target):
    """target[:n] = source[:n]"""
    one = source[:n]
    out = target[:n]
    for i in range(n):
        out[i] = one[i]


@kernel
def value_at(b, sizes, x, here, there, scratch):
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
    return source[0]


@kernel
def value_and_gradient(b, sizes, x, gradient, here, there, scratch):
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
    return source[0]


@kernel
def split(b, sizes, axis, low, high):
    """The coefficients on the lower and on the upper half of an axis; errors grow by at most 2 degree roundoffs."""
    size = sizes[axis]
    rest = 1
    for j in range(axis + 1, sizes.size):
        rest *= sizes[j]
    for start in range(0, b.size, size * rest):
        if rest < 8:
            for i in range(start, start + rest):
                split_line(b, i, size, rest, low, high)
        else:
            split_block(b[start:], size, rest, low[start:], high[start:])


@kernel
def split_line(b, at, size, rest, low, high):
    """De Casteljau at the middle of one line of coefficients, `rest` apart."""
    for k in range(size):
        high[at + k * rest] = b[at + k * rest]
    low[at] = b[at]
    for r in range(1, size):
        for k in range(size - r):
            i = at + k * rest
            high[i] = 0.5 * (high[i] + high[i + rest])
        low[at + r * rest] = high[at]


@kernel
def split_block(b, size, rest, low, high):
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


@kernel
def rotate(b, size, rest, out):
    """Make the first axis the last: (size, rest) -> (rest, size)."""
    for k in range(size):
        for i in range(rest):
            out[i * size + k] = b[k * rest + i]


class Tables(NamedTuple):
    """What `narrow_first` needs for each degree n up to some largest."""

    chebyshev: npt.NDArray[np.float64]
    """[n, i] takes coefficients of degree n to the i-th coefficient of the (shifted) Chebyshev expansion."""
    truncated: npt.NDArray[np.float64]
    """[n, q] takes them to the Bernstein coefficients, of degree q, of that expansion cut after q."""
    amplification: npt.NDArray[np.float64]
    """[n, q] is the largest absolute row sum of truncated[n, q]."""


@cache
def lowering_tables(largest: int) -> Tables:
    """The tables for degrees up to `largest`, computed in exact rationals and rounded once."""
    size = largest + 1
    chebyshev = np.zeros((size, size, size))
    truncated = np.zeros((size, size, size, size))
    amplification = np.ones((size, size))
    for n in range(2, size):
        inverse = _inverse([[_chebyshev_coefficient(i, n, k) for i in range(n + 1)] for k in range(n + 1)])
        chebyshev[n, : n + 1, : n + 1] = [[float(v) for v in row] for row in inverse]
        for q in range(1, n):
            rows = [
                [sum(_chebyshev_coefficient(i, q, m) * inverse[i][k] for i in range(q + 1)) for k in range(n + 1)]
                for m in range(q + 1)
            ]
            truncated[n, q, : q + 1, : n + 1] = [[float(v) for v in row] for row in rows]
            amplification[n, q] = float(max(sum(abs(v) for v in row) for row in rows))
    return Tables(chebyshev, truncated, amplification)


def _chebyshev_coefficient(i: int, n: int, k: int) -> Fraction:
    """The k-th Bernstein coefficient, of degree n >= i, of the shifted Chebyshev polynomial of degree i."""
    return sum(
        (
            Fraction((-1) ** (i - m) * comb(2 * i, 2 * m) * comb(n - i, k - m), comb(n, k))
            for m in range(max(0, k - n + i), min(i, k) + 1)
        ),
        Fraction(0),
    )


def _inverse(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """Gauss-Jordan in exact rationals."""
    n = len(matrix)
    rows = [[*row, *(Fraction(int(i == j)) for j in range(n))] for i, row in enumerate(matrix)]
    for j in range(n):
        pivot = next(i for i in range(j, n) if rows[i][j])
        rows[j], rows[pivot] = rows[pivot], rows[j]
        rows[j] = [v / rows[j][j] for v in rows[j]]
        for i in range(n):
            if i != j and rows[i][j]:
                rows[i] = [v - rows[i][j] * w for v, w in zip(rows[i], rows[j], strict=True)]
    return [row[n:] for row in rows]


@kernel
def narrow_first(b, size, rest, lower, upper, allowance, tables, out, line, scratch):
    """Restrict the first axis to [lower, upper] and lower its degree as far as the error stays within `allowance`.

    Returns the axis' new size and the error made, rounding included. On the new interval P = sum of a_i T_i along each
    line of coefficients and |T_i| <= 1, so leaving out the terms above q changes P by at most the sum of max |a_i|.
    """
    n = size - 1
    blossoms(n, lower, upper, scratch)
    restriction = scratch[3:]
    weights = scratch[0]
    error = 0.0
    q = n
    while 1 < q and n <= LOWERED_DEGREE:
        scale = combine(tables.chebyshev[n, q], restriction, size, weights)
        contract(b, 1, size, rest, weights, line)
        largest = greatest(line, rest) + 5.0 * (size + 2) * ROUNDOFF * scale * LARGEST
        if not error + largest <= allowance:
            break
        error += largest
        q -= 1
    if q < n:
        for m in range(q + 1):
            combine(tables.truncated[n, q, m], restriction, size, weights)
            contract(b, 1, size, rest, weights, out[m * rest :])
        if greatest(out, (q + 1) * rest) <= LARGEST:  # the rounding bounds of the other kernels count on it
            return q + 1, error + 5.0 * (size + 2) * ROUNDOFF * tables.amplification[n, q] * LARGEST
    for m in range(size):
        contract(b, 1, size, rest, restriction[m], out[m * rest :])
    return size, 5.0 * (size + 2) * ROUNDOFF * LARGEST


@kernel
def blossoms(n, lower, upper, scratch):
    """Row 3 + m of scratch takes coefficients to the m-th one on [lower, upper]: convex weights.

    It is the blossom at `upper` m times and `lower` n - m times, a product of Bernstein bases; each weight has a
    relative error of at most 4 (n + 1) roundoffs.
    """
    at_upper = scratch[0]
    at_lower = scratch[1]
    for m in range(n + 1):
        row = scratch[3 + m]
        basis(m, upper, at_upper)
        basis(n - m, lower, at_lower)
        for k in range(n + 1):
            row[k] = 0.0
            for i in range(max(0, k - n + m), min(k, m) + 1):
                row[k] += at_upper[i] * at_lower[k - i]


@kernel
def combine(row, matrix, size, out):
    """out = row . matrix for a matrix with convex rows; returns the row's absolute sum."""
    scale = 0.0
    for k in range(size):
        out[k] = 0.0
    for i in range(size):
        scale += abs(row[i])
        for k in range(size):
            out[k] += row[i] * matrix[i, k]
    return scale


@kernel
def least(b, n):
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


@kernel
def greatest(b, n):
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
