"""The compiled tensor kernels, against the torch functions and exact rationals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from berncert.certification.kernels import tensor
from berncert.certification.kernels.compiled import kernel
from berncert.certification.kernels.tensor import ROUNDOFF
from berncert.polynomial import bernstein

contract, rotate, split = kernel(tensor.contract), kernel(tensor.rotate), kernel(tensor.split)
greatest, least = kernel(tensor.greatest), kernel(tensor.least)
value_and_gradient, value_at = kernel(tensor.value_and_gradient), kernel(tensor.value_at)

DEGREES = [(1,), (4,), (1, 1), (2, 5), (3, 1, 2), (1,) * 6, (7, 7), (12, 1, 1, 3)]


def net(degrees: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients within [-2, 2], flat, and the sizes of the axes."""
    sizes = np.array(degrees, np.int64) + 1
    return np.random.default_rng(seed).uniform(-2, 2, size=int(sizes.prod())), sizes


def room(b: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.empty(2 * b.size + 16), np.empty(2 * b.size + 16), np.empty((sizes.max() + 3, sizes.max()))


def as_torch(b: np.ndarray, sizes: np.ndarray) -> torch.Tensor:
    return torch.tensor(b.reshape(1, *sizes))


@pytest.mark.parametrize("degrees", DEGREES)
def test_value_and_gradient_are_those_of_the_torch_functions(degrees: tuple[int, ...]) -> None:
    b, sizes = net(degrees)
    gradient = np.empty(sizes.size)
    for x in np.random.default_rng(1).uniform(size=(20, sizes.size)):
        value = value_and_gradient(b, sizes, x, gradient, *room(b, sizes))
        assert value == value_at(b, sizes, x, *room(b, sizes))
        point = torch.tensor(x[None])
        assert value == pytest.approx(bernstein.evaluate(as_torch(b, sizes), point).item(), abs=1e-14)
        np.testing.assert_allclose(gradient, bernstein.gradient(as_torch(b, sizes), point)[0, 0], atol=1e-12)


@pytest.mark.parametrize("degrees", DEGREES)
def test_both_halves_are_those_of_the_torch_function_within_the_stated_error(degrees: tuple[int, ...]) -> None:
    b, sizes = net(degrees)
    for axis in range(sizes.size):
        low, high = np.empty(b.size), np.empty(b.size)
        split(b, sizes, axis, low, high)
        expected = bernstein.split(as_torch(b, sizes), axis)
        for got, want in zip((low, high), expected, strict=True):
            error = 2 * 2 * degrees[axis] * ROUNDOFF  # theirs and ours
            np.testing.assert_allclose(got, want.numpy().ravel(), rtol=0, atol=error)


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 4), size=st.integers(2, 9), rest=st.integers(1, 40), seed=st.integers(0, 9))
def test_contraction_is_a_weighted_sum_over_the_middle_axis(count: int, size: int, rest: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    source, weights = rng.normal(size=(count, size, rest)), rng.normal(size=size)
    target = np.empty(count * rest)
    contract(source.ravel(), count, size, rest, weights, target)
    np.testing.assert_allclose(target.reshape(count, rest), np.einsum("csr,s->cr", source, weights), atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=70))
def test_extremes_are_found_whatever_the_length(values: list[float]) -> None:
    b = np.array(values)
    assert least(b, b.size) == b.min()
    assert greatest(b, b.size) == np.abs(b).max()


def test_as_many_rotations_as_axes_change_nothing() -> None:
    b, sizes = net((2, 3, 1, 4))
    here, there = b.copy(), np.empty(b.size)
    for size in sizes:
        rotate(here, size, b.size // size, there)
        here, there = there, here
    np.testing.assert_array_equal(here, b)
