"""Sums of small polynomials beside the dense search, on thousands of random ones that both can do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.report import Column
from berncert import SmoothedHead, Status, SumHead, certify

DONE = {Status.PROVEN, Status.WHOLE_CUBE}
DENSE_COLUMNS = [
    Column("dim", "features", lambda r: r["dim"]),
    Column("norm", "norm", lambda r: r["norm"], lambda norm: f"{norm:g}"),
    Column("sums", "sums", lambda r: r["sums"]),
    Column("mine", "PROVEN, this search", lambda r: r["mine"]),
    Column("both", "both", lambda r: r["both"]),
    Column("apart", "radii apart, at most", lambda r: r["apart"], lambda v: f"{100 * v:.3g} %"),
    Column("contradictions", "contradictions", lambda r: r["contradictions"]),
]


def elevated(c: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The same polynomial, with more coefficients along an axis."""
    while c.shape[axis] < size:
        n = c.shape[axis]
        part = (np.arange(n + 1) / n).reshape([-1 if i == axis else 1 for i in range(c.ndim)])
        zero = np.zeros_like(np.take(c, [0], axis))
        c = part * np.concatenate([zero, c], axis) + (1 - part) * np.concatenate([c, zero], axis)
    return c


def dense(head: SumHead) -> SmoothedHead:
    """The sum as one polynomial in all features."""
    dim, sizes = head.dim, [n + 1 for n in head.degree]
    total = np.zeros((head.classes, *sizes)) + head.bias.numpy().reshape(-1, *[1] * dim)
    straight = [((j,), torch.stack([torch.zeros(head.classes), head.weight[:, j]], dim=1)) for j in range(dim)]
    for axes, coefficients in [*straight, *head.terms]:
        order = np.argsort(axes)
        c = coefficients.numpy().transpose(0, *(order + 1))
        for i, axis in enumerate(sorted(axes)):
            c = elevated(c, i + 1, sizes[axis])
        total = total + c.reshape(-1, *[sizes[j] if j in axes else 1 for j in range(dim)])
    return SmoothedHead(torch.tensor(total))


def overlapping(rng: np.random.Generator, dim: int, classes: int, counts: tuple[int, ...], degree: int) -> SumHead:
    """A random sum with so many terms in one, two, three features, which overlap, of degrees up to this one."""
    weight = rng.normal(size=(classes, dim))
    bias = 0.3 * rng.normal(size=classes) - weight.sum(axis=1) / 2
    terms = []
    for axes, count in enumerate(counts, 1):
        for _ in range(count):
            chosen = tuple(rng.choice(dim, axes, replace=False).tolist())
            sizes = rng.integers(2, degree + 2, size=axes).tolist()
            terms.append((chosen, torch.tensor(rng.normal(size=(classes, *sizes)))))
    return SumHead(torch.tensor(weight), torch.tensor(bias), terms)


def beside_dense(count: int, norm: float) -> list[dict[str, Any]]:
    """Both searches on random sums in two to eight features: intervals must overlap, radii agree to the tolerance."""
    found: dict[int, list[tuple[bool, bool, bool, float]]] = {}
    for seed in range(count):
        rng = np.random.default_rng(seed)
        dim = 2 + seed % 7
        terms = (int(rng.integers(0, dim + 1)), int(rng.integers(1, dim + 1)), int(dim > 2 and seed % 3 == 0))
        head = overlapping(rng, dim, int(rng.integers(2, 5)), terms, 3 if dim < 5 else 2 if dim < 7 else 1)
        x = rng.uniform(size=(1, dim))
        mine, theirs = (certify(h, x, norm=norm, max_seconds=5.0, threads=1)[0] for h in (head, dense(head)))
        apart = mine.predicted != theirs.predicted or max(mine.radius, theirs.radius) > min(mine.upper, theirs.upper)
        proven, both = mine.status in DONE, {mine.status, theirs.status} <= DONE
        differ = abs(mine.radius - theirs.radius) / mine.upper if both and np.isfinite(mine.upper) else 0.0
        found.setdefault(dim, []).append((bool(apart), proven, both, float(differ)))
    return [
        {
            "dim": dim, "norm": norm, "sums": len(rows), "mine": sum(row[1] for row in rows),
            "both": sum(row[2] for row in rows), "apart": max(row[3] for row in rows),
            "contradictions": sum(row[0] for row in rows),
        }
        for dim, rows in sorted(found.items())
    ]  # fmt: skip
