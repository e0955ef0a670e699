"""Convolutions and pooling of ONNX files, whose windows may be given by sides, by a rule, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from berncert.extractor import operations as ops
from berncert.extractor.bounds.spectral_norm import Pair
from berncert.extractor.onnx_files.arrays import Call
from berncert.extractor.onnx_files.translation import GraphTranslator, Signal, exact

Sides = tuple[Pair, Pair]


def convolution(t: GraphTranslator, signal: Signal, call: Call) -> Signal:
    """A convolution; one of rows is that of maps of height 1."""
    weight, bias = exact(call.inputs[1]), call.inputs[2] if len(call.inputs) > 2 else None
    if weight.ndim not in (3, 4):
        raise ValueError(f"expected a convolution of rows or maps, got weights of shape {tuple(weight.shape)}")
    rows = weight.ndim == 3
    if rows:
        signal, weight = t.placed(signal, np.expand_dims(t.numbers(signal), 2)), weight.unsqueeze(2)
    signal = t.map_of(signal)
    kernel = _pair(list(weight.shape[2:]))
    stride, dilation = (_spatial(call, name, rows) for name in ("strides", "dilations"))
    padding = _padding(call, signal.value.shape[1:], kernel, stride, dilation, rows)
    operation = ops.Convolution(
        weight, None if bias is None else exact(bias), stride, padding, dilation, call.get("group", 1)
    )
    out = t.then(signal, operation)
    return t.placed(out, t.numbers(out)[:, :, 0]) if rows else out


def max_pool(t: GraphTranslator, signal: Signal, call: Call) -> Signal:
    """The maximum of windows: what lies outside of the map is ignored, so only where windows begin matters."""
    signal, kernel = t.map_of(signal), _kernel(call)
    stride, dilation = (_spatial(call, name) for name in ("strides", "dilations"))
    size = signal.value.shape[1:]
    sides = _padding(call, size, kernel, stride, dilation)
    ceil = bool(call.get("ceil_mode", 0))
    before = _pair([side[0] for side in sides])
    if all(a == b for a, b in sides):
        return t.then(signal, ops.MaximumPool(kernel, stride, before, ceil, dilation))
    axes = zip(size, kernel, stride, sides, dilation, strict=True)
    wanted = [(n + sum(p) - d * (k - 1) - 1 + (s - 1 if ceil else 0)) // s + 1 for n, k, s, p, d in axes]
    for reach in (False, True):
        operation = ops.MaximumPool(kernel, stride, before, reach, dilation)
        found = operation.output_shape(signal.value.shape)[1:]
        if all(a >= b for a, b in zip(found, wanted, strict=True)):
            out = t.then(signal, operation)
            return t.placed(out, t.numbers(out)[:, :, : wanted[0], : wanted[1]])
    raise ValueError(f"expected about the same padding on both sides of a maximum pool, got {sides}")


def average_pool(t: GraphTranslator, signal: Signal, call: Call) -> Signal:
    """The average of windows, over their pixels or over all that they cover."""
    signal, kernel = t.map_of(signal), _kernel(call)
    stride = _spatial(call, "strides")
    if _spatial(call, "dilations") != (1, 1):
        raise ValueError("expected an average pool without dilation")
    sides = _padding(call, signal.value.shape[1:], kernel, stride, (1, 1))
    counted, ceil = bool(call.get("count_include_pad", 0)), bool(call.get("ceil_mode", 0))
    padded = any(n for side in sides for n in side)
    if ceil and padded:
        raise ValueError("expected an average pool with padding or with ceil_mode, got both")
    if all(a == b for a, b in sides):
        return t.then(signal, ops.AveragePool(kernel, stride, _pair([side[0] for side in sides]), ceil, counted))
    if not counted:
        raise ValueError(f"expected the same padding on both sides of an average over pixels only, got {sides}")
    wider = t.placed(signal, np.pad(t.numbers(signal), ((0, 0), (0, 0), *sides)))
    return t.then(wider, ops.AveragePool(kernel, stride, (0, 0), False, True))


def _kernel(call: Call) -> Pair:
    return _pair(call.attributes["kernel_shape"])


def _pair(values: Any) -> Pair:
    if len(values) != 2:
        raise ValueError(f"expected windows of maps, with a height and a width, got {list(values)}")
    return int(values[0]), int(values[1])


def _spatial(call: Call, name: str, rows: bool = False) -> Pair:
    given = call.get(name, None)
    if given is None:
        return (1, 1)
    return _pair([1, *given] if rows else given)


def _padding(call: Call, size: Any, kernel: Pair, stride: Pair, dilation: Pair, rows: bool = False) -> Sides:
    """(before, after) for height and width, as the file has them or as its rule says."""
    rule = call.get("auto_pad", "NOTSET")
    if rule in ("NOTSET", "VALID", ""):
        pads = call.get("pads", None) if rule != "VALID" else None
        pads = [0, 0, 0, 0] if pads is None else [0, pads[0], 0, pads[1]] if rows else pads
        if len(pads) != 4 or min(pads) < 0:
            raise ValueError(f"expected a padding >= 0 for each side, got {pads}")
        return (pads[0], pads[2]), (pads[1], pads[3])
    if rule not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"expected auto_pad as the standard has it, got {rule!r}")
    found = []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        total = max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
        less, more = total // 2, total - total // 2
        found.append((less, more) if rule == "SAME_UPPER" else (more, less))
    return found[0], found[1]
