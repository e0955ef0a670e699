"""Each step of a traced network as operations: modules by their type, functions by the module they equal."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from berncert.extractor import operations as ops
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.evaluation import layer_name, require_evaluation, require_no_hooks
from berncert.extractor.freezing.arguments import (
    Args,
    BatchSize,
    Kwargs,
    attribute,
    call,
    call_with_constants,
    leaves,
    named,
    only_value,
    refuse_dtype,
    target_name,
)
from berncert.extractor.freezing.functions import CASTS, METHODS, OPERATORS, clamp_limits, equal_module, join_arguments
from berncert.extractor.freezing.modules import BATCH_NORMS, IDLE, REARRANGING_MODULES, constant, scale_and_shift
from berncert.extractor.freezing.rearranging import REARRANGING, entry_numbers
from berncert.extractor.freezing.registration import operations_of
from berncert.extractor.freezing.step_list import StepList, Value
from berncert.extractor.freezing.tracing import name_of
from berncert.extractor.frozen import Step
from berncert.extractor.operations.entrywise import fits

SIZES = {"size", "dim", getattr}
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, operator.neg)


class Translator(StepList):
    """The operations of a traced network, collected step by step. `batch` is how many images probes carry."""

    def __init__(self, root: nn.Module, input_shape: Shape, batch: int) -> None:
        super().__init__(input_shape)
        self.root, self.batch = root, batch
        self.modules = dict(root.named_modules())
        self.made: dict[fx.Node, int] = {}
        """By the node that made it, the number of the last step: not by one that only passes a value on."""
        self.calls: Counter[str] = Counter()

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
                if not isinstance(args[0], Value):
                    raise TypeError(f"expected the network to return one tensor, got {type(args[0]).__name__}")
                return self.leading_to(args[0])
            self.name, self.layer, before = self._name_of_call(node, args), "", len(self.steps)
            try:
                values[node] = self._node(node, args, kwargs)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{self.name}: {error}") from error
            except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError) as error:
                raise TypeError(
                    f"{self.name}: this step cannot be followed ({error}); register the module around it"
                ) from error
            if len(self.steps) > before:
                self.made[node] = len(self.steps)
        raise TypeError("expected a network that returns a value, got none")

    def _name_of_call(self, node: fx.Node, args: Args) -> str:
        """The name of the step; a module that is called with its own result gets the number of the call added."""
        name = name_of(node)
        if node.op != "call_module":
            return name
        self.calls[name] += 1
        source = args[0].number if args and isinstance(args[0], Value) else 0
        with_its_result = source > 0 and self.steps[source - 1].name.split(" (call ")[0] == name
        return f"{name} (call {self.calls[name]})" if with_its_result else name

    def _node(self, node: fx.Node, args: Args, kwargs: Kwargs) -> Any:
        if node.op == "get_attr":
            return attribute(self.root, str(node.target))
        if node.op == "call_module":
            return self._module(self.modules[str(node.target)], node, args, kwargs)
        target: Any = node.target
        if node.op == "call_method":
            bare = str(target).removesuffix("_")  # what a step in place changes is not looked at again: tracing.py
            target = METHODS.get(bare, bare if bare in REARRANGING else target)
        target = OPERATORS.get(target, target)
        if target in SIZES:
            return self._size(target, args, kwargs)
        if target is operator.getitem and isinstance(args[0], tuple | list):
            return args[0][args[1]]
        every = list(leaves((args, kwargs)))
        of_network = any(isinstance(leaf, Value) for leaf in every)
        if any(isinstance(leaf, BatchSize) for leaf in every) and not (of_network and target in REARRANGING):
            raise TypeError("what depends on the size of the batch differs from call to call; only shapes may use it")
        return self._function(target, args, kwargs) if of_network else call_with_constants(target, args, kwargs)

    def _size(self, target: Any, args: Args, kwargs: Kwargs) -> Any:
        """What x.shape, x.ndim, x.size(...) and x.dim() give; of constants, any attribute."""
        value, *rest = (*args, *kwargs.values())
        if not isinstance(value, Value):
            return call(target, args, kwargs)
        shape = (BatchSize(self.batch), *value.shape)
        if target is not getattr:
            return len(shape) if target == "dim" else shape[rest[0]] if rest else shape
        if rest[0] not in ("shape", "ndim"):
            raise TypeError(f"the attribute {rest[0]!r} of a value of the network is not followed, only its shape")
        return shape if rest[0] == "shape" else len(shape)

    def _module(self, module: nn.Module, node: fx.Node | None, args: Args, kwargs: Kwargs) -> Any:
        self.layer = self.layer or layer_name(module)
        if len(args) != 1 or kwargs or not isinstance(args[0], Value):
            count = len(args) + len(kwargs)
            raise TypeError(f"expected {layer_name(module)} to be called with one tensor, got {count} arguments")
        require_evaluation(module)
        require_no_hooks(module)
        (value,) = args
        if type(module) in IDLE:
            return value
        if type(module) in REARRANGING_MODULES:
            return self._rearrange(module, (value,), {})
        if type(module) in BATCH_NORMS and node is not None and self._fold(module, node, value):
            return value
        for operation in operations_of(module, value.shape):
            value = self.emit(operation, value)
        return value

    def _fold(self, module: Any, node: fx.Node, value: Value) -> bool:
        """Make batch normalisation part of the layer before it, if nothing else uses that layer's result."""
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or len(source.users) > 1 or self.made.get(source) != len(self.steps):
            return False
        if not self.fold(value, *scale_and_shift(module), suffix=layer_name(module)):
            return False
        self.made[node] = len(self.steps)
        return True

    def _function(self, target: Any, args: Args, kwargs: Kwargs) -> Any:
        self.layer = target_name(target)
        module = equal_module(target, args, kwargs)
        if module is not None:
            return self._module(module, None, args[:1], {})
        if target in (torch.cat, torch.stack):
            return self._join(target, *join_arguments(args, kwargs))
        if target is operator.matmul and not kwargs:
            return self._matmul(*args)
        if target in ARITHMETIC and not kwargs:
            return self._arithmetic(target, args)
        if target in REARRANGING or target is F.pad:
            return self._rearrange(target, args, kwargs)
        if target in CASTS:
            raise TypeError(
                f"leave {target} out: a frozen network computes in the dtype of its images, on their device"
            )
        value = only_value(args, kwargs, self.layer)
        refuse_dtype(kwargs)
        if target is torch.abs:
            return self.emit(ops.Activation("abs"), value)
        if target is torch.clamp:
            return self.emit(ops.Clamp(*clamp_limits(args[1:], kwargs)), value)
        if target is torch.mean:
            return self._mean(value, named(("dim", "keepdim"), args[1:], kwargs))
        raise TypeError(
            f"no Lipschitz bound is known for the function {self.layer}; use a module with a proof (docs/layers.md), "
            "or register the module that calls it with berncert.register_bound"
        )

    def _arithmetic(self, target: Any, args: Args) -> Value:
        """Sums and differences of values; a value plus, minus, times or over a constant; the negative of a value."""
        if target is operator.neg:
            return self._negative(args[0])
        left, right = args
        if isinstance(left, Value) and isinstance(right, Value):
            if target not in (operator.add, operator.sub):
                raise TypeError(f"expected {self.layer} of one value of the network and a constant; got two values")
            return self.emit(ops.Add(), left, right if target is operator.add else self._negative(right))
        value, number = (left, right) if isinstance(left, Value) else (right, left)
        by = _fitting(number, value.shape)
        if target is operator.mul:
            return self.emit(ops.Scale(by), value)
        if target is operator.truediv:
            if value is right:
                raise TypeError("expected a value of the network over a constant, got a constant over a value")
            return self.emit(ops.Scale(by, divide=True), value)
        if target is operator.sub and value is right:
            return self.emit(ops.Shift(by), self._negative(value))
        return self.emit(ops.Shift(by if target is operator.add else -by), value)

    def _negative(self, value: Value) -> Value:
        return self.emit(ops.Scale(constant(-1.0)), value)

    def _matmul(self, left: Any, right: Any) -> Value:
        if not isinstance(left, Value) or not isinstance(right, Tensor) or right.ndim != 2:
            raise TypeError("expected the product of a value of the network with a constant matrix on its right")
        return self.emit(ops.Linear(constant(right.T)), left)

    def _join(self, target: Any, parts: Any, dim: int) -> Value:
        values = list(parts)
        if not values or not all(isinstance(value, Value) for value in values):
            raise TypeError("expected values of the network only, got a constant among them")
        rank = len(values[0].shape) + (1 if target is torch.stack else 0)
        if type(dim) is not int or dim % (rank + 1) == 0 or abs(dim) > rank:
            raise TypeError(f"expected a step that keeps the images of a batch apart, got dim={dim}")
        axis = dim % (rank + 1) - 1
        if target is torch.stack:
            values = [self._rearrange(torch.unsqueeze, (value, axis + 1), {}) for value in values]
        return self.emit(ops.Concatenate(axis), *values)

    def _rearrange(self, target: Any, args: Args, kwargs: Kwargs) -> Any:
        numbers = entry_numbers(target, args, kwargs, self.batch, self.layer)
        if isinstance(numbers, Tensor):
            return self.gather(args[0], numbers)
        return tuple(self.gather(args[0], part) for part in numbers)

    def _mean(self, value: Value, options: Kwargs) -> Value:
        dims = options.get("dim")
        dims = dims if isinstance(dims, tuple | list) else (dims,)
        rank = len(value.shape) + 1
        if not all(type(dim) is int and -rank <= dim < rank and dim % rank for dim in dims):
            raise TypeError(f"expected a step that keeps the images of a batch apart, got a mean over dim={dims}")
        return self.emit(ops.Mean(tuple(dim % rank - 1 for dim in dims), bool(options.get("keepdim", False))), value)


def _fitting(number: Any, shape: Shape) -> Tensor:
    """The constant without a batch axis, if it fits values of this shape."""
    by = constant(number)
    if by.ndim == len(shape) + 1 and len(by) == 1:
        by = by[0]
    if not fits(by, shape):
        raise TypeError(f"expected a constant that fits {shape}, got shape {tuple(by.shape)}")
    return by
