"""From the proof in features to what it says about rows of the user's table, and back to a counterfactual row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from berncert.certification.box_search import Answers, usable_cores
from berncert.certification.feature_space import STATUS, Search, posed
from berncert.certification.kernels import search
from berncert.certification.methods import Exact
from berncert.certification.proof_file import Block
from berncert.certification.status import Status
from berncert.estimators.branching import AT_ONCE, Brancher, Solve
from berncert.estimators.constraints import Admissible, ConstraintOptions, admissible, check_order
from berncert.estimators.reduction import Reduction
from berncert.estimators.results import Counterfactuals, TableCertificates
from berncert.estimators.table_proof import check_provable, proof_route, table_rows
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Flags, Floats, Ints
from berncert.polynomial import PolynomialHead

SPARE = 0.99
"""Of the tolerance for the search; the rest is for the rounding between features and columns."""
NUDGES = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-5)
"""How much further than the witness a counterfactual is put, until the model as computed agrees that it flips."""


STILL = 1e-11
"""A feature that moves less than this stays where it is."""


class Model(Protocol):
    """What is needed of a fitted classifier."""

    reduction_: Reduction
    classes_: npt.NDArray[Any]

    @property
    def head_(self) -> PolynomialHead: ...
    def _names(self) -> list[str] | None: ...
    def _outputs(self, x: Floats) -> Floats: ...
    def _base_labels(self, x: Floats) -> npt.NDArray[Any]: ...
    def _as_given(self, table: Any, rows: Floats) -> Any: ...


@dataclass(frozen=True)
class Found:
    """In columns: the radius and the counterfactual of each row."""

    radius: Floats
    upper: Floats
    rows: Floats
    """(N, m), NaN where there is none."""
    status: npt.NDArray[np.object_]
    boxes: Ints
    inner: Answers
    """In features, along the first route."""


def certify_table(
    model: Model, table: Any, x: Floats, method: Exact, constraints: ConstraintOptions, *,
    numbers: Sequence[int] | None = None, **execution: Any,
) -> tuple[TableCertificates, list[Block]]:  # fmt: skip
    """Radii and counterfactuals against every other label; and a proof of each row, if the method is to write proofs.

    numbers: of the rows, in their proofs.
    """
    check_order(table, constraints)
    if method.proof:
        check_provable(constraints)
    predicted, tied = _classes(model, x, method)

    def flips(rows: Floats) -> Flags:
        return np.asarray(model._outputs(rows).argmax(axis=1) != predicted)

    def asked(problem: Search) -> Solve:
        return lambda questions, _, seconds: problem.solve(questions, max_seconds=seconds, **execution)

    found = _search(model, x, predicted, method, constraints, asked, flips, execution.get("threads"))
    known = np.isfinite(found.upper)
    rival = np.full(len(x), None, dtype=object)
    flips_base = np.zeros(len(x), np.bool_)
    if known.any():
        rival[known] = model.classes_[model._outputs(found.rows[known]).argmax(axis=1)]
        flips_base[known] = model._base_labels(found.rows[known]) != model._base_labels(x[known])
    radius, status = np.where(tied, 0.0, found.radius), found.status.copy()
    blocks: list[Block] = []
    status[tied] = Status.TIE
    if method.proof:
        allowed = admissible(x, model.reduction_, model._names(), constraints)
        radius, short, blocks = table_rows(
            model.head_, model.reduction_, x, allowed, found.inner, radius, method, numbers, execution.get("threads")
        )
        status[short & (status == Status.PROVEN)] = Status.BUDGET
    certificates = TableCertificates(
        predicted=model.classes_[predicted],
        radius=radius,
        upper=found.upper,
        counterfactual=model._as_given(table, found.rows),
        rival=rival,
        flips_base=flips_base,
        status=status,
        boxes=found.boxes,
    )
    return certificates, blocks


def nearest_wanted(
    model: Model, table: Any, x: Floats, wanted: Ints, method: Exact, constraints: ConstraintOptions, **execution: Any
) -> Counterfactuals:
    """The nearest admissible rows with a chosen label."""
    check_order(table, constraints)

    def flips(rows: Floats) -> Flags:
        return np.asarray(model._outputs(rows).argmax(axis=1) == wanted)

    def asked(problem: Search) -> Solve:
        if len(model.classes_) == 2:  # then the other class is not to hold, which compiles nothing new
            return lambda questions, rows, seconds: problem.solve(
                questions._replace(predicted=1 - wanted[rows]), max_seconds=seconds, **execution
            )
        return lambda questions, rows, seconds: problem.solve_wanted(
            questions, wanted[rows], max_seconds=seconds, **execution
        )

    found = _search(model, x, wanted, method, constraints, asked, flips, execution.get("threads"))
    known = np.isfinite(found.upper)
    flips_base = np.zeros(len(x), np.bool_)
    if known.any():
        flips_base[known] = model._base_labels(found.rows[known]) == model.classes_[wanted[known]]
    return Counterfactuals(
        wanted=model.classes_[wanted],
        radius=found.radius,
        upper=found.upper,
        counterfactual=model._as_given(table, found.rows),
        flips_base=flips_base,
        status=found.status,
        boxes=found.boxes,
    )


def _classes(model: Model, x: Floats, method: Exact) -> tuple[Ints, Flags]:
    """The number of each row's class, as `predict` says it, and where float64 cannot tell it from another."""
    problem = posed(model.head_, method)
    predicted = model._outputs(x).argmax(axis=1)
    best, lead = problem.classify(model.reduction_.features(x))
    return predicted, (lead <= 2 * problem.rounding) | (best != predicted)


def _search(
    model: Model,
    x: Floats,
    predicted: Ints,
    method: Exact,
    constraints: ConstraintOptions,
    asked: Callable[[Search], Solve],
    flips: Callable[[Floats], Flags],
    threads: int | None,
) -> Found:
    """By every route from columns to features; each row keeps the greatest radius and the nearest counterfactual.

    The routes share the seconds of a row.
    """
    reduction = model.reduction_
    allowed = admissible(x, reduction, model._names(), constraints)
    best: Found | None = None
    inner = replace(method, tolerance=SPARE * method.tolerance)
    routes = [proof_route(reduction, method.norm)] if method.proof else reduction.routes(method.norm)
    seconds = None if method.max_seconds is None else method.max_seconds / len(routes)
    at_once = min(AT_ONCE, usable_cores() if threads is None else checked_count("threads", threads))
    for route in routes:
        q, weight, _ = route
        weights = np.tile(weight, (len(x), 1))
        solver = asked(posed(model.head_, inner, q))
        power = q if q == method.norm else math.inf
        brancher = Brancher(reduction, x, allowed, weights, inner.tolerance, solver, power)
        answers = brancher.run(predicted, seconds, at_once)
        rows, upper = _counterfactuals(brancher, x, answers, allowed, method.norm, flips)
        radius = np.minimum(reduction.radius(x, answers.radius, route), upper)
        found = Found(radius, upper, rows, _statuses(answers, radius, upper, method.tolerance), answers.boxes, answers)
        best = found if best is None else _better(best, found, method.tolerance)
    assert best is not None
    if len(routes) > 1:
        status = best.status.copy()
        status[(status == Status.BUDGET) | (status == Status.ROUNDING)] = Status.PROJECTED
        best = replace(best, status=status)
    return best


def _statuses(answers: Answers, radius: Floats, upper: Floats, tolerance: float) -> npt.NDArray[np.object_]:
    """As the search ended, unless what the columns cost has opened the gap."""
    status = np.array([STATUS[code] for code in answers.status.tolist()], dtype=object)
    with np.errstate(invalid="ignore"):
        near = upper - radius <= tolerance * upper
    near &= np.isfinite(upper)
    status[near] = Status.PROVEN
    status[(answers.status == search.PROVEN) & ~near] = Status.ROUNDING
    return status


def _better(a: Found, b: Found, tolerance: float) -> Found:
    """Row by row, the greater radius and the nearer counterfactual."""
    nearer = b.upper < a.upper
    upper = np.where(nearer, b.upper, a.upper)
    radius = np.minimum(np.maximum(a.radius, b.radius), upper)
    status = np.where(b.radius > a.radius, b.status, a.status)
    with np.errstate(invalid="ignore"):
        near = np.isfinite(upper) & (upper - radius <= tolerance * upper)
    status[near] = Status.PROVEN
    status[~near & (status == Status.PROVEN)] = Status.PROJECTED
    return Found(radius, upper, np.where(nearer[:, None], b.rows, a.rows), status, a.boxes + b.boxes, a.inner)


def _counterfactuals(
    brancher: Brancher, x: Floats, answers: Answers, allowed: Admissible, norm: float, flips: Callable[[Floats], Flags]
) -> tuple[Floats, Floats]:
    """Rows for the witnesses that the model, as computed, labels as it should; and their distances, rounded up."""
    reduction = brancher.reduction
    rows, upper = np.full(x.shape, np.nan), np.full(len(x), math.inf)
    missing = np.isfinite(answers.upper)
    witness = np.where(missing[:, None], answers.witness, 0.0)
    still = np.abs(witness - np.clip(brancher.raw, 0.0, 1.0)) <= STILL  # whether it still flips is checked below
    plain, decided = reduction.moved(x, witness, still), brancher.decided
    for nudge in NUDGES:
        tried = plain + nudge * (plain - x)
        tried = _whole(brancher, np.clip(tried, allowed.low, allowed.high), witness, allowed)
        tried[:, decided] = brancher.settled[:, decided]
        tried = np.where(missing[:, None], tried, x)
        taken = missing & flips(tried)
        rows[taken] = tried[taken]
        upper[taken] = reduction.distance(x[taken], tried[taken], norm, up=True)
        missing &= ~taken
        if not missing.any():
            break
    return rows, upper


def _whole(brancher: Brancher, rows: Floats, witness: Floats, allowed: Admissible) -> Floats:
    """Columns of whole numbers put to the very number that the witness stands for."""
    found = rows.copy()
    for j in brancher.whole:
        axis = brancher.axis_of[j]
        for i in range(len(rows)):
            near = [math.floor(rows[i, j]), math.ceil(rows[i, j])]
            near += [near[0] - 1, near[1] + 1]
            same = [k for k in near if brancher.feature(j, float(k)) == witness[i, axis]]
            same = [k for k in same if allowed.low[i, j] <= k <= allowed.high[i, j]]
            if same:
                found[i, j] = min(same, key=lambda k: abs(k - brancher.x[i, j]))
    return found
