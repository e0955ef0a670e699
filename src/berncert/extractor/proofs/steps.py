"""One step of a traced network: a layer by its rule, a function by the module it equals, sums and joins directly."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from berncert.extractor.proofs.activations import clamp
from berncert.extractor.proofs.facts import Layer, Shape, apply_rule, find_rule, length, placement, require_finite
from berncert.extractor.proofs.flow import WIDER, Flow
from berncert.extractor.proofs.gains import INF, Gains, copying, everywhere
from berncert.extractor.proofs.linear import folded_rule, mean_of
from berncert.extractor.proofs.moves import REARRANGED

BATCH = 5  # probes carry a batch, so that a step that mixes it is seen

# functions that do what a module does, and the names of their positional arguments
POOL = ("kernel_size", "stride", "padding")
MODULE_OF: dict[Any, tuple[type[nn.Module], tuple[str, ...]]] = {
    F.relu: (nn.ReLU, ("inplace",)),
    torch.relu: (nn.ReLU, ()),
    F.relu6: (nn.ReLU6, ("inplace",)),
    F.leaky_relu: (nn.LeakyReLU, ("negative_slope", "inplace")),
    F.elu: (nn.ELU, ("alpha", "inplace")),
    F.gelu: (nn.GELU, ("approximate",)),
    F.silu: (nn.SiLU, ("inplace",)),
    F.mish: (nn.Mish, ("inplace",)),
    F.hardswish: (nn.Hardswish, ("inplace",)),
    F.hardtanh: (nn.Hardtanh, ("min_val", "max_val", "inplace")),
    F.softplus: (nn.Softplus, ("beta", "threshold")),
    F.logsigmoid: (nn.LogSigmoid, ()),
    torch.tanh: (nn.Tanh, ()),
    F.tanh: (nn.Tanh, ()),
    torch.sigmoid: (nn.Sigmoid, ()),
    F.sigmoid: (nn.Sigmoid, ()),
    F.max_pool2d: (nn.MaxPool2d, (*POOL, "dilation", "ceil_mode", "return_indices")),
    F.avg_pool2d: (nn.AvgPool2d, (*POOL, "ceil_mode", "count_include_pad", "divisor_override")),
    F.adaptive_avg_pool2d: (nn.AdaptiveAvgPool2d, ("output_size",)),
    F.adaptive_max_pool2d: (nn.AdaptiveMaxPool2d, ("output_size", "return_indices")),
    F.pixel_unshuffle: (nn.PixelUnshuffle, ("downscale_factor",)),
    F.pixel_shuffle: (nn.PixelShuffle, ("upscale_factor",)),
}
METHODS = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "mean": torch.mean,
    "clamp": torch.clamp,
}
MOVES = {  # every entry of the result is an entry of the argument; functions, and methods by name
    torch.flatten, torch.reshape, torch.permute, torch.transpose, torch.unflatten, torch.movedim, torch.squeeze,
    torch.unsqueeze, torch.clone, torch.chunk, torch.split, torch.narrow, torch.flip, torch.roll, operator.getitem,
    "flatten", "reshape", "permute", "transpose", "unflatten", "movedim", "squeeze", "unsqueeze", "clone", "chunk",
    "split", "narrow", "flip", "roll", "view", "contiguous", "expand", "repeat",
}  # fmt: skip
IN_PLACE: dict[Any, Any] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
SIZES = {"size", "dim", getattr}


class BatchSize(int):
    """The number of images: fit to reshape a value, but not to compute with, as it differs from call to call."""


class Steps:
    """One step at a time: a layer by its rule, a function by the module it equals, sums and concatenations directly."""

    def __init__(self, root: nn.Module, unit: float) -> None:
        self.root, self.unit = root, unit
        self.modules = dict(root.named_modules())

    def take(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str, Gains | None]:
        """The value, what kind of step it was, and its own gains."""
        if node.op == "get_attr":
            return self._constant(str(node.target)), "constant", None
        if node.op == "call_module":
            return self._module(self.modules[str(node.target)], args, kwargs)
        target = METHODS.get(str(node.target), node.target) if node.op == "call_method" else node.target
        if target in SIZES:
            return self._size(target, args, kwargs), "size", None
        if target is operator.getitem and isinstance(args[0], tuple | list):
            return args[0][args[1]], "part", None
        leaves = list(_leaves((args, kwargs)))
        if target not in MOVES and any(isinstance(leaf, BatchSize) for leaf in leaves):
            raise TypeError("what depends on the size of the batch differs from call to call; only shapes may use it")
        if not any(isinstance(leaf, Flow) for leaf in leaves):
            return _repeatable(target, args, kwargs), "constant", None
        return self._function(IN_PLACE.get(target, target), args, kwargs)

    def fold(self, layer: nn.Module, norm: nn.Module, source: Flow, value: Flow) -> tuple[Flow, Gains]:
        """The value after both, with what follows from their product taken as one layer; and that layer's gains."""
        folded = apply_rule(folded_rule, nn.ModuleList([layer, norm]), source.shape)
        after, own = source.through(folded, value.shape, self.unit)
        return value.tightened(after.gains), own

    def _constant(self, target: str) -> Tensor:
        if target.startswith("_tensor_constant"):
            raise TypeError("a tensor made inside forward may differ from call to call; register it as a buffer")
        value = operator.attrgetter(target)(self.root)
        require_finite(**{target.removeprefix("0."): value})
        return cast(Tensor, value.detach())

    def _size(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What x.shape, x.ndim, x.size(...) and x.dim() give; of constants, any attribute."""
        value, *rest = (*args, *kwargs.values())
        if not isinstance(value, Flow):
            return _call(target, args, kwargs)
        shape = (BatchSize(BATCH), *value.shape)
        if target is not getattr:
            return len(shape) if target == "dim" else shape[rest[0]] if rest else shape
        if rest[0] not in ("shape", "ndim"):
            raise TypeError(f"the attribute {rest[0]!r} of a value of the network is not followed, only its shape")
        return shape if rest[0] == "shape" else len(shape)

    def _module(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str, Gains]:
        kind = kind_of(module)
        if len(args) != 1 or kwargs or not isinstance(args[0], Flow):
            raise TypeError(f"expected {kind} to be called with one tensor, got {len(args) + len(kwargs)} arguments")
        rule = find_rule(module)
        if rule is None:
            raise TypeError(
                f"no Lipschitz bound is known for {kind}; register one with lipschitz_bound.register, or replace the "
                "layer (docs/layers.md lists those with a proof)"
            )
        require_evaluation(module)
        _refuse_hooks(module)
        at_zero = _value_at_zero(module, args[0].shape)
        layer = apply_rule(rule, module, args[0].shape, length(at_zero[0]))
        flow, own = args[0].through(layer, tuple(at_zero.shape[1:]), self.unit)
        return flow, kind, own

    def _function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, str, Gains | None]:
        kind = target if isinstance(target, str) else getattr(target, "__name__", str(target))
        if target in MODULE_OF:
            make, names = MODULE_OF[target]
            module = make(**dict(zip(names, args[1:], strict=False)), **kwargs)
            return self._module(module, args[:1], {})
        if target is F.dropout:
            training = kwargs.get("training", args[2] if len(args) > 2 else True)
            return self._module(nn.Dropout().train(training), args[:1], {})
        if target in (F.linear, F.conv2d):
            return self._module(_layer_of(target, args, kwargs), args[:1], {})
        if target in (torch.cat, torch.stack):
            return self._join(target, args, kwargs), kind, None
        if target in (operator.add, torch.add, operator.sub, torch.sub) and not kwargs and len(args) == 2:
            if all(isinstance(value, Flow) for value in args):
                return self._sum(*args), "add", None
            return self._affine(target, args, kind)
        if target in (operator.mul, torch.mul, operator.truediv, torch.div, operator.neg) and not kwargs:
            return self._affine(target, args, kind)
        if target in MOVES:
            return self._move(target, args, kwargs, kind)
        if target in (torch.mean, torch.clamp):
            return self._mean_or_clamp(target, args, kwargs, kind)
        raise TypeError(
            f"no Lipschitz bound is known for the function {kind}; use a module with a proof (docs/layers.md), or "
            "register the module that calls it with lipschitz_bound.register"
        )

    def _sum(self, a: Flow, b: Flow) -> Flow:
        if a.shape != b.shape:
            raise TypeError(f"expected two values of the same shape, got {a.shape} and {b.shape}; expand before adding")
        return a.plus(b, self.unit)

    def _join(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Flow:
        flows: list[Flow] = list(args[0]) if args else []
        if not flows or not all(isinstance(flow, Flow) for flow in flows):
            raise TypeError("expected values of the network only, got a constant among them")
        probes = [_labelled(flow.shape) for flow in flows]
        out = _call(target, (probes, *args[1:]), kwargs)
        _refuse_mixing(out)
        joined = flows[0]
        for flow in flows[1:]:
            joined = joined.beside(flow)
        return replace(joined, shape=tuple(out.shape[1:]))

    def _affine(self, target: Any, args: tuple[Any, ...], kind: str) -> tuple[Flow, str, Gains]:
        """A value plus, minus, times or over a constant, or its negative."""
        flow = next(value for value in args if isinstance(value, Flow))
        constants = [torch.as_tensor(value) for value in args if not isinstance(value, Flow)]
        flipped = target in (operator.truediv, torch.div) and args[0] is not flow
        if flipped or len(constants) > 1 or len(args) - len(constants) > 1 or any(c.is_complex() for c in constants):
            raise TypeError(f"expected {kind} of one value of the network and a constant; register the module instead")
        like = torch.zeros(BATCH, *flow.shape, dtype=torch.float64)
        constant = constants[0].cpu().double() if constants else torch.tensor(-1.0, dtype=torch.float64)
        batched = constant.ndim == like.ndim and len(constant) != 1
        if batched or (constant + like).shape != like.shape:
            raise TypeError(f"expected a constant that fits {flow.shape}, got shape {tuple(constant.shape)}")
        if target in (operator.truediv, torch.div):
            constant = 1 / constant
        require_finite(constant=constant)
        if target in (operator.add, torch.add, operator.sub, torch.sub):
            layer = Layer(everywhere(1.0), length(constant.expand(like.shape)[0]), 2)
        else:
            layer = Layer(everywhere(float(constant.abs().max()) * WIDER), 0.0, 4)
        after, own = flow.through(layer, flow.shape, self.unit)
        return after, kind, own

    def _move(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kind: str) -> tuple[Any, str, Gains]:
        """Rearranging, selecting, repeating: followed with numbered entries."""
        flow = _only_flow(args, kwargs, kind)
        entries = math.prod(flow.shape)
        numbered = torch.arange(BATCH * entries).reshape(BATCH, *flow.shape)
        out = _call(target, (numbered, *args[1:]), kwargs)
        parts = out if isinstance(out, tuple | list) else (out,)
        ends = []
        for part in parts:
            _refuse_mixing(part // entries)
            layer = replace(REARRANGED, known=copying(int(torch.bincount(part.flatten()).max())))
            ends.append(flow.through(layer, tuple(part.shape[1:]), self.unit))
        value = ends[0][0] if out is parts[0] else tuple(end for end, _ in ends)
        return value, kind, ends[0][1]

    def _mean_or_clamp(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], kind: str
    ) -> tuple[Flow, str, Gains]:
        flow = _only_flow(args, kwargs, kind)
        if "dtype" in kwargs:
            raise TypeError(f"expected {kind} in the dtype of its argument, got dtype={kwargs['dtype']}")
        shape = flow.shape
        if target is torch.clamp:
            layer = clamp(*_limits(args[1:], kwargs), shape)
        else:
            out = _call(target, (_labelled(shape), *args[1:]), kwargs)
            _refuse_mixing(out)
            shape, layer = tuple(out.shape[1:]), mean_of(math.prod(shape), out[0].numel())
        after, own = flow.through(layer, shape, self.unit)
        return after, kind, own


def _only_flow(args: tuple[Any, ...], kwargs: dict[str, Any], kind: str) -> Flow:
    if not args or not isinstance(args[0], Flow) or any(isinstance(v, Flow) for v in _leaves((args[1:], kwargs))):
        raise TypeError(f"expected {kind} of one value of the network, with constant arguments")
    return args[0]


def kind_of(module: nn.Module) -> str:
    """What a layer is called in tables and errors."""
    return type(module).__name__.removeprefix("Parametrized")


def _limits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, float]:
    limits = dict(zip(("min", "max"), args, strict=False)) | kwargs
    low, high = limits.get("min"), limits.get("max")
    if not all(limit is None or isinstance(limit, int | float) for limit in (low, high)):
        raise TypeError("expected numbers as the limits of clamp")
    return -INF if low is None else float(low), INF if high is None else float(high)


def _layer_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> nn.Module:
    """The module that computes F.linear or F.conv2d with these constants."""
    names = ("weight", "bias", "stride", "padding", "dilation", "groups")
    options = dict(zip(names, args[1:], strict=False)) | kwargs
    weight, bias = options.pop("weight"), options.pop("bias", None)
    if any(isinstance(value, Flow) for value in (weight, bias)):
        raise TypeError("expected constant weights, got weights that depend on the image")
    if function is F.linear:
        layer: nn.Module = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    else:
        channels = weight.shape[1] * options.get("groups", 1)
        layer = nn.Conv2d(channels, weight.shape[0], tuple(weight.shape[2:]), bias=bias is not None, **options)
    layer.weight = nn.Parameter(weight)
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer.eval()


def _call(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    function: Callable[..., Any] = getattr(args[0], target).__call__ if isinstance(target, str) else target
    with torch.no_grad():
        return function(*(args[1:] if isinstance(target, str) else args), **kwargs)


def _repeatable(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A step among constants, which must come out the same each time, and change none of them."""
    if target in IN_PLACE or (isinstance(target, str) and target.endswith("_")):
        raise TypeError("a constant is changed in place, so that each call finds another; compute it without")
    value, again = (_call(target, args, kwargs) for _ in range(2))
    if isinstance(value, Tensor):
        made = not any(isinstance(leaf, Tensor) for leaf in _leaves((args, kwargs)))
        if made or not torch.equal(value, again):
            raise TypeError("a tensor made inside forward may differ from call to call; register it as a buffer")
    return value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _labelled(shape: Shape) -> Tensor:
    """A batch in which every entry is the number of its row."""
    return torch.arange(BATCH, dtype=torch.float64).view(-1, *(1,) * len(shape)).expand(BATCH, *shape).clone()


def _refuse_mixing(out: Tensor) -> None:
    whole = out.ndim > 0 and len(out) == BATCH and out.numel() > 0
    if not whole or not all(bool((row == i).all()) for i, row in enumerate(out)):
        raise TypeError(f"expected a step that keeps the images of a batch apart, got shape {tuple(out.shape)}")


def _value_at_zero(module: nn.Module, shape: Shape) -> Tensor:
    """A batch of what the module makes of zeros: tells its output's shape, and that the batch is kept apart."""
    like = placement(module)
    try:
        with torch.no_grad():
            out = module(torch.zeros(BATCH, *shape, dtype=like.dtype, device=like.device))
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{kind_of(module)} does not take an input of shape {shape} ({str(error).splitlines()[0]}); "
            "check input_shape: channels, height, width, without the batch"
        ) from error
    if not isinstance(out, Tensor) or out.shape[:1] != (BATCH,):
        raise TypeError(f"expected {kind_of(module)} to keep the batch apart and return one tensor")
    return out


def require_evaluation(module: nn.Module) -> None:
    """An error if any part of the module computes something else in training, and is in training."""
    changing = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RReLU)
    for part in module.modules():
        legacy = any(isinstance(hook, SpectralNorm) for hook in part._forward_pre_hooks.values())
        if part.training and (isinstance(part, changing) or hasattr(part, "parametrizations") or legacy):
            raise ValueError(
                f"expected evaluation mode, got {kind_of(part)} in training mode, in which it does not compute a "
                "fixed function; call .eval() on the network"
            )


def _refuse_hooks(module: nn.Module) -> None:
    anywhere = nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks
    for part in module.modules():
        before = [hook for hook in part._forward_pre_hooks.values() if not isinstance(hook, SpectralNorm | WeightNorm)]
        if part._forward_hooks or before or anywhere:
            raise TypeError(f"expected {kind_of(part)} without hooks, got some, which may change its output")
