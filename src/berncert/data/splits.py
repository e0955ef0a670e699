"""The division of data that came without splits into training and test images, the same way on every machine.

It depends on the names of the images, their classes and a fixed seed only: not on the order of a file system, nor on
the version of a random number generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from berncert.foundation.arrays import Ints

SEED = 0
ONE_IN = 5
ALL = "all"
"""The split that contains every image of data that came without splits."""
PARTS = {
    "train": f"all but one in {ONE_IN} images of each class, which are set aside for testing, as the data came without "
    "splits",
    "test": f"one in {ONE_IN} images of each class, set aside for testing, as the data came without splits",
    ALL: "all images, those for training among them, as the data came without splits",
}
"""The splits of divided data -> what they contain."""


class Division(NamedTuple):
    """The rows of one split of divided data, and the record of the division."""

    rows: Ints
    """Positions in the whole data set, ascending."""
    record: dict[str, Any]
    """How the data was divided, and which rows are for testing, as plain JSON."""


def divide(names: Sequence[str], labels: Sequence[int] | Ints, split: str, source: object, content: str) -> Division:
    """Divide the images with these names and labels, and choose those that belong to the split.

    `source` names the data in errors; `content` makes its record differ from that of other data with the same names.
    """
    if split not in PARTS:
        raise ValueError(
            f"expected split to be {', '.join(map(repr, PARTS))}, as {source} came without splits, got {split!r}"
        )
    numbers = np.asarray(labels)
    testing = np.zeros(len(names), dtype=bool)
    testing[drawn_rows(names, numbers, ONE_IN)] = True
    if split == "test" and not testing.any():
        raise ValueError(
            f"expected two images or more of some class in {source}, of which one can be set aside for testing, got at "
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
        "sha256": hashlib.sha256(encode(f"{content}\n{lines}")).hexdigest(),
    }
    return Division(np.flatnonzero(chosen), record)


def drawn_rows(names: Sequence[str], labels: Ints, one_in: int) -> list[int]:
    """Rows drawn by name: of each class one in so many, rounded, but at least one of two or more, and never all."""
    found: list[int] = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label).tolist()
        drawn = sorted(members, key=lambda row: (hashlib.sha256(encode(f"{SEED}\n{names[row]}")).digest(), row))
        found += drawn[: min(max(1, (len(members) + one_in // 2) // one_in), len(members) - 1)]
    return sorted(found)


def encode(text: str) -> bytes:
    """The bytes of a text for a checksum; names of files may contain bytes that are not text."""
    return text.encode("utf-8", "surrogateescape")


def ranges(rows: Iterable[int]) -> str:
    """Ascending numbers as text, with neighbours joined: 0-2,5,7-8."""
    runs = (list(run) for _, run in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0]))
    ends = ((run[0][1], run[-1][1]) for run in runs)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
