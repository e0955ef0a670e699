"""Attack trained models with PGD (margin loss, restarts) and with AutoAttack's standard set, beside what is proven.

Needs `pip install 'berncert[experiments]'`. An attack that succeeds within a proven radius ends the program with an
error: one of the two would be wrong. The record is written every 50 images; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import origin
from rich.console import Console
from torch import Tensor

import berncert
from berncert import data
from berncert.certification.classifier import Classifier
from berncert.foundation.folders import write_whole
from berncert.foundation.progress import Bar
from berncert.foundation.rounding import norm_name
from berncert.models.checkpoint import open_checkpoint
from experiments.autoattack.peers import ATTACKS, fallen, settings

HERE = Path(__file__).parent
PART = 50
"""Images that are attacked before the record is written."""
RADII = {("mnist", 2.0): "0.3,1,1.58", ("mnist", math.inf): "0.02,0.05,0.1", ("cifar10", 2.0): "36/255,72/255,108/255"}
INTRODUCTION = """\
Percent of the first test images, as many as the table says. Proven: correct, and the radius is proven by
`berncert.certify`. PGD and AutoAttack: correct, and still correct after the attack, as computed in float64 on images
within the radius. AutoAttack is the standard set of Croce and Hein (2020), APGD-CE, targeted APGD-DLR, targeted FAB and
Square, of the package pyautoattack. Proven can never be above attacked, image by image, and the program fails if it is.
What lies between is not known."""
SHARES = {"certified": "proven", "attacked": "all attacks", "autoattack": "AutoAttack", "pgd": "PGD"}
"""Shares of the images, and their columns."""
EXAMPLES = """\
examples:
  python -m experiments.autoattack mnist
  python -m experiments.autoattack mnist --norm inf --radii 0.02,0.05
  python -m experiments.autoattack large=runs/mnist-1.58 --radii 1.58 --images 500
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.autoattack", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("models", nargs="+", metavar="[LABEL=]MODEL", help="checkpoints, or names of shipped ones")
    parser.add_argument("--norm", type=float, default=2.0, choices=(2.0, math.inf), help="2 or inf (2)")
    parser.add_argument("--radii", help="e.g. 0.3,1 or 36/255 (some usual ones of the data set)")
    parser.add_argument("--images", type=int, default=500, metavar="N", help="test images, the first (500)")
    parser.add_argument("--data-dir", help="where data sets are (else BERNCERT_DATA, the cache, download)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where the records go (beside this file)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for word in chosen.models:
        label, _, path = word.rpartition("=")
        attack_model(label or Path(path).stem, path, chosen)
    records = [json.loads(file.read_text()) for file in sorted(chosen.out.glob("*.json"))]
    sections = [section(record) for record in records]
    for one in sections:
        show(Console(), one)
    (chosen.out / "results.md").write_text(markdown("Proven and attacked", INTRODUCTION, sections))


def attack_model(label: str, path: str, chosen: argparse.Namespace) -> None:
    """Write the record of one model, part by part; images that are in it already are not attacked again."""
    checkpoint = open_checkpoint(path)
    model, name = checkpoint.smoothed(), checkpoint.trained_on
    assert name is not None, f"expected a model that says what it was trained on, got {path}"
    test = data.load(name, "test", data_dir=chosen.data_dir, limit=chosen.images)
    file = chosen.out / f"{label}-{norm_name(chosen.norm)}.json"
    identity = {"dataset": name, "norm": str(chosen.norm), "checkpoint_sha256": checkpoint.sha256}
    record: dict[str, Any] = {"label": label, **identity, "attacks": settings(), "rows": []}
    if file.exists():
        record["rows"] = _rows_of(json.loads(file.read_text()), record)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for radius in map(_number, (chosen.radii or RADII.get((name, chosen.norm), "0.1")).split(",")):
        others = [row for row in record["rows"] if row["radius"] != radius]
        row: dict[str, Any] = {"radius": radius, "images": 0}
        row = next((old for old in record["rows"] if old["radius"] == radius), row)
        with Bar(f"attacking {label} at {radius:.3g}", total=len(test)) as bar:
            while (start := row["images"]) < len(test):
                bar.update(start)
                part = slice(start, start + PART)
                new = attacked(model, test.images[part], test.labels[part], radius, chosen.norm)
                row = joined(row, new) | origin("experiments.autoattack")
                record["rows"] = sorted([*others, row], key=lambda one: one["radius"])
                write_whole(file, (json.dumps(record, indent=1) + "\n").encode())


def attacked(model: Classifier, images: Tensor, labels: Tensor, radius: float, norm: float) -> dict[str, Any]:
    """What stands every attack at one radius; an error if an attack succeeds where that was proven impossible."""
    c, decided = (berncert.certify(model, images, norm=norm, radius=at, threads=1) for at in (None, radius))
    correct = c.predicted == labels.numpy()
    # a radius by the local route is not the largest: whether this one holds is asked as well
    proven = np.where(correct, np.maximum(c.radius, decided.radius), -1.0)
    row: dict[str, Any] = {"radius": radius, "images": len(labels), "certified": float((proven >= radius).mean())}
    standing, right = correct.copy(), torch.from_numpy(correct)  # what is wrong already needs no attack
    for name, attack in ATTACKS.items():
        began = time.perf_counter()
        found = images.double()
        if correct.any():
            found[right] = attack(model, images[right], labels[right], radius, norm).double()
        wrong, distance = fallen(model, images, labels, found, radius, norm)
        broken = np.flatnonzero(wrong & (distance.numpy() < proven))
        if len(broken):
            raise AssertionError(
                f"{name} changed the class of images within their proven radii, {broken.tolist()} of these "
                f"{len(labels)}: a proof or the attack is wrong (radius {radius}, norm {norm})"
            )
        row[name] = float((~wrong).mean())
        row[f"{name}_seconds"] = time.perf_counter() - began
        standing &= ~wrong
    row["attacked"] = float(standing.mean())
    if row["attacked"] < row["certified"]:
        raise AssertionError(f"expected attacked >= certified accuracy, got {row}")
    return row


def joined(row: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The row of all images, from that of the first ones and that of the next: seconds add up, and so do images."""
    if not row["images"]:
        return new
    images = row["images"] + new["images"]
    shares = {key: (round(row[key] * row["images"]) + round(new[key] * new["images"])) / images for key in SHARES}
    seconds = {key: row[key] + new[key] for key in new if key.endswith("_seconds")}
    return {**new, "images": images, **shares, **seconds}


def section(record: dict[str, Any]) -> Section:
    """The table of one model: a line for each radius."""
    title = f"{record['label']}: {record['dataset']}, {norm_name(float(record['norm']))}"
    return Section.of(
        record["label"], title, "The first test images.",
        [
            Column("radius", "radius", lambda r: r["radius"], number),
            Column("images", "images", lambda r: r["images"], str),
            *(Column(key, text, _share(key), str) for key, text in SHARES.items()),
            Column("seconds", "AutoAttack, s", lambda r: r["autoattack_seconds"], number),
        ],
        record["rows"],
    )  # fmt: skip


def _share(key: str) -> Any:
    return lambda r: f"{100 * r[key]:.1f}"


def _rows_of(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a record of the same model and attacks; none if it is of others."""
    keys = ("dataset", "norm", "checkpoint_sha256", "attacks")
    return list(old["rows"]) if all(old[key] == new[key] for key in keys) else []


def _number(text: str) -> float:
    over, _, under = text.partition("/")
    return float(over) / float(under or 1)


if __name__ == "__main__":
    main()
