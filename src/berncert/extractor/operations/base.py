"""What every operation of a frozen network can do, and how it is written down as plain data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from berncert.extractor.bounds.layer_bound import LayerBound, Shape
from berncert.extractor.bounds.norm_gains import NormGains
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

    def check(self) -> None:
        """Raise a ValueError if the fields are not those of such an operation: files can hold anything."""
        for name, tensor in self.tensors().items():
            if tensor.dtype != torch.float64:
                raise ValueError(f"expected {name} in float64, got {tensor.dtype}")
            if not tensor.isfinite().all():
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
            if not tensor.isfinite().all():
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
