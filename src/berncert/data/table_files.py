"""Tables of the user: CSV or parquet files as columns of numbers, with categories as 0/1 columns."""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from berncert.foundation.arguments import guess
from berncert.foundation.arrays import Floats
from berncert.foundation.safe_reading import check_unpacked

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""How CSV files say that a value is missing, in any case; parquet files have a value for it."""
Cells = dict[str, list[str | None]]
"""Column -> what is written in each row; None where nothing is."""
MOST_CATEGORIES = 20
"""Different words in a column; with more it is a name or a text, not a category."""
PARQUET = (".parquet", ".pq")
SHIPPED = ("breast_cancer", "iris", "wine")
"""Real tables that scikit-learn brings along, by name; the column to be predicted is called `class`."""


@dataclass(frozen=True)
class TableFile:
    """Rows with a target, as numbers."""

    name: str
    columns: tuple[str, ...]
    values: Floats
    """(N, m)"""
    target: npt.NDArray[np.str_]
    """(N,): the label of each row, as it is written."""
    numbers: npt.NDArray[np.int64]
    """(N,): which row of the file each is, from 0."""
    groups: tuple[tuple[str, ...], ...]
    """The 0/1 columns that each column of categories became."""
    whole: tuple[str, ...]
    """Columns that hold whole numbers only."""
    sha256: str


def read_table(
    path: str | PathLike[str], target: str, *, leave_out: Sequence[str] = (), drop_missing: bool = False
) -> TableFile:
    """The table of a CSV file (separated by comma, semicolon or tab, with names in its first line) or a parquet file.

    Columns of words become one 0/1 column for each word. leave_out: columns that are not read. Rows with missing
    values are an error that says where they are, or are left out with drop_missing.
    """
    place = Path(path).expanduser()
    text = place.suffix.lower() not in PARQUET
    if str(path) in SHIPPED and not place.exists():
        cells, digest = _shipped(str(path))
    elif not place.is_file():
        raise FileNotFoundError(
            f"expected a CSV or parquet file, or one of {', '.join(SHIPPED)}, got {place}, which is not there"
        )
    else:
        check_unpacked(place, place.stat().st_size)
        cells = _csv(place) if text else _parquet(place)
        digest = hashlib.sha256(place.read_bytes()).hexdigest()
    for name in (target, *leave_out):
        if name not in cells:
            raise ValueError(f"expected a column of {place.name}, got {name!r}{guess(name, cells)}")
    cells = {name: column for name, column in cells.items() if name not in leave_out}
    keep = _complete_rows(place, cells, MISSING if text else frozenset(), drop_missing)
    complete = {name: [str(column[i]) for i in keep] for name, column in cells.items()}
    labels = np.array(complete.pop(target), dtype=np.str_)
    columns: list[str] = []
    parts: list[Floats] = []
    groups: list[tuple[str, ...]] = []
    whole: list[str] = []
    for name, texts in complete.items():
        numbers = _numbers(texts)
        if numbers is not None:
            columns.append(name)
            parts.append(numbers)
            if (numbers == np.round(numbers)).all():
                whole.append(name)
            continue
        words = sorted(set(texts))
        if len(words) > MOST_CATEGORIES:
            example = next((word for word in words if _numbers([word]) is None), words[0])
            raise ValueError(
                f"expected numbers or at most {MOST_CATEGORIES} categories in column {name!r} of {place.name}, got "
                f"{len(words)} different words such as {example!r}; leave the column out"
            )
        names = tuple(f"{name}={word}" for word in words)
        columns += names
        parts += [np.array([float(text == word) for text in texts]) for word in words]
        groups.append(names)
    if not parts:
        raise ValueError(f"expected columns besides {target!r} in {place.name}, got none")
    values = np.stack(parts, axis=1)
    return TableFile(
        place.name, tuple(columns), values, labels, np.array(keep, np.int64), tuple(groups), tuple(whole), digest
    )


def _shipped(name: str) -> tuple[Cells, str]:
    """The cells of a table of scikit-learn's, and their checksum."""
    datasets: Any = import_module("sklearn.datasets")
    found = getattr(datasets, f"load_{name}")()
    columns: Cells = {
        str(c).replace(" (cm)", ""): [repr(float(v)) for v in found.data[:, j]]
        for j, c in enumerate(found.feature_names)
    }
    cells = columns | {"class": [str(found.target_names[k]) for k in found.target]}
    return cells, hashlib.sha256(repr(cells).encode()).hexdigest()


def _csv(place: Path) -> Cells:
    try:
        text = place.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected a table as text in {place}, got something else; is it UTF-8?") from error
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    rows = [row for row in csv.reader(text.splitlines(), delimiter=separator) if row]
    if len(rows) < 2:
        raise ValueError(f"expected a line of names and rows in {place}, got {len(rows)} lines")
    names = [name.strip() for name in rows[0]]
    if len(set(names)) != len(names):
        raise ValueError(f"expected different names in the first line of {place}, got {names}")
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise ValueError(f"expected {len(names)} values in row {number} of {place}, got {len(row)}")
    return {name: [row[j].strip() for row in rows[1:]] for j, name in enumerate(names)}


def _parquet(place: Path) -> Cells:
    try:
        reader: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError("expected pyarrow to read a parquet file, got none; pip install pyarrow") from error
    table: Mapping[str, list[Any]] = reader.read_table(place).to_pydict()
    return {
        str(name): [None if v is None or (isinstance(v, float) and math.isnan(v)) else str(v) for v in column]
        for name, column in table.items()
    }


def _complete_rows(place: Path, cells: Cells, words: frozenset[str], drop_missing: bool) -> list[int]:
    """The rows without a missing value; an error that says where they are, if they are not to be left out.

    words: those that say that a value is missing.
    """
    count = len(next(iter(cells.values())))
    holes = {
        name: {i: text for i, text in enumerate(column) if text is None or text.lower() in words}
        for name, column in cells.items()
    }
    bad = set().union(*holes.values())
    if bad and not drop_missing:
        where = ", ".join(f"{name} ({len(rows)}: {_written(rows.values())})" for name, rows in holes.items() if rows)
        raise ValueError(
            f"expected no missing values in {place.name}, got some in {len(bad)} of {count} rows: {where}; fill them, "
            "leave these columns out, or leave the rows out with drop_missing; if such a word is a category, rename it"
        )
    return [i for i in range(count) if i not in bad]


def _written(values: Iterable[str | None]) -> str:
    """How missing values are written, for a message."""
    return " or ".join(sorted({"null" if v is None else repr(v) if v else "empty" for v in values}))


def _numbers(texts: Sequence[str]) -> Floats | None:
    """The column as finite numbers, if it is one; true and false are 1 and 0."""
    try:
        found = np.array([_truth.get(text.lower(), text) for text in texts], dtype=np.float64)
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


_truth: dict[str, Any] = {"true": 1.0, "false": 0.0}
