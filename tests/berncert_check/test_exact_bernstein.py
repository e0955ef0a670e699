"""Bernstein polynomials of the checker, in exact arithmetic: narrowed, halved, and compared with their definition."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb, prod

import numpy as np
import pytest

from berncert_check.bernstein import Net, net_of
from berncert_check.proof_file import UnsupportedError


def value(net: Net, x: tuple[Fraction, ...]) -> Fraction:
    """By the definition of the basis."""
    total, degrees = Fraction(0), [size - 1 for size in net.sizes]
    for number, k in zip(net.numbers, product(*map(range, net.sizes)), strict=True):
        powers = (comb(n, i) * v**i * (1 - v) ** (n - i) for n, i, v in zip(degrees, k, x, strict=True))
        total += number * prod(powers, start=Fraction(1))
    return total / (1 << net.exponent)


def some_net(*degrees: int) -> Net:
    chance = np.random.default_rng(len(degrees))
    count = prod(n + 1 for n in degrees)
    return net_of([Fraction(v) for v in chance.normal(size=count)], [n + 1 for n in degrees])


@pytest.mark.parametrize("exponent", [-1100, -53, -1, 0, 7, 1100])
def test_coefficients_are_taken_exactly_and_divided_by_a_power_of_two(exponent: int) -> None:
    given = [0.1, -3.0, 5e-324, 2.0**1000, 0, -0.0]
    net = net_of(given, [6], exponent)
    divided = [Fraction(v) / Fraction(2) ** exponent for v in given]
    assert [Fraction(v, 1 << net.exponent) for v in net.numbers] == divided


POINTS = [Fraction(k, 5) for k in range(6)]


@pytest.mark.parametrize("degrees", [(1,), (7,), (3, 1), (2, 4), (1, 2, 3)])
def test_a_polynomial_on_a_box_or_a_half_has_the_same_values(degrees: tuple[int, ...]) -> None:
    net, d = some_net(*degrees), len(degrees)
    low, high = [Fraction(3, 16)] * d, [Fraction(5, 8), Fraction(3, 4), Fraction(1)][:d]
    part = net.on(low, high)
    for t in zip(POINTS, POINTS[::-1], POINTS, strict=True):
        x = tuple(a + (b - a) * v for a, b, v in zip(low, high, t[:d], strict=True))
        assert value(part, t[:d]) == value(net, x)
        for axis in range(d):
            for start in range(2):
                half = net.within(axis, Fraction(start, 2), Fraction(start + 1, 2))
                moved = [(v + start) / 2 if j == axis else v for j, v in enumerate(t[:d])]
                assert value(half, t[:d]) == value(net, tuple(moved))


def test_on_a_point_all_coefficients_are_the_value_there() -> None:
    net, point = some_net(3, 2), [Fraction(5, 32), Fraction(3, 4)]
    on = net.on(point, point)
    assert {Fraction(v, 1 << on.exponent) for v in on.numbers} == {value(net, tuple(point))}


def test_on_the_whole_cube_nothing_changes_and_what_costs_too_much_is_refused() -> None:
    net = some_net(3, 2)
    assert net.on([Fraction(0)] * 2, [Fraction(1)] * 2) == net
    fine = Fraction(1, 2**128)
    long = Net([1] * 5001, 0, (5001,))
    with pytest.raises(UnsupportedError, match="a degree that is too high"):
        long.on([fine], [Fraction(1)])
