"""Exact, estimated and randomized radii of the same images and the same network, side by side in one run."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import made_by, origin
from berncert import Estimate, Exact, Randomized, data
from berncert.certification.methods import Batch, Method
from berncert.data import Dataset
from berncert.foundation.progress import Bar
from berncert.models.checkpoint import open_checkpoint

HERE = Path(__file__).parent
METHODS: dict[str, Method] = {
    "exact: proven": Exact(),
    "estimate: the paper's root finder": Estimate(),
    "randomized, sigma 0.25": Randomized(sigma=0.25),
    "randomized, sigma 0.5": Randomized(sigma=0.5),
}
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
TOGETHER = 10  # images of each method in turn, so that what disturbs one disturbs all


def measured(model: str, test: Dataset) -> list[dict[str, Any]]:
    """Seconds and rows of each method, the methods taking turns."""
    found = {name: _begun(name, method, len(test)) for name, method in METHODS.items()}
    work = {name: _prepared(model, method, test) for name, method in METHODS.items()}
    with Bar("certifying", total=len(test)) as bar:
        for rows in torch.split(torch.arange(len(test)), TOGETHER):
            for name, method in METHODS.items():
                _add(found[name], method, work[name], test, rows)
            bar.update(int(rows[-1]) + 1)
    return list(found.values())


def whole(model: str, test: Dataset) -> dict[str, Any]:
    """The exact method on all images, as `berncert certify` takes them: in batches, extraction and proof."""
    method = Exact()
    found, work = _begun("exact: proven, in batches of 256", method, len(test)), _prepared(model, method, test)
    for rows in torch.split(torch.arange(len(test)), method.batch_size):
        _add(found, method, work, test, rows)
    return found


def _prepared(model: str, method: Method, test: Dataset) -> Callable[[Batch], Any]:
    classifier = open_checkpoint(model).smoothed()
    return method.prepare(classifier, test.images.shape[1:], threads=1, progress=False)


def _begun(name: str, method: Method, count: int) -> dict[str, Any]:
    return {"method": name, "seconds": 0.0, "radius": np.zeros(count), "right": np.zeros(count, bool)}


def _add(
    found: dict[str, Any], method: Method, work: Callable[[Batch], Any], test: Dataset, rows: torch.Tensor
) -> None:
    began = time.perf_counter()
    results = work(Batch(test.images[rows], test.labels[rows], test.indices[rows].tolist()))
    found["seconds"] += time.perf_counter() - began
    found["radius"][rows] = attrgetter(method.columns["radius"])(results)
    found["right"][rows] = results.predicted == test.labels[rows].numpy()


def columns() -> list[Column]:
    """Speed and certified accuracy."""
    told = [
        Column("method", "method", lambda r: r["method"]),
        Column("images", "images", lambda r: len(r["radius"])),
        Column("speed", "images/s", lambda r: len(r["radius"]) / r["seconds"], number),
        Column("seconds", "", lambda r: r["seconds"]),
        Column("mean_radius", "mean radius", lambda r: float(np.where(r["right"], r["radius"], 0.0).mean()), number),
    ]
    return told + [Column(f"at {r:g}", f"{r:g}", _share(r), lambda share: f"{100 * share:.1f}") for r in RADII]


def _share(radius: float) -> Any:
    return lambda found: float(np.mean(found["right"] & (found["radius"] >= radius)))


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
