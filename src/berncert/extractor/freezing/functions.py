"""Functions and methods that a forward may call, by the module or the operator that computes the same."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from berncert.extractor.freezing.arguments import Args, Kwargs, named, refuse_dtype, target_name
from berncert.extractor.freezing.step_list import Value
from berncert.extractor.freezing.tracing import IN_PLACE

POOL = ("kernel_size", "stride", "padding")
WITHOUT_PARAMETERS: dict[Any, type[nn.Module]] = {
    F.relu: nn.ReLU, torch.relu: nn.ReLU, F.relu6: nn.ReLU6, F.selu: nn.SELU, F.silu: nn.SiLU, F.mish: nn.Mish,
    F.hardswish: nn.Hardswish, F.hardsigmoid: nn.Hardsigmoid, F.softsign: nn.Softsign, F.logsigmoid: nn.LogSigmoid,
    F.tanh: nn.Tanh, torch.tanh: nn.Tanh, F.sigmoid: nn.Sigmoid, torch.sigmoid: nn.Sigmoid,
}  # fmt: skip
MODULE_OF: dict[Any, tuple[type[nn.Module], tuple[str, ...]]] = {
    **{function: (module, ("inplace",)) for function, module in WITHOUT_PARAMETERS.items()},
    F.leaky_relu: (nn.LeakyReLU, ("negative_slope", "inplace")),
    F.elu: (nn.ELU, ("alpha", "inplace")),
    F.celu: (nn.CELU, ("alpha", "inplace")),
    F.gelu: (nn.GELU, ("approximate",)),
    F.hardtanh: (nn.Hardtanh, ("min_val", "max_val", "inplace")),
    F.softplus: (nn.Softplus, ("beta", "threshold")),
    F.softmax: (nn.Softmax, ("dim",)),
    torch.softmax: (nn.Softmax, ("dim",)),
    F.max_pool2d: (nn.MaxPool2d, (*POOL, "dilation", "ceil_mode", "return_indices")),
    F.avg_pool2d: (nn.AvgPool2d, (*POOL, "ceil_mode", "count_include_pad", "divisor_override")),
    F.adaptive_avg_pool2d: (nn.AdaptiveAvgPool2d, ("output_size",)),
    F.adaptive_max_pool2d: (nn.AdaptiveMaxPool2d, ("output_size", "return_indices")),
    F.pixel_unshuffle: (nn.PixelUnshuffle, ("downscale_factor",)),
    F.pixel_shuffle: (nn.PixelShuffle, ("upscale_factor",)),
}
"""The module that computes a function, and the names of the function's arguments after the first."""
METHODS = {
    "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softmax": torch.softmax, "abs": torch.abs,
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "mean": torch.mean, "clamp": torch.clamp, "matmul": operator.matmul,
}  # fmt: skip
"""The function that computes the same as a method; methods that work in place end in _."""
OPERATORS = {
    torch.add: operator.add, torch.sub: operator.sub, torch.mul: operator.mul, torch.div: operator.truediv,
    torch.neg: operator.neg, torch.matmul: operator.matmul, operator.abs: torch.abs, **IN_PLACE,
}  # fmt: skip
"""The operator, or torch.abs, that computes the same as another function."""
CASTS = {"float", "double", "half", "bfloat16", "to", "type", "type_as", "cpu", "cuda"}


def equal_module(function: Any, args: Args, kwargs: Kwargs) -> nn.Module | None:
    """A module that computes what the function computes of its first argument; None if there is none."""
    if function is F.dropout:
        training: Any = kwargs.get("training", args[2] if len(args) > 2 else True)
        return nn.Dropout().train(training)
    if function in (F.linear, F.conv2d):
        return _layer_with_weights(function, args, kwargs)
    if function not in MODULE_OF:
        return None
    make, names = MODULE_OF[function]
    if len(args) > len(names) + 1:
        raise TypeError(f"expected at most {len(names) + 1} arguments of {target_name(function)}, got {len(args)}")
    options = named(names, args[1:], kwargs)
    refuse_dtype(options)
    for name in ("inplace", "_stacklevel"):  # the latter is where F.softmax warns
        options.pop(name, None)
    return make(**options).eval()


def _layer_with_weights(function: Any, args: Args, kwargs: Kwargs) -> nn.Module:
    """The module that computes F.linear or F.conv2d with these constants."""
    options = named(("weight", "bias", "stride", "padding", "dilation", "groups"), args[1:], kwargs)
    weight, bias = options.pop("weight"), options.pop("bias", None)
    if any(isinstance(value, Value) for value in (weight, bias)):
        raise TypeError("expected constant weights, got weights that depend on the image")
    if function is F.linear:
        layer: nn.Module = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    else:
        channels = weight.shape[1] * options.get("groups", 1)
        layer = nn.Conv2d(channels, weight.shape[0], tuple(weight.shape[2:]), bias=bias is not None, **options)
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None:  # itself, as a new parameter would get no gradient of the network's own
            delattr(layer, name)
            setattr(layer, name, tensor)
    return layer.eval()


def clamp_limits(args: Args, kwargs: Kwargs) -> tuple[float | None, float | None]:
    """The limits of torch.clamp; None is no limit."""
    options = named(("min", "max"), args, kwargs)
    limits = options.get("min"), options.get("max")
    if not all(limit is None or isinstance(limit, int | float) for limit in limits):
        raise TypeError("expected numbers as the limits of clamp")
    low, high = (None if v is None or abs(v) == math.inf else float(v) for v in limits)
    return low, high


def join_arguments(args: Args, kwargs: Kwargs) -> tuple[Any, int]:
    """The tensors that torch.cat or torch.stack joins, and along which dimension."""
    options = named(("tensors", "dim"), args, kwargs)
    if set(options) - {"tensors", "dim", "axis"}:
        raise TypeError(f"expected tensors and dim, got {', '.join(options)}")
    dim: Any = options.get("dim", options.get("axis", 0))
    return options["tensors"], dim
