"""Each step of a traced network as operations: modules by their type, functions by the module they equal."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.evaluation import layer_name, require_evaluation, require_no_hooks
from berncert.extractor.freezing.modules import (
    BATCH_NORMS,
    IDLE,
    MOVING,
    constant,
    folded,
)
from berncert.extractor.freezing.registration import operations_of
from berncert.extractor.freezing.tracing import IN_PLACE, name_of
from berncert.extractor.frozen import Step
from berncert.extractor.operations import (
    Activation,
    Add,
    Clamp,
    Concatenate,
    Gather,
    Layer,
    Linear,
    Mean,
    Operation,
    Reshape,
    Scale,
    Shift,
)
from berncert.extractor.operations.base import MOST_NUMBERS

# functions that do what a module does, and the names of their positional arguments
POOL = ("kernel_size", "stride", "padding")
MODULE_OF: dict[Any, tuple[type[nn.Module], tuple[str, ...]]] = {
    F.relu: (nn.ReLU, ("inplace",)),
    torch.relu: (nn.ReLU, ()),
    F.relu6: (nn.ReLU6, ("inplace",)),
    F.leaky_relu: (nn.LeakyReLU, ("negative_slope", "inplace")),
    F.elu: (nn.ELU, ("alpha", "inplace")),
    F.celu: (nn.CELU, ("alpha", "inplace")),
    F.selu: (nn.SELU, ("inplace",)),
    F.gelu: (nn.GELU, ("approximate",)),
    F.silu: (nn.SiLU, ("inplace",)),
    F.mish: (nn.Mish, ("inplace",)),
    F.hardswish: (nn.Hardswish, ("inplace",)),
    F.hardsigmoid: (nn.Hardsigmoid, ("inplace",)),
    F.hardtanh: (nn.Hardtanh, ("min_val", "max_val", "inplace")),
    F.softplus: (nn.Softplus, ("beta", "threshold")),
    F.softsign: (nn.Softsign, ()),
    F.logsigmoid: (nn.LogSigmoid, ()),
    F.softmax: (nn.Softmax, ("dim",)),
    torch.softmax: (nn.Softmax, ("dim",)),
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
METHODS = {  # a method by the function it equals; those in place end in _
    "relu": F.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softmax": torch.softmax, "abs": torch.abs,
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "mean": torch.mean, "clamp": torch.clamp, "matmul": operator.matmul,
}  # fmt: skip
SAME = {
    torch.add: operator.add, torch.sub: operator.sub, torch.mul: operator.mul, torch.div: operator.truediv,
    torch.neg: operator.neg, torch.matmul: operator.matmul, operator.abs: torch.abs, **IN_PLACE,
}  # fmt: skip
MOVES = {  # every entry of the result is an entry of the argument, or 0; functions, and methods by name
    torch.flatten, torch.reshape, torch.permute, torch.transpose, torch.unflatten, torch.movedim, torch.squeeze,
    torch.unsqueeze, torch.clone, torch.chunk, torch.split, torch.narrow, torch.flip, torch.roll, operator.getitem,
    "flatten", "reshape", "permute", "transpose", "unflatten", "movedim", "squeeze", "unsqueeze", "clone", "chunk",
    "split", "narrow", "flip", "roll", "view", "contiguous", "expand", "repeat",
}  # fmt: skip
ALONG: dict[Any, tuple[int, str, int | None]] = {  # the place, name and default of the axes along which it works
    torch.roll: (2, "dims", None), "roll": (2, "dims", None), torch.flip: (1, "dims", None), "flip": (1, "dims", None),
    torch.split: (2, "dim", 0), "split": (2, "dim", 0), torch.chunk: (2, "dim", 0), "chunk": (2, "dim", 0),
    torch.narrow: (1, "dim", None), "narrow": (1, "dim", None),
}  # fmt: skip
CASTS = {"float", "double", "half", "bfloat16", "to", "type", "type_as", "cpu", "cuda"}
SIZES = {"size", "dim", getattr}


class BatchSize(int):
    """The number of images: fit to reshape a value, but not to compute with, as it differs from call to call."""


@dataclass(frozen=True)
class Value:
    """A value of the network while it is translated: its number, and its shape without the batch."""

    number: int
    shape: Shape


class Translator:
    """The operations of a traced network, collected step by step. `batch` is how many images probes carry."""

    def __init__(self, root: nn.Module, input_shape: Shape, batch: int) -> None:
        self.root, self.batch = root, batch
        self.modules = dict(root.named_modules())
        self.image = Value(0, input_shape)
        self.steps: list[Step] = []
        self.made: dict[fx.Node, int] = {}
        """By the node that made it, the number of the last step: not by one that only passes a value on."""
        self.name = self.layer = ""

    def translate(self, graph: fx.Graph) -> list[Step]:
        """The steps that lead to what the network returns."""
        values: dict[fx.Node, Any] = {}
        for node in graph.nodes:
            if node.op == "placeholder":
                if any(isinstance(value, Value) for value in values.values()):
                    raise TypeError(f"expected a network of one image, got a second argument {node.target!r}")
                values[node] = self.image
                continue
            args = fx.node.map_arg(node.args, values.__getitem__)
            kwargs = dict(fx.node.map_arg(node.kwargs, values.__getitem__))
            if node.op == "output":
                return self._leading_to(args[0])
            self.name, self.layer, before = name_of(node), "", len(self.steps)
            try:
                values[node] = self._take(node, args, kwargs)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{self.name}: {error}") from error
            except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError) as error:
                raise TypeError(
                    f"{self.name}: this step cannot be followed ({error}); register the module around it"
                ) from error
            if len(self.steps) > before:
                self.made[node] = len(self.steps)
        raise TypeError("expected a network that returns a value, got none")

    def _leading_to(self, last: Any) -> list[Step]:
        if not isinstance(last, Value):
            raise TypeError(f"expected the network to return one tensor, got {type(last).__name__}")
        needed = {last.number}
        for number in range(last.number, 0, -1):
            if number in needed:
                needed |= set(self.steps[number - 1].inputs)
        kept = sorted(needed | {0})
        place = {number: i for i, number in enumerate(kept)}
        steps = (self.steps[number - 1] for number in kept[1:])
        return [replace(step, inputs=tuple(place[i] for i in step.inputs)) for step in steps]

    def _emit(self, operation: Operation, *values: Value) -> Value:
        operation.check()
        shape = operation.output_shape(*(value.shape for value in values))
        self.steps.append(Step(operation, tuple(v.number for v in values), self.name, self.layer))
        return Value(len(self.steps), shape)

    def _chain(self, operations: Sequence[Layer], value: Value) -> Value:
        for operation in operations:
            value = self._emit(operation, value)
        return value

    def _take(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if node.op == "get_attr":
            return _attribute(self.root, str(node.target))
        if node.op == "call_module":
            return self._module(self.modules[str(node.target)], node, args, kwargs)
        target: Any = node.target
        if node.op == "call_method":
            bare = str(target).removesuffix("_")  # what a step in place changes is not looked at again: tracing.py
            target = METHODS.get(bare, bare if bare in MOVES else target)
        target = SAME.get(target, target)
        if target in SIZES:
            return self._size(target, args, kwargs)
        if target is operator.getitem and isinstance(args[0], tuple | list):
            return args[0][args[1]]
        leaves = list(_leaves((args, kwargs)))
        of_network = any(isinstance(leaf, Value) for leaf in leaves)
        if any(isinstance(leaf, BatchSize) for leaf in leaves) and not (of_network and target in MOVES):
            raise TypeError("what depends on the size of the batch differs from call to call; only shapes may use it")
        if not of_network:
            return _constant_step(target, args, kwargs)
        return self._function(target, args, kwargs)

    def _size(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What x.shape, x.ndim, x.size(...) and x.dim() give; of constants, any attribute."""
        value, *rest = (*args, *kwargs.values())
        if not isinstance(value, Value):
            return _call(target, args, kwargs)
        shape = (BatchSize(self.batch), *value.shape)
        if target is not getattr:
            return len(shape) if target == "dim" else shape[rest[0]] if rest else shape
        if rest[0] not in ("shape", "ndim"):
            raise TypeError(f"the attribute {rest[0]!r} of a value of the network is not followed, only its shape")
        return shape if rest[0] == "shape" else len(shape)

    def _module(self, module: nn.Module, node: fx.Node | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.layer = self.layer or layer_name(module)
        if len(args) != 1 or kwargs or not isinstance(args[0], Value):
            count = len(args) + len(kwargs)
            raise TypeError(f"expected {layer_name(module)} to be called with one tensor, got {count} arguments")
        require_evaluation(module)
        require_no_hooks(module)
        (value,) = args
        if type(module) in IDLE:
            return value
        if type(module) in MOVING:
            return self._move(module, (value,), {})
        if type(module) in BATCH_NORMS and node is not None:
            together = self._folded(module, node, value)
            if together is not None:
                return together
        return self._chain(operations_of(module, value.shape), value)

    def _folded(self, module: Any, node: fx.Node, value: Value) -> Value | None:
        """The value after batch normalisation, which becomes part of the layer before it if nothing else sees that."""
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or len(source.users) > 1 or self.made.get(source) != len(self.steps):
            return None
        before = self.steps[-1]
        if not isinstance(before.operation, Layer):
            return None
        operation = folded(before.operation, module, value.shape)
        if operation is None:
            return None
        operation.check()
        self.made[node] = len(self.steps)
        self.steps[-1] = replace(
            before, operation=operation, name=self.name, layer=f"{before.layer}+{layer_name(module)}"
        )
        return value

    def _function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.layer = _name(target)
        if target in MODULE_OF:
            make, names = MODULE_OF[target]
            if len(args) > len(names) + 1:
                raise TypeError(f"expected at most {len(names) + 1} arguments of {self.layer}, got {len(args)}")
            options = dict(zip(names, args[1:], strict=False)) | kwargs
            _refuse_dtype(options)
            for name in ("inplace", "_stacklevel"):  # the latter is where F.softmax warns
                options.pop(name, None)
            return self._module(make(**options).eval(), None, args[:1], {})
        if target is F.dropout:
            training = kwargs.get("training", args[2] if len(args) > 2 else True)
            return self._module(nn.Dropout().train(training), None, args[:1], {})
        if target in (F.linear, F.conv2d):
            return self._module(_layer_of(target, args, kwargs), None, args[:1], {})
        if target in (torch.cat, torch.stack):
            return self._join(target, *_join_arguments(args, kwargs))
        if target is operator.matmul and not kwargs:
            return self._matmul(*args)
        if target in (operator.add, operator.sub, operator.mul, operator.truediv, operator.neg) and not kwargs:
            return self._arithmetic(target, args)
        if target in MOVES or target is F.pad:
            return self._move(target, args, kwargs)
        if target in CASTS:
            raise TypeError(
                f"leave {target} out: a frozen network computes in the dtype of its images, on their device"
            )
        value = _only_value(args, kwargs, self.layer)
        _refuse_dtype(kwargs)
        if target is torch.abs:
            return self._emit(Activation("abs"), value)
        if target is torch.clamp:
            return self._emit(Clamp(*_limits(args[1:], kwargs)), value)
        if target is torch.mean:
            return self._mean(value, args[1:], kwargs)
        raise TypeError(
            f"no Lipschitz bound is known for the function {self.layer}; use a module with a proof (docs/layers.md), "
            "or register the module that calls it with berncert.register_bound"
        )

    def _arithmetic(self, target: Any, args: tuple[Any, ...]) -> Value:
        """Sums and differences of values; a value plus, minus, times or over a constant; the negative of a value."""
        if target is operator.neg:
            return self._emit(Scale(constant(-1.0)), args[0])
        left, right = args
        if isinstance(left, Value) and isinstance(right, Value):
            if target not in (operator.add, operator.sub):
                raise TypeError(f"expected {self.layer} of one value of the network and a constant; got two values")
            other = right if target is operator.add else self._emit(Scale(constant(-1.0)), right)
            return self._emit(Add(), left, other)
        value, number = (left, right) if isinstance(left, Value) else (right, left)
        by = self._fitting(number, value.shape)
        if target is operator.mul:
            return self._emit(Scale(by), value)
        if target is operator.truediv:
            if value is right:
                raise TypeError("expected a value of the network over a constant, got a constant over a value")
            return self._emit(Scale(by, divide=True), value)
        if target is operator.sub and value is right:
            return self._emit(Shift(by), self._emit(Scale(constant(-1.0)), value))
        return self._emit(Shift(by if target is operator.add else -by), value)

    def _fitting(self, number: Any, shape: Shape) -> Tensor:
        """The constant without a batch axis, if it fits values of this shape."""
        by = constant(number)
        if by.ndim == len(shape) + 1 and len(by) == 1:
            by = by[0]
        ends = zip(reversed(by.shape), reversed(shape), strict=False)
        if by.ndim > len(shape) or not all(n in (1, size) for n, size in ends):
            raise TypeError(f"expected a constant that fits {shape}, got shape {tuple(by.shape)}")
        return by

    def _matmul(self, left: Any, right: Any) -> Value:
        if not isinstance(left, Value) or not isinstance(right, Tensor) or right.ndim != 2:
            raise TypeError("expected the product of a value of the network with a constant matrix on its right")
        return self._emit(Linear(constant(right.T)), left)

    def _join(self, target: Any, parts: Any, dim: int) -> Value:
        values = list(parts)
        if not values or not all(isinstance(value, Value) for value in values):
            raise TypeError("expected values of the network only, got a constant among them")
        rank = len(values[0].shape) + (1 if target is torch.stack else 0)
        if type(dim) is not int or dim % (rank + 1) == 0 or abs(dim) > rank:
            raise TypeError(f"expected a step that keeps the images of a batch apart, got dim={dim}")
        axis = dim % (rank + 1) - 1
        if target is torch.stack:
            values = [self._move(torch.unsqueeze, (value, axis + 1), {}) for value in values]
        return self._emit(Concatenate(axis), *values)

    def _move(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Rearranging, selecting, repeating, padding with 0: done once, to the numbers of the entries."""
        value = _only_value(args, kwargs, self.layer)
        _require_places((args[1:], kwargs))
        _refuse_moving_batch(target, args, kwargs)
        entries = math.prod(value.shape)
        numbers = torch.arange(1, entries + 1, dtype=torch.float64) + torch.arange(self.batch).view(-1, 1) * entries
        out = _call(target, (numbers.reshape(self.batch, *value.shape), *args[1:]), kwargs)
        if not isinstance(out, tuple | list):
            return self._gather(value, out, entries)
        return tuple(self._gather(value, part, entries) for part in out)

    def _gather(self, value: Value, out: Any, entries: int) -> Value:
        if not isinstance(out, Tensor) or out.ndim < 1 or len(out) != self.batch or not out.numel():
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise TypeError(f"expected a step that keeps the images of a batch apart, got {got}")
        if out.numel() > self.batch * MOST_NUMBERS:
            raise ValueError(f"expected at most {MOST_NUMBERS} numbers in one value, got {out.numel() // self.batch}")
        zero = out == 0
        index = out.long() - 1 - torch.arange(self.batch).view(-1, *(1,) * (out.ndim - 1)) * entries
        own = (index == index[0]) & (index >= 0) & (index < entries)
        if not ((own | zero) & (zero == zero[0])).all():
            raise TypeError(f"expected a step that keeps the images of a batch apart, got {self.layer} that mixes them")
        index = torch.where(zero[0], -1, index[0])
        shape = tuple(index.shape)
        if torch.equal(index.flatten(), torch.arange(entries)):
            return value if shape == value.shape else self._emit(Reshape(shape), value)
        return self._emit(Gather(index.contiguous()), value)

    def _mean(self, value: Value, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
        options = dict(zip(("dim", "keepdim"), args, strict=False)) | kwargs
        dims = options.get("dim")
        dims = dims if isinstance(dims, tuple | list) else (dims,)
        rank = len(value.shape) + 1
        if not all(type(dim) is int and -rank <= dim < rank and dim % rank for dim in dims):
            raise TypeError(f"expected a step that keeps the images of a batch apart, got a mean over dim={dims}")
        return self._emit(Mean(tuple(dim % rank - 1 for dim in dims), bool(options.get("keepdim", False))), value)


def _attribute(root: nn.Module, target: str) -> Any:
    value = operator.attrgetter(target)(root)
    if isinstance(value, Tensor) and not value.isfinite().all():
        name = target.removeprefix("0.")
        raise ValueError(f"expected a finite {name}, got NaN or infinity; nothing can be proven of such a layer")
    return value.detach() if isinstance(value, Tensor) else value


def _name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _only_value(args: tuple[Any, ...], kwargs: dict[str, Any], kind: str) -> Value:
    if not args or not isinstance(args[0], Value) or any(isinstance(v, Value) for v in _leaves((args[1:], kwargs))):
        raise TypeError(f"expected {kind} of one value of the network, with constant arguments")
    return args[0]


def _refuse_dtype(options: dict[str, Any]) -> None:
    if options.get("dtype") is not None:
        raise TypeError(f"expected a step in the dtype of its argument, got dtype={options['dtype']}")
    options.pop("dtype", None)


def _require_places(options: Any) -> None:
    """Arguments of a rearrangement say where, and nothing else: x.view(torch.int64) reads other numbers."""
    allowed = (int, slice, type(None), type(...), str)
    for leaf in _leaves(options):
        if isinstance(leaf, Tensor) and not leaf.is_floating_point() and not leaf.is_complex():
            continue
        if not isinstance(leaf, allowed) and not (isinstance(leaf, float) and leaf == 0):
            raise TypeError(f"expected a rearrangement by whole numbers, got {leaf!r}")


def _refuse_moving_batch(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A part of the batch, or the batch in another order, can look like all of it as long as the batch is small.

    So what would touch the first axis is refused by what it says, whatever it does to a few images.
    """
    rank = len(args[0].shape) + 1
    if target is operator.getitem:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        taken = sum(item is not None and item is not ... for item in index)
        apart = index[:1] == (slice(None),) or (index[:1] == (...,) and taken < rank)
    elif target in ALONG:
        place, name, default = ALONG[target]
        dims = kwargs.get(name, args[place] if len(args) > place else default)
        dims = dims if isinstance(dims, tuple | list) else (dims,)
        apart = bool(dims) and all(type(dim) is int and dim % rank for dim in dims)
    else:
        return
    if not apart:
        raise TypeError(f"expected a step that keeps the images of a batch apart, got {_name(target)} along the batch")


def _limits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float | None, float | None]:
    limits = dict(zip(("min", "max"), args, strict=False)) | kwargs
    low, high = limits.get("min"), limits.get("max")
    if not all(limit is None or isinstance(limit, int | float) for limit in (low, high)):
        raise TypeError("expected numbers as the limits of clamp")
    low, high = (None if v is None or abs(v) == math.inf else float(v) for v in (low, high))
    return low, high


def _join_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, int]:
    options = dict(zip(("tensors", "dim"), args, strict=False)) | kwargs
    if set(options) - {"tensors", "dim", "axis"}:
        raise TypeError(f"expected tensors and dim, got {', '.join(options)}")
    return options["tensors"], options.get("dim", options.get("axis", 0))


def _layer_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> nn.Module:
    """The module that computes F.linear or F.conv2d with these constants."""
    names = ("weight", "bias", "stride", "padding", "dilation", "groups")
    options = dict(zip(names, args[1:], strict=False)) | kwargs
    weight, bias = options.pop("weight"), options.pop("bias", None)
    if any(isinstance(value, Value) for value in (weight, bias)):
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


def _constant_step(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A step among constants, which must come out the same each time, and change none of them."""
    if target in IN_PLACE or (isinstance(target, str) and target.endswith("_")):
        raise TypeError("a constant is changed in place, so that each call finds another; compute it without")
    value, again = (_call(target, args, kwargs) for _ in range(2))
    if isinstance(value, Tensor) and not torch.equal(value, again):
        raise TypeError("a tensor made inside forward differs from call to call; register it as a buffer")
    return value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, slice):
        yield value
        yield from (value.start, value.stop, value.step)
    else:
        yield value
