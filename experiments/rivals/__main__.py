"""Draw certified accuracy over the radius, ours beside the rivals, one picture for each data set and norm.

Curves: run folders, models (which are certified first, resumably, in out/rivals), published rows such as
cohen2019:0.25, and randomized smoothing of a model on 500 test images with few votes. Points: figures that others
published of deterministic proofs. The record keeps all that is drawn; without curves the pictures of the records are
drawn again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import origin
from rich.console import Console

from berncert.foundation.folders import write_whole
from berncert.foundation.rounding import norm_name
from experiments.rivals.gather import curves_of, randomized_curve
from experiments.rivals.plot import rivals_figure
from experiments.rivals.points import PICTURES

HERE = Path(__file__).parent
IMAGES = HERE.parent.parent / "docs" / "images"
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
EXAMPLES = """\
examples:
  python -m experiments.rivals mnist-l2 mnist --randomized mnist:0.25 mnist:0.5
  python -m experiments.rivals mnist-linf "trained for l2"=mnist
  python -m experiments.rivals cifar10-l2 runs/cifar10 cohen2019:0.25 salman2019:0.25 --randomized runs/cifar10:0.12
  python -m experiments.rivals mnist-linf runs/mnist-local --add      one curve more in the same picture
  python -m experiments.rivals                                        draws all records again
"""
INTRODUCTION = """\
Percent of the test images that are correct and keep their class within the radius. Proven: by `berncert.certify`.
Probable: randomized smoothing; each row holds with probability 0.999. That of our own networks is small-scale: every
20th test image, with as many votes as the record says (the field takes 100,000), and the networks were not trained
with noise. Published figures of other deterministic proofs are in the pictures; `points.py` lists them."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.rivals", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("picture", nargs="?", choices=PICTURES, help=f"one of {', '.join(PICTURES)}")
    parser.add_argument("curves", nargs="*", metavar="[LABEL=]RUN", help="runs, models, or published rows")
    parser.add_argument(
        "--randomized", nargs="+", default=[], metavar="[LABEL=]MODEL:SIGMA", help="smooth these models with noise"
    )
    parser.add_argument("--add", action="store_true", help="keep the other curves of the record (only these curves)")
    parser.add_argument("--votes", type=int, default=1000, help="of randomized smoothing, for each image (1000)")
    parser.add_argument("--runs", type=Path, default=Path("out/rivals"), metavar="DIR", help="of new runs (out/rivals)")
    parser.add_argument("--data-dir", help="where data sets and published rows are (else BERNCERT_DATA)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="of the records (beside this file)")
    parser.add_argument("--images", type=Path, default=IMAGES, metavar="DIR", help="of the pictures (docs/images)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.picture:
        record, file = gathered(chosen) | origin("experiments.rivals"), chosen.out / f"{chosen.picture}.json"
        if chosen.add and file.exists():
            record = joined(json.loads(file.read_text()), record)
        chosen.out.mkdir(parents=True, exist_ok=True)
        write_whole(file, (json.dumps(record, indent=1) + "\n").encode())
    records = {
        name: json.loads(path.read_text()) for name in PICTURES if (path := chosen.out / f"{name}.json").exists()
    }
    for name, record in records.items():
        draw(name, record, chosen.images / f"rivals-{name}.png")
    sections = [table(name, record) for name, record in records.items()]
    for section in sections:
        show(Console(), section)
    (chosen.out / "results.md").write_text(markdown("Beside the rivals", INTRODUCTION, sections))


def gathered(chosen: argparse.Namespace) -> dict[str, Any]:
    """The record of a picture: every curve."""
    picture = PICTURES[chosen.picture]
    curves = [c for word in chosen.curves for c in curves_of(word, picture, chosen.runs, chosen.data_dir)]
    curves += [
        randomized_curve(word, picture, chosen.runs, chosen.data_dir, chosen.votes) for word in chosen.randomized
    ]
    if not curves:
        raise SystemExit("expected at least one run or model, got none")
    return {"picture": chosen.picture, "curves": curves, "points": [point._asdict() for point in picture.points]}


def joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new record with the curves of the old one before its own; of two with one label the new one."""
    labels = {curve["label"] for curve in new["curves"]}
    kept = [curve for curve in old["curves"] if curve["label"] not in labels]
    return new | {"curves": kept + new["curves"], "command": f"{old['command']}; {new['command']}"}


def draw(name: str, record: dict[str, Any], path: Path) -> None:
    """Write the picture."""
    picture = PICTURES[name]
    probable = any(curve["claim"] == "PROBABLE" for curve in record["curves"])
    title = f"{NAMES[picture.dataset]}, {norm_name(picture.norm)}: what is proven"
    title += ", and what holds with some probability" if probable else ""
    detail = "test images that are correct and keep their class; diamonds: figures that others published"
    path.parent.mkdir(parents=True, exist_ok=True)
    rivals_figure(picture, record["curves"], title, detail).savefig(path, dpi=150)


def table(name: str, record: dict[str, Any]) -> Section:
    """The curves of a picture at its usual radii."""
    radii = PICTURES[name].radii
    columns = [
        Column("label", "run", lambda c: c["label"]),
        Column("claim", "claim", lambda c: c["claim"].lower()),
        Column("images", "images", lambda c: c["images"]),
        *(Column(f"r{i}", f"{r:.3g}", _share(i)) for i, r in enumerate(radii)),
        Column("mean_radius", "mean radius", lambda c: c["mean_radius"], number),
        Column("seconds", "s per image", lambda c: c["seconds_per_image"], number),
    ]
    return Section.of(name, name, f"Made by `{record['command']}`.", columns, record["curves"])


def _share(i: int) -> Any:
    return lambda c: f"{100 * c['certified'][i]:.1f}"


if __name__ == "__main__":
    main()
