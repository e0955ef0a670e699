"""Runs as the plain content of a report: every number as it is shown, nothing of how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike

import numpy as np

from berncert.certification.status import Claim
from berncert.foundation.rounding import floor_places, percent, percent_places
from berncert.reporting.curves import Curve, on_common_images, warnings_about
from berncert.reporting.html.chart import COARSE, FINE, Reading, Scale, common_scale, correct_radii, outline, reading
from berncert.reporting.html.formats import duration, nearest_rank, norm_name, places_of, with_signs
from berncert.reporting.html.pictures import ImageFinder
from berncert.reporting.html.results import Results, results_of
from berncert.reporting.html.table_rows import things
from berncert.runs.records import Run

MOST_RUNS = 10


@dataclass(frozen=True, eq=False)
class Entry(Curve):
    """A run in the report; if it has rows, with its curve on the scale of its group."""

    number: int = 0
    """From 1: the run's colour, and its name in the page."""
    path: str = ""
    reading: Reading | None = None
    results: Results | None = None
    """What the rows show, if there are any, and a run.json."""

    @property
    def confidence(self) -> str:
        """The probability with which each row of randomized smoothing holds; empty for other runs."""
        alpha = self.run.about.get("settings", {}).get("alpha")
        return f"{1 - alpha:.12g}" if isinstance(alpha, float) and self.claim is Claim.PROBABLE else ""

    @property
    def things(self) -> str:
        """What the run has lines for: images, or rows of a table."""
        return things(self.run.about)

    @property
    def claim_text(self) -> str:
        """What the radii say, about images or rows."""
        return self.claim.value.replace("no image", "no admissible row") if self.things == "rows" else self.claim.value

    @property
    def images(self) -> str:
        """How many images are counted, and out of how many if the run is not finished."""
        done = f"{len(self.run):,}"
        return f"{done} of {self.expected:,}" if self.is_unfinished else done

    @property
    def clean_accuracy(self) -> str:
        """The share of correct images, in percent, to the nearest."""
        of = len(self.run)
        return percent(int(self.run.correct.sum()), of, percent_places(of)) if of else ""

    @property
    def abstained(self) -> str:
        """How many images were left without a class; empty where that cannot happen."""
        return f"{self.run.abstained.sum():,}" if self.may_abstain else ""

    @property
    def mean_radius(self) -> str:
        """The average certified radius, rounded down; empty for an attack."""
        if not len(self.run) or self.claim is Claim.ATTACK:
            return ""
        mean = self.run.mean_radius
        return with_signs(floor_places(mean, places_of(mean)))

    @property
    def median_time(self) -> str:
        """The median time of an image."""
        return duration(nearest_rank(self.run.rows["time"], 0.5)) if len(self.run) else ""


@dataclass(frozen=True)
class Group:
    """The runs of one norm: a summary and a chart."""

    norm: str
    entries: Sequence[Entry]
    scale: Scale
    start: int
    """The step at which the chart is read at first."""
    notes: Sequence[str]
    """What to know before these runs are compared."""

    @property
    def summary_steps(self) -> range:
        """The steps at which the summary has the accuracy: all ticks but 0."""
        return range(FINE, self.scale.last + 1, FINE)

    @property
    def table_steps(self) -> range:
        """The steps at which the chart's table has the accuracy."""
        return range(0, self.scale.last + 1, COARSE)

    @property
    def curves(self) -> list[Entry]:
        """The runs that have rows, and so a curve."""
        return [entry for entry in self.entries if entry.reading]


@dataclass(frozen=True)
class Report:
    """All that a page says."""

    title: str
    lead: str
    groups: tuple[Group, ...]
    entries: Sequence[Entry]
    """All runs, each on all of its images."""

    @property
    def details(self) -> list[Entry]:
        """The runs that are shown one by one: those that have a run.json."""
        return [entry for entry in self.entries if entry.run.about]

    @property
    def things(self) -> str:
        """What the runs have lines for: images, or rows of tables."""
        kinds = {things(entry.run.about) for entry in self.entries}
        return kinds.pop() if len(kinds) == 1 else "images"

    @property
    def claims(self) -> list[Claim]:
        """The claims that these runs make."""
        return [claim for claim in Claim if any(entry.claim is claim for entry in self.entries)]


def report(
    runs: Sequence[tuple[str, Run]],
    *,
    title: str | None = None,
    examples: int = 200,
    data_dir: str | PathLike[str] | None = None,
    own_images: bool = False,
) -> Report:
    """The content of a page about these labelled runs.

    Summary and curves are of the images that all runs over the same data have, or with `own_images` of all images of
    each run; what is shown of one run by itself is always of all its images. At most `examples` images of each run are
    shown; they are looked for in `data_dir`, never downloaded.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ValueError(
            f"expected 1 to {MOST_RUNS} runs, got {len(runs)}; more curves look too much alike: make several reports"
        )
    finder, all_runs = ImageFinder(data_dir), [run for _, run in runs]
    entries = [
        Entry(label, run, number=number, results=results_of(run, all_runs, finder, examples))
        for number, (label, run) in enumerate(runs, 1)
    ]
    norms = dict.fromkeys(entry.run.norm for entry in entries)
    groups = tuple(_group([entry for entry in entries if entry.run.norm == norm], own_images) for norm in norms)
    return Report(title or _title(entries), _lead(groups), groups, entries)


def _group(entries: Sequence[Entry], own_images: bool) -> Group:
    shown, notes = (entries, []) if own_images else on_common_images(entries)
    filled = [entry for entry in shown if len(entry.run)]
    scale = common_scale([entry.run for entry in filled])
    drawn = [
        replace(entry, path=outline(entry.run, scale), reading=reading(entry.run, scale)) if len(entry.run) else entry
        for entry in shown
    ]
    notes = [*notes, *warnings_about(shown)]
    return Group(norm_name(entries[0].run.norm), drawn, scale, _start(filled, scale), notes)


def _start(filled: Sequence[Entry], scale: Scale) -> int:
    """The row of the chart's table nearest to half the median radius of the main run, where curves differ most."""
    if not filled:
        return FINE
    radii = correct_radii(main_entry(filled).run)
    wanted = float(np.median(radii)) / 2 if len(radii) else 0.0
    return int(np.clip(round(wanted / float(scale.step) / COARSE), 1, scale.last // COARSE)) * COARSE


def main_entry(entries: Sequence[Entry]) -> Entry:
    """The first run that proves something, else the first."""
    return next((entry for entry in entries if entry.claim is Claim.PROVEN), entries[0])


def _title(entries: Sequence[Entry]) -> str:
    if len(entries) == 1:
        return f"Robustness report: {entries[0].label}"
    names = dict.fromkeys(entry.run.about["data"]["name"] for entry in entries if entry.run.about)
    return f"Robustness report: {len(entries)} runs{' on ' if names else ''}{', '.join(names)}"


_LEADS = {
    Claim.PROVEN: "are proven to stay so under every change whose {norm} norm is less than {radius}",
    Claim.PROBABLE: "stay so with a stated probability under every change whose {norm} norm is less than {radius}",
    Claim.ESTIMATE: "are estimated, not proven, to stay so up to an {norm} distance of {radius}",
    Claim.UNKNOWN: "have an {norm} radius of at least {radius} in a table that does not say what it claims",
    Claim.ATTACK: "stayed so under the attack at an {norm} distance of {radius}: no proof can give more",
}


def _lead(groups: Sequence[Group]) -> str:
    """The main result in a sentence: that of the first run that proves something, else of the first with rows."""
    drawn = [(entry, group) for group in groups for entry in group.curves]
    if not drawn:
        return "None of these runs has rows yet."
    entry = main_entry([entry for entry, _ in drawn])
    group = dict(drawn)[entry]
    assert entry.reading is not None
    kept = _LEADS[entry.claim].format(norm=group.norm, radius=group.scale.text(group.start))
    of = f"{len(entry.run):,} {things(entry.run.about)}{f' of {entry.data}' if entry.run.about else ''}"
    share = entry.reading.percent(group.start)
    result = f"f {of}, {entry.clean_accuracy}\u00a0% are classified correctly and {share}\u00a0% {kept}."
    return f"O{result}" if len(drawn) == 1 else f"{entry.label}: o{result}"
