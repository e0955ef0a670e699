"""The graph of an ONNX file as steps: each node is translated when what it takes is known.

A file says what it does to a batch of a certain size. Files for any size are followed twice, with batches of different
sizes whose images must be kept apart. Files for one image are followed as what they are: their first axis of size 1 is
the batch as long as it is there, and may come and go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from berncert.extractor import operations as ops
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.freezing.modules import constant
from berncert.extractor.freezing.rearranging import entries_of_one_image
from berncert.extractor.freezing.step_list import StepList, Value
from berncert.extractor.onnx_files.arrays import CONSTANT, REARRANGING, Call, compute
from berncert.extractor.onnx_files.graph import STANDARD, Array, OnnxGraph


@dataclass(frozen=True)
class Signal:
    """A value that depends on the image, and whether the file has the batch as its first axis."""

    value: Value
    batched: bool = True


class GraphTranslator(StepList):
    """The steps from one tensor of a graph to another; `batch` is how many images there are, 1 in a file for one.

    `operators` are the rules for operators that compute with what depends on the image.
    """

    def __init__(
        self,
        graph: OnnxGraph,
        operators: Mapping[str, Callable[[Any, Call], Signal]],
        start: str,
        shape: Shape,
        *,
        batch: int,
        batched: bool,
    ) -> None:
        super().__init__(shape)
        self.graph, self.operators, self.batch = graph, operators, batch
        self.known: dict[str, Signal | Array] = {**graph.constants, start: Signal(self.image, batched)}
        self.maker: dict[int, str] = {}
        """The number of a step -> the tensor that is its result, and nothing that only passes it on."""
        self.emitted: dict[Any, Value] = {}

    def translate(self, end: str) -> Signal:
        """Emit all steps that this tensor depends on, and perhaps more."""
        opened: set[int] = set()
        waiting = [end]
        while waiting:
            name = waiting[-1]
            if name in self.known:
                waiting.pop()
                continue
            number = self._maker_of(name)
            missing = [n for n in self.graph.nodes[number].input if n and n not in self.known]
            if missing and number in opened:
                raise ValueError(f"{self.graph.label(number)}: expected a graph without cycles, got one")
            opened.add(number)
            waiting += missing
            if not missing:
                self._run(number)
        last = self.known[end]
        if not isinstance(last, Signal):
            raise ValueError(f"expected the output {end!r} to depend on the image, got a constant")
        return last

    def _maker_of(self, name: str) -> int:
        if name in self.graph.made_by:
            return self.graph.made_by[name]
        if name == self.graph.input:
            raise ValueError(
                "expected all that follows to depend on the features only, got a part that takes the image itself; "
                "choose a later node, through which everything passes"
            )
        raise ValueError(f"expected a node that makes {name!r}, which another one takes; the file is not whole")

    def _run(self, number: int) -> None:
        node = self.graph.nodes[number]
        label = self.graph.label(number)
        self.name, self.layer = node.name or node.output[0], node.op_type
        before = len(self.steps)
        try:
            found = self._node(number)
            if any(self.graph.uses.get(name, 0) for name in node.output[len(found) :] if name):
                raise ValueError(f"expected only the first output of {node.op_type} to be used, got others too")
        except MemoryError:
            raise
        except Exception as error:  # whatever a file that nobody checked leads to
            raise ValueError(f"{label}: {error}") from error
        for name, result in zip(node.output, found, strict=False):
            self.known[name] = result
            if isinstance(result, Signal) and result.value.number > before:
                self.maker[result.value.number] = name

    def _node(self, number: int) -> list[Signal | Array]:
        node = self.graph.nodes[number]
        if node.domain not in STANDARD:
            raise ValueError(
                f"expected standard operators, got one of {node.domain!r}; export the network without them, or inline "
                "functions with onnx.inliner.inline_local_functions"
            )
        inputs: list[Any] = [self.known[name] if name else None for name in node.input]
        if node.op_type in ("Shape", "Size") and isinstance(inputs[0], Signal):
            inputs = [np.broadcast_to(np.float32(0), self.full_shape(inputs[0]))]  # of no size in memory
        of_image = any(isinstance(part, Signal) for part in inputs)
        if not of_image and (node.op_type in CONSTANT or node.op_type in REARRANGING):
            return list(compute(node, inputs))
        if of_image and node.op_type in REARRANGING:
            return list(self._rearranged(Call(node, inputs)))
        if not of_image or node.op_type not in self.operators:
            raise ValueError(
                f"there is no rule for the operator {node.op_type}{'' if of_image else ' of constants'}; end the "
                "network before it, or write the network in PyTorch with layers that have a proof (docs/layers.md) "
                "and freeze that"
            )
        return [self.operators[node.op_type](self, Call(node, inputs))]

    # ---- what operators are made of ----

    def full_shape(self, signal: Signal) -> Shape:
        """The shape in the file, with the batch."""
        return (self.batch, *signal.value.shape) if signal.batched else signal.value.shape

    def then(self, signal: Signal, *operations: ops.Layer) -> Signal:
        """The signal after these operations, which keep its first axis what it is."""
        value = signal.value
        for operation in operations:
            value = self.emit(operation, value)
        return Signal(value, signal.batched)

    def axis(self, signal: Signal, axis: int) -> int:
        """An axis in the file, counted without the batch; an error for the batch itself."""
        rank = len(self.full_shape(signal))
        if not -rank <= axis < rank:
            raise ValueError(f"expected an axis of a value of shape {self.full_shape(signal)}, got {axis}")
        place = axis % rank - (1 if signal.batched else 0)
        if place < 0:
            raise ValueError("expected a step that keeps the images of a batch apart, got one along the batch")
        return place

    def map_of(self, signal: Signal) -> Signal:
        """The signal, if it is a batch of maps."""
        if not signal.batched or len(signal.value.shape) != 3:
            raise ValueError(
                f"expected a batch of maps (N, channels, height, width), got shape {self.full_shape(signal)}; pass "
                "input_shape, the shape of one image, if the file is for several images"
            )
        return signal

    def fitting(self, number: Any, signal: Signal) -> Tensor:
        """A constant of the file, without a batch axis, that fits a signal of its shape or more."""
        array = np.asarray(number)
        if signal.batched and array.ndim == len(signal.value.shape) + 1:
            if len(array) != 1:
                raise ValueError(f"expected the same constant for all images, got one of shape {array.shape}")
            array = array[0]
        return exact(array)

    def numbers(self, signal: Signal) -> Array:
        """1, 2, ... in the place of the entries, of a batch of images one after the other."""
        images = self.batch if signal.batched else 1
        return np.arange(1, images * math.prod(signal.value.shape) + 1).reshape(self.full_shape(signal))

    def placed(self, signal: Signal, out: Array) -> Signal:
        """The signal rearranged as its numbers were."""
        if not out.size or not out.ndim:
            raise ValueError(f"expected a value with entries, got shape {out.shape}")
        places = torch.from_numpy(np.ascontiguousarray(out))
        if self.batch > 1:
            try:
                index = entries_of_one_image(places, self.batch, math.prod(signal.value.shape), self.layer)
            except TypeError as error:
                raise ValueError(str(error)) from error
            return Signal(self.gather(signal.value, index))
        batched = out.ndim >= 2 and out.shape[0] == 1
        index = (places[0] if batched else places) - 1
        return Signal(self.gather(signal.value, index), batched)

    def _rearranged(self, call: Call) -> list[Signal]:
        signal = call.inputs[0]
        if not isinstance(signal, Signal) or any(isinstance(part, Signal) for part in call.inputs[1:]):
            raise ValueError("expected a rearrangement by constants, got one that depends on the image")
        numbers = self.numbers(signal)
        found = REARRANGING[call.node.op_type](call, numbers)
        return [self.placed(signal, out) for out in (found if isinstance(found, list) else [found])]

    def broadcast(self, signal: Signal, shape: Shape) -> Signal:
        """The signal with its entries repeated to this shape in the file."""
        if self.full_shape(signal) == tuple(shape):
            return signal
        return self.placed(signal, np.broadcast_to(self.numbers(signal), shape))

    def alike(self, *signals: Signal) -> list[Signal]:
        """Signals of the same shape, as arithmetic makes them."""
        shape = np.broadcast_shapes(*map(self.full_shape, signals))
        return [self.broadcast(signal, shape) for signal in signals]

    def source(self, value: Value) -> tuple[Value, Tensor]:
        """Where the entries of a rearranged value come from: another value, and which of its entries they are."""
        step = self.steps[value.number - 1] if value.number else None
        if step is None or not isinstance(step.operation, ops.Reshape | ops.Gather):
            return value, torch.arange(math.prod(value.shape)).reshape(value.shape)
        number = step.inputs[0]
        before = self.values[number]
        if isinstance(step.operation, ops.Gather):
            return before, step.operation.index
        return before, torch.arange(math.prod(before.shape)).reshape(value.shape)

    def gather(self, value: Value, numbers: Tensor) -> Value:
        """As of every list of steps; rearrangements one after the other are one, and the same one is done once."""
        before, index = self.source(value)
        entries = torch.cat([index.flatten(), torch.tensor([-1])])[numbers]  # -1 reads the one at the end
        return self._once((before.number, entries.shape, entries.numpy().tobytes()), super().gather, before, entries)

    def join(self, values: list[Value], axis: int) -> Value:
        """Values side by side; those that are parts of one value are a rearrangement of it, which is bounded better."""
        sources = [self.source(value) for value in values]
        if len({before.number for before, _ in sources}) == 1:
            return self.gather(sources[0][0], torch.cat([index for _, index in sources], dim=axis))
        key = (axis, *(value.number for value in values))
        return self._once(key, self.emit, ops.Concatenate(axis), *values)

    def sort(self, value: Value, size: int) -> Value:
        """Groups of this size along the first axis, each sorted downwards."""
        return self._once(("sort", value.number, size), self.emit, ops.GroupSort(size), value)

    def _once(self, key: Any, emit: Callable[..., Value], *arguments: Any) -> Value:
        """What is emitted; the same value if it was emitted before."""
        if key not in self.emitted:
            self.emitted[key] = emit(*arguments)
        return self.emitted[key]

    def fold_into(self, signal: Signal, scale: Tensor, shift: Tensor, *, only_bias: bool = False) -> bool:
        """Put scale and shift by channel in the layer before, if its result goes nowhere else: see `fold`."""
        number = signal.value.number
        name = self.maker.get(number)
        if name is None or self.graph.uses[name] != 1 or not signal.batched:
            return False
        operation = self.steps[number - 1].operation
        if only_bias and getattr(operation, "bias", None) is not None:
            return False
        return self.fold(signal.value, scale, shift, suffix=self.layer)


def exact(array: Any) -> Tensor:
    """The numbers of a constant in float64, exactly as the file has them."""
    found = np.asarray(array)
    if found.dtype.kind not in "fiu" and found.dtype.name != "bfloat16":
        raise ValueError(f"expected a constant of numbers, got {found.dtype}")
    return constant(torch.from_numpy(np.array(found, dtype=np.float64)))
