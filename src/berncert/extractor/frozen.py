"""Frozen networks: plain data, one evaluator, one interpreter. What is certified is such a network and nothing else."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from berncert.extractor.arithmetic import plain_arithmetic
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.operations import OPERATIONS, Operation
from berncert.extractor.operations.base import require_size

V = TypeVar("V")
MOST_STEPS = 100_000
DTYPES = (torch.float64, torch.float32)


@dataclass(frozen=True)
class Step:
    """One operation and the values that it is applied to: number 0 is the image, number i the result of step i."""

    operation: Operation
    inputs: tuple[int, ...]
    name: str
    """The name of the module or function in the network that it comes from."""
    layer: str
    """The type of that module, or the name of that function."""


class FrozenNetwork(nn.Module):
    """A network as plain data: steps with float64 numbers. It has no parameters, and nothing of it is ever trained.

    Called with images it computes in their dtype (float64 or float32) and on their device; each row of the result
    depends on the same image only, and nothing that is passed in is changed.

    Example:
        >>> import torch, berncert
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2), torch.nn.ReLU())
        >>> berncert.freeze(network, (1, 2, 2))
        FrozenNetwork((1, 2, 2) -> (2,), 3 steps, 10 numbers)
    """

    def __init__(
        self, input_shape: Sequence[int], steps: Sequence[Step], about: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.input_shape: Shape = tuple(input_shape)
        self.steps = tuple(steps)
        self.about = dict(about or {})
        """Where it comes from, as plain JSON: for people, nothing depends on it."""
        self.shapes = _checked_shapes(self.input_shape, self.steps)
        """The shapes of the image and of the result of each step, without the batch."""

    @property
    def output_shape(self) -> Shape:
        """The shape of its output, without the batch."""
        return self.shapes[-1]

    @property
    def dim(self) -> int:
        """The number of features that it returns."""
        return math.prod(self.output_shape)

    @property
    def numbers(self) -> int:
        """How many float64 numbers it is made of."""
        return sum(t.numel() for s in self.steps for t in s.operation.tensors().values() if t.is_floating_point())

    def forward(self, images: Tensor) -> Tensor:
        if tuple(images.shape[1:]) != self.input_shape:
            raise ValueError(
                f"expected images of shape (N, {', '.join(map(str, self.input_shape))}), got {tuple(images.shape)}"
            )
        x = images if images.is_floating_point() or images.is_complex() else images.double()
        if x.dtype not in DTYPES:
            raise ValueError(f"expected images in float64 or float32, got {x.dtype}; convert them")
        with plain_arithmetic():
            return interpret(self._cast(x.dtype, x.device), x, lambda step, values: step.operation.evaluate(*values))

    def _cast(self, dtype: torch.dtype, device: torch.device) -> Sequence[Step]:
        """The steps in this dtype on this device, converted again at each call: a number may have been changed."""
        if dtype == torch.float64 and device.type == "cpu":
            return self.steps
        try:
            return [replace(step, operation=step.operation.to(dtype, device)) for step in self.steps]
        except ValueError as error:
            raise ValueError(f"expected a network that can be run in {dtype}, got one whose {error}") from error

    def digest(self) -> str:
        """A checksum, the same for networks whose steps have the same numbers, settings and order."""
        for step in self.steps:
            if not step.operation.in_files:
                raise TypeError(f"{step.name} is a layer of your own: its numbers do not determine what it computes")
        digest = hashlib.sha256(json.dumps([list(self.input_shape), *map(_described, self.steps)]).encode())
        for step in self.steps:
            for name, tensor in step.operation.tensors().items():
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
                digest.update(tensor.contiguous().numpy().data)
        return digest.hexdigest()

    def rounded(self) -> FrozenNetwork:
        """The network with its numbers rounded to those of float32: another network, in a file half as large."""
        steps = [
            replace(s, operation=replace(s.operation, **{n: _single(t) for n, t in s.operation.tensors().items()}))
            for s in self.steps
        ]
        return FrozenNetwork(self.input_shape, steps, self.about)

    def followed_by(self, *later: FrozenNetwork | Operation) -> FrozenNetwork:
        """The network whose result goes through these networks or operations, one after the other."""
        steps = list(self.steps)
        for part in later:
            ahead = len(steps)
            if isinstance(part, FrozenNetwork):
                steps += [replace(s, inputs=tuple(i + ahead for i in s.inputs)) for s in part.steps]
            else:
                steps.append(Step(part, (ahead,), type(part).__name__.lower(), type(part).__name__))
        return FrozenNetwork(self.input_shape, steps, self.about)

    def as_data(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The network as plain JSON and tensors, from which `from_data` makes it again."""
        for step in self.steps:
            if not step.operation.in_files:
                raise TypeError(
                    f"expected a network of operations that a file can hold, got {step.name}, a {step.layer} of your "
                    "own; write it with layers that berncert knows (docs/layers.md)"
                )
        steps = [
            _described(step) | {"name": step.name, "layer": step.layer, "tensors": list(step.operation.tensors())}
            for step in self.steps
        ]
        tensors = {
            f"{number}.{name}": tensor
            for number, step in enumerate(self.steps, start=1)
            for name, tensor in step.operation.tensors().items()
        }
        return {"input_shape": list(self.input_shape), "steps": steps, "about": self.about}, tensors

    @classmethod
    def from_data(cls, data: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FrozenNetwork:
        """The network that `as_data` wrote; a ValueError for anything that is not one."""
        try:
            steps = [_read_step(number, entry, tensors) for number, entry in enumerate(data["steps"], start=1)]
            return cls(_tuples(data["input_shape"]), steps, data.get("about"))
        except (AttributeError, KeyError, TypeError, IndexError, RuntimeError, OverflowError) as error:
            raise ValueError(f"expected the steps of a frozen network, got something else ({error!r})") from error

    def extra_repr(self) -> str:
        return f"{self.input_shape} -> {self.output_shape}, {len(self.steps)} steps, {self.numbers} numbers"


def interpret(steps: Sequence[Step], start: V, visit: Callable[[Step, tuple[V, ...]], V]) -> V:
    """Visit the steps in order, with anything in the place of values, and return what the last visit gives."""
    values: dict[int, V] = {0: start}
    last_use = {number: at for at, step in enumerate(steps, start=1) for number in step.inputs}
    for at, step in enumerate(steps, start=1):
        values[at] = visit(step, tuple(values[number] for number in step.inputs))
        for number in set(step.inputs):
            if last_use[number] == at:
                del values[number]
    return values[len(steps)]


def _checked_shapes(input_shape: Shape, steps: Sequence[Step]) -> tuple[Shape, ...]:
    """The shape of the image and of each step's result; a ValueError if some step does not fit, or is not valid."""
    if not input_shape or not all(type(n) is int and n >= 1 for n in input_shape):
        raise ValueError(f"expected input_shape like (3, 32, 32), without the batch, got {input_shape!r}")
    if len(steps) > MOST_STEPS:
        raise ValueError(f"expected at most {MOST_STEPS} steps, got {len(steps)}")
    require_size(input_shape)
    shapes = [input_shape]
    for at, step in enumerate(steps, start=1):
        wanted = step.operation.arguments
        fits = all(type(i) is int and 0 <= i < at for i in step.inputs)
        if not fits or not step.inputs or wanted not in (None, len(step.inputs)):
            raise ValueError(
                f"{step.name}: expected the numbers of {wanted or 'some'} earlier values, got {step.inputs}"
            )
        try:
            step.operation.check()
            shapes.append(tuple(step.operation.output_shape(*(shapes[i] for i in step.inputs))))
            require_size(shapes[-1])
        except ValueError as error:
            raise ValueError(f"{step.name}: {error}") from error
    return tuple(shapes)


def _described(step: Step) -> dict[str, Any]:
    name = type(step.operation).__name__
    return {"operation": name, "inputs": list(step.inputs), "settings": step.operation.settings()}


def _read_step(number: int, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Step:
    if entry["operation"] not in OPERATIONS:
        raise ValueError(f"expected an operation out of {', '.join(OPERATIONS)}, got {entry['operation']!r}")
    numbers = {name: _widened(tensors[f"{number}.{name}"]) for name in entry["tensors"]}
    settings = {name: _tuples(value) for name, value in entry["settings"].items()}
    operation = OPERATIONS[entry["operation"]](**settings, **numbers)
    return Step(operation, _tuples(entry["inputs"]), str(entry["name"]), str(entry["layer"]))


def _widened(tensor: Tensor) -> Tensor:
    """The tensor in float64 or int64, which hold every number of the narrower types in files."""
    if tensor.dtype not in (torch.float64, torch.float32, torch.int64, torch.int32):
        raise ValueError(f"expected numbers in float64, float32, int64 or int32, got {tensor.dtype}")
    return tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64, copy=True).contiguous()


def _single(tensor: Tensor) -> Tensor:
    return tensor.float().double() if tensor.is_floating_point() else tensor


def _tuples(value: Any) -> Any:
    """The value with all lists, which JSON has, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
