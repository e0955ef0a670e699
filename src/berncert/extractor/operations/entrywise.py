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
from berncert.extractor.bounds.local import (
    TINY,
    CurveShape,
    Interval,
    Lines,
    LocalValue,
    Pulled,
    curve_lines,
    curve_range,
    kinked_lines,
    kinked_secants,
    through_lines,
    through_secants,
)
from berncert.extractor.bounds.norm_gains import INF, entrywise_gains
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.operations.base import Affine, Layer, require_numbers

ULPS = 8.0  # units in the last place by which elementary functions of any common library may be off
SINGLE = 3.4e38  # the largest numbers of float32


class Relaxed(Layer):
    """A function of each entry, which lines enclose on an interval."""

    @property
    def shape_of_curve(self) -> CurveShape:
        """What the lines rest on."""
        raise NotImplementedError

    def lines(self, value: LocalValue) -> Lines:
        """For each entry a line below the function on its interval, and one above."""
        return curve_lines(self.evaluate, value.interval, self.shape_of_curve, self.off_by(value.interval))

    def interval(self, *values: LocalValue) -> Interval | None:
        found = curve_range(self.evaluate, values[0].interval, self.shape_of_curve, self.off_by(values[0].interval))
        limits = self.layer_bound((1,)).limits
        return Interval(found.lower.clamp(*limits), found.upper.clamp(*limits))

    def pull_back(self, rows: Tensor, result: LocalValue, *values: LocalValue) -> Pulled:
        return through_lines(rows, self.lines(values[0]), values[0])

    def off_by(self, interval: Interval) -> Tensor:
        """How far the computed function is off, and more, for entries of this interval."""
        known = self.layer_bound((1,))
        roundings = 4 * known.roundings * UNIT
        return roundings * (known.known[INF, INF] * interval.magnitude + known.offset) + TINY


class Entrywise(Relaxed):
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


class Shift(Affine, WithConstant):
    """x + by."""

    def absolute(self, *values: Tensor) -> Tensor:
        return values[0]

    def pull_rows(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (rows,)

    def evaluate(self, *values: Tensor) -> Tensor:
        return values[0] + self.by

    def layer_bound(self, shape: Shape) -> LayerBound:
        return LayerBound(entrywise_gains(1.0), length(self.by.expand(shape)), 2)


@dataclass(frozen=True, eq=False)
class Scale(Affine, WithConstant):
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

    def absolute(self, *values: Tensor) -> Tensor:
        return values[0] / self.by.abs() if self.divide else values[0] * self.by.abs()

    def pull_rows(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (self.evaluate(rows),)

    def layer_bound(self, shape: Shape) -> LayerBound:
        factors = 1 / self.by.abs() if self.divide else self.by.abs()
        exact = not self.divide and bool((self.by.abs() == 1).all())
        steepest = float(factors.max()) if self.by.numel() else 0.0
        return LayerBound(entrywise_gains(steepest * (1 if exact else 1 + 4 * UNIT)), 0.0, 0 if exact else 4)


class Leaky(WithConstant, Relaxed):
    """x where x > 0, else by * x: leaky and parametric ReLU."""

    @property
    def shape_of_curve(self) -> CurveShape:
        return CurveShape(0.0, (0.0,), 0.0 if bool((self.by.detach() < 0).any()) else None)

    def lines(self, value: LocalValue) -> Lines:
        return kinked_lines(value.interval, self.by)

    def pull_back(self, rows: Tensor, result: LocalValue, *values: LocalValue) -> Pulled:
        return through_kink(rows, self.lines(values[0]), self.by, result, values[0])

    def evaluate(self, *values: Tensor) -> Tensor:
        (x,) = values
        return torch.where(x > 0, x, x * self.by)

    def layer_bound(self, shape: Shape) -> LayerBound:
        return LayerBound(entrywise_gains(max(1.0, float(self.by.abs().max()))), roundings=2)


def through_kink(rows: Tensor, lines: Lines, below: Tensor | float, result: LocalValue, value: LocalValue) -> Pulled:
    """By lines; where the pixels' norm is 2 or less, entries may be bounded together in norm_2."""
    if value.norm > 2:
        return through_lines(rows, lines, value)
    return through_secants(rows, lines, kinked_secants(value, below), result.centre, value)


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

    @property
    def shape_of_curve(self) -> CurveShape:
        return CurveShape(0.0, tuple(float(limit) for limit in (self.low, self.high) if limit is not None))

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
    shape: CurveShape = CurveShape(0.0, (0.0,))


# the derivative of x Phi(x) is largest at sqrt 2, where it is Phi(sqrt 2) + exp(-1) / sqrt pi
GELU = (0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)) * (1 + 1e-12)
# for those below the largest derivative was enclosed numerically; tests check it again
TANH_GELU = 1.12901
SILU = 1.0998394
MISH = 1.0885
SELU = 1.0507009873554805 * 1.6732632423543772 * (1 + 1e-12)

CURVES: dict[str, Curve] = {
    "relu": Curve(torch.relu, 1.0, limits=(0.0, INF), ulps=0),
    "relu6": Curve(lambda x: x.clamp(0, 6), 1.0, limits=(0.0, 6.0), ulps=0, shape=CurveShape(0.0, (0.0, 6.0))),
    "abs": Curve(torch.abs, 1.0, limits=(0.0, INF), ulps=0, shape=CurveShape(0.0, (0.0,), turn=0.0)),
    "tanh": Curve(lambda x: torch.tanh(x).clamp(-1, 1), 1.0, limits=(-1.0, 1.0), shape=CurveShape(0.7699)),
    "sigmoid": Curve(lambda x: torch.sigmoid(x).clamp(0, 1), 0.25, 0.5, (0.0, 1.0), shape=CurveShape(0.09623)),
    "hardsigmoid": Curve(
        lambda x: F.hardsigmoid(x).clamp(0, 1), 1 / 6 * (1 + 1e-15), 0.5, (0.0, 1.0), shape=CurveShape(0.0, (-3.0, 3.0))
    ),
    "hardswish": Curve(F.hardswish, 1.5, shape=CurveShape(0.33334, (-3.0, 3.0), turn=-1.5)),
    "silu": Curve(F.silu, SILU, shape=CurveShape(0.50001, turn=-1.278464542761)),
    "mish": Curve(F.mish, MISH, shape=CurveShape(0.6443, turn=-1.192431214515)),
    "softsign": Curve(lambda x: F.softsign(x).clamp(-1, 1), 1.0, limits=(-1.0, 1.0), shape=CurveShape(2.0)),
    "logsigmoid": Curve(F.logsigmoid, 1.0, math.log(2) * (1 + 4 * UNIT), shape=CurveShape(0.25)),
    "selu": Curve(F.selu, SELU, shape=CurveShape(1.7582, (0.0,))),
    "gelu": Curve(F.gelu, GELU, ulps=2 * ULPS, shape=CurveShape(0.79789, turn=-0.751791524694)),
    "gelu_tanh": Curve(
        lambda x: F.gelu(x, approximate="tanh"),
        TANH_GELU,
        ulps=2 * ULPS,
        shape=CurveShape(0.7979, turn=-0.752461422071),
    ),
}


@dataclass(frozen=True, eq=False)
class Activation(Entrywise):
    """One of the functions without parameters, by name."""

    function: str

    def check(self) -> None:
        if self.function not in CURVES:
            raise ValueError(f"expected a function out of {', '.join(CURVES)}, got {self.function!r}")

    @property
    def shape_of_curve(self) -> CurveShape:
        return CURVES[self.function].shape

    def lines(self, value: LocalValue) -> Lines:
        return kinked_lines(value.interval, 0.0) if self.function == "relu" else super().lines(value)

    def pull_back(self, rows: Tensor, result: LocalValue, *values: LocalValue) -> Pulled:
        if self.function == "relu":
            return through_kink(rows, self.lines(values[0]), 0.0, result, values[0])
        return super().pull_back(rows, result, *values)

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

    @property
    def shape_of_curve(self) -> CurveShape:
        return CurveShape(abs(self.alpha), (0.0,), 0.0 if self.alpha < 0 else None)

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

    @property
    def shape_of_curve(self) -> CurveShape:
        return CurveShape(1 / self.alpha * (1 + 4 * UNIT))

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

    @property
    def shape_of_curve(self) -> CurveShape:
        return CurveShape(self.beta / 4)

    def evaluate(self, *values: Tensor) -> Tensor:
        (x,) = values
        return torch.relu(x) + torch.log1p(torch.exp(-self.beta * x.abs())) / self.beta

    def layer_bound(self, shape: Shape) -> LayerBound:
        at_zero = math.log(2) / self.beta * (1 + 8 * UNIT)
        return LayerBound(entrywise_gains(1.0), at_zero * norm_of_ones(shape), 4 * ULPS)
