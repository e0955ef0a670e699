"""What one run shows by itself: its examples, its histograms, how its rows ended, and how it was made."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from berncert.floor.arrays import Floats
from berncert.floor.claims import Claim
from berncert.floor.rounding import ceil_places, floor_places, percent, percent_places
from berncert.reporting.html.chart import Histogram, histogram, own_scale
from berncert.reporting.html.examples import STATUSES, Examples, examples_of, falls_of
from berncert.reporting.html.formats import count, duration, nearest_rank, places_for, with_signs
from berncert.reporting.html.pictures import Finder
from berncert.runs.records import Run

LONGEST = 500
"""Letters of an option; the numbers of all test images may be many more."""
QUANTILES = {"least": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "greatest": 1.0}


@dataclass(frozen=True)
class Shown:
    """What the rows of a run show."""

    examples: Examples
    missing_pictures: str
    """Why there are no thumbnails; empty if there are."""
    right: Histogram
    """Of the radii of right images."""
    wrong: Histogram | None
    """Of those that are wrong; an attack has none to tell."""
    quantiles: Sequence[tuple[str, str, str]]
    """Name, radius of the right images, time of all."""
    total_time: str
    statuses: Sequence[tuple[str, str, str, str]]
    """Name, meaning, how many, percent; the most frequent first."""
    check: str
    """What an attack says of the radii, if there was one."""


def shown(run: Run, given: Sequence[Run], finder: Finder, limit: int) -> Shown | None:
    """Of that run, with at most so many examples; attacks among the given runs tell where its images were broken."""
    if not len(run):
        return None
    gallery = finder.gallery(run.about)
    falls = falls_of(run, given)
    scale = own_scale(run)
    wrong = run.radius[~run.correct & ~run.abstained]
    return Shown(
        examples=examples_of(run, falls, gallery, limit),
        missing_pictures=gallery.missing,
        right=histogram(run.radius[run.correct], scale),
        wrong=None if run.claim is Claim.ATTACK or not len(wrong) else histogram(wrong, scale),
        quantiles=list(_quantiles(run)),
        total_time=duration(float(run.rows["time"].sum())),
        statuses=_statuses(run),
        check=_check(run, falls),
    )


def _quantiles(run: Run) -> Iterator[tuple[str, str, str]]:
    """Radii of the right images and times of all; values that are there, nothing between them.

    Radii are rounded down; where an attack succeeded, up.
    """
    right = run.radius[run.correct & (run.radius >= 0)]
    finite = right[np.isfinite(right) & (right > 0)]
    places = places_for(float(np.median(finite))) if len(finite) else 3
    rounded = ceil_places if run.claim is Claim.ATTACK else floor_places
    for name, share in QUANTILES.items():
        radius = nearest_rank(right, share) if len(right) else math.nan
        yield name, with_signs(rounded(radius, places)), duration(nearest_rank(run.rows["time"], share))


def _statuses(run: Run) -> list[tuple[str, str, str, str]]:
    names = Counter(map(str, run.rows.get("status", ())))
    ordered = sorted(names.items(), key=lambda pair: (-pair[1], pair[0]))
    of, places = len(run), percent_places(len(run))
    return [(name, STATUSES.get(name, ""), count(number), percent(number, of, places)) for name, number in ordered]


def _check(run: Run, falls: Floats | None) -> str:
    """How many right images an attack broke within what is claimed of them."""
    if falls is None:
        return ""
    attacked = run.correct & ~np.isnan(falls)
    within = int((attacked & (falls < run.radius)).sum())
    told = (
        f"Of {count(int(attacked.sum()))} right images that were attacked, {count(within) if within else 'none'} fell"
    )
    if run.claim is Claim.PROVEN:
        ending = "this cannot be: the proof, the attack or the record is wrong" if within else "as it must be"
        return f"{told} within the proven radius: {ending}."
    return f"{told} within the estimate{': for these it is refuted' if within else '; that proves nothing'}."


def options(about: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """run.json, part by part; the Lipschitz table is shown elsewhere."""
    plain = [(key, _text(value)) for key, value in about.items() if not isinstance(value, Mapping)]
    parts = {key: value for key, value in about.items() if isinstance(value, Mapping) and key != "lipschitz"}
    return [("run", plain), *((key, list(_flat(value))) for key, value in parts.items())]


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, part in value.items():
        if isinstance(part, Mapping) and part:
            yield from _flat(part, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(part)


def _text(value: Any) -> str:
    """As short as it can be without a doubt."""
    if value is None or value in ({}, [], ""):
        return "none"
    if isinstance(value, list) and all(isinstance(part, (int, float, str)) for part in value):
        return ", ".join(map(str, value))
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text)} characters, in run.json)"
