"""The largest singular value: never below exact rationals or an SVD, and close to it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from networks import random_conv
from torch import nn
from truth import matrix_of

from berncert.extractor.bounds import spectral_norm
from berncert.extractor.bounds.spectral_norm import Geometry, conv_norm_bound, matrix_norm_bound
from berncert.extractor.parametrizations import geometry_of


def exactly_bounds(bound: float, matrix: np.ndarray) -> bool:
    """Whether bound^2 I - A^T A is positive semidefinite, in rationals (no zero pivot occurs but at the end)."""
    a = [[Fraction(float(x)) for x in row] for row in matrix]
    n = len(a[0])
    square = Fraction(bound) ** 2
    m = [[(square if i == j else 0) - sum(row[i] * row[j] for row in a) for j in range(n)] for i in range(n)]
    for k in range(n):
        if m[k][k] < 0 or (m[k][k] == 0 and any(m[i][k] for i in range(k + 1, n))):
            return False
        for i in range(k + 1, n):
            factor = m[i][k] / m[k][k] if m[k][k] else 0
            m[i] = [m[i][j] - factor * m[k][j] for j in range(n)]
    return True


def near_equal(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """All singular values within 1e-13 of each other: the hardest for a guess."""
    q, _ = np.linalg.qr(rng.normal(size=(max(rows, columns), min(rows, columns))))
    q = q * (1 + 1e-13 * rng.uniform(size=q.shape[1]))
    return q if rows >= columns else q.T


FAMILIES = {
    "gaussian": lambda rng, m, n: rng.normal(size=(m, n)),
    "nearly equal singular values": near_equal,
    "rank one": lambda rng, m, n: np.outer(rng.normal(size=m), rng.normal(size=n)),
    "positive": lambda rng, m, n: rng.uniform(size=(m, n)),
    "badly scaled rows": lambda rng, m, n: rng.normal(size=(m, n)) * 10.0 ** rng.uniform(-12, 12, size=(m, 1)),
    "mostly zero": lambda rng, m, n: rng.normal(size=(m, n)) * (rng.uniform(size=(m, n)) < 0.1),
    "orthogonal to ones": lambda rng, m, n: (lambda a: a - a.mean(axis=1, keepdims=True))(rng.normal(size=(m, n))),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bound_of_a_matrix_holds_in_exact_rationals(family: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        rows, columns = rng.integers(1, 7, size=2)
        a = FAMILIES[family](rng, rows, columns)
        bound = matrix_norm_bound(torch.tensor(a))
        assert exactly_bounds(bound, a if rows >= columns else a.T)
        assert bound <= np.linalg.norm(a, 2) * (1 + 1e-11)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [(1, 30), (30, 1), (64, 64), (20, 90), (300, 100)])
def test_the_bound_of_a_matrix_is_not_below_its_svd_and_within_a_millionth(family: str, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(size))
    a = FAMILIES[family](rng, *size)
    bound, truth = matrix_norm_bound(torch.tensor(a)), np.linalg.norm(a, 2)
    assert truth * (1 - 1e-14) <= bound <= truth * (1 + 1e-6)


@pytest.mark.parametrize("family", ["gaussian", "nearly equal singular values", "rank one", "orthogonal to ones"])
def test_the_bound_of_a_matrix_too_large_for_all_eigenvalues_is_as_close(family: str) -> None:
    rng = np.random.default_rng(2)
    for size in [(400, 400), (500, 450), (390, 900)]:
        a = FAMILIES[family](rng, *size)
        bound, truth = matrix_norm_bound(torch.tensor(a)), np.linalg.norm(a, 2)
        assert truth * (1 - 1e-14) <= bound <= truth * (1 + 1e-6)


def test_a_large_matrix_of_which_ones_is_an_eigenvector_is_bounded_closely() -> None:
    # a circulant of differences: the start of a Lanczos iteration is in its kernel
    n = 400
    a = torch.eye(n, dtype=torch.float64) - torch.roll(torch.eye(n, dtype=torch.float64), 1, dims=1)
    assert 2.0 <= matrix_norm_bound(a) <= 2.0 * (1 + 1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-30, 1e30, 1e200, 1e300])
@pytest.mark.parametrize("complex_", [False, True])
def test_scaling_a_matrix_scales_its_bound(scale: float, complex_: bool) -> None:
    rng = np.random.default_rng(3)
    a = rng.normal(size=(5, 4)) + (1j * rng.normal(size=(5, 4)) if complex_ else 0)
    truth = np.linalg.norm(a, 2) * scale
    assert truth * (1 - 1e-13) <= matrix_norm_bound(torch.tensor(a * scale)) <= truth * (1 + 1e-9)


def test_entries_close_to_the_largest_float_are_bounded_or_infinite() -> None:
    assert matrix_norm_bound(torch.tensor([[1.5e308]], dtype=torch.float64)) >= 1.5e308


def test_a_batch_of_complex_matrices_has_the_bound_of_its_largest() -> None:
    rng = np.random.default_rng(4)
    for shape in [(7, 3, 5), (2, 3, 6, 6), (40, 1, 1)]:
        a = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        truth = np.linalg.svd(a, compute_uv=False).max()
        assert truth * (1 - 1e-14) <= matrix_norm_bound(torch.tensor(a)) <= truth * (1 + 1e-9)


def test_nothing_and_zeros_have_norm_zero() -> None:
    assert matrix_norm_bound(torch.zeros(3, 2)) == 0
    assert matrix_norm_bound(torch.zeros(0, 2)) == 0
    assert matrix_norm_bound(torch.zeros(2, 2, 0)) == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_numbers_are_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        matrix_norm_bound(torch.tensor([[1.0, bad]]))
    with pytest.raises(ValueError, match="finite"):
        conv_norm_bound(torch.full((1, 1, 3, 3), bad), Geometry(), (4, 4))


# ---- convolutions ----

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def true_norm(conv: nn.Conv2d, size: list[int]) -> float:
    matrix = matrix_of(conv, (conv.in_channels, *size))
    return float(torch.linalg.matrix_norm(matrix, 2)) if matrix.numel() else 0.0


@pytest.mark.parametrize("route", ["frequencies", "either"])
def test_the_bound_of_a_convolution_is_never_below_its_matrix(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if route == "frequencies":
        monkeypatch.setattr(spectral_norm, "LARGEST_EXPLICIT", 0)
    rng = np.random.default_rng(5 + len(route))
    ratios = []
    for _ in range(150):
        conv, size = random_conv(rng)
        truth = true_norm(conv, size)
        bound = conv_norm_bound(conv.weight, geometry_of(conv), tuple(size))
        assert bound >= truth * (1 - 1e-13), f"{conv} on {size}: {bound} < {truth}"
        ratios.append(bound / truth if truth else 1.0)  # a kernel may read nothing but padding
    if route == "either":  # all of these are small enough to be written out
        assert max(ratios) <= 1 + 1e-6


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_frequencies_alone_are_within_15_per_cent_on_average_on_maps_of_8_and_more(
    stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spectral_norm, "LARGEST_EXPLICIT", 0)
    rng = np.random.default_rng(stride)
    ratios = []
    for _ in range(20):
        kernel = int(rng.choice([k for k in (1, 2, 3, 4, 5, 7) if k >= stride]))
        conv = nn.Conv2d(2, 3, kernel, stride, padding=kernel // 2, bias=False, dtype=torch.float64)
        conv.weight.data = torch.tensor(rng.normal(size=tuple(conv.weight.shape)))
        size = [int(n) for n in rng.integers(8, 15, size=2)]
        ratios.append(conv_norm_bound(conv.weight, geometry_of(conv), tuple(size)) / true_norm(conv, size))
    assert min(ratios) >= 1 - 1e-13
    assert np.mean(ratios) <= 1.15


@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_a_bound_without_a_size_holds_on_maps_of_every_size(mode: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(12):
        kernel, stride, dilation = int(rng.choice([2, 3, 4, 5])), int(rng.integers(1, 4)), int(rng.integers(1, 3))
        most = kernel if mode == "zeros" else dilation * (kernel - 1) // 2
        padding = int(rng.integers(0, most + 1))
        geometry = Geometry((1, stride), ((0, 0), (padding, padding)), (1, dilation), mode=mode if padding else "zeros")
        weight = torch.tensor(rng.normal(size=(2, 1, 1, kernel)))
        bound = conv_norm_bound(weight, geometry)
        found = 0.0
        for width in range(max(1, padding), 41):
            if width + 2 * padding > dilation * (kernel - 1):
                matrix = matrix_of(lambda x, g=geometry, w=weight: g.convolve(x, w), (1, 1, width))
                found = max(found, float(torch.linalg.matrix_norm(matrix, 2)))
        assert bound >= found * (1 - 1e-13)
        if mode == "zeros":  # the norms grow towards it
            assert bound <= 1.1 * found


def test_a_bound_without_a_size_holds_in_two_dimensions_and_with_groups() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        conv, _ = random_conv(rng, mode="zeros")
        bound = conv_norm_bound(conv.weight, geometry_of(conv))
        for size in [(1, 1), (2, 3), (5, 5), (9, 4), (11, 12)]:
            try:
                truth = true_norm(conv, list(size))
            except RuntimeError:
                continue  # the kernel does not fit
            assert bound >= truth * (1 - 1e-13)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_a_padding_whose_norm_depends_on_the_map_needs_its_size(mode: str) -> None:
    with pytest.raises(ValueError, match="size"):
        conv_norm_bound(torch.ones(1, 1, 3, 3), Geometry(padding=((1, 1), (1, 1)), mode=mode))


def test_circular_padding_beyond_the_kernel_repeats_rows_and_counts_them() -> None:
    # a 1x1 kernel with a full period of padding on both sides shows every pixel 3 x 3 times
    weight = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    geometry = Geometry(padding=((4, 4), (4, 4)), mode="circular")
    assert 3.0 <= conv_norm_bound(weight, geometry, (4, 4)) <= 3.0 * (1 + 1e-6)
    with pytest.raises(ValueError, match="size"):
        conv_norm_bound(weight, geometry)


def test_circular_padding_that_repeats_rows_is_bounded_by_frequencies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral_norm, "LARGEST_EXPLICIT", 0)
    rng = np.random.default_rng(8)
    for _ in range(100):
        conv, size = random_conv(rng, mode="circular")
        bound = conv_norm_bound(conv.weight, geometry_of(conv), tuple(size))
        assert bound >= true_norm(conv, size) * (1 - 1e-13)


def test_the_reshaped_kernel_is_not_the_norm_but_the_bound_is() -> None:
    # the paper's normalisation: the norm of a 3x3 convolution is up to 3 times that of its reshaped kernel
    weight = torch.ones(1, 1, 3, 3, dtype=torch.float64)
    reshaped = float(torch.linalg.matrix_norm(weight.flatten(1), 2))
    assert reshaped == pytest.approx(3.0)
    assert 8.7 <= conv_norm_bound(weight, Geometry(padding=((1, 1), (1, 1))), (24, 24)) <= 9.0 * (1 + 1e-9)


def test_an_edit_of_the_weights_in_place_is_never_missed() -> None:
    weight = torch.ones(1, 1, 3, 3)
    first = conv_norm_bound(weight, Geometry(), (6, 6))
    weight[0, 0, 0, 0] = 100.0
    assert conv_norm_bound(weight, Geometry(), (6, 6)) > 10 * first
    weight[0, 0, 0, 0] = 1.0
    assert conv_norm_bound(weight, Geometry(), (6, 6)) == first


def test_the_same_weights_in_another_shape_or_geometry_have_their_own_bound() -> None:
    weight = torch.arange(1.0, 37.0)
    answers = {
        conv_norm_bound(weight.reshape(shape), Geometry(stride=stride, groups=groups), (6, 6))
        for shape, stride, groups in itertools.chain(
            (((2, 2, 3, 3), (s, 1), g) for s in (1, 2) for g in (1, 2)), [((1, 4, 3, 3), (1, 1), 1)]
        )
    }
    assert len(answers) == 5


def test_a_float32_weight_is_bounded_as_the_number_it_is() -> None:
    weight = torch.rand(3, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    assert conv_norm_bound(weight, Geometry(), (8, 8)) == conv_norm_bound(weight.double(), Geometry(), (8, 8))


def test_zero_weights_have_norm_zero() -> None:
    assert conv_norm_bound(torch.zeros(2, 2, 3, 3), Geometry(padding=((1, 1), (1, 1))), (8, 8)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_convolutions_of_every_kind_are_bounded_by_frequencies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral_norm, "LARGEST_EXPLICIT", 0)
    rng = np.random.default_rng(1000 + seed)
    for _ in range(3000):
        conv, size = random_conv(rng, largest=11)
        assert conv_norm_bound(conv.weight, geometry_of(conv), tuple(size)) >= true_norm(conv, size) * (1 - 1e-13)


def test_sums_over_inputs_and_outputs_are_those_of_the_matrix() -> None:
    for module, shape in [
        (nn.AvgPool2d(3, 2, 1), (1, 7, 6)),
        (nn.ReplicationPad2d((2, 1, 0, 3)), (1, 4, 5)),
        (nn.AdaptiveAvgPool2d((3, 2)), (2, 5, 7)),
    ]:
        matrix = matrix_of(module, shape)
        assert spectral_norm.sums_over_inputs(module, shape) == pytest.approx(float(matrix.sum(dim=0).max()), rel=1e-14)
        assert spectral_norm.sums_over_outputs(module, shape) == pytest.approx(
            float(matrix.sum(dim=1).max()), rel=1e-14
        )
