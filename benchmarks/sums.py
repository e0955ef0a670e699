"""Sums of small polynomials: proofs on real tables without projection, and how the cost grows."""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split

from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import origin
from berncert import PolynomialHead, SumHead, certify
from berncert.estimators import BernsteinClassifier
from berncert.foundation.progress import Bar

HERE = Path(__file__).parent
TABLES = {"breast cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}
SIZES = [(10, 2, 0), (30, 2, 0), (30, 2, 10), (30, 2, 30), (30, 10, 10), (100, 2, 0), (100, 10, 20), (300, 10, 0)]
"""Features, classes and pairs of random sums, each with a term of degree 6 in every feature besides."""
LARGE = [(100, 100), (1000, 1000)]
"""Features and classes of affine heads, and of heads with a bent term in every feature."""
MAX_SECONDS = 5.0


def proven(head: PolynomialHead, x: Any) -> dict[str, Any]:
    """Row by row, by processor time: others use the machine too."""
    certify(head, x[:1], max_boxes=1, threads=1)  # compiled, not measured
    seconds, radius, upper, boxes = [], [], [], []
    for row in x:
        began = time.process_time()
        c = certify(head, row[None], threads=1, max_seconds=MAX_SECONDS)
        seconds.append(time.process_time() - began)
        radius.append(c.radius[0])
        upper.append(c.upper[0])
        boxes.append(int(c.boxes[0]))
    gap = 1 - np.array(radius) / np.maximum(upper, 1e-300)
    gap[np.isinf(radius)] = 0.0
    return {
        "rows": len(x), "terms": len(head.terms), "pairs": sum(len(term.axes) > 1 for term in head.terms),
        "within": float((gap <= 0.01).mean()), "gap": float(np.quantile(gap, 0.95)),
        "median": float(np.median(seconds)), "slowest": max(seconds), "boxes": float(np.median(boxes)),
    }  # fmt: skip


def table_rows(name: str, depth: int, rows: int) -> dict[str, Any]:
    """Boosted trees on all columns of a table, recognised as a sum."""
    x, y = TABLES[name](return_X_y=True)
    train, test, labels, truth = train_test_split(x, y, test_size=0.3, random_state=0)
    stages = 100 if len(set(y)) < 4 else 20
    base = GradientBoostingClassifier(max_depth=depth, n_estimators=stages, random_state=0).fit(train, labels)
    model = BernsteinClassifier(base, terms="auto", degree=12).fit(train, labels)
    features = np.asarray(model.reduction_.features(test[:rows]))
    found = proven(model.head_, features)
    clean = float((model.predict(test) == truth).mean())
    return found | {"table": name, "depth": depth, "dim": x.shape[1], "classes": len(set(y)), "clean": clean}


def random_sum(dim: int, classes: int, pairs: int) -> SumHead:
    chance = np.random.default_rng(dim + classes + pairs)
    weight = chance.normal(size=(classes, dim))
    terms = [((j,), torch.tensor(0.5 * chance.normal(size=(classes, 7)))) for j in range(dim)]
    for _ in range(pairs):
        axes = tuple(chance.choice(dim, 2, replace=False).tolist())
        terms.append((axes, torch.tensor(0.5 * chance.normal(size=(classes, 5, 5)))))
    return SumHead(torch.tensor(weight), torch.tensor(-weight.sum(axis=1) / 2), terms)


def grown(dim: int, classes: int, pairs: int, rows: int) -> dict[str, Any]:
    x = np.random.default_rng(0).uniform(size=(rows, dim))
    return proven(random_sum(dim, classes, pairs), x) | {"dim": dim, "classes": classes}


def large(dim: int, classes: int, bent: bool, rows: int) -> dict[str, Any]:
    """Made features: a weight of random directions, bent by a small term of degree 2 in every feature."""
    chance = torch.Generator().manual_seed(0)
    weight = torch.randn(classes, dim, generator=chance, dtype=torch.float64)
    bends = 0.05 * torch.randn(classes, dim, 3, generator=chance, dtype=torch.float64)
    terms = [((j,), bends[:, j].contiguous()) for j in range(dim)] if bent else []
    head = SumHead(weight, -weight.sum(dim=1) / 2, terms)
    x = np.random.default_rng(0).uniform(size=(rows, dim))
    certify(head, x[:1], max_boxes=1, threads=1)
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
    Column("gap", "gap, 95 % of rows", lambda r: r["gap"], share),
    Column("median", "median, s", lambda r: r["median"], number),
    Column("slowest", "slowest, s", lambda r: r["slowest"], number),
    Column("boxes", "boxes, median", lambda r: r["boxes"], number),
]
SHAPE = [Column(key, title, lambda r, key=key: r[key]) for key, title in (("dim", "features"), ("classes", "classes"))]
TERMS = [Column(key, title, lambda r, key=key: r[key]) for key, title in (("terms", "terms"), ("pairs", "of several"))]
ROWS = Column("rows", "rows", lambda r: r["rows"])


def sections(rows: int) -> list[Section]:
    work: list[tuple[Any, tuple[Any, ...]]] = [(table_rows, (name, depth, rows)) for name in TABLES for depth in (1, 2)]
    work += [(grown, (*size, rows)) for size in SIZES]
    work += [(large, (*size, bent, 4 if bent else 20)) for size in LARGE for bent in (False, True)]
    found: dict[Any, list[dict[str, Any]]] = {table_rows: [], grown: [], large: []}
    with Bar("sums", total=len(work)) as bar:
        for done, (way, arguments) in enumerate(work):
            found[way].append(way(*arguments))
            bar.update(done + 1)
    table = [Column("table", "table", lambda r: r["table"]), Column("depth", "depth", lambda r: r["depth"])]
    clean = Column("clean", "clean", lambda r: r["clean"], share)
    size = [
        Column("bent", "head", lambda r: r["bent"], lambda bent: "bent" if bent else "affine"),
        Column("seconds", "a row, s", lambda r: r["seconds"], number),
        Column("gap", "widest gap", lambda r: r["gap"], share),
        Column("memory", "memory so far, GiB", lambda r: r["memory"], number),
    ]
    trees = f"""Boosted trees (scikit-learn), recognised as sums and smoothed term by term, degree 12; l2, test rows, at
    most {MAX_SECONDS:g} s each. Gap: (upper - radius) / upper."""
    random = "Random sums: a term of degree 6 in every feature, and pairs of degree 4 that overlap; l2."
    made = "Made features; a bent head has a term of degree 2 in every feature. Up to 60 s a row."
    by_table, by_size = [*table, *SHAPE, *TERMS, clean, ROWS, *COST], [*SHAPE, *size[:1], ROWS, *size[1:]]
    return [
        Section.of("tables", "Real tables, all columns", trees, by_table, found[table_rows]),
        Section.of("growth", "How the cost grows", random, [*SHAPE, *TERMS, ROWS, *COST], found[grown]),
        Section.of("large", "Many features and classes", made, by_size, found[large]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sums", description=__doc__)
    parser.add_argument("--rows", type=int, default=40, help="of each table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    made = sections(options.rows)
    for section in made:
        show(Console(), section)
    source = origin("benchmarks.sums")
    record = source | {section.key: section.rows for section in made}
    (HERE / "sums.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    intro = (
        f"Made by `{source['command']}` on {source['date'][:10]}, one thread of a shared machine, by processor time."
    )
    (HERE / "sums.md").write_text(markdown("Sums of small polynomials, measured", intro, made), "utf-8")


if __name__ == "__main__":
    main()
