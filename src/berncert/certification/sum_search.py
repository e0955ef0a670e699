"""Sums of small polynomials in many features: searched box by box, row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from berncert.certification.box_search import Answers, Questions, Watched, usable_cores
from berncert.certification.kernels.problem import Samples
from berncert.certification.kernels.sum_problem import SumMemory, SumProblem, allocate_sum, pose_sum
from berncert.certification.kernels.sum_range import range_sum_rows
from berncert.certification.kernels.sum_search import certify_sum_rows
from berncert.certification.kernels.sum_tree import Tree, allocate_tree
from berncert.certification.kernels.sum_wanted import wanted_sum_rows
from berncert.certification.kernels.sums import sum_at
from berncert.certification.range_search import Found
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Flags, Floats, Ints


@dataclass(frozen=True)
class SumSearch:
    """The problem of a sum with terms that bend."""

    problem: SumProblem
    exponent: int

    @classmethod
    def of(cls, weight: Floats, bias: Floats, terms: list[tuple[tuple[int, ...], Floats]], **options: Any) -> SumSearch:
        """Of a (K, d) weight, a (K,) bias and terms, axes and coefficients, which are taken as exact."""
        return cls(*pose_sum(weight, bias, terms, **options))

    @property
    def rounding(self) -> float:
        """How far a margin that is computed may be from the exact one."""
        return self.problem.rounding

    def classify(self, features: Floats) -> tuple[Ints, Floats]:
        """The class of each row, and by how much it leads."""
        memory, classes = allocate_sum(self.problem), range(len(self.problem.bias))
        rows = np.ascontiguousarray(features)
        values = np.array([[sum_at(self.problem, memory, k, x) for k in classes] for x in rows])
        values = values.reshape(len(rows), -1)
        second, best = np.sort(values, axis=1)[:, -2:].T
        return values.argmax(axis=1), best - second

    def solve(
        self,
        questions: Questions,
        *,
        threads: int | None = None,
        max_seconds: float | None = None,
        progress: bool | None = None,
    ) -> Answers:
        """The answer to each question."""
        found = Answers.empty(questions.predicted, questions.features.shape[1])
        samples = _samples(questions)

        def work(first: int, last: int, stop: Flags, clock: Floats, own: tuple[SumMemory, Tree]) -> None:
            memory, tree = own
            certify_sum_rows(self.problem, memory, tree, samples, first, last, stop, clock, *found.columns())

        label = "proving" if getattr(certify_sum_rows, "signatures", None) else "compiling, once; proving"
        self._run(label, len(questions.features), work, threads, max_seconds, progress)
        return found

    def solve_wanted(
        self,
        questions: Questions,
        wanted: Ints,
        *,
        threads: int | None = None,
        max_seconds: float | None = None,
        progress: bool | None = None,
    ) -> Answers:
        """For each row, how far it is to the points of its box that are given the wanted class."""
        part = Answers.empty(questions.predicted, questions.features.shape[1])
        samples, goals = _samples(questions), np.ascontiguousarray(wanted)

        def work(first: int, last: int, stop: Flags, clock: Floats, own: tuple[SumMemory, Tree]) -> None:
            wanted_sum_rows(
                self.problem, *own, samples, goals, first, last, stop, clock, part.radius, part.upper, part.witness,
                part.status, part.boxes,
            )  # fmt: skip

        self._run("searching", len(goals), work, threads, max_seconds, progress)
        part.rival[:] = np.where(np.isfinite(part.upper), wanted, -1)
        return part

    def ranges(
        self,
        questions: Questions,
        *,
        threads: int | None = None,
        max_seconds: float | None = None,
        progress: bool | None = None,
    ) -> Found:
        """The range of each output over the points of each row's box within its target."""
        count, dim = questions.features.shape
        found, samples = Found.empty(count, len(self.problem.bias), dim), _samples(questions)

        def work(first: int, last: int, stop: Flags, clock: Floats, own: tuple[SumMemory, Tree]) -> None:
            range_sum_rows(
                self.problem, *own, samples, first, last, stop, clock, found.bound, found.value, found.point,
                found.status, found.boxes,
            )  # fmt: skip

        self._run("bounding", count, work, threads, max_seconds, progress)
        return found

    def _run(
        self,
        label: str,
        count: int,
        work: Callable[[int, int, Flags, Floats, tuple[SumMemory, Tree]], None],
        threads: int | None,
        max_seconds: float | None,
        progress: bool | None,
    ) -> None:
        def prepare() -> tuple[SumMemory, Tree]:
            boxes = 2 * self.problem.max_boxes + len(self.problem.bias) + 4
            return allocate_sum(self.problem), allocate_tree(boxes)

        workers = usable_cores() if threads is None else checked_count("threads", threads)
        Watched(label, count, workers, max_seconds, progress).run(prepare, work)


def _samples(questions: Questions) -> Samples:
    """Fixed axes are intervals without width, and need no care."""
    return Samples(*questions[:4], np.zeros((len(questions.features), 0)), questions.target)
