"""The bounds of activations, against their derivatives at many points."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from truth import INF, assert_smooth_bounded, layer_bound

from berncert.extractor import (
    UnitCube,
    freeze,
    lipschitz_bound,
    lipschitz_table,
)

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

NORMS = [1, 1.5, 2, 3, INF]


ACTIVATIONS: dict[str, tuple[nn.Module, float]] = {
    # the module, and how much of its bound the derivative reaches
    "ReLU": (nn.ReLU(), 1.0),
    "ReLU6": (nn.ReLU6(), 1.0),
    "Tanh": (nn.Tanh(), 1.0),
    "Sigmoid": (nn.Sigmoid(), 1.0),
    "Hardswish": (nn.Hardswish(), 1.0),
    "SiLU": (nn.SiLU(), 1.0),
    "Mish": (nn.Mish(), 1.0),
    "Softsign": (nn.Softsign(), 1.0),
    "LogSigmoid": (nn.LogSigmoid(), 1.0),
    "GELU": (nn.GELU(), 1.0),
    "GELU tanh": (nn.GELU(approximate="tanh"), 1.0),
    "LeakyReLU": (nn.LeakyReLU(0.2), 1.0),
    "LeakyReLU steep": (nn.LeakyReLU(-3.0), 1.0),
    "RReLU": (nn.RReLU(0.5, 4.0).eval(), 0.5),
    "PReLU": (nn.PReLU(init=-2.5), 1.0),
    "ELU": (nn.ELU(0.5), 1.0),
    "ELU steep": (nn.ELU(3.0), 1.0),
    "ELU negative": (nn.ELU(-3.0), 1.0),
    "CELU": (nn.CELU(2.5), 1.0),
    "CELU flat": (nn.CELU(0.1), 1.0),
    "SELU": (nn.SELU(), 1.0),
    "Softplus": (nn.Softplus(), 1.0),
    "Softplus sharp": (nn.Softplus(beta=7.3, threshold=25), 1.0),
    "Softplus flat": (nn.Softplus(beta=0.31, threshold=22), 1.0),
    "Hardtanh": (nn.Hardtanh(-0.3, 2.0), 1.0),
    "Hardtanh aside": (nn.Hardtanh(0.5, 2.0), 1.0),
    "Threshold": (nn.Threshold(0.7, 0.7), 1.0),
    "UnitCube": (UnitCube(0.4), 1.0),
}


def derivative(module: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(module(x * 1.0).sum(), x)
    return slope


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_bounded_by_its_steepest_slope_and_closely(name: str) -> None:
    module, reached = ACTIVATIONS[name]
    module = copy.deepcopy(module).double()
    x = torch.linspace(-40, 40, 4_000_001, dtype=torch.float64).reshape(-1, 1)
    x = x[(x.abs() > 1e-9).flatten()]
    slopes = derivative(module, x)
    steepest = float(slopes.abs().max())
    peak = x[slopes.abs().argmax()]  # and closer around the steepest point
    around = peak + torch.linspace(-1e-3, 1e-3, 200_001, dtype=torch.float64).reshape(-1, 1)
    steepest = max(steepest, float(derivative(module, around).abs().max()))
    for p in NORMS:
        bound = lipschitz_bound(module, (1,), norm=p)
        assert bound >= steepest * (1 - 1e-14)
        assert steepest >= reached * bound * (1 - 2e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_is_said_of_an_activation_at_zero_and_at_its_ends_is_true(name: str) -> None:
    module = copy.deepcopy(ACTIVATIONS[name][0]).double()
    value = lipschitz_table(module, (3,)).value
    x = torch.cat([torch.linspace(-60, 60, 10_000), torch.tensor([-1e30, 1e30, 0.0])]).double().reshape(-1, 1)
    y = module(x.clone()).detach()
    assert value.limits[0] <= float(y.min())
    assert float(y.max()) <= value.limits[1]
    at_zero = float(module(torch.zeros(1, 3, dtype=torch.float64)).detach().norm())
    assert at_zero <= value.size[1] * (1 + 1e-12) + 1e-300
    if name != "UnitCube":  # which is three operations
        assert at_zero <= layer_bound(module, (3,)).offset * (1 + 1e-12) + 1e-300


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_on_maps_are_bounded_between_all_norms(name: str) -> None:
    module = copy.deepcopy(ACTIVATIONS[name][0]).double()
    for seed, shape in enumerate([(4,), (2, 2, 2)]):
        assert_smooth_bounded(module, shape, 1.5 if seed else 3.0, seed=seed)


def test_a_hard_sigmoid_rises_by_a_sixth_and_is_flat_beyond() -> None:
    # torch computes its derivative with a 1/6 of single precision, so differences are taken instead
    module = nn.Hardsigmoid()
    x = torch.linspace(-4, 4, 4001, dtype=torch.float64)
    slopes = module(x).diff() / x.diff()
    for p in NORMS:
        bound = lipschitz_bound(module, (1,), norm=p)
        assert bound * (1 - 1e-9) <= float(slopes.max()) <= bound * (1 + 1e-9)
    assert layer_bound(module, (4,)).offset >= float(module(torch.zeros(4)).norm())
    assert layer_bound(module, (4,)).limits == (0.0, 1.0)


def test_a_slope_for_each_channel_counts_the_steepest() -> None:
    module = nn.PReLU(3, dtype=torch.float64)
    module.weight.data = torch.tensor([0.1, -4.0, 2.0], dtype=torch.float64)
    assert assert_smooth_bounded(module, (3, 2, 2), 3.0) == pytest.approx(1.0)
    assert lipschitz_bound(module, (3, 2)) == pytest.approx(4.0)


def test_a_celu_that_grows_without_bound_is_refused() -> None:
    module = nn.CELU(-1.0)
    assert float(module(torch.tensor(-20.0))) < -1e8
    with pytest.raises((TypeError, ValueError)):
        lipschitz_bound(module, (2,))


def test_an_activation_that_jumps_is_refused() -> None:
    with pytest.raises(ValueError, match="jumps"):
        lipschitz_bound(nn.Threshold(0.1, 20.0), (2,))
    with pytest.raises(ValueError, match="beta"):
        lipschitz_bound(nn.Softplus(beta=-1), (2,))


def test_a_frozen_softplus_is_smooth_where_torchs_goes_over_to_x() -> None:
    for beta, threshold in [(1.0, 20.0), (2.0, 25.0), (0.5, 40.0)]:
        module = nn.Softplus(beta, threshold)
        frozen = freeze(module, (1,))
        x = torch.linspace(-100, 100, 100_001, dtype=torch.float64).reshape(-1, 1)
        smooth = torch.logaddexp(beta * x, torch.zeros_like(x)) / beta
        torch.testing.assert_close(frozen(x), smooth, rtol=1e-14, atol=1e-14)
        assert float((module(x) - smooth).abs().max()) <= math.exp(-threshold) / beta * (1 + 1e-6) + 1e-13
        assert float(frozen(torch.tensor([[1e6]]).double())) == 1e6


@pytest.mark.parametrize("threshold", [19.9, 3.0, 0.0, -2.0, math.nan])
def test_a_softplus_that_jumps_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"threshold from 20.*jumps"):
        lipschitz_bound(nn.Softplus(threshold=threshold), (1,))
