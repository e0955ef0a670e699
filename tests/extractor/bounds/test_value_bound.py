"""What is proven of sizes, limits and rounding, against networks that are run in single and in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from networks import random_network
from torch import Tensor, nn
from truth import INF

from berncert.extractor import (
    GroupSort,
    Householder,
    LinfDistance,
    MaxMin,
    Normalise,
    PotentialStep,
    UnitCube,
    almost_orthogonal,
    export,
    freeze,
    lipschitz_table,
    spectral,
)
from berncert.extractor.bounds.value_bound import ValueBound

SINGLE, DOUBLE = 2.0**-24, 2.0**-53


def assert_value_holds(network: nn.Module, images: Tensor, value: ValueBound | None = None) -> float:
    """Of the frozen network run in float32: size, limits, peak and error; returns the error over its bound, at most."""
    frozen = freeze(network, images.shape[1:])
    value = lipschitz_table(frozen, images.shape[1:], unit=SINGLE).value if value is None else value
    with torch.no_grad():
        computed, exact = frozen(images.float()).double().flatten(1), frozen(images).flatten(1)
    lengths = images.flatten(1).norm(dim=1)
    error = (computed - exact).norm(dim=1)
    allowed = value.error[0] * lengths + value.error[1]
    assert (error <= allowed).all(), f"{network}: {error.max()} > {allowed.max()}"
    entry_allowed = value.entry_error[0] * lengths + value.entry_error[1]
    assert ((computed - exact).abs().amax(dim=1) <= entry_allowed).all(), f"{network}: an entry is off by more"
    entry_most = (value.entry_size[0] * lengths + value.entry_size[1]) * (1 + 1e-12)
    assert (exact.abs().amax(dim=1) <= entry_most).all()
    assert (exact.norm(dim=1) <= (value.size[0] * lengths + value.size[1]) * (1 + 1e-12)).all()
    assert (computed.abs().amax(dim=1) <= value.peak[0] * lengths + value.peak[1]).all()
    low, high = value.limits
    assert low <= float(exact.min())
    assert float(exact.max()) <= high
    assert low - abs(low) * SINGLE <= float(computed.min())  # a limit is rounded as well
    assert float(computed.max()) <= high + abs(high) * SINGLE
    return float((error / allowed.clamp_min(1e-300)).max())


MAPS: list[nn.Module] = [
    nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.Conv2d(4, 3, 1, bias=False),
    nn.BatchNorm2d(4).eval(), nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    nn.AdaptiveAvgPool2d(3), nn.MaxPool2d(3, 2, 1), nn.AdaptiveMaxPool2d(2), nn.ReflectionPad2d(1),
    nn.UpsamplingNearest2d(scale_factor=2), nn.PixelUnshuffle(2), nn.Sequential(nn.Flatten(), nn.Linear(144, 7)),
    nn.Linear(6, 5), nn.Flatten(), MaxMin(), GroupSort(4), Householder(4),
    Normalise([0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 3.0, 1.0]),
    UnitCube(0.3), PotentialStep(nn.Conv2d(4, 5, 3, padding=1)), PotentialStep(nn.Conv2d(4, 4, 2, 2)),
    nn.ReLU(), nn.ReLU6(), nn.Tanh(), nn.Sigmoid(), nn.Hardsigmoid(), nn.Hardswish(), nn.SiLU(), nn.Mish(),
    nn.Softsign(), nn.LogSigmoid(), nn.GELU(), nn.GELU("tanh"), nn.LeakyReLU(0.3), nn.PReLU(4), nn.RReLU().eval(),
    nn.ELU(), nn.ELU(5.0), nn.CELU(0.2),
    nn.CELU(3.0), nn.SELU(), nn.Softplus(), nn.Softplus(7.3, 30.0), nn.Hardtanh(-0.3, 4.0),
    nn.Threshold(0.5, 0.5), nn.Softmax(dim=1), nn.Softmax(dim=-1), nn.Dropout(0.5).eval(),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(MAPS)), ids=lambda i: type(MAPS[i]).__name__)
def test_single_precision_stays_within_the_proven_error_for_images_of_any_scale(i: int) -> None:
    rng = np.random.default_rng(i)
    network = freeze(MAPS[i], (4, 6, 6))
    value = lipschitz_table(network, (4, 6, 6), unit=SINGLE).value
    for scale in [1e-25, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e8]:
        images = torch.tensor(rng.normal(scale=scale, size=(6, 4, 6, 6)))
        assert_value_holds(network, images, value)
        assert_value_holds(network, images.abs(), value)
        spread = images * torch.tensor(10.0 ** rng.uniform(-8, 0, size=(6, 4, 6, 6)))
        assert_value_holds(network, spread, value)


def test_single_precision_of_random_networks_stays_within_the_proven_error() -> None:
    rng = np.random.default_rng(1)
    shares = []
    for seed in range(12):
        torch.manual_seed(seed)
        network = random_network(rng).float()
        images = torch.tensor(rng.uniform(size=(4, 1, 8, 8)))
        shares.append(assert_value_holds(network, images))
    assert 0 < max(shares) < 1


@pytest.mark.parametrize("make", [spectral, almost_orthogonal])
def test_an_exported_network_in_single_precision_stays_within_the_proven_error(
    make: Callable[[nn.Module], nn.Module],
) -> None:
    layers = [make(nn.Conv2d(1, 4, 3, padding=1)), MaxMin(), nn.PixelUnshuffle(2), make(nn.Conv2d(16, 8, 3, padding=1))]
    network = export(nn.Sequential(*layers, MaxMin(), nn.Flatten(), make(nn.Linear(128, 5)), UnitCube(0.7)))
    images = torch.rand(8, 1, 8, 8, dtype=torch.float64)
    share = assert_value_holds(network, images)
    assert share > 1e-6  # not so wide that it says nothing
    error = lipschitz_table(network, (1, 8, 8), unit=SINGLE).value.error
    assert error[0] * 8 + error[1] < 1e-2


def test_double_precision_of_a_linear_layer_stays_within_the_proven_error_in_rationals() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        layer = nn.Linear(int(rng.integers(1, 40)), 3, dtype=torch.float64)
        x = rng.normal(size=layer.in_features) * 10.0 ** rng.uniform(-6, 6, size=layer.in_features)
        frozen = freeze(layer, (layer.in_features,))
        proven = lipschitz_table(frozen, (layer.in_features,), unit=DOUBLE).value
        computed = frozen(torch.tensor(x)[None])[0].tolist()
        error = Fraction(0)
        for row, bias, value in zip(layer.weight.tolist(), layer.bias.tolist(), computed, strict=True):
            exact = sum((Fraction(w) * Fraction(v) for w, v in zip(row, x.tolist(), strict=True)), Fraction(bias))
            error += (exact - Fraction(value)) ** 2
        assert math.sqrt(error) <= proven.error[0] * np.linalg.norm(x) + proven.error[1]


def test_a_softplus_in_single_precision_neither_jumps_nor_overflows() -> None:
    images = torch.tensor([[120.0, 1.0], [1e4, -1e4], [19.9999, 20.0001]]).double()
    for beta in (0.2, 1.0, 30.0):
        assert_value_holds(nn.Softplus(beta, 80.0), images)
        assert_value_holds(nn.Sequential(nn.Softplus(beta), nn.Linear(2, 2, bias=False)), images)


def test_a_sum_that_is_divided_later_may_be_as_large_as_the_peak_says() -> None:
    for module, shape in [(nn.AvgPool2d(4), (1, 4, 4)), (nn.AdaptiveAvgPool2d(1), (1, 4, 4)), (Mean(), (16,))]:
        value = lipschitz_table(module, shape).value
        ones = torch.ones(1, *shape, dtype=torch.float64)
        assert value.peak[0] * float(ones.norm()) + value.peak[1] >= 16 > float(module(ones).max())


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1, keepdim=True)


def test_limits_follow_what_keeps_them_and_end_with_what_does_not() -> None:
    def limits(*layers: nn.Module) -> tuple[float, float]:
        return lipschitz_table(nn.Sequential(*layers), (4, 4, 4)).value.limits

    assert limits(nn.Conv2d(4, 4, 3)) == (-INF, INF)
    assert limits(nn.Conv2d(4, 4, 3), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten()) == (0.0, 1.0)
    assert limits(UnitCube(2.0)) == (0.0, 1.0)
    assert limits(nn.Sigmoid(), nn.Conv2d(4, 4, 3)) == (-INF, INF)
    assert limits(nn.ReLU()) == (0.0, INF)


def test_limits_bound_the_size_whatever_the_image() -> None:
    value = lipschitz_table(nn.Sequential(nn.Linear(3, 5), nn.Tanh()), (3,)).value
    assert value.size[0] == 0
    assert math.sqrt(5) <= value.size[1] <= math.sqrt(5) * (1 + 1e-9)


def test_the_image_itself_is_exact_in_double_precision_and_rounded_in_single() -> None:
    norms = (1.0, 2.0, INF)
    assert ValueBound.image((3,), norms).error.tolist() == [0.0, 0.0]
    assert ValueBound.image((3,), norms, SINGLE).error[0] >= SINGLE


def test_sums_and_joins_of_values_keep_size_and_error() -> None:
    class Sum(nn.Module):
        def __init__(self, join: bool) -> None:
            super().__init__()
            self.a, self.b, self.join = nn.Linear(6, 6), nn.Linear(6, 6), join

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.a(x), torch.tanh(self.b(x))
            return torch.cat([a, b], 1) if self.join else a - b

    for join in (False, True):
        network = Sum(join)
        assert lipschitz_table(network, (6,)).value.shape == (12 if join else 6,)
        for scale in (1e-6, 1.0, 1e4):
            assert_value_holds(network, scale * torch.randn(8, 6, dtype=torch.float64))
    assert lipschitz_table(Sum(True), (6,)).value.limits == (-INF, INF)


def test_an_error_that_is_too_large_to_say_is_infinite_and_never_a_nan() -> None:
    # each layer reads what the one before makes 0, so that no value overflows, but the product of their norms does
    layers = [nn.Linear(4, 4, bias=False, dtype=torch.float64) for _ in range(4)]
    for i, layer in enumerate(layers):
        layer.weight.data.zero_()
        layer.weight.data[i, i] = 1e120
    for last in (nn.Identity(), nn.Sigmoid(), nn.Conv2d(1, 1, 1)):
        network = nn.Sequential(*layers, nn.Unflatten(1, (1, 2, 2)), last).double()
        value = lipschitz_table(network, (4,)).value
        assert math.isinf(value.gains.factor(2.0, 2.0))
        for numbers in (value.size, value.error, value.peak, value.gains.factors):
            assert not np.isnan(numbers).any()
        assert math.isinf(value.error[0])
        assert math.isinf(value.peak[0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_rounding_of_distance_layers_does_not_grow_with_their_width(seed: int, scale: float) -> None:
    torch.manual_seed(seed)
    layers = [LinfDistance(12, 40, spread=scale), LinfDistance(40, 40), LinfDistance(40, 3, negative=True)]
    network = nn.Sequential(*layers, UnitCube(4 * scale)).eval()
    assert_value_holds(network, scale * torch.randn(30, 12, dtype=torch.float64))
    value = lipschitz_table(nn.Sequential(*layers).eval(), (12,), norm=INF, unit=SINGLE).value
    assert value.entry_error[0] <= 30 * SINGLE  # a few roundings for each layer
    assert value.error[0] <= 30 * SINGLE * math.sqrt(3)
