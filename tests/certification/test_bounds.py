"""The proven range of outputs over boxes: classic problems with known minima, and laws on random polynomials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import comb

import numpy as np
import pytest
import torch
from random_heads import random_head

import berncert
from berncert import Status, bounds
from berncert.certification.bounds import ranges
from berncert.certification.box_search import Questions
from berncert.certification.methods import Exact

Terms = Mapping[tuple[int, ...], Fraction]


def bernstein_form(terms: Terms, low: list[Fraction], high: list[Fraction]) -> np.ndarray:
    """The coefficients on the box of a sum of monomials, exponents -> factor, in exact rationals."""
    dim = len(low)
    degrees = [max(1, *(e[j] for e in terms)) for j in range(dim)]
    power = np.full([n + 1 for n in degrees], Fraction(0), dtype=object)
    for exponents, factor in terms.items():
        power[exponents] += factor
    for j, n in enumerate(degrees):
        width = high[j] - low[j]
        # x = low + width t: x^i = sum_m C(i,m) low^(i-m) width^m t^m; t^m = sum_k C(k,m)/C(n,m) B_k
        matrix = [
            [
                sum((comb(i, m) * low[j] ** (i - m) * width**m * Fraction(comb(k, m), comb(n, m))
                     for m in range(min(i, k) + 1)), Fraction(0))
                for i in range(n + 1)
            ]
            for k in range(n + 1)
        ]  # fmt: skip
        power = np.moveaxis(np.tensordot(np.array(matrix, dtype=object), power, axes=(1, j)), 0, j)
    return power


def polynomial(dim: int, *terms: tuple[str | int | float, dict[int, int]]) -> Terms:
    """Factor and {variable (from 1): exponent}, one after the other."""
    found: dict[tuple[int, ...], Fraction] = {}
    for factor, powers in terms:
        key = tuple(powers.get(j + 1, 0) for j in range(dim))
        found[key] = found.get(key, Fraction(0)) + Fraction(str(factor))
    return found


def trid(n: int) -> Terms:
    terms: list[tuple[int, dict[int, int]]] = []
    for i in range(1, n + 1):
        terms += [(1, {i: 2}), (-2, {i: 1}), (1, {})]
    for i in range(2, n + 1):
        terms.append((-1, {i: 1, i - 1: 1}))
    return polynomial(n, *terms)


CLASSICS = {
    "heart dipole": (
        polynomial(
            8, (-1, {1: 1, 6: 3}), (3, {1: 1, 6: 1, 7: 2}), (-1, {3: 1, 7: 3}), (3, {3: 1, 7: 1, 6: 2}),
            (-1, {2: 1, 5: 3}), (3, {2: 1, 5: 1, 8: 2}), (-1, {4: 1, 8: 3}), (3, {4: 1, 8: 1, 5: 2}),
            ("-0.9563453", {}),
        ),
        ["-0.1", "0.4", "-0.7", "-0.7", "0.1", "-0.1", "-0.3", "-1.1"],
        ["0.4", "1", "-0.4", "0.4", "0.2", "0.2", "1.1", "-0.3"],
        -1.74345,
    ),
    "caprasse": (
        polynomial(
            4, (-1, {1: 1, 3: 3}), (4, {2: 1, 3: 2, 4: 1}), (4, {1: 1, 3: 1, 4: 2}), (2, {2: 1, 4: 3}),
            (4, {1: 1, 3: 1}), (4, {3: 2}), (-10, {2: 1, 4: 1}), (-10, {4: 2}), (2, {}),
        ),
        ["-0.5"] * 4, ["0.5"] * 4, -3.180097,
    ),
    "butcher": (
        polynomial(
            6, (1, {6: 1, 2: 2}), (1, {5: 1, 3: 2}), (-1, {1: 1, 4: 2}), (1, {4: 3}), (1, {4: 2}),
            (Fraction(-1, 3), {1: 1}), (Fraction(4, 3), {4: 1}),
        ),
        ["-1", "-0.1", "-0.1", "-1", "-0.1", "-0.1"], ["0", "0.9", "0.5", "-0.1", "-0.05", "-0.03"], -1.4393,
    ),
    "reaction-diffusion": (
        polynomial(3, (-1, {1: 1}), (2, {2: 1}), (-1, {3: 1}), ("-0.835634534", {2: 1}), ("-0.835634534", {2: 2})),
        ["-5"] * 3, ["5"] * 3, -36.7126907,
    ),
    "magnetism": (
        polynomial(7, (1, {1: 2}), *((2, {j: 2}) for j in range(2, 8)), (-1, {1: 1})),
        ["-1"] * 7, ["1"] * 7, -0.25,
    ),
    "trid, 4 variables": (trid(4), ["-16"] * 4, ["16"] * 4, -16.0),
    "schwefel": (
        polynomial(
            3, (1, {1: 2}), (-2, {1: 1, 2: 2}), (1, {2: 4}), (1, {2: 2}), (-2, {2: 1}), (1, {}),
            (1, {1: 2}), (-2, {1: 1, 3: 2}), (1, {3: 4}), (1, {3: 2}), (-2, {3: 1}), (1, {}),
        ),
        ["-10"] * 3, ["10"] * 3, 0.0,
    ),
    "lotka-volterra": (
        polynomial(
            4, (1, {1: 1, 2: 2}), (1, {1: 1, 3: 2}), (1, {1: 1, 4: 2}), ("-1.1", {1: 1}), (1, {}),
        ),
        ["-2"] * 4, ["2"] * 4, -20.8,
    ),
}  # fmt: skip
"""Name -> terms, the literature's box, its minimum."""


@pytest.mark.parametrize("name", CLASSICS)
def test_the_minimum_of_a_classic_problem_is_found_and_proven(name: str) -> None:
    terms, low, high, minimum = CLASSICS[name]
    exact = bernstein_form(terms, [Fraction(v) for v in low], [Fraction(v) for v in high])
    coefficients = exact.astype(np.float64)
    rounding = float(np.abs(coefficients).max()) * 2.0**-52
    b = bounds(berncert.SmoothedHead(torch.tensor(coefficients)[None]), tolerance=1e-6, threads=1)
    spread = float(coefficients.max() - coefficients.min())
    assert b.status[0, 0] is Status.PROVEN
    assert b.lower[0, 0] <= minimum + rounding + 1e-4 * abs(minimum)
    assert b.least_found[0, 0] - b.lower[0, 0] <= 1.01e-6 * spread
    assert b.lower[0, 0] == pytest.approx(minimum, abs=2e-6 * spread + 1e-4 * abs(minimum))
    if name == "heart dipole":
        assert -1.7435 <= b.lower[0, 0] <= b.least_found[0, 0] <= -1.7434


def test_ranges_hold_on_boxes_and_are_taken_at_their_points() -> None:
    rng = np.random.default_rng(0)
    for outputs, degrees in [(1, (5,)), (3, (3, 4)), (2, (2, 1, 3)), (1, (2, 2, 2, 2))]:
        head = random_head(rng, outputs, degrees)
        one, two = rng.uniform(size=(2, 20, len(degrees)))
        low, high = np.minimum(one, two), np.maximum(one, two)
        low[:5, 0] = high[:5, 0]  # no width
        b = bounds(head, low, high, threads=1)
        points = rng.uniform(low, high, size=(500, *low.shape))
        values = head(torch.tensor(points.reshape(-1, len(degrees)))).numpy().reshape(500, 20, outputs)
        assert (values >= b.lower).all()
        assert (values <= b.upper).all()
        assert (b.least_found <= values.min(axis=0) + 1e-2 * np.ptp(values, axis=0) + 1e-12).all()
        for at, found in ((b.argmin, b.least_found), (b.argmax, b.greatest_found)):
            assert ((at >= low[:, None]) & (at <= high[:, None])).all()
            for k in range(outputs):
                np.testing.assert_allclose(head(torch.tensor(at[:, k])).numpy()[:, k], found[:, k], atol=1e-12)
        assert set(b.status.ravel()) == {Status.PROVEN}
        spread = float(np.ptp(head.coefficients.numpy()))
        assert (b.least_found - b.lower <= 1.001e-3 * spread).all()


def test_a_constant_is_its_own_range_up_to_rounding() -> None:
    b = bounds(berncert.SmoothedHead(torch.full((1, 3, 3), 7.0).double()))
    assert b.status[0, 0] is Status.PROVEN
    assert 7 - 1e-12 <= b.lower[0, 0] <= 7 <= b.upper[0, 0] <= 7 + 1e-12


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e200])
def test_the_scale_of_the_coefficients_does_not_matter(scale: float) -> None:
    c = torch.tensor(np.random.default_rng(3).normal(size=(1, 4, 4)))
    plain, scaled = bounds(berncert.SmoothedHead(c)), bounds(berncert.SmoothedHead(c * scale))
    np.testing.assert_allclose(scaled.lower / scale, plain.lower, rtol=1e-3)


def test_a_budget_leaves_valid_bounds_and_says_so() -> None:
    rng = np.random.default_rng(1)
    head = random_head(rng, 1, (6, 6, 6), bend=5.0)
    short, full = bounds(head, max_boxes=3, tolerance=1e-6), bounds(head, tolerance=1e-4)
    assert short.status[0, 0] is Status.BUDGET
    assert short.lower[0, 0] <= full.least_found[0, 0]
    assert short.upper[0, 0] >= full.greatest_found[0, 0]


@pytest.mark.parametrize("ask", [berncert.certify, berncert.estimate])
def test_what_asks_for_classes_refuses_one_output_and_points_to_bounds(ask: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"berncert\.bounds"):
        ask(berncert.SmoothedHead(torch.rand(1, 3).double()), [[0.5]])


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([0.0], [1.0, 1.0], "lower of shape"),
        ([0.0, 0.9], [1.0, 0.8], "lower <= upper"),
        ([0.0, -0.1], [1.0, 0.8], "inside the cube"),
        ([0.0, math.nan], [1.0, 0.8], "lower <= upper"),
    ],
)
def test_boxes_that_make_no_sense_are_refused(low: list[float], high: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bounds(berncert.SmoothedHead(torch.rand(1, 3, 3).double()), low, high)


@pytest.mark.parametrize("norm", [1, 1.5, 2, 3, math.inf])
def test_ranges_within_a_radius_hold_and_are_nearly_taken(norm: float) -> None:
    rng = np.random.default_rng(6)
    head = random_head(rng, 2, (3, 2, 3), bend=0.7)
    x, weight = rng.uniform(size=(15, 3)), rng.uniform(0.5, 3, (15, 3))
    target = rng.uniform(0.05, 0.6, 15)
    around = Questions.plain(x, target)._replace(weight=weight)
    b = ranges(head, around, Exact(norm=norm, tolerance=1e-2, max_boxes=20_000), threads=1)
    steps = rng.normal(size=(4000, 15, 3))
    lengths = np.linalg.norm(steps, ord=norm, axis=-1, keepdims=True)
    shrink = target[:, None] * rng.uniform(size=lengths.shape) ** 0.2
    points = np.clip(x + steps / lengths * shrink / weight, 0, 1)
    values = head(torch.tensor(points.reshape(-1, 3))).numpy().reshape(4000, 15, 2)
    assert (values >= b.lower).all()
    assert (values <= b.upper).all()
    assert set(b.status.ravel()) <= {Status.PROVEN, *([] if norm in (1, 2, math.inf) else [Status.BUDGET])}
    for at in (b.argmin, b.argmax):
        far = np.linalg.norm(weight[:, None] * (at - x[:, None]), ord=norm, axis=-1)
        assert (far <= target[:, None] * (1 + 1e-12)).all()
