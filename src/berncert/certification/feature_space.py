"""The proof in feature space: the distance from each sample to the nearest point of the cube with another class."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from berncert.certification.box_search import Answers, Questions, classify, solve
from berncert.certification.inputs import checked_box, checked_features, checked_weights
from berncert.certification.kernels import search
from berncert.certification.kernels.problem import Problem, pose
from berncert.certification.methods import Exact
from berncert.certification.results import Certificates
from berncert.certification.status import Status
from berncert.foundation.arrays import Floats
from berncert.polynomial import SmoothedHead

STATUS = {
    search.PROVEN: Status.PROVEN,
    search.WHOLE_CUBE: Status.WHOLE_CUBE,
    search.TIE: Status.TIE,
    search.BUDGET: Status.BUDGET,
    search.ROUNDING: Status.ROUNDING,
    search.TIME: Status.TIME,
}
DECIDING = 1e-3
"""How closely witnesses are looked for where a decision is asked for: the tolerance plays no part in it."""


def certify_features(
    smoothed: SmoothedHead,
    features: Any,
    method: Exact,
    *,
    weights: Any = None,
    lower: Any = None,
    upper: Any = None,
    norm: float | None = None,
    target: Floats | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Certificates:
    """The certificates of these features; `berncert.certify` says what the options mean.

    norm: instead of the method's. target: a radius for each row at which to decide, instead of the method's.
    """
    x = np.array(checked_features(smoothed, features), order="C")  # a copy: read-only arrays would compile again
    problem = posed(smoothed, method, norm)
    if target is None:
        target = np.full(len(x), math.inf if method.radius is None else method.radius)
    questions = Questions.plain(x, target)
    if weights is not None:
        questions = questions._replace(weight=checked_weights(weights, x.shape))
    tied = np.zeros(len(x), np.bool_)
    if lower is not None or upper is not None:
        low, high = checked_box(lower, upper, x.shape)
        predicted, lead = classify(problem, x)
        tied = lead <= 2 * problem.rounding
        questions = questions._replace(low=low, high=high, predicted=predicted)
    found = solve(problem, questions, threads=threads, max_seconds=method.max_seconds, progress=progress)
    found.radius[tied], found.status[tied] = 0.0, search.TIE
    if method.radius is None:
        return certificates(found)
    ends = [_decided(*row) for row in zip(found.radius, found.upper, target, strict=True)]
    return replace(certificates(found), status=np.array(ends, dtype=object))


def posed(smoothed: SmoothedHead, method: Exact, norm: float | None = None) -> Problem:
    """The problem of the smoothed head, in the terms of the kernels."""
    return pose(
        smoothed.coefficients.detach().cpu().double().numpy(),
        norm=method.norm if norm is None else norm,
        tolerance=method.tolerance if method.radius is None else DECIDING,
        max_boxes=method.max_boxes,
    )


def certificates(found: Answers) -> Certificates:
    """The answers in the words of the public interface."""
    states = np.array([STATUS[s] for s in found.status.tolist()], dtype=object)
    return Certificates(found.predicted, found.radius, found.upper, found.witness, found.rival, states, found.boxes)


def _decided(radius: float, upper: float, target: float) -> Status:
    """Whether the class holds within the target: nothing closer than it changes the class."""
    if radius >= target:
        return Status.HOLDS
    return Status.FALLS if upper < target else Status.UNKNOWN
