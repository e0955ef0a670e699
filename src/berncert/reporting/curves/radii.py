"""Radii at which curves are read: parsed from text, chosen when none are given, written as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import count

import numpy as np

from berncert.certification.status import Claim
from berncert.foundation.rounding import number
from berncert.reporting.curves.curve import Curve

MOST_RADII = 7
LEADING_DIGITS = (1, Fraction(5, 2), 5)
"""The leading digits of round steps."""
ABOUT_ZERO = 0.01


def radii_of(text: str) -> list[float]:
    """The radii in a text like `0,36/255,0.5`, in order and without repetitions."""
    return list(dict.fromkeys(_radius_of(part.strip()) for part in text.split(",")))


def _radius_of(text: str) -> float:
    try:
        radius = number(text)
    except ValueError:
        radius = math.nan
    if not 0 <= radius < math.inf:
        raise ValueError(f"expected radii >= 0, as decimals or fractions, like 0,36/255,0.5, got {text!r} for one")
    return abs(radius)  # no -0


def default_radii(curves: Sequence[Curve]) -> list[float]:
    """Round radii from 0 to where the last curve is about zero; if all runs are attacks, the radii that they tried."""
    certified = [curve for curve in curves if curve.claim is not Claim.ATTACK]
    if not certified:
        return sorted({0.0}.union(*(curve.tried.tolist() for curve in curves)))
    decided = {curve.run.decided_at for curve in certified}
    if None not in decided:
        return sorted({0.0, *(radius for radius in decided if radius is not None)})
    end = Fraction(max(curve.reach(ABOUT_ZERO) for curve in certified))
    if not end:
        return [0.0, 1.0] if any(np.isinf(curve.holding).any() for curve in certified) else [0.0]
    powers = (Fraction(10) ** power for power in count(math.floor(math.log10(end)) - 1))
    step = next(x for power in powers for digits in LEADING_DIGITS if end / (x := digits * power) < MOST_RADII)
    return [float(step * k) for k in range(math.floor(end / step) + 1)]


def radius_text(radius: float) -> str:
    """The radius as a decimal if that is exact with few digits, else as the fraction it is, else rounded."""
    if float(f"{radius:.4g}") == radius:
        return f"{radius:.4g}"
    for denominator in (3, 6, 7, 9, 255, *range(11, 100)):
        part = round(radius * denominator) if radius < 100 else 0
        if part and part / denominator == radius:
            return f"{part}/{denominator}"
    return f"{radius:.6g}"
