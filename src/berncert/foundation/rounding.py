"""How numbers are read and written. What is claimed is never rounded up, what limits is never rounded down.

A float is taken as the shortest decimal that names it, as records write it.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import SupportsFloat


def floor_digits(value: SupportsFloat, digits: int) -> str:
    """What is proven, in so many digits: no more than the value."""
    return _digits(value, digits, ROUND_FLOOR)


def ceil_digits(value: SupportsFloat, digits: int) -> str:
    """An upper limit, in so many digits: no less than the value."""
    return _digits(value, digits, ROUND_CEILING)


def trimmed(value: SupportsFloat) -> float:
    """Without what is beyond twelve digits: a bound of 1.0000000000000002 is told as 1, not as 1.00001."""
    return float(f"{float(value):.12g}")


def floor_places(value: SupportsFloat, places: int) -> str:
    """What is proven, with so many decimals: no more than the value."""
    return _places(value, places, ROUND_FLOOR)


def ceil_places(value: SupportsFloat, places: int) -> str:
    """An upper limit, with so many decimals: no less than the value."""
    return _places(value, places, ROUND_CEILING)


def percent(count: int, of: int, places: int) -> str:
    """A share in percent, to the nearest, halves up; in whole numbers, so that everyone writes the same digits."""
    scaled = (2 * count * 100 * 10**places + of) // (2 * of)
    return f"{scaled // 10**places}.{scaled % 10**places:0{places}d}"


def percent_places(of: int) -> int:
    """Decimals of a percentage of so many."""
    return 1 if of <= 1000 else 2


def norm_name(norm: float) -> str:
    """In plain text: l2, l1.5, linf."""
    return f"l{norm:g}"


def number(text: str) -> float:
    """A decimal or a fraction: 0.25, 36/255; a ValueError if it is none."""
    over, slash, under = text.partition("/")
    try:
        return float(over) / float(under) if slash else float(over)
    except ZeroDivisionError:
        raise ValueError(f"expected a number, got {text!r}") from None


def _digits(value: SupportsFloat, digits: int, way: str) -> str:
    rounded = Context(prec=digits, rounding=way).create_decimal(repr(float(value)))
    return f"{float(rounded):.{digits}g}"


def _places(value: SupportsFloat, places: int, way: str) -> str:
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    return str(Decimal(repr(number)).quantize(Decimal(1).scaleb(-places), rounding=way))
