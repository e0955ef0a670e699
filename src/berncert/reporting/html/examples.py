"""Which images of a run are shown, and what is shown of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np

from berncert.certification.status import Claim, Status
from berncert.foundation.arrays import Floats, Ints
from berncert.foundation.rounding import ceil_digits, ceil_places, floor_places
from berncert.reporting.curves.common_images import image_keys
from berncert.reporting.html.formats import UNITS, places_for, sortable, unit_for, with_signs
from berncert.reporting.html.pictures import Gallery
from berncert.runs.records import Run

MOST = 12
"""How many images of each kind are singled out: least robust, most robust, wrong and certain."""
DIGITS = 6
"""Digits of a radius that an attack tried, at most; rounded up."""
RADIUS_NAMES = {
    Claim.PROVEN: "radius",
    Claim.PROBABLE: "probable radius",
    Claim.ESTIMATE: "estimate",
    Claim.UNKNOWN: "radius, unknown claim",
    Claim.ATTACK: "fell at",
}
"""Claim -> what the radius of an image is called."""
STATUS_MEANINGS: dict[str, str] = {status.name: status.value for status in Status} | {
    "ESTIMATE": str(Claim.ESTIMATE),
    "PROBABLE": "the vote was clear enough for a radius",
    "ABSTAINED": "the vote was not clear enough for a class",
    "WRONG": "the class was wrong before the attack",
    "BROKEN": "the attack found an image with another class",
    "STANDS": "the attack did not change the class, at any radius that was tried",
}
"""Status -> what it means."""


@dataclass(frozen=True)
class Column:
    """A column of the table of examples."""

    name: str
    about: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the value it is sorted by if that is something else."""

    text: str
    value: str | None = None
    about: str = ""


@dataclass(frozen=True)
class Example:
    """One image of a run."""

    index: int
    label: str
    predicted: str
    kind: str
    """correct, wrong or abstained."""
    radius: str
    png: bytes | None
    cells: tuple[Cell, ...]
    """One for each column."""

    @property
    def alt(self) -> str:
        """The text that stands for the thumbnail."""
        return f"image {self.index}, labelled {self.label}"


@dataclass(frozen=True)
class Examples:
    """What is shown of the images of a run."""

    radius_name: str
    """What the radius of an image is called."""
    columns: tuple[Column, ...]
    rows: tuple[Example, ...]
    of: int
    """How many images the run has."""
    least: tuple[Example, ...]
    most: tuple[Example, ...]
    certain: tuple[Example, ...]
    """Wrong images, the largest radius first."""


def examples_of(run: Run, broken_at: Floats | None, gallery: Gallery, limit: int) -> Examples:
    """At most `limit` examples; `broken_at` has the radius at which an attack broke each image, if there was one."""
    least, most, certain = singled_out(run, min(MOST, -(-limit // 4)))
    rows = chosen(len(run), (least, most, certain), limit)
    table = _Table(run, broken_at, gallery)
    made = {int(row): table.example(int(row)) for row in sorted({*rows, *least, *most, *certain})}
    return Examples(
        radius_name=RADIUS_NAMES[run.claim],
        columns=tuple(table.columns),
        rows=tuple(made[row] for row in rows.tolist()),
        of=len(run),
        least=tuple(made[row] for row in least.tolist()),
        most=tuple(made[row] for row in most.tolist()),
        certain=tuple(made[row] for row in certain.tolist()),
    )


def singled_out(run: Run, most: int) -> tuple[Ints, Ints, Ints]:
    """Rows of the correct images with the least and with the largest radius, of the wrong ones with the largest.

    Images with equal radii keep their order. None is both among the least and the most robust; wrong images that an
    attack need not break, and those without a class, are not certain.
    """
    correct = np.flatnonzero(run.correct)
    rising = correct[np.argsort(run.radius[correct], kind="stable")]
    falling = correct[np.argsort(-run.radius[correct], kind="stable")]
    wrong = np.flatnonzero(~run.correct & ~run.abstained & (run.radius > 0))
    certain = wrong[np.argsort(-run.radius[wrong], kind="stable")]
    each = min(most, max(len(correct) // 2, 1))
    return rising[:each], falling[: each if len(correct) > 1 else 0], certain[:most]


def chosen(count: int, first: Sequence[Ints], limit: int) -> Ints:
    """Rows, in order, at most `limit`: all if they fit, else those that come first, and others evenly spread.

    The spread depends on the numbers only, so that runs over the same images show the same ones.
    """
    if count <= limit:
        return np.arange(count)
    in_turn = [row for row in chain(*zip_longest(*(rows.tolist() for rows in first))) if row is not None]
    spread = max(limit - len(first) * min(MOST, -(-limit // 4)), 0)
    evenly = (np.arange(spread) * count // max(spread, 1)).tolist()
    return np.array(sorted({*in_turn[: limit - spread], *evenly}), dtype=np.int64)


def broken_radii(run: Run, others: Sequence[Run]) -> Floats | None:
    """The radius at which an attack on the same classifier broke each image: inf if never, NaN if it was not attacked.

    None if there was no such attack. Randomized smoothing certifies another classifier than the one that was attacked.
    """
    attacks = [other for other in others if other.claim is Claim.ATTACK and run.same_task(other)]
    if run.claim not in (Claim.PROVEN, Claim.ESTIMATE) or not attacks:
        return None
    broken_at = np.full(len(run), np.nan)
    for attack in attacks:
        known = dict(zip(image_keys(attack), attack.radius.tolist(), strict=True))
        found = [known.get(image, np.nan) for image in image_keys(run)]
        broken_at = np.fmin(broken_at, np.array(found, dtype=np.float64))
    return None if np.isnan(broken_at).all() else broken_at


class _Table:
    """The columns for which a run has values, and its examples."""

    def __init__(self, run: Run, broken_at: Floats | None, gallery: Gallery) -> None:
        self.run, self.gallery, self.broken_at = run, gallery, broken_at
        self.classes: Sequence[str] = run.about.get("data", {}).get("classes") or ()
        finite = run.radius[np.isfinite(run.radius) & (run.radius > 0)]
        self.places = places_for(float(np.median(finite))) if len(finite) else 3
        self.unit = unit_for(float(np.median(run.rows["time"]))) if len(run) else "s"
        self.bounds = {name: self._places(name) for name in _BOUNDS if self._has_numbers(name)}
        self.columns = [
            Column("image", "its number in the data set"),
            Column("label", numeric=False),
            Column("predicted", numeric=False),
            Column("correct", numeric=False),
            Column(RADIUS_NAMES[run.claim], _radius_meaning(run.claim)),
            *(_BOUNDS[name] for name in self.bounds),
            *([_BROKEN] if broken_at is not None else []),
            *([Column("status", numeric=False)] if "status" in run.rows else []),
            Column(f"time, {self.unit}", "the mean over the images of its batch"),
        ]

    def _has_numbers(self, name: str) -> bool:
        values = self.run.rows.get(name)
        return values is not None and values.dtype.kind in "if" and bool(np.isfinite(values).any())

    def _places(self, name: str) -> int:
        values = self.run.rows[name]
        return places_for(float(np.median(values[np.isfinite(values)])))

    def class_name(self, number: int) -> str:
        """The name of a class in run.json, else its number."""
        if number == -1:
            return "none"
        return str(self.classes[number]) if 0 <= number < len(self.classes) else str(number)

    def example(self, row: int) -> Example:
        """The example of that row."""
        run = self.run
        index, label, predict = (int(run.rows[name][row]) for name in ("idx", "label", "predict"))
        kind = "correct" if run.correct[row] else "abstained" if run.abstained[row] else "wrong"
        radius, label_name, predicted = self._radius(row), self.class_name(label), self.class_name(predict)
        cells = [
            Cell(str(index)),
            Cell(label_name),
            Cell(predicted),
            Cell({"correct": "yes", "wrong": "no", "abstained": "abstained"}[kind]),
            radius,
            *(self._bound(name, row) for name in self.bounds),
            *([_broken(float(self.broken_at[row]))] if self.broken_at is not None else []),
            *([self._status(row)] if "status" in run.rows else []),
            self._time(row),
        ]
        return Example(index, label_name, predicted, kind, radius.text, self.gallery.png(index), tuple(cells))

    def _radius(self, row: int) -> Cell:
        value = float(self.run.radius[row])
        text = ceil_digits(value, DIGITS) if self.run.claim is Claim.ATTACK else floor_places(value, self.places)
        return Cell(with_signs(text), sortable(value))

    def _bound(self, name: str, row: int) -> Cell:
        value = float(self.run.rows[name][row])
        rounded = floor_places if name == "feature_radius" else ceil_places
        return Cell(with_signs(rounded(value, self.bounds[name])), sortable(value))

    def _status(self, row: int) -> Cell:
        name = str(self.run.rows["status"][row])
        return Cell(name, about=STATUS_MEANINGS.get(name, ""))

    def _time(self, row: int) -> Cell:
        seconds = float(self.run.rows["time"][row])
        return Cell(f"{seconds / UNITS[self.unit]:.{0 if self.unit == 'µs' else 2}f}", sortable(seconds))


def _radius_meaning(claim: Claim) -> str:
    if claim is Claim.ATTACK:
        return "the least tried radius at which the attack changed the class; ∞: it never did, 0: it was wrong"
    return f"{claim}; rounded down"


def _broken(value: float) -> Cell:
    text = "" if np.isnan(value) else "stands" if np.isinf(value) else ceil_digits(value, DIGITS)
    return Cell(text, sortable(value))


_BOUNDS = {
    "feature_radius": Column("feature radius", "proven distance to the boundary, in feature space; rounded down"),
    "feature_upper": Column("feature upper", "distance of a witness with another class, in feature space; rounded up"),
    "upper": Column("upper", "distance of a witness with another class; rounded up"),
}
_BROKEN = Column(
    "broken at", "the least tried radius at which an attack among these runs changed the class; empty: not attacked"
)
