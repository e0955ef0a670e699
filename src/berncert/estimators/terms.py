"""Whether a model is a sum of terms in one or two columns each: found by asking it, not by its type.

Blocks of columns are exchanged between two rows. Where a score is a sum of terms in one column each, its mixed second
differences are 0; with terms in two columns, the third ones. Around one row, the anchor, the terms are then differences
of scores: with column j changed, main effects; with j and k, less both main effects, pairs. That these terms sum to the
model's own score is checked on rows of the table, and on mixtures of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from berncert.foundation.arrays import Floats

Score = Callable[[Floats], Floats]
"""Rows (N, m) -> scores (N, K)."""
EQUAL, ROUNDED = 1e-9, 1e-13
"""Two scores are equal if they differ by at most so much of the range of all, or of their size."""
EXCHANGES = 128
"""Pairs of rows between which blocks of columns are exchanged."""
PROBES = 64
"""Rows at which each pair of columns is looked at."""
CHECKED = 1000
"""Rows on which the sum is compared with the model, at most, and half as many mixtures of rows."""
SUSPECTS = 16
"""Rows where the sum fails at which pairs are looked for once more."""
AT_ONCE = 2**15
"""Rows of which the model is asked at once."""


@dataclass(frozen=True)
class Sum:
    """A score as the sum of its value at the anchor, a main effect of each column, and the effects of some pairs."""

    score: Score
    anchor: Floats
    """(m,): a row of the table."""
    value: Floats
    """(K,): the score there."""
    columns: tuple[int, ...]
    """The columns that vary."""
    pairs: tuple[tuple[int, int], ...]
    tolerance: float
    """What counts as nothing."""

    def effects(self, asked: Iterable[tuple[tuple[int, ...], Floats]]) -> Iterator[Floats]:
        """Of columns with values (P, their number): the effect (P, K) of these columns, less those of fewer."""
        wanted = [(columns, np.asarray(values).reshape(-1, len(columns))) for columns, values in asked]
        parts = [
            (part, values[:, [columns.index(j) for j in part]])
            for columns, values in wanted
            for size in range(1, len(columns) + 1)
            for part in combinations(columns, size)
        ]
        changes = self._changes(parts)
        for columns, _ in wanted:
            found = [next(changes) for _ in range(2 ** len(columns) - 1)]
            yield found[0] if len(columns) == 1 else found[2] - found[0] - found[1]

    def _changes(self, asked: Sequence[tuple[tuple[int, ...], Floats]]) -> Iterator[Floats]:
        """(P, K) each: how far the score moves as columns of the anchor take these values."""
        batch: list[Floats] = []
        for place, (columns, values) in enumerate(asked):
            rows = np.tile(self.anchor, (len(values), 1))
            rows[:, columns] = values
            batch.append(rows)
            if sum(map(len, batch)) >= AT_ONCE or place == len(asked) - 1:
                scores = asked_in_parts(self.score, np.concatenate(batch)) - self.value
                yield from np.split(scores, np.cumsum([len(rows) for rows in batch])[:-1])
                batch = []


def find_sum(score: Score, x: Floats, columns: Sequence[int]) -> Sum | None:
    """The terms of a score in these columns, those that vary in x; None if it is no such sum."""
    rng = np.random.default_rng(0)
    anchor = _central_row(x, columns)
    mixed = np.stack([x[rng.permutation(len(x)), j] for j in range(x.shape[1])], axis=1)[: CHECKED // 2]
    rows = np.concatenate([x[np.linspace(0, len(x) - 1, min(CHECKED, len(x))).astype(int)], mixed])
    scores, value = asked_in_parts(score, rows), score(anchor[None])[0]
    if not np.isfinite(scores).all():
        return None
    tolerance = EQUAL * float(np.ptp(scores, axis=0).max()) + ROUNDED * float(np.abs(scores).max())
    order = _order(score, x, rng, tolerance)
    if order > 2:
        return None
    found = Sum(score, anchor, value, tuple(columns), (), tolerance)
    if order == 2:
        found = _with_pairs(found, np.concatenate([rows[: PROBES // 2], mixed[: PROBES // 2]]))
    while True:
        wrong = np.abs(_total(found, rows) - scores).max(axis=1) > 4 * tolerance
        if not wrong.any():
            return found
        more = _with_pairs(found, rows[np.flatnonzero(wrong)[:SUSPECTS]])
        if more.pairs == found.pairs:
            return None
        found = more


def asked_in_parts(score: Score, rows: Floats) -> Floats:
    """The scores of many rows."""
    return np.concatenate([score(rows[first : first + AT_ONCE]) for first in range(0, len(rows), AT_ONCE)])


def _central_row(x: Floats, columns: Sequence[int]) -> Floats:
    """The row nearest to the median in each column, in units of their ranges."""
    part = x[:, columns]
    width = np.ptp(part, axis=0)
    steps = (part - np.median(part, axis=0)) / np.where(width > 0, width, 1.0)
    row: Floats = x[int((steps**2).sum(axis=1).argmin())].copy()
    return row


def _order(score: Score, x: Floats, rng: np.random.Generator, tolerance: float) -> int:
    """The least number of columns that terms of the score may have, as far as differences show; 3 for more than 2."""
    one, other = (x[rng.integers(len(x), size=EXCHANGES)] for _ in range(2))
    for order in (1, 2):
        block = rng.integers(order + 1, size=one.shape)
        difference = np.zeros(())
        for chosen in product((False, True), repeat=order + 1):
            rows = np.where(np.array(chosen)[block], other, one)
            difference = difference + (-1.0) ** sum(chosen) * score(rows)
        if np.abs(difference).max() <= 4 * tolerance:
            return order
    return 3


def _with_pairs(found: Sum, rows: Floats) -> Sum:
    """The sum with the pairs, too, that have an effect at one of these rows."""
    known = set(found.pairs)
    others = [pair for pair in combinations(found.columns, 2) if pair not in known]
    step = max(1, AT_ONCE // (3 * len(rows)))
    for first in range(0, len(others), step):
        part = others[first : first + step]
        effects = found.effects((pair, rows[:, pair]) for pair in part)
        known.update(pair for pair, e in zip(part, effects, strict=True) if np.abs(e).max() > found.tolerance)
    return Sum(found.score, found.anchor, found.value, found.columns, tuple(sorted(known)), found.tolerance)


def _total(found: Sum, rows: Floats) -> Floats:
    """(N, K): the sum of all terms."""
    terms = [*((j,) for j in found.columns), *found.pairs]
    total = np.tile(found.value, (len(rows), 1))
    for effect in found.effects((term, rows[:, term]) for term in terms):
        total += effect
    return total
