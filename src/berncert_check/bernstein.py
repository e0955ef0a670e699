"""Bernstein polynomials with exact coefficients: whole numbers over a common power of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from math import lcm, prod

from berncert_check.proof_file import UnsupportedError

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

    def _planes(self, axis: int) -> list[list[int]]:
        """For each index along the axis, all coefficients with that index."""
        size, inner = self.sizes[axis], prod(self.sizes[axis + 1 :])
        starts = range(0, len(self.numbers), size * inner)
        return [[v for s in starts for v in self.numbers[s + k * inner : s + (k + 1) * inner]] for k in range(size)]

    def _with_planes(self, axis: int, planes: list[list[int]], more: int) -> Net:
        inner = prod(self.sizes[axis + 1 :])
        starts = range(0, len(planes[0]), inner)
        numbers = list(chain.from_iterable(plane[s : s + inner] for s in starts for plane in planes))
        return Net(numbers, self.exponent + more, self.sizes)

    def halves(self, axis: int) -> tuple[Net, Net]:
        """The polynomial on the lower and on the upper half of an axis."""
        return self.within(axis, Fraction(0), Fraction(1, 2)), self.within(axis, Fraction(1, 2), Fraction(1))

    def within(self, axis: int, low: Fraction, high: Fraction) -> Net:
        """The polynomial on a part [low, high] of its unit interval along an axis, whose ends are dyadic.

        With the differences D_i = sum over k of (-1)^(i - k) C(i, k) b_k, the polynomial is sum C(n, i) D_i x^i. With
        x = low + width t that is sum C(n, j) E_j width^j t^j, E_j = sum over i of C(n - j, i) D_(j + i) low^i, found by
        n - j rounds of D_j + low D_(j + 1). The differences E_j width^j are summed up to coefficients again.
        """
        n, bits, rows = self.sizes[axis] - 1, max(_dyadic(low), _dyadic(high)), self._planes(axis)
        if len(self.numbers) * n * (4096 + self.exponent + n * bits) > MOST_WORK:
            raise UnsupportedError("a degree that is too high for boxes as small as these")
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
        return self._with_planes(axis, rows, n * bits)

    def on(self, low: Sequence[Fraction], high: Sequence[Fraction]) -> Net:
        """The polynomial on a part of its unit cube; where that is a point, all coefficients are the value there."""
        net = self
        for axis, (a, b) in enumerate(zip(low, high, strict=True)):
            net = net if b - a == 1 else net.within(axis, a, b)
        return net

    def gap(self, slope: Sequence[Fraction], curvature: dict[tuple[int, int], Fraction]) -> Fraction:
        """min over k of b_k - Q_k, for Q(y) = slope . y + sum over i <= j of curvature[i, j] y_i y_j, y in [-1, 1]^d.

        Q is a polynomial of the same degrees, as long as it has no square on an axis of degree 1. The coefficients of
        y_j are (2k - n) / n, those of y_j^2 are (4k(k - n) + n(n - 1)) / (n(n - 1)), those of a product of different
        axes are products. So b - Q has the coefficients b_k - Q_k, and the polynomial is at least Q + gap on the box.
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
        unit = 1 << self.exponent
        return Fraction(min(b * common - q * unit for b, q in zip(self.numbers, values, strict=True)), unit * common)


@dataclass(frozen=True)
class Plane:
    """An affine function on a box, middle + slope . y for y in [-1, 1]^d: what a `Net` is, in any number of axes."""

    middle: Fraction
    slope: list[Fraction]

    def least(self) -> Fraction:
        """The least value, at a corner."""
        return self.middle - sum(map(abs, self.slope))

    def minus(self, other: Plane) -> Plane:
        """The difference."""
        return Plane(self.middle - other.middle, [a - b for a, b in zip(self.slope, other.slope, strict=True)])

    def halves(self, axis: int) -> tuple[Plane, Plane]:
        """The same on the lower and on the upper half of an axis."""
        half = self.slope[axis] / 2
        slope = [half if j == axis else s for j, s in enumerate(self.slope)]
        return Plane(self.middle - half, slope), Plane(self.middle + half, slope)

    def on(self, low: Sequence[Fraction], high: Sequence[Fraction]) -> Plane:
        """The same on a part of its unit cube: there y = (low + high - 1) + (high - low) y', axis by axis."""
        parts = list(zip(self.slope, low, high, strict=True))
        return Plane(self.middle + sum(s * (a + b - 1) for s, a, b in parts), [s * (b - a) for s, a, b in parts])

    def gap(self, slope: Sequence[Fraction], curvature: dict[tuple[int, int], Fraction]) -> Fraction:
        """The least value of the function less slope . y; curvature must be 0."""
        return self.middle - sum(abs(a - b) for a, b in zip(self.slope, slope, strict=True))


def plane_of(weight: Sequence[Fraction], bias: Fraction) -> Plane:
    """bias + weight . x on the unit cube, where x = (1 + y) / 2."""
    return Plane(bias + sum(weight, Fraction(0)) / 2, [w / 2 for w in weight])


def net_of(coefficients: Sequence[Fraction], sizes: Sequence[int]) -> Net:
    """The polynomial with these coefficients, which are dyadic."""
    bits = max(map(_dyadic, coefficients))
    return Net([int(c * (1 << bits)) for c in coefficients], bits, tuple(sizes))


def _dyadic(x: Fraction) -> int:
    """The k for which x is a whole number / 2^k."""
    k = x.denominator.bit_length() - 1
    if x.denominator != 1 << k:
        raise ValueError(f"expected a dyadic rational, got a denominator of {x.denominator}")
    return k
