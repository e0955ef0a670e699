"""What is needed to check how far each step of a frozen network moves two points apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from berncert.certification.proof_content import network_content
from berncert.extractor import FrozenNetwork
from berncert.foundation.arrays import Floats

ROOMS = (2.0**-36, 2.0**-30, 2.0**-24, 2.0**-18)
"""By how much the square of a norm is raised, relatively, until a factor of the rest is found."""
MOST = 64
"""Of the two numbers whose ratio is p: a checker compares powers."""
SPREAD = 1 + 2.0**-20
"""Room in the bound of a network: another machine may find other witnesses, whose last bits differ."""
GRID = 2.0**44
"""Factors are rounded to multiples of 1 / GRID, so that a checker has short numbers."""


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
    fields, arrays = network_content(network)
    bound = 1.0
    for number, step in enumerate(fields["steps"]):
        factor, witness = _bound(step, {name: arrays.get(f"{number}.{name}") for name in ("weight", "by")}, norm)
        arrays |= {f"{number}.{name}": values for name, values in witness.items()}
        bound *= factor * (1 + 1e-12)
    return NetworkProof({"norm": norm_text(norm), "arithmetic": "real"} | fields, arrays, bound * SPREAD)


def _bound(step: dict[str, Any], arrays: dict[str, Any], norm: float) -> tuple[float, dict[str, Floats]]:
    """A bound of a step, rounded up, and the arrays of its witness, whose fields are added to the step."""
    kind, by = step["kind"], arrays["by"]
    if kind == "linear":
        return _matrix_bound(step, arrays["weight"].reshape(step["outputs"], -1), norm)
    if kind == "distance" and norm != math.inf:
        raise ValueError(f"expected the norm inf for distances, got {norm:g}; certify with norm=inf")
    if kind == "divide":
        return float(1 / np.abs(by).min()) * (1 + 2.0**-50), {}
    return float(np.abs(by).max()) if kind == "scale" else 1.0, {}


def _matrix_bound(step: dict[str, Any], weight: Floats, norm: float) -> tuple[float, dict[str, Floats]]:
    if norm != 2:
        factor = float(np.abs(weight).sum(axis=1 if norm == math.inf else 0).max())
        return factor * (1 + weight.size * 2.0**-52), {}
    side = "outputs" if len(weight) <= weight.shape[1] else "inputs"
    square, columns, rest = _factored(weight if side == "outputs" else weight.T)
    step |= {"side": side, "square": square.hex()}
    return math.sqrt(square + rest) * (1 + 1e-12), {"factor": columns}


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
