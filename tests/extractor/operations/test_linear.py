"""The bounds of linear layers, against their matrices, between all norms."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from networks import random_conv
from torch import nn
from truth import INF, assert_linear_bounded, assert_smooth_bounded, layer_bound, odd_norm

from berncert.extractor import (
    Normalise,
    PotentialStep,
    lipschitz_bound,
    lipschitz_table,
)

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

NORMS = [1, 1.5, 2, 3, INF]


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (4, 4), (3, 20), (20, 3), (12, 12)])
def test_linear_layers_are_bounded_between_all_norms(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(size))
    for scale in [1.0, 1e-6, 1e5] * 5:
        layer = nn.Linear(*size, bias=False, dtype=torch.float64)
        layer.weight.data = torch.tensor(rng.normal(scale=scale, size=(size[1], size[0])))
        assert assert_linear_bounded(layer, (size[0],), odd_norm(rng)) <= 1 + 1e-9
    assert_linear_bounded(layer, (3, 2, size[0]), odd_norm(rng))  # on the last axis of several


def test_a_linear_layer_has_exactly_its_column_and_row_sums_in_l1_and_l_inf() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.data = torch.tensor([[1.0, -4.0], [2.0, 3.0]])
    assert lipschitz_bound(layer, (2,), norm=1) == pytest.approx(7.0, rel=1e-12)
    assert lipschitz_bound(layer, (2,), norm=INF) == pytest.approx(5.0, rel=1e-12)
    assert lipschitz_bound(layer, (2,)) == pytest.approx(np.linalg.norm([[1, -4], [2, 3]], 2), rel=1e-9)


def test_zero_weights_give_a_bound_that_is_zero_but_for_rounding() -> None:
    for layer, shape in [(nn.Linear(3, 4), (3,)), (nn.Conv2d(2, 3, 3, padding=1), (2, 5, 5))]:
        nn.init.zeros_(layer.weight)
        for p in NORMS:
            assert 0 <= lipschitz_bound(layer, shape, norm=p) <= 1e-299


@pytest.mark.parametrize("scale", [1e-250, 1e-200, 1e-160, 1e150, 1e200])
def test_tiny_and_huge_weights_are_bounded_too(scale: float) -> None:
    rng = np.random.default_rng(0)
    for layer, shape in [(nn.Linear(3, 4), (3,)), (nn.Conv2d(2, 3, 3, padding=1), (2, 5, 5))]:
        layer = layer.double()
        layer.weight.data = torch.tensor(rng.normal(size=tuple(layer.weight.shape)))
        ones = [lipschitz_bound(layer, shape, norm=p) for p in NORMS]
        layer.weight.data *= scale
        for p, one in zip(NORMS, ones, strict=True):
            assert lipschitz_bound(layer, shape, norm=p) >= one * scale * (1 - 1e-6)


def test_convolutions_of_every_kind_are_bounded_between_all_norms() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        conv, size = random_conv(rng, largest=6)
        if math.prod(size) * conv.in_channels <= 80:
            assert assert_linear_bounded(conv, (conv.in_channels, *size), odd_norm(rng)) <= 1 + 1e-6


@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_convolutions_too_large_to_be_written_out_are_bounded_closely(mode: str) -> None:
    rng = np.random.default_rng(2)
    ratios = []
    for kernel, stride, size in [(3, 1, (19, 18)), (5, 1, (18, 20)), (3, 2, (24, 22)), (2, 2, (24, 24))]:
        conv = nn.Conv2d(3, 6, kernel, stride, padding=kernel // 2, padding_mode=mode, bias=False).double()
        conv.weight.data = torch.tensor(rng.normal(size=tuple(conv.weight.shape)))
        shape = (3, *size)
        x = torch.tensor(rng.normal(size=(1, *shape)))
        for _ in range(60):  # power iteration, from below
            x.requires_grad_()
            (x,) = torch.autograd.grad(conv(x).square().sum() / 2, x)
            x = (x / x.norm()).detach()
        truth = float(conv(x).detach().norm())
        bound = lipschitz_bound(conv, shape)
        assert bound >= truth
        ratios.append(bound / truth)
    assert np.mean(ratios) <= 1.15


def test_a_bias_moves_nothing_but_is_counted_in_the_size() -> None:
    for layer, shape in [
        (nn.Linear(4, 5), (4,)),
        (nn.Linear(4, 5), (3, 4)),
        (nn.Conv2d(2, 3, 3, padding=1), (2, 5, 4)),
    ]:
        layer = layer.double()
        plain = copy.deepcopy(layer)
        plain.bias = None
        assert lipschitz_bound(layer, shape) == pytest.approx(lipschitz_bound(plain, shape), rel=1e-9)
        at_zero = float(layer(torch.zeros(1, *shape, dtype=torch.float64)).detach().norm())
        assert at_zero <= layer_bound(layer, shape).offset <= at_zero * (1 + 1e-9)
        assert layer_bound(plain, shape).offset == 0


def test_batch_normalisation_is_bounded_by_its_steepest_channel() -> None:
    rng = np.random.default_rng(6)
    for i in range(12):
        norm = nn.BatchNorm2d(3, affine=i % 4 > 0, dtype=torch.float64).eval()
        norm.running_mean = torch.tensor(rng.normal(size=3))
        norm.running_var = torch.tensor(rng.uniform(0, 2, size=3) ** 3)
        if i % 4:
            norm.weight.data = torch.tensor(rng.normal(size=3))  # negative ones too
            norm.bias.data = torch.tensor(rng.normal(size=3))
        assert assert_linear_bounded(norm, (3, 2, 2), odd_norm(rng)) <= 1 + 1e-9
        one = nn.BatchNorm1d(3, dtype=torch.float64).eval()
        one.running_var = norm.running_var
        for shape in [(3,), (3, 4)]:
            assert_linear_bounded(one, shape, odd_norm(rng))
        at_zero = float(norm(torch.zeros(1, 3, 2, 2, dtype=torch.float64)).detach().norm())
        assert lipschitz_table(norm, (3, 2, 2)).value.size[1] >= at_zero * (1 - 1e-12)


def test_batch_normalisation_without_fixed_statistics_is_refused() -> None:
    with pytest.raises(ValueError, match="statistics"):
        lipschitz_bound(nn.BatchNorm2d(2, track_running_stats=False).eval(), (2, 3, 3))
    with pytest.raises(ValueError, match="evaluation"):
        lipschitz_bound(nn.BatchNorm2d(2), (2, 3, 3))
    degenerate = nn.BatchNorm1d(2, eps=0.0).eval()
    degenerate.running_var = torch.zeros(2)
    with pytest.raises(ValueError, match="variance"):
        lipschitz_bound(degenerate, (2,))


def test_normalising_pixels_is_bounded_by_the_least_deviation() -> None:
    module = Normalise([0.5, 0.4, 0.3], [0.2, 0.25, 0.5]).double()
    assert assert_linear_bounded(module, (3, 2, 2), 3.0) == pytest.approx(1.0)
    for p in NORMS:
        assert lipschitz_bound(module, (3, 2, 2), norm=p) == pytest.approx(5.0, rel=1e-6)
    assert_linear_bounded(Normalise([0.5], [0.3]).double(), (4, 3), 1.5)
    with pytest.raises(ValueError, match="channels"):
        lipschitz_bound(module, (2, 3, 3))


@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_potential_steps_are_bounded_between_all_norms(kind: str) -> None:
    rng = np.random.default_rng(7)
    for i in range(15):
        groups = int(rng.integers(1, 3))
        if kind == "linear":
            inner: nn.Linear | nn.Conv2d = nn.Linear(5, int(rng.integers(1, 8)))
            shape: tuple[int, ...] = (5,)
        else:
            inner = nn.Conv2d(
                2,
                groups * int(rng.integers(1, 3)),
                tuple(int(k) for k in rng.integers(1, 4, size=2)),
                stride=tuple(int(s) for s in rng.integers(1, 4, size=2)),
                padding=tuple(int(n) for n in rng.integers(0, 3, size=2)),
                dilation=tuple(int(n) for n in rng.integers(1, 3, size=2)),
                groups=groups,
            )
            shape = (2, int(rng.integers(5, 7)), int(rng.integers(5, 7)))
        step = PotentialStep(inner.double())
        inner.weight.data *= 10.0 ** rng.uniform(-1, 1)
        ratio = assert_smooth_bounded(step, shape, odd_norm(rng), seed=i, points=3)
        assert ratio >= 1 - 1e-12
        at_zero = float(step(torch.zeros(1, *shape, dtype=torch.float64)).detach().norm())
        assert layer_bound(step, shape).offset >= at_zero * (1 - 1e-12)


def test_a_potential_step_with_a_norm_of_at_most_1_is_1_lipschitz_and_no_more_beyond() -> None:
    inner = nn.Linear(4, 4, bias=False, dtype=torch.float64)
    for scale, bound in [(0.5, 1.0), (1.0, 1.0), (2.0, 7.0)]:
        inner.weight.data = scale * torch.eye(4, dtype=torch.float64)
        assert lipschitz_bound(PotentialStep(inner), (4,)) == pytest.approx(bound, rel=1e-9)
