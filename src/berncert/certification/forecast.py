"""How long a proof may take, said before it begins: the cost of a box is measured where boxes are large."""

from __future__ import annotations

import time
import warnings

import numpy as np

from berncert.certification.kernels import search
from berncert.certification.kernels.problem import Problem, Samples, Whole, allocate, without_axes
from berncert.certification.kernels.rows import new_clock
from berncert.foundation.arrays import Ints

LARGE = 300_000
"""Coefficients of a class: a box with fewer takes a few milliseconds at most, and no one needs to be told."""
TRIAL_BOXES = 4
LONG_SECONDS = 60.0


class LongWorkWarning(UserWarning):
    """The work that begins may take long."""


def warn_of_long_work(problem: Problem, samples: Samples, held: Ints, threads: int, max_seconds: float | None) -> None:
    """Warn before work that may take more than a minute, if its boxes are large; with how long at most, and why."""
    small, whole = without_axes(problem, held)
    count = len(samples.features)
    limited = max_seconds is not None and count * max_seconds / threads <= LONG_SECONDS
    if small.coefficients.shape[1] < LARGE or limited or count == 0:
        return
    seconds = _seconds_per_box(small._replace(max_boxes=TRIAL_BOXES), whole, samples)
    row = problem.max_boxes * seconds
    row = row if max_seconds is None else min(row, max_seconds)
    most = count * row / min(threads, count)
    if most > LONG_SECONDS:
        warnings.warn(
            f"{count} rows may take up to {_readable(most)}: a box of {small.coefficients.shape[1]:,} coefficients "
            f"takes {seconds:.2g} s, and a row up to {problem.max_boxes:,} of them; lower the degree or the number of "
            "features, or limit a row by max_seconds or max_boxes, which leaves a valid radius",
            LongWorkWarning,
            stacklevel=2,
        )


def _seconds_per_box(problem: Problem, whole: Whole, samples: Samples) -> float:
    """Measured on the first row, given up after a few boxes."""
    memory, outputs = allocate(problem), (np.full(1, -1, np.int64), np.zeros(1), np.zeros(1))
    witness, others = np.zeros((1, problem.sizes.size)), [np.zeros(1, np.int64) for _ in range(3)]
    one = Samples(*(np.ascontiguousarray(part[:1]) for part in samples))
    stop, clock = np.zeros(1, np.bool_), new_clock()
    if not getattr(search.certify_rows, "signatures", None):  # compiled first, not measured
        stop[0] = True
        search.certify_rows(problem, memory, whole, one, 0, 0, stop, clock, *outputs, witness, *others)
        stop[0] = False
    begun = time.perf_counter()
    search.certify_rows(problem, memory, whole, one, 0, 1, stop, clock, *outputs, witness, *others)
    return (time.perf_counter() - begun) / max(1, int(others[2][0]))


def _readable(seconds: float) -> str:
    for size, word in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} seconds"
