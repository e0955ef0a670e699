"""Certify an ordinary CNN of MNIST step by step: as it is, by each route, and trained again for its radii.

Three trainings of a few epochs, about eight minutes of one idle core in all, and the first test images. The radius of
the certified loss is chosen on training images that were set aside, by a training of one epoch for each.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.timing import made_by, origin

import berncert
from berncert import data
from berncert.certification.local_route import LocalRoute
from berncert.data.holdout import hold_out, subset
from berncert.extractor.proof_cache import proven
from berncert.foundation.folders import write_whole
from berncert.foundation.rounding import ceil_digits, floor_digits
from berncert.reporting.diagnosis import diagnose
from experiments.own_network.networks import SIDE, kept_at_norm_one, ordinary, to_be_narrow, train
from experiments.own_network.picture import draw

HERE = Path(__file__).parent
PICTURE = HERE.parents[1] / "docs" / "images" / "own-network.png"
NORMS = {"l2": 2.0, "linf": math.inf}
RADII = (0.15, 0.3, 0.6)
"""Of the certified loss, in l2, of which one is chosen,"""
CHOSEN_AT = 0.3
"""by the certified accuracy at this radius on training images that were set aside,"""
ASIDE = 500
"""so many."""
BOX = 0.1
"""The radius in l-inf of the balls whose features the third network is trained through."""
ATTACKED = {"l2": np.geomspace(0.02, 4, 24).round(4).tolist(), "linf": np.geomspace(1e-3, 0.4, 24).round(5).tolist()}
OTHERS = 4
"""The other networks are attacked at one in so many of these radii."""
SHOWN = {"l2": (0.01, 0.03, 0.1, 0.3, 1.0), "linf": (0.001, 0.003, 0.01, 0.03, 0.1)}
COLUMNS = ("clean, %", "median radius", "upper end", "global route alone", "ratio", "an attack needs", "bound")
AT_ONCE = 100
"""Images in a forward pass, where the cost of a local proof is counted in such."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.own_network",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", type=int, default=100, metavar="N", help="test images, the first (100)")
    parser.add_argument("--epochs", type=int, default=3, help="of each training (3)")
    parser.add_argument("--degree", type=int, default=7, help="of the smoothed head of the ordinary network (7)")
    parser.add_argument("--data-dir", help="where MNIST is (else BERNCERT_DATA, the cache, download)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="of the record (beside this file)")
    parser.add_argument("--picture", type=Path, default=PICTURE, help="of the curves (docs/images/own-network.png)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    record = run(chosen)
    write_whole(chosen.out / "record.json", json.dumps(record, indent=1).encode())
    (chosen.out / "results.md").write_text(text(record))
    draw(record, chosen.picture)
    print(text(record))


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Train and certify; the record."""
    began = time.perf_counter()
    training = data.load("mnist", "train", data_dir=chosen.data_dir)
    test = data.load("mnist", "test", data_dir=chosen.data_dir, limit=chosen.images)
    torch.manual_seed(0)
    plain = ordinary()
    train(plain, training, chosen.epochs, lambda x, labels, done: F.cross_entropy(plain(x), labels))
    rest, aside = hold_out(training)
    aside = subset(aside, np.arange(min(ASIDE, len(aside))))
    found = {f"{radius:g}": certified_at(for_radii(radius, rest, 1), aside, CHOSEN_AT) for radius in RADII}
    best = max(RADII, key=lambda radius: found[f"{radius:g}"])
    steps = {
        "ordinary CNN, head smoothed": plain.smooth(chosen.degree, points=0).freeze((1, 28, 28)),
        "the same layers at norm 1, certified loss": for_radii(best, rest, chosen.epochs),
        "ordinary layers, trained through their boxes": through_boxes(BOX, training, chosen.epochs),
        "`berncert train mnist`, as shipped": berncert.load("mnist"),
    }
    every = [1, OTHERS, OTHERS, OTHERS]
    rows = [measured(name, model, test, step) for (name, model), step in zip(steps.items(), every, strict=True)]
    return {
        "images": len(test), "epochs": chosen.epochs, "degree": chosen.degree, "rows": rows,
        "choice": {"aside": len(aside), "at": CHOSEN_AT, "certified": found, "radius": best},
        "seconds": time.perf_counter() - began, "made": origin("experiments.own_network"),
    }  # fmt: skip


def for_radii(radius: float, training: data.Dataset, epochs: int) -> berncert.Classifier:
    """A network trained with the certified loss, for this l2 radius of the pixels."""
    torch.manual_seed(0)
    model = kept_at_norm_one()
    train(model, training, epochs, lambda x, labels, done: berncert.certified_loss(
        model.extractor(x), labels, model.head, radius=min(1.0, 2 * done) * radius / SIDE,
        temperature=0.25))  # fmt: skip
    return model


def through_boxes(radius: float, training: data.Dataset, epochs: int) -> berncert.Classifier:
    """A network of ordinary layers trained through the features that balls of l-inf, of this radius, reach."""
    torch.manual_seed(0)
    model = to_be_narrow()
    train(model, training, epochs, lambda x, labels, done: berncert.certified_loss(
        berncert.feature_box(model.extractor, x, radius * min(1.0, 2 * done)), labels, model.head))  # fmt: skip
    return model


def certified_at(model: berncert.Classifier, images: data.Dataset, radius: float) -> float:
    """The share of images that are certified at an l2 radius."""
    c = berncert.certify(model, images.images, norm=2.0)
    return float((c.radius >= radius)[c.predicted == images.labels.numpy()].sum() / len(images))


def measured(name: str, model: berncert.Classifier, test: data.Dataset, every: int) -> dict[str, Any]:
    """Radii of one model in both norms by each route, beside an attack at one in so many of the radii."""
    found: dict[str, Any] = {"name": name}
    for label, norm in NORMS.items():
        c = berncert.certify(model, test.images, norm=norm, counterexamples=True)
        alone = berncert.certify(model, test.images, norm=norm, routes="global")
        correct = c.predicted == test.labels.numpy()
        radius, alone_radius = (np.where(correct, part.radius, 0.0) for part in (c, alone))
        attack = berncert.Pgd(norm=norm, steps=40)
        attacked_at = ATTACKED[label][::every]
        attacked = attack.accuracy(model.double(), test.images.double(), test.labels, attacked_at)
        routes = c.route.tolist()
        diagnosis = diagnose(model, test.images[correct], norm=norm)
        found[label] = {
            "clean": float(correct.mean()),
            "median": float(np.median(radius)),
            "upper": float(np.median(np.where(correct, c.upper, 0.0))),
            "witnesses": int(np.isfinite(c.upper).sum()),
            "global_median": float(np.median(alone_radius)),
            "radii": sorted(radius.tolist()),
            "global_radii": sorted(alone_radius.tolist()),
            "attacked": dict(zip(map("{:g}".format, attacked_at), attacked, strict=True)),
            "bound": float(np.median(c.lipschitz_bound)),
            "routes": {route: routes.count(route) for route in sorted(set(routes))},
            "diagnosis": str(diagnosis),
            "attack_needs": asdict(diagnosis)["attacked_estimate"],
        }
        if routes.count("local") > len(routes) / 2:
            found[label]["cost"] = cost(model, test.images[:AT_ONCE], alone, norm)
    return found


def cost(model: berncert.Classifier, images: torch.Tensor, alone: Any, norm: float) -> dict[str, float]:
    """CPU milliseconds for an image, of the local proofs and of forward passes, in float64, the fastest of several.

    And what making the route ready for the model takes, with a first image: that is done once.
    """
    frozen, x = model.freeze(tuple(images.shape[1:])), images.double()
    value = proven(frozen.extractor, norm, 2.0**-53)
    began = time.process_time()
    route = LocalRoute(frozen.extractor, value, frozen.head, norm, threads=1)
    route.radii(x[:1], alone.predicted[:1], alone.radius[:1])
    once = 1e3 * (time.process_time() - began)
    rows = slice(0, len(x))
    jobs: dict[str, Callable[[], Any]] = {
        "local": lambda: route.radii(x, alone.predicted[rows], alone.radius[rows]),
        "extractor": lambda: frozen.extractor(x),
        "model": lambda: frozen(x),
    }
    with torch.no_grad():
        return {"once": once} | {
            name: 1e3 * min(_seconds(job) for _ in range(5)) / len(x) for name, job in jobs.items()
        }


def _seconds(job: Callable[[], Any]) -> float:
    began = time.process_time()
    job()
    return time.process_time() - began


def text(record: dict[str, Any]) -> str:
    """The tables."""
    choice = record["choice"]
    shares = ", ".join(f"{100 * share:.1f} % for {radius}" for radius, share in choice["certified"].items())
    lines = [
        "# A network of one's own", "",
        f"MNIST, the first {record['images']} test images; trainings of {record['epochs']} epochs on one core: a "
        "small-scale measurement. Radii in units of the pixels, medians over all images, 0 where the class is wrong. "
        "The upper end is the distance of the nearest image of another class that `counterexamples=True` found, the "
        "median over all images as well. What an attack needs is the same by PGD, for pixels from 0 to 1, over five "
        "images that are correct.", "",
        f"The second network is trained for the l2 radius {choice['radius']:g}, chosen by the certified accuracy at "
        f"{choice['at']:g} on {choice['aside']} training images that were set aside, after one epoch: {shares}. The "
        f"third is trained through the features that balls of l-inf, of radius {BOX:g}, reach.", "",
        f"| {' | '.join(('network', 'norm', *COLUMNS, 'routes'))} |",
        f"| :--- | :--- |{' ---: |' * len(COLUMNS)} :--- |",
    ]  # fmt: skip
    for row in record["rows"]:
        for norm in NORMS:
            r = row[norm]
            routes = ", ".join(f"{name} {count}" for name, count in r["routes"].items())
            ratio = r["median"] / r["global_median"] if r["global_median"] else math.nan
            lines.append(
                f"| {row['name']} | {norm} | {100 * r['clean']:.1f} | {floor_digits(r['median'], 3)} | "
                f"{ceil_digits(r['upper'], 3)} | {floor_digits(r['global_median'], 3)} | "
                f"{ratio:.1f} | {r['attack_needs']:.2g} | {r['bound']:.3g} | {routes} |"
            )
    for row in record["rows"]:
        for norm in NORMS:
            lines += _details(row["name"], norm, row[norm])
    return "\n".join([*lines, "", made_by(record["made"]), ""])


def _details(name: str, norm: str, r: dict[str, Any]) -> list[str]:
    """Certified and attacked accuracy of a network, what its local proofs cost, and the diagnosis."""
    lines = [
        "",
        f"{name}, {norm}: certified accuracy in %, and what PGD leaves at the next radius below that was attacked",
        "",
    ]
    lines += ["| radius | " + " | ".join(f"{at:g}" for at in SHOWN[norm]) + " |"]
    lines += ["| :--- |" + " ---: |" * len(SHOWN[norm])]
    for kind, radii in (("global route", r["global_radii"]), ("both routes", r["radii"])):
        shares = [100 * float(np.mean(np.asarray(radii) >= at)) for at in SHOWN[norm]]
        lines.append(f"| {kind} | " + " | ".join(f"{share:.1f}" for share in shares) + " |")
    at, attacked = zip(*((float(k), 100 * v) for k, v in r["attacked"].items()), strict=True)
    lines.append("| PGD | " + " | ".join(f"{_left(x, 100 * r['clean'], at, attacked):.1f}" for x in SHOWN[norm]) + " |")
    if "cost" in r:
        ms = r["cost"]
        of_model, of_extractor = (ms["local"] / ms[part] for part in ("model", "extractor"))
        once = f" Before the first image of a model, {ms['once']:.0f} ms." if "once" in ms else ""
        lines += ["", f"An image with its local proofs costs {ms['local']:.1f} ms of one core: {of_model:.0f} forward "
                  f"passes of the model, or {of_extractor:.0f} of its extractor alone, {AT_ONCE} images at once, all "
                  f"in float64.{once}"]  # fmt: skip
    return [*lines, "", "```text", r["diagnosis"], "```"]


def _left(radius: float, clean: float, at: Sequence[float], attacked: Sequence[float]) -> float:
    """What the attack left at the largest radius that was tried and is no more than this one: never too little."""
    below = [left for tried, left in zip(at, attacked, strict=True) if tried <= radius]
    return below[-1] if below else clean


if __name__ == "__main__":
    main()
