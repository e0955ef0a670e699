"""Frozen networks, and polynomials of their features, as graphs of standard ONNX operators.

The numbers of a step are constants of the file under their own names, so that the same network can be built again from
them. Where onnxruntime has no float64 kernel of an operator, or its attributes are float32, it is written as others
that compute the same; that leaves convolutions and the error function (of GELU).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from berncert.extractor import operations as ops
from berncert.extractor.frozen import FrozenNetwork
from berncert.extractor.onnx_files.graph import Array, require_onnx

OPSET = 20
IR_VERSION = 9
ONLY_SINGLE = ("Conv", "ConvTranspose", "AveragePool", "Erf")
"""Operators of which onnxruntime's CPU has no float64 kernel, among those that are written."""
LARGEST_MATRIX = 2**22
"""Averages are written as a matrix up to this size, where the operator does not say them."""
SELU = 1.0507009873554805, 1.6732632423543772


class GraphWriter:
    """Nodes and constants of a graph that is being written, in one floating type."""

    def __init__(self, dtype: str) -> None:
        self.onnx = require_onnx()
        self.dtype = np.dtype(dtype)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, value: Any, name: str | None = None) -> str:
        """The name of a constant; whole numbers stay such."""
        array = np.asarray(value)
        array = array.astype(np.int64 if array.dtype.kind in "iu" else self.dtype)
        name = f"constant {len(self.constants)}" if name is None else name
        self.constants[name] = self.onnx.numpy_helper.from_array(np.array(array, order="C"), name)
        return name

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The result of one more node."""
        name = f"value {len(self.nodes)}"
        attributes = {key: value for key, value in attributes.items() if value is not None}
        # of TopK the first output are the values, and the others are not wanted, but must be there
        outputs = [name, f"{name} index"] if operator == "TopK" else [name]
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, outputs, name=name, **attributes))
        return name

    def name_last(self, name: str) -> str:
        """Give the last result this name."""
        self.nodes[-1].output[0] = name
        return name


def write_network(w: GraphWriter, network: FrozenNetwork, start: str, prefix: str) -> str:
    """The steps of a network from this tensor on; the name of its result."""
    values = [start]
    for number, step in enumerate(network.steps, start=1):
        if not step.operation.in_files:
            raise TypeError(
                f"expected a network of operations that a file can hold, got {step.name}, a {step.layer} of your own; "
                "write it with layers that berncert knows (docs/layers.md)"
            )
        operation = step.operation.to(getattr(torch, w.dtype.name), torch.device("cpu"))
        tensors = operation.tensors()
        names = {key: w.constant(_array(tensor), f"{prefix}{number}.{key}") for key, tensor in tensors.items()}
        shapes = [network.shapes[i] for i in step.inputs]
        rule = RULES[type(operation)]
        values.append(rule(w, operation, names, [values[i] for i in step.inputs], shapes))
    return values[-1]


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy()


# ---- rules: the writer, the operation, the names of its constants, of its inputs, and their shapes ----


def _linear(w: GraphWriter, op: ops.Linear, names: Any, inputs: Any, shapes: Any) -> str:
    bias = [names["bias"]] if op.bias is not None else []
    if len(shapes[0]) == 1:
        return w("Gemm", inputs[0], names["weight"], *bias, transB=1)
    product = w("MatMul", inputs[0], w("Transpose", names["weight"], perm=[1, 0]))
    return w("Add", product, *bias) if bias else product


def _convolution(w: GraphWriter, op: ops.Convolution, names: Any, inputs: Any, shapes: Any) -> str:
    (top, bottom), (left, right) = op.padding
    pads, x = [top, left, bottom, right], inputs[0]
    if op.mode != "zeros":
        mode = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[op.mode]
        x = w("Pad", x, w.constant([0, 0, top, left, 0, 0, bottom, right]), mode=mode)
        pads = [0, 0, 0, 0]
    bias = [names["bias"]] if op.bias is not None else []
    settings = _windows(op.weight.shape[2:], op.stride, op.dilation, op.groups)
    return w("Conv", x, names["weight"], *bias, pads=pads, **settings)


def _windows(kernel: Any, stride: Any, dilation: Any, groups: int) -> dict[str, Any]:
    return {"kernel_shape": list(kernel), "strides": list(stride), "dilations": list(dilation), "group": groups}


def _potential_step(w: GraphWriter, op: ops.PotentialStep, names: Any, inputs: Any, shapes: Any) -> str:
    bias = [names["bias"]] if op.bias is not None else []
    if op.weight.ndim == 2:
        hidden = w("Relu", _linear(w, ops.Linear(op.weight, op.bias), names, inputs, shapes))
        back = w("MatMul", hidden, names["weight"])
    else:
        pads, settings = list(op.padding) * 2, _windows(op.weight.shape[2:], op.stride, op.dilation, op.groups)
        hidden = w("Relu", w("Conv", inputs[0], names["weight"], *bias, pads=pads, **settings))
        reach = [d * (k - 1) + 1 for d, k in zip(op.dilation, op.weight.shape[2:], strict=True)]
        sizes = zip(shapes[0][1:], op.padding, reach, op.stride, strict=True)
        short = [(n + 2 * p - r) % s for n, p, r, s in sizes]
        back = w("ConvTranspose", hidden, names["weight"], pads=pads, output_padding=short, **settings)
    return w("Sub", inputs[0], w("Mul", w.constant(2.0), back))


def _shift(w: GraphWriter, op: ops.Shift, names: Any, inputs: Any, shapes: Any) -> str:
    return w("Add", inputs[0], names["by"])


def _scale(w: GraphWriter, op: ops.Scale, names: Any, inputs: Any, shapes: Any) -> str:
    return w("Div" if op.divide else "Mul", inputs[0], names["by"])


def _leaky(w: GraphWriter, op: ops.Leaky, names: Any, inputs: Any, shapes: Any) -> str:
    below = w("Mul", names["by"], w("Relu", w("Neg", inputs[0])))  # one of the two is 0
    return w("Sub", w("Relu", inputs[0]), below)


def _clamp(w: GraphWriter, op: ops.Clamp, names: Any, inputs: Any, shapes: Any) -> str:
    if op.low is None and op.high is None:
        return w("Identity", inputs[0])
    low, high = ("" if limit is None else w.constant(float(limit)) for limit in (op.low, op.high))
    return w("Clip", inputs[0], low, *([high] if high else []))


def _softplus_of(w: GraphWriter, x: str, beta: float) -> str:
    scale = w.constant(beta)
    tail = w("Log", w("Add", w.constant(1.0), w("Exp", w("Neg", w("Mul", scale, w("Abs", x))))))
    return w("Add", w("Relu", x), w("Div", tail, scale))


def _sixth(w: GraphWriter, x: str) -> str:
    """The hard sigmoid."""
    return w("Clip", w("Add", w("Div", x, w.constant(6.0)), w.constant(0.5)), w.constant(0.0), w.constant(1.0))


def _exponential(w: GraphWriter, x: str, alpha: float, rate: float = 1.0) -> str:
    """x where it is > 0, else alpha (exp(x / rate) - 1)."""
    below = w("Div", w("Min", x, w.constant(0.0)), w.constant(rate))
    return w("Add", w("Relu", x), w("Mul", w.constant(alpha), w("Sub", w("Exp", below), w.constant(1.0))))


def _gelu(w: GraphWriter, x: str) -> str:
    share = w("Add", w.constant(1.0), w("Erf", w("Mul", x, w.constant(math.sqrt(0.5)))))
    return w("Mul", w("Mul", x, w.constant(0.5)), share)


def _gelu_tanh(w: GraphWriter, x: str) -> str:
    cube = w("Mul", w.constant(0.044715), w("Mul", x, w("Mul", x, x)))
    inner = w("Mul", w.constant(math.sqrt(2 / math.pi)), w("Add", x, cube))
    return w("Mul", w("Mul", x, w.constant(0.5)), w("Add", w.constant(1.0), w("Tanh", inner)))


ACTIVATIONS: dict[str, Callable[[GraphWriter, str], str]] = {
    "relu": lambda w, x: w("Relu", x), "abs": lambda w, x: w("Abs", x), "tanh": lambda w, x: w("Tanh", x),
    "sigmoid": lambda w, x: w("Sigmoid", x),
    "relu6": lambda w, x: w("Clip", x, w.constant(0.0), w.constant(6.0)),
    "hardsigmoid": _sixth, "hardswish": lambda w, x: w("Mul", x, _sixth(w, x)),
    "silu": lambda w, x: w("Mul", x, w("Sigmoid", x)),
    "mish": lambda w, x: w("Mul", x, w("Tanh", _softplus_of(w, x, 1.0))),
    "softsign": lambda w, x: w("Div", x, w("Add", w.constant(1.0), w("Abs", x))),
    "logsigmoid": lambda w, x: w("Neg", _softplus_of(w, w("Neg", x), 1.0)),
    "selu": lambda w, x: w("Mul", w.constant(SELU[0]), _exponential(w, x, SELU[1])),
    "gelu": _gelu, "gelu_tanh": _gelu_tanh,
}  # fmt: skip


def _max_pool(w: GraphWriter, op: ops.MaximumPool, names: Any, inputs: Any, shapes: Any) -> str:
    return w(
        "MaxPool", inputs[0], kernel_shape=list(op.kernel), strides=list(op.stride), pads=list(op.padding) * 2,
        dilations=list(op.dilation), ceil_mode=int(op.ceil),
    )  # fmt: skip


def _average(w: GraphWriter, op: Any, names: Any, inputs: Any, shapes: Any) -> str:
    """An average as the operator, or as the matrix that it is where that says too little."""
    channels, height, width = shapes[0]
    outputs = op.output_shape(shapes[0])
    regular = isinstance(op, ops.AveragePool) and not op.ceil and op.divisor is None
    small = height * width * math.prod(outputs[1:]) <= LARGEST_MATRIX
    if regular and (w.dtype == np.float32 or not small):
        return w(
            "AveragePool", inputs[0], kernel_shape=list(op.kernel), strides=list(op.stride), pads=list(op.padding) * 2,
            count_include_pad=int(op.count_padding),
        )  # fmt: skip
    if not small:
        raise ValueError(f"expected an average of fewer pixels to write as a matrix, got {op} of shape {shapes[0]}")
    basis = torch.eye(height * width, dtype=torch.float64).reshape(-1, 1, height, width)
    matrix = w.constant(op.evaluate(basis).flatten(1).numpy())
    flat = w("Reshape", inputs[0], w.constant([0, channels, height * width]))
    return w("Reshape", w("MatMul", flat, matrix), w.constant([0, *outputs]))


def _adaptive_maximum(w: GraphWriter, op: ops.AdaptiveMaximum, names: Any, inputs: Any, shapes: Any) -> str:
    """Windows of the same length along each axis, in which shorter ones have their first entry several times."""
    x: str = inputs[0]
    for axis, (n, m) in enumerate(zip(shapes[0][1:], op.outputs, strict=True), start=2):
        windows = [list(range(i * n // m, -(-(i + 1) * n // m))) for i in range(m)]
        longest = max(map(len, windows))
        index = [window + window[:1] * (longest - len(window)) for window in windows]
        x = w("ReduceMax", w("Gather", x, w.constant(index), axis=axis), w.constant([axis + 1]), keepdims=0)
    return x


def _distance(w: GraphWriter, op: ops.Distance, names: Any, inputs: Any, shapes: Any) -> str:
    apart = w("Abs", w("Sub", w("Unsqueeze", inputs[0], w.constant([1])), names["weight"]))
    farthest = w("ReduceMax", apart, w.constant([2]), keepdims=0)
    return w("Sub", names["bias"], farthest) if op.negative else w("Add", farthest, names["bias"])


def _sorted_distance(w: GraphWriter, op: ops.SortedDistance, names: Any, inputs: Any, shapes: Any) -> str:
    apart = w("Abs", w("Sub", w("Unsqueeze", inputs[0], w.constant([1])), names["weight"]))
    count = min(len(op.shares), shapes[0][0])
    greatest = w("TopK", apart, w.constant([count]), axis=2)
    shares = w("Gather", names["shares"], w.constant(np.arange(count)), axis=0)
    total = w("MatMul", greatest, shares)
    return w("Sub", names["bias"], total) if op.negative else w("Add", total, names["bias"])


def _group_sort(w: GraphWriter, op: ops.GroupSort, names: Any, inputs: Any, shapes: Any) -> str:
    channels, *rest = shapes[0]
    groups = w("Reshape", inputs[0], w.constant([0, channels // op.size, op.size, *rest]))
    ordered = w("TopK", groups, w.constant([op.size]), axis=2)
    return w("Reshape", ordered, w.constant([0, channels, *rest]))


def _householder(w: GraphWriter, op: ops.Householder, names: Any, inputs: Any, shapes: Any) -> str:
    channels, *rest = shapes[0]
    pairs = w("Reshape", inputs[0], w.constant([0, channels // 2, 2, *rest]))
    sides = w("Transpose", names["normal"], perm=[1, 0])
    normal = w("Reshape", sides, w.constant([1, channels // 2, 2, *(1,) * len(rest)]))
    along = w("ReduceSum", w("Mul", pairs, normal), w.constant([2]), keepdims=1)
    outside = w("Mul", w.constant(2.0), w("Relu", w("Neg", along)))
    return w("Reshape", w("Add", pairs, w("Mul", outside, normal)), w.constant([0, channels, *rest]))


def _mean(w: GraphWriter, op: ops.Mean, names: Any, inputs: Any, shapes: Any) -> str:
    return w("ReduceMean", inputs[0], w.constant([axis + 1 for axis in op.axes]), keepdims=int(op.keep))


def _gather(w: GraphWriter, op: ops.Gather, names: Any, inputs: Any, shapes: Any) -> str:
    flat, entries = w("Reshape", inputs[0], w.constant([0, math.prod(shapes[0])])), math.prod(shapes[0])
    index = op.index.flatten()
    if bool((index < 0).any()):
        flat = w("Pad", flat, w.constant([0, 0, 0, 1]))
        index = torch.where(index < 0, entries, index)
    chosen = w("Gather", flat, w.constant(index.numpy()), axis=1)
    return w("Reshape", chosen, w.constant([0, *op.index.shape]))


RULES: dict[type[ops.Operation], Callable[..., str]] = {
    ops.Linear: _linear, ops.Convolution: _convolution, ops.PotentialStep: _potential_step, ops.Shift: _shift,
    ops.Scale: _scale, ops.Leaky: _leaky, ops.Clamp: _clamp, ops.MaximumPool: _max_pool, ops.AveragePool: _average,
    ops.AdaptiveAverage: _average, ops.AdaptiveMaximum: _adaptive_maximum, ops.Distance: _distance,
    ops.SortedDistance: _sorted_distance,
    ops.GroupSort: _group_sort, ops.Householder: _householder, ops.Mean: _mean, ops.Gather: _gather,
    ops.Activation: lambda w, op, names, inputs, shapes: ACTIVATIONS[op.function](w, inputs[0]),
    ops.Elu: lambda w, op, names, inputs, shapes: _exponential(w, inputs[0], op.alpha),
    ops.Celu: lambda w, op, names, inputs, shapes: _exponential(w, inputs[0], op.alpha, op.alpha),
    ops.Softplus: lambda w, op, names, inputs, shapes: _softplus_of(w, inputs[0], op.beta),
    ops.Softmax: lambda w, op, names, inputs, shapes: w("Softmax", inputs[0], axis=op.axis + 1),
    ops.Reshape: lambda w, op, names, inputs, shapes: w("Reshape", inputs[0], w.constant([0, *op.shape])),
    ops.Add: lambda w, op, names, inputs, shapes: w("Add", *inputs),
    ops.Concatenate: lambda w, op, names, inputs, shapes: w("Concat", *inputs, axis=op.axis + 1),
}  # fmt: skip
"""By the type of an operation: every one that a file can hold."""


# ---- polynomials ----


def write_polynomial(
    w: GraphWriter, coefficients: str, sizes: Sequence[int], features: str, axes: Sequence[int]
) -> str:
    """The K polynomials with these coefficients, (K, *sizes), in some of the features: (N, K).

    Axis by axis, the products of the basis at each feature with what is left are summed.
    """
    classes, *degrees = sizes
    order = [*range(1, len(degrees) + 1), 0]
    left = w("Transpose", coefficients, perm=order)  # the classes come last
    for place, (size, axis) in enumerate(zip(degrees, axes, strict=True)):
        rest = math.prod(degrees[place + 1 :]) * classes
        basis = _basis(w, features, axis, size - 1)
        if place == 0:
            left = w("MatMul", basis, w("Reshape", left, w.constant([size, rest])))
        else:
            row = w("Unsqueeze", basis, w.constant([1]))
            product = w("MatMul", row, w("Reshape", left, w.constant([0, size, rest])))
            left = w("Squeeze", product, w.constant([1]))
    return left


def _basis(w: GraphWriter, features: str, axis: int, degree: int) -> str:
    """The degree + 1 Bernstein polynomials at one feature: (N, degree + 1)."""
    x = w("Gather", features, w.constant([axis]), axis=1)
    powers = w("Pow", x, w.constant(np.arange(degree + 1.0)))
    others = w("Pow", w("Sub", w.constant(1.0), x), w.constant(np.arange(degree, -1.0, -1.0)))
    binomials = w.constant([float(math.comb(degree, k)) for k in range(degree + 1)])
    return w("Mul", binomials, w("Mul", powers, others))
