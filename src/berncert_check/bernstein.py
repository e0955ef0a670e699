"""Bernstein polynomials with exact coefficients: whole numbers over a common power of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, pairwise
from math import comb, gcd, prod


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
        return [
            list(chain.from_iterable(self.numbers[s + k * inner : s + (k + 1) * inner] for s in starts))
            for k in range(size)
        ]

    def _with_planes(self, axis: int, planes: list[list[int]], more: int) -> Net:
        inner = prod(self.sizes[axis + 1 :])
        starts = range(0, len(planes[0]), inner)
        numbers = list(chain.from_iterable(plane[s : s + inner] for s in starts for plane in planes))
        return Net(numbers, self.exponent + more, self.sizes)

    def halves(self, axis: int) -> tuple[Net, Net]:
        """The polynomial on the lower and on the upper half of an axis.

        De Casteljau: with means of neighbours taken n times, the first of each round are the coefficients of the lower
        half, the last those of the upper half. Sums take the place of means: a round more is a factor of two more.
        """
        row, n = self._planes(axis), self.sizes[axis] - 1
        low, high = [[v << n for v in row[0]]], [[v << n for v in row[-1]]]
        for done in range(1, n + 1):
            row = [[a + b for a, b in zip(p, q, strict=True)] for p, q in pairwise(row)]
            low.append([v << (n - done) for v in row[0]])
            high.append([v << (n - done) for v in row[-1]])
        return self._with_planes(axis, low, n), self._with_planes(axis, high[::-1], n)

    def within(self, axis: int, low: Fraction, high: Fraction) -> Net:
        """The polynomial on a part [low, high] of its unit interval along an axis.

        Coefficient i is the polynomial's blossom with n - i arguments low and i arguments high (the polar form, which
        is symmetric and affine in each argument): n rounds of (1 - x) p + x q with these x. Both ends are dyadic.
        """
        planes, n = self._planes(axis), self.sizes[axis] - 1
        bits = max(_dyadic(low), _dyadic(high))
        a, b = int(low * (1 << bits)), int(high * (1 << bits))
        result = []
        for i in range(n + 1):
            row = planes
            for x in [a] * (n - i) + [b] * i:
                y = (1 << bits) - x
                row = [[y * u + x * v for u, v in zip(p, q, strict=True)] for p, q in pairwise(row)]
            result.append(row[0])
        return self._with_planes(axis, result, n * bits)

    def value(self, point: Sequence[Fraction]) -> Fraction:
        """The polynomial at a point of its box, in the box's own coordinates [0, 1]^d, by its definition."""
        rest = [Fraction(v, 1 << self.exponent) for v in self.numbers]
        for size, x in zip(self.sizes, point, strict=True):
            n, inner = size - 1, len(rest) // size
            basis = [comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(size)]
            rest = [sum((basis[k] * rest[k * inner + i] for k in range(size)), Fraction(0)) for i in range(inner)]
        return rest[0]

    def gap(self, slope: Sequence[Fraction], curvature: dict[tuple[int, int], Fraction]) -> Fraction:
        """min over k of b_k - Q_k, for Q(y) = slope . y + sum over i <= j of curvature[i, j] y_i y_j, y in [-1, 1]^d.

        Q is a polynomial of the same degrees, as long as it has no square on an axis of degree 1. The coefficients of
        y_j are (2k - n) / n, those of y_j^2 are (4k(k - n) + n(n - 1)) / (n(n - 1)), those of a product of different
        axes are products. So b - Q has the coefficients b_k - Q_k, and the polynomial is at least Q + gap on the box.
        """
        d, n = len(self.sizes), [size - 1 for size in self.sizes]
        steps = [slope[j] / n[j] for j in range(d)]
        bends = {
            (i, j): value / (n[i] * n[j]) if i != j else value / (n[j] * (n[j] - 1))
            for (i, j), value in curvature.items()
            if value
        }
        common = 1
        for part in chain(steps, bends.values()):
            common = common * part.denominator // gcd(common, part.denominator)
        whole = [int(step * common) for step in steps]
        bent = {axes: int(value * common) for axes, value in bends.items()}
        values, slopes = [0], {j: [whole[j]] for j in range(d)}
        for j in range(d):
            nodes = [2 * k - n[j] for k in range(n[j] + 1)]
            squares = [4 * k * (k - n[j]) + n[j] * (n[j] - 1) for k in range(n[j] + 1)]
            own = bent.get((j, j), 0)
            along = slopes.pop(j)
            values = [
                v + s * y + own * y2
                for v, s in zip(values, along, strict=True)
                for y, y2 in zip(nodes, squares, strict=True)
            ]
            for i, old in slopes.items():
                turn = bent.get((j, i), 0)
                slopes[i] = [s + turn * y for s in old for y in nodes]
        unit = 1 << self.exponent
        return Fraction(min(b * common - q * unit for b, q in zip(self.numbers, values, strict=True)), unit * common)


def net_of(coefficients: Sequence[float], sizes: Sequence[int], exponent: int = 0) -> Net:
    """The polynomial with these coefficients, divided by 2^exponent; every float is a dyadic rational."""
    parts = [Fraction(c) / Fraction(2) ** exponent for c in coefficients]
    bits = max((_dyadic(part) for part in parts), default=0)
    return Net([int(part * (1 << bits)) for part in parts], bits, tuple(sizes))


def _dyadic(x: Fraction) -> int:
    """The k for which x is a whole number / 2^k."""
    k = x.denominator.bit_length() - 1
    if x.denominator != 1 << k:
        raise ValueError(f"expected a dyadic rational, got a denominator of {x.denominator}")
    return k
