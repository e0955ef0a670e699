"""Exact, estimated and randomized radii of the same images and the same network, side by side in one run."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import made_by, origin
from berncert import data
from berncert.data import Dataset
from berncert.floor.progress import Bar
from berncert.runs.execute import loaded
from berncert.runs.methods import Estimated, Exact, Randomized, RunSettings
from berncert.runs.workers import worker

HERE = Path(__file__).parent
METHODS: dict[str, RunSettings] = {
    "exact: proven": Exact(),
    "estimate: the paper's root finder": Estimated(),
    "randomized, sigma 0.25": Randomized(sigma=0.25),
    "randomized, sigma 0.5": Randomized(sigma=0.5),
}
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
TOGETHER = 10  # images of each method in turn, so that what disturbs one disturbs all


def measured(model: str, test: Dataset) -> list[dict[str, Any]]:
    """Seconds and rows of each method, the methods taking turns."""
    classifier, shape = loaded(model), test.images.shape[1:]
    work = {name: worker(settings, classifier, shape) for name, settings in METHODS.items()}
    found: dict[str, dict[str, Any]] = {name: {"method": name, "seconds": 0.0, "rows": []} for name in METHODS}
    with Bar("certifying", total=len(test) * len(work)) as bar:
        for rows in torch.split(torch.arange(len(test)), TOGETHER):
            images, labels, numbers = test.images[rows], test.labels[rows], test.indices[rows].tolist()
            for name, do in work.items():
                began = time.perf_counter()
                found[name]["rows"] += do(images, labels, numbers)
                found[name]["seconds"] += time.perf_counter() - began
                bar.update(sum(len(entry["rows"]) for entry in found.values()))
    return [entry | {"labels": test.labels.numpy()} for entry in found.values()]


def whole(model: str, test: Dataset) -> dict[str, Any]:
    """The exact method on all images, as `berncert certify` takes them: in batches, extraction and proof."""
    settings = Exact()
    work, size = worker(settings, loaded(model), test.images.shape[1:]), settings.batch_size
    began, rows = time.perf_counter(), []
    for part in torch.split(torch.arange(len(test)), size):
        rows += work(test.images[part], test.labels[part], test.indices[part].tolist())
    seconds = time.perf_counter() - began
    return {
        "method": "exact: proven, in batches of 256",
        "seconds": seconds,
        "rows": rows,
        "labels": test.labels.numpy(),
    }


def columns() -> list[Column]:
    """Speed and certified accuracy."""
    told = [
        Column("method", "method", lambda r: r["method"]),
        Column("images", "images", lambda r: len(r["rows"])),
        Column("speed", "images/s", lambda r: len(r["rows"]) / r["seconds"], number),
        Column("seconds", "", lambda r: r["seconds"]),
        Column("mean_radius", "mean radius", lambda r: float(_radii(r).mean()), number),
    ]
    return told + [Column(f"at {r:g}", f"{r:g}", _share(r), lambda share: f"{100 * share:.1f}") for r in RADII]


def _radii(found: dict[str, Any]) -> Any:
    """Wrong images count 0."""
    right = np.array([row["predict"] for row in found["rows"]]) == found["labels"]
    return np.where(right, [row["radius"] for row in found["rows"]], 0.0)


def _share(radius: float) -> Any:
    def share(found: dict[str, Any]) -> float:
        right = np.array([row["predict"] for row in found["rows"]]) == found["labels"]
        return float(np.mean(right & (np.array([row["radius"] for row in found["rows"]]) >= radius)))

    return share


INTRODUCTION = """\
The network is the shipped `mnist` model, as it is; the images are the same for all. `exact` proves; `estimate` is the
paper's number, which is not proven; `randomized` (n = 100,000, alpha = 0.001) holds with probability 0.999 for each
row, of another classifier: the network under noise. It was not trained with noise, so these are not the best figures
that randomized smoothing can reach on MNIST."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.certifiers", description=__doc__)
    parser.add_argument("--skip", type=int, default=100, help="every so many-th test image (100: 100 images)")
    parser.add_argument("--data-dir", help="where data sets are (else BERNCERT_DATA, the cache, download)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where the record goes (here)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    few = measured("mnist", data.load("mnist", skip=chosen.skip, data_dir=chosen.data_dir))
    every = whole("mnist", data.load("mnist", data_dir=chosen.data_dir))
    title = f"MNIST, every {chosen.skip}th test image, l2"
    note = "Percent of images that get their class with at least this radius; one thread, the methods take turns."
    sections = [
        Section.of("side_by_side", title, note, columns(), few),
        Section.of("whole", "MNIST, all test images, l2", "Extraction and proof, one thread.", columns(), [every]),
    ]
    for section in sections:
        show(Console(), section)
    source = origin("benchmarks.certifiers")
    record = source | {section.key: section.rows for section in sections}
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "certifiers.json").write_text(json.dumps(record, indent=1) + "\n")
    text = markdown("Certifiers, measured", f"{INTRODUCTION}\n\n{made_by(source)}", sections)
    (chosen.out / "certifiers.md").write_text(text)


if __name__ == "__main__":
    main()
