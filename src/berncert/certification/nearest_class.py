"""The distance to the nearest point that is given one chosen class, proven: for counterfactuals with a wish."""

from __future__ import annotations

import numpy as np

from berncert.certification.box_search import (
    Answers,
    Questions,
    Watched,
    offset_answers,
    patterns_of,
    samples_without,
    usable_cores,
)
from berncert.certification.kernels import search
from berncert.certification.kernels.problem import Memory, Problem, Whole, allocate, without_axes
from berncert.certification.kernels.wanted import wanted_rows
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Flags, Floats, Ints


def solve_wanted(
    problem: Problem,
    questions: Questions,
    wanted: Ints,
    *,
    threads: int | None = None,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> Answers:
    """For each row, how far it is to the points of its box that are given the wanted class.

    No point closer than `radius` is given it; the witness at `upper` is. `rival` is the wanted class, or -1 where no
    witness is known; the status WHOLE_CUBE means that no point of the box is given it. `target` plays no part.
    """
    found = Answers.empty(questions.predicted, questions.features.shape[1])
    workers = usable_cores() if threads is None else checked_count("threads", threads)
    for held, rows in patterns_of(questions.low, questions.high):
        part = _search(problem, questions.rows(rows), held, wanted[rows], workers, max_seconds, progress)
        for all_rows, some in zip(found.columns(), part.columns(), strict=True):
            all_rows[rows] = some
    return found


def _search(
    problem: Problem,
    asked: Questions,
    held: Ints,
    wanted: Ints,
    threads: int,
    max_seconds: float | None,
    progress: bool | None,
) -> Answers:
    """The rows that hold the same axes fixed."""
    samples, offset = samples_without(asked, held, problem.norm)
    part = Answers.empty(asked.predicted, samples.features.shape[1])
    if (held == 1).all():
        _at_points(problem, samples.held, wanted, part)
        return offset_answers(part, asked, held, offset, problem.norm)
    goals = np.ascontiguousarray(wanted)

    def prepare() -> tuple[Problem, Whole, Memory, Floats]:
        mine, whole = without_axes(problem, held)
        memory = allocate(mine)
        classes, size = mine.coefficients.shape
        return mine, whole, memory, np.empty((len(memory.bound), classes - 1, size))

    def work(first: int, last: int, stop: Flags, clock: Floats, own: tuple[Problem, Whole, Memory, Floats]) -> None:
        mine, whole, memory, paths = own
        wanted_rows(
            mine, memory, paths, whole, samples, goals, first, last, stop, clock, part.radius, part.upper, part.witness,
            part.status, part.boxes,
        )  # fmt: skip

    Watched("searching", len(wanted), threads, max_seconds, progress).run(prepare, work)
    part.rival[:] = np.where(np.isfinite(part.upper), wanted, -1)
    return offset_answers(part, asked, held, offset, problem.norm)


def _at_points(problem: Problem, points: Floats, wanted: Ints, part: Answers) -> None:
    """Where every axis is held there is one point to look at."""
    memory = allocate(problem)
    for i, point in enumerate(np.ascontiguousarray(points)):
        values = search.values_at(problem, memory, point)
        lead = values[wanted[i]] - np.delete(values, wanted[i]).max()
        given, never = lead > 2 * problem.rounding, lead < -2 * problem.rounding
        part.radius[i], part.upper[i] = np.inf if never else 0.0, 0.0 if given else np.inf
        part.rival[i] = wanted[i] if given else -1
        part.status[i] = search.PROVEN if given else search.WHOLE_CUBE if never else search.ROUNDING
