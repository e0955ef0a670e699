"""The proven certificate: the distance from each sample to the nearest point of the cube that gets another class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Lock
from typing import Any

import numpy as np

from berncert.certify.arguments import checked_count, checked_features, checked_norm, checked_tolerance
from berncert.certify.certificate import Certificates, Floats, Status
from berncert.certify.kernels import search
from berncert.certify.kernels.problem import Problem, allocate, pose
from berncert.polynomial import SmoothedHead
from berncert.progress import Bar

STATUS = {
    search.PROVEN: Status.PROVEN,
    search.WHOLE_CUBE: Status.WHOLE_CUBE,
    search.TIE: Status.TIE,
    search.BUDGET: Status.BUDGET,
    search.ROUNDING: Status.ROUNDING,
}
ROWS_AT_ONCE = 32  # for one thread, before it looks what is left
SECONDS_BETWEEN_LOOKS = 0.1


def certify(
    smoothed: SmoothedHead,
    features: Any,
    *,
    norm: float = 2,
    tolerance: float = 1e-3,
    max_boxes: int = 100_000,
    threads: int | None = None,
    progress: bool | None = None,
) -> Certificates:
    """Prove, for each row of `features`, how far it is from the nearest point of the cube that gets another class.

    For every row, radius <= true distance <= upper: no point of [0,1]^d closer than `radius` changes the class, and
    `witness`, at distance `upper`, does. All rivals count. The proof holds for the polynomial in real arithmetic, with
    the coefficients taken as exact, and for `SmoothedHead` evaluated in float64 on any hardware with IEEE arithmetic
    (denormals included). It says nothing about evaluation in float32, nor about points outside the cube.

    features: (N, d) numbers in [0, 1]: a tensor on any device, an array or nested lists.
    norm: the p of the norm, 1 <= p <= inf.
    tolerance: stop when upper - radius <= tolerance * upper.
    max_boxes: how many boxes may be looked at for one row, give or take a path. Then the search stops: `radius` is as
        far as the proof has come, which still holds, and the status says so.
    threads: one row is solved by one thread, in a fixed order of operations, so neither their number nor the batch
        changes a bit of the result. None takes all cores that this process may use.
    progress: a bar on stderr; None shows one when stderr is a terminal and two seconds have passed.

    The first call on a machine compiles the search, which takes about half a minute; later ones load it from a cache.
    Ctrl-C stops within a moment.
    """
    if not isinstance(smoothed, SmoothedHead):
        raise TypeError(
            f"expected a SmoothedHead, got {type(smoothed).__name__}; make one with berncert.smooth(head, dim, degree)"
        )
    x = np.array(checked_features(smoothed, features), order="C")  # a copy: read-only arrays would compile anew
    coefficients = smoothed.coefficients.detach().cpu().double().numpy()
    problem = pose(
        coefficients,
        norm=checked_norm(norm),
        tolerance=checked_tolerance(tolerance),
        max_boxes=checked_count("max_boxes", max_boxes),
    )
    return _solve(problem, x, _usable_cores() if threads is None else checked_count("threads", threads), progress)


def _solve(problem: Problem, x: Floats, threads: int, progress: bool | None) -> Certificates:
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
                problem, memory, x, first, last, stop, predicted, radius, upper, witness, rival, status, boxes
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
    """Those this process may run on, where the system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _parts(count: int, threads: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows, small enough that the threads end together."""
    size = max(1, min(ROWS_AT_ONCE, count // (8 * threads)))
    return ((first, min(first + size, count)) for first in range(0, count, size))
