"""Sums of small polynomials in many features: searched box by box, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from berncert.certification.box_search import Answers, Questions, Watched, usable_cores
from berncert.certification.kernels.problem import Samples
from berncert.certification.kernels.sum_search import certify_sum_rows
from berncert.certification.kernels.sum_tree import Tree, allocate_tree
from berncert.certification.kernels.sums import SumMemory, SumProblem, allocate_sum, pose_sum, sum_at
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Flags, Floats, Ints


@dataclass(frozen=True)
class SumSearch:
    """The problem of a sum with terms that bend."""

    problem: SumProblem

    @classmethod
    def of(
        cls, weight: Floats, bias: Floats, terms: list[tuple[tuple[int, ...], Floats]], **options: Any
    ) -> SumSearch:
        """Of a (K, d) weight, a (K,) bias and terms, axes and coefficients, which are taken as exact."""
        return cls(pose_sum(weight, bias, terms, **options)[0])

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
        count, dim = questions.features.shape
        found = Answers.empty(questions.predicted, dim)
        samples = Samples(*questions[:4], np.zeros((count, 0)), questions.target)

        def prepare() -> tuple[SumMemory, Tree]:
            boxes = 2 * self.problem.max_boxes + len(self.problem.bias) + 4
            return allocate_sum(self.problem), allocate_tree(boxes)

        def work(first: int, last: int, stop: Flags, clock: Floats, own: tuple[SumMemory, Tree]) -> None:
            certify_sum_rows(self.problem, *own, samples, first, last, stop, clock, *found.columns())

        workers = usable_cores() if threads is None else checked_count("threads", threads)
        label = "proving" if getattr(certify_sum_rows, "signatures", None) else "compiling, once; proving"
        Watched(label, count, workers, max_seconds, progress).run(prepare, work)
        return found

    def solve_wanted(self, questions: Questions, wanted: Ints, **options: Any) -> Answers:
        """A wanted class among more than two is not searched for yet."""
        raise NotImplementedError("expected a dense head, got a sum, for which no wanted class is searched yet")
