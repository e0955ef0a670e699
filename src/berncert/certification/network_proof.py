"""A frozen network as plain steps, each with what is needed to check how far it moves two points apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
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

MOST_ENTRIES = 2**22
"""A convolution is written out as a matrix up to this size."""
ROOMS = (2.0**-36, 2.0**-30, 2.0**-24, 2.0**-18)
"""By how much the square of a norm is raised, relatively, until a factor of the rest is found."""
MOST = 64
"""Of the two numbers whose ratio is p: a checker compares powers."""
SPREAD = 1 + 2.0**-20
"""Room in the bound of a network: another machine may find other witnesses, whose last bits differ."""
GRID = 2.0**44
"""Factors are rounded to multiples of 1 / GRID, so that a checker has short numbers."""

Written = tuple[dict[str, Any], dict[str, Floats], float]
"""The fields and arrays of a step, and its bound, rounded up."""


@dataclass(frozen=True)
class NetworkProof:
    """The block of a proof file that speaks of the network."""

    fields: dict[str, Any]
    arrays: dict[str, Floats]
    bound: float
    """At least what a checker will find."""


def norm_text(norm: float) -> str:
    """The p of a norm as a ratio of small whole numbers; raises a ValueError where it is none."""
    if norm == math.inf:
        return "inf"
    p = Fraction(norm).limit_denominator(MOST)
    if float(p) != norm or p.numerator > MOST:
        raise ValueError(
            f"expected a norm that is a ratio of whole numbers up to {MOST} with proof, such as 2, 1.5 or 7/3, got "
            f"{norm!r}; certify without proof, or choose another norm"
        )
    return str(p)


def network_proof(network: FrozenNetwork, norm: float) -> NetworkProof:
    """The steps of this network with their witnesses; raises a ValueError where a step or the norm has none."""
    if norm not in (1.0, 2.0, math.inf):
        raise ValueError(f"expected the norm 1, 2 or inf for proofs through a network, got {norm:g}")
    steps: list[dict[str, Any]] = []
    arrays: dict[str, Floats] = {}
    bound, shape = 1.0, tuple(network.input_shape)
    for number, step in enumerate(network.steps):
        write = WRITERS.get(type(step.operation))
        if write is None or tuple(step.inputs) != (number,):
            raise ValueError(
                f"expected steps that a proof file can hold, one after the other, got {step.layer} ({step.name}); "
                f"proofs are written for {', '.join(kind.__name__ for kind in WRITERS)}; certify without proof, or "
                "certify the head on the features with proof"
            )
        written = write(step.operation, shape, norm)
        shape = tuple(step.operation.output_shape(shape))
        if written is not None:
            fields, own, factor = written
            arrays |= {f"{len(steps)}.{name}": values for name, values in own.items()}
            steps.append(fields)
            bound *= factor * (1 + 1e-12)
    if not steps:
        steps.append({"kind": "clamp", "low": None, "high": None})
    inputs = math.prod(network.input_shape)
    fields = {"norm": norm_text(norm), "arithmetic": "real", "inputs": inputs, "steps": steps}
    return NetworkProof(fields, arrays, bound * SPREAD)


def _linear(operation: Any, shape: Shape, norm: float) -> Written:
    weight = operation.weight.double().cpu().numpy()
    bias = np.zeros(len(weight)) if operation.bias is None else operation.bias.double().cpu().numpy()
    return _matrix(weight, bias, norm)


def _matrix(weight: Floats, bias: Floats, norm: float) -> Written:
    fields: dict[str, Any] = {"kind": "linear", "outputs": len(weight)}
    arrays = {"weight": weight.reshape(-1), "bias": bias}
    if norm != 2:
        factor = float(np.abs(weight).sum(axis=1 if norm == math.inf else 0).max())
        return fields, arrays, factor * (1 + weight.size * 2.0**-52)
    side = "outputs" if len(weight) <= weight.shape[1] else "inputs"
    square, columns, rest = _factored(weight if side == "outputs" else weight.T)
    fields |= {"side": side, "square": square.hex()}
    return fields, arrays | {"factor": columns}, math.sqrt(square + rest) * (1 + 1e-12)


def _factored(rows: Floats) -> tuple[float, Floats, float]:
    """s2, the columns of a rounded factor R, and a bound on the row sums of |s2 I - rows rows^T - R^T R|."""
    gram = rows @ rows.T
    n, top = len(gram), float(np.linalg.eigvalsh(gram)[-1])
    for room in ROOMS:
        square = top * (1 + room) + 2.0**-60
        try:
            factor = np.round(np.linalg.cholesky(square * np.eye(n) - gram).T * GRID) / GRID
        except np.linalg.LinAlgError:
            continue
        break
    else:
        factor = np.zeros((n, n))
    rest = np.abs(square * np.eye(n) - gram - factor.T @ factor).sum(axis=1).max()
    rounding = 8 * (n + rows.shape[1]) * 2.0**-53 * n * (square + top)
    columns = np.concatenate([factor[: j + 1, j] for j in range(n)])
    return square, columns, float(rest) + rounding


def _convolution(operation: Any, shape: Shape, norm: float) -> Written:
    inputs, outputs = math.prod(shape), math.prod(operation.output_shape(shape))
    if operation.geometry.mode != "zeros" or inputs * outputs > MOST_ENTRIES:
        raise ValueError(
            f"expected convolutions with zero padding, of up to {MOST_ENTRIES} entries as a matrix, got one of "
            f"{outputs} x {inputs}; proofs of larger ones are not written yet; certify without proof"
        )
    bare = replace(operation, bias=None)
    basis = torch.eye(inputs, dtype=torch.float64, device=operation.weight.device).reshape(-1, *shape)
    weight = bare.evaluate(basis).flatten(1).T.cpu().numpy()  # each entry is one weight: exact
    nothing = torch.zeros(1, *shape, dtype=torch.float64, device=operation.weight.device)
    return _matrix(np.ascontiguousarray(weight), operation.evaluate(nothing).flatten().cpu().numpy(), norm)


def _distance(operation: Any, shape: Shape, norm: float) -> Written:
    if norm != math.inf:
        raise ValueError(f"expected the norm inf for distances, got {norm:g}; certify with norm=inf")
    arrays = {"weight": operation.weight.cpu().numpy().reshape(-1), "bias": operation.bias.cpu().numpy()}
    return {"kind": "distance", "outputs": len(operation.bias), "negative": operation.negative}, arrays, 1.0


def _constant(operation: Any, shape: Shape, norm: float) -> Written:
    by = operation.by.expand(shape).reshape(-1).cpu().numpy()
    if isinstance(operation, Shift):
        return {"kind": "shift"}, {"by": by}, 1.0
    if operation.divide:
        return {"kind": "divide"}, {"by": by}, float(1 / np.abs(by).min()) * (1 + 2.0**-50)
    return {"kind": "scale"}, {"by": by}, float(np.abs(by).max())


def _clamp(operation: Any, shape: Shape, norm: float) -> Written:
    ends = [None if end is None or math.isinf(end) else float(end) for end in (operation.low, operation.high)]
    low, high = (None if end is None else end.hex() for end in ends)
    return {"kind": "clamp", "low": low, "high": high}, {}, 1.0


def _activation(operation: Any, shape: Shape, norm: float) -> Written:
    if operation.function not in ("relu", "relu6"):
        raise ValueError(f"expected relu or relu6, got {operation.function}; proofs of it are not written yet")
    return (
        {"kind": "clamp", "low": (0.0).hex(), "high": (6.0).hex() if operation.function == "relu6" else None},
        {},
        1.0,
    )


def _sort(operation: Any, shape: Shape, norm: float) -> Written:
    return {"kind": "sort", "size": operation.size, "inner": math.prod(shape[1:])}, {}, 1.0


def _nothing(operation: Any, shape: Shape, norm: float) -> None:
    """The same numbers in the same order."""


WRITERS: dict[type[Operation], Callable[[Any, Shape, float], Written | None]] = {
    Linear: _linear, Convolution: _convolution, Distance: _distance, Shift: _constant, Scale: _constant, Clamp: _clamp,
    Activation: _activation, GroupSort: _sort, Reshape: _nothing,
}  # fmt: skip
