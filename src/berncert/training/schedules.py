"""Schedules as pure functions of the share of the training that is done, so that they have no state to save."""

from __future__ import annotations

import math
from collections.abc import Callable

FIRST, LAST = 1 / 25, 1e-4  # the start and the end of onecycle, as shares of the largest learning rate


def onecycle(done: float, warmup: float) -> float:
    """A factor that rises along a half cosine during the warm-up, then falls along another."""
    if done < warmup:
        return _between(FIRST, 1.0, done / warmup)
    return _between(1.0, LAST, (done - warmup) / (1 - warmup))


def cosine(done: float, warmup: float) -> float:
    """A factor that falls along a half cosine."""
    return _between(1.0, 0.0, done)


def constant(done: float, warmup: float) -> float:
    """A factor that is always 1."""
    return 1.0


SCHEDULES: dict[str, Callable[[float, float], float]] = {"onecycle": onecycle, "cosine": cosine, "constant": constant}
"""The names of schedules -> (share done, share of the warm-up) -> factor of the learning rate."""


def radius_factor(done: float, warmup: float) -> float:
    """A factor of the radius that grows from 0 to 1 during the warm-up and stays there."""
    return min(1.0, done / warmup) if warmup > 0 else 1.0


def rising_norm(done: float, start: float, end: float, wait: float, exact: float) -> float:
    """The p of distance layers: `start` while it waits, then growing geometrically to `end`, at last infinity."""
    share = (done - wait) / max(1 - wait - exact, 1e-9)
    return math.inf if share >= 1 else start * (end / start) ** max(0.0, share)


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(1.0, share))) / 2
