"""Small runs on disk, as the commands write them, for what reads runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from berncert.study.folders import claimed
from berncert.study.runs.records import FIRST, FORMAT, opened

HEADER = "\t".join(FIRST)


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
    kind = "attack" if claim == "ATTACK" else "certify"
    count = len(radii) if images is None else images
    about = {
        "format": FORMAT,
        "kind": kind,
        "claim": claim,
        "settings": {"norm": norm, "degree": None, **(settings or {})},
        "model": {"sha256": "0" * 64},
        "data": {"name": data, "split": "test", "images": count},
        "versions": {},
    }
    name = "fallen_at" if kind == "attack" else "radius"
    columns = ("idx", "label", "predict", name, "correct", "time", "status")
    right = [1] * len(radii) if correct is None else correct
    rows = [
        {"idx": first + k, "label": 3, "predict": 3 if good else 5, name: float(radius), "correct": good}
        | {"time": timedelta(seconds=1), "status": claim}
        for k, (radius, good) in enumerate(zip(radii, right, strict=True))
    ]
    with claimed(folder, "test"), opened(folder, about, columns, np.arange(first, first + count)) as table:
        table.append(rows)
    return folder


def make_table(path: Path, radii: Sequence[float], predicted: Sequence[int] | None = None) -> Path:
    """A lone table in the field's format; the label is 3, and -1 abstains."""
    path.parent.mkdir(parents=True, exist_ok=True)
    classes = [3] * len(radii) if predicted is None else predicted
    lines = [f"{k}\t3\t{c}\t{r}\t{int(c == 3)}\t0:00:01.5" for k, (r, c) in enumerate(zip(radii, classes, strict=True))]
    path.write_text("\n".join([HEADER, *lines]))
    return path
