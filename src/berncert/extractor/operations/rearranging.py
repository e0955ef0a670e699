"""Operations whose every result is one of their inputs, or 0: reshaping, reordering, selecting, copying, padding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from berncert.extractor.bounds.layer_bound import LayerBound, Shape
from berncert.extractor.bounds.norm_gains import copying_gains, entrywise_gains
from berncert.extractor.operations.base import Affine, Layer, require_tuples


@dataclass(frozen=True, eq=False)
class Reshape(Affine, Layer):
    """The same numbers in the same order, in another shape."""

    shape: Shape

    def check(self) -> None:
        require_tuples(1, shape=self.shape)

    def evaluate(self, *values: Tensor) -> Tensor:
        return values[0].reshape(len(values[0]), *self.shape)

    def pull_rows(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (rows.reshape(len(rows), *shapes[0]),)

    def output_shape(self, *shapes: Shape) -> Shape:
        if math.prod(shapes[0]) != math.prod(self.shape):
            raise ValueError(f"expected as many numbers as {self.shape} has, got shape {shapes[0]}")
        return self.shape

    def layer_bound(self, shape: Shape) -> LayerBound:
        return LayerBound(entrywise_gains(1.0), keeps_limits=True)


@dataclass(frozen=True, eq=False)
class Gather(Affine, Layer):
    """Each result is the input with the number in `index`, in reading order, or 0 for -1."""

    index: Tensor

    def check(self) -> None:
        if self.index.dtype != torch.int64 or not self.index.numel() or int(self.index.min()) < -1:
            raise ValueError("expected numbers of inputs, or -1 for 0, got something else")

    def evaluate(self, *values: Tensor) -> Tensor:
        (x,) = values
        flat = F.pad(x.reshape(len(x), math.prod(x.shape[1:])), (0, 1))  # index -1 reads the zero at the end
        return flat[:, self.index.flatten()].reshape(len(x), *self.index.shape)

    def output_shape(self, *shapes: Shape) -> Shape:
        if int(self.index.max()) >= math.prod(shapes[0]):
            raise ValueError(f"expected numbers of the inputs of shape {shapes[0]}, got {int(self.index.max())}")
        return tuple(self.index.shape)

    def layer_bound(self, shape: Shape) -> LayerBound:
        used = self.index[self.index >= 0]
        times = int(torch.bincount(used).max()) if used.numel() else 0
        return LayerBound(copying_gains(times), keeps_limits=used.numel() == self.index.numel())
