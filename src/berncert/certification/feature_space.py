"""The proof in feature space: the distance from each sample to the nearest point of the cube with another class."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np

from berncert.certification.inputs import checked_features
from berncert.certification.kernels import search
from berncert.certification.kernels.problem import Problem, allocate, pose
from berncert.certification.methods import Exact
from berncert.certification.results import Certificates
from berncert.certification.status import Status
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Floats
from berncert.foundation.progress import Bar
from berncert.polynomial import SmoothedHead

STATUS = {
    search.PROVEN: Status.PROVEN,
    search.WHOLE_CUBE: Status.WHOLE_CUBE,
    search.TIE: Status.TIE,
    search.BUDGET: Status.BUDGET,
    search.ROUNDING: Status.ROUNDING,
}
ROWS_AT_ONCE = 32  # for one thread, before it takes the next ones
SECONDS_BETWEEN_LOOKS = 0.1
DECIDING = 1e-3
"""How closely witnesses are looked for where a decision is asked for: the tolerance plays no part in it."""


def certify_features(
    smoothed: SmoothedHead,
    features: Any,
    method: Exact,
    *,
    norm: float | None = None,
    target: Floats | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Certificates:
    """The certificates of these features; `berncert.certify` says what the options mean.

    norm: instead of the method's. target: a radius for each row at which to decide, instead of the method's.
    """
    x = np.array(checked_features(smoothed, features), order="C")  # a copy: read-only arrays would compile again
    coefficients = smoothed.coefficients.detach().cpu().double().numpy()
    problem = pose(
        coefficients,
        norm=method.norm if norm is None else norm,
        tolerance=method.tolerance if method.radius is None else DECIDING,
        max_boxes=method.max_boxes,
    )
    if target is None:
        target = np.full(len(x), math.inf if method.radius is None else method.radius)
    found = _solve(
        problem, x, target, _usable_cores() if threads is None else checked_count("threads", threads), progress
    )
    if method.radius is None:
        return found
    ends = [_decided(*row) for row in zip(found.radius, found.upper, target, strict=True)]
    return replace(found, status=np.array(ends, dtype=object))


def _decided(radius: float, upper: float, target: float) -> Status:
    """Whether the class holds within the target: nothing closer than it changes the class."""
    if radius >= target:
        return Status.HOLDS
    return Status.FALLS if upper < target else Status.UNKNOWN


def _solve(problem: Problem, x: Floats, target: Floats, threads: int, progress: bool | None) -> Certificates:
    """Hand the rows to the threads, a few at a time, and wait for them."""
    count, dim = x.shape
    predicted, rival, status, boxes = (np.zeros(count, np.int64) for _ in range(4))
    radius, upper = np.zeros(count), np.zeros(count)
    witness = np.full((count, dim), np.nan)
    stop = np.zeros(1, np.bool_)
    done = [0]
    parts = _parts(count, threads)
    lock = Lock()

    def work() -> None:
        memory = allocate(problem)
        while True:
            with lock:
                first, last = next(parts, (count, count))
            if first == last or stop[0]:
                return
            search.certify_rows(
                problem, memory, x, target, first, last, stop, predicted, radius, upper, witness, rival, status, boxes
            )
            with lock:
                done[0] += last - first

    compiled = getattr(search.certify_rows, "signatures", None)
    label = "proving" if compiled else "compiling, once; proving"
    with ThreadPoolExecutor(threads) as pool, Bar(label, total=count, progress=progress) as bar:
        running = {pool.submit(work) for _ in range(min(threads, count))}
        try:
            while running:
                finished, running = wait(running, timeout=SECONDS_BETWEEN_LOOKS)
                bar.update(done[0])
                for future in finished:
                    future.result()
        finally:
            stop[0] = True  # whoever still runs when we leave, by Ctrl-C or an error, ends at once
    states = np.array([STATUS[s] for s in status.tolist()], dtype=object)
    return Certificates(predicted, radius, upper, witness, rival, states, boxes)


def _usable_cores() -> int:
    """The cores that this process may run on, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _parts(count: int, threads: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows, small enough that the threads end together."""
    size = max(1, min(ROWS_AT_ONCE, count // (8 * threads)))
    return ((first, min(first + size, count)) for first in range(0, count, size))
