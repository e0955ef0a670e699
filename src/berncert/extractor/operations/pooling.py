"""Pooling of maps: by maximum, and by average."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from berncert.extractor.bounds.layer_bound import LayerBound, Shape, absolute_norm
from berncert.extractor.bounds.local import Interval, LocalValue, Pulled, through_maxima
from berncert.extractor.bounds.norm_gains import INF, copying_gains
from berncert.extractor.bounds.spectral_norm import (
    LARGEST_EXPLICIT,
    UNIT,
    Pair,
    cached_matrix_norm_bound,
    sums_over_inputs,
    sums_over_outputs,
)
from berncert.extractor.operations.base import Affine, Layer, require_counts, require_map, require_tuples


class Maximum(Layer):
    """The maximum of some entries of the value, for each entry of the result."""

    @abstractmethod
    def axes(self, shape: Shape) -> tuple[list[range], list[range]]:
        """The rows and columns of each window, of a map of this shape."""

    def interval(self, *values: LocalValue) -> Interval | None:
        return Interval(*(self.evaluate(side) for side in values[0].interval))

    def pull_back(self, rows: Tensor, result: LocalValue, *values: LocalValue) -> Pulled:
        return through_maxima(rows, self.index(values[0].shape), values[0])

    def index(self, shape: Shape) -> Tensor:
        """(outputs, k): the numbers of the entries that each output is the maximum of, -1 for none."""
        return window_index(shape, *self.axes(shape))


def window_index(shape: Shape, heights: list[range], widths: list[range]) -> Tensor:
    """(outputs, k): the numbers of the entries of each window of each channel, -1 where it has fewer than others."""
    channels, height, width = shape
    windows = [[y * width + x for y in rows for x in columns] for rows in heights for columns in widths]
    most = max(map(len, windows))
    index = torch.tensor([window + [-1] * (most - len(window)) for window in windows])
    offsets = torch.arange(channels)[:, None, None] * height * width
    return torch.where(index >= 0, index + offsets, -1).flatten(0, 1)


@dataclass(frozen=True, eq=False)
class Windows(Layer):
    """An operation on the windows of a map, each channel by itself."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil: bool = False
    """Whether a last window that reaches over the edge counts."""
    dilation = (1, 1)  # a setting of MaximumPool only

    def check(self) -> None:
        require_tuples(1, 2, kernel=self.kernel, stride=self.stride, dilation=self.dilation)
        require_tuples(0, 2, padding=self.padding)
        if not isinstance(self.ceil, bool):
            raise ValueError(f"expected ceil to be true or false, got {self.ceil!r}")
        if any(2 * p > k for p, k in zip(self.padding, self.kernel, strict=True)):
            raise ValueError(f"expected a padding of at most half the kernel, got {self.padding} and {self.kernel}")

    def output_shape(self, *shapes: Shape) -> Shape:
        require_map(shapes[0])
        axes = zip(shapes[0][1:], self.kernel, self.stride, self.padding, self.dilation, strict=True)
        ends = tuple(self._outputs(*axis) for axis in axes)
        if min(ends) < 1:
            raise ValueError(f"expected a map at least as large as the kernel {self.kernel}, got shape {shapes[0]}")
        return (shapes[0][0], *ends)

    def _outputs(self, size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
        span = size + 2 * padding - dilation * (kernel - 1) - 1
        count = (span + (stride - 1 if self.ceil else 0)) // stride + 1
        # the last window must begin inside the map or the padding before it
        return count - 1 if self.ceil and (count - 1) * stride >= size + padding else count


@dataclass(frozen=True, eq=False)
class MaximumPool(Windows, Maximum):
    """The maximum of each window."""

    dilation: Pair = (1, 1)

    def axes(self, shape: Shape) -> tuple[list[range], list[range]]:
        outputs = self.output_shape(shape)[1:]
        axes = zip(shape[1:], outputs, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        height, width = (_windows(*axis) for axis in axes)
        return height, width

    def evaluate(self, *values: Tensor) -> Tensor:
        return F.max_pool2d(values[0], self.kernel, self.stride, self.padding, self.dilation, self.ceil)

    def layer_bound(self, shape: Shape) -> LayerBound:
        """Each output is an input; one that lies in several windows may be used as many times."""
        outputs = self.output_shape(shape)[1:]
        axes = zip(shape[1:], outputs, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        counts = [_window_counts(*axis) for axis in axes]
        if min(least for least, _ in counts) < 1:
            raise ValueError("expected windows that hold at least one pixel, got one of padding only")
        return LayerBound(copying_gains(math.prod(most for _, most in counts)), keeps_limits=True)


def _window_counts(size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> tuple[int, int]:
    """The fewest pixels in a window, and the most windows that a pixel is in."""
    windows = _windows(size, outputs, kernel, stride, padding, dilation)
    return min(map(len, windows)), _most_common(size, windows)


def _windows(size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> list[range]:
    """The pixels of each window along an axis."""
    starts = (i * stride - padding for i in range(outputs))
    return [
        range(max(start, start % dilation), min(size, start + dilation * (kernel - 1) + 1), dilation)
        for start in starts
    ]


def _most_common(size: int, windows: Iterable[Iterable[int]]) -> int:
    counts = [0] * size
    for window in windows:
        for i in window:
            counts[i] += 1
    return max(1, *counts)


@dataclass(frozen=True, eq=False)
class Adaptive(Layer):
    """An operation on windows that divide the map evenly, from floor(i n / m) to ceil((i + 1) n / m)."""

    outputs: Pair

    def check(self) -> None:
        require_tuples(1, 2, outputs=self.outputs)

    def output_shape(self, *shapes: Shape) -> Shape:
        require_map(shapes[0])
        return (shapes[0][0], *self.outputs)


class AdaptiveMaximum(Adaptive, Maximum):
    """The maximum of each window."""

    def axes(self, shape: Shape) -> tuple[list[range], list[range]]:
        height, width = (_even_windows(n, m) for n, m in zip(shape[1:], self.outputs, strict=True))
        return height, width

    def evaluate(self, *values: Tensor) -> Tensor:
        return F.adaptive_max_pool2d(values[0], self.outputs)

    def layer_bound(self, shape: Shape) -> LayerBound:
        times = (_most_common(n, _even_windows(n, m)) for n, m in zip(shape[1:], self.outputs, strict=True))
        return LayerBound(copying_gains(math.prod(times)), keeps_limits=True)


def _even_windows(size: int, outputs: int) -> list[range]:
    return [range(i * size // outputs, -(-(i + 1) * size // outputs)) for i in range(outputs)]


class Average(Affine, Layer):
    """A linear map without negative entries, the same for each channel."""

    @property
    def largest_divisor(self) -> int:
        """The most that the sum of a window is divided by, if that can be more than its pixels."""
        return 1

    def layer_bound(self, shape: Shape) -> LayerBound:
        image = (1, *shape[1:])
        fan = math.prod(image)
        wider = 1 + 4 * (fan + 8) * UNIT
        known = {
            (1.0, 1.0): sums_over_inputs(self.evaluate, image) * wider,
            (INF, INF): sums_over_outputs(self.evaluate, image) * wider,
        }
        if fan <= LARGEST_EXPLICIT:
            basis = torch.eye(fan, dtype=torch.float64).reshape(-1, *image)
            known[2.0, 2.0] = cached_matrix_norm_bound(self.evaluate(basis).flatten(1).T) * wider
        # sums come before their division
        return LayerBound(known, 0.0, fan + 3, absolute_norm(known), intermediate=max(fan, self.largest_divisor))


@dataclass(frozen=True, eq=False)
class AveragePool(Windows, Average):
    """The average of each window, over its pixels or over a number that is given."""

    count_padding: bool = True
    divisor: int | None = None

    @property
    def largest_divisor(self) -> int:
        return self.divisor or math.prod(self.kernel)

    def check(self) -> None:
        super().check()
        if not isinstance(self.count_padding, bool):
            raise ValueError(f"expected count_padding to be true or false, got {self.count_padding!r}")
        if self.divisor is not None:
            require_counts(1, divisor=self.divisor)

    def evaluate(self, *values: Tensor) -> Tensor:
        options = (self.kernel, self.stride, self.padding, self.ceil, self.count_padding, self.divisor)
        return F.avg_pool2d(values[0], *options)


class AdaptiveAverage(Adaptive, Average):
    """The average of each window."""

    def evaluate(self, *values: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(values[0], self.outputs)
