"""What every operation of a frozen network can do, and how it is written down as plain data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from berncert.extractor.bounds.layer_bound import LayerBound, Shape
from berncert.extractor.bounds.local import Interval, LocalValue, Pulled, gamma, less, through_constants, total
from berncert.extractor.bounds.norm_gains import NormGains
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.bounds.value_bound import ValueBound

MOST_NUMBERS = 2**25
"""The most numbers in one value of one image: a file cannot ask for more memory than that."""


@dataclass(frozen=True, eq=False)
class Operation(ABC):
    """One operation: its fields are float64 tensors, whole-number tensors, and plain numbers, strings and tuples.

    Values have the batch as their first axis, and each row of a result depends on the same row of the arguments only.
    """

    arguments: ClassVar[int | None] = 1
    """How many values it takes; None for any number."""
    in_files: ClassVar[bool] = True
    """Whether it can be written to a file."""

    @abstractmethod
    def evaluate(self, *values: Tensor) -> Tensor:
        """The result, in the dtype of the values, on their device; differentiable in the values."""

    @abstractmethod
    def output_shape(self, *shapes: Shape) -> Shape:
        """The shape of the result, without the batch; raises a ValueError where the arguments do not fit."""

    @abstractmethod
    def bound(self, *values: ValueBound, unit: float) -> tuple[ValueBound, NormGains | None]:
        """What is proven of the result, and the operation's own gains; None if it joins several values."""

    def interval(self, *values: LocalValue) -> Interval | None:
        """Where the entries of the result lie, from where those of the values do; None if only norms bound it."""
        return None

    def pull_back(self, rows: Tensor, result: LocalValue, *values: LocalValue) -> Pulled:
        """A lower bound of rows . result, (N, R), that is affine in the values; by default it is a constant."""
        return through_constants(rows, result.interval, len(values))

    def check(self) -> None:
        """Raise a ValueError if the fields are not those of such an operation: files can hold anything."""
        for name, tensor in self.tensors().items():
            if tensor.dtype != torch.float64:
                raise ValueError(f"expected {name} in float64, got {tensor.dtype}")
            if not is_finite(tensor):
                raise ValueError(f"expected a finite {name}, got NaN or infinity; nothing can be proven of it")

    def tensors(self) -> dict[str, Tensor]:
        """The fields that are tensors."""
        return {name: value for name, value in self._values().items() if isinstance(value, Tensor)}

    def settings(self) -> dict[str, Any]:
        """The other fields, as plain JSON."""
        return {name: value for name, value in self._values().items() if not isinstance(value, Tensor)}

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        """A copy to evaluate with, its numbers rounded to this dtype."""
        cast = {
            name: tensor.to(device) if tensor.dtype == torch.int64 else tensor.to(device, dtype)
            for name, tensor in self.tensors().items()
        }
        for name, tensor in cast.items():
            if tensor.is_floating_point() and not is_finite(tensor):
                raise ValueError(f"{name} is too large for {dtype}; run the network in float64")
        for name, value in self.settings().items():
            if isinstance(value, float) and abs(value) > torch.finfo(dtype).max:
                raise ValueError(f"{name} is too large for {dtype}; run the network in float64")
        return replace(self, **cast) if cast else self


class Layer(Operation):
    """An operation on one value."""

    @abstractmethod
    def layer_bound(self, shape: Shape) -> LayerBound:
        """What is proven of the operation, for inputs of this shape."""

    def bound(self, *values: ValueBound, unit: float) -> tuple[ValueBound, NormGains | None]:
        (value,) = values
        return value.through(self.layer_bound(value.shape), self.output_shape(value.shape), unit)


class Affine(Operation):
    """An operation A x + b of all its values together; by default one whose A has no negative entries, and b = 0."""

    def absolute(self, *values: Tensor) -> Tensor:
        """|A| x, the matrix with its entries made positive."""
        return self.evaluate(*values)

    def pull_rows(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        """A^T rows, (rows, ...) for each of the values."""
        with torch.inference_mode(False), torch.enable_grad():
            values = [rows.new_zeros(len(rows), *shape).requires_grad_() for shape in shapes]
            return torch.autograd.grad(self.evaluate(*values), values, rows)

    def terms(self, *shapes: Shape) -> int:
        """The most terms that are added up for an entry, of the result or of `pull_rows`."""
        return sum(map(math.prod, shapes)) + math.prod(self.output_shape(*shapes))

    def reach(self, *values: LocalValue) -> Tensor | None:
        """How far entries of A v are from those of A c, from how far the values are from their centres in norms."""
        return None

    def interval(self, *values: LocalValue) -> Interval | None:
        """A times the middle, give or take |A| times half of the width."""
        middles = [(v.interval.lower + v.interval.upper) / 2 for v in values]
        halves = [
            torch.maximum(v.interval.upper - m, m - v.interval.lower) * (1 + 4 * UNIT)
            for v, m in zip(values, middles, strict=True)
        ]
        slack = self.rounding(*values).view(-1, *(1,) * len(self.output_shape(*(v.shape for v in values))))
        wider = 1 + gamma(self.terms(*(v.shape for v in values)))
        middle, half = self.evaluate(*middles), self.absolute(*halves) * wider + 2 * slack
        found = Interval(middle - half, middle + half)
        reach = self.reach(*values)
        if reach is None:
            return found
        centre = self.evaluate(*(v.centre for v in values))
        half = reach * wider + 2 * slack
        return found.within(Interval(centre - half, centre + half))

    def pull_back(self, rows: Tensor, result: LocalValue, *values: LocalValue) -> Pulled:
        """Exact, but for rounding."""
        shapes = [v.shape for v in values]
        pulled = self.pull_rows(rows.flatten(0, 1), *shapes)
        constant = total(rows, self.at_zero(*shapes).expand(len(rows), *result.shape))
        parts = tuple(part.reshape(*rows.shape[:2], *part.shape[1:]) for part in pulled)
        return Pulled(parts, less(constant, rows, 2 * self.rounding(*values)))

    def at_zero(self, *shapes: Shape) -> Tensor:
        """b, (1, ...)."""
        return self.evaluate(*(torch.zeros(1, *shape, dtype=torch.float64) for shape in shapes))

    def rounding(self, *values: LocalValue) -> Tensor:
        """(N,): no entry of A v + b is off by more, where A v, |A| v or A^T rows is computed in float64."""
        shapes = [v.shape for v in values]
        gain, offset = self._size(shapes)
        largest = torch.stack([v.interval.size for v in values]).amax(dim=0)
        return gamma(self.terms(*shapes)) * (gain * largest + offset)

    def _size(self, shapes: list[Shape]) -> tuple[float, float]:
        """The greatest sum of a row of |A|, and the greatest |b|: the same for all values of these shapes."""
        known = SIZES.setdefault(self, {})
        key = tuple(shapes)
        if key not in known:
            ones = [torch.ones(1, *shape, dtype=torch.float64) for shape in shapes]
            known[key] = float(self.absolute(*ones).max()), float(self.at_zero(*shapes).abs().max())
        return known[key]


SIZES: WeakKeyDictionary[Affine, dict[tuple[Shape, ...], tuple[float, float]]] = WeakKeyDictionary()
"""What was asked of operations, which never change, once for each."""


def is_finite(tensor: Tensor) -> bool:
    """Whether no entry is NaN or infinite, in one pass: networks are asked at each call, in float32."""
    return not tensor.numel() or all(math.isfinite(end) for end in torch.stack(torch.aminmax(tensor)).tolist())


def require_map(shape: Shape) -> None:
    """Raise a ValueError for anything but a map: of less, torch would take the batch for the channels."""
    if len(shape) != 3:
        raise ValueError(f"expected a map (channels, height, width), got shape {shape}; check input_shape")


def require_size(shape: Shape) -> None:
    """Raise a ValueError for values that are too large to be computed."""
    if len(shape) > 16 or math.prod(shape) > MOST_NUMBERS:
        raise ValueError(f"expected at most {MOST_NUMBERS} numbers, got a value of shape {shape}")


def require_numbers(**numbers: Any) -> None:
    """Raise a ValueError that names the first of these that is not a finite number."""
    for name, value in numbers.items():
        whole = type(value) is int and abs(value) <= 2**53
        if not whole and not (type(value) is float and math.isfinite(value)):
            raise ValueError(f"expected {name} to be a finite number, got {value!r}")


def require_counts(least: int, **counts: Any) -> None:
    """Raise a ValueError that names the first of these that is not a whole number >= least."""
    for name, value in counts.items():
        if type(value) is not int or not least <= value <= 2**28:
            raise ValueError(f"expected {name} to be a whole number >= {least}, got {value!r}")


def require_tuples(least: int, size: int | None = None, **tuples: Any) -> None:
    """Raise a ValueError that names the first of these that is not a tuple of `size` whole numbers >= least."""
    for name, value in tuples.items():
        if not isinstance(value, tuple) or (size is not None and len(value) != size):
            raise ValueError(f"expected {name} to be {size or 'some'} whole numbers >= {least}, got {value!r}")
        for n in value:
            require_counts(least, **{name: n})
