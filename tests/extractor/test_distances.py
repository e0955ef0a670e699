"""Distances in l-inf and the p-norms towards it: the compiled loops against the plain path, and the laws of both."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from networks import seeded
from torch import Tensor

from berncert.extractor import LinfDistance
from berncert.extractor.distances import (
    cheap_norm,
    distances,
    plain_distances,
    plain_sorted_differences,
    sorted_differences,
    sorted_distances,
)

INF = math.inf


def gradients(result: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).reshape(result.shape)
    return torch.autograd.grad((result * weights).sum(), values)


@pytest.mark.parametrize("p", [3.0, 9.0, 13.0, 97.0, 1025.0, INF])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (4, 6, 3), (7, 13, 5), (2, 40, 33)])
def test_compiled_loops_compute_what_plain_operations_do(p: float, rows: int, inputs: int, outputs: int) -> None:
    x, weight = seeded(rows, inputs).requires_grad_(), (seeded(outputs, inputs) + 0.1).requires_grad_()
    compiled, plain = distances(x, weight, p), plain_distances(x, weight, p)
    torch.testing.assert_close(compiled, plain, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(gradients(compiled, x, weight), gradients(plain, x, weight), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("ranks", [1, 2, 7])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (4, 6, 3), (7, 13, 5), (2, 40, 33)])
def test_compiled_loops_sort_as_plain_operations_do(ranks: int, rows: int, inputs: int, outputs: int) -> None:
    x, weight = seeded(rows, inputs).requires_grad_(), (seeded(outputs, inputs) + 0.1).requires_grad_()
    compiled, plain = sorted_differences(x, weight, ranks), plain_sorted_differences(x, weight, ranks)
    assert torch.equal(compiled, plain)
    for ours, theirs in zip(gradients(compiled, x, weight), gradients(plain, x, weight), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_sorted_distances_lie_between_the_mean_and_the_greatest_difference() -> None:
    x, weight = seeded(6, 10), seeded(4, 10) + 0.1
    differences = (x[:, None] - weight).abs()
    even = torch.full((10,), 0.1, dtype=torch.float64)
    torch.testing.assert_close(sorted_distances(x, weight, even), differences.mean(dim=2))
    assert torch.equal(sorted_distances(x, weight, torch.ones(1, dtype=torch.float64)), distances(x, weight))


def test_a_row_that_is_not_a_number_has_no_sorted_distance() -> None:
    x, shares = seeded(3, 4), torch.tensor([0.5, 0.5], dtype=torch.float64)
    x[1, 2] = math.nan
    assert sorted_distances(x, seeded(5, 4), shares).isnan().tolist() == [[False] * 5, [True] * 5, [False] * 5]


@pytest.mark.parametrize("p", [9.0, 1025.0, INF])
def test_single_precision_agrees_with_double(p: float) -> None:
    x, weight = seeded(6, 50), seeded(20, 50)
    torch.testing.assert_close(
        distances(x.float(), weight.float(), p).double(), distances(x, weight, p), rtol=1e-5, atol=1e-5
    )


def test_gradients_are_those_of_finite_differences() -> None:
    x, weight = seeded(3, 5).requires_grad_(), (seeded(4, 5) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: distances(a, b, 9.0), (x, weight))


def test_the_distance_is_torchs_own() -> None:
    x, weight = seeded(9, 30), seeded(7, 30) + 0.2
    torch.testing.assert_close(distances(x, weight, 17.0), torch.cdist(x, weight, p=17.0))
    assert torch.equal(distances(x, weight), torch.cdist(x, weight, p=INF))


def test_norms_fall_to_the_greatest_difference_as_p_grows() -> None:
    x, weight = seeded(5, 40), seeded(6, 40) + 0.2
    values = [distances(x, weight, p) for p in (9.0, 33.0, 129.0, 1025.0, INF)]
    for larger, smaller in pairwise(values):
        assert (larger >= smaller - 1e-12).all()
    torch.testing.assert_close(values[-2], values[-1], rtol=40 ** (1 / 1025) - 1 + 1e-9, atol=0)


def test_no_power_overflows_or_vanishes_whatever_the_scale() -> None:
    for scale in (1e-12, 1.0, 1e12):
        x, weight = (scale * seeded(4, 10)).float().requires_grad_(), (scale * seeded(3, 10) + scale).float()
        for p in (9.0, 1025.0):
            found = distances(x, weight, p)
            assert (found > 0).all()
            assert found.isfinite().all()
            assert all(part.isfinite().all() for part in gradients(found, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [1e6, 1e9, 1e30, 1e308])
def test_a_huge_p_is_l_inf_with_gradients_that_are_finite(p: float, dtype: torch.dtype) -> None:
    x, weight = seeded(50, 20).to(dtype).requires_grad_(), seeded(7, 20).to(dtype) + 0.1
    for found in (distances(x, weight, p), plain_distances(x, weight, p)):
        torch.testing.assert_close(found, distances(x, weight), rtol=1e-5, atol=0)
        assert all(part.isfinite().all() for part in gradients(found, x))


def test_a_row_that_is_not_a_number_has_no_distance() -> None:
    x = seeded(3, 4)
    x[1, 2] = math.nan
    assert distances(x, seeded(5, 4)).isnan().tolist() == [[False] * 5, [True] * 5, [False] * 5]


@pytest.mark.parametrize("p", [8.0, math.inf])
def test_a_point_that_is_not_a_number_has_no_distance(p: float) -> None:
    points = seeded(3, 4)
    points[1, 2] = math.nan
    found = distances(seeded(5, 4), points, p)
    assert found[:, 1].isnan().all()
    assert found[:, [0, 2]].isfinite().all()


@pytest.mark.parametrize("shape", [(2, 3), (2, 5), (4,), (2, 2, 2), (64, 4096)])
def test_rows_of_another_length_are_refused(shape: tuple[int, ...]) -> None:
    for found in (distances, lambda x, weight: sorted_differences(x, weight, 2)):
        with pytest.raises(ValueError, match="expected rows of 4 numbers, as the points have, got shape"):
            found(torch.ones(shape), torch.ones(3, 4))


def test_cheap_norms_are_close_below_and_cheap() -> None:
    for p in (3.0, 8.0, 9.0, 12.9, 100.0, 1000.0):
        exponent = int(cheap_norm(p)) - 1
        assert p / 1.6 <= cheap_norm(p) <= p
        assert exponent // (exponent & -exponent) in (1, 3)
    assert cheap_norm(INF) == INF
    assert cheap_norm(2.0) == 3.0


def test_an_empty_batch_has_no_distances() -> None:
    assert distances(seeded(0, 4), seeded(5, 4)).shape == (0, 5)


def test_rows_do_not_depend_on_each_other() -> None:
    x, weight = seeded(9, 30), seeded(7, 30)
    together = distances(x, weight)
    assert torch.equal(together, torch.cat([distances(row[None], weight) for row in x]))


@pytest.mark.parametrize("p", [9.0, INF])
def test_threads_share_the_rows(p: float) -> None:
    x, weight = seeded(101, 6).requires_grad_(), seeded(5, 6).requires_grad_()
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            y = distances(x, weight, p)
            found.append((y, *gradients(y, x, weight), sorted_differences(x, weight, 3).detach()))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0])
    for one, several in zip(*found, strict=True):
        torch.testing.assert_close(one, several, rtol=1e-12, atol=1e-12)


def test_a_layer_that_starts_as_the_identity_returns_its_inputs_up_to_a_constant() -> None:
    torch.manual_seed(0)
    layer = LinfDistance(4, 6, centred=False, spread=0.01, identity=3.0)
    x = torch.rand(20, 4)
    with torch.no_grad():
        y = layer.eval()(x)
    assert torch.allclose(y, x[:, [0, 1, 2, 3, 0, 1]] + 3, atol=1e-6)
