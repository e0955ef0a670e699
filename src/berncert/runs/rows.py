"""The rows of a table, read a part at a time: of a million rows, numbers are kept, and vectors stay in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from berncert.foundation.safe_reading import check_unpacked

FIRST = ("idx", "label", "predict", "radius", "correct", "time")
"""The columns of Cohen et al. (2019)."""
TABLES = {"certify": "certificates.tsv", "attack": "attacks.tsv"}
"""Kind of run -> the file with its rows."""
KINDS: dict[str, tuple[type[np.generic], ...]] = {
    **dict.fromkeys(("idx", "label", "predict", "correct"), (np.int64,)),
    **dict.fromkeys(("radius", "fallen_at", "time"), (np.float64,)),
    **dict.fromkeys(("features", "witness", "counts", "row", "counterfactual"), (np.str_,)),
}
"""Column -> what it must be read as; others are whole numbers, else numbers, else text."""
ROWS_AT_ONCE = 4096
LONGEST_KEPT = 32
"""Letters of a text that is kept in memory; columns of longer ones are read when they are asked for."""
LETTER_BYTES = 4
"""Of text in numpy's arrays, in which every cell has the room of the longest."""

Values = npt.NDArray[Any]


class FileRows(Mapping[str, Values]):
    """Column -> its values: int64, float64 (`time` in seconds) or text; of long texts when they are asked for."""

    def __init__(self, path: Path, columns: Sequence[str], kept: dict[str, Values]) -> None:
        self.path, self.columns, self.kept = path, tuple(columns), kept

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> Values:
        if name not in self.columns:
            raise KeyError(name)
        if name not in self.kept:
            try:
                self.kept[name] = self._texts(name)
            except ValueError as error:
                raise ValueError(f"expected text in {self.path}: {error}") from error
        return self.kept[name]

    def _texts(self, name: str) -> Values:
        """A column as text, of the rows that were there before."""
        count, place = len(self.kept["idx"]), self.columns.index(name)
        parts, longest = [], 0
        for cells in _parts(self.path, self.columns):
            texts = [row[place] for row in cells]
            longest = max(longest, *map(len, texts))
            check_unpacked(f"column {name}", longest * count * LETTER_BYTES)
            parts.append(np.array(texts, dtype=np.str_))
        return _joined(parts, np.str_)[:count]


class Column:
    """One column while it is read: each part as the strictest of its kinds that all parts so far had."""

    def __init__(self, name: str) -> None:
        self.name, self.kinds = name, list(KINDS.get(name, (np.int64, np.float64, np.str_)))
        self.parts: list[Values] = []
        self.left_out = False
        """It is to stay in the file."""

    def add(self, texts: Sequence[str]) -> None:
        """The next cells."""
        if self.left_out:
            return
        if self.kinds[0] is np.str_ and max(map(len, texts)) > LONGEST_KEPT:
            self.left_out, self.parts = True, []
            return
        try:
            self.parts.append(_converted(self.name, texts, self.kinds[0]))
        except (ValueError, OverflowError):
            if len(self.kinds) == 1:
                raise ValueError(f"column {self.name} has something else") from None
            del self.kinds[0]
            self.left_out = self.kinds[0] is np.str_ and bool(self.parts)  # what was read as numbers was another text
            self.add(texts)

    def values(self) -> Values:
        """All of it."""
        return _joined(self.parts, self.kinds[0])


def read_rows(path: Path) -> FileRows:
    """The rows of a table; a last line that is not whole yet is left out."""
    try:
        names = _header(path)
        columns = [Column(name) for name in names]
        for cells in _parts(path, names):
            _add(path, columns, cells)
    except UnicodeDecodeError as error:
        raise ValueError(f"expected a table of certificates, got {path}, which is no text") from error
    except FileNotFoundError:
        raise ValueError(f"expected the rows of the run in {path}, got no such file; run its command again") from None
    return FileRows(path, names, {column.name: column.values() for column in columns if not column.left_out})


def _add(path: Path, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
    try:
        for column, texts in zip(columns, zip(*cells, strict=True), strict=True):
            column.add(texts)
    except ValueError as error:
        raise ValueError(f"expected numbers in {path}: {error}") from error


def _header(path: Path) -> list[str]:
    names = next(_lines(path), "").split("\t")
    missing = [name for name in FIRST if name not in names and (name != "radius" or "fallen_at" not in names)]
    if missing:
        raise ValueError(
            f"expected a table with the columns {' '.join(FIRST)}, got {path} without {', '.join(missing)}"
        )
    return names


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip("\n") and (line.endswith("\n") or path.name not in TABLES.values()):
                yield line.rstrip("\n")


def _parts(path: Path, names: Sequence[str]) -> Iterator[list[list[str]]]:
    """The cells of some rows after the others."""
    lines, number = _lines(path), 2
    next(lines, None)
    while part := [line.split("\t") for line in islice(lines, ROWS_AT_ONCE)]:
        wrong = next((k for k, row in enumerate(part) if len(row) != len(names)), None)
        if wrong is not None:
            got = len(part[wrong])
            raise ValueError(f"expected {len(names)} columns in line {number + wrong} of {path}, got {got}")
        yield part
        number += len(part)


def _converted(name: str, texts: Sequence[str], kind: type[np.generic]) -> Values:
    check_unpacked(f"column {name}", max(map(len, texts)) * len(texts) * LETTER_BYTES)
    if name == "time":
        return np.array([_seconds(text) for text in texts], dtype=np.float64)
    return np.array(texts, dtype=np.str_).astype(kind)


def _joined(parts: Sequence[Values], kind: type[np.generic]) -> Values:
    if not parts:
        return np.array([], dtype=kind)
    joined = np.concatenate(parts)
    return joined if kind is np.str_ else joined.astype(kind, copy=False)


def _seconds(text: str) -> float:
    """The seconds of a time like 0:00:25.247016; plain seconds are taken too."""
    days, _, clock = text.rpartition(" day")
    parts = [float(part) for part in clock.removeprefix("s").removeprefix(",").strip().split(":")]
    return (float(days) if days else 0.0) * 86400 + sum(part * 60.0**i for i, part in enumerate(reversed(parts)))
