"""The ranges of dense polynomials, handed out to threads: rows with a box each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from berncert.certification.box_search import Questions, Watched, patterns_of, usable_cores
from berncert.certification.kernels.problem import Problem, Samples, Whole, allocate, without_axes
from berncert.certification.kernels.range import range_rows
from berncert.certification.kernels.search import values_at
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Flags, Floats, Ints


@dataclass(frozen=True)
class Found:
    """(N, K, 2) arrays, as `range_rows` fills them, and the points, (N, K, 2, d)."""

    bound: Floats
    value: Floats
    point: Floats
    status: Ints
    boxes: Ints

    @classmethod
    def empty(cls, count: int, outputs: int, dim: int) -> Found:
        shape = (count, outputs, 2)
        status, boxes = (np.zeros(shape, np.int64) for _ in range(2))
        return cls(np.zeros(shape), np.zeros(shape), np.zeros((*shape, dim)), status, boxes)


def search_ranges(
    problem: Problem,
    around: Questions,
    *,
    threads: int | None = None,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> Found:
    """The range of every polynomial of the problem over each row's box, in units of its scaled coefficients."""
    workers = usable_cores() if threads is None else checked_count("threads", threads)
    found = Found.empty(len(around.low), len(problem.coefficients), len(problem.sizes))
    for held, rows in patterns_of(around.low, around.high):
        _search(problem, around, held, rows, workers, max_seconds, progress, found)
    return found


def _search(
    problem: Problem,
    around: Questions,
    held: Ints,
    rows: Ints,
    threads: int,
    max_seconds: float | None,
    progress: bool | None,
    found: Found,
) -> None:
    """The rows that hold the same axes fixed."""
    free = held == 0
    centre, lo, hi, weight = (np.ascontiguousarray(part[np.ix_(rows, free)]) for part in around[:4])
    fixed = np.ascontiguousarray(around.low[np.ix_(rows, ~free)])
    part = Found.empty(len(rows), len(problem.coefficients), int(free.sum()))
    if not free.any():
        _at_points(problem, fixed, part)
    else:
        samples = Samples(centre, lo, hi, weight, fixed, np.ascontiguousarray(around.target[rows]))

        def work(first: int, last: int, stop: Flags, clock: Floats, own: tuple[Problem, Whole, Any]) -> None:
            mine, whole, memory = own
            range_rows(
                mine, memory, whole, samples, first, last, stop, clock, part.bound, part.value, part.point, part.status,
                part.boxes,
            )  # fmt: skip

        def prepare() -> tuple[Problem, Whole, Any]:
            mine, whole = without_axes(problem, held)
            return mine, whole, allocate(mine)

        Watched("bounding", len(rows), threads, max_seconds, progress).run(prepare, work)
    for all_rows, some in ((found.bound, part.bound), (found.value, part.value)):
        all_rows[rows] = some
    found.status[rows], found.boxes[rows] = part.status, part.boxes
    points = np.empty((len(rows), *found.point.shape[1:]))
    points[..., free], points[..., ~free] = part.point, fixed[:, None, None]
    found.point[rows] = points


def _at_points(problem: Problem, points: Floats, part: Found) -> None:
    """Where every axis is fixed, the value itself."""
    memory = allocate(problem)
    for i, point in enumerate(np.ascontiguousarray(points)):
        values = values_at(problem, memory, point)
        part.value[i] = np.stack([values, -values], axis=1)
        part.bound[i] = part.value[i] - problem.rounding
