"""Certify trained models on whole test sets, attack them, keep the record: the numbers of docs/training.md."""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import origin
from rich.console import Console

import berncert
from berncert import data
from berncert.models.checkpoint import open_checkpoint

HERE = Path(__file__).parent
RADII = {
    "digits": (0.0, 0.1, 0.3, 0.5, 1.0),
    "moons": (0.0, 0.02, 0.05, 0.1),
    "mnist": (0.0, 0.1, 0.3, 0.5, 1.0, 1.58),
}
LINF_RADII = {"mnist": (0.0, 0.02, 0.05, 0.1, 0.2, 0.3), "digits": (0.0, 0.02, 0.05, 0.1, 0.2)}
COLOUR_RADII = {2.0: tuple(k / 255 for k in (0, 36, 72, 108, 255)), math.inf: tuple(k / 255 for k in (0, 1, 2, 4, 8))}
EXAMPLES = """\
examples:
  python -m experiments.trained digits mnist                              the shipped models
  python -m experiments.trained mnist-linf=mnist --norm inf               a label, the model, and the norm
  python -m experiments.trained cifar10=runs/cifar10/model.safetensors    a label, and the file
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.trained", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("models", nargs="+", metavar="[LABEL=]MODEL", help="checkpoints, or names of shipped ones")
    parser.add_argument("--data-dir", help="where data sets are (else BERNCERT_DATA, the cache, download)")
    parser.add_argument("--norm", type=float, default=2.0, choices=(2.0, math.inf), help="2 or inf (2)")
    parser.add_argument(
        "--radius", type=float, help="decide at this radius only, which is faster where proofs are local"
    )
    parser.add_argument("--skip", type=int, default=1, metavar="N", help="every N-th test image only (1: all)")
    parser.add_argument("--attacked", type=int, default=1000, metavar="N", help="images to attack, the first (1000)")
    parser.add_argument(
        "--out", type=Path, default=HERE, metavar="DIR", help="where the record goes (beside this file)"
    )
    chosen = parser.parse_args()
    for word in chosen.models:
        label, _, path = word.rpartition("=")
        record = examined(path, chosen.data_dir, chosen.attacked, chosen.norm, chosen.skip, chosen.radius)
        chosen.out.mkdir(parents=True, exist_ok=True)
        name = label or Path(path).stem
        (chosen.out / f"{name}.json").write_text(json.dumps({"label": name} | record, indent=1) + "\n")
    records = [json.loads(file.read_text()) for file in sorted(chosen.out.glob("*.json"))]
    groups = sorted({(r["dataset"], float(r.get("norm", 2))) for r in records})
    sections = [section for group in groups for section in tables(records, *group)]
    for section in sections:
        show(Console(), section)
    (chosen.out / "results.md").write_text(markdown("Trained models, certified", INTRODUCTION, sections))


INTRODUCTION = """\
Each model is certified by `berncert.certify` with default options, on the whole test set unless its table says how many
of its images, evenly spread, and at one radius only where others are left blank; an image counts at a radius if it gets
its class and that radius is proven. Beside it the accuracy under PGD (in the same norm, 20 steps, margin loss): no
certificate can be above it on the same images. The mean radius counts wrong images as 0. Everything at full precision,
with the command that made it, is in the JSON files beside this one. Times are of a shared 2-core machine."""


def examined(
    path: str, data_dir: str | None, attacked: int, norm: float, skip: int = 1, radius: float | None = None
) -> dict[str, Any]:
    """All that is measured of one model; with a radius, whether each image is proven there instead of how far."""
    checkpoint = open_checkpoint(path)
    model, about = checkpoint.smoothed(), checkpoint.about
    name = about["recipe"]["data"]["dataset"]
    test = data.load(name, "test", data_dir=data_dir, skip=skip)
    radii = (RADII if norm == 2 else LINF_RADII).get(name, COLOUR_RADII[norm]) if radius is None else (0.0, radius)
    berncert.certify(model, test.images[:2])  # the compiled search is loaded
    began = time.perf_counter()
    c = berncert.certify(model, test.images, norm=norm, radius=radius)
    seconds = time.perf_counter() - began
    labels = test.labels.numpy()
    correct = c.predicted == labels
    few = slice(min(attacked, len(test)))
    images = test.images[few].double()
    attack = berncert.Pgd(norm=norm, steps=20).accuracy(model, images, test.labels[few], radii)
    return {
        "dataset": name,
        "norm": str(norm),
        "part": test.part,
        "images": len(test),
        "skip": skip,
        "recipe": about["recipe"],
        "training": {key: about[key] for key in ("epochs", "threads", "versions", "data")},
        "checkpoint_sha256": checkpoint.sha256,
        "numbers": checkpoint.description()["extractor"]["numbers"],
        "radii": list(radii),
        "certified": c.certified_accuracy(labels, radii).tolist(),
        "attacked": attack,
        "attacked_images": len(images),
        "certified_of_attacked": c[few].certified_accuracy(labels[few], radii).tolist(),
        "mean_radius": float(np.mean(c.radius * correct)) if radius is None else None,
        "routes": {str(route): int(np.sum(c.route == route)) for route in set(c.route)},
        "lipschitz_bound": float(c.lipschitz_bound[0]),
        "extraction_error": float(c.extraction_error.max()),
        "status": {str(status): int(np.sum(c.status == status)) for status in set(c.status)},
        "certify_seconds": seconds,
    } | origin("experiments.trained")


def tables(records: list[dict[str, Any]], dataset: str, norm: float) -> list[Section]:
    """The models of one data set, a column for each radius: proven of all images, and beside an attack on the first."""
    chosen = [r for r in records if r["dataset"] == dataset and float(r.get("norm", 2)) == norm]
    title = f"{dataset}, l{norm:g}"
    radii = sorted({radius for r in chosen for radius in r["radii"]})
    names = [
        Column("label", "model", lambda r: r["label"]),
        Column("trained_for", "trained for", lambda r: r["recipe"]["training"]["radius"], number),
    ]
    rest = [
        Column("mean_radius", "mean radius", lambda r: r["mean_radius"], number),
        Column("speed", "images/s", lambda r: r["images"] / r["certify_seconds"], number),
    ]
    proven, beside = ([Column(f"{r:.4g}", f"{r:.3g}", cell(r), str) for r in radii] for cell in (_all, _few))
    part = f" ({chosen[0]['part']})" if chosen[0]["part"] else ""
    few = f"Percent of the first {_attacked(chosen)}: proven / correct under PGD."
    return [
        Section.of(title, f"{title}: proven", f"Percent of {chosen[0]['images']} images{part}.",
                   names + proven + rest, chosen),
        Section.of(f"{title}-attacked", f"{title}: beside an attack", few, names + beside, chosen),
    ]  # fmt: skip


def _attacked(chosen: list[dict[str, Any]]) -> str:
    """How many images were attacked; of each model, if not of all the same."""
    counts = {r["attacked_images"] for r in chosen}
    if len(counts) == 1:
        return str(counts.pop())
    return "images, " + ", ".join(f"{r['attacked_images']} of {r['label']}" for r in chosen)


def _all(radius: float) -> Any:
    def cell(r: dict[str, Any]) -> str:
        return f"{100 * r['certified'][r['radii'].index(radius)]:.2f}" if radius in r["radii"] else ""

    return cell


def _few(radius: float) -> Any:
    def cell(r: dict[str, Any]) -> str:
        if radius not in r["radii"]:
            return ""
        i = r["radii"].index(radius)
        return f"{100 * r['certified_of_attacked'][i]:.1f} / {100 * r['attacked'][i]:.1f}"

    return cell


if __name__ == "__main__":
    main()
