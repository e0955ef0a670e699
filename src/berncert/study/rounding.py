"""Numbers told in a few digits, on the safe side."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_UP, Context
from typing import SupportsFloat


def down(value: SupportsFloat, digits: int) -> str:
    """What is proven: no more than the value."""
    return _rounded(value, digits, ROUND_DOWN)


def up(value: SupportsFloat, digits: int) -> str:
    """An upper limit: no less than the value, which is not below 0."""
    return _rounded(value, digits, ROUND_UP)


def _rounded(value: SupportsFloat, digits: int, way: str) -> str:
    exact = Context(prec=digits, rounding=way).create_decimal_from_float(float(value))
    return f"{float(exact):.{digits}g}"
