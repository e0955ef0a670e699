"""The laws of Bernstein polynomials, and their values against exact rationals and an independent spline code."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import comb, prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import NdBSpline
from torch import Tensor

from berncert.polynomial import basis, bernstein, enclose, evaluate, gradient, restrict, split
from berncert.polynomial.bernstein import linearise, restrict_rows

Net = tuple[Tensor, Tensor]
unit = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 1e-200, 5e-324, 2.0**-53, 1 - 2.0**-53, 0.5])
laws = settings(max_examples=60, deadline=None)


def random_net(classes: int, degrees: tuple[int, ...], rows: int = 7, seed: int = 0) -> Net:
    generator = torch.Generator().manual_seed(seed)
    shape = (classes, *(n + 1 for n in degrees))
    coefficients = torch.randn(shape, generator=generator, dtype=torch.float64)
    return coefficients, torch.rand(rows, len(degrees), generator=generator, dtype=torch.float64)


@st.composite
def nets(draw: st.DrawFn, max_dim: int = 3, max_degree: int = 4) -> Net:
    """A random net at a random scale, and points that often lie on a face or very near one."""
    degrees = tuple(draw(st.lists(st.integers(1, max_degree), min_size=1, max_size=max_dim)))
    coefficients, _ = random_net(draw(st.integers(1, 3)), degrees, seed=draw(st.integers(0, 2**31)))
    scale = 10.0 ** draw(st.sampled_from([-300, -280, -8, 0, 0, 5, 300]))
    x = draw(st.lists(st.lists(unit, min_size=len(degrees), max_size=len(degrees)), min_size=1, max_size=3))
    return coefficients * scale, torch.tensor(x, dtype=torch.float64)


def exact_basis(degree: int, x: Fraction) -> list[Fraction]:
    return [comb(degree, k) * x**k * (1 - x) ** (degree - k) for k in range(degree + 1)]


def exact_slopes(degree: int, x: Fraction) -> list[Fraction]:
    lower = [Fraction(0), *exact_basis(degree - 1, x), Fraction(0)]
    return [degree * (lower[k] - lower[k + 1]) for k in range(degree + 1)]


def exact_value(net: Tensor, x: Tensor, derivative_axis: int | None = None) -> Fraction:
    """One class at one point, in exact rationals, from the definition."""
    weights = [
        (exact_slopes if axis == derivative_axis else exact_basis)(size - 1, Fraction(x_j))
        for axis, (size, x_j) in enumerate(zip(net.shape, x.tolist(), strict=True))
    ]
    return sum(
        (Fraction(c) * prod(w) for c, w in zip(net.flatten().tolist(), product(*weights), strict=True)), Fraction(0)
    )


def error_bound(coefficients: Tensor) -> Fraction:
    """The law of `evaluate`."""
    dim, degree = coefficients.ndim - 1, max(coefficients.shape[1:]) - 1
    largest = Fraction(coefficients.abs().max().item())
    return (dim * (4 * degree + 3) + 2) * Fraction(2) ** -53 * Fraction(101, 100) * largest


def assert_same_values(got: Tensor, expected: Tensor, scale: Tensor, roundings: int = 200) -> None:
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= roundings * 2**-53 * scale.abs().max()


@laws
@given(st.integers(0, 30), st.lists(unit, min_size=1, max_size=5))
def test_the_basis_is_a_partition_of_unity(degree: int, x: list[float]) -> None:
    values = basis(degree, torch.tensor(x, dtype=torch.float64))
    assert values.shape == (len(x), degree + 1)
    assert (values >= 0).all()
    assert ((values.sum(-1) - 1).abs() <= (4 * degree + 1) * 2**-53).all()


@laws
@given(st.integers(0, 12), st.floats(1e-20, 1 - 1e-16))
def test_each_basis_value_has_a_small_relative_error(degree: int, x: float) -> None:
    values = basis(degree, torch.tensor(x, dtype=torch.float64))
    for got, exact in zip(values.tolist(), exact_basis(degree, Fraction(x)), strict=True):
        assert abs(Fraction(got) - exact) <= exact * 3 * degree * Fraction(2) ** -53 * Fraction(101, 100)


@laws
@given(nets())
def test_values_stay_within_the_stated_distance_of_exact_rationals(net: Net) -> None:
    coefficients, x = net
    got, bound = evaluate(coefficients, x), error_bound(coefficients)
    for (row, point), k in product(enumerate(x), range(len(coefficients))):
        assert abs(Fraction(got[row, k].item()) - exact_value(coefficients[k], point)) <= bound


@pytest.mark.parametrize("degrees", [(1,) * 8, (3,) * 5, (40,), (2, 15, 1), (9, 9)])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_the_error_bound_holds_for_large_nets_of_mixed_magnitudes(degrees: tuple[int, ...], scale: float) -> None:
    coefficients, x = random_net(2, degrees, rows=2)
    coefficients = coefficients / coefficients.abs().max() * scale
    coefficients[0] *= 10.0 ** -torch.randint(0, 20, coefficients[0].shape)
    got = evaluate(coefficients, x)
    for row, k in product(range(2), range(2)):
        exact = exact_value(coefficients[k], x[row])
        assert abs(Fraction(got[row, k].item()) - exact) <= error_bound(coefficients[k : k + 1])


@settings(max_examples=30, deadline=None)
@given(nets(max_degree=3))
def test_gradients_stay_within_the_stated_distance_of_exact_rationals(net: Net) -> None:
    coefficients, x = net
    got, bound = gradient(coefficients, x), error_bound(coefficients)
    for (row, point), k, axis in product(enumerate(x), range(len(coefficients)), range(x.shape[1])):
        exact = exact_value(coefficients[k], point, derivative_axis=axis)
        degree = coefficients.shape[axis + 1] - 1
        assert abs(Fraction(got[row, k, axis].item()) - exact) <= 2 * degree * bound


@laws
@given(nets())
def test_the_range_of_the_coefficients_encloses_every_value(net: Net) -> None:
    coefficients, x = net
    values, rounding = evaluate(coefficients, x), float(error_bound(coefficients))
    least, greatest = enclose(coefficients)
    assert least.shape == greatest.shape == (len(coefficients),)
    assert ((least - rounding <= values) & (values <= greatest + rounding)).all()


@laws
@given(nets())
def test_corner_values_are_the_corner_coefficients_exactly(net: Net) -> None:
    coefficients, _ = net
    for corner in product((0, 1), repeat=coefficients.ndim - 1):
        value = evaluate(coefficients, torch.tensor([corner], dtype=torch.float64))[0]
        assert torch.equal(value, coefficients[(slice(None), *(-bit for bit in corner))])


@laws
@given(nets(), st.integers(0, 2**31))
def test_affine_functions_are_reproduced_with_their_slope(net: Net, seed: int) -> None:
    coefficients, x = net
    slope = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ticks = [torch.linspace(0, 1, size, dtype=torch.float64) for size in coefficients.shape[1:]]
    grid = torch.stack(torch.meshgrid(*ticks, indexing="ij"), dim=-1)
    affine = (grid @ slope + 0.25).unsqueeze(0)
    assert_same_values(evaluate(affine, x)[:, 0], x @ slope + 0.25, affine)
    assert_same_values(gradient(affine, x)[:, 0], slope.expand_as(x), affine, roundings=1000)


@laws
@given(nets(), st.data())
def test_restricting_keeps_the_values(net: Net, data: st.DataObject) -> None:
    coefficients, x = net
    dim = x.shape[1]
    ends = torch.tensor(data.draw(st.lists(st.tuples(unit, unit), min_size=dim, max_size=dim)), dtype=torch.float64)
    lower, upper = ends.amin(1), ends.amax(1)
    inside = (lower + x * (upper - lower)).clamp(max=upper)
    restricted = restrict(coefficients, lower, upper)
    assert restricted.shape == coefficients.shape
    assert_same_values(evaluate(restricted, x), evaluate(coefficients, inside), coefficients, roundings=400)


@laws
@given(nets())
def test_splitting_keeps_the_values_and_agrees_with_restricting(net: Net) -> None:
    coefficients, x = net
    for axis in range(x.shape[1]):
        lower, upper = torch.zeros_like(x[0]), torch.ones_like(x[0])
        lower[axis] = upper[axis] = 0.5
        low, high = split(coefficients, axis)
        assert_same_values(low, restrict(coefficients, torch.zeros_like(lower), upper), coefficients)
        assert_same_values(high, restrict(coefficients, lower, torch.ones_like(upper)), coefficients)
        shrunk = x.clone()
        shrunk[:, axis] /= 2
        assert_same_values(evaluate(low, x), evaluate(coefficients, shrunk), coefficients)


def test_splitting_the_largest_numbers_does_not_overflow() -> None:
    coefficients = torch.full((1, 4, 3), torch.finfo(torch.float64).max, dtype=torch.float64)
    for half in split(coefficients, 0):
        assert torch.equal(half, coefficients)


@pytest.mark.parametrize("degrees", [(1,), (3, 1), (2, 0, 4), (1,) * 5])
def test_restricting_to_a_box_for_each_row_is_restricting_to_each_of_them(degrees: tuple[int, ...]) -> None:
    coefficients, x = random_net(3, degrees)
    lower, upper = 0.5 * x, 0.5 * x + 0.4
    every = restrict_rows(coefficients, lower, upper)
    for row, restricted in enumerate(every):
        torch.testing.assert_close(restricted, restrict(coefficients, lower[row], upper[row]), rtol=0, atol=1e-14)


def test_restricting_to_the_whole_cube_changes_nothing() -> None:
    coefficients, _ = random_net(3, (3, 1, 2))
    assert torch.equal(restrict(coefficients, [0, 0, 0], [1, 1, 1]), coefficients)


@pytest.mark.parametrize("degrees", [(1,), (5,), (3, 3), (1, 4, 2), (2,) * 5, (1,) * 8])
def test_values_and_gradients_agree_with_scipys_clamped_splines(degrees: tuple[int, ...]) -> None:
    coefficients, x = random_net(3, degrees)
    knots = tuple(np.repeat([0.0, 1.0], n + 1) for n in degrees)
    spline = NdBSpline(knots, coefficients.movedim(0, -1).numpy(), degrees)
    np.testing.assert_allclose(evaluate(coefficients, x).numpy(), spline(x.numpy()), rtol=0, atol=2e-14)
    for axis, nu in enumerate(np.eye(len(degrees), dtype=int)):
        got = gradient(coefficients, x)[:, :, axis].numpy()
        np.testing.assert_allclose(got, spline(x.numpy(), nu=tuple(nu)), rtol=0, atol=2e-13)


@pytest.mark.parametrize(("classes", "degrees"), [(2, (1,)), (100, (3,)), (10, (2, 2)), (3, (1, 6, 2)), (2, (1,) * 8)])
def test_the_gradient_is_what_autograd_finds(classes: int, degrees: tuple[int, ...]) -> None:
    coefficients, x = random_net(classes, degrees)
    autograd = torch.func.vmap(torch.func.jacrev(lambda point: evaluate(coefficients, point[None])[0]))(x)
    torch.testing.assert_close(gradient(coefficients, x), autograd, rtol=1e-12, atol=1e-12)


def test_second_derivatives_come_from_differentiating_the_gradient() -> None:
    coefficients, x = random_net(2, (3, 2))
    assert torch.autograd.gradcheck(evaluate, (coefficients.requires_grad_(), x.requires_grad_()))
    assert torch.autograd.gradcheck(gradient, (coefficients, x))


@pytest.mark.parametrize("kernel", [evaluate, gradient])
@pytest.mark.parametrize("budget", [1, 100, 1000])
def test_chunking_does_not_change_the_result(
    kernel: Callable[[Tensor, Tensor], Tensor], budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    coefficients, x = random_net(4, (3, 1, 2), rows=53)
    whole = kernel(coefficients, x)
    monkeypatch.setattr(bernstein, "CPU_BUDGET", budget)
    assert_same_values(kernel(coefficients, x), whole, coefficients, roundings=100)


def test_no_tensor_on_the_way_exceeds_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    coefficients, x = random_net(2, (2, 2, 2), rows=500)
    saved: list[int] = []
    monkeypatch.setattr(bernstein, "CPU_BUDGET", 300)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        gradient(coefficients, x.requires_grad_())
    assert max(saved) <= 300


@pytest.mark.parametrize("kernel", [evaluate, gradient])
def test_no_points_give_an_empty_result(kernel: Callable[[Tensor, Tensor], Tensor]) -> None:
    coefficients, x = random_net(3, (2, 1, 4), rows=0)
    assert kernel(coefficients, x).shape == ((0, 3) if kernel is evaluate else (0, 3, 3))


def test_a_constant_axis_is_allowed_and_has_no_slope() -> None:
    coefficients, x = random_net(2, (2, 0))
    torch.testing.assert_close(evaluate(coefficients, x), evaluate(coefficients[..., 0], x[:, :1]))
    assert (gradient(coefficients, x)[..., 1] == 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: basis(-1, c), "expected degree >= 0, got -1"),
        (lambda c: evaluate(c, c[0]), r"expected points of shape \(N, 2\), got \(3, 4\)"),
        (lambda c: gradient(c, c[0, 0, :2]), r"expected points of shape \(N, 2\), got \(2,\)"),
        (lambda c: evaluate(c[0, 0], c[0]), r"got \(4,\); for a single polynomial add a class axis"),
        (lambda c: enclose(c[0, 0]), "expected coefficients of shape"),
        (lambda c: restrict(c, [0.0], [1.0]), r"expected lower and upper of shape \(2,\), got \(1,\) and \(1,\)"),
        (lambda c: split(c, 2), "expected 0 <= axis < 2, got 2"),
        (lambda c: split(c, -1), "expected 0 <= axis < 2, got -1"),
    ],
)
def test_bad_input_is_explained(call: Callable[[Tensor], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(2, 3, 4, dtype=torch.float64))


def linearised_error_bound(coefficients: Tensor) -> Fraction:
    """The law of `linearise`, for its values; a derivative along axis j has 2 n_j + 1 times as much."""
    sizes = coefficients.shape[1:]
    cut = bernstein._balanced_cut(sizes)
    roundings = 3 * sum(size - 1 for size in sizes) + len(sizes) + prod(sizes[:cut]) + prod(sizes[cut:])
    return roundings * Fraction(2) ** -53 * Fraction(101, 100) * Fraction(coefficients.abs().max().item())


def assert_linearised_within_the_stated_distance(coefficients: Tensor, x: Tensor) -> None:
    values, slopes = linearise(coefficients, x)
    assert values.shape == (len(x), len(coefficients))
    assert torch.equal(slopes, gradient(coefficients, x))
    bound = linearised_error_bound(coefficients)
    for (row, point), k in product(enumerate(x), range(len(coefficients))):
        assert abs(Fraction(values[row, k].item()) - exact_value(coefficients[k], point)) <= bound
        for axis, size in enumerate(coefficients.shape[1:]):
            exact = exact_value(coefficients[k], point, derivative_axis=axis)
            assert abs(Fraction(slopes[row, k, axis].item()) - exact) <= (2 * size - 1) * bound


@settings(max_examples=40, deadline=None)
@given(nets(max_degree=3))
def test_linearised_values_and_slopes_stay_within_the_stated_distance_of_exact_rationals(net: Net) -> None:
    assert_linearised_within_the_stated_distance(*net)


@pytest.mark.parametrize("degrees", [(1,) * 7, (3,) * 4, (40,), (2, 15, 1), (9, 9), (1, 30), (30, 1)])
@pytest.mark.parametrize("scale", [1e-280, 1.0, 1e300])
def test_the_bound_of_linearise_holds_for_large_nets_of_mixed_magnitudes(
    degrees: tuple[int, ...], scale: float
) -> None:
    coefficients, x = random_net(1, degrees, rows=1)
    coefficients = coefficients / coefficients.abs().max() * scale
    coefficients *= 10.0 ** -torch.randint(0, 20, coefficients.shape) * coefficients.sign()  # all of one sign
    assert_linearised_within_the_stated_distance(coefficients, x)


@pytest.mark.parametrize("degrees", [(200, 200), (1,) * 12, (5,) * 5])
def test_the_bound_of_linearise_holds_against_evaluate_where_rationals_are_too_slow(degrees: tuple[int, ...]) -> None:
    coefficients, x = random_net(2, degrees, rows=5)
    coefficients = coefficients.abs()  # nothing cancels, so that errors add up
    values, slopes = linearise(coefficients, x)
    both = float(linearised_error_bound(coefficients) + error_bound(coefficients))
    assert (values - evaluate(coefficients, x)).abs().max() <= both
    for axis, n in enumerate(degrees):
        steps = n * coefficients.diff(dim=axis + 1)  # the coefficients of the derivative, up to one rounding
        allowed = float((2 * n + 1) * linearised_error_bound(coefficients) + error_bound(steps)) + 2**-52 * float(
            steps.abs().max()
        )
        assert (slopes[:, :, axis] - evaluate(steps, x)).abs().max() <= allowed


@pytest.mark.parametrize("degrees", [(1,), (3, 2), (2, 1, 3), (1,) * 9])
def test_linearise_gives_what_evaluate_and_autograd_give(degrees: tuple[int, ...]) -> None:
    coefficients, x = random_net(3, degrees)
    values, slopes = linearise(coefficients, x)
    torch.testing.assert_close(values, evaluate(coefficients, x), rtol=1e-13, atol=1e-13)
    x.requires_grad_()
    for k in range(3):
        (slope,) = torch.autograd.grad(evaluate(coefficients, x)[:, k].sum(), x)
        torch.testing.assert_close(slopes[:, k], slope, rtol=1e-12, atol=1e-12)


def test_linearise_is_differentiable_in_both_of_its_results() -> None:
    coefficients, x = random_net(2, (2, 1, 2), rows=3)
    assert torch.autograd.gradcheck(linearise, (coefficients.requires_grad_(), x.requires_grad_()))


@pytest.mark.parametrize("budget", [1, 100, 1000])
def test_chunking_does_not_change_what_linearise_gives(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    coefficients, x = random_net(4, (3, 1, 2), rows=53)
    whole = linearise(coefficients, x)
    monkeypatch.setattr(bernstein, "CPU_BUDGET", budget)
    for part, expected in zip(linearise(coefficients, x), whole, strict=True):
        assert_same_values(part, expected, coefficients, roundings=100)
    values, slopes = linearise(coefficients, x[:0])
    assert (values.shape, slopes.shape) == ((0, 4), (0, 4, 3))
