"""How the report writes numbers. What is claimed is never rounded up."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from berncert.study.runs.records import Claim

CLAIMS = {
    Claim.PROVEN: "proven",
    Claim.PROBABLE: "probable",
    Claim.ESTIMATE: "estimate",
    Claim.ATTACK: "attack",
}
"""Claim -> one word for it."""
INDICES = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
"""Unit of time -> its seconds, largest first."""


def percent(count: int, of: int) -> str:
    """The share in percent, halves up: one decimal, two if there are more than 1,000.

    In whole numbers, as the page's script does it too: both write the same digits.
    """
    places = share_places(of)
    scaled = (2 * count * 100 * 10**places + of) // (2 * of)
    return f"{scaled // 10**places}.{scaled % 10**places:0{places}d}"


def share_places(of: int) -> int:
    """Decimals of a percentage of so many."""
    return 1 if of <= 1000 else 2


def lower(value: float, places: int) -> str:
    """Rounded down: what is proven of the number shown is proven."""
    return _rounded(value, places, ROUND_FLOOR)


def upper(value: float, places: int) -> str:
    """Rounded up: a limit."""
    return _rounded(value, places, ROUND_CEILING)


def _rounded(value: float, places: int, way: str) -> str:
    if not math.isfinite(value):
        return "" if math.isnan(value) else "∞"
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-places), rounding=way))


def places_for(typical: float) -> int:
    """Decimals that leave a number of this size four digits; from 2 to 8."""
    if not math.isfinite(typical) or typical <= 0:
        return 3
    return min(max(3 - math.floor(math.log10(typical)), 2), 8)


def sortable(value: float) -> str:
    """For the page's script: a number, "inf", or nothing."""
    return "" if math.isnan(value) else "inf" if math.isinf(value) else f"{value:.9g}"


def unit_for(seconds: float) -> str:
    """The largest unit in which the time is at least 1; the smallest if none."""
    return next((unit for unit, size in UNITS.items() if seconds >= size), "µs")


def duration(seconds: float) -> str:
    """Three digits and a unit; whole minutes and hours of long times."""
    if seconds >= 120:
        minutes = round(seconds / 60)
        return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
    unit = unit_for(seconds)
    value = seconds / UNITS[unit]
    return f"{value:.{max(0, 2 - math.floor(math.log10(value))) if value >= 1 else 2}f} {unit}"


def count(number: int) -> str:
    """With commas."""
    return f"{number:,}"


def bound(value: float) -> str:
    """A Lipschitz bound: seven decimals, or seven digits of a large one."""
    return f"{value:.7f}" if value < 1000 else f"{value:.6e}"


def norm_name(norm: float) -> str:
    """With the p of the norm behind, a whole one as an index."""
    p = "∞" if math.isinf(norm) else f"{norm:g}".translate(INDICES if norm == int(norm) else {})
    return f"\N{SCRIPT SMALL L}{p}"
