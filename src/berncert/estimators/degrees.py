"""The choice of a degree: the least at which the smoothed model agrees with its base, else a compromise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import ShuffleSplit

from berncert.foundation.arrays import Floats, Ints
from berncert.polynomial.degrees import highest_degree, tried_until
from berncert.polynomial.fidelity import AGREED

CANDIDATES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def candidates(dim: int) -> list[int]:
    """The degrees whose grid is not too large, the least one always."""
    return [n for n in CANDIDATES if n <= highest_degree(dim)]


def held_out(count: int, labels: npt.NDArray[Any] | None, weight: Floats) -> tuple[Ints, Ints]:
    """(train, test): four fifths of the rows and the others.

    All rows to train on where they are few, or where some label would have no row left, or none with weight.
    """
    rows = np.arange(count)
    if count < 5:
        return rows, rows
    train, test = next(ShuffleSplit(1, test_size=0.2, random_state=0).split(rows))
    known = weight > 0
    if not known[train].any():
        return rows, test
    if labels is not None:
        for part in (np.ones(count, np.bool_), known):
            if set(labels[train][part[train]].tolist()) != set(labels[part].tolist()):
                return rows, test
    return train, test


def choose(dim: int, tried: Callable[[int], tuple[float, float]]) -> int:
    """`tried` gives (agreement, validation score) of a degree. The first that agrees well enough is taken.

    If none does, the one with the greatest mean of both: few rows are held out, so the score alone is noisy. Among
    equal ones the lower degree.
    """
    trials = tried_until(candidates(dim), tried, lambda trial: trial[0] >= AGREED)
    last = max(trials)
    if trials[last][0] >= AGREED:
        return last
    return max(trials, key=lambda degree: (0.5 * sum(trials[degree]), -degree))
