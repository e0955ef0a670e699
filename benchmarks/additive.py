"""Tables of many columns: models that are sums of terms, certified in all columns, beside the projection to five axes.

    python -m benchmarks.additive            # some minutes; writes benchmarks/additive.json and benchmarks/additive.md
    python -m benchmarks.additive --quick    # two models, few rows; writes to out/benchmarks/

MNIST, averaged to 7 x 7, takes part if its files are found. Everything runs in one process on one thread.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.attacked_sums import points_around
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import made_by, origin
from berncert import Status, data
from berncert.estimators import BernsteinClassifier

TOLERANCE, SECONDS = 1e-2, 5.0


def mnist(digits: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Images of these digits as rows of 49 means of 4 x 4 pixels, 4000 of them."""
    images = data.load("mnist", "train", limit=4000 * 10 // len(digits))
    chosen = np.isin(images.labels, digits)
    pixels = np.asarray(images.images)[chosen].reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4))
    return pixels.reshape(len(pixels), 49).astype(np.float64)[:4000], np.asarray(images.labels)[chosen][:4000]


TABLES: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "mnist 3/5/8": lambda: mnist((3, 5, 8)),
    "mnist 4/9": lambda: mnist((4, 9)),
}


def boosted(depth: int, rounds: int) -> Any:
    return HistGradientBoostingClassifier(max_depth=depth, max_iter=rounds, random_state=0)


MODELS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
    "Gaussian naive Bayes": GaussianNB,
    "boosted stumps": lambda: boosted(1, 100),
    "boosted pairs": lambda: boosted(2, 50),
    "random forest": lambda: RandomForestClassifier(random_state=0),
}
CASES = [
    ("breast cancer", "boosted stumps", "auto", 12),
    ("breast cancer", "boosted pairs", "auto", 8),
    ("mnist 3/5/8", "boosted pairs", "auto", 8),
    ("breast cancer", "Gaussian naive Bayes", "auto", 8),
    ("breast cancer", "random forest", "fit", 8),
    ("wine", "boosted pairs", "auto", 8),
    ("digits", "logistic", "auto", 8),
]
QUICK = [("wine", "logistic", "auto", 8), ("wine", "boosted stumps", "auto", 8)]


@dataclass(frozen=True)
class Measured:
    """One model in one way."""

    table: str
    base: str
    smoothed: BernsteinClassifier
    classes: int
    base_accuracy: float
    accuracy: float
    agreement: float
    """With the base model, on all rows that were held out."""
    rows: int
    radius: float
    """The median."""
    within: int
    """Rows whose radius and counterfactual are within 1 % of each other."""
    gap: float
    """The median."""
    seconds: float
    """The median of a row."""
    slowest: float
    points: int
    changed: int


def measured(table: str, name: str, terms: str | None, degree: int, limit: int, points: int) -> Measured:
    x, y = TABLES[table]()
    train, test, labels, held = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)
    model = BernsteinClassifier(clone(MODELS[name]()), degree=degree, terms=terms).fit(train, labels)
    rows = test[:limit]
    model.certify(rows[:1], tolerance=TOLERANCE, max_seconds=SECONDS, threads=1, progress=False)  # compiles
    found, seconds = [], []
    for row in rows:
        begun = time.perf_counter()
        found.append(model.certify(row[None], tolerance=TOLERANCE, max_seconds=SECONDS, threads=1, progress=False)[0])
        seconds.append(time.perf_counter() - begun)
    radius, upper = (np.array([getattr(c, field) for c in found]) for field in ("radius", "upper"))
    gap = np.where(np.isfinite(upper), (upper - radius) / upper, 0.0)
    proven = sum(c.status in (Status.PROVEN, Status.WHOLE_CUBE) for c in found)
    rng, changed = np.random.default_rng(0), 0
    for row, c in zip(rows, found, strict=True):
        steps, goal = rng.normal(size=(points, len(row))), np.asarray(c.counterfactual)
        near = points_around(rng, steps, row, goal, model.scale_, 2.0, min(float(c.radius), 30.0))
        changed += int((model.predict(near) != c.predicted).sum())
    base = float((model._base_labels(test) == held).mean())
    return Measured(
        table, name, model, len(model.classes_), base, float(model.score(test, held)), model.agreement(test), len(rows),
        float(np.median(radius)), proven, float(np.median(gap)), float(np.median(seconds)), max(seconds),
        points * len(rows), changed,
    )  # fmt: skip


COLUMNS = [
    Column("table", "table", lambda m: m.table),
    Column("model", "model", lambda m: m.base),
    Column("classes", "classes", lambda m: m.classes),
    Column("form", "form", lambda m: m.smoothed.form_),
    Column("axes", "axes", lambda m: m.smoothed.reduction_.dim),
    Column("pairs", "pairs", lambda m: sum(len(columns) == 2 for columns in m.smoothed.terms_ or [])),
    Column("degree", "degree", lambda m: max(m.smoothed.degree_)),
    Column("base", "base correct, %", lambda m: 100 * m.base_accuracy, number),
    Column("clean", "smoothed correct, %", lambda m: 100 * m.accuracy, number),
    Column("agreement", "agreement, %", lambda m: 100 * m.agreement, number),
    Column("rows", "rows", lambda m: m.rows),
    Column("radius", "radius, median", lambda m: m.radius, number),
    Column("within", "PROVEN to 1 %", lambda m: m.within),
    Column("gap", "gap, median %", lambda m: 100 * m.gap, number),
    Column("seconds", "s/row, median", lambda m: m.seconds, number),
    Column("slowest", "slowest", lambda m: m.slowest, number),
    Column("points", "points within radii", lambda m: m.points, lambda v: f"{v:,}"),
    Column("changed", "of another class", lambda m: m.changed),
]
NOTE = """Every row was held out; l2 distances in standard deviations of the training rows, tolerance 1 %, at most 5 s a
    row, one thread. Each model twice: as a sum in all columns, and as one polynomial in (at most) five principal
    components, for which the base model is fitted on these. The base model differs between the two, so radii do, too: a
    radius is one of the smoothed model, whose clean accuracy stands beside it. Agreement is with the base model on all
    rows that were held out. For each row, random points closer than its proven radius, two thirds of them towards its
    counterfactual: none may be of another class."""


def sections(quick: bool) -> list[Section]:
    limit, points = (4, 200) if quick else (20, 5000)
    known = [case for case in (QUICK if quick else CASES) if _available(case[0])]
    lines = []
    for table, model, terms, degree in known:
        for way in (terms, None):
            lines.append(measured(table, model, way, degree if way else 8, limit, points))
            m = lines[-1]
            print(f"{table}, {model}, {m.smoothed.form_}: {m.within} of {m.rows}, {m.seconds:.3g} s/row", flush=True)
    return [Section.of("additive", "Sums of terms beside projections", NOTE, COLUMNS, lines)]


def _available(table: str) -> bool:
    try:
        if table.startswith("mnist"):
            data.load("mnist", "train", limit=1)
    except (FileNotFoundError, OSError):
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.additive", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows: shows that it works")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for additive.json and additive.md")
    chosen = parser.parse_args()
    out = chosen.out or Path("out/benchmarks" if chosen.quick else "benchmarks")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of the base models
    source = origin("benchmarks.additive")
    found = sections(chosen.quick)
    for section in found:
        show(Console(), section)
    out.mkdir(parents=True, exist_ok=True)
    record = source | {section.key: section.rows for section in found}
    (out / "additive.json").write_text(json.dumps(record, indent=1) + "\n")
    peers = {"scikit-learn": version("scikit-learn")}
    intro = f"{made_by(source, peers)} Full precision is in `additive.json`, beside this file."
    (out / "additive.md").write_text(markdown("Tables of many columns, measured", intro, found))


if __name__ == "__main__":
    main()
