"""Which modules are translated, by their exact type, and which are followed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from truth import INF, assert_linear_bounded

from berncert.extractor import (
    GroupSort,
    Householder,
    LinfDistance,
    MaxMin,
    Normalise,
    PotentialStep,
    SortedDistance,
    UnitCube,
    freeze,
    lipschitz_bound,
    lipschitz_table,
)
from berncert.extractor.freezing.modules import IDLE, REARRANGING_MODULES, TRANSLATIONS
from berncert.extractor.freezing.registration import is_leaf

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

NORMS = [1, 1.5, 2, 3, INF]

MODULES: list[tuple[nn.Module, tuple[int, ...]]] = [
    # every module that is translated, and an input that it takes
    (nn.Linear(3, 5), (3,)), (nn.Linear(3, 5, bias=False), (2, 3)), (nn.Conv2d(2, 4, 3, 2, 1, groups=2), (2, 5, 6)),
    (nn.Conv2d(2, 3, (2, 3), padding="same", dilation=2), (2, 5, 6)),
    (nn.Conv2d(2, 3, 3, padding=2, padding_mode="circular"), (2, 5, 6)),
    (nn.Conv2d(2, 3, 3, padding=2, padding_mode="reflect"), (2, 5, 6)),
    (nn.Conv2d(2, 3, 3, padding=2, padding_mode="replicate"), (2, 5, 6)),
    (PotentialStep(nn.Linear(3, 5)), (3,)), (PotentialStep(nn.Conv2d(2, 3, 3, 2, 1)), (2, 5, 6)),
    (Normalise([0.1, 0.5], [0.2, 3.0]), (2, 5, 6)), (UnitCube(0.3), (4,)), (MaxMin(), (4, 3)), (GroupSort(3), (6,)),
    (LinfDistance(4, 3), (4,)), (SortedDistance(4, 3), (4,)), (SortedDistance(9, 3, negative=True), (9,)),
    (Householder(4), (4, 2, 2)), (nn.BatchNorm1d(3), (3,)), (nn.BatchNorm1d(3), (3, 4)),
    (nn.BatchNorm2d(2, affine=False), (2, 5, 6)), (nn.ReLU(), (4,)), (nn.ReLU6(), (4,)), (nn.Tanh(), (4,)),
    (nn.Sigmoid(), (4,)), (nn.Hardsigmoid(), (4,)), (nn.Hardswish(), (4,)), (nn.SiLU(), (4,)), (nn.Mish(), (4,)),
    (nn.Softsign(), (4,)), (nn.LogSigmoid(), (4,)), (nn.SELU(), (4,)), (nn.ELU(2.0), (4,)), (nn.CELU(2.0), (4,)),
    (nn.LeakyReLU(0.3), (4,)), (nn.RReLU(), (4,)), (nn.Hardtanh(-1, 3), (4,)), (nn.GELU(), (4,)),
    (nn.GELU("tanh"), (4,)), (nn.PReLU(), (4,)), (nn.PReLU(4), (4, 2, 3)), (nn.Softplus(2.0), (4,)),
    (nn.Threshold(0.5, 0.5), (4,)), (nn.Softmax(1), (4, 3)), (nn.Softmax(-1), (4, 3)),
    (nn.MaxPool2d(3, 2, 1), (2, 5, 6)), (nn.MaxPool2d((2, 3), ceil_mode=True, dilation=(1, 2)), (2, 5, 7)),
    (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 5, 6)), (nn.AvgPool2d(2, divisor_override=3), (2, 5, 6)),
    (nn.AdaptiveMaxPool2d((2, None)), (2, 5, 6)), (nn.AdaptiveAvgPool2d(4), (2, 5, 6)), (nn.Flatten(), (2, 3)),
    (nn.Unflatten(1, (2, 2)), (4,)), (nn.PixelUnshuffle(2), (1, 4, 6)), (nn.PixelShuffle(2), (8, 2, 3)),
    (nn.ChannelShuffle(2), (4, 2, 3)), (nn.UpsamplingNearest2d(scale_factor=2), (2, 2, 3)),
    (nn.ZeroPad2d((1, 0, 2, 1)), (2, 3, 4)), (nn.ZeroPad2d((-1, 0, 2, 1)), (2, 3, 4)),
    (nn.ReflectionPad2d(1), (2, 3, 4)), (nn.ReplicationPad2d(2), (2, 3, 4)), (nn.CircularPad2d(1), (2, 3, 4)),
    (nn.Identity(), (4,)), (nn.Dropout(), (4,)), (nn.Dropout1d(), (4, 2)), (nn.Dropout2d(), (4, 2, 2)),
    (nn.Dropout3d(), (4, 2, 2, 2)), (nn.AlphaDropout(), (4,)), (nn.FeatureAlphaDropout(), (4, 2)),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(MODULES)), ids=lambda i: type(MODULES[i][0]).__name__)
def test_a_module_is_frozen_to_operations_that_compute_the_same(i: int) -> None:
    module, shape = copy.deepcopy(MODULES[i][0]).double().eval(), MODULES[i][1]
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.1, 3.0)
    frozen = freeze(module, shape)
    for scale in (0.1, 1.0, 30.0):
        x = scale * torch.randn(5, *shape, dtype=torch.float64)
        with torch.no_grad():
            torch.testing.assert_close(frozen(x), module(x), rtol=1e-11, atol=1e-11)
        assert frozen.output_shape == frozen(x).shape[1:]


def test_every_module_that_is_translated_is_tested_here() -> None:
    here = {type(module) for module, _ in MODULES}
    assert {*TRANSLATIONS, *REARRANGING_MODULES, *IDLE} == here


# ---- subclasses ----


class LouderLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 10 * super().forward(x)


class LouderConv(nn.Conv2d):
    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return 10 * super()._conv_forward(x, weight, bias)


class NamedLinear(nn.Linear):
    """Computes what its parent does."""


class LouderWeight(nn.Linear):
    """Its parent's forward looks at another weight."""

    @property
    def weight(self) -> Tensor:
        return 10 * self.own

    @weight.setter
    def weight(self, value: nn.Parameter) -> None:
        self.own = value


class LouderSort(MaxMin):
    def forward(self, x: Tensor) -> Tensor:
        return 10 * super().forward(x)


def test_only_the_very_types_that_are_known_are_translated_unopened() -> None:
    assert is_leaf(nn.Linear(2, 2))
    assert is_leaf(MaxMin())
    assert not is_leaf(NamedLinear(2, 2))
    assert not is_leaf(LouderLinear(2, 2))
    assert not is_leaf(LouderConv(1, 1, 1))
    assert not is_leaf(nn.Sequential())
    patched = nn.Linear(2, 2)
    patched.forward = lambda x: 10 * x  # type: ignore[method-assign]
    assert not is_leaf(patched)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LouderLinear(3, 3),
        lambda: NamedLinear(3, 3),
        lambda: LouderWeight(3, 3),
        lambda: LouderConv(3, 3, 1),
    ],
)
def test_a_subclass_is_followed_through_its_own_forward(make: Callable[[], nn.Module]) -> None:
    layer = make().double().eval()
    shape = (3, 2, 2) if isinstance(layer, nn.Conv2d) else (3,)
    assert assert_linear_bounded(layer, shape, 3.0) <= 1 + 1e-9


def test_a_subclass_that_cannot_be_followed_is_refused_and_not_taken_for_its_parent() -> None:
    with pytest.raises(TypeError, match="LouderSort cannot be followed"):
        lipschitz_bound(LouderSort(), (4,))


def test_a_module_whose_forward_was_replaced_is_followed_through_the_new_one() -> None:
    layer = nn.Linear(3, 3).double()
    layer.forward = lambda x: 10 * x  # type: ignore[method-assign]
    assert lipschitz_bound(nn.Sequential(layer), (3,)) == pytest.approx(10.0)


def test_a_module_one_of_whose_methods_was_replaced_is_followed_or_refused() -> None:
    layer = nn.Conv2d(3, 3, 1, bias=False).double()
    plain = lipschitz_bound(layer, (3, 2, 2))
    original = layer._conv_forward
    layer._conv_forward = lambda x, weight, bias: 10 * original(x, weight, bias)  # type: ignore[method-assign]
    assert lipschitz_bound(nn.Sequential(layer), (3, 2, 2)) == pytest.approx(10 * plain, rel=1e-9)


# ---- what a module must be ----


def test_a_convolution_whose_attributes_were_changed_is_bounded_as_it_computes_now() -> None:
    for options, change in [
        ({}, {"padding": (1, 1)}),
        ({"padding": 2}, {"padding": (0, 1)}),
        ({"padding": "same"}, {"dilation": (2, 2)}),
        ({"padding": 1}, {"padding_mode": "circular"}),
        ({"padding": 1, "padding_mode": "circular"}, {"padding_mode": "zeros"}),
        ({}, {"stride": (2, 1)}),
    ]:
        conv = nn.Conv2d(2, 3, 3, bias=False, dtype=torch.float64, **options)
        conv.weight.data.abs_()
        for name, value in change.items():
            setattr(conv, name, value)
        assert_linear_bounded(conv, (2, 5, 5), 3.0)


@pytest.mark.parametrize("bad", [math.nan, INF])
def test_weights_that_are_not_finite_are_an_error_that_names_them(bad: float) -> None:
    modules: list[tuple[nn.Module, tuple[int, ...], str]] = [
        (nn.Linear(2, 2), (2,), "weight"),
        (nn.Linear(2, 2), (2,), "bias"),
        (nn.Conv2d(2, 2, 1), (2, 3, 3), "weight"),
        (nn.BatchNorm1d(2).eval(), (2,), "running_mean"),
        (nn.BatchNorm1d(2).eval(), (2,), "running_var"),
        (nn.PReLU(2), (2,), "weight"),
        (Householder(2), (2,), "angle"),
        (PotentialStep(nn.Linear(2, 2)).inner, (2,), "weight"),
        (Normalise([0.0, 0.0], [1.0, 1.0]), (2, 2, 2), "std"),
    ]
    for module, shape, name in modules:
        getattr(module, name).data.view(-1)[0] = bad
        with pytest.raises(ValueError, match=rf"finite.*{name.removeprefix('running_')}"):
            lipschitz_bound(module, shape)


@pytest.mark.parametrize("std", [0.0, -1.0])
def test_a_deviation_that_is_not_positive_is_refused(std: float) -> None:
    module = Normalise([0.0], [1.0])
    module.std.fill_(std)
    with pytest.raises(ValueError, match="positive std"):
        lipschitz_bound(module, (1, 2, 2))


@pytest.mark.parametrize("make", [nn.MaxPool2d, nn.AdaptiveMaxPool2d])
def test_a_pool_that_returns_more_than_its_maxima_is_refused(make: Callable[..., nn.Module]) -> None:
    with pytest.raises(ValueError, match="return_indices"):
        lipschitz_bound(make(2, return_indices=True), (1, 4, 4))


def test_table_and_bound_agree() -> None:
    layer = nn.Conv2d(2, 3, 3, padding=1)
    for p in NORMS:
        bound = lipschitz_bound(layer, (2, 6, 6), p)
        assert lipschitz_table(layer, (2, 6, 6), p).bound == pytest.approx(bound, rel=1e-9)
