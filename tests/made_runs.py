"""Small runs for tests of what reads runs: on disk, as the commands write them, or in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from berncert.certification.status import STATUSES, Claim
from berncert.foundation.folders import claimed
from berncert.runs.records import FORMAT, Run
from berncert.runs.rows import FIRST
from berncert.runs.table import open_table, text_lines

HEADER = "\t".join(FIRST)


def write_run(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    indices: Sequence[int],
    *,
    claim: str,
    norm: float,
    data: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    columns: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> Path:
    """A run over the images of these numbers, the first of which have rows; `columns` are further ones."""
    radius = "fallen_at" if claim == "ATTACK" else "radius"
    about = {
        "format": FORMAT,
        "kind": "attack" if claim == "ATTACK" else "certify",
        "claim": claim,
        "settings": {"norm": norm, "skip": 1, "limit": None, "degree": None, **(settings or {})},
        "model": {"sha256": "ab" * 32},
        "data": {"images": len(indices), **data},
        "versions": {"berncert": "0"},
        **(more or {}),
    }
    names = (*(radius if name == "radius" else name for name in FIRST), "status", *columns)
    with claimed(folder, "test"):
        table = open_table(folder, about, names, np.array(indices, dtype=np.int64))
        table.append(text_lines(names, [{**row, radius: float(row["radius"])} for row in rows]))
    return folder


def make_run(
    folder: Path,
    radii: Sequence[float],
    *,
    claim: str = "PROVEN",
    correct: Sequence[int] | None = None,
    norm: float = 2,
    data: str = "digits",
    images: int | None = None,
    first: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """A run with these radii, of images numbered from `first`; `images` is how many it should have in the end."""
    flags = [1] * len(radii) if correct is None else correct
    rows = [
        {"idx": first + k, "label": 3, "predict": 3 if good else 5, "radius": radius, "correct": good}
        | {"time": timedelta(seconds=1), "status": STATUSES[Claim[claim]][0]}
        for k, (radius, good) in enumerate(zip(radii, flags, strict=True))
    ]
    indices = range(first, first + (len(radii) if images is None else images))
    about = {"name": data, "split": "test"}
    return write_run(folder, rows, indices, claim=claim, norm=norm, data=about, settings=settings)


def run_in_memory(rows: Sequence[tuple[float, bool]], claim: Claim) -> Run:
    """A run of images with these radii, each correct or not, that is not on disk."""
    radii, correct = zip(*rows, strict=True)
    about = {"claim": claim.name, "settings": {"norm": 2}, "data": {"name": "digits", "images": len(rows)}}
    name = "fallen_at" if claim is Claim.ATTACK else "radius"
    columns = {"idx": np.arange(len(rows)), name: np.array(radii), "correct": np.array(correct).astype(int)}
    return Run(Path("run"), about, columns)


def make_table(path: Path, radii: Sequence[float], predicted: Sequence[int] | None = None) -> Path:
    """A lone table in the field's format; the label is 3, and -1 abstains."""
    path.parent.mkdir(parents=True, exist_ok=True)
    classes = [3] * len(radii) if predicted is None else predicted
    lines = [f"{k}\t3\t{c}\t{r}\t{int(c == 3)}\t0:00:01.5" for k, (r, c) in enumerate(zip(radii, classes, strict=True))]
    path.write_text("\n".join([HEADER, *lines]))
    return path
