"""Rules of layers whose every output is one of their inputs: pooling by maximum, padding, rearranging."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from berncert.extractor.proofs.facts import Layer, Shape, rule_for
from berncert.extractor.proofs.gains import copying, everywhere
from berncert.extractor.proofs.norms import sums_over_inputs

REARRANGED = Layer(everywhere(1.0), keeps_limits=True)
"""The same numbers in another order, or some of them."""


@rule_for(nn.MaxPool2d, maps=True)
def max_pool(module: nn.MaxPool2d, shape: Shape) -> Layer:
    """Each output is an input; one that lies in many windows may be used so many times."""
    if module.return_indices:
        raise ValueError("expected a MaxPool2d that returns its maxima only, got return_indices=True")
    kernel, stride, padding, dilation = (
        (v, v) if isinstance(v, int) else tuple(v)
        for v in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    value = module(torch.zeros(1, *shape))
    if not value.isfinite().all():
        raise ValueError("expected windows that hold at least one pixel, got one of padding only")
    outputs = value.shape[2:]
    axes = zip(shape[1:], outputs, kernel, stride, padding, dilation, strict=True)
    return Layer(copying(math.prod(_most_windows(*axis) for axis in axes)), keeps_limits=True)


def _most_windows(size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    windows = ([i * stride + j * dilation - padding for j in range(kernel)] for i in range(outputs))
    return _most_common(size, windows)


@rule_for(nn.AdaptiveMaxPool2d, maps=True)
def adaptive_max_pool(module: nn.AdaptiveMaxPool2d, shape: Shape) -> Layer:
    """As above; windows run from floor(i n / m) to ceil((i + 1) n / m)."""
    if module.return_indices:
        raise ValueError("expected an AdaptiveMaxPool2d that returns its maxima only, got return_indices=True")
    outputs = module(torch.zeros(1, *shape)).shape[2:]
    return Layer(
        copying(
            math.prod(
                _most_common(n, (range(i * n // m, -(-(i + 1) * n // m)) for i in range(m)))
                for n, m in zip(shape[1:], outputs, strict=True)
            )
        ),
        keeps_limits=True,
    )


def _most_common(size: int, windows: Iterable[Iterable[int]]) -> int:
    counts = [0] * size
    for window in windows:
        for i in window:
            if 0 <= i < size:
                counts[i] += 1
    return max(1, *counts)


@rule_for(nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d, nn.UpsamplingNearest2d, maps=True)
def copies_of_pixels(module: nn.Module, shape: Shape) -> Layer:
    """Every output is an input, or 0."""
    return Layer(copying(max(1.0, sums_over_inputs(module, (1, *shape[1:])))))


@rule_for(
    nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelUnshuffle, nn.PixelShuffle, nn.ChannelShuffle,
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
def rearrangement(module: nn.Module, shape: Shape) -> Layer:
    """The same numbers in another order; dropout does nothing in evaluation."""
    return REARRANGED
