"""Lower bounds on distances: below every point that satisfies the constraint, and tight where that can be told."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from berncert.certification.kernels import distance
from berncert.certification.kernels.compiled import kernel

affine_bound, quadratic_bound = kernel(distance.affine_bound), kernel(distance.quadratic_bound)
length, nearest, support = kernel(distance.length), kernel(distance.nearest), kernel(distance.support)

NORMS = st.sampled_from([1.0, 1.003, 1.2, 1.5, 2.0, 3.0, 10.0, 200.0, math.inf])


def scene(seed: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """A box, and an affine function on it that is positive at its nearest point and negative somewhere."""
    rng = np.random.default_rng(seed)
    centre, half = rng.normal(size=d), rng.uniform(0.1, 1.0, size=d)
    slope = rng.normal(size=d)
    start = np.clip(0, centre - half, centre + half)
    at_start = slope @ ((start - centre) / half)
    return centre, half, slope, float(-at_start + rng.uniform(0, 1) * (np.abs(slope).sum() + at_start))


def affine(centre: np.ndarray, half: np.ndarray, slope: np.ndarray, low: float, p: float) -> tuple[float, np.ndarray]:
    d = centre.size
    t, z = np.empty(d), np.empty(d)
    nearest(centre, half, slope, low, p, np.empty(d), t)
    multiplier = support(t, centre, half, slope, p, z)
    return affine_bound(centre, half, slope, low, z, multiplier), t


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 8), p=NORMS)
def test_the_affine_bound_is_the_distance_of_the_nearest_point(seed: int, d: int, p: float) -> None:
    centre, half, slope, low = scene(seed, d)
    bound, t = affine(centre, half, slope, low, p)
    reached = length(t, p)
    assert (np.abs(t - centre) <= half * (1 + 1e-12)).all()
    assert low + slope @ ((t - centre) / half) <= 1e-9
    assert bound <= reached * (1 + 1e-12)
    if p >= 1.2 or p == 1.0:
        assert bound >= reached * (1 - 1e-6) - 1e-9


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 6), p=st.sampled_from([1.0, math.inf]))
def test_for_polyhedral_norms_it_is_the_value_of_the_linear_program(seed: int, d: int, p: float) -> None:
    centre, half, slope, low = scene(seed, d)
    bound, _ = affine(centre, half, slope, low, p)
    eye = np.eye(d)
    size = d if p == 1 else 1
    cost = np.concatenate([np.zeros(d), np.ones(size)])
    reach = -eye if p == 1 else -np.ones((d, 1))
    rows = np.vstack(
        [np.hstack([eye, reach]), np.hstack([-eye, reach]), np.concatenate([slope / half, np.zeros(size)])]
    )
    limits = np.concatenate([np.zeros(2 * d), [slope @ (centre / half) - low]])
    bounds = [*zip(centre - half, centre + half, strict=True), *[(0, None)] * size]
    found = linprog(cost, A_ub=rows, b_ub=limits, bounds=bounds)
    assert bound == pytest.approx(found.fun, abs=1e-7)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 6), p=NORMS.filter(lambda p: p > 1), bend=st.floats(0, 2))
def test_no_feasible_point_is_nearer_than_the_quadratic_bound(seed: int, d: int, p: float, bend: float) -> None:
    centre, half, slope, low = scene(seed, d)
    rng = np.random.default_rng(seed)
    curvature = bend * rng.normal(size=(d, d))
    curvature = curvature + curvature.T
    t, z, y = np.empty(d), np.empty(d), np.empty(d)
    nearest(centre, half, slope, low, p, np.empty(d), t)
    multiplier = support(t, centre, half, slope, p, z)
    bound = quadratic_bound(
        centre, half, slope, curvature, low, p, t, z, multiplier, y, np.empty(d), np.empty((d, d))
    )  # fmt: skip
    points = np.vstack([rng.uniform(-1, 1, size=(4000, d)), np.clip(y + 0.1 * rng.normal(size=(2000, d)), -1, 1)])
    values = low + points @ slope + np.einsum("ni,ij,nj->n", points, np.triu(curvature), points)
    feasible = centre + half * points[values <= 0]
    if len(feasible):
        nearest_found = min(length(t, p) for t in feasible)
        assert bound <= nearest_found
        for _ in range(5):  # the point and the multiplier need not be the best ones
            other = t + 0.3 * rng.normal(size=d)
            support(other, centre, half, slope, p, z)
            bound = quadratic_bound(
                centre, half, slope, curvature, low, p, other, z, multiplier * rng.uniform(0, 2), y,
                np.empty(d), np.empty((d, d)),
            )  # fmt: skip
            assert bound <= nearest_found


def test_the_quadratic_bound_is_tight_for_a_convex_problem() -> None:
    # |t|_2 over t_1 >= 1/4 + t_2^2 / 4 in a box around 0: the nearest point is (1/4, 0), and all is convex
    centre, half = np.zeros(2), np.ones(2)
    slope, curvature = np.array([-1.0, 0.0]), np.array([[0.0, 0.0], [0.0, 0.25]])
    t, z, y = np.empty(2), np.empty(2), np.empty(2)
    nearest(centre, half, slope, 0.25, 2.0, np.empty(2), t)
    multiplier = support(t, centre, half, slope, 2.0, z)
    bound = quadratic_bound(
        centre, half, slope, curvature, 0.25, 2.0, t, z, multiplier, y, np.empty(2), np.empty((2, 2))
    )  # fmt: skip
    best = minimize(
        lambda v: v @ v, [0.3, 0.1], constraints={"type": "ineq", "fun": lambda v: v[0] - 0.25 - v[1] ** 2 / 4}
    )
    assert bound == pytest.approx(math.sqrt(best.fun), rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=9), st.one_of(NORMS, st.floats(1, 1e6)))
def test_length_is_the_norm(values: list[float], p: float) -> None:
    t = np.array(values)
    largest = np.abs(t).max()
    want = largest * np.linalg.norm(t / largest, ord=p) if largest > 1e-290 else largest
    if largest > 1e-290:
        assert length(t, p) == pytest.approx(want, rel=1e-14 * (len(t) + 12))
