"""Narrowing one axis of a polynomial: to a smaller interval, and there to a lower degree with a proven error."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import product
from math import comb
from typing import NamedTuple

import numpy as np

from berncert.certification.kernels.compiled import part
from berncert.certification.kernels.tensor import LARGEST, ROUNDOFF, basis, contract, greatest
from berncert.foundation.arrays import Floats

LOWERED_DEGREE = 12  # axes of a higher degree are not lowered: the tables would amplify rounding too much


class Tables(NamedTuple):
    """What `narrow_first` needs for each degree n up to some largest."""

    chebyshev: Floats
    """[n, i] takes coefficients of degree n to the i-th coefficient of the (shifted) Chebyshev expansion."""
    truncated: Floats
    """[n, q] takes them to the Bernstein coefficients, of degree q, of that expansion cut after q."""
    amplification: Floats
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
            for m, k in product(range(q + 1), range(n + 1)):
                kept = (_chebyshev_coefficient(i, q, m) * inverse[i][k] for i in range(q + 1))
                truncated[n, q, m, k] = float(sum(kept, Fraction(0)))
            amplification[n, q] = np.abs(truncated[n, q]).sum(axis=1).max() * (1 + 2 * size * ROUNDOFF)
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


@part
def narrow_first(
    b: Floats,
    size: int,
    rest: int,
    lower: float,
    upper: float,
    allowance: float,
    tables: Tables,
    out: Floats,
    scratch: Floats,
) -> tuple[int, float]:
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
    while q > 1 and n <= LOWERED_DEGREE:
        scale = combine(tables.chebyshev[n, q], restriction, size, weights)
        contract(b, 1, size, rest, weights, out)
        largest = greatest(out, rest) + 8.0 * (size + 2) * ROUNDOFF * scale * LARGEST
        if not error + largest <= allowance:
            break
        error += largest
        q -= 1
    if q < n:
        for m in range(q + 1):
            combine(tables.truncated[n, q, m], restriction, size, weights)
            contract(b, 1, size, rest, weights, out[m * rest :])
        if greatest(out, (q + 1) * rest) <= LARGEST:  # the rounding bounds of the other kernels count on it
            return q + 1, error + 8.0 * (size + 2) * ROUNDOFF * tables.amplification[n, q] * LARGEST
    for m in range(size):
        contract(b, 1, size, rest, restriction[m], out[m * rest :])
    return size, 8.0 * (size + 2) * ROUNDOFF * LARGEST


@part
def blossoms(n: int, lower: float, upper: float, scratch: Floats) -> None:
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


@part
def combine(row: Floats, matrix: Floats, size: int, out: Floats) -> float:
    """out = row . matrix for a matrix with convex rows; returns the row's absolute sum."""
    scale = 0.0
    for k in range(size):
        out[k] = 0.0
    for i in range(size):
        scale += abs(row[i])
        for k in range(size):
            out[k] += row[i] * matrix[i, k]
    return scale
