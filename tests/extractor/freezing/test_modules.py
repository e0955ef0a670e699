"""Which layers have a rule, and what a rule may say."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import pytest
import torch
from test_activations import ACTIVATIONS
from torch import Tensor, nn
from truth import INF, assert_linear_bounded

from berncert.extractor import (
    GroupSort,
    Householder,
    MaxMin,
    Normalise,
    PotentialStep,
    lipschitz_bound,
    lipschitz_table,
)
from berncert.extractor.bounds.layer import RULES, apply_rule, find_rule

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

NORMS = [1, 1.5, 2, 3, INF]


class LouderLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 10 * super().forward(x)


class LouderConv(nn.Conv2d):
    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return 10 * super()._conv_forward(x, weight, bias)


class NamedLinear(nn.Linear):
    """Computes what its parent does."""


def test_a_subclass_inherits_a_rule_only_if_it_computes_the_same() -> None:
    assert find_rule(NamedLinear(2, 2)) is RULES[nn.Linear]
    assert find_rule(LouderLinear(2, 2)) is None
    assert find_rule(LouderConv(1, 1, 1)) is None
    patched = nn.Linear(2, 2)
    patched.forward = lambda x: 10 * x  # type: ignore[method-assign]
    assert find_rule(patched) is None


@pytest.mark.parametrize("make", [lambda: LouderLinear(3, 3), lambda: LouderConv(3, 3, 1)])
def test_a_subclass_that_computes_something_else_is_never_bounded_by_its_parents_rule(
    make: Callable[[], nn.Linear | nn.Conv2d],
) -> None:
    layer = make().double().eval()
    shape = (3,) if isinstance(layer, nn.Linear) else (3, 2, 2)
    with contextlib.suppress(TypeError):  # an error is as good
        assert_linear_bounded(layer, shape, 3.0)


def test_a_subclass_whose_forward_calls_something_else_does_not_inherit_a_rule() -> None:
    class Base(nn.Module):
        def act(self, x: Tensor) -> Tensor:
            return x

        def forward(self, x: Tensor) -> Tensor:
            return self.act(x)

    class Louder(Base):
        def act(self, x: Tensor) -> Tensor:
            return 10 * x

    RULES[Base] = lambda module, shape: 1.0
    try:
        assert lipschitz_bound(Base(), (3,)) == pytest.approx(1.0)
        assert lipschitz_bound(Louder(), (3,)) == pytest.approx(10.0)
    finally:
        del RULES[Base]


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


@pytest.mark.parametrize("bad", [math.nan, -1.0])
def test_a_rule_that_gives_no_bound_is_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="expected bounds >= 0"):
        apply_rule(lambda module, shape: bad, nn.Identity(), (2,))
    with pytest.raises(ValueError, match="expected bounds >= 0"):
        apply_rule(lambda module, shape: {}, nn.Identity(), (2,))


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
    ]
    for module, shape, name in modules:
        getattr(module, name).data.view(-1)[0] = bad
        with pytest.raises(ValueError, match="finite"):
            lipschitz_bound(module, shape)


def test_every_layer_with_a_rule_is_tested_here_or_is_one_of_its_kind() -> None:
    here = {type(module) for module, _ in ACTIVATIONS.values()}
    here |= {nn.Linear, nn.Conv2d, nn.BatchNorm1d, nn.BatchNorm2d, nn.Softmax, PotentialStep, Normalise, Householder}
    here |= {MaxMin, GroupSort, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.MaxPool2d, nn.AdaptiveMaxPool2d}
    here |= {nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d, nn.UpsamplingNearest2d}
    here |= {nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelUnshuffle, nn.PixelShuffle, nn.ChannelShuffle}
    here |= {nn.Hardsigmoid, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout}
    untested = {kind for kind in RULES if kind.__module__.startswith(("torch.", "berncert."))} - here
    assert untested <= {nn.Dropout3d, nn.FeatureAlphaDropout}


def test_table_and_bound_agree() -> None:
    layer = nn.Conv2d(2, 3, 3, padding=1)
    for p in NORMS:
        assert lipschitz_table(layer, (2, 6, 6), p).bound == lipschitz_bound(layer, (2, 6, 6), p)
