"""The columns that matter most to a model: those whose values, exchanged between rows, change its outputs most."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from berncert.foundation.arrays import Floats

ROWS = 500
REPEATS = 4
"""How often the values of a column are exchanged between these rows."""


def importance(outputs: Callable[[Floats], Floats], x: Floats, columns: Sequence[int]) -> Floats:
    """(len(columns),): the mean square by which outputs (N, K) change as a column's values are permuted."""
    rng = np.random.default_rng(0)
    rows = x[np.linspace(0, len(x) - 1, min(ROWS, len(x))).astype(int)]
    before, found = outputs(rows), np.zeros(len(columns))
    for place, column in enumerate(columns):
        for _ in range(REPEATS):
            moved = rows.copy()
            moved[:, column] = rows[rng.permutation(len(rows)), column]
            found[place] += float(((outputs(moved) - before) ** 2).mean()) / REPEATS
    return found


def most_important(
    outputs: Callable[[Floats], Floats], x: Floats, columns: Sequence[int], count: int, keep: Sequence[int]
) -> list[int]:
    """So many of the columns, in their order: those to keep, and the most important of the others."""
    kept = [j for j in columns if j in keep]
    others = [j for j in columns if j not in keep]
    order = np.argsort(-importance(outputs, x, others), kind="stable")[: max(0, count - len(kept))]
    return sorted([*kept, *(others[int(place)] for place in order)])
