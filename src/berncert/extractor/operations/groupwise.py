"""Operations on a few entries together: groups of channels that are sorted or reflected, and the softmax of an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from berncert.extractor.bounds.layer_bound import LayerBound, Shape, norm_of_ones
from berncert.extractor.bounds.local import Interval, LocalValue, Pulled, gamma, less, through_maxima
from berncert.extractor.bounds.norm_gains import INF, entrywise_gains
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.operations.base import Layer, require_counts
from berncert.extractor.operations.entrywise import ULPS


@dataclass(frozen=True, eq=False)
class GroupSort(Layer):
    """Channels in groups of `size`, each sorted downwards: it permutes, piece by piece, and is continuous."""

    size: int

    def check(self) -> None:
        require_counts(1, size=self.size)

    def evaluate(self, *values: Tensor) -> Tensor:
        return sorted_groups(values[0], self.size)

    def interval(self, *values: LocalValue) -> Interval | None:
        """The k-th of some numbers is not below the k-th of their lower limits, nor above that of the upper ones."""
        return Interval(*(self.evaluate(side) for side in values[0].interval))

    def pull_back(self, rows: Tensor, result: LocalValue, *values: LocalValue) -> Pulled:
        """Of pairs: p max(a, b) + q min(a, b) = (p - q) max(a, b) + q (a + b)."""
        if self.size != 2:
            return super().pull_back(rows, result, *values)
        (value,) = values
        numbers = torch.arange(math.prod(value.shape)).view(-1, 2, *value.shape[1:])
        index = numbers.movedim(1, -1).reshape(-1, 2)
        greatest, least = torch.unflatten(rows, 2, (-1, 2)).unbind(3)
        pulled = through_maxima(greatest - least, index, value)
        assert pulled.rows[0] is not None
        both = torch.stack([least, least], dim=3).flatten(2, 3)
        # the difference and the sum at the end are rounded; entries of a row are in two of them
        slack = gamma(len(index)) * value.interval.size
        return Pulled((pulled.rows[0] + both,), less(pulled.constant, rows, 8 * slack))

    def output_shape(self, *shapes: Shape) -> Shape:
        require_groups(shapes[0], self.size)
        return shapes[0]

    def layer_bound(self, shape: Shape) -> LayerBound:
        return LayerBound(entrywise_gains(1.0), keeps_limits=True)


def require_groups(shape: Shape, size: int) -> None:
    """Raise a ValueError if the channels of this shape cannot be shared out in groups of this size."""
    if not shape or shape[0] % size:
        raise ValueError(f"expected a number of channels that {size} divides, got shape {shape}; change the width")


def sorted_groups(x: Tensor, size: int) -> Tensor:
    """Channels in groups of this size, each sorted downwards."""
    groups = torch.unflatten(x, 1, (-1, size))
    if size == 2:
        a, b = groups.unbind(2)
        return torch.stack([torch.maximum(a, b), torch.minimum(a, b)], dim=2).flatten(1, 2)
    return groups.sort(dim=2, descending=True).values.flatten(1, 2)


@dataclass(frozen=True, eq=False)
class Householder(Layer):
    """Channels in pairs, each reflected by I - 2 n n^T where it lies on the wrong side of the line n x = 0."""

    normal: Tensor
    """The normals n of the lines, (2, pairs)."""

    def check(self) -> None:
        super().check()
        if self.normal.ndim != 2 or len(self.normal) != 2 or not self.normal.numel():
            raise ValueError(f"expected a normal of shape (2, pairs), got {tuple(self.normal.shape)}")

    def evaluate(self, *values: Tensor) -> Tensor:
        return reflected_pairs(values[0], self.normal)

    def output_shape(self, *shapes: Shape) -> Shape:
        channels = 2 * self.normal.shape[1]
        if shapes[0][:1] != (channels,):
            raise ValueError(f"expected {channels} channels, got a value of shape {shapes[0]}")
        return shapes[0]

    def layer_bound(self, shape: Shape) -> LayerBound:
        """The identity and the reflection agree on the line; the latter's eigenvalues are 1 and 1 - 2 n^2."""
        a, b = self.normal.abs()
        square = a * a + b * b
        wider = 1 + 16 * UNIT
        round_trip = float((2 * square - 1).abs().max()) * wider + 64 * UNIT
        sides = float(torch.maximum((1 - 2 * a * a).abs(), (1 - 2 * b * b).abs()).add(2 * a * b).max()) * wider
        far = float((1 + 2 * square).max()) * wider  # both pieces with their entries made positive
        known = {(2.0, 2.0): max(1.0, round_trip), (1.0, 1.0): max(1.0, sides), (INF, INF): max(1.0, sides)}
        return LayerBound(known, roundings=16, magnitude=2 * far)


def reflected_pairs(x: Tensor, normal: Tensor) -> Tensor:
    """Channels in pairs, each moved to the other side of its line when it lies on the wrong one."""
    shape = (1, -1, *(1,) * (x.ndim - 2))
    a, b = torch.unflatten(x, 1, (-1, 2)).unbind(2)
    outside = F.relu(-(normal[0].view(shape) * a + normal[1].view(shape) * b))  # how far on the wrong side
    reflected = [part + 2 * outside * n.view(shape) for part, n in zip((a, b), normal, strict=True)]
    return torch.stack(reflected, dim=2).flatten(1, 2)


@dataclass(frozen=True, eq=False)
class Softmax(Layer):
    """exp(x) over its sum, along one axis, counted without the batch."""

    axis: int

    def check(self) -> None:
        require_counts(0, axis=self.axis)

    def evaluate(self, *values: Tensor) -> Tensor:
        return values[0].softmax(dim=self.axis + 1).clamp(0, 1)

    def output_shape(self, *shapes: Shape) -> Shape:
        if self.axis >= len(shapes[0]):
            raise ValueError(f"expected an axis of a value of shape {shapes[0]}, got {self.axis}")
        return shapes[0]

    def layer_bound(self, shape: Shape) -> LayerBound:
        """The derivative diag(s) - s s^T has absolute row and column sums 2 s (1 - s) <= 1/2."""
        half = {(1.0, 1.0): 0.5, (2.0, 2.0): 0.5, (INF, INF): 0.5}
        # the exponent is off by a rounding of its size, and the result by as much
        return LayerBound(half, norm_of_ones(shape), 4 * ULPS + shape[self.axis], magnitude=2.0, limits=(0.0, 1.0))
