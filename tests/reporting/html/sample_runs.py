"""Small runs with rows that are known, written as the commands write them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from made_runs import write_run

from berncert.certification.status import STATUSES, Claim
from berncert.data import Dataset, load
from berncert.runs.image_job import digest
from berncert.runs.records import Run, read

NASTY = "</script><img src=x onerror=alert(1)>"
Row = tuple[int, float]
"""Predicted class, radius."""


def digits(count: int) -> Dataset:
    return load("digits", limit=count)


def make_run(
    folder: Path,
    rows: Iterable[Row],
    *,
    images: Dataset,
    claim: str = "PROVEN",
    norm: float = 2.0,
    settings: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    statuses: Sequence[str] = (),
    lipschitz: Mapping[str, Any] | None = None,
) -> Run:
    """A run over the images, of which the first have rows; `columns` are further ones.

    `statuses` come in turn, those too that no file may have; else all are the first of the claim.
    """
    further = dict(columns or {})
    recorded = {
        "name": images.name,
        "split": images.split,
        "part": images.part,
        "files": dict(images.files),
        "shape": list(images.images.shape[1:]),
        "sha256": digest(images),
        "classes": list(images.classes),
        **(data or {}),
    }
    origin = {"origin": {"command": "berncert certify it", "something new": {"unheard": [1, 2]}}}
    more = origin | ({"lipschitz": lipschitz} if lipschitz else {})
    labels, indices = images.labels.tolist(), images.indices.tolist()
    lines = [
        {
            "idx": indices[k],
            "label": labels[k],
            "predict": predicted,
            "radius": at,
            "correct": predicted == labels[k],
            "time": timedelta(milliseconds=k + 1),
            "status": STATUSES[Claim[claim]][0],
            **{name: values[k] for name, values in further.items()},
        }
        for k, (predicted, at) in enumerate(rows)
    ]
    made = write_run(
        folder,
        lines,
        indices,
        claim=claim,
        norm=norm,
        data=recorded,
        settings=settings,
        columns=tuple(further),
        more=more,
    )
    run = read(made)
    in_turn = np.array([statuses[k % len(statuses)] for k in range(len(run))]) if statuses else run.rows["status"]
    return dataclasses.replace(run, rows={**run.rows, "status": in_turn})


def random_rows(images: Dataset, *, seed: int = 0, scale: float = 1.0) -> list[Row]:
    """Nine in ten right; radii from a gamma distribution."""
    rng = np.random.default_rng(seed)
    labels = images.labels.tolist()
    return [
        (label if rng.random() < 0.9 else (label + 1) % len(images.classes), float(rng.gamma(4.0, scale / 4)))
        for label in labels
    ]
