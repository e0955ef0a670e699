"""Narrowing an axis: the interval is exact, and the lowered degree stays within the error it states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import comb

from berncert.certification.kernels import lowering
from berncert.certification.kernels.compiled import kernel
from berncert.certification.kernels.lowering import LOWERED_DEGREE, lowering_tables
from berncert.certification.kernels.tensor import LARGEST
from berncert.polynomial import bernstein

narrow_first = kernel(lowering.narrow_first)


def values(b: np.ndarray, u: np.ndarray) -> np.ndarray:
    """(size, rest) coefficients at the points u: (len(u), rest)."""
    n = len(b) - 1
    k = np.arange(n + 1)
    return (comb(n, k) * u[:, None] ** k * (1 - u[:, None]) ** (n - k)) @ b


def narrow(b: np.ndarray, low: float, high: float, allowance: float) -> tuple[np.ndarray, float]:
    size, rest = b.shape
    out, scratch = np.empty(b.size), np.empty((size + 3, size))
    tables = lowering_tables(min(size - 1, LOWERED_DEGREE))
    new, error = narrow_first(b.ravel(), size, rest, low, high, allowance, tables, out, scratch)
    return out[: new * rest].reshape(new, rest), error


@pytest.mark.parametrize("degree", [1, 2, 3, 7, 12, 20])
def test_without_allowance_only_the_interval_changes(degree: int) -> None:
    rng = np.random.default_rng(degree)
    b = rng.uniform(-LARGEST, LARGEST, size=(degree + 1, 11))
    for low, high in [(0.0, 1.0), (0.1, 0.4), (0.0, 1e-3), (0.999, 1.0)]:
        got, error = narrow(b, low, high, 0.0)
        want = bernstein.restrict(torch.tensor(b.T.copy()), [low], [high]).T
        assert len(got) == degree + 1
        np.testing.assert_allclose(got, want, atol=2 * error)
        assert error < 1e-12


@settings(max_examples=80, deadline=None)
@given(
    degree=st.integers(2, 12),
    rest=st.integers(1, 20),
    interval=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted).filter(lambda i: i[1] - i[0] > 1e-3),
    allowance=st.floats(1e-9, 1.0),
    seed=st.integers(0, 99),
)
def test_a_lowered_degree_stays_within_its_error(
    degree: int, rest: int, interval: list[float], allowance: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    smooth = rng.normal(size=(1, rest)) * np.linspace(0, 1, degree + 1)[:, None] ** 2
    b = np.clip(smooth + 0.1 * rng.normal(size=(degree + 1, rest)), -LARGEST, LARGEST)
    low, high = interval
    got, error = narrow(b, low, high, allowance)
    u = np.linspace(0, 1, 101)
    assert error <= allowance + 1e-12
    assert np.abs(values(got, u) - values(b, low + (high - low) * u)).max() <= error + 1e-13


def test_a_polynomial_of_lower_degree_is_recognised() -> None:
    u = np.linspace(0, 1, 8)
    got, error = narrow(np.stack([u, 1 - 2 * u], axis=1), 0.2, 0.7, 1e-9)  # affine, written with degree 7
    assert len(got) == 2
    assert error < 1e-12
    np.testing.assert_allclose(got, [[0.2, 0.6], [0.7, -0.4]], atol=1e-12)
