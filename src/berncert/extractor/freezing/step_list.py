"""The steps of a network that is being translated, from whatever describes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from berncert.extractor import operations as ops
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.frozen import Step


@dataclass(frozen=True)
class Value:
    """A value of the network while it is translated: its number, and its shape without the batch."""

    number: int
    shape: Shape


class StepList:
    """Steps one after the other; `name` and `layer` are those of the part that is being translated."""

    def __init__(self, input_shape: Shape) -> None:
        self.image = Value(0, input_shape)
        self.steps: list[Step] = []
        self.values = [self.image]
        """The image, and the result of each step."""
        self.name = self.layer = ""

    def emit(self, operation: ops.Operation, *values: Value) -> Value:
        """The result of one more step, whose numbers and shapes are checked."""
        operation.check()
        shape = operation.output_shape(*(value.shape for value in values))
        self.steps.append(Step(operation, tuple(v.number for v in values), self.name, self.layer))
        self.values.append(Value(len(self.steps), shape))
        return self.values[-1]

    def gather(self, value: Value, numbers: Tensor) -> Value:
        """The entries with these numbers, 0 for -1; nothing is emitted where that changes nothing."""
        shape = tuple(numbers.shape)
        if torch.equal(numbers.flatten(), torch.arange(math.prod(value.shape))):
            return value if shape == value.shape else self.emit(ops.Reshape(shape), value)
        return self.emit(ops.Gather(numbers.contiguous()), value)

    def fold(self, value: Value, scale: Tensor, shift: Tensor, *, suffix: str) -> bool:
        """Put a scale and shift of each channel in the numbers of the linear step that made the value, if one did.

        The caller knows that nothing else uses the value. The suffix names what was folded, after the layer's name.
        """
        step = self.steps[value.number - 1] if value.number else None
        operation = folded(step.operation, scale, shift, value.shape) if step else None
        if step is None or operation is None:
            return False
        operation.check()
        layer = f"{step.layer}+{suffix}"
        self.steps[value.number - 1] = replace(step, operation=operation, name=self.name, layer=layer)
        return True

    def leading_to(self, last: Value) -> list[Step]:
        """The steps that this value depends on, numbered again."""
        needed = {last.number}
        for number in range(last.number, 0, -1):
            if number in needed:
                needed |= set(self.steps[number - 1].inputs)
        kept = sorted(needed | {0})
        place = {number: i for i, number in enumerate(kept)}
        steps = (self.steps[number - 1] for number in kept[1:])
        return [replace(step, inputs=tuple(place[i] for i in step.inputs)) for step in steps]


def folded(layer: ops.Operation, scale: Tensor, shift: Tensor, shape: Shape) -> ops.Layer | None:
    """A linear operation whose result, of this shape, is scaled and shifted by channel; None if it is not linear."""
    if not isinstance(layer, ops.Linear | ops.Convolution) or (isinstance(layer, ops.Linear) and len(shape) != 1):
        return None
    if len(scale) != len(layer.weight):
        return None
    weight = layer.weight * scale.view(-1, *(1,) * (layer.weight.ndim - 1))
    bias = shift if layer.bias is None else layer.bias * scale + shift
    return replace(layer, weight=weight, bias=bias)
