"""Certify an ordinary CNN of MNIST step by step: as it is, by each route, and trained again for its radii.

Two trainings of a few epochs, about three minutes of one idle core in all, and the first test images.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.timing import made_by, origin

import berncert
from berncert import data
from berncert.foundation.folders import write_whole
from berncert.reporting.diagnosis import diagnose
from experiments.own_network.networks import RADIUS, SIDE, kept_at_norm_one, ordinary, train

HERE = Path(__file__).parent
NORMS = {"l2": 2.0, "linf": math.inf}
ATTACKED = {
    "l2": [0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0],
    "linf": [0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.own_network",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", type=int, default=200, metavar="N", help="test images, the first (200)")
    parser.add_argument("--epochs", type=int, default=3, help="of each training (3)")
    parser.add_argument("--degree", type=int, default=7, help="of the smoothed head of the ordinary network (7)")
    parser.add_argument("--data-dir", help="where MNIST is (else BERNCERT_DATA, the cache, download)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="of the record (beside this file)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    record = run(chosen)
    write_whole(chosen.out / "record.json", json.dumps(record, indent=1).encode())
    (chosen.out / "results.md").write_text(text(record))
    print(text(record))


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Train and certify; the record."""
    began = time.perf_counter()
    training = data.load("mnist", "train", data_dir=chosen.data_dir)
    test = data.load("mnist", "test", data_dir=chosen.data_dir, limit=chosen.images)
    torch.manual_seed(0)
    plain = ordinary()
    train(plain, training, chosen.epochs, lambda f, labels, done: F.cross_entropy(plain.head(f), labels))
    robust = kept_at_norm_one()
    train(robust, training, chosen.epochs, lambda f, labels, done: berncert.certified_loss(
        f, labels, robust.head, radius=min(1.0, 2 * done) * RADIUS / SIDE, temperature=0.25))  # fmt: skip
    steps = {
        "ordinary CNN, head smoothed": plain.smooth(chosen.degree, points=0),
        "the same layers at norm 1, certified loss": robust,
        "`berncert train mnist`, as shipped": berncert.load("mnist"),
    }
    rows = [measured(name, model, test) for name, model in steps.items()]
    return {
        "images": len(test), "epochs": chosen.epochs, "degree": chosen.degree, "rows": rows,
        "seconds": time.perf_counter() - began, "made": origin("experiments.own_network"),
    }  # fmt: skip


def measured(name: str, model: berncert.Classifier, test: data.Dataset) -> dict[str, Any]:
    """Radii of one model in both norms, beside an attack."""
    found: dict[str, Any] = {"name": name}
    for label, norm in NORMS.items():
        c = berncert.certify(model, test.images, norm=norm)
        correct = c.predicted == test.labels.numpy()
        attack = berncert.Pgd(norm=norm, steps=40)
        attacked = attack.accuracy(model.double(), test.images.double(), test.labels, ATTACKED[label])
        routes = [str(getattr(route, "name", route)).lower() for route in getattr(c, "route", ["global"] * len(c))]
        found[label] = {
            "clean": float(correct.mean()),
            "median": float(np.median(np.where(correct, c.radius, 0))),
            "global_median": float(np.median(np.where(correct, global_radius(c), 0))),
            "certified": {f"{at:g}": float((correct & (c.radius >= at)).mean()) for at in ATTACKED[label]},
            "attacked": dict(zip(map("{:g}".format, ATTACKED[label]), attacked, strict=True)),
            "bound": float(np.median(c.lipschitz_bound)),
            "routes": {route: routes.count(route) for route in sorted(set(routes))},
        }
        diagnosis = diagnose(model, test.images[correct], norm=norm)
        found[label]["diagnosis"] = str(diagnosis)
        found[label]["attack_needs"] = asdict(diagnosis)["attacked_estimate"]
    return found


def global_radius(c: berncert.ImageCertificates) -> Any:
    """What the global route alone proves, up to rounding."""
    return c.feature_radius / c.lipschitz_bound


def text(record: dict[str, Any]) -> str:
    """The tables."""
    lines = [
        "# A network of one's own", "",
        f"MNIST, the first {record['images']} test images; trainings of {record['epochs']} epochs on one core: a "
        "small-scale measurement. Radii in units of the pixels, medians over all images, 0 where the class is wrong. "
        "The attack is PGD; what it needs is the median over five images that are correct.", "",
        "| network | norm | clean, % | median radius | global route alone | an attack needs | bound | routes |",
        "| :--- | :--- | ---: | ---: | ---: | ---: | ---: | :--- |",
    ]  # fmt: skip
    for row in record["rows"]:
        for norm in NORMS:
            r = row[norm]
            routes = ", ".join(f"{name} {count}" for name, count in r["routes"].items())
            lines.append(
                f"| {row['name']} | {norm} | {100 * r['clean']:.1f} | {r['median']:.2g} | {r['global_median']:.2g} | "
                f"{r['attack_needs']:.2g} | {r['bound']:.3g} | {routes} |"
            )
    for row in record["rows"]:
        for norm in NORMS:
            r = row[norm]
            lines += ["", f"{row['name']}, {norm}: certified and attacked accuracy in %", ""]
            lines += ["| radius | " + " | ".join(r["certified"]) + " |", "| :--- |" + " ---: |" * len(r["certified"])]
            for kind in ("certified", "attacked"):
                lines.append(f"| {kind} | " + " | ".join(f"{100 * v:.1f}" for v in r[kind].values()) + " |")
            lines += ["", "```text", r["diagnosis"], "```"]
    return "\n".join([*lines, "", made_by(record["made"]), ""])


if __name__ == "__main__":
    main()
