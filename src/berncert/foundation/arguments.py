"""Numbers that users pass in: the p of a norm, a count, a tolerance. Anything else is an error that says what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

LARGEST_COUNT = 2**62


def checked_norm(norm: Any) -> float:
    """The p of a p-norm, 1 <= p <= inf; anything else is a ValueError."""
    if not is_real(norm) or not norm >= 1:
        named = isinstance(norm, str) and "inf" in norm.lower()
        hint = "write inf, in Python float('inf')" if named else "pass e.g. 1, 2 or inf"
        raise ValueError(f"expected a norm p with 1 <= p <= inf, got {norm!r}; {hint}")
    return as_float(norm)


def dual_norm(norm: float) -> float:
    """The q with 1/p + 1/q = 1: the norm of slopes where p is that of steps."""
    if norm == 1:
        return math.inf
    return 1.0 if norm == math.inf else norm / (norm - 1)


SELECTED = 5
"""Columns that dim="select" takes."""


def checked_count(name: str, value: Any) -> int:
    """A whole number >= 1; anything else is a ValueError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= LARGEST_COUNT:
        raise ValueError(f"expected a whole number {name} >= 1, got {value!r}; pass an int from 1 to 2^62")
    return int(value)


def checked_dim(value: Any) -> tuple[int | None, bool]:
    """(axes at most, or None for as many as columns; whether columns are selected instead of projected)."""
    if isinstance(value, str):
        word, colon, number = value.partition(":")
        if word != "select" or bool(colon) != bool(number) or (number and not number.isdecimal()):
            raise ValueError(f"expected dim as a whole number, None, 'select' or e.g. 'select:8', got {value!r}")
        return checked_count("dim", int(number)) if number else SELECTED, True
    return None if value is None else checked_count("dim", value), False


def checked_index(name: str, value: Any) -> int:
    """A whole number >= 0; anything else is a ValueError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 0:
        raise ValueError(f"expected a whole number {name} >= 0, got {value!r}; pass an int, 0 or more")
    return int(value)


def checked_tolerance(tolerance: Any) -> float:
    """A relative gap in [0, 1); anything else is a ValueError."""
    if not is_real(tolerance) or not 0 <= tolerance < 1:
        raise ValueError(
            f"expected a tolerance in [0, 1), got {tolerance!r}; it is the relative gap between radius and upper at "
            "which a proof may stop, e.g. 1e-3"
        )
    return float(tolerance)


def guess(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown word: "; did you mean X?" with the most similar known one, or nothing."""
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def is_real(value: Any) -> bool:
    """Whether it is a number, and not a truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def as_float(value: Any) -> float:
    """As float64; a whole number too large for that is infinite for our purposes."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")
