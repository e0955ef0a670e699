"""Certified accuracy in numbers: a table for people, a summary for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from berncert.certification.status import Claim
from berncert.foundation.rounding import floor_digits, norm_name, percent, percent_places
from berncert.reporting.curves.curve import Curve, common_norm, counts_at, share_name
from berncert.reporting.curves.curve_warnings import warnings_about
from berncert.reporting.curves.radii import radius_text
from berncert.reporting.tables import TextTable


def accuracy_table(curves: Sequence[Curve], radii: Sequence[float]) -> TextTable:
    """A row for each run: what it claims, how many images, the mean radius, and the share in percent at each radius.

    Radii are rounded down, percentages to the nearest, all with as many decimals as the run with most images needs.
    """
    norm = common_norm(curves)
    if not radii:
        raise ValueError("expected at least one radius, got none")
    claims = [claim for claim in Claim if any(curve.claim is claim for curve in curves)]
    may_abstain = any(curve.may_abstain for curve in curves)
    places = percent_places(max(len(curve.run) for curve in curves))
    rows = []
    for curve in curves:
        shares = [percent(count, len(curve.run), places) for count in counts_at(curve.run, radii)]
        abstained = [str(_abstained(curve)) if curve.may_abstain else "-"] * may_abstain
        images = f"{len(curve.run)} of {curve.expected}" if curve.is_unfinished else str(len(curve.run))
        mean = _mean_radius(curve)
        mean_text = "-" if mean is None or math.isnan(mean) else floor_digits(mean, 3)
        rows.append([curve.label, curve.claim.word, images, *abstained, mean_text, *shares])
    first, *others = map(radius_text, radii)
    return TextTable(
        ["run", "claim", "images", *["abstained"] * may_abstain, "mean\nradius", f"r={first}", *others],
        rows,
        title=f"{share_name(curves).capitalize()} in % at {norm_name(norm)} radius r, in pixel units",
        note="\n".join(f"{claim.word}: {claim.value}" for claim in claims),
        left=2,
    )


def summary(curves: Sequence[Curve], radii: Sequence[float]) -> dict[str, Any]:
    """The table for programs: shares, not percent, in full precision; an attack has no mean radius."""
    return {
        "norm": common_norm(curves),
        "radii": list(radii),
        "curves": [
            {
                "label": curve.label,
                "path": str(curve.run.path),
                "claim": curve.claim.word,
                "data": curve.data or None,
                "images": len(curve.run),
                "images_in_run": len(curve.whole_run),
                "expected_images": curve.expected,
                "abstained": _abstained(curve),
                "mean_radius": _mean_radius(curve),
                "accuracy": curve.run.standing(radii).tolist(),
            }
            for curve in curves
        ],
        "notes": warnings_about(curves),
    }


def _abstained(curve: Curve) -> int:
    return int(curve.run.abstained.sum())


def _mean_radius(curve: Curve) -> float | None:
    return None if curve.claim is Claim.ATTACK else curve.run.mean_radius
