"""Proofs about rows of a table: the way from columns to features, as a proof file holds it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from berncert.certification.box_search import Answers
from berncert.certification.feature_space import certificates, certify_features
from berncert.certification.methods import Exact
from berncert.certification.network_proof import norm_text
from berncert.certification.proof_content import Part
from berncert.certification.proof_file import Block, block
from berncert.certification.proof_rows import Inputs, Question, Recorder
from berncert.certification.results import Certificates
from berncert.certification.status import Status
from berncert.estimators.constraints import Admissible, ConstraintOptions
from berncert.estimators.reduction import UP, Reduction, Route, rounded_norms
from berncert.foundation.arrays import Flags, Floats
from berncert.polynomial import PolynomialHead

OUTWARDS = 2.0**-49
"""By how much limits of features are widened: more than rounding moves a feature."""
LARGEST = float(np.finfo(np.float64).max)
"""Stands for no limit: no float is beyond it."""


def check_provable(constraints: ConstraintOptions) -> None:
    """Raise a ValueError if proofs are asked for under constraints that a proof file cannot state."""
    if constraints.get("whole") or constraints.get("categories"):
        raise ValueError(
            "expected no whole and no categories with proof, got some: a proof file has no branches; leave them out: "
            "whole numbers and categories are then taken as continuous, which only lowers radii"
        )


def proof_route(reduction: Reduction, norm: float) -> Route:
    """The way from columns to features that proofs take: the first is in the norm of the columns, or in l-inf."""
    return reduction.routes(norm)[0]


def table_opening(head: PolynomialHead, reduction: Reduction, norm: float) -> list[Block]:
    """The first blocks of a file: the head, and the way from columns to features."""
    recorder, (fields, arrays) = Recorder(head, proof_route(reduction, norm)[0]), table_content(reduction)
    return [recorder.opening(), block("NET", {"norm": norm_text(norm), "arithmetic": "real"} | fields, **arrays)]


def table_content(reduction: Reduction) -> Part:
    """The steps of (x - low) / width, clamped, with a projection before."""
    count, kept, mixed = reduction.scale.size, reduction.kept, reduction.mixed
    own, first = len(kept), {"shift": np.zeros(count), "divide": np.ones(count)}
    first["shift"][kept], first["divide"][kept] = -reduction.low[:own], reduction.width[:own]
    first["shift"][mixed], first["divide"][mixed] = -reduction.centre[mixed], reduction.scale[mixed]
    matrix = np.zeros((reduction.dim, count))
    matrix[np.arange(own), kept] = 1.0
    if len(mixed):
        matrix[own:, mixed] = reduction.matrix
    low, width = np.zeros(reduction.dim), np.ones(reduction.dim)
    low[own:], width[own:] = -reduction.low[own:], reduction.width[own:]
    steps = [
        {"kind": "shift"}, {"kind": "divide"}, {"kind": "linear", "outputs": reduction.dim}, {"kind": "shift"},
        {"kind": "divide"}, {"kind": "clamp", "low": (0.0).hex(), "high": (1.0).hex()},
    ]  # fmt: skip
    arrays = {
        "0.by": first["shift"], "1.by": first["divide"], "2.weight": matrix.reshape(-1), "2.bias": 0 * low,
        "3.by": low, "4.by": width, "units": reduction.scale,
    }  # fmt: skip
    return {"inputs": count, "steps": steps}, arrays


def table_rows(
    head: PolynomialHead, reduction: Reduction, x: Floats, allowed: Admissible, inner: Answers, radius: Floats,
    method: Exact, numbers: Sequence[int] | None, threads: int | None,
) -> tuple[Floats, Flags, list[Block]]:  # fmt: skip
    """The radii that are proven in a file, which of them may be far from the largest, and the file's rows.

    inner: what was found in features, along the route of proofs. Where more than features count (a row outside the
    domain, a column without an axis that must move), a proof takes the nearest features instead, which lowers radii.
    """
    q, weight, gain = proof_route(reduction, method.norm)
    raw = reduction.unclipped(x)
    features, low, high = np.clip(raw, 0.0, 1.0), *_limits(reduction, x, allowed)
    asked = Question(features, np.tile(weight, (len(x), 1)), low, high)
    found = _relaxed(certificates(inner), head, asked, _more_than_features(reduction, x, raw, allowed), method, q)
    error = rounded_norms(weight * reduction.feature_error(x)[0], q)
    ends = [np.clip(part, -LARGEST, LARGEST) for part in (allowed.low, allowed.high)]
    inputs = Inputs(x, radius, error, gain * UP, np.concatenate(ends, axis=1))
    proven, lowered, blocks = Recorder(head, q).rows(
        asked, found, numbers=numbers, inputs=inputs, threads=threads, progress=False
    )
    return lowered, proven.status == Status.BUDGET, blocks


def _limits(reduction: Reduction, x: Floats, allowed: Admissible) -> tuple[Floats, Floats]:
    """The features that admissible rows can have, a little wider: (low, high), (N, axes) each."""
    found = []
    for limits, default, way in ((allowed.low, 0.0, -OUTWARDS), (allowed.high, 1.0, OUTWARDS)):
        known = np.isfinite(limits)
        ends = reduction.unclipped(np.where(known, limits, x)) + way
        own = len(reduction.kept)
        ends[:, own:] = default
        ends[:, :own] = np.where(known[:, reduction.kept], ends[:, :own], default)
        found.append(np.clip(ends, 0.0, 1.0))
    return found[0], found[1]


def _more_than_features(reduction: Reduction, x: Floats, raw: Floats, allowed: Admissible) -> Flags:
    rest = np.setdiff1d(np.arange(x.shape[1]), np.concatenate([reduction.kept, reduction.mixed]))
    moved = (x < allowed.low) | (x > allowed.high)
    return np.asarray(((raw < 0) | (raw > 1)).any(axis=1) | moved[:, rest].any(axis=1))


def _relaxed(
    found: Certificates, head: PolynomialHead, asked: Question, which: Flags, method: Exact, norm: float
) -> Certificates:
    """The certificates, those of some rows searched again from their features."""
    if not which.any():
        return found
    features, weight, low, high = (part[which] for part in asked)
    again = certify_features(head, features, method, norm=norm, weights=weight, lower=low, upper=high, progress=False)
    rows = np.arange(len(found))
    rows[which] = len(found) + np.arange(int(which.sum()))
    both = Certificates.concatenate([found, again])[rows]
    both.radius[which & (both.predicted != found.predicted)] = 0.0
    return both
