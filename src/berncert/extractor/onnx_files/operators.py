"""The rules for standard operators of what depends on the image. To read another operator, add its rule here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from berncert.extractor import operations as ops
from berncert.extractor.freezing.modules import by_channel
from berncert.extractor.onnx_files.arrays import Call
from berncert.extractor.onnx_files.translation import GraphTranslator, Signal, exact
from berncert.extractor.onnx_files.windows import average_pool, convolution, max_pool

Rule = Callable[[GraphTranslator, Call], Signal]
SELU = (1.6732631921768188, 1.0507010221481323)
"""The only alpha and gamma of which a bound is known, as float32 has them."""
NO_LIMIT = 3.4e38
"""The largest numbers of float32, by which exporters say that there is no limit."""
GATES = {("sigmoid",): "silu", ("tanh", "Softplus"): "mish"}
"""What x is multiplied by, from the last operation back to x -> the activation that the product is."""


def _only(call: Call) -> Signal:
    """The first input, if it alone depends on the image."""
    first = call.inputs[0]
    if not isinstance(first, Signal) or any(isinstance(part, Signal) for part in call.inputs[1:]):
        raise ValueError("expected an operator of one value and constants, got several values that depend on the image")
    return first


def _same(t: GraphTranslator, call: Call) -> Signal:
    training = call.inputs[2] if call.node.op_type == "Dropout" and len(call.inputs) > 2 else None
    if training is not None and np.any(training):
        raise ValueError("expected a dropout of evaluation, got one of training; export the network after .eval()")
    return _only(call)


def _cast(t: GraphTranslator, call: Call) -> Signal:
    if call.attributes["to"] not in (1, 10, 11, 16):  # FLOAT, FLOAT16, DOUBLE, BFLOAT16
        raise ValueError("expected a cast to floating numbers, got one that rounds what depends on the image")
    return _only(call)


# ---- arithmetic ----


def _add(t: GraphTranslator, call: Call) -> Signal:
    total = call.inputs[0]
    for part in call.inputs[1:]:
        total = _sum(t, total, part)
    return total  # type: ignore[no-any-return]


def _sum(t: GraphTranslator, a: Any, b: Any) -> Any:
    if isinstance(a, Signal) and isinstance(b, Signal):
        a, b = t.alike(a, b)
        return Signal(t.emit(ops.Add(), a.value, b.value), a.batched)
    if not isinstance(a, Signal) and not isinstance(b, Signal):
        return np.add(a, b)
    signal, number = (a, b) if isinstance(a, Signal) else (b, a)
    signal = t.broadcast(signal, np.broadcast_shapes(t.full_shape(signal), np.shape(number)))
    by = t.fitting(number, signal)
    channels = signal.value.shape[0]
    if by.numel() == channels and by.shape == (channels, *(1,) * (by.ndim - 1)) and by.ndim == len(signal.value.shape):
        ones = torch.ones(channels, dtype=torch.float64)
        if t.fold_into(signal, ones, by.flatten(), only_bias=True):
            return signal
    return t.then(signal, ops.Shift(by))


def _negative(t: GraphTranslator, part: Any) -> Any:
    return t.then(part, ops.Scale(exact(-1.0))) if isinstance(part, Signal) else np.negative(part)


def _multiply(t: GraphTranslator, call: Call) -> Signal:
    a, b = call.inputs
    if isinstance(a, Signal) and isinstance(b, Signal):
        return _gated(t, a, b)
    signal, number = (a, b) if isinstance(a, Signal) else (b, a)
    signal = t.broadcast(signal, np.broadcast_shapes(t.full_shape(signal), np.shape(number)))
    return t.then(signal, ops.Scale(t.fitting(number, signal)))


def _gated(t: GraphTranslator, a: Signal, b: Signal) -> Signal:
    """x times a function of x: SiLU and Mish; other products have no bound that holds everywhere."""
    for signal, gate in ((a, b), (b, a)):
        number, behind = gate.value.number, []
        while number > signal.value.number and len(t.steps[number - 1].inputs) == 1:
            behind.append(t.steps[number - 1].operation)
            number = t.steps[number - 1].inputs[0]
        names = tuple(op.function if isinstance(op, ops.Activation) else type(op).__name__ for op in behind)
        if number == signal.value.number and names in GATES:
            return t.then(signal, ops.Activation(GATES[names]))
    raise ValueError("expected a product with a constant, got one of two values that depend on the image")


def _divide(t: GraphTranslator, call: Call) -> Signal:
    signal = _only(call)
    signal = t.broadcast(signal, np.broadcast_shapes(t.full_shape(signal), np.shape(call.inputs[1])))
    return t.then(signal, ops.Scale(t.fitting(call.inputs[1], signal), divide=True))


def _extreme(t: GraphTranslator, call: Call, *, least: bool) -> Signal:
    """The maximum or minimum of values: they are sorted in pairs; with one number for all entries, a clamp."""
    found = call.inputs[0]
    for part in call.inputs[1:]:
        found = _extreme_of_two(t, found, part, least)
    return found  # type: ignore[no-any-return]


def _extreme_of_two(t: GraphTranslator, a: Any, b: Any, least: bool) -> Any:
    if not isinstance(a, Signal) or not isinstance(b, Signal):
        signal, limits = (a, exact(b)) if isinstance(a, Signal) else (b, exact(a))
        if limits.numel() == 0 or not bool((limits == limits.flatten()[0]).all()):
            raise ValueError("expected the same limit for all entries, got different ones")
        signal = t.broadcast(signal, np.broadcast_shapes(t.full_shape(signal), tuple(limits.shape)))
        limit = float(limits.flatten()[0])
        return t.then(signal, ops.Clamp(None, limit) if least else ops.Clamp(limit, None))
    a, b = t.alike(a, b)
    count = math.prod(a.value.shape)
    rows = torch.arange(count).reshape(count, 1)
    pairs = t.join([t.gather(a.value, rows), t.gather(b.value, rows)], 1)
    ordered = t.sort(t.gather(pairs, torch.arange(2 * count)), 2)
    chosen = torch.arange(count).reshape(a.value.shape) * 2 + (1 if least else 0)
    return Signal(t.gather(ordered, chosen), a.batched)


def _top(t: GraphTranslator, call: Call) -> Signal:
    """The greatest k along an axis, in order: all of them sorted, and the first k taken."""
    signal, k = _only(call), call.whole("k", 1)
    axis = t.axis(signal, call.get("axis", -1))
    shape, size = signal.value.shape, signal.value.shape[axis]
    if k is None or len(k) != 1 or not 1 <= k[0] <= size or not call.get("sorted", 1):
        raise ValueError(f"expected the k greatest of {size} in order, got k = {k}")
    flat = (math.prod(shape[: axis + 1]), *shape[axis + 1 :])
    count = math.prod(shape)
    ordered = t.sort(t.gather(signal.value, torch.arange(count).reshape(flat)), size)
    places = torch.arange(count).reshape(shape)
    places = places if call.get("largest", 1) else places.flip(axis)
    return Signal(t.gather(ordered, places.narrow(axis, 0, k[0])), signal.batched)


# ---- linear layers ----


def _matmul(t: GraphTranslator, call: Call) -> Signal:
    a, b = call.inputs
    if isinstance(a, Signal) and isinstance(b, Signal):
        raise ValueError("expected a product with a constant matrix, got one of two values that depend on the image")
    return _times(t, a, _matrix(b)) if isinstance(a, Signal) else _matrix_times(t, _matrix(a), b)


def _matrix(array: Any) -> Any:
    """A matrix, or a vector, without axes of size 1 in front."""
    found = np.asarray(array)
    while found.ndim > 2 and len(found) == 1:
        found = found[0]
    if found.ndim not in (1, 2):
        raise ValueError(f"expected a constant matrix, got shape {found.shape}")
    return found


def _times(t: GraphTranslator, signal: Signal, matrix: Any) -> Signal:
    """The signal times a constant matrix on its right."""
    if matrix.ndim == 2:
        return t.then(signal, ops.Linear(exact(matrix.T)))
    out = t.then(signal, ops.Linear(exact(matrix[None])))
    return t.placed(out, t.numbers(out)[..., 0])


def _matrix_times(t: GraphTranslator, matrix: Any, signal: Signal) -> Signal:
    """A constant matrix times the signal: of its transpose, a product from the right."""
    if len(t.full_shape(signal)) == 1:
        return _times(t, signal, matrix.T)
    out = _times(t, _transposed(t, signal), matrix.T)
    return _transposed(t, out) if matrix.ndim == 2 else out


def _transposed(t: GraphTranslator, signal: Signal) -> Signal:
    return t.placed(signal, np.swapaxes(t.numbers(signal), -1, -2))


def _gemm(t: GraphTranslator, call: Call) -> Signal:
    a, b, *rest = call.inputs  # type: Any, Any, Any
    a = a if not call.get("transA", 0) else _transposed(t, a) if isinstance(a, Signal) else np.asarray(a).T
    b = b if not call.get("transB", 0) else _transposed(t, b) if isinstance(b, Signal) else np.asarray(b).T
    if isinstance(a, Signal) == isinstance(b, Signal):
        raise ValueError("expected a product with a constant matrix, got another")
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    added = rest[0] if rest else None
    if isinstance(added, Signal):
        raise ValueError("expected a constant to be added, got a value that depends on the image")
    bias = np.zeros(()) if added is None else np.asarray(added, np.float64) * beta
    if not isinstance(a, Signal):
        return _sum(t, _matrix_times(t, np.asarray(a, np.float64) * alpha, b), bias)  # type: ignore[no-any-return]
    weight = exact(np.asarray(b, np.float64).T * alpha)
    if added is None:
        return t.then(a, ops.Linear(weight))
    if bias.ndim == 2 and len(bias) > 1:  # another one for each row
        return _sum(t, t.then(a, ops.Linear(weight)), bias)  # type: ignore[no-any-return]
    return t.then(a, ops.Linear(weight, exact(np.broadcast_to(bias, (1, len(weight)))[0])))


def _batch_norm(t: GraphTranslator, call: Call) -> Signal:
    signal = _only(call)
    if call.get("training_mode", 0) or not call.get("spatial", 1):
        raise ValueError("expected a normalisation of evaluation, by channel, got another; export after .eval()")
    gamma, beta, mean, variance = (exact(part) for part in call.inputs[1:5])
    eps = call.get("epsilon", 1e-5)
    if not (variance >= 0).all() or not (variance + eps > 0).all():
        raise ValueError("expected a variance >= 0, and > 0 with epsilon, got less; the layer divides by its root")
    if not signal.batched or signal.value.shape[:1] != tuple(gamma.shape):
        raise ValueError(f"expected {len(gamma)} channels after the batch, got shape {t.full_shape(signal)}")
    scale = gamma / (variance + eps).sqrt()
    shift = beta - scale * mean
    if t.fold_into(signal, scale, shift):
        return signal
    shape = signal.value.shape
    return t.then(signal, ops.Scale(by_channel(scale, shape)), ops.Shift(by_channel(shift, shape)))


# ---- activations ----


def _activation(function: str) -> Rule:
    return lambda t, call: t.then(_only(call), ops.Activation(function))


def _gelu(t: GraphTranslator, call: Call) -> Signal:
    return t.then(_only(call), ops.Activation("gelu_tanh" if call.get("approximate", "none") == "tanh" else "gelu"))


def _leaky(t: GraphTranslator, call: Call) -> Signal:
    return t.then(_only(call), ops.Leaky(exact(call.get("alpha", 0.01))))


def _prelu(t: GraphTranslator, call: Call) -> Signal:
    signal = _only(call)
    return t.then(signal, ops.Leaky(t.fitting(call.inputs[1], signal)))


def _selu(t: GraphTranslator, call: Call) -> Signal:
    given = call.get("alpha", SELU[0]), call.get("gamma", SELU[1])
    if not np.allclose(given, SELU, rtol=1e-5):
        raise ValueError(f"expected the usual alpha and gamma of SELU, got {given}")
    return t.then(_only(call), ops.Activation("selu"))


def _hard_sigmoid(t: GraphTranslator, call: Call) -> Signal:
    alpha, beta = call.get("alpha", 0.2), call.get("beta", 0.5)
    return t.then(_only(call), ops.Scale(exact(alpha)), ops.Shift(exact(beta)), ops.Clamp(0.0, 1.0))


def _clip(t: GraphTranslator, call: Call) -> Signal:
    low, high = call.given("min", 1), call.given("max", 2)
    numbers = [None if limit is None else float(np.asarray(limit).reshape(())) for limit in (low, high)]
    limits = [None if number is None or abs(number) >= NO_LIMIT else number for number in numbers]
    return t.then(_only(call), ops.Clamp(*limits))


def _softmax(t: GraphTranslator, call: Call) -> Signal:
    signal = _only(call)
    if t.graph.opset >= 13:
        return t.then(signal, ops.Softmax(t.axis(signal, call.get("axis", -1))))
    axis = t.axis(signal, call.get("axis", 1))  # all axes from this one on are one
    shape = signal.value.shape
    flat = torch.arange(math.prod(shape)).reshape(*shape[:axis], -1)
    out = t.emit(ops.Softmax(axis), t.gather(signal.value, flat))
    return Signal(t.gather(out, torch.arange(math.prod(shape)).reshape(shape)), signal.batched)


def _log_softmax(t: GraphTranslator, call: Call) -> Signal:
    raise ValueError("there is no rule for LogSoftmax, which changes no class: end the network before it")


# ---- sums over axes, several values ----


def _reduced(t: GraphTranslator, call: Call, *, mean: bool) -> Signal:
    signal = Signal(call.inputs[0].value, call.inputs[0].batched)
    given = call.whole("axes", 1)
    if given is None and call.get("noop_with_empty_axes", 0):
        return signal
    rank = len(t.full_shape(signal))
    axes = tuple(sorted({t.axis(signal, axis) for axis in (range(rank) if given is None else given)}))
    count = math.prod(signal.value.shape[axis] for axis in axes)
    out = t.then(signal, ops.Mean(axes, bool(call.get("keepdims", 1))))
    if not out.value.shape:
        raise ValueError("expected a value with an axis, got one number; keep the axis with keepdims")
    return out if mean else t.then(out, ops.Scale(exact(float(count))))


def _global(operation: ops.Layer) -> Rule:
    return lambda t, call: t.then(t.map_of(_only(call)), operation)


def _concat(t: GraphTranslator, call: Call) -> Signal:
    parts = call.inputs
    if not all(isinstance(part, Signal) for part in parts) or len({part.batched for part in parts}) != 1:
        raise ValueError("expected values that depend on the image, all with or all without a batch, got others too")
    axis = t.axis(parts[0], call.attributes["axis"])
    return Signal(t.join([part.value for part in parts], axis), parts[0].batched)


OPERATORS: dict[str, Rule] = {
    "Identity": _same, "Dropout": _same, "Cast": _cast,
    "Add": _add, "Sum": _add, "Sub": lambda t, call: _sum(t, call.inputs[0], _negative(t, call.inputs[1])),
    "Neg": lambda t, call: _negative(t, _only(call)), "Mul": _multiply, "Div": _divide,
    "Max": lambda t, call: _extreme(t, call, least=False), "Min": lambda t, call: _extreme(t, call, least=True),
    "TopK": _top, "MatMul": _matmul, "Gemm": _gemm, "BatchNormalization": _batch_norm,
    "Conv": lambda t, call: convolution(t, _only(call), call),
    "MaxPool": lambda t, call: max_pool(t, _only(call), call),
    "AveragePool": lambda t, call: average_pool(t, _only(call), call),
    "GlobalAveragePool": _global(ops.Mean((1, 2), True)), "GlobalMaxPool": _global(ops.AdaptiveMaximum((1, 1))),
    "ReduceMean": lambda t, call: _reduced(t, call, mean=True),
    "ReduceSum": lambda t, call: _reduced(t, call, mean=False),
    "Relu": _activation("relu"), "Sigmoid": _activation("sigmoid"), "Tanh": _activation("tanh"),
    "Abs": _activation("abs"), "Softsign": _activation("softsign"), "Mish": _activation("mish"),
    "HardSwish": _activation("hardswish"), "Gelu": _gelu, "LeakyRelu": _leaky, "PRelu": _prelu, "Selu": _selu,
    "Elu": lambda t, call: t.then(_only(call), ops.Elu(call.get("alpha", 1.0))),
    "Celu": lambda t, call: t.then(_only(call), ops.Celu(call.get("alpha", 1.0))),
    "Softplus": lambda t, call: t.then(_only(call), ops.Softplus(1.0)),
    "HardSigmoid": _hard_sigmoid, "Clip": _clip, "Softmax": _softmax, "LogSoftmax": _log_softmax, "Concat": _concat,
}  # fmt: skip
"""By name; operators that rearrange, and those among constants, are in `arrays`."""
