"""The results of one run by itself: examples, histograms, quantiles, statuses; and the options it was made with."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from berncert.certification.status import Claim
from berncert.foundation.arrays import Floats
from berncert.foundation.rounding import ceil_places, floor_places, percent, percent_places
from berncert.reporting.html.chart import Histogram, histogram, own_scale
from berncert.reporting.html.examples import STATUS_MEANINGS, Examples, broken_radii, examples_of
from berncert.reporting.html.formats import duration, nearest_rank, places_of, with_signs
from berncert.reporting.html.pictures import ImageFinder
from berncert.reporting.html.table_rows import TableContent, table_content
from berncert.runs.records import Run

LONGEST = 500
"""Letters of an option that are shown; an option may list the numbers of all test images."""
QUANTILES = {"least": 0.0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "greatest": 1.0}


@dataclass(frozen=True)
class Results:
    """What the rows of a run show."""

    examples: Examples
    missing_pictures: str
    """Why there are no thumbnails; empty if there are."""
    correct: Histogram
    """The radii of correct images."""
    wrong: Histogram | None
    """The radii of wrong images; an attack has none."""
    quantiles: Sequence[tuple[str, str, str]]
    """Name, radius of the correct images, time of all."""
    total_time: str
    statuses: Sequence[tuple[str, str, str, str]]
    """Name, meaning, how many, percent; the most frequent first."""
    check: str
    """Whether an attack contradicts the radii; empty if there was none."""
    table: TableContent | None
    """What is shown of a run on a table instead of thumbnails."""


def results_of(run: Run, all_runs: Sequence[Run], finder: ImageFinder, limit: int) -> Results | None:
    """The results of that run, with at most so many examples; attacks on the same model are among `all_runs`."""
    if not len(run) or not run.about:
        return None
    gallery = finder.gallery(run.about)
    broken_at = broken_radii(run, all_runs)
    scale = own_scale(run)
    wrong = run.radius[~run.correct & ~run.abstained]
    return Results(
        examples=examples_of(run, broken_at, gallery, limit),
        missing_pictures=gallery.missing,
        correct=histogram(run.radius[run.correct], scale),
        wrong=None if run.claim is Claim.ATTACK or not len(wrong) else histogram(wrong, scale),
        quantiles=list(_quantiles(run)),
        total_time=duration(float(run.rows["time"].sum())),
        statuses=_statuses(run),
        check=_check(run, broken_at),
        table=table_content(run),
    )


def _quantiles(run: Run) -> Iterator[tuple[str, str, str]]:
    """Radii of the correct images and times of all, by nearest rank.

    Radii are rounded down; those at which an attack succeeded, up.
    """
    radii = run.radius[run.correct & (run.radius >= 0)]
    places = places_of(radii)
    rounded = ceil_places if run.claim is Claim.ATTACK else floor_places
    for name, share in QUANTILES.items():
        radius = nearest_rank(radii, share) if len(radii) else math.nan
        yield name, with_signs(rounded(radius, places)), duration(nearest_rank(run.rows["time"], share))


def _statuses(run: Run) -> list[tuple[str, str, str, str]]:
    ordered = Counter(sorted(map(str, run.rows.get("status", ())))).most_common()
    of, places = len(run), percent_places(len(run))
    return [
        (name, STATUS_MEANINGS.get(name, ""), f"{number:,}", percent(number, of, places)) for name, number in ordered
    ]


def _check(run: Run, broken_at: Floats | None) -> str:
    """How many correct images an attack broke within the radius that is claimed for them."""
    if broken_at is None:
        return ""
    attacked = run.correct & ~np.isnan(broken_at)
    within = int((attacked & (broken_at < run.radius)).sum())
    number = f"{within:,}" if within else "none"
    result = f"Of {attacked.sum():,} correct images that were attacked, {number} fell"
    if run.claim is Claim.PROVEN:
        ending = "this cannot be: the proof, the attack or the record is wrong" if within else "as it must be"
        return f"{result} within the proven radius: {ending}."
    return f"{result} within the estimate{': for these it is refuted' if within else '; that proves nothing'}."


def options(about: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The entries of run.json, part by part; the Lipschitz table is shown elsewhere."""
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
    """The value in its shortest clear form."""
    if value is None or value in ({}, [], ""):
        return "none"
    if isinstance(value, list) and all(isinstance(part, (int, float, str)) for part in value):
        return ", ".join(map(str, value))
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text)} characters, in run.json)"
