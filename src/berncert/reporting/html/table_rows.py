"""What a report shows of a run on a table: the changes of counterfactuals, and the effect of each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from berncert.foundation.arrays import Floats
from berncert.foundation.rounding import ceil_digits, floor_digits
from berncert.runs.records import Run

MOST_CHANGES = 8
"""Columns of a counterfactual that are shown, those that change most."""
SHOWN = 12
PLOTS = 16
WIDTH, HEIGHT = 220.0, 120.0


@dataclass(frozen=True)
class Change:
    """What a counterfactual changes in one column."""

    column: str
    before: str
    after: str
    steps: float
    """In standard deviations, with its sign."""

    @property
    def kind(self) -> str:
        return "up" if self.steps > 0 else "down"

    @property
    def width(self) -> str:
        """Of its bar, in percent; 2 standard deviations fill it."""
        return f"{min(100.0, 50.0 * abs(self.steps)):.1f}"

    @property
    def size(self) -> str:
        return f"{self.steps:+.2f}"


@dataclass(frozen=True)
class TableRow:
    """One row of the table with its counterfactual."""

    index: int
    label: str
    predicted: str
    rival: str
    correct: bool
    radius: str
    upper: str
    flips_base: bool
    status: str
    changes: Sequence[Change]
    more: int
    """Columns that change, too, and are not shown."""


@dataclass(frozen=True)
class Plot:
    """The effect of one column, as the points of lines in a box of WIDTH x HEIGHT."""

    column: str
    label: str
    direction: str
    meaning: str
    mean: str
    typical: str
    band: str
    low: str
    high: str
    least: str
    greatest: str
    radius: str


@dataclass(frozen=True)
class TableContent:
    """What is shown of a table."""

    least: Sequence[TableRow]
    most: Sequence[TableRow]
    plots: Sequence[Plot]
    note: str
    base_accuracy: str
    smoothed_accuracy: str
    agreement: str


def is_table(about: Mapping[str, Any]) -> bool:
    """Whether a run was made on a table, not on images."""
    return bool(about.get("data", {}).get("kind") == "table" and "table" in about)


def things(about: Mapping[str, Any]) -> str:
    """What a run has a line for: rows of a table, or images."""
    return "rows" if about.get("data", {}).get("kind") == "table" else "images"


def table_content(run: Run) -> TableContent | None:
    """What the page shows of the run, if it was made on a table."""
    if not is_table(run.about):
        return None
    known = np.flatnonzero(run.correct & np.isfinite(run.rows["upper"].astype(np.float64)))
    rising = known[np.argsort(run.radius[known], kind="stable")]
    half = min(SHOWN, len(rising))
    table, model = run.about["table"], run.about["model"]
    projected = len(table["projected"])
    note = ""
    if projected:
        note = (
            f"{projected} columns are projected to {model['axes']} axes: their counterfactual is the nearest row with "
            "these components, and moves all of them a little."
        )
    return TableContent(
        least=[_row(run, int(i)) for i in rising[:half]],
        most=[_row(run, int(i)) for i in rising[half:][::-1][:SHOWN]],
        plots=[_plot(effect) for effect in _strongest(table["effects"])],
        note=note,
        base_accuracy=f"{100 * table['base_accuracy']:.1f}",
        smoothed_accuracy=f"{100 * table['smoothed_accuracy']:.1f}",
        agreement=f"{100 * model['agreement']:.1f}",
    )


def changes_of(run: Run, row: int) -> list[Change]:
    """The columns that the counterfactual of a row changes, those that change most first."""
    before, after = (_numbers(run.rows[name][row]) for name in ("row", "counterfactual"))
    columns, scale = run.about["data"]["columns"], np.array(run.about["table"]["scale"])
    steps = (after - before) / scale
    order = [int(j) for j in np.argsort(-np.abs(steps), kind="stable") if after[j] != before[j]]
    return [Change(columns[j], f"{before[j]:.4g}", _apart(before[j], after[j]), float(steps[j])) for j in order]


def _apart(before: float, after: float) -> str:
    """The new value, in as many digits as it takes to differ from the old one."""
    texts = (f"{after:.{digits}g}" for digits in range(4, 18))
    return next((text for text in texts if text != f"{before:.4g}"), f"{after:.4g}")


def _numbers(text: Any) -> Floats:
    return np.array([float(part) for part in str(text).split()])


def _row(run: Run, i: int) -> TableRow:
    classes = run.about["data"]["classes"]
    changes = changes_of(run, i)
    rival = int(run.rows["rival"][i])
    return TableRow(
        index=int(run.rows["idx"][i]),
        label=str(classes[int(run.rows["label"][i])]),
        predicted=str(classes[int(run.rows["predict"][i])]),
        rival=str(classes[rival]) if rival >= 0 else "none",
        correct=bool(run.correct[i]),
        radius=floor_digits(run.radius[i], 4),
        upper=ceil_digits(run.rows["upper"][i], 4),
        flips_base=bool(int(run.rows["flips_base"][i])),
        status=str(run.rows["status"][i]),
        changes=changes[:MOST_CHANGES],
        more=max(0, len(changes) - MOST_CHANGES),
    )


def _strongest(effects: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The columns whose mean moves most, first."""
    return sorted(effects, key=lambda effect: -float(np.ptp(effect["mean"])))[:PLOTS]


def _plot(effect: Mapping[str, Any]) -> Plot:
    x = np.array(effect["values"])
    bottom, top = min(0.0, *effect["low"]), max(1.0, *effect["high"])
    if bottom < -0.05 or top > 1.05:  # scores, not probabilities
        bottom, top = min(effect["low"]), max(effect["high"])
    width = x[-1] - x[0] or 1.0

    def points(values: Sequence[float]) -> list[str]:
        return [
            f"{(a - x[0]) / width * WIDTH:.1f},{HEIGHT - (v - bottom) / ((top - bottom) or 1.0) * HEIGHT:.1f}"
            for a, v in zip(x, values, strict=True)
        ]

    return Plot(
        column=effect["column"],
        label=effect["label"],
        direction=effect["direction"].lower(),
        meaning=effect["meaning"],
        mean=" ".join(points(effect["mean"])),
        typical=" ".join(points(effect["typical"])),
        band=" ".join([*points(effect["low"]), *points(effect["high"])[::-1]]),
        low=f"{x[0]:.4g}",
        high=f"{x[-1]:.4g}",
        least=f"{bottom:.3g}",
        greatest=f"{top:.3g}",
        radius=f"{effect['radius']:g}",
    )
