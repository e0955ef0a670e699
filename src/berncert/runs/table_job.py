"""The job of a run on a table: rows come with each batch, the model is read once by each worker."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from berncert.certification.methods import Exact
from berncert.data.table_files import TableFile
from berncert.estimators.certifying import certify_table
from berncert.estimators.constraints import ConstraintOptions
from berncert.estimators.files import parse
from berncert.foundation.arrays import Floats, Ints
from berncert.runs.table import Line, text_lines
from berncert.runs.worker import MODEL, ROWS, MissingPartError, Supplies, Work, model_content

COLUMNS = (
    "idx", "label", "predict", "radius", "correct", "time", "status", "rival", "boxes", "upper", "flips_base", "row",
    "counterfactual",
)  # fmt: skip


class Loaded(NamedTuple):
    """What is in the memory of the process that made the job."""

    model: Any
    table: TableFile
    test: Ints
    """The rows that were held out."""


class TableRows(NamedTuple):
    """Some rows of the user's table."""

    numbers: Ints
    labels: list[str]
    values: Floats


@dataclass(frozen=True, kw_only=True)
class TableJob:
    """A smoothed model of a table, by its checksum, and what is asked about its rows."""

    method: Exact
    limits: ConstraintOptions
    classes: tuple[str, ...]
    model: str
    """The path of the skops file, for workers that see the same files."""
    model_sha256: str
    threads: int | None
    versions: Mapping[str, str]
    loaded: Loaded | None = field(default=None, compare=False, repr=False)
    """In the process that made the job; it does not travel."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "loaded": None}

    @cached_property
    def key(self) -> str:
        """A checksum of all the rest."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def prepare(self, supplies: Supplies) -> Work:
        """The model."""
        loaded = self.loaded
        content = b"" if loaded else model_content(self.model, self.model_sha256, supplies)
        model = loaded.model if loaded else parse(content, self.model)

        def work(rows: slice, supplies: Supplies) -> list[Line]:
            if loaded is None and ROWS not in supplies:
                raise MissingPartError(ROWS)
            return self._certified(model, supplies[ROWS] if ROWS in supplies else self.supply(ROWS, rows))

        return work

    def supply(self, part: str, item: slice) -> Any:
        """The content of the model's file, or the cells of these rows."""
        assert self.loaded is not None
        if part == MODEL:
            return model_content(self.model, self.model_sha256, {})
        table, rows = self.loaded.table, self.loaded.test[item]
        return TableRows(table.numbers[rows], table.target[rows].tolist(), table.values[rows])

    def _certified(self, model: Any, rows: TableRows) -> list[Line]:
        """The rows of the run's table for some of the user's."""
        method, x = self.method, rows.values
        began = time.perf_counter()
        c, proofs = certify_table(
            model, x, model._rows(x), method, self.limits, numbers=rows.numbers.tolist(), threads=self.threads,
            progress=False,
        )  # fmt: skip
        seconds = timedelta(seconds=(time.perf_counter() - began) / len(x))
        number = {label: k for k, label in enumerate(self.classes)}
        lines = []
        for i in range(len(x)):
            label, predicted = number.get(rows.labels[i], -2), number[str(c.predicted[i])]
            lines.append(
                {
                    "idx": int(rows.numbers[i]), "label": label, "predict": predicted, "radius": c.radius[i],
                    "correct": label == predicted, "time": seconds, "status": c.status[i],
                    "rival": -1 if c.rival[i] is None else number[str(c.rival[i])], "boxes": int(c.boxes[i]),
                    "upper": c.upper[i], "flips_base": bool(c.flips_base[i]), "row": x[i],
                    "counterfactual": np.asarray(c.counterfactual[i]),
                }
            )  # fmt: skip
        return text_lines(COLUMNS, lines, proofs)
