"""Which images of a run are shown, and what is shown of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest

import numpy as np

from berncert.certification.status import Claim, Status
from berncert.foundation.arrays import Floats, Ints
from berncert.foundation.rounding import ceil_digits, ceil_places, floor_places
from berncert.reporting.curves.common_images import image_keys
from berncert.reporting.html.formats import UNITS, places_of, sortable, unit_for, with_signs
from berncert.reporting.html.pictures import Gallery
from berncert.reporting.html.table_rows import things
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
VERDICTS = {"correct": "yes", "wrong": "no", "abstained": "abstained"}
BOUNDS: dict[str, tuple[str, Callable[[float, int], str]]] = {
    "feature_radius": ("proven distance to the boundary, in feature space; rounded down", floor_places),
    "feature_upper": ("distance of a witness with another class, in feature space; rounded up", ceil_places),
    "upper": ("distance of a witness with another class; rounded up", ceil_places),
}
"""Column of a run -> what it means, and how it is rounded."""
BROKEN_AT = "the least tried radius at which an attack among these runs changed the class; empty: not attacked"


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the value it is sorted by if that is something else."""

    text: str
    value: str | None = None
    about: str = ""


@dataclass(frozen=True)
class Column:
    """A column of the table of examples."""

    name: str
    cell: Callable[[int], Cell]
    """The cell for a row of the run."""
    about: str = ""
    numeric: bool = True


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


@dataclass(frozen=True)
class Examples:
    """What is shown of the images of a run."""

    radius_name: str
    """What the radius of an image is called."""
    columns: Sequence[Column]
    of: int
    """How many images the run has."""
    rows: tuple[Example, ...]
    least: tuple[Example, ...]
    most: tuple[Example, ...]
    certain: tuple[Example, ...]
    """Wrong images, the largest radius first."""


def examples_of(run: Run, broken_at: Floats | None, gallery: Gallery, limit: int) -> Examples:
    """At most `limit` examples; `broken_at` has the radius at which an attack broke each image, if there was one."""
    least, most, certain = singled_out(run, min(MOST, -(-limit // 4)))
    rows = chosen(len(run), (least, most, certain), limit)
    columns = _columns(run, broken_at)
    made = {int(row): _example(run, columns, int(row), gallery) for row in sorted({*rows, *least, *most, *certain})}
    shown = (tuple(made[row] for row in kind.tolist()) for kind in (rows, least, most, certain))
    return Examples(RADIUS_NAMES[run.claim], columns, len(run), *shown)


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


def _example(run: Run, columns: Sequence[Column], row: int, gallery: Gallery) -> Example:
    cells = tuple(column.cell(row) for column in columns)
    index, label, predicted, _, radius, *_ = (cell.text for cell in cells)
    return Example(int(index), label, predicted, _kind(run, row), radius, gallery.png(int(index)), cells)


def _kind(run: Run, row: int) -> str:
    return "correct" if run.correct[row] else "abstained" if run.abstained[row] else "wrong"


def _columns(run: Run, broken_at: Floats | None) -> list[Column]:
    """The columns for which the run has values; the first five are always there, in this order."""
    unit = unit_for(float(np.median(run.rows["time"])))
    to_places = _to_places(floor_places, run.radius)
    radius_text = partial(ceil_digits, digits=DIGITS) if run.claim is Claim.ATTACK else to_places
    columns = [
        Column(things(run.about)[:-1], lambda row: Cell(str(run.rows["idx"][row])), "its number in the data set"),
        _class_column("label", run, run.rows["label"]),
        _class_column("predicted", run, run.rows["predict"]),
        Column("correct", lambda row: Cell(VERDICTS[_kind(run, row)]), numeric=False),
        _number_column(RADIUS_NAMES[run.claim], _radius_meaning(run.claim), run.radius, radius_text),
    ]
    for name, (about, rounded) in BOUNDS.items():
        values = run.rows.get(name)
        if values is not None and values.dtype.kind in "if" and np.isfinite(values).any():
            columns.append(_number_column(name.replace("_", " "), about, values, _to_places(rounded, values)))
    if broken_at is not None:
        columns.append(_number_column("broken at", BROKEN_AT, broken_at, _fallen_at))
    if "status" in run.rows:
        names = [str(name) for name in run.rows["status"]]
        columns.append(
            Column("status", lambda row: Cell(names[row], about=STATUS_MEANINGS.get(names[row], "")), numeric=False)
        )
    decimals = 0 if unit == "µs" else 2
    about = f"the mean over the {things(run.about)} of its batch"
    time = _number_column(f"time, {unit}", about, run.rows["time"], lambda s: f"{s / UNITS[unit]:.{decimals}f}")
    return [*columns, time]


def _class_column(name: str, run: Run, numbers: Ints) -> Column:
    """Classes by their names in run.json, else by their numbers."""
    names: Sequence[str] = run.about.get("data", {}).get("classes") or ()

    def cell(row: int) -> Cell:
        number = int(numbers[row])
        return Cell("none" if number == -1 else str(names[number]) if 0 <= number < len(names) else str(number))

    return Column(name, cell, numeric=False)


def _number_column(name: str, about: str, values: Floats, rounded: Callable[[float], str]) -> Column:
    def cell(row: int) -> Cell:
        value = float(values[row])
        return Cell(with_signs(rounded(value)), sortable(value))

    return Column(name, cell, about)


def _to_places(rounded: Callable[[float, int], str], values: Floats) -> Callable[[float], str]:
    places = places_of(values)
    return lambda value: rounded(value, places)


def _radius_meaning(claim: Claim) -> str:
    if claim is Claim.ATTACK:
        return "the least tried radius at which the attack changed the class; ∞: it never did, 0: it was wrong"
    return f"{claim}; rounded down"


def _fallen_at(radius: float) -> str:
    return "stands" if np.isinf(radius) else ceil_digits(radius, DIGITS)
