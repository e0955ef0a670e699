"""Signs and units of time, as only the report writes them; `berncert.foundation.rounding` rounds numbers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from berncert.foundation.rounding import ceil_digits, ceil_places, trimmed

SIGNS = {"inf": "∞", "nan": ""}
INDICES = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
"""Unit of time -> its seconds, largest first."""


def with_signs(number: str) -> str:
    """A rounded number as a page shows it: infinity as its sign, NaN as nothing."""
    return SIGNS.get(number, number)


def places_of(values: npt.ArrayLike) -> int:
    """The decimals, 2 to 8, that leave the median of the finite, positive values four digits; 3 if there are none."""
    numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    measured = numbers[np.isfinite(numbers) & (numbers > 0)]
    return min(max(3 - math.floor(math.log10(np.median(measured))), 2), 8) if len(measured) else 3


def sortable(value: float) -> str:
    """The number by which the page's script sorts: digits, "inf", or nothing for NaN."""
    return "" if math.isnan(value) else "inf" if math.isinf(value) else f"{value:.9g}"


def unit_for(seconds: float) -> str:
    """The largest unit in which the time is at least 1, else the smallest."""
    return next((unit for unit, size in UNITS.items() if seconds >= size), "µs")


def duration(seconds: float) -> str:
    """The time in three digits and a unit; long times in whole minutes and hours."""
    if seconds >= 120:
        minutes = round(seconds / 60)
        return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
    unit = unit_for(seconds)
    value = seconds / UNITS[unit]
    return f"{value:.{max(0, 2 - math.floor(math.log10(value))) if value >= 1 else 2}f} {unit}"


def nearest_rank(values: npt.NDArray[np.float64], share: float) -> float:
    """The least of the values that at least this share of them do not exceed."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def bound(value: float | str) -> str:
    """A Lipschitz bound, rounded up: seven decimals, or seven digits of a large one; records have infinity as text."""
    number = float(value)
    return with_signs(ceil_places(trimmed(number), 7) if number < 1000 else ceil_digits(trimmed(number), 7))


def norm_name(norm: float) -> str:
    """The symbol of the norm: a whole p is an index."""
    p = "∞" if math.isinf(norm) else f"{norm:g}".translate(INDICES if norm == int(norm) else {})
    return f"\N{SCRIPT SMALL L}{p}"
