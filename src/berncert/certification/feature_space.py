"""The proof in feature space: the distance from each sample to the nearest point of the cube with another class."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from berncert.certification.affine_search import AffineSearch
from berncert.certification.box_search import Answers, Questions, classify, solve
from berncert.certification.inputs import checked_box, checked_features, checked_weights
from berncert.certification.kernels import search
from berncert.certification.kernels.problem import Problem, exponent_of, pose
from berncert.certification.methods import Exact
from berncert.certification.nearest_class import solve_wanted
from berncert.certification.range_search import Found, search_ranges
from berncert.certification.results import Certificates
from berncert.certification.status import Status
from berncert.certification.sum_search import SumSearch
from berncert.foundation.arrays import Floats, Ints
from berncert.polynomial import PolynomialHead

STATUS = {
    search.PROVEN: Status.PROVEN,
    search.WHOLE_CUBE: Status.WHOLE_CUBE,
    search.TIE: Status.TIE,
    search.BUDGET: Status.BUDGET,
    search.ROUNDING: Status.ROUNDING,
    search.TIME: Status.TIME,
}
DECIDING = 1e-3
"""How closely witnesses are looked for where a decision is asked for: the tolerance plays no part in it."""


class Search(Protocol):
    """A head, posed as a problem."""

    @property
    def rounding(self) -> float:
        """How far a margin that is computed, in units of `classify`, may be from the exact one."""

    @property
    def exponent(self) -> int:
        """Values in these units, times 2^exponent, are those of the head."""

    def classify(self, features: Floats) -> tuple[Ints, Floats]:
        """The class of each row, and by how much it leads."""

    def solve(
        self,
        questions: Questions,
        *,
        threads: int | None = None,
        max_seconds: float | None = None,
        progress: bool | None = None,
    ) -> Answers:
        """The answer to each question."""

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

    def ranges(
        self,
        questions: Questions,
        *,
        threads: int | None = None,
        max_seconds: float | None = None,
        progress: bool | None = None,
    ) -> Found:
        """The range of each output over the points of each row's box within its target."""


def certify_features(
    head: PolynomialHead,
    features: Any,
    method: Exact,
    *,
    weights: Any = None,
    lower: Any = None,
    upper: Any = None,
    norm: float | None = None,
    target: Floats | None = None,
    problem: Search | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Certificates:
    """The certificates of these features; `berncert.certify` says what the options mean.

    norm: instead of the method's. target: a radius for each row at which to decide, instead of the method's. problem:
    the head as `posed` for this, where that is there already.
    """
    x = np.array(checked_features(head, features), order="C")  # a copy: read-only arrays would compile again
    problem = posed(head, method, norm) if problem is None else problem
    if target is None:
        target = np.full(len(x), math.inf if method.radius is None else method.radius)
    questions = Questions.plain(x, target)
    if weights is not None:
        questions = questions._replace(weight=checked_weights(weights, x.shape))
    tied = np.zeros(len(x), np.bool_)
    if lower is not None or upper is not None:
        low, high = checked_box(lower, upper, x.shape)
        predicted, lead = problem.classify(x)
        tied = lead <= 2 * problem.rounding
        questions = questions._replace(low=low, high=high, predicted=predicted)
    found = problem.solve(questions, threads=threads, max_seconds=method.max_seconds, progress=progress)
    found.radius[tied], found.status[tied] = 0.0, search.TIE
    if method.radius is None:
        return certificates(found)
    ends = [_decided(*row) for row in zip(found.radius, found.upper, target, strict=True)]
    return replace(certificates(found), status=np.array(ends, dtype=object))


def posed(head: PolynomialHead, method: Exact, norm: float | None = None) -> Search:
    """The problem of the head, ready to be searched: the way depends on what it is a sum of."""
    options: dict[str, Any] = {
        "norm": method.norm if norm is None else norm,
        "tolerance": method.tolerance if method.radius is None else DECIDING,
        "max_boxes": method.max_boxes,
    }
    tensors = [tensor.numpy() for tensor in head.in_float64().tensors]
    if head.affine is None and len(head.terms) == 1:
        return DenseSearch(pose(tensors[0], **options), exponent_of(tensors[0]))
    if head.affine is not None and not head.terms:
        return AffineSearch.of(tensors[0], tensors[1], **options)
    weight, bias, *coefficients = tensors
    terms = [(term.axes, c) for term, c in zip(head.terms, coefficients, strict=True)]
    return SumSearch.of(weight, bias, terms, **options)


@dataclass(frozen=True)
class DenseSearch:
    """The problem of one polynomial in all features."""

    problem: Problem
    exponent: int

    @property
    def rounding(self) -> float:
        """How far a margin that is computed may be from the exact one."""
        return self.problem.rounding

    def classify(self, features: Floats) -> tuple[Ints, Floats]:
        """The class of each row, and by how much it leads."""
        return classify(self.problem, features)

    def solve(self, questions: Questions, **options: Any) -> Answers:
        """The answer to each question."""
        return solve(self.problem, questions, **options)

    def solve_wanted(self, questions: Questions, wanted: Ints, **options: Any) -> Answers:
        """The answer to each question about a wanted class."""
        return solve_wanted(self.problem, questions, wanted, **options)

    def ranges(self, questions: Questions, **options: Any) -> Found:
        """The range of each output."""
        return search_ranges(self.problem, questions, **options)


def certificates(found: Answers) -> Certificates:
    """The answers in the words of the public interface."""
    states = np.array([STATUS[s] for s in found.status.tolist()], dtype=object)
    return Certificates(found.predicted, found.radius, found.upper, found.witness, found.rival, states, found.boxes)


def _decided(radius: float, upper: float, target: float) -> Status:
    """Whether the class holds within the target: nothing closer than it changes the class."""
    if radius >= target:
        return Status.HOLDS
    return Status.FALLS if upper < target else Status.UNKNOWN
