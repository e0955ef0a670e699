"""What others proved, deterministically, as their papers state it: certified accuracy at one radius."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple


class Point(NamedTuple):
    """A published figure, in percent of the test images."""

    label: str
    radius: float
    certified: float


class Picture(NamedTuple):
    """One picture: a data set, a norm, how far it reaches, the radii of its table, and the published figures in it."""

    dataset: str
    norm: float
    end: float
    radii: tuple[float, ...]
    points: tuple[Point, ...]


def _in_255ths(label: str, radius: int, certified: float) -> Point:
    return Point(label, radius / 255, certified)


PICTURES: Mapping[str, Picture] = {
    "mnist-l2": Picture(
        "mnist", 2.0, 2.6, (0.0, 0.3, 0.5, 1.0, 1.58, 2.0),
        (
            Point("GloRo", 0.3, 95.7),
            Point("GloRo", 1.58, 62.8),
            Point("BCP", 1.58, 48.2),
            Point("nearest prototypes", 1.58, 73.0),
        ),
    ),
    "mnist-linf": Picture(
        "mnist", math.inf, 0.42, (0.0, 0.02, 0.05, 0.1, 0.2, 0.3),
        (
            Point("CC-IBP", 0.1, 98.4),
            Point("SABR", 0.1, 98.2),
            Point("SortNet", 0.1, 98.1),
            Point("SortNet, SABR", 0.3, 93.4),
        ),
    ),
    "cifar10-l2": Picture(
        "cifar10", 2.0, 1.1, tuple(k / 255 for k in (0, 36, 72, 108, 255)),
        (
            _in_255ths("LiResNet, generated data", 36, 78.1),
            _in_255ths("M-SOC", 36, 66.3),
            _in_255ths("AOL-Large", 36, 64.1),
            _in_255ths("AOL, fully connected", 36, 58.5),
            _in_255ths("LiResNet, generated data", 108, 53.5),
            _in_255ths("AOL-Large", 108, 49.4),
        ),
    ),
    "cifar10-linf": Picture(
        "cifar10", math.inf, 12 / 255, tuple(k / 255 for k in (0, 1, 2, 4, 8)),
        (
            _in_255ths("CC-IBP", 2, 63.8),
            _in_255ths("SortNet", 2, 56.8),
            _in_255ths("SortNet", 8, 40.4),
            _in_255ths("MTL-IBP", 8, 36.0),
        ),
    ),
}  # fmt: skip
"""The name of each picture -> what belongs in it."""
