"""Operations on each entry by itself: constants, activations, clamps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from berncert.extractor.bounds.layer_bound import LayerBound, Shape, length, norm_of_ones
from berncert.extractor.bounds.norm_gains import INF, entrywise_gains
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.operations.base import Layer, require_numbers

ULPS = 8.0  # units in the last place by which elementary functions of any common library may be off
SINGLE = 3.4e38  # the largest numbers of float32


class Entrywise(Layer):
    """An operation that keeps the shape."""

    def output_shape(self, *shapes: Shape) -> Shape:
        return shapes[0]


@dataclass(frozen=True, eq=False)
class WithConstant(Layer):
    """An operation with a constant `by` that fits the value: see `fits`."""

    by: Tensor

    def output_shape(self, *shapes: Shape) -> Shape:
        if not fits(self.by, shapes[0]):
            raise ValueError(f"expected a constant that fits {shapes[0]}, got shape {tuple(self.by.shape)}")
        return shapes[0]


def fits(constant: Tensor, shape: Shape) -> bool:
    """Whether the constant has one number for each entry, for each channel or for all, so that nothing is expanded."""
    ends = zip(reversed(constant.shape), reversed(shape), strict=False)
    return constant.ndim <= len(shape) and all(n in (1, size) for n, size in ends)


class Shift(WithConstant):
    """x + by."""

    def evaluate(self, *values: Tensor) -> Tensor:
        return values[0] + self.by

    def layer_bound(self, shape: Shape) -> LayerBound:
        return LayerBound(entrywise_gains(1.0), length(self.by.expand(shape)), 2)


@dataclass(frozen=True, eq=False)
class Scale(WithConstant):
    """x * by, or x / by."""

    divide: bool = False

    def check(self) -> None:
        super().check()
        if not isinstance(self.divide, bool):
            raise ValueError(f"expected divide to be true or false, got {self.divide!r}")
        if self.divide and (not (1 / self.by).isfinite().all() or not self.by.all()):
            raise ValueError("expected numbers to divide by whose inverse is finite, got 0 or nearly so")

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        cast = super().to(dtype, device)
        if self.divide and float(cast.by.abs().min()) < torch.finfo(dtype).tiny and dtype != torch.float64:
            raise ValueError(f"by is too small for {dtype} to divide by; run the network in float64")
        return cast

    def evaluate(self, *values: Tensor) -> Tensor:
        return values[0] / self.by if self.divide else values[0] * self.by

    def layer_bound(self, shape: Shape) -> LayerBound:
        factors = 1 / self.by.abs() if self.divide else self.by.abs()
        exact = not self.divide and bool((self.by.abs() == 1).all())
        steepest = float(factors.max()) if self.by.numel() else 0.0
        return LayerBound(entrywise_gains(steepest * (1 if exact else 1 + 4 * UNIT)), 0.0, 0 if exact else 4)


class Leaky(WithConstant):
    """x where x > 0, else by * x: leaky and parametric ReLU."""

    def evaluate(self, *values: Tensor) -> Tensor:
        (x,) = values
        return torch.where(x > 0, x, x * self.by)

    def layer_bound(self, shape: Shape) -> LayerBound:
        return LayerBound(entrywise_gains(max(1.0, float(self.by.abs().max()))), roundings=2)


@dataclass(frozen=True, eq=False)
class Clamp(Entrywise):
    """Entries beyond a limit are moved to it; None is no limit."""

    low: float | None
    high: float | None

    def check(self) -> None:
        limits = {"low": self.low, "high": self.high}
        require_numbers(**{name: value for name, value in limits.items() if value is not None})
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"expected limits of a clamp in order, got {self.low} and {self.high}")

    def evaluate(self, *values: Tensor) -> Tensor:
        return values[0] if self.low is None and self.high is None else values[0].clamp(self.low, self.high)

    def layer_bound(self, shape: Shape) -> LayerBound:
        limits = (-INF if self.low is None else float(self.low), INF if self.high is None else float(self.high))
        exact = all(math.isinf(limit) or _is_single(limit) for limit in limits)
        constants = max((abs(limit) for limit in limits if math.isfinite(limit)), default=0.0)
        at_zero = constants if not exact else max(0.0, limits[0], -limits[1])
        return LayerBound(entrywise_gains(1.0), at_zero * norm_of_ones(shape), 0 if exact else 2, limits=limits)


def _is_single(number: float) -> bool:
    return abs(number) <= SINGLE and torch.tensor(number, dtype=torch.float32).item() == number


class Curve(NamedTuple):
    """A function of one number without parameters, and what is proven of it."""

    function: Callable[[Tensor], Tensor]
    steepest: float
    at_zero: float = 0.0
    limits: tuple[float, float] = (-INF, INF)
    ulps: float = ULPS
    """How far the computed function is off, in roundings of steepest * |x| + at_zero."""


# the derivative of x Phi(x) is largest at sqrt 2, where it is Phi(sqrt 2) + exp(-1) / sqrt pi
GELU = (0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)) * (1 + 1e-12)
# for those below the largest derivative was enclosed numerically; tests check it again
TANH_GELU = 1.12901
SILU = 1.0998394
MISH = 1.0885
SELU = 1.0507009873554805 * 1.6732632423543772 * (1 + 1e-12)

CURVES: dict[str, Curve] = {
    "relu": Curve(torch.relu, 1.0, limits=(0.0, INF), ulps=0),
    "relu6": Curve(lambda x: x.clamp(0, 6), 1.0, limits=(0.0, 6.0), ulps=0),
    "abs": Curve(torch.abs, 1.0, limits=(0.0, INF), ulps=0),
    "tanh": Curve(lambda x: torch.tanh(x).clamp(-1, 1), 1.0, limits=(-1.0, 1.0)),
    "sigmoid": Curve(lambda x: torch.sigmoid(x).clamp(0, 1), 0.25, 0.5, (0.0, 1.0)),
    "hardsigmoid": Curve(lambda x: F.hardsigmoid(x).clamp(0, 1), 1 / 6 * (1 + 1e-15), 0.5, (0.0, 1.0)),
    "hardswish": Curve(F.hardswish, 1.5),
    "silu": Curve(F.silu, SILU),
    "mish": Curve(F.mish, MISH),
    "softsign": Curve(lambda x: F.softsign(x).clamp(-1, 1), 1.0, limits=(-1.0, 1.0)),
    "logsigmoid": Curve(F.logsigmoid, 1.0, math.log(2) * (1 + 4 * UNIT)),
    "selu": Curve(F.selu, SELU),
    "gelu": Curve(F.gelu, GELU, ulps=2 * ULPS),
    "gelu_tanh": Curve(lambda x: F.gelu(x, approximate="tanh"), TANH_GELU, ulps=2 * ULPS),
}


@dataclass(frozen=True, eq=False)
class Activation(Entrywise):
    """One of the functions without parameters, by name."""

    function: str

    def check(self) -> None:
        if self.function not in CURVES:
            raise ValueError(f"expected a function out of {', '.join(CURVES)}, got {self.function!r}")

    def evaluate(self, *values: Tensor) -> Tensor:
        return CURVES[self.function].function(values[0])

    def layer_bound(self, shape: Shape) -> LayerBound:
        curve = CURVES[self.function]
        offset = curve.at_zero * norm_of_ones(shape)
        return LayerBound(entrywise_gains(curve.steepest), offset, curve.ulps, limits=curve.limits)


@dataclass(frozen=True, eq=False)
class Elu(Entrywise):
    """x where x > 0, else alpha (exp(x) - 1)."""

    alpha: float

    def check(self) -> None:
        require_numbers(alpha=self.alpha)

    def evaluate(self, *values: Tensor) -> Tensor:
        return F.elu(values[0], self.alpha)

    def layer_bound(self, shape: Shape) -> LayerBound:
        steepest = max(1.0, abs(self.alpha))
        return LayerBound(entrywise_gains(steepest), roundings=ULPS)


@dataclass(frozen=True, eq=False)
class Celu(Entrywise):
    """x where x > 0, else alpha (exp(x / alpha) - 1): its slope at 0 is 1 whatever alpha is."""

    alpha: float

    def check(self) -> None:
        require_numbers(alpha=self.alpha)
        if not 1e-9 <= self.alpha <= 1e9:  # beyond, x / alpha may be flushed to 0 or overflow
            raise ValueError(f"expected a CELU with alpha > 0, between 1e-9 and 1e9, got {self.alpha}")

    def evaluate(self, *values: Tensor) -> Tensor:
        (x,) = values
        return torch.where(x > 0, x, self.alpha * torch.expm1(x.clamp(max=0) / self.alpha))

    def layer_bound(self, shape: Shape) -> LayerBound:
        return LayerBound(entrywise_gains(1.0), roundings=ULPS * 2)


@dataclass(frozen=True, eq=False)
class Softplus(Entrywise):
    """log(1 + exp(beta x)) / beta, everywhere: torch's version jumps where it switches to x."""

    beta: float

    def check(self) -> None:
        require_numbers(beta=self.beta)
        if not 1e-30 < self.beta < 1e30:
            raise ValueError(f"expected beta > 0, between 1e-30 and 1e30, got {self.beta}")

    def evaluate(self, *values: Tensor) -> Tensor:
        (x,) = values
        return torch.relu(x) + torch.log1p(torch.exp(-self.beta * x.abs())) / self.beta

    def layer_bound(self, shape: Shape) -> LayerBound:
        at_zero = math.log(2) / self.beta * (1 + 8 * UNIT)
        return LayerBound(entrywise_gains(1.0), at_zero * norm_of_ones(shape), 4 * ULPS)
