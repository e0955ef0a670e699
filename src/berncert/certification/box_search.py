"""The compiled search, handed out to threads: rows with a box and weights each, watched for their time."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np

from berncert.certification.forecast import warn_of_long_work
from berncert.certification.kernels import search
from berncert.certification.kernels.problem import Memory, Problem, Samples, Whole, allocate, without_axes
from berncert.certification.kernels.rows import BOXES, OF_ROW, ROW, SHARE, new_clock
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Flags, Floats, Ints
from berncert.foundation.progress import Bar

ROWS_AT_ONCE = 32  # for one thread, before it takes the next ones
SECONDS_BETWEEN_LOOKS = 0.1
LOOKS_PER_ROW = 50
"""How often a row is looked at within its time, if there is a limit."""
MANY_BOXES = 1000
"""Of one row, before they are worth a note beside the bar."""
ROUNDED = 2.0**-47
"""More than the relative rounding error of a norm of two numbers, one of which is the norm of a few."""


class Questions(NamedTuple):
    """Rows to be searched; (N, d) arrays in units of the cube, except for `predicted` and `target`."""

    features: Floats
    """Where distances are measured from; outside its box too, if `predicted` is given."""
    low: Floats
    high: Floats
    """The box of points that count, inside the cube, low <= high; an axis may have no width."""
    weight: Floats
    predicted: Ints
    """The class that is to hold; -1 for the one that the sample is given."""
    target: Floats
    """How far it matters; inf for as far as it goes."""

    @classmethod
    def plain(cls, features: Floats, target: Floats | None = None) -> Questions:
        """In the whole cube, all axes counting alike."""
        ones, count = np.ones_like(features), len(features)
        far = np.full(count, math.inf) if target is None else target
        return cls(features, np.zeros_like(features), ones, ones, np.full(count, -1, np.int64), far)

    def rows(self, chosen: Ints) -> Questions:
        """Some of the rows."""
        parts: list[Any] = [np.ascontiguousarray(part[chosen]) for part in self]
        return Questions(*parts)


@dataclass(frozen=True)
class Answers:
    """What the search found, row by row; `status` as in `kernels.search`."""

    predicted: Ints
    radius: Floats
    upper: Floats
    witness: Floats
    rival: Ints
    status: Ints
    boxes: Ints

    @classmethod
    def empty(cls, predicted: Ints, dim: int) -> Answers:
        count = len(predicted)
        rival, status, boxes = (np.zeros(count, np.int64) for _ in range(3))
        return cls(
            predicted.copy(), np.zeros(count), np.zeros(count), np.full((count, dim), np.nan), rival, status, boxes
        )

    def columns(self) -> tuple[Ints, Floats, Floats, Floats, Ints, Ints, Ints]:
        return self.predicted, self.radius, self.upper, self.witness, self.rival, self.status, self.boxes


def solve(
    problem: Problem,
    questions: Questions,
    *,
    threads: int | None = None,
    max_seconds: float | None = None,
    progress: bool | None = None,
) -> Answers:
    """The answer to each question. Rows that hold the same axes fixed are searched together, without these axes."""
    count, dim = questions.features.shape
    found = Answers.empty(questions.predicted, dim)
    workers = usable_cores() if threads is None else checked_count("threads", threads)
    for pattern, rows in patterns_of(questions.low, questions.high):
        asked = questions if len(rows) == count else questions.rows(rows)
        part = _solve_alike(problem, asked, pattern, workers, max_seconds, progress)
        for all_rows, some in zip(found.columns(), part.columns(), strict=True):
            all_rows[rows] = some
    return found


def patterns_of(low: Floats, high: Floats) -> list[tuple[Ints, Ints]]:
    """For each set of axes that some rows hold fixed: 1 for each axis in it, else 0; and the rows."""
    held = (low == high).astype(np.int64)
    if not len(held):
        return []
    patterns, which = np.unique(held, axis=0, return_inverse=True)
    return [(pattern, np.flatnonzero(which.reshape(-1) == i)) for i, pattern in enumerate(patterns)]


def _solve_alike(
    problem: Problem, asked: Questions, held: Ints, threads: int, max_seconds: float | None, progress: bool | None
) -> Answers:
    """Rows that hold the same axes fixed."""
    samples, offset = samples_without(asked, held, problem.norm)
    part = _run(problem, samples, held, asked.predicted, threads, max_seconds, progress)
    return offset_answers(part, asked, held, offset, problem.norm)


def samples_without(asked: Questions, held: Ints, norm: float) -> tuple[Samples, Floats]:
    """The questions along the axes that are not held, and how far the held ones are from the sample already."""
    if not held.any():
        return Samples(*asked[:4], np.zeros((len(asked.features), 0)), asked.target), np.zeros(len(asked.features))
    free, fixed = held == 0, held == 1
    offset = _norm(asked.weight[:, fixed] * (asked.low[:, fixed] - asked.features[:, fixed]), norm)
    target = np.where(offset > 0, math.inf, asked.target)
    x, low, high, weight = (np.ascontiguousarray(part[:, free]) for part in asked[:4])
    return Samples(x, low, high, weight, np.ascontiguousarray(asked.low[:, fixed]), target), offset


def offset_answers(part: Answers, asked: Questions, held: Ints, offset: Floats, norm: float) -> Answers:
    """What was found along the other axes, with the held ones put back: both distances make one, rounded outwards."""
    if not held.any():
        return part
    free, fixed = held == 0, held == 1
    witness = np.full(asked.features.shape, np.nan)
    known = part.upper < math.inf
    witness[:, free] = part.witness
    witness[np.ix_(known, fixed)] = asked.low[np.ix_(known, fixed)]
    radius, upper = (
        np.where(offset > 0, _norm(np.stack([far, offset], axis=1), norm) * (1 + way * ROUNDED), far)
        for far, way in ((part.radius, -1), (part.upper, 1))
    )
    radius = np.where(offset > 0, np.minimum(radius, asked.target), radius)
    return Answers(part.predicted, radius, upper, witness, part.rival, part.status, part.boxes)


def _norm(rows: Floats, p: float) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        largest = np.abs(rows).max(axis=1, initial=0.0)
        scale = np.where((largest > 0) & (largest < math.inf), largest, 1.0)[:, None]
        norms: Floats = np.linalg.norm(rows / scale, ord=p, axis=1) * scale[:, 0]
    return norms


def _run(
    problem: Problem,
    samples: Samples,
    held: Ints,
    predicted: Ints,
    threads: int,
    max_seconds: float | None,
    progress: bool | None,
) -> Answers:
    """Hand the rows to the threads, a few at a time, and wait for them."""
    count, dim = samples.features.shape
    found = Answers.empty(predicted, dim)
    if dim == 0:
        return _at_points(problem, samples.held, found)
    warn_of_long_work(problem, samples, held, threads, max_seconds)

    def prepare() -> tuple[Problem, Whole, Memory]:
        mine, whole = without_axes(problem, held)
        return mine, whole, allocate(mine)

    def work(first: int, last: int, stop: Flags, clock: Floats, own: tuple[Problem, Whole, Memory]) -> None:
        mine, whole, memory = own
        search.certify_rows(mine, memory, whole, samples, first, last, stop, clock, *found.columns())

    compiled = getattr(search.certify_rows, "signatures", None)
    label = "proving" if compiled else "compiling, once; proving"
    Watched(label, count, threads, max_seconds, progress).run(prepare, work)
    return found


Own = TypeVar("Own")


@dataclass(frozen=True)
class Watched:
    """Rows handed out to threads, with a bar, an end on Ctrl-C, and a watch over the time of each row."""

    label: str
    count: int
    threads: int
    max_seconds: float | None
    progress: bool | None

    def run(self, prepare: Callable[[], Own], work: Callable[[int, int, Flags, Floats, Own], None]) -> None:
        """`prepare` makes what each thread owns; `work` does some rows with it until done or stopped."""
        stop = np.zeros(1, np.bool_)
        done = [0]
        parts = _parts(self.count, self.threads)
        lock = Lock()
        clocks = [new_clock() for _ in range(min(self.threads, self.count))]
        watch = _Watch(clocks, self.max_seconds)

        def run_thread(clock: Floats) -> None:
            own = prepare()
            while True:
                with lock:
                    first, last = next(parts, (self.count, self.count))
                if first == last or stop[0]:
                    return
                work(first, last, stop, clock, own)
                with lock:
                    done[0] += last - first

        with ThreadPoolExecutor(self.threads) as pool, Bar(self.label, total=self.count, progress=self.progress) as bar:
            running: set[Future[None]] = {pool.submit(run_thread, clock) for clock in clocks}
            try:
                while running:
                    finished, running = wait(running, timeout=watch.pause)
                    watch.look()
                    bar.update(done[0], _at_hand(clocks))
                    for future in finished:
                        future.result()
            finally:
                stop[0] = True  # whoever still runs when we leave, by Ctrl-C or an error, ends at once


def _at_hand(clocks: list[Floats]) -> str:
    """How far the longest of the rows at hand has come: a row can take minutes, and the bar counts rows."""
    boxes = max((int(clock[BOXES]) for clock in clocks), default=0)
    return f"{boxes:,} boxes in the row at hand" if boxes > MANY_BOXES else ""


class _Watch:
    """Says to each thread which share of its row's time is over."""

    def __init__(self, clocks: list[Floats], max_seconds: float | None) -> None:
        self.clocks, self.max_seconds = clocks, max_seconds
        self.begun = [(-1.0, 0.0)] * len(clocks)
        self.pause = SECONDS_BETWEEN_LOOKS
        if max_seconds is not None:
            self.pause = min(self.pause, max(1e-3, max_seconds / LOOKS_PER_ROW))

    def look(self) -> None:
        if self.max_seconds is None:
            return
        now = time.monotonic()
        for i, clock in enumerate(self.clocks):
            row = float(clock[ROW])
            if row != self.begun[i][0]:
                self.begun[i] = (row, now)
            clock[SHARE] = (now - self.begun[i][1]) / self.max_seconds
            clock[OF_ROW] = row  # after the share: what was said of an older row does not count


def _at_points(problem: Problem, points: Floats, found: Answers) -> Answers:
    """Where every axis is held there is one point to look at."""
    memory = allocate(problem)
    for i, point in enumerate(np.ascontiguousarray(points)):
        values = search.values_at(problem, memory, point).copy()
        a = int(found.predicted[i]) if found.predicted[i] >= 0 else int(values.argmax())
        others = np.delete(values, a)
        margin = values[a] - others.max()
        rival = int(np.flatnonzero(values == others.max())[0]) if values[a] != others.max() else -1
        falls = margin < -2 * problem.rounding
        holds = margin > 2 * problem.rounding
        found.predicted[i], found.rival[i] = a, rival if falls else -1
        found.radius[i], found.upper[i] = math.inf if holds else 0.0, 0.0 if falls else math.inf
        found.status[i] = search.WHOLE_CUBE if holds else search.PROVEN if falls else search.ROUNDING
    return found


def classify(problem: Problem, features: Floats) -> tuple[Ints, Floats]:
    """The class of each row, and by how much it leads, in units of the scaled coefficients."""
    memory = allocate(problem)
    predicted, lead = np.zeros(len(features), np.int64), np.zeros(len(features))
    for i, x in enumerate(np.ascontiguousarray(features)):
        values = search.values_at(problem, memory, x)
        predicted[i] = int(values.argmax())
        lead[i] = values[predicted[i]] - np.delete(values, predicted[i]).max()
    return predicted, lead


def usable_cores() -> int:
    """The cores that this process may run on, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _parts(count: int, threads: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows, small enough that the threads end together."""
    size = max(1, min(ROWS_AT_ONCE, count // (8 * threads)))
    return ((first, min(first + size, count)) for first in range(0, count, size))
