"""Affine and quadratic functions below a polynomial."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berncert.certification.kernels import minorant, tensor
from berncert.certification.kernels.compiled import kernel

fit, gaps, value_at = kernel(minorant.fit), kernel(minorant.gaps), kernel(tensor.value_at)


def minorants(b: np.ndarray, sizes: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float, float]:
    d, widest = sizes.size, int(sizes.max())
    here, there, scratch = np.empty(2 * b.size + 16), np.empty(2 * b.size + 16), np.empty((widest + 3, widest))
    slope, curvature = np.empty(d), np.empty((d, d))
    constant = fit(b, sizes, slope, curvature, here, there, scratch)
    net, prefix, odometer = np.empty((d + 5, max(64, widest))), np.empty((d + 1, d + 2)), np.empty(d, np.int64)
    return constant, slope, curvature, *gaps(b, sizes, constant, slope, curvature, net, prefix, odometer)


def quadratic_at(constant: float, slope: np.ndarray, curvature: np.ndarray, y: np.ndarray) -> float:
    return constant + slope @ y + np.triu(curvature).ravel() @ np.outer(y, y).ravel()


@settings(max_examples=60, deadline=None)
@given(degrees=st.lists(st.integers(1, 5), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_both_minorants_stay_below_the_polynomial(degrees: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = np.array(degrees, np.int64) + 1
    b = rng.uniform(-2, 2, size=int(sizes.prod()))
    constant, slope, curvature, affine, quadratic = minorants(b, sizes)
    room = np.empty(b.size + 16), np.empty(b.size + 16), np.empty((sizes.max(), sizes.max()))
    for y in np.concatenate(
        [rng.uniform(-1, 1, size=(20, sizes.size)), rng.choice([-1.0, 1.0], size=(20, sizes.size))]
    ):
        value = value_at(b, sizes, (1 + y) / 2, *room)
        assert constant + slope @ y + affine <= value + 1e-12
        assert quadratic_at(constant, slope, curvature, y) + quadratic <= value + 1e-12


@pytest.mark.parametrize("degrees", [(1, 1), (2, 3), (1, 2, 4), (1,) * 8, (9, 1, 1)])
def test_a_quadratic_function_is_its_own_minorant(degrees: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    d = len(degrees)
    slope, curvature = rng.normal(size=d), 0.1 * rng.normal(size=(d, d))
    curvature = curvature + curvature.T
    curvature[np.diag_indices(d)] *= [n > 1 for n in degrees]
    b = np.empty([n + 1 for n in degrees])
    for k in np.ndindex(*b.shape):
        y = np.array([2 * i / n - 1 for i, n in zip(k, degrees, strict=True)])
        b[k] = quadratic_at(0.3, slope, curvature, y)
        for j, n in enumerate(degrees):  # the coefficients of y^2 are not its values
            if n > 1:
                b[k] += curvature[j, j] * (4 * k[j] * (k[j] - n) / (n * (n - 1)) + 1 - y[j] ** 2)
    constant, found_slope, found_curvature, _, gap = minorants(b.ravel(), np.array(b.shape, np.int64))
    assert constant == pytest.approx(0.3, abs=1e-12)
    np.testing.assert_allclose(found_slope, slope, atol=1e-12)
    np.testing.assert_allclose(found_curvature, curvature, atol=1e-12)
    assert -1e-11 < gap <= 0
