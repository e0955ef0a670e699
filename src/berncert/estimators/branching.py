"""The exact search over admissible rows: whole numbers, categories and rows outside the domain, by branch and bound.

A node is a box for one row. Its relaxation, with whole numbers and categories taken as continuous, is solved by the
compiled search, which gives a proven bound and a witness. If the witness is admissible the node is done; else it is
divided: a column of whole numbers below and above the witness, a group of categories into its members. A row outside
the domain has, along each such axis, two ways: to stay outside, where the model is constant, or to come in.
A column without an axis, as that of a category never seen in training, costs what it must move and changes no feature.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from berncert.certification.box_search import Answers, Questions
from berncert.certification.kernels import search
from berncert.estimators.constraints import Admissible
from berncert.estimators.reduction import DOWN, UP, Reduction
from berncert.foundation.arrays import Floats, Ints

Solve = Callable[[Questions, Ints, float | None], Answers]
"""Questions, the rows they belong to and the seconds for each question -> answers."""
MOST_NODES = 4096
"""For one row; what is left then counts with the bounds proven so far."""
AT_ONCE = 4
"""Nodes of one row that are solved together."""


@dataclass(frozen=True)
class Node:
    """A part of the admissible rows around one row."""

    low: Floats
    """(m,) in columns"""
    high: Floats
    away: tuple[int, ...]
    """Axes outside the domain of which it is not decided whether they stay."""
    inside: frozenset[int]
    """Axes outside the domain along which the row comes in."""
    bound: float = 0.0


@dataclass
class Progress:
    """What is known about one row."""

    open: list[tuple[float, int, Node]] = field(default_factory=list)
    closed: float = math.inf
    """The least bound among the nodes that are done."""
    upper: float = math.inf
    witness: Floats | None = None
    settled: Floats | None = None
    """(m,): of the witness, the columns whose values its node decides."""
    rival: int = -1
    boxes: int = 0
    nodes: int = 0
    codes: set[int] = field(default_factory=set)


class Brancher:
    """Solves all rows together, some nodes of each at a time."""

    def __init__(
        self,
        reduction: Reduction,
        x: Floats,
        allowed: Admissible,
        weight: Floats,
        tolerance: float,
        solve: Solve,
        power: float,
    ) -> None:
        """`power`: of the norm that joins the way in features to that in columns without an axis; inf always holds."""
        self.reduction, self.x, self.allowed, self.weight = reduction, x, allowed, weight
        self.tolerance, self.solve, self.power = tolerance, solve, power
        self.raw = reduction.unclipped(x)
        self.axis_of = {int(column): axis for axis, column in enumerate(reduction.kept)}
        self.whole = [j for j in allowed.whole if j in self.axis_of]
        self.groups = allowed.groups
        axes = {*self.axis_of, *map(int, reduction.mixed)}
        self.rest = np.array([j for j in range(x.shape[1]) if j not in axes], dtype=np.int64)
        members = {j for group in allowed.groups for j in group}
        self.decided = np.array(sorted({*self.rest.tolist(), *members}), dtype=np.int64)
        self.settled = x.copy()
        self._ties = count()

    def run(self, predicted: Ints, seconds: float | None = None, at_once: int = AT_ONCE) -> Answers:
        """The answers in features, with witnesses that are admissible.

        seconds: for each row. Rows with one node each are solved together; where there may be more, each row is solved
        by itself, so that one clock counts all of its nodes, `at_once` of them at a time.
        """
        rows = [Progress() for _ in range(len(self.x))]
        for i, row in enumerate(rows):
            outside = np.flatnonzero((self.raw[i] < 0) | (self.raw[i] > 1))
            first = Node(self.allowed.low[i], self.allowed.high[i], tuple(map(int, outside)), frozenset())
            self._push(row, first)
        branches = len(self.whole) or len(self.groups) or ((self.raw < 0) | (self.raw > 1)).any()
        if seconds is None or not branches:
            self._work(dict(enumerate(rows)), predicted, seconds, AT_ONCE, None)
        else:
            for i, row in enumerate(rows):
                self._work({i: row}, predicted, seconds, at_once, time.monotonic() + seconds)
        return self._answers(rows, predicted)

    def _work(
        self, rows: dict[int, Progress], predicted: Ints, seconds: float | None, at_once: int, end: float | None
    ) -> None:
        """Solve nodes of these rows until none is open, or the time is over; then what is open counts as it is."""
        while batch := list(self._next_nodes(rows, at_once)):
            if end is not None:
                seconds = max(end - time.monotonic(), 1e-3)
            numbers = np.array([i for i, _ in batch])
            low, high, origin = (np.stack(part) for part in zip(*(self._box(i, n) for i, n in batch), strict=True))
            asked = Questions(
                origin, low, high, self.weight[numbers], predicted[numbers], np.full(len(batch), math.inf)
            )
            found = self.solve(asked, numbers, seconds)
            for k, (i, node) in enumerate(batch):
                self._settle(i, rows[i], node, k, found)
            if end is not None and time.monotonic() >= end:
                for row in rows.values():
                    self._give_up(row, search.TIME)

    @staticmethod
    def _give_up(row: Progress, code: int) -> None:
        """The open nodes count with the bounds proven so far."""
        if row.open:
            row.closed = min(row.closed, *(entry[0] for entry in row.open), math.inf)
            row.open.clear()
            row.codes.add(code)

    def _next_nodes(self, rows: dict[int, Progress], at_once: int) -> Iterator[tuple[int, Node]]:
        """The most promising open nodes of each row; those that cannot improve on what is known are closed."""
        for i, row in rows.items():
            for _ in range(at_once):
                if not row.open:
                    break
                bound, _, node = heapq.heappop(row.open)
                if bound >= row.upper * (1 - self.tolerance):
                    row.closed = min(row.closed, bound, *(entry[0] for entry in row.open))
                    row.open.clear()
                    break
                if row.nodes >= MOST_NODES:
                    row.closed = min(row.closed, bound, *(entry[0] for entry in row.open))
                    row.open.clear()
                    row.codes.add(search.BUDGET)
                    break
                row.nodes += 1
                yield i, node

    def _box(self, i: int, node: Node) -> tuple[Floats, Floats, Floats]:
        """The node's box and origin in features: (low, high, origin), (axes,) each."""
        limits = np.stack([np.where(np.isfinite(v), v, self.x[i]) for v in (node.low, node.high)])
        low, high = self.reduction.features(limits)
        for axis in range(self.reduction.dim):
            column = int(self.reduction.kept[axis]) if axis < len(self.reduction.kept) else -1
            low[axis] = low[axis] if column >= 0 and np.isfinite(node.low[column]) else 0.0
            high[axis] = high[axis] if column >= 0 and np.isfinite(node.high[column]) else 1.0
        origin = np.clip(self.raw[i], 0.0, 1.0)
        for axis in map(int, np.flatnonzero((self.raw[i] < 0) | (self.raw[i] > 1))):
            if axis in node.inside:
                origin[axis] = self.raw[i, axis]
            elif axis not in node.away:  # it stays outside
                low[axis] = high[axis] = origin[axis]
        return low, high, origin

    def _settle(self, i: int, row: Progress, node: Node, k: int, found: Answers) -> None:
        """Take in what was found about a node: done, or divided."""
        rest = self._rest(i, node)
        bound = max(node.bound, _joined(float(found.radius[k]), rest * DOWN, self.power) * (DOWN if rest else 1.0))
        upper = _joined(float(found.upper[k]), rest * UP, self.power) * (UP if rest else 1.0)
        row.boxes += int(found.boxes[k])
        if found.status[k] not in (search.PROVEN, search.WHOLE_CUBE):
            row.codes.add(int(found.status[k]))
        if bound == math.inf:
            return
        witness = found.witness[k] if np.isfinite(found.upper[k]) else None
        parts = [] if witness is None else self._divide(i, node, witness)
        if witness is not None and not parts and upper < row.upper:
            row.upper, row.witness, row.rival = upper, witness.copy(), int(found.rival[k])
            row.settled = np.clip(self.x[i], node.low, node.high)
        if not parts and witness is None:
            parts = self._halve(node)
        if not parts:
            row.closed = min(row.closed, bound)
        for part in parts:
            self._push(row, replace(part, bound=bound))

    def _rest(self, i: int, node: Node) -> float:
        """How far the columns without an axis must move, at least, to be in the node."""
        if not len(self.rest):
            return 0.0
        x, low, high = (values[self.rest] for values in (self.x[i], node.low, node.high))
        steps = np.maximum(0.0, np.maximum(low - x, x - high)) / self.reduction.scale[self.rest]
        total = 0.0
        for step in steps[steps > 0].tolist():
            total = _joined(total, step, self.power)
        return total

    def _push(self, row: Progress, node: Node) -> None:
        heapq.heappush(row.open, (node.bound, next(self._ties), node))

    def _divide(self, i: int, node: Node, witness: Floats) -> list[Node]:
        """The parts of a node whose witness is not admissible; none if it is."""
        for axis in node.away:
            face = 0.0 if self.raw[i, axis] < 0 else 1.0
            if witness[axis] != face:
                return self._in_or_out(i, node, axis, face)
        values = self.column_values(witness)
        worst, column = 0.0, -1
        for j in self.whole:
            if node.low[j] < node.high[j]:
                fraction = abs(values[j] - round(values[j]))
                if self.feature(j, float(round(values[j]))) != witness[self.axis_of[j]] and fraction >= worst:
                    worst, column = max(fraction, 1e-300), j
        if column >= 0:
            return self._around(node, column, values[column])
        for group in self.groups:
            if any(node.low[j] < node.high[j] for j in group):
                return self._members(node, group)
        return []

    def _in_or_out(self, i: int, node: Node, axis: int, face: float) -> list[Node]:
        left = tuple(a for a in node.away if a != axis)
        inside = replace(node, away=left, inside=node.inside | {axis})
        low, high, _ = self._box(i, node)
        return [replace(node, away=left), inside] if low[axis] <= face <= high[axis] else [inside]

    def _around(self, node: Node, column: int, value: float) -> list[Node]:
        """Two nodes: up to the whole number below the value, and from the one above."""
        below = math.floor(value)
        if below < node.low[column]:
            below = int(node.low[column])
        if np.isfinite(node.high[column]) and below + 1 > node.high[column]:
            below = int(node.high[column]) - 1
        low, high = node.low.copy(), node.high.copy()
        high[column], low[column] = below, below + 1
        return [replace(node, high=high), replace(node, low=low)]

    def _members(self, node: Node, group: Sequence[int]) -> list[Node]:
        """One node for each category that is still possible."""
        parts = []
        for chosen in group:
            if node.high[chosen] >= 1 and all(node.low[j] <= 0 for j in group if j != chosen):
                low, high = node.low.copy(), node.high.copy()
                for j in group:
                    low[j] = high[j] = float(j == chosen)
                parts.append(replace(node, low=low, high=high))
        return parts

    def _halve(self, node: Node) -> list[Node]:
        """Where neither a witness nor a proof was found: still decide what can be decided."""
        for group in self.groups:
            if any(node.low[j] < node.high[j] for j in group):
                return self._members(node, group)
        return []

    def column_values(self, features: Floats) -> Floats:
        """(m,): the columns of the kept axes; NaN for others."""
        values = np.full(self.x.shape[1], np.nan)
        kept = self.reduction.kept
        values[kept] = self.reduction.low[: len(kept)] + features[: len(kept)] * self.reduction.width[: len(kept)]
        return values

    def feature(self, column: int, value: float) -> float:
        """The feature that a value of a kept column is given, exactly as for a row."""
        axis = self.axis_of[column]
        return float(np.clip((value - self.reduction.low[axis]) / self.reduction.width[axis], 0.0, 1.0))

    def _answers(self, rows: Sequence[Progress], predicted: Ints) -> Answers:
        found = Answers.empty(predicted, self.reduction.dim)
        for i, row in enumerate(rows):
            found.radius[i], found.upper[i] = min(row.closed, row.upper), row.upper
            if row.witness is not None and row.settled is not None:
                found.witness[i] = row.witness
                self.settled[i, self.decided] = row.settled[self.decided]
            found.rival[i], found.boxes[i] = row.rival, row.boxes
            whole = row.closed == math.inf and row.upper == math.inf
            near = row.upper < math.inf and row.upper - found.radius[i] <= self.tolerance * row.upper
            found.status[i] = (
                search.WHOLE_CUBE if whole else search.PROVEN if near else max(row.codes, default=search.ROUNDING)
            )
        return found


def _joined(a: float, b: float, power: float) -> float:
    """The norm of two numbers >= 0; exact if one of them is 0 or infinite."""
    most, least = max(a, b), min(a, b)
    if least == 0 or most == math.inf or power == math.inf:
        return most
    return float(most * (1 + (least / most) ** power) ** (1 / power))
