"""Heads and frozen networks as a proof file holds them: plain fields, and arrays of exact numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from berncert.extractor import FrozenNetwork
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.operations import (
    Activation,
    Clamp,
    Convolution,
    Distance,
    GroupSort,
    Linear,
    Operation,
    Reshape,
    Scale,
    Shift,
)  # fmt: skip
from berncert.foundation.arrays import Floats
from berncert.polynomial import PolynomialHead

MOST_ENTRIES = MOST_COEFFICIENTS = 2**22
"""A convolution is written out as a matrix up to this size; a head is checked up to this size."""

Part = tuple[dict[str, Any], dict[str, Floats]]
"""The fields of a part of a proof file, and its arrays."""


def head_content(head: PolynomialHead) -> Part:
    """The fields and arrays of a head, as in a proof file."""
    tensors = [tensor.cpu().numpy() for tensor in head.in_float64().tensors]
    if sum(tensor.size for tensor in tensors) > MOST_COEFFICIENTS:
        raise ValueError(
            f"expected a head of up to {MOST_COEFFICIENTS:,} numbers with proof, which is what is checked, got "
            f"{sum(tensor.size for tensor in tensors):,}; choose a lower degree, or certify without proof"
        )
    if head.affine is None and len(head.terms) == 1:
        (raw,) = tensors
        return {"head": "dense", "degrees": [n - 1 for n in raw.shape[1:]]}, {"coefficients": raw.reshape(-1)}
    weight, bias, *coefficients = tensors
    each = list(zip(head.terms, coefficients, strict=True))
    terms = [{"features": list(term.axes), "degrees": [n - 1 for n in c.shape[1:]]} for term, c in each]
    own = {f"{number}.coefficients": c.reshape(-1) for number, c in enumerate(coefficients)}
    fields = {"head": "sum", "features": weight.shape[1], "terms": terms}
    return fields, {"weight": weight.reshape(-1), "bias": bias} | own


def network_content(network: FrozenNetwork) -> Part:
    """The steps of this network, without witnesses; raises a ValueError where there is one that no file can hold."""
    steps: list[dict[str, Any]] = []
    arrays: dict[str, Floats] = {}
    shape = tuple(network.input_shape)
    for number, step in enumerate(network.steps):
        write = WRITERS.get(type(step.operation))
        if write is None or tuple(step.inputs) != (number,):
            raise ValueError(
                f"expected steps that a proof file can hold, one after the other, got {step.layer} ({step.name}); "
                f"proofs are written for {', '.join(kind.__name__ for kind in WRITERS)}; certify without proof, or "
                "certify the head on the features with proof"
            )
        written = write(step.operation, shape)
        shape = tuple(step.operation.output_shape(shape))
        if written is not None:
            arrays |= {f"{len(steps)}.{name}": values for name, values in written[1].items()}
            steps.append(written[0])
    if not steps:
        steps.append({"kind": "clamp", "low": None, "high": None})
    return {"inputs": math.prod(network.input_shape), "steps": steps}, arrays


def _linear(operation: Any, shape: Shape) -> Part:
    weight = operation.weight.double().cpu().numpy()
    bias = np.zeros(len(weight)) if operation.bias is None else operation.bias.double().cpu().numpy()
    return {"kind": "linear", "outputs": len(weight)}, {"weight": weight.reshape(-1), "bias": bias}


def _convolution(operation: Any, shape: Shape) -> Part:
    inputs, outputs = math.prod(shape), math.prod(operation.output_shape(shape))
    if operation.geometry.mode != "zeros" or inputs * outputs > MOST_ENTRIES:
        raise ValueError(
            f"expected convolutions with zero padding, of up to {MOST_ENTRIES} entries as a matrix, got one of "
            f"{outputs} x {inputs}; proofs of larger ones are not written yet; certify without proof"
        )
    bare = replace(operation, bias=None)
    basis = torch.eye(inputs, dtype=torch.float64, device=operation.weight.device).reshape(-1, *shape)
    weight = np.ascontiguousarray(bare.evaluate(basis).flatten(1).T.cpu().numpy())  # each entry is one weight: exact
    nothing = torch.zeros(1, *shape, dtype=torch.float64, device=operation.weight.device)
    bias = operation.evaluate(nothing).flatten().cpu().numpy()
    return {"kind": "linear", "outputs": outputs}, {"weight": weight.reshape(-1), "bias": bias}


def _distance(operation: Any, shape: Shape) -> Part:
    arrays = {"weight": operation.weight.cpu().numpy().reshape(-1), "bias": operation.bias.cpu().numpy()}
    return {"kind": "distance", "outputs": len(operation.bias), "negative": operation.negative}, arrays


def _constant(operation: Any, shape: Shape) -> Part:
    by = operation.by.expand(shape).reshape(-1).cpu().numpy()
    return {"kind": "shift" if isinstance(operation, Shift) else "divide" if operation.divide else "scale"}, {"by": by}


def _clamp(operation: Any, shape: Shape) -> Part:
    ends = [None if end is None or math.isinf(end) else float(end) for end in (operation.low, operation.high)]
    low, high = (None if end is None else end.hex() for end in ends)
    return {"kind": "clamp", "low": low, "high": high}, {}


def _activation(operation: Any, shape: Shape) -> Part:
    if operation.function not in ("relu", "relu6"):
        raise ValueError(f"expected relu or relu6, got {operation.function}; proofs of it are not written yet")
    high = (6.0).hex() if operation.function == "relu6" else None
    return {"kind": "clamp", "low": (0.0).hex(), "high": high}, {}


def _sort(operation: Any, shape: Shape) -> Part:
    return {"kind": "sort", "size": operation.size, "inner": math.prod(shape[1:])}, {}


def _nothing(operation: Any, shape: Shape) -> None:
    """The same numbers in the same order."""


WRITERS: dict[type[Operation], Callable[[Any, Shape], Part | None]] = {
    Linear: _linear, Convolution: _convolution, Distance: _distance, Shift: _constant, Scale: _constant, Clamp: _clamp,
    Activation: _activation, GroupSort: _sort, Reshape: _nothing,
}  # fmt: skip
