"""Certificates of sums under attack: points within radii, most of them towards the witness, in exact rationals too."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.report import Column, number
from berncert import PolynomialHead
from berncert.estimators import BernsteinClassifier

NORMS = (1.0, 2.0, math.inf)
ATTACKED_COLUMNS = [
    Column("table", "table", lambda r: r["table"]),
    Column("norm", "norm", lambda r: r["norm"], lambda norm: f"{norm:g}"),
    Column("rows", "rows", lambda r: r["rows"]),
    Column("within", "within 1 %", lambda r: r["within"], lambda v: f"{100 * v:.3g} %"),
    Column("median", "median, s", lambda r: r["median"], number),
    Column("points", "points within radii", lambda r: r["points"], lambda v: f"{v:,}"),
    Column("changed", "of another class", lambda r: r["changed"]),
    Column("exact", "in rationals", lambda r: r["exact"]),
    Column("exact_changed", "of another class", lambda r: r["exact_changed"]),
    Column("witnesses", "witnesses in rationals", lambda r: r["witnesses"]),
    Column("flipped", "of another class", lambda r: r["flipped"]),
]


def exact_logits(head: PolynomialHead, x: np.ndarray) -> list[Fraction]:
    """The logits of an affine part and terms at one point, without rounding."""
    point = [Fraction(v) for v in x.tolist()]
    weight, bias = head.affine if head.affine is not None else (None, None)
    out = []
    for k in range(head.classes):
        total = Fraction(0)
        if weight is not None and bias is not None:
            total = Fraction(bias[k].item())
            total += sum((Fraction(w) * v for w, v in zip(weight[k].tolist(), point, strict=True)), Fraction(0))
        for axes, coefficients in head.terms:
            net = np.array([Fraction(v) for v in coefficients[k].ravel().tolist()], dtype=object)
            net = net.reshape(coefficients.shape[1:])
            for axis in axes:
                n, s = len(net) - 1, point[axis]
                net = sum(math.comb(n, i) * s**i * (1 - s) ** (n - i) * net[i] for i in range(n + 1))
            total += net
        out.append(total)
    return out


def points_around(
    rng: np.random.Generator, steps: np.ndarray, x: np.ndarray, goal: np.ndarray, scale: np.ndarray, norm: float,
    radius: float,
) -> np.ndarray:  # fmt: skip
    """Rows closer than the radius, one along each step, but two thirds towards the counterfactual; most at the rim."""
    count = len(steps)
    if np.isfinite(goal).all():
        part = 2 * count // 3
        steps[:part] = ((goal - x) / scale) * (1 + 10 ** rng.uniform(-4, 0, (part, 1)) * steps[:part])
    lengths = np.linalg.norm(steps, ord=norm, axis=1)
    shrink = radius * (1 - 1e-9) * rng.uniform(size=(count, 1)) ** (1 / 32)
    return x + steps / np.maximum(lengths, 1e-300)[:, None] * shrink * scale


def attacked(
    table: str, model: BernsteinClassifier, rows: np.ndarray, norm: float, points: int, exact: int, **options: Any
) -> dict[str, Any]:
    """Certify rows, and ask the model about so many points within each radius, `exact` of them in rationals too."""
    rng, head = np.random.default_rng(0), model.head_
    counts = dict.fromkeys(("points", "changed", "exact", "exact_changed", "witnesses", "flipped"), 0)
    seconds, gaps = [], []
    model.certify(rows[:1], norm=norm, **options)  # compiled, not measured
    for row in rows:
        began = time.process_time()
        c = model.certify(row[None], norm=norm, **options)[0]
        seconds.append(time.process_time() - began)
        gaps.append(0.0 if math.isinf(c.radius) else 1 - c.radius / c.upper)
        goal = np.asarray(c.counterfactual, dtype=float).ravel()
        shape = (points, len(row))
        steps = rng.normal(size=shape) ** rng.choice([1, 3, 7], (points, 1))  # a few columns only, too
        near = points_around(rng, steps, row, goal, model.scale_, norm, min(float(c.radius), 30.0))
        counts["points"] += points
        counts["changed"] += int((model.predict(near) != c.predicted).sum())
        features = model.reduction_.features(near[:exact])
        for point in features:
            logits = exact_logits(head, point)
            counts["exact"] += 1
            counts["exact_changed"] += model.classes_[max(range(len(logits)), key=logits.__getitem__)] != c.predicted
        if np.isfinite(goal).all():
            logits = exact_logits(head, model.reduction_.features(goal[None])[0])
            counts["witnesses"] += 1
            counts["flipped"] += model.classes_[max(range(len(logits)), key=logits.__getitem__)] != c.predicted
    counts = {key: int(value) for key, value in counts.items()}
    within, median = float((np.array(gaps) <= 1e-2).mean()), float(np.median(seconds))
    return {"table": table, "norm": norm, "rows": len(rows), "within": within, "median": median} | counts
