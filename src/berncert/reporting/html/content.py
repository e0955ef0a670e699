"""Runs as the plain content of a report: every number as it is shown, nothing of how it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from berncert.floor.claims import Claim
from berncert.floor.rounding import floor_places, percent, percent_places
from berncert.reporting import curves
from berncert.reporting.curves.accuracy import abstains, training_images
from berncert.reporting.html.chart import COARSE, FINE, Reading, Scale, common_scale, outline, reading
from berncert.reporting.html.detail import Shown, options, shown
from berncert.reporting.html.formats import count, duration, nearest_rank, norm_name, places_for, with_signs
from berncert.reporting.html.pictures import Finder
from berncert.runs.records import Run

MOST_RUNS = 10


@dataclass(frozen=True)
class Entry:
    """A run in the report."""

    number: int
    """From 1: its colour, and its name in the page."""
    label: str
    run: Run
    """The rows that are counted."""
    whole: Run
    """All rows: of runs on unequal images, more than those that are counted."""

    @property
    def claim(self) -> str:
        """What it is called."""
        return self.run.claim.word

    @property
    def style(self) -> str:
        """How its line is drawn: a class of the style sheet."""
        return self.run.claim.name.lower()

    @property
    def training_images(self) -> str:
        """What is to be said of training images among those of the run; empty if there are none."""
        return training_images(self.run)

    @property
    def meaning(self) -> str:
        """What the claim says."""
        return str(self.run.claim)

    @property
    def confidence(self) -> str:
        """The probability with which each row holds, of randomized smoothing."""
        alpha = self.run.about.get("settings", {}).get("alpha")
        return f"{1 - alpha:.12g}" if isinstance(alpha, float) and self.run.claim is Claim.PROBABLE else ""

    @property
    def data(self) -> str:
        """The name of its images."""
        return curves.Curve(self.label, self.run).data or "not told"

    @property
    def images(self) -> str:
        """How many are counted; of a run that is not complete, of how many."""
        done = count(len(self.run))
        return (
            done
            if self.whole.complete or self.run is not self.whole
            else f"{done} of {count(self.run.about['data']['images'])}"
        )

    @property
    def right(self) -> str:
        """The share of right images, in percent, to the nearest."""
        of = len(self.run)
        return percent(int(self.run.correct.sum()), of, percent_places(of)) if of else ""

    @property
    def abstained(self) -> str:
        """How often no class was told, of what may tell none."""
        may = abstains(curves.Curve(self.label, self.run))
        return count(int(self.run.abstained.sum())) if may else ""

    @property
    def mean_radius(self) -> str:
        """Average certified radius, rounded down; an attack has none."""
        if not len(self.run) or self.run.claim is Claim.ATTACK:
            return ""
        mean = self.run.mean_radius
        return with_signs(floor_places(mean, places_for(mean)))

    @property
    def median_time(self) -> str:
        """Per image."""
        return duration(nearest_rank(self.run.rows["time"], 0.5)) if len(self.run) else ""


@dataclass(frozen=True)
class Drawn:
    """The curve of one run, on the scale of its group."""

    entry: Entry
    path: str
    reading: Reading


@dataclass(frozen=True)
class Group:
    """The runs of one norm: a summary and a chart."""

    norm: str
    entries: tuple[Entry, ...]
    scale: Scale
    curves: tuple[Drawn, ...]
    """Of those that have rows."""
    start: int
    """The step at which the chart is read at first."""
    notes: Sequence[str] = ()
    """What to know before these runs are compared."""

    @property
    def summary_steps(self) -> range:
        """Where the summary tells the accuracy: at the ticks but 0."""
        return range(FINE, self.scale.last + 1, FINE)

    @property
    def table_steps(self) -> range:
        """Where the chart's table does."""
        return range(0, self.scale.last + 1, COARSE)

    def curve(self, entry: Entry) -> Drawn | None:
        """Of that run, if it has rows."""
        return next((curve for curve in self.curves if curve.entry is entry), None)


@dataclass(frozen=True)
class Detail:
    """One run by itself."""

    entry: Entry
    shown: Shown | None
    """What its rows show, if it has any."""

    @property
    def options(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """How it was made."""
        return options(self.entry.run.about)

    @property
    def lipschitz(self) -> Mapping[str, Any]:
        """The bound of the extractor, layer by layer, where it is told."""
        return self.entry.run.about.get("lipschitz") or {}


@dataclass(frozen=True)
class Report:
    """A page."""

    title: str
    lead: str
    groups: tuple[Group, ...]
    details: tuple[Detail, ...]
    """Of the runs that have a run.json."""

    @property
    def claims(self) -> list[tuple[str, str, str]]:
        """Those that are made: the style of their lines, what they are called, what they mean."""
        made = {entry.run.claim for entry in self.entries}
        return [(claim.name.lower(), claim.word, str(claim)) for claim in Claim if claim in made]

    @property
    def training_images(self) -> list[tuple[str, str]]:
        """Which runs are on training images, and what is to be said of it."""
        return [(entry.label, seen) for entry in self.entries if (seen := entry.training_images)]

    @property
    def entries(self) -> list[Entry]:
        """All runs, as they were given."""
        return sorted((entry for group in self.groups for entry in group.entries), key=lambda entry: entry.number)


def report(
    runs: Sequence[tuple[str, Run]],
    *,
    title: str | None = None,
    examples: int = 200,
    data_dir: str | PathLike[str] | None = None,
    own_images: bool = False,
) -> Report:
    """The content of the page about these runs, each with its label.

    Summary and curves are of the images that all runs over the same data have, unless each is to be on its own_images;
    what is shown of one run by itself is of all of its images.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ValueError(
            f"expected 1 to {MOST_RUNS} runs, got {len(runs)}; more curves cannot be told apart: make several reports"
        )
    entries = [Entry(number, label, run, run) for number, (label, run) in enumerate(runs, 1)]
    groups = tuple(
        _group([entry for entry in entries if entry.run.norm == norm], own_images) for norm in _norms(entries)
    )
    finder = Finder(data_dir)
    given = [entry.run for entry in entries]
    details = tuple(Detail(entry, shown(run, given, finder, examples)) for entry in entries if (run := entry.run).about)
    return Report(title or _title(entries), _lead(groups), groups, details)


def _norms(entries: Sequence[Entry]) -> list[float]:
    return list(dict.fromkeys(entry.run.norm for entry in entries))


def _group(entries: Sequence[Entry], own_images: bool) -> Group:
    lines = [curves.Curve(entry.label, entry.run) for entry in entries]
    notes: list[str] = []
    if not own_images:
        lines, notes = curves.on_common_images(lines)
        entries = [replace(entry, run=line.run) for entry, line in zip(entries, lines, strict=True)]
    filled = [entry for entry in entries if len(entry.run)]
    scale = common_scale([entry.run for entry in filled])
    drawn = tuple(Drawn(entry, outline(entry.run, scale), reading(entry.run, scale)) for entry in filled)
    notes = [*notes, *curves.warnings_about(lines)]
    return Group(norm_name(entries[0].run.norm), tuple(entries), scale, drawn, _start(drawn, scale), notes)


def _start(drawn: Sequence[Drawn], scale: Scale) -> int:
    """The row of the table next to half the median radius of the main run's right images: most is to be told there."""
    if not drawn:
        return FINE
    run = main_curve(drawn).entry.run
    radii = run.radius[run.correct & np.isfinite(run.radius)]
    wanted = float(np.median(radii)) / 2 if len(radii) else 0.0
    return int(np.clip(round(wanted / float(scale.step) / COARSE), 1, scale.last // COARSE)) * COARSE


def main_curve(drawn: Sequence[Drawn]) -> Drawn:
    """The first that proves something, else the first."""
    return next((curve for curve in drawn if curve.entry.run.claim is Claim.PROVEN), drawn[0])


def _title(entries: Sequence[Entry]) -> str:
    if len(entries) == 1:
        return f"Robustness report: {entries[0].label}"
    names = dict.fromkeys(entry.run.about["data"]["name"] for entry in entries if entry.run.about)
    return f"Robustness report: {len(entries)} runs{' on ' if names else ''}{', '.join(names)}"


_LEADS = {
    Claim.PROVEN: "are proven to keep it under every change whose {norm} norm is less than {radius}",
    Claim.PROBABLE: "keep it with a stated probability under every change whose {norm} norm is less than {radius}",
    Claim.ESTIMATE: "are estimated, not proven, to keep it up to an {norm} distance of {radius}",
    Claim.UNKNOWN: "have an {norm} radius of at least {radius} in a table that does not say what it claims",
    Claim.ATTACK: "kept it under the attack at an {norm} distance of {radius}: no proof can give more",
}


def _lead(groups: Sequence[Group]) -> str:
    """The main result in a sentence: of the first run that proves something, else of the first with rows."""
    drawn = [curve for group in groups for curve in group.curves]
    if not drawn:
        return "None of these runs has rows yet."
    curve = main_curve(drawn)
    entry, group = curve.entry, next(group for group in groups if curve in group.curves)
    kept = _LEADS[entry.run.claim].format(norm=group.norm, radius=group.scale.text(group.start))
    of = f"{count(len(entry.run))} images of {entry.data}" if entry.run.about else f"{count(len(entry.run))} images"
    share = curve.reading.percent(group.start)
    told = f"f {of}, {entry.right}\u00a0% are given the right class and {share}\u00a0% {kept}."
    return f"O{told}" if len(drawn) == 1 else f"{entry.label}: o{told}"
