"""Boxes, and what was found about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from berncert.certification.proof_sums.terms import Group, split
from berncert.foundation.arrays import Floats


@dataclass(frozen=True)
class SumBox:
    """A box, and the margin on it."""

    low: Floats
    high: Floats
    groups: list[Group]
    price: float
    point: Floats
    """Where a counterexample is likely."""
    depth: int = 0


class Look(NamedTuple):
    """What was found about a box: a tag, the tags of terms, hints; or, with the tag -1, the axis to halve."""

    tag: int
    tags: list[int]
    hints: list[float]
    axis: int = -1
    price: float = 0.0
    point: Floats | None = None


def halves(box: SumBox, found: Look) -> list[SumBox]:
    """The lower and the upper half along the axis that was found; what was found helps there, too."""
    axis, middle = found.axis, 0.5 * (box.low[found.axis] + box.high[found.axis])
    parts: list[list[Group]] = [[], []]
    for group in box.groups:
        has = (group.axes == axis).any(axis=1)
        pair = [group.coefficients, group.coefficients]
        if has.any():
            place = (group.axes[has] == axis).argmax(axis=1)
            pair = [group.coefficients.copy(), group.coefficients.copy()]
            for out, half in zip(pair, split(group.coefficients[has], place), strict=True):
                out[has] = half
        for side, c in enumerate(pair):
            parts[side].append(group._replace(coefficients=c))
    ends = []
    for side, groups in enumerate(parts):
        low, high = box.low.copy(), box.high.copy()
        (high if side == 0 else low)[axis] = middle
        assert found.point is not None
        point = np.clip(found.point, low, high)
        ends.append(
            replace(box, low=low, high=high, groups=groups, price=found.price, point=point, depth=box.depth + 1)
        )
    return ends


def length(t: Floats, p: float) -> float:
    """The p-norm."""
    return float(np.linalg.norm(t, ord=p))
