"""The choice of a degree: the least at which the smoothed model agrees with its base, else a compromise."""

from __future__ import annotations

from collections.abc import Callable

CANDIDATES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
LARGEST_GRID = 70_000
"""Points at which a base model is asked, at most, when a degree is chosen: about a second for a forest."""
AGREED = 0.99


def candidates(dim: int) -> list[int]:
    """The degrees whose grid is not too large, the least one always."""
    return [n for n in CANDIDATES if (n + 1) ** dim <= LARGEST_GRID] or [1]


def choose(dim: int, tried: Callable[[int], tuple[float, float]]) -> int:
    """`tried` gives (agreement, validation score) of a degree. The first that agrees well enough is taken.

    If none does, the one with the greatest mean of both: few rows are held out, so the score alone is noisy. Among
    equal ones the lower degree.
    """
    best = (-float("inf"), 0)
    for degree in candidates(dim):
        agreement, score = tried(degree)
        if agreement >= AGREED:
            return degree
        best = max(best, (0.5 * (score + agreement), -degree))
    return -best[1]
