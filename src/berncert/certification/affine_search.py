"""Affine heads in any number of features: the closed form, row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from berncert.certification.box_search import Answers, Questions, Watched, usable_cores
from berncert.certification.kernels.affine import AffineMemory, AffineProblem, affine_value, certify_affine_rows
from berncert.certification.kernels.problem import LARGEST_COEFFICIENT, Samples
from berncert.certification.kernels.sum_problem import pose_sum
from berncert.certification.kernels.tensor import ROUNDOFF
from berncert.certification.range_search import Found
from berncert.certification.sum_search import SumSearch
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Flags, Floats, Ints


@dataclass(frozen=True)
class AffineSearch:
    """The problem of an affine head."""

    problem: AffineProblem
    exponent: int

    @classmethod
    def of(cls, weight: Floats, bias: Floats, *, norm: float, tolerance: float, max_boxes: int) -> AffineSearch:
        """Of a (K, d) weight and a (K,) bias, which are taken as exact."""
        largest = float(max(np.abs(weight).max(), np.abs(bias).max()))
        if not largest < LARGEST_COEFFICIENT:
            raise ValueError(
                f"expected weights and biases below 2^1000 in magnitude, got {largest:g}, which overflows when logits "
                "are compared; divide the logits by a constant, which changes no class"
            )
        exponent, dim = math.frexp(largest)[1], weight.shape[1]
        weight, bias = np.ldexp(weight, -exponent), np.ldexp(bias, -exponent)
        # two logits, each within the law of `SumHead.forward`; and what underflow adds when weights are tiny
        rounding = 2.02 * (dim + 2) * ROUNDOFF * float((np.abs(bias) + np.abs(weight).sum(axis=1)).max())
        underflow = math.ldexp(8.0 * (dim + 2), -1074 - min(exponent, 0))
        return cls(AffineProblem(weight, bias, norm, tolerance, max_boxes, rounding + underflow), exponent)

    @property
    def rounding(self) -> float:
        """How far a margin that is computed may be from the exact one."""
        return self.problem.rounding

    def classify(self, features: Floats) -> tuple[Ints, Floats]:
        """The class of each row, and by how much it leads."""
        classes = range(len(self.problem.bias))
        values = np.array([[affine_value(self.problem, k, x) for k in classes] for x in np.ascontiguousarray(features)])
        predicted = values.reshape(len(features), -1).argmax(axis=1)
        second, best = np.sort(values, axis=1)[:, -2:].T
        return predicted, best - second

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
        classes = len(self.problem.bias)

        def prepare() -> AffineMemory:
            return AffineMemory(*(np.empty(classes) for _ in range(2)), *(np.empty(dim) for _ in range(9)))

        def work(first: int, last: int, stop: Flags, clock: Floats, memory: AffineMemory) -> None:
            certify_affine_rows(self.problem, memory, samples, first, last, stop, clock, *found.columns())

        workers = usable_cores() if threads is None else checked_count("threads", threads)
        label = "proving" if getattr(certify_affine_rows, "signatures", None) else "compiling, once; proving"
        Watched(label, count, workers, max_seconds, progress).run(prepare, work)
        return found

    def solve_wanted(self, questions: Questions, wanted: Ints, **options: Any) -> Answers:
        """The answer to each question about a wanted class."""
        return self._as_sum().solve_wanted(questions, wanted, **options)

    def ranges(self, questions: Questions, **options: Any) -> Found:
        """The range of each output."""
        return self._as_sum().ranges(questions, **options)

    def _as_sum(self) -> SumSearch:
        """The same as a sum without terms, whose search has no closed form to offer but takes any question."""
        weight, bias, norm, tolerance, max_boxes, _ = self.problem
        problem, power = pose_sum(weight, bias, [], norm=norm, tolerance=tolerance, max_boxes=max_boxes)
        return SumSearch(problem, power + self.exponent)
