"""What is proven of one operation: how far it stretches a difference, how large its values are, how it rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from berncert.extractor.bounds.norm_gains import INF, Known
from berncert.extractor.bounds.spectral_norm import UNIT, power_of_two

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerBound:
    """What is proven of one operation f, for one shape of its input."""

    known: Known
    """(s, t) -> a bound on norm_t(f(x) - f(y)) / norm_s(x - y), for as many pairs of norms as are known."""
    offset: float = 0.0
    """At least norm_2(f(0)), and norm_2 of every constant that is added on the way."""
    roundings: float = 0.0
    """The computed f(x) is off by at most this many relative roundings of (magnitude norm_2(x) + offset)."""
    magnitude: float | None = None
    """The 2-norm of the operation with absolute weights; by default the bound on its 2-norm."""
    entries: tuple[float, float] | None = None
    """(m, c), if every entry of the computed f(x) is off by at most this many relative roundings of m norm_inf(x) + c,
    which no entry of f(x), and no number on the way, exceeds; None if only bounds in norm_2 are known."""
    intermediate: float = 1.0
    """No number that is computed on the way is greater than this many times (magnitude norm_2(x) + offset)."""
    limits: tuple[float, float] = (-INF, INF)
    """All entries of f(x) lie between these two numbers, for every x."""
    keeps_limits: bool = False
    """Whether every entry of f(x) lies between two entries of x."""

    def __post_init__(self) -> None:
        for name in ("offset", "roundings", "magnitude", "intermediate"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= 0):  # NaN is not
                raise ValueError(f"expected {name} of a LayerBound to be a number >= 0, got {value!r}")
        if not (isinstance(self.limits, tuple) and len(self.limits) == 2 and self.limits[0] <= self.limits[1]):
            raise ValueError(f"expected limits of a LayerBound as (least, greatest), got {self.limits!r}")


def absolute_norm(known: Known) -> float:
    """A bound on the 2-norm of a linear map with its entries made positive, from its l1 and l-inf norms (Schur)."""
    return math.sqrt(known[1.0, 1.0]) * math.sqrt(known[INF, INF]) * (1 + 8 * UNIT)


def length(values: Tensor | None, copies: int = 1) -> float:
    """The 2-norm of this many copies of the values, rounded up; 0 for None."""
    if values is None:
        return 0.0
    values = values.detach().cpu().double()
    scale = power_of_two(values)  # squares of what is large or small are neither
    return float((values / scale).norm()) * scale * math.sqrt(copies) * (1 + (values.numel() + 8) * UNIT)


def norm_of_ones(shape: Shape) -> float:
    """The 2-norm of a tensor of ones, rounded up."""
    return math.sqrt(math.prod(shape)) * (1 + 4 * UNIT)
