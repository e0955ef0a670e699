"""The rows of the record, summed up over seeds, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from benchmarks.timing import made_by

from berncert.foundation.arrays import Floats
from experiments.why_bend.plan import ARMS, CHOSEN_BY, DIMS, RADII, SEEDS

INTRODUCTION = """\
MNIST, l2: percent of the first {images} test images that are correct and proven at each radius, mean ± standard
deviation over {seeds} seeds. Small-scale: both arms have an extractor of two hidden layers of 128 (recipe
`mnist-small`), {train_limit} training images and {epochs} epochs. The affine head is trained with exact worst cases,
the bending one (a polynomial of the degree given) with five gradient steps in feature space; radius, temperature and
the like were chosen for each arm on held-out training images (`plan.py`, `trials.tsv`). In the last column the mean of
the certified accuracies at 0, 0.3, 1 and 1.58, by which they were chosen."""


class Cell(NamedTuple):
    """The certified accuracies in percent of one arm with one number of features: a row for each seed."""

    arm: str
    dim: int
    degree: int
    values: Floats
    """(seeds, radii)."""

    @property
    def overall(self) -> Floats:
        """The mean over the radii that settings were chosen by, for each seed."""
        means: Floats = self.values[:, [RADII.index(radius) for radius in CHOSEN_BY]].mean(axis=1)
        return means


def _text(values: Floats) -> str:
    """Mean and standard deviation, as one of a sample."""
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" if len(values) > 1 else f"{values.mean():.1f}"


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], Cell]:
    """Arm and number of features -> what all seeds reached."""
    found = {}
    for arm in ARMS:
        for dim in DIMS:
            mine = [row for row in rows if (row["arm"], row["dim"]) == (arm, dim)]
            if mine:
                values = 100 * np.array([row["certified"] for row in mine])
                found[arm, dim] = Cell(arm, dim, mine[0]["settings"]["degree"], values)
    return found


def text(record: Mapping[str, Any]) -> str:
    """The page of results."""
    cells = summary(record["rows"])
    lines = ["| features | head | clean | " + " | ".join(f"{radius:g}" for radius in RADII[1:]) + " | mean |"]
    lines.append("| ---: | :--- |" + " ---: |" * (len(RADII) + 1))
    for dim in DIMS:
        for arm in ARMS:
            if (arm, dim) in cells:
                cell = cells[arm, dim]
                head = arm if arm == "affine" else f"{arm}, degree {cell.degree}"
                shares = map(_text, cell.values.T)
                overall = _text(cell.overall)
                lines.append(f"| {dim} | {head} | " + " | ".join([*shares, overall]) + " |")
    seconds = {arm: np.mean([r["training_cpu_seconds"] for r in record["rows"] if r["arm"] == arm]) for arm in ARMS}
    cost = ", ".join(f"{arm} {value:.0f} s" for arm, value in seconds.items())
    settings = record["rows"][0]["settings"]
    introduction = INTRODUCTION.format(
        images=record["images"], seeds=len(SEEDS), epochs=settings["epochs"], train_limit=settings["train_limit"]
    )
    table = "\n".join(lines)
    return f"# Why bend\n\n{introduction}\n\n{table}\n\nOne training, of one core: {cost}. {made_by(dict(record))}\n"
