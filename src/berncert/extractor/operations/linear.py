"""Operations that are linear (or affine) in their input, and the block that a convex potential makes of one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input

from berncert.extractor.bounds.layer_bound import LayerBound, Shape, absolute_norm, length
from berncert.extractor.bounds.local import LocalValue, gamma, length_bound
from berncert.extractor.bounds.norm_gains import INF
from berncert.extractor.bounds.spectral_norm import (
    UNIT,
    Geometry,
    Pair,
    cached_matrix_norm_bound,
    conv_norm_bound,
    power_of_two,
    sums_over_inputs,
    sums_over_outputs,
)
from berncert.extractor.operations.base import (
    Affine,
    Layer,
    require_counts,
    require_map,
    require_size,
    require_tuples,
)
from berncert.foundation.arguments import dual_norm

MODES = ("zeros", "circular", "reflect", "replicate")


@dataclass(frozen=True, eq=False)
class Linear(Affine, Layer):
    """x W^T + b along the last axis."""

    weight: Tensor
    bias: Tensor | None = None

    def check(self) -> None:
        super().check()
        fits = self.weight.ndim == 2 and self.weight.numel() > 0
        if not fits or (self.bias is not None and self.bias.shape != self.weight.shape[:1]):
            raise ValueError(f"expected a matrix and a bias that fits its rows, got {_shapes(self)}")

    def evaluate(self, *values: Tensor) -> Tensor:
        return F.linear(values[0], self.weight, self.bias)

    def absolute(self, *values: Tensor) -> Tensor:
        return F.linear(values[0], self.weight.abs())

    def pull_rows(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (rows @ self.weight,)

    def terms(self, *shapes: Shape) -> int:
        return sum(self.weight.shape) + math.prod(self.output_shape(*shapes))

    def reach(self, *values: LocalValue) -> Tensor | None:
        return row_reach(self.weight, values[0]) if len(values[0].shape) == 1 else None

    def output_shape(self, *shapes: Shape) -> Shape:
        outputs, inputs = self.weight.shape
        if shapes[0][-1:] != (inputs,):
            raise ValueError(f"expected {inputs} numbers along the last axis, got shape {shapes[0]}; check input_shape")
        return (*shapes[0][:-1], outputs)

    def layer_bound(self, shape: Shape) -> LayerBound:
        """Norms from 1 and to infinity are those of columns, rows and entries; the 2-norm is proven by Cholesky."""
        w = self.weight
        scale = power_of_two(w)
        a, wider = (w / scale).abs(), scale * (1 + (sum(w.shape) + 8) * UNIT)
        known = {
            (1.0, 1.0): float(a.sum(dim=0).max()) * wider,
            (1.0, 2.0): float(length_bound(a.T[None], 2.0).max()) * wider,
            (1.0, INF): float(a.max()) * wider,
            (2.0, 2.0): cached_matrix_norm_bound(w),
            (2.0, INF): float(length_bound(a[None], 2.0).max()) * wider,
            (INF, INF): float(a.sum(dim=1).max()) * wider,
        }
        copies = math.prod(shape[:-1])
        return LayerBound(known, length(self.bias, copies), w.shape[1] + 3, absolute_norm(known))


def row_reach(weight: Tensor, value: LocalValue, *, copied: bool = False) -> Tensor:
    """(N, outputs): how far weight . v is from weight . c: for each norm the dual norm of a row, of which the least.

    Where entries are copied, weights of the same entry add up, to at most the l1 norm of a row in any norm.
    """
    wider = 1 + gamma(weight.shape[1] + 64)
    duals = [1.0 if copied else dual_norm(t) for t in value.norms]
    lengths = torch.cat([length_bound(weight[None], q) for q in duals])
    return (value.balls[:, :, None] * lengths * wider).amin(dim=1)


@dataclass(frozen=True, eq=False)
class Convolution(Affine, Layer):
    """A 2-D convolution as torch defines it, with (before, after) padding for height and width."""

    weight: Tensor
    bias: Tensor | None = None
    stride: Pair = (1, 1)
    padding: tuple[Pair, Pair] = ((0, 0), (0, 0))
    dilation: Pair = (1, 1)
    groups: int = 1
    mode: str = "zeros"

    @property
    def geometry(self) -> Geometry:
        """Where it reads."""
        return Geometry(self.stride, self.padding, self.dilation, self.groups, self.mode)

    def check(self) -> None:
        super().check()
        require_tuples(1, 2, stride=self.stride, dilation=self.dilation)
        require_counts(1, groups=self.groups)
        if self.mode not in MODES or not isinstance(self.padding, tuple) or len(self.padding) != 2:
            raise ValueError(f"expected the settings of a 2-D convolution, got {self.settings()}")
        for sides in self.padding:
            require_tuples(0, 2, padding=sides)
        fits = self.weight.ndim == 4 and not len(self.weight) % self.groups and self.weight.numel() > 0
        if not fits or (self.bias is not None and self.bias.shape != self.weight.shape[:1]):
            raise ValueError(f"expected (out, in / groups, height, width) weights and their bias, got {_shapes(self)}")

    def evaluate(self, *values: Tensor) -> Tensor:
        return self._convolve(values[0], self.weight, self.bias)

    def absolute(self, *values: Tensor) -> Tensor:
        return self._convolve(values[0], self.weight.abs(), None)

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        (top, bottom), (left, right) = self.padding
        even = self.mode == "zeros" and top == bottom and left == right
        padded, padding = (x, (top, left)) if even else (self.geometry.pad(x), (0, 0))
        return F.conv2d(padded, weight, bias, self.stride, padding, self.dilation, self.groups)

    def pull_rows(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        (top, bottom), (left, right) = self.padding
        if self.mode != "zeros" or top != bottom or left != right:
            return super().pull_rows(rows, *shapes)
        size = (len(rows), *shapes[0])
        geometry = self.stride, (top, left), self.dilation, self.groups
        # a transposed convolution would take twice as long
        pulled: Tensor = conv2d_input(size, self.weight, rows.contiguous(), *geometry)  # type: ignore[no-untyped-call]
        return (pulled,)

    def terms(self, *shapes: Shape) -> int:
        """Of padding that copies pixels, each may be added up several times."""
        return 16 * self.weight.numel() + math.prod(self.output_shape(*shapes))

    def reach(self, *values: LocalValue) -> Tensor | None:
        """Each entry is the product of one row of weights with a part of the padded value."""
        found = row_reach(self.weight.flatten(1), values[0], copied=self.mode != "zeros")
        return found[:, :, None, None]

    def output_shape(self, *shapes: Shape) -> Shape:
        require_map(shapes[0])
        channels, *size = shapes[0]
        outputs, fan, *kernel = self.weight.shape
        if channels != fan * self.groups:
            raise ValueError(f"expected {fan * self.groups} channels, got shape {shapes[0]}; check input_shape")
        if self.mode == "reflect" and any(max(p) >= n for p, n in zip(self.padding, size, strict=True)):
            raise ValueError(f"expected a map larger than its reflection {self.padding}, got shape {shapes[0]}")
        if self.mode == "circular" and any(max(p) > n for p, n in zip(self.padding, size, strict=True)):
            raise ValueError(f"expected a map no smaller than its circular padding {self.padding}, got {shapes[0]}")
        require_size((channels, *(n + sum(p) for n, p in zip(size, self.padding, strict=True))))
        ends = tuple(
            (n + sum(p) - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(size, self.padding, self.dilation, kernel, self.stride, strict=True)
        )
        if min(ends) < 1:
            raise ValueError(f"expected a map at least as large as the kernel {tuple(kernel)}, got shape {shapes[0]}")
        return (outputs, *ends)

    def layer_bound(self, shape: Shape) -> LayerBound:
        """The 2-norm from frequencies, or the explicit matrix; the others from sums over what touches a pixel."""
        w, geometry = self.weight, self.geometry
        fan, scale = w[0].numel(), power_of_two(w)
        wider = scale * (1 + 4 * (max(fan, w.numel() // w.shape[1]) + 8) * UNIT)
        absolute = partial(geometry.convolve, weight=(w / scale).abs())
        known = {
            (1.0, 1.0): sums_over_inputs(absolute, shape) * wider,
            (2.0, 2.0): conv_norm_bound(w, geometry, shape[1:]),
            (INF, INF): sums_over_outputs(absolute, shape) * wider,
        }
        if geometry.mode == "zeros":  # each entry of the matrix is one weight
            squares = partial(geometry.convolve, weight=(w / scale).square())
            known |= {
                (1.0, 2.0): math.sqrt(sums_over_inputs(squares, shape)) * wider,
                (1.0, INF): float((w / scale).abs().max()) * wider,
                (2.0, INF): math.sqrt(sums_over_outputs(squares, shape)) * wider,
            }
        pixels = math.prod(self.output_shape(shape)[1:])
        return LayerBound(known, length(self.bias, pixels), fan + 3, absolute_norm(known))


@dataclass(frozen=True, eq=False)
class PotentialStep(Layer):
    """x - 2 W relu(W^T x + b): a gradient step on a convex potential."""

    weight: Tensor
    bias: Tensor | None = None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    @property
    def inner(self) -> Linear | Convolution:
        """W^T x + b, as an operation of its own."""
        if self.weight.ndim == 2:
            return Linear(self.weight, self.bias)
        height, width = self.padding
        padding = ((height, height), (width, width))
        return Convolution(self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def check(self) -> None:
        super().check()
        require_tuples(0, 2, padding=self.padding)
        self.inner.check()

    def evaluate(self, *values: Tensor) -> Tensor:
        settings = (self.stride, self.padding, self.dilation, self.groups)
        return potential_step(values[0], self.weight, self.bias, *settings)

    def output_shape(self, *shapes: Shape) -> Shape:
        require_size(self.inner.output_shape(*shapes))
        return shapes[0]

    def layer_bound(self, shape: Shape) -> LayerBound:
        """The derivative I - 2 W D W^T, with 0 <= D <= I, is symmetric, its eigenvalues between 1 - 2 |W|^2 and 1."""
        inner = self.inner.layer_bound(shape)
        norm, one, greatest = (inner.known[n, n] for n in (2.0, 1.0, INF))
        wider = 1 + 8 * UNIT
        sides = (1 + 2 * one * greatest) * wider  # W^T has the l1 norm of W in l-inf, and the other way round
        assert inner.magnitude is not None
        fan_back = self.weight.numel() / self.weight.shape[1]
        return LayerBound(
            {(2.0, 2.0): max(1.0, (2 * norm * norm - 1) * wider), (1.0, 1.0): sides, (INF, INF): sides},
            max(1.0, 2 * inner.magnitude * wider) * inner.offset,
            inner.roundings + fan_back + 6,
            (1 + 2 * inner.magnitude * inner.magnitude) * wider,
        )


def potential_step(
    x: Tensor, weight: Tensor, bias: Tensor | None,
    stride: Pair = (1, 1), padding: Pair = (0, 0), dilation: Pair = (1, 1), groups: int = 1,
) -> Tensor:  # fmt: skip
    """x - 2 W relu(W^T x + b), where the weight is that of a linear layer or of a convolution with zero padding.

    The factor 2 goes to the weight, which changes no digit, and steps are taken in place: a tenth of the time.
    """
    if weight.ndim == 2:
        return F.linear(F.linear(x, weight, bias).relu_(), -2 * weight.T).add_(x)
    hidden = F.conv2d(x, weight, bias, stride, padding, dilation, groups).relu_()
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    short = [(n + 2 * p - r) % s for n, p, r, s in zip(x.shape[2:], padding, reach, stride, strict=True)]
    return F.conv_transpose2d(hidden, -2 * weight, None, stride, padding, short, groups, dilation).add_(x)


@dataclass(frozen=True, eq=False)
class Mean(Affine, Layer):
    """The average over some axes, counted without the batch, which are left out of the result or kept with size 1."""

    axes: tuple[int, ...]
    keep: bool = False

    def check(self) -> None:
        require_tuples(0, axes=self.axes)
        if not self.axes or len(set(self.axes)) != len(self.axes) or not isinstance(self.keep, bool):
            raise ValueError(f"expected different axes to take the mean over, got {self.settings()}")

    def evaluate(self, *values: Tensor) -> Tensor:
        return values[0].mean(dim=[axis + 1 for axis in self.axes], keepdim=self.keep)

    def output_shape(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if max(self.axes) >= len(shape):
            raise ValueError(f"expected axes of a value of shape {shape}, got {self.axes}")
        sizes = [(n, axis in self.axes) for axis, n in enumerate(shape)]
        return tuple(1 if gone else n for n, gone in sizes if self.keep or not gone)

    def layer_bound(self, shape: Shape) -> LayerBound:
        """Averages of disjoint groups of entries, all of the same size."""
        group = math.prod(shape[axis] for axis in self.axes)
        known = {(1.0, 1.0): 1 / group, (2.0, 2.0): math.sqrt(1 / group), (INF, INF): 1.0}
        known = {pair: factor * (1 + 8 * UNIT) for pair, factor in known.items()}
        return LayerBound(known, roundings=group + 3, intermediate=group)  # sums come before their division


def _shapes(operation: Layer) -> str:
    return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in operation.tensors().items())
