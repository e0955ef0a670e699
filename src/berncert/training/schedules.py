"""What changes while training goes on, as pure functions of the share that is done: there is no state to save."""

from __future__ import annotations

import math
from collections.abc import Callable

FIRST, LAST = 1 / 25, 1e-4  # of the greatest learning rate: where onecycle starts and ends


def onecycle(done: float, warmup: float) -> float:
    """Up along a half cosine, then down along another."""
    if done < warmup:
        return _between(FIRST, 1.0, done / warmup)
    return _between(1.0, LAST, (done - warmup) / (1 - warmup))


def cosine(done: float, warmup: float) -> float:
    """Down along a half cosine."""
    return _between(1.0, 0.0, done)


def constant(done: float, warmup: float) -> float:
    """Always the same."""
    return 1.0


SCHEDULES: dict[str, Callable[[float, float], float]] = {"onecycle": onecycle, "cosine": cosine, "constant": constant}
"""(share done, share of the warm-up) -> factor of the learning rate."""


def grown(done: float, warmup: float) -> float:
    """From 0 to 1 in the warm-up, then 1: of the radius."""
    return min(1.0, done / warmup) if warmup > 0 else 1.0


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(1.0, share))) / 2
