"""The rows of the record, summed up over seeds, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from benchmarks.timing import made_by

from berncert.foundation.arrays import Floats
from experiments.why_bend.plan import ARMS, DIMS, RADII, RADIUS, SEEDS

INTRODUCTION = """\
MNIST, l2: percent of the first {images} test images that are correct and proven at each radius, mean ± standard
deviation over {seeds} seeds. Both arms have an extractor of two hidden layers of 128 (recipe `mnist-small`) and
{epochs} epochs, trained for radius {radius}: the affine head with exact worst cases, the bending one (a polynomial
of the degree given) with five gradient steps in feature space. Settings were chosen on held-out training images
(`plan.py`, `trials.tsv`)."""


class Cell(NamedTuple):
    """The certified accuracies in percent of one arm with one number of features: a row for each seed."""

    arm: str
    dim: int
    degree: int
    values: Floats
    """(seeds, radii)."""

    def mean(self, radius: float) -> float:
        """Over the seeds."""
        return float(self.values[:, RADII.index(radius)].mean())

    def spread(self, radius: float) -> float:
        """The standard deviation over the seeds, as one of a sample."""
        column = self.values[:, RADII.index(radius)]
        return float(column.std(ddof=1)) if len(column) > 1 else float("nan")


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
    lines = ["| features | head | clean | " + " | ".join(f"{radius:g}" for radius in RADII[1:]) + " |"]
    lines.append("| ---: | :--- |" + " ---: |" * len(RADII))
    for dim in DIMS:
        for arm in ARMS:
            if (arm, dim) in cells:
                cell = cells[arm, dim]
                head = arm if arm == "affine" else f"{arm}, degree {cell.degree}"
                shares = (f"{cell.mean(radius):.1f} ± {cell.spread(radius):.1f}" for radius in RADII)
                lines.append(f"| {dim} | {head} | " + " | ".join(shares) + " |")
    seconds = {arm: np.mean([r["training_cpu_seconds"] for r in record["rows"] if r["arm"] == arm]) for arm in ARMS}
    cost = ", ".join(f"{arm} {value:.0f} s" for arm, value in seconds.items())
    settings = record["rows"][0]["settings"]
    introduction = INTRODUCTION.format(
        images=record["images"], seeds=len(SEEDS), epochs=settings["epochs"], radius=f"{RADIUS:g}"
    )
    table = "\n".join(lines)
    return f"# Why bend\n\n{introduction}\n\n{table}\n\nOne training, of one core: {cost}. {made_by(dict(record))}\n"
