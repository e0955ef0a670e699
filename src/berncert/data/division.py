"""Data that came without splits is divided into training and test images, the same way on every machine.

Nothing decides but the names of the images, their classes and a fixed seed: neither the order of a file system nor the
version of a random number generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from berncert.data.dataset import ALL
from berncert.floor.arrays import Ints

SEED = 0
ONE_IN = 5
PARTS = {
    "train": f"all but one in {ONE_IN} images of each class, which are set aside for testing, as the data came without "
    "splits",
    "test": f"one in {ONE_IN} images of each class, set aside for testing, as the data came without splits",
    ALL: "all images, those for training among them, as the data came without splits",
}
"""Split -> what it is of divided data."""


class Division(NamedTuple):
    """The rows of one split of divided data, and the record of the division."""

    rows: Ints
    """Places in the whole set, ascending."""
    record: dict[str, Any]
    """How it was divided, and which rows are for testing, as plain JSON."""


def divided(names: Sequence[str], labels: Sequence[int] | Ints, split: str, what: object, content: str) -> Division:
    """Those of the images of `what`, with these names and labels, that belong to the split.

    `content` tells this data from other data with the same names, for the record.
    """
    if split not in PARTS:
        raise ValueError(
            f"expected split to be {', '.join(map(repr, PARTS))}, as {what} came without splits, got {split!r}"
        )
    numbers = np.asarray(labels)
    testing = np.zeros(len(names), dtype=bool)
    testing[rows_for_testing(names, numbers)] = True
    if split == "test" and not testing.any():
        raise ValueError(
            f"expected two images or more of some class in {what}, of which one can be set aside for testing, got at "
            f"most one of each; add images, or take all with split={ALL!r}"
        )
    chosen = {"train": ~testing, "test": testing, ALL: np.ones_like(testing)}[split]
    lines = "".join(f"{name}\t{label}\n" for name, label in zip(names, numbers.tolist(), strict=True))
    record = {
        "rule": f"of each class one in {ONE_IN} for testing, at least one of two, by the SHA-256 of seed and name",
        "seed": SEED,
        "images": len(names),
        "test_images": int(testing.sum()),
        "test_rows": ranges(np.flatnonzero(testing).tolist()),
        "sha256": hashlib.sha256(encoded(f"{content}\n{lines}")).hexdigest(),
    }
    return Division(np.flatnonzero(chosen), record)


def rows_for_testing(names: Sequence[str], labels: Ints) -> list[int]:
    """The rows for testing: of each class one in ONE_IN, to the nearest, and never all; at least one of two or more."""
    found: list[int] = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label).tolist()
        drawn = sorted(members, key=lambda row: (hashlib.sha256(encoded(f"{SEED}\n{names[row]}")).digest(), row))
        found += drawn[: min(max(1, (len(members) + ONE_IN // 2) // ONE_IN), len(members) - 1)]
    return sorted(found)


def encoded(text: str) -> bytes:
    """For a checksum; names of files may have bytes that are no text."""
    return text.encode("utf-8", "surrogateescape")


def ranges(rows: Iterable[int]) -> str:
    """Ascending numbers as text, neighbours joined: 0-2,5,7-8."""
    runs = (list(run) for _, run in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0]))
    ends = ((run[0][1], run[-1][1]) for run in runs)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
