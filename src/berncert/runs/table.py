"""The table of a run while it is written: rows are appended and flushed as they are found, so that a run that is
killed loses only the batch that it was at, and resumes after the last whole row.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from berncert.certification.methods import Method
from berncert.certification.proof_file import Block, ProofFile
from berncert.certification.status import Status
from berncert.foundation.arrays import Ints
from berncert.foundation.folders import differences, write_whole
from berncert.runs.records import PROOF, RUN, read_about
from berncert.runs.rows import TABLES

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "exact": {
        "predict": "predicted", "radius": "radius", "status": "status", "rival": "in_features.rival",
        "boxes": "in_features.boxes", "feature_radius": "feature_radius", "feature_upper": "in_features.upper",
        "feature_norm": "feature_norm", "lipschitz_bound": "lipschitz_bound", "extraction_error": "extraction_error",
        "features": "features", "witness": "in_features.witness", "route": "route", "upper": "upper",
    },
    "estimate": {
        "predict": "predicted", "radius": "distance_estimate", "status": "status", "runner_up": "in_features.runner_up",
        "residual": "in_features.residual", "evaluations": "in_features.evaluations",
        "feature_distance_estimate": "feature_distance_estimate", "feature_norm": "feature_norm",
        "lipschitz_bound": "lipschitz_bound",
    },
    "randomized": {
        "predict": "predicted", "radius": "probable_radius", "status": "status", "candidate": "candidate",
        "probability_limit": "probability_limit", "counts": "counts",
    },
    "attack": {"predict": "predicted", "fallen_at": "fallen_at", "status": "status"},
}  # fmt: skip
"""Method, or any attack -> column -> the field of its rows that the column holds; class and radius come first."""
DECIDES = ("format", "kind", "method", "claim", "settings", "model", "data")
"""What a run must share with another to be the same; to resume it, `versions` too."""
MEGABYTE = 2**20
ROOM_PER_NUMBER = 24  # bytes: 17 digits, a sign, an exponent, a tab


def columns_of(method: Method) -> Mapping[str, str]:
    """Column of a run of this method -> the field of its rows."""
    return COLUMNS["attack" if method.kind == "attack" else method.name]


class Line(NamedTuple):
    """A row of the table as text, with its end; and its proof, if the run writes proofs."""

    text: str
    proof: Block | None = None


class Table:
    """The open table of a run: rows are appended, and stay."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, tuple(columns)
        self.done = 0
        """How many images have their row."""
        self.proofs: ProofFile | None = None

    def append(self, lines: Sequence[Line]) -> None:
        """The next rows, as `text_lines` makes them; on the disk when this returns. Proofs are there before rows."""
        try:
            if self.proofs is not None:
                self.proofs.append([line.proof for line in lines if line.proof is not None])
            with self.path.open("ab") as file:
                file.write("".join(line.text for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(
                f"could not write {self.path}: {error.strerror or error}; the {self.done} rows before are kept, the "
                "same command resumes from there"
            ) from error
        self.done += len(lines)

    def end(self) -> None:
        """All rows are there."""
        if self.proofs is not None:
            self.proofs.end()


def text_lines(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], proofs: Sequence[Block] = ()) -> list[Line]:
    """The lines of the table for these rows."""
    texts = ["\t".join(_cell(row[name]) for name in columns) + "\n" for row in rows]
    return [Line(*parts) for parts in zip(texts, proofs, strict=True)] if proofs else [Line(text) for text in texts]


def open_table(
    folder: Path,
    about: Mapping[str, Any],
    columns: Sequence[str],
    indices: Ints,
    *,
    more: Callable[[], Mapping[str, Any]] = dict,
    numbers_per_row: int | None = None,
    opening: Sequence[Block] = (),
) -> Table:
    """The table of the run that `about` describes, new or to be resumed; another run in that folder is refused.

    opening: the first blocks of its proofs, if it writes proofs. Rows without a proof are cut off, and made again.

    The folder is to be `claimed`. Whether there is room for all rows, of so many numbers each (one for each column), is
    tried before any work; `more`, which a new run adds to its record, may be some work.
    """
    path = folder / TABLES[about["kind"]]
    table = Table(path, columns)
    for name in (RUN, path.name):  # of a run that was killed while it wrote
        (folder / f".{name}.partial").unlink(missing_ok=True)
    if (folder / RUN).exists():
        there, here = _without_hardware(read_about(folder)), _as_read(about)
        _check_same(folder, there, here, DECIDES)
        table.done = _mend(path, columns, indices) if path.exists() else 0
        if table.done < len(indices):  # rows of other code would be mixed with those that are there
            _check_same(folder, there, here, ("versions",))
    elif path.exists():
        raise ValueError(f"expected a new folder or one of the same run, got {folder}: it has {path.name} but no {RUN}")
    _try_room(path, (len(indices) - table.done) * (numbers_per_row or len(columns)) * ROOM_PER_NUMBER)
    if not (folder / RUN).exists():
        write_whole(folder / RUN, (json.dumps(_as_read({**about, **more()}), indent=1) + "\n").encode())
    if not path.exists():
        write_whole(path, ("\t".join(columns) + "\n").encode())
    if opening:
        table.proofs = ProofFile.resumed(folder / PROOF, opening, table.done)
        table.done = _mend(path, columns, indices, most=table.proofs.rows)
    return table


def _without_hardware(about: Mapping[str, Any]) -> dict[str, Any]:
    """A record without the device and threads that settings held once: they decide nothing."""
    settings = {name: value for name, value in about["settings"].items() if name not in ("device", "threads")}
    return {**about, "settings": settings}


def _as_read(about: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back."""
    read: dict[str, Any] = json.loads(json.dumps(_finite(about)))
    return read


def _check_same(folder: Path, there: Mapping[str, Any], here: Mapping[str, Any], keys: Sequence[str]) -> None:
    old, new = ({key: its.get(key) for key in keys} for its in (there, here))
    changes = differences(old, new)
    if changes:
        raise ValueError(
            f"expected a new folder or one of the same run, got {folder}, which differs in {', '.join(changes)}; "
            "choose another one, say the same as there, or delete that one to start again"
        )


def _try_room(path: Path, size: int) -> None:
    """Take so many bytes, and give them back: better to fail now than at the end."""
    if size == 0:
        return
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            for start in range(0, size, MEGABYTE):
                file.write(bytes(min(MEGABYTE, size - start)))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        message = f"expected room for {size:,} bytes in {path.parent}, got: {error.strerror or error}; no work was done"
        raise OSError(message) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _mend(path: Path, columns: Sequence[str], indices: Ints, most: int | None = None) -> int:
    """Cut off what was not written to its end; how many rows remain, which must be the first of `indices`.

    most: rows that may remain.
    """
    header, count, most = "\t".join(columns).encode(), 0, len(indices) if most is None else most
    with path.open("r+b") as file:
        first = file.readline()
        if not first.endswith(b"\n") and header.startswith(first):  # not even that is whole
            file.write(header[len(first) :] + b"\n")
            return 0
        same, whole = first == header + b"\n", len(first)
        for line in file:
            if not same or not line.endswith(b"\n"):
                break
            idx, tab, _ = line.partition(b"\t")
            same = count < len(indices) and idx == b"%d" % indices[count] and line.count(tab) == len(columns) - 1
            whole += len(line) if count < most else 0
            count += 1
        if not same:
            raise ValueError(
                f"expected the rows of this run in {path}, got others; choose another folder, or delete it"
            )
        if whole < file.seek(0, os.SEEK_END):
            file.truncate(whole)
            os.fsync(file.fileno())
    return min(count, most)


def _cell(value: Any) -> str:
    """Numbers so that they are read back as the same bits; a vector's with spaces between."""
    if isinstance(value, timedelta):
        return _clock(value)
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, Status):
        return value.name
    if isinstance(value, np.ndarray):
        return " ".join(map(repr, value.tolist()))
    return repr(float(value)) if isinstance(value, (float, np.floating)) else str(value)


def _clock(time: timedelta) -> str:
    """As `str` writes it, always with microseconds."""
    text = str(time)
    return text if "." in text else f"{text}.000000"


def _finite(value: Any) -> Any:
    """The same for JSON, which has no infinity: as text."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
