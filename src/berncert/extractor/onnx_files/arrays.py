"""Operators on plain arrays: those that rearrange entries, and those that a file computes shapes and constants with.

A rearranging operator is run on the constants of a file, and on numbers that name the entries of a value. What an
operator may make is limited before it is run: a file cannot ask for more memory than the largest value has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from berncert.extractor.onnx_files.graph import Array, array_of
from berncert.extractor.operations.base import MOST_NUMBERS

if TYPE_CHECKING:
    import onnx


class Call:
    """One node with the arrays that it is called with, and its attributes as plain Python."""

    def __init__(self, node: onnx.NodeProto, inputs: Sequence[Any]) -> None:
        self.node, self.inputs = node, tuple(inputs)
        self.attributes = {entry.name: _plain(entry) for entry in node.attribute}

    def given(self, name: str, place: int) -> Any:
        """What older versions of an operator have as an attribute, and newer ones as an input; None without."""
        if name in self.attributes:
            return self.attributes[name]
        return self.inputs[place] if place < len(self.inputs) else None

    def whole(self, name: str, place: int) -> list[int] | None:
        """The same as a list of whole numbers."""
        found = self.given(name, place)
        if found is None:
            return None
        numbers = np.atleast_1d(np.asarray(found))
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or numbers.size > 1000:
            raise ValueError(f"expected {name} as a list of whole numbers, got {numbers.dtype} {numbers.shape}")
        return [int(n) for n in numbers]

    def get(self, name: str, default: Any) -> Any:
        """An attribute."""
        return self.attributes.get(name, default)


def _plain(entry: onnx.AttributeProto) -> Any:
    kind = entry.type
    if kind == entry.FLOAT:
        return float(entry.f)
    if kind == entry.INT:
        return int(entry.i)
    if kind == entry.STRING:
        return entry.s.decode("utf-8", "replace")
    if kind == entry.TENSOR:
        return array_of(entry.t)
    if kind == entry.FLOATS:
        return [float(x) for x in entry.floats]
    if kind == entry.INTS:
        return [int(x) for x in entry.ints]
    raise ValueError(f"expected numbers, text or a tensor in the attribute {entry.name}, got another kind")


def _flatten(call: Call, x: Array) -> Array:
    axis = call.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return x.reshape(math.prod(x.shape[:axis]), -1)


def _reshape(call: Call, x: Array) -> Array:
    shape = call.whole("shape", 1) or []
    if not call.get("allowzero", 0):
        shape = [x.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    return x.reshape(shape)


def _transpose(call: Call, x: Array) -> Array:
    return x.transpose(call.get("perm", None))


def _squeeze(call: Call, x: Array) -> Array:
    axes = call.whole("axes", 1)
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(call: Call, x: Array) -> Array:
    return np.expand_dims(x, tuple(call.whole("axes", 1) or ()))


def _slice(call: Call, x: Array) -> Array:
    starts, ends, axes, steps = (call.whole(n, i) for i, n in enumerate(("starts", "ends", "axes", "steps"), 1))
    assert starts is not None
    assert ends is not None
    cut = [slice(None)] * x.ndim
    order = axes or range(len(starts))
    for axis, start, end, step in zip(order, starts, ends, steps or [1] * len(starts), strict=True):
        beyond = step < 0 and end < -x.shape[axis]  # to the first entry, which no end that counts from behind says
        cut[axis] = slice(start, None if beyond else end, step)
    return x[tuple(cut)]


def _split(call: Call, x: Array) -> list[Array]:
    axis, parts = call.get("axis", 0), call.whole("split", 1)
    count = call.get("num_outputs", len(call.node.output))
    if parts is None:
        each = -(-x.shape[axis] // count)
        parts = [each] * (count - 1) + [x.shape[axis] - each * (count - 1)]
    if min(parts) < 0 or sum(parts) != x.shape[axis] or len(parts) != len(call.node.output):
        raise ValueError(f"expected parts that add up to {x.shape[axis]}, got {parts}")
    return np.split(x, np.cumsum(parts)[:-1], axis)


def _gather(call: Call, x: Array) -> Array:
    axis, index = call.get("axis", 0), np.asarray(call.inputs[1])
    _require_room(x.size // max(1, x.shape[axis]) * index.size)
    return np.take(x, index, axis=axis)


def _pad(call: Call, x: Array) -> Array:
    pads, value, axes = call.whole("pads", 1) or [], call.given("value", 2), call.whole("axes", 3)
    chosen = range(x.ndim) if axes is None else axes
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(chosen):
        widths[axis] = (pads[i], pads[len(pads) // 2 + i])
    if min(map(min, widths)) < 0:
        raise ValueError(f"expected a padding that adds, got {pads}; slice instead")
    _require_room(math.prod(n + sum(w) for n, w in zip(x.shape, widths, strict=True)))
    modes = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    mode: Any = modes[call.get("mode", "constant")]
    if mode == "constant" and value is not None and np.any(np.asarray(value) != 0):
        raise ValueError(f"expected padding with 0, got {value}; nothing else is known")
    return np.pad(x, widths, mode)


def _expand(call: Call, x: Array) -> Array:
    shape = np.broadcast_shapes(x.shape, tuple(call.whole("shape", 1) or ()))
    _require_room(math.prod(shape))
    return np.broadcast_to(x, shape)


def _tile(call: Call, x: Array) -> Array:
    repeats = call.whole("repeats", 1) or []
    if min(repeats, default=1) < 0:
        raise ValueError(f"expected repeats >= 0, got {repeats}")
    _require_room(x.size * math.prod(repeats))
    return np.tile(x, repeats)


def _depth_to_space(call: Call, x: Array) -> Array:
    n, _, h, w = x.shape
    b = call.get("blocksize", 1)
    if call.get("mode", "DCR") == "CRD":
        return x.reshape(n, -1, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, -1, h * b, w * b)
    return x.reshape(n, b, b, -1, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, -1, h * b, w * b)


def _space_to_depth(call: Call, x: Array) -> Array:
    n, c, h, w = x.shape
    b = call.get("blocksize", 1)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, -1, h // b, w // b)


REARRANGING: dict[str, Callable[[Call, Array], Array | list[Array]]] = {
    "Flatten": _flatten, "Reshape": _reshape, "Transpose": _transpose, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Slice": _slice, "Split": _split, "Gather": _gather, "Pad": _pad, "Expand": _expand, "Tile": _tile,
    "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth,
}  # fmt: skip
"""Operators whose every result is an entry of their first input, or 0."""


def _constant(call: Call) -> Array:
    ((name, value),) = call.attributes.items()
    if name not in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        raise ValueError(f"expected a constant of numbers, got {name}")
    array = np.asarray(value)
    return array.astype(np.float32) if name.startswith("value_float") else array


def _constant_of_shape(call: Call) -> Array:
    shape = [int(n) for n in np.atleast_1d(call.inputs[0])] if np.size(call.inputs[0]) else []
    if min(shape, default=1) < 0:
        raise ValueError(f"expected a shape, got {shape}")
    _require_room(math.prod(shape))
    value = np.asarray(call.get("value", np.zeros(1, np.float32)))
    return np.full(shape, value.reshape(-1)[0], value.dtype)


def _range(call: Call) -> Array:
    ends: Any = [np.asarray(part).reshape(())[()] for part in call.inputs]
    start, end, step = ends
    _require_room(int(max(0.0, math.ceil((float(end) - float(start)) / float(step)))))
    return np.asarray(np.arange(start, end, step))


def _cast(call: Call) -> Array:
    import onnx

    kind = onnx.helper.tensor_dtype_to_np_dtype(call.attributes["to"])
    if np.dtype(kind).kind not in "fiub":
        raise ValueError(f"expected a cast to numbers, got {kind}")
    return np.asarray(call.inputs[0]).astype(kind)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)), dtype=a.dtype)  # towards 0


def _elementwise(function: Callable[..., Any]) -> Callable[[Call], Array]:
    def run(call: Call) -> Array:
        arrays = [np.asarray(part) for part in call.inputs]
        _require_room(math.prod(np.broadcast_shapes(*(array.shape for array in arrays))))
        with np.errstate(all="ignore"):  # what is not finite is refused where it is used
            return np.asarray(function(*arrays))

    return run


def _concat(call: Call) -> Array:
    _require_room(sum(np.size(part) for part in call.inputs))
    return np.concatenate([np.asarray(part) for part in call.inputs], call.attributes["axis"])


def _shape(call: Call) -> Array:
    return np.array(np.shape(call.inputs[0]), np.int64)[call.get("start", 0) : call.get("end", None)]


def _reduce_product(call: Call) -> Array:
    axes = call.whole("axes", 1)
    return np.asarray(
        np.prod(call.inputs[0], axis=None if axes is None else tuple(axes), keepdims=bool(call.get("keepdims", 1)))
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _divide, "Neg": np.negative, "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal, "Pow": np.power, "Abs": np.abs, "Exp": np.exp, "Log": np.log, "Floor": np.floor,
    "Ceil": np.ceil, "Max": np.maximum, "Min": np.minimum, "Equal": np.equal, "Less": np.less, "Greater": np.greater,
    "Not": np.logical_not, "And": np.logical_and, "Or": np.logical_or, "Where": np.where, "Identity": np.asarray,
}  # fmt: skip
CONSTANT: dict[str, Callable[[Call], Any]] = {
    **{name: _elementwise(function) for name, function in FUNCTIONS.items()},
    "Constant": _constant, "ConstantOfShape": _constant_of_shape, "Range": _range, "Cast": _cast, "Concat": _concat,
    "Shape": _shape, "Size": lambda call: np.array(np.size(call.inputs[0])), "ReduceProd": _reduce_product,
}  # fmt: skip
"""Operators that are computed among constants, beside those that rearrange."""


def compute(node: onnx.NodeProto, inputs: Sequence[Any]) -> list[Array]:
    """What a node makes of constants."""
    call = Call(node, inputs)
    if node.op_type in CONSTANT:
        found = CONSTANT[node.op_type](call)
    else:
        found = REARRANGING[node.op_type](call, np.asarray(inputs[0]))
    return found if isinstance(found, list) else [found]


def _require_room(entries: int) -> None:
    if entries > MOST_NUMBERS:
        raise ValueError(f"expected at most {MOST_NUMBERS} numbers, got {entries}")
