"""Proven ranges of outputs around rows of a table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berncert.certification.bounds import Ranges, ranges
from berncert.certification.box_search import Questions
from berncert.certification.methods import Exact
from berncert.estimators.constraints import Admissible
from berncert.estimators.reduction import UP, Reduction
from berncert.foundation.arguments import checked_norm, is_real
from berncert.foundation.arrays import Floats
from berncert.polynomial import PolynomialHead


def row_ranges(
    head: PolynomialHead,
    reduction: Reduction,
    allowed: Admissible,
    x: Floats,
    radius: float,
    norm: float,
    **options: Any,
) -> Ranges:
    """Ranges of all outputs within the radius of each row; of several routes, the tightest of each end."""
    if not is_real(radius) or not 0 <= radius < math.inf:
        raise ValueError(f"expected a radius >= 0, finite, got {radius!r}")
    execution = {key: options.pop(key) for key in ("threads", "progress") if key in options}
    best: Ranges | None = None
    for route in reduction.routes(checked_norm(norm)):
        q, weight, _ = route
        target = reduction.feature_radius(x, float(radius), route)
        origin = reduction.features(x)
        reach = target[:, None] / weight * UP + 2.0**-50  # the sums below round, too
        low, high = np.maximum(0.0, origin - reach), np.minimum(1.0, origin + reach)
        for axis, column in enumerate(reduction.kept):
            sides = (allowed.low[:, column], allowed.high[:, column])
            lo, hi = (np.clip((v - reduction.low[axis]) / reduction.width[axis], 0, 1) for v in sides)
            low[:, axis], high[:, axis] = np.maximum(low[:, axis], lo), np.minimum(high[:, axis], hi)
        high = np.maximum(low, high)
        around = Questions.plain(origin, np.where(math.isinf(q), math.inf, target))
        around = around._replace(low=low, high=high, weight=np.tile(weight, (len(x), 1)))
        found = ranges(head, around, Exact(norm=q, **options), **execution)
        best = found if best is None else _tighter(best, found)
    assert best is not None
    return best


def _tighter(a: Ranges, b: Ranges) -> Ranges:
    """Both hold, so the higher lower end and the lower upper end do."""
    low, high = b.lower > a.lower, b.upper < a.upper
    return Ranges(
        np.where(low, b.lower, a.lower),
        np.where(high, b.upper, a.upper),
        np.where(low[..., None], b.argmin, a.argmin),
        np.where(high[..., None], b.argmax, a.argmax),
        np.where(low, b.least_found, a.least_found),
        np.where(high, b.greatest_found, a.greatest_found),
        np.where(low & high, b.status, a.status),
        a.boxes + b.boxes,
    )
