"""What to know before curves are compared: contradictions, training images, constant classifiers, other data, ..."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from berncert.certification.status import Claim, constant_class
from berncert.reporting.curves.common_images import differences
from berncert.reporting.curves.curve import Curve
from berncert.runs.records import Run


def warnings_about(curves: Sequence[Curve]) -> list[str]:
    """Warnings about comparing these curves, the worst first."""
    unknown = ", ".join(curve.label for curve in curves if curve.claim is Claim.UNKNOWN)
    return [
        *_contradictions(curves),
        *(f"TRAINING IMAGES: {curve.label}: {seen}" for curve in curves if (seen := curve.training_images)),
        *(f"{curve.label}: {said}" for curve in curves if (said := constant_note(curve.whole_run))),
        *differences(curves),
        *(
            f"{curve.label} was decided at radius {at:g} only: at others, and on average, more may hold than it states"
            for curve in curves
            if (at := curve.run.decided_at) is not None
        ),
        *([f"{unknown}: {Claim.UNKNOWN}, nor in which norm they are: they are taken as l2"] if unknown else []),
        *(f"{curve.label} is not finished: {_done(curve)}" for curve in curves if not curve.whole_run.complete),
    ]


def constant_note(run: Run) -> str:
    """A sentence about a classifier that gives every row one class, wherever it was certified; else nothing.

    Of a table with columns that may not change freely, more is not known of it than that these changes keep the class.
    """
    if run.claim is not Claim.PROVEN or not len(run):
        return ""
    number = constant_class(run.rows["predict"].tolist(), run.radius.tolist())
    if number is None:
        return ""
    if run.about.get("table", {}).get("constraints"):
        return (
            f"every radius is inf because all changes that the constraints admit keep class {number}: they admit too "
            "little, or the smoothed classifier is constant"
        )
    return (
        f"every radius is inf because the smoothed classifier is constant, class {number}: smoothing has ruined it "
        "(raise the degree), or the head never predicts anything else"
    )


def _contradictions(curves: Sequence[Curve]) -> Iterator[str]:
    """Images that an attack broke within the radius that a run of the same model states."""
    attacks = [curve for curve in curves if curve.claim is Claim.ATTACK]
    for curve, attack in product(curves, attacks):
        if curve.claim not in (Claim.PROVEN, Claim.ESTIMATE) or not curve.run.same_task(attack.run):
            continue
        run, attacked = curve.whole_run, attack.whole_run
        shared, rows, attacked_rows = np.intersect1d(run.rows["idx"], attacked.rows["idx"], return_indices=True)
        broken = run.correct[rows] & (run.radius[rows] > attacked.radius[attacked_rows])
        if not broken.any():
            continue
        which = f"{broken.sum()} of the {len(shared)} images in both"
        if curve.claim is Claim.ESTIMATE:
            yield f"{attack.label} broke {which} within the estimate of {curve.label}: it is no bound"
        else:
            yield (
                f"CONTRADICTION: {attack.label} broke {which}, idx {shared[broken][0]} the first, within the radius "
                f"that {curve.label} has proven; one of the two is wrong, or they are not of the same images"
            )


def _done(curve: Curve) -> str:
    return f"{len(curve.whole_run)} of {curve.expected} images; its command, run again, resumes it"
