"""Bernstein polynomials with exact coefficients: whole numbers over a common power of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from math import lcm, prod
from operator import sub

from berncert_check.proof_file import UnsupportedError, stop

MOST_WORK = 1 << 40
"""Along one axis: sums, times the bits of their numbers and 4096 more, which is what one costs; about half a minute."""


@dataclass(frozen=True)
class Net:
    """A polynomial of degree n_j = sizes[j] - 1 along axis j of a box; its coefficients are numbers / 2^exponent.

    They are in row-major order: the last axis varies fastest.
    """

    numbers: list[int]
    exponent: int
    sizes: tuple[int, ...]

    def least(self) -> Fraction:
        """The least coefficient: no value of the polynomial on its box is below it, as values are means of them."""
        return Fraction(min(self.numbers), 1 << self.exponent)

    def minus(self, other: Net) -> Net:
        """The difference of two polynomials on the same box: that of their coefficients."""
        e = max(self.exponent, other.exponent)
        a, b = e - self.exponent, e - other.exponent
        return Net([(x << a) - (y << b) for x, y in zip(self.numbers, other.numbers, strict=True)], e, self.sizes)

    def within(self, axis: int, low: Fraction, high: Fraction) -> Net:
        """The polynomial on a part [low, high] of its unit interval along an axis, whose ends are dyadic.

        With the differences D_i = sum over k of (-1)^(i - k) C(i, k) b_k, the polynomial is sum C(n, i) D_i x^i. With
        x = low + width t that is sum C(n, j) E_j width^j t^j, E_j = sum over i of C(n - j, i) D_(j + i) low^i, found by
        n - j rounds of D_j + low D_(j + 1). The differences E_j width^j are summed up to coefficients again.
        """
        n, inner, bits = self.sizes[axis] - 1, prod(self.sizes[axis + 1 :]), max(_dyadic(low), _dyadic(high))
        work = len(self.numbers) * n * (4096 + self.exponent + n * bits)
        stop(work > MOST_WORK, UnsupportedError("a degree that is too high for boxes as small as these"))
        starts = range(0, len(self.numbers), (n + 1) * inner)
        rows = [[v for s in starts for v in self.numbers[s + k * inner : s + (k + 1) * inner]] for k in range(n + 1)]
        start, width = int(low * (1 << bits)), int((high - low) * (1 << bits))
        for r in range(n):
            for k in range(n, r, -1):
                rows[k] = [b - a for a, b in zip(rows[k - 1], rows[k], strict=True)]
        for last in range(n - 1, -1, -1):
            for j in range(last + 1):
                rows[j] = [(a << bits) + start * b for a, b in zip(rows[j], rows[j + 1], strict=True)]
        rows = [[a * width**j for a in row] for j, row in enumerate(rows)]
        for r in range(n - 1, -1, -1):
            for k in range(r + 1, n + 1):
                rows[k] = [a + b for a, b in zip(rows[k - 1], rows[k], strict=True)]
        numbers = [v for s in range(0, len(rows[0]), inner) for row in rows for v in row[s : s + inner]]
        return Net(numbers, self.exponent + n * bits, self.sizes)

    def on(self, low: Sequence[Fraction], high: Sequence[Fraction]) -> Net:
        """The polynomial on a part of its unit cube; where that is a point, all coefficients are the value there."""
        net = self
        for axis, (a, b) in enumerate(zip(low, high, strict=True)):
            net = net if b - a == 1 else net.within(axis, a, b)
        return net

    def less(self, slope: Sequence[Fraction], curvature: dict[tuple[int, int], Fraction]) -> tuple[Net, int]:
        """`common` times the polynomial less Q, for Q(y) = slope . y + sum over i <= j of curvature[i, j] y_i y_j.

        y is in [-1, 1]^d. Q is a polynomial of the same degrees, as long as it has no square on an axis of degree 1.
        The coefficients of y_j are (2k - n) / n, those of y_j^2 are (4k(k - n) + n(n - 1)) / (n(n - 1)), those of a
        product of different axes are products. So the difference has the coefficients b_k - Q_k; times `common`, which
        is above 0, they are whole numbers / 2^exponent.
        """
        d, n = len(self.sizes), [size - 1 for size in self.sizes]
        steps = [slope[j] / n[j] for j in range(d)]
        bends = {(i, j): value / (n[i] * (n[j] - (i == j))) for (i, j), value in curvature.items() if value}
        common = lcm(*(part.denominator for part in chain(steps, bends.values())))
        bent = {axes: int(value * common) for axes, value in bends.items()}
        values, slopes = [0], {j: [int(steps[j] * common)] for j in range(d)}
        for j in range(d):
            nodes = [2 * k - n[j] for k in range(n[j] + 1)]
            squares = [4 * k * (k - n[j]) + n[j] * (n[j] - 1) for k in range(n[j] + 1)]
            own = bent.get((j, j), 0)
            powers = list(zip(nodes, squares, strict=True))
            values = [v + s * y + own * y2 for v, s in zip(values, slopes.pop(j), strict=True) for y, y2 in powers]
            for i, old in slopes.items():
                turn = bent.get((j, i), 0)
                slopes[i] = [s + turn * y for s in old for y in nodes]
        both = zip(self.numbers, values, strict=True)
        return Net([b * common - (q << self.exponent) for b, q in both], self.exponent, self.sizes), common


@dataclass(frozen=True)
class Sum:
    """middle + slope . y for y in [-1, 1]^d, plus terms: polynomials, each in the axes that stand before it.

    A head is one on the unit cube, a margin on a box.
    """

    middle: Fraction
    slope: list[Fraction]
    terms: list[tuple[Sequence[int], Net]]

    def least(self) -> Fraction:
        """No value on the box is below the least of the affine part, at a corner, and the least of each term."""
        return self.middle - sum(map(abs, self.slope)) + sum(net.least() for _, net in self.terms)

    def minus(self, other: Sum) -> Sum:
        """The difference of two sums whose terms have the same axes."""
        terms = [(axes, a.minus(b)) for (axes, a), (_, b) in zip(self.terms, other.terms, strict=True)]
        return Sum(self.middle - other.middle, list(map(sub, self.slope, other.slope)), terms)

    def halves(self, axis: int) -> tuple[Sum, Sum]:
        """The same on the lower and on the upper half of an axis."""
        cut = [Fraction(j == axis, 2) for j in range(len(self.slope))]
        return self.on([Fraction(0)] * len(cut), [1 - x for x in cut]), self.on(cut, [Fraction(1)] * len(cut))

    def on(self, low: Sequence[Fraction], high: Sequence[Fraction]) -> Sum:
        """The same on a part of its unit cube: there y = (low + high - 1) + (high - low) y', axis by axis."""
        parts = list(zip(self.slope, low, high, strict=True))
        terms = [(axes, net.on([low[j] for j in axes], [high[j] for j in axes])) for axes, net in self.terms]
        return Sum(self.middle + sum(s * (a + b - 1) for s, a, b in parts), [s * (b - a) for s, a, b in parts], terms)


def net_of(coefficients: Sequence[float | Fraction], sizes: Sequence[int], exponent: int = 0) -> Net:
    """The polynomial with these coefficients / 2^exponent. Every finite float is a whole number over a power of two."""
    parts = [c.as_integer_ratio() for c in coefficients]
    unit = max(1 << max(-exponent, 0), *(below for _, below in parts))  # so fine that no Net has a negative exponent
    return Net([above * (unit // below) for above, below in parts], unit.bit_length() - 1 + exponent, tuple(sizes))


def _dyadic(x: Fraction) -> int:
    """The k for which x is a whole number / 2^k."""
    k = x.denominator.bit_length() - 1
    stop(x.denominator != 1 << k, ValueError("expected a dyadic rational"))
    return k
