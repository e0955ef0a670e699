"""Operations that join several values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import torch
from torch import Tensor

from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.bounds.norm_gains import NormGains
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.extractor.operations.base import Affine, require_counts


@dataclass(frozen=True, eq=False)
class Add(Affine):
    """The sum of two values of the same shape."""

    arguments: ClassVar[int | None] = 2

    def evaluate(self, *values: Tensor) -> Tensor:
        return values[0] + values[1]

    def output_shape(self, *shapes: Shape) -> Shape:
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"expected two values of the same shape, got {shapes[0]} and {shapes[1]}; expand before adding"
            )
        return shapes[0]

    def bound(self, *values: ValueBound, unit: float) -> tuple[ValueBound, NormGains | None]:
        return values[0].plus(values[1], unit), None


@dataclass(frozen=True, eq=False)
class Concatenate(Affine):
    """Values side by side along one axis, counted without the batch."""

    arguments: ClassVar[int | None] = None

    axis: int

    def check(self) -> None:
        require_counts(0, axis=self.axis)

    def evaluate(self, *values: Tensor) -> Tensor:
        return torch.cat(values, dim=self.axis + 1)

    def output_shape(self, *shapes: Shape) -> Shape:
        others = {(*shape[: self.axis], *shape[self.axis + 1 :]) for shape in shapes}
        if len(others) != 1 or len({len(shape) for shape in shapes}) != 1 or self.axis >= len(shapes[0]):
            raise ValueError(f"expected values that differ in axis {self.axis} only, got {', '.join(map(str, shapes))}")
        total = sum(shape[self.axis] for shape in shapes)
        return (*shapes[0][: self.axis], total, *shapes[0][self.axis + 1 :])

    def bound(self, *values: ValueBound, unit: float) -> tuple[ValueBound, NormGains | None]:
        shape = self.output_shape(*(value.shape for value in values))
        if len(values) == 1:
            return values[0], None
        return reduce(lambda a, b: a.beside(b, shape), values), None
