"""Modules of torch and of this package as operations, by their exact type. To add a layer, add a translation here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from berncert.extractor import layers
from berncert.extractor import operations as ops
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.bounds.spectral_norm import Pair
from berncert.extractor.evaluation import layer_name
from berncert.extractor.parametrizations import geometry_of

Operations = Sequence[ops.Layer]
"""Operations one after the other."""
Translation = Callable[[Any, Shape], Operations]
"""From a module and the shape of its input to the operations that do the same."""


REARRANGING_MODULES: tuple[type[nn.Module], ...] = (
    nn.Flatten, nn.Unflatten, nn.PixelUnshuffle, nn.PixelShuffle, nn.ChannelShuffle, nn.UpsamplingNearest2d,
    nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d,
)  # fmt: skip
"""Modules whose every result is one of their inputs, or 0: they are run on numbered inputs."""
IDLE: tuple[type[nn.Module], ...] = (
    nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
"""Modules that do nothing in evaluation."""
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def constant(value: Any, name: str = "constant") -> Tensor:
    """A copy of a number or tensor in float64, with exactly the same value; gradients pass, where they are taken."""
    wide = torch.float64 if isinstance(value, float) else None  # torch would make it float32
    tensor = torch.as_tensor(value, dtype=wide).cpu()
    if tensor.is_complex():
        raise TypeError(f"expected a {name} of real numbers, got complex ones")
    exact = tensor.double()
    if not tensor.is_floating_point() and not torch.equal(exact.to(tensor.dtype), tensor):
        raise ValueError(f"expected a {name} that float64 can hold, got {value!r}")
    if not exact.isfinite().all():
        raise ValueError(f"expected a finite {name}, got NaN or infinity; nothing can be proven of such a layer")
    return exact.clone().contiguous()


def _optional(value: Tensor | None, name: str) -> Tensor | None:
    return None if value is None else constant(value, name)


def _convolution(module: nn.Conv2d, shape: Shape) -> Operations:
    g = geometry_of(module)
    weight, bias = constant(module.weight, "weight"), _optional(module.bias, "bias")
    return [ops.Convolution(weight, bias, g.stride, g.padding, g.dilation, g.groups, g.mode)]


def _potential_step(module: layers.PotentialStep, shape: Shape) -> Operations:
    inner = module.inner
    if type(inner) not in (nn.Linear, nn.Conv2d):
        raise TypeError(f"expected a PotentialStep around a Linear or Conv2d, got {type(inner).__name__}")
    weight, bias = constant(inner.weight, "weight"), _optional(inner.bias, "bias")
    return [ops.PotentialStep(weight, bias, *module.settings)]


def _normalise(module: layers.Normalise, shape: Shape) -> Operations:
    mean, std = constant(module.mean, "mean"), constant(module.std, "std")
    if len(module.std) not in (1, shape[0]) or mean.shape != std.shape or not (std > 0).all():
        raise ValueError(f"expected a mean and a positive std for each of {shape[0]} channels, got {module}")
    return [ops.Shift(by_channel(-mean, shape)), ops.Scale(by_channel(std, shape), divide=True)]


def by_channel(values: Tensor, shape: Shape) -> Tensor:
    """One number for each channel, in the shape that fits a value of this one."""
    return values.reshape(-1, *(1,) * (len(shape) - 1))


def _householder(module: layers.Householder, shape: Shape) -> Operations:
    half = constant(module.angle, "angle") / 2
    return [ops.Householder(torch.stack([half.sin(), -half.cos()]))]


def _distance(module: layers.LinfDistance, shape: Shape) -> Sequence[ops.Distance]:
    weight, bias, mean = (constant(getattr(module, name), name) for name in ("weight", "bias", "mean"))
    return [ops.Distance(weight, bias + mean if module.negative else bias - mean, module.negative)]


def _sorted_distance(module: layers.SortedDistance, shape: Shape) -> Operations:
    (plain,) = _distance(module, shape)
    return [ops.SortedDistance(plain.weight, plain.bias, constant(module.shares, "shares"), plain.negative)]


BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def scale_and_shift(module: nn.BatchNorm1d | nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """The scale and shift of each channel: in evaluation it computes (x - mean) gamma / sqrt(var + eps) + beta."""
    if module.running_var is None or module.running_mean is None:
        raise ValueError(f"expected running statistics, got none; {layer_name(module)} then mixes the batch")
    mean, variance = constant(module.running_mean, "mean"), constant(module.running_var, "var")
    if not (variance >= 0).all() or not (variance + module.eps > 0).all():
        raise ValueError("expected a running variance >= 0, and > 0 with eps, got less; the layer divides by its root")
    ones = torch.ones_like(mean)
    gamma, beta = (ones if module.weight is None else constant(module.weight, "weight")), module.bias
    scale = gamma / (variance + module.eps).sqrt()
    return scale, (0 * ones if beta is None else constant(beta, "bias")) - scale * mean


def _batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, shape: Shape) -> Operations:
    scale, shift = scale_and_shift(module)
    if shape[:1] != (len(scale),) or len(shape) not in ((1, 2) if isinstance(module, nn.BatchNorm1d) else (3,)):
        raise ValueError(f"expected {len(scale)} channels as {layer_name(module)} takes them, got shape {shape}")
    return [ops.Scale(by_channel(scale, shape)), ops.Shift(by_channel(shift, shape))]


def _activation(module: nn.Module, shape: Shape) -> Operations:
    return [ops.Activation(type(module).__name__.lower())]


def _prelu(module: nn.PReLU, shape: Shape) -> Operations:
    slopes = constant(module.weight, "weight")
    return [ops.Leaky(slopes.reshape(()) if slopes.numel() == 1 else by_channel(slopes, shape))]


def _softplus(module: nn.Softplus, shape: Shape) -> Operations:
    if not 20 <= module.threshold <= 80:
        raise ValueError(
            f"expected a Softplus with a threshold from 20 to 80, got {module.threshold}; below that it jumps where it "
            "switches to x, and has no Lipschitz bound, and above float32 overflows before it does"
        )
    return [ops.Softplus(float(module.beta))]


def _threshold(module: nn.Threshold, shape: Shape) -> Operations:
    if module.value != module.threshold:
        raise ValueError(f"expected a Threshold whose value is its threshold, got {module}; it jumps elsewhere")
    return [ops.Clamp(float(module.value), None)]


def _softmax(module: nn.Softmax, shape: Shape) -> Operations:
    if module.dim is None or module.dim % (len(shape) + 1) == 0 or not abs(module.dim) <= len(shape):
        raise ValueError(f"expected a Softmax over a dimension other than the batch's, got dim={module.dim}")
    return [ops.Softmax(module.dim % (len(shape) + 1) - 1)]


def _pair(value: Any) -> Pair:
    pair = tuple(value) if isinstance(value, tuple | list) else (value, value)
    return cast(Pair, tuple(int(n) if n == int(n) else n for n in pair))


def _max_pool(module: nn.MaxPool2d, shape: Shape) -> Operations:
    _refuse_indices(module)
    kernel, stride, padding, dilation = map(_pair, (module.kernel_size, module.stride, module.padding, module.dilation))
    return [ops.MaximumPool(kernel, stride, padding, bool(module.ceil_mode), dilation)]


def _average_pool(module: nn.AvgPool2d, shape: Shape) -> Operations:
    kernel, stride, padding = map(_pair, (module.kernel_size, module.stride, module.padding))
    counted, divisor = bool(module.count_include_pad), module.divisor_override
    return [ops.AveragePool(kernel, stride, padding, bool(module.ceil_mode), counted, divisor)]


def _adaptive(module: nn.AdaptiveMaxPool2d | nn.AdaptiveAvgPool2d, shape: Shape) -> Operations:
    _refuse_indices(module)
    size = module.output_size
    wanted = tuple(size) if isinstance(size, tuple | list) else (size, size)
    outputs = cast(Pair, tuple(n if m is None else m for m, n in zip(wanted, shape[1:], strict=False)))
    return [(ops.AdaptiveMaximum if isinstance(module, nn.AdaptiveMaxPool2d) else ops.AdaptiveAverage)(outputs)]


def _refuse_indices(module: nn.Module) -> None:
    if getattr(module, "return_indices", False):
        raise ValueError(f"expected a {layer_name(module)} that returns its maxima only, got return_indices=True")


ACTIVATIONS = (
    nn.ReLU, nn.ReLU6, nn.Tanh, nn.Sigmoid, nn.Hardsigmoid, nn.Hardswish, nn.SiLU, nn.Mish, nn.Softsign, nn.LogSigmoid,
    nn.SELU,
)  # fmt: skip
TRANSLATIONS: dict[type[nn.Module], Translation] = {
    **dict.fromkeys(ACTIVATIONS, _activation),
    nn.Conv2d: _convolution, layers.PotentialStep: _potential_step, layers.Normalise: _normalise,
    layers.Householder: _householder, layers.LinfDistance: _distance, layers.SortedDistance: _sorted_distance,
    nn.BatchNorm1d: _batch_norm, nn.BatchNorm2d: _batch_norm, nn.PReLU: _prelu,
    nn.Softplus: _softplus, nn.Threshold: _threshold, nn.Softmax: _softmax, nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool, nn.AdaptiveMaxPool2d: _adaptive, nn.AdaptiveAvgPool2d: _adaptive,
    nn.Linear: lambda module, shape: [ops.Linear(constant(module.weight, "weight"), _optional(module.bias, "bias"))],
    layers.MaxMin: lambda module, shape: [ops.GroupSort(2)],
    layers.GroupSort: lambda module, shape: [ops.GroupSort(module.group_size)],
    nn.ELU: lambda module, shape: [ops.Elu(float(module.alpha))],
    nn.CELU: lambda module, shape: [ops.Celu(float(module.alpha))],
    nn.LeakyReLU: lambda module, shape: [ops.Leaky(constant(module.negative_slope, "negative_slope"))],
    nn.RReLU: lambda module, shape: [ops.Leaky(constant((module.lower + module.upper) / 2, "slope"))],
    nn.GELU: lambda module, shape: [ops.Activation("gelu" if module.approximate == "none" else "gelu_tanh")],
    layers.UnitCube: lambda module, shape: [
        ops.Scale(constant(module.side, "side"), divide=True), ops.Shift(constant(0.5)), ops.Clamp(0.0, 1.0)
    ],
    nn.Hardtanh: lambda module, shape: [ops.Clamp(float(module.min_val), float(module.max_val))],
}  # fmt: skip
"""Every layer with a proof: docs/layers.md lists them for users."""
