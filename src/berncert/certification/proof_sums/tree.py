"""The tree of boxes of one rival."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from berncert.certification.kernels.recorded_reason import FAR, POSITIVE, ROOM, Claim
from berncert.certification.proof_sums.boxes import Look, SumBox, halves, length
from berncert.certification.proof_sums.relaxation import Relaxation
from berncert.certification.proof_sums.terms import Group, restrictions
from berncert.foundation.arrays import Floats

DEEPEST_BOX = 100
MOST_BOXES = 500
"""For each rival of a row."""


class SumTree:
    """The tree of one rival: of the margin slope . x + constant + the terms of the groups on the unit cube."""

    def __init__(self, slope: Floats, constant: float, groups: Sequence[Group], claim: Claim, near: Floats) -> None:
        self.slope, self.constant, self.claim, self.near = slope, constant, claim, near
        self.groups = groups

    def write(self, most: int) -> tuple[list[int], list[float]] | None:
        """Tags and hints in preorder; None where no proof was found with so many boxes."""
        tags: list[int] = []
        hints: list[float] = []
        boxes = [self._first()]
        for _ in range(most):
            if not boxes:
                return tags, hints
            box = boxes.pop()
            found = self._look(box)
            if found.tag < 0:
                if box.depth >= DEEPEST_BOX or not 0 <= found.axis < POSITIVE:
                    return None
                tags.append(found.axis)
                boxes.extend(reversed(halves(box, found)))
            else:
                tags += [found.tag, *found.tags]
                hints += found.hints
        return None

    def _first(self) -> SumBox:
        low, high = self.claim.low, self.claim.high
        groups = []
        for group in self.groups:
            c = group.coefficients
            for place in range(group.axes.shape[1]):
                n = c.shape[place + 1] - 1
                axes = group.axes[:, place]
                cut = restrictions(n, low[axes], high[axes])
                c = np.moveaxis(np.einsum("tab,tb...->ta...", cut, np.moveaxis(c, place + 1, 1)), 1, place + 1)
            groups.append(group._replace(coefficients=c))
        return SumBox(low, high, groups, 0.0, np.clip(self.near, low, high))

    def _look(self, box: SumBox) -> Look:
        claim = self.claim
        half = 0.5 * (box.high - box.low)
        middle = 0.5 * (box.low + box.high)
        steep = self.slope * half
        constant = self.constant + float(self.slope @ middle) - claim.floor
        size = 1.0 + abs(constant) + float(np.abs(steep).sum())
        least = constant - float(np.abs(steep).sum())
        least += sum(float(g.coefficients.reshape(len(g.places), -1).min(axis=1).sum()) for g in box.groups)
        if least > ROOM * size:
            return Look(POSITIVE, [], [])
        c, h = claim.weight * (middle - claim.x0), claim.weight * half
        t = np.maximum(0.0, np.abs(c) - h)
        if claim.radius < math.inf and length(t, claim.norm) > claim.radius * (1 + ROOM):
            return Look(FAR, [], [])
        return Relaxation(claim, box, c, h, steep, constant).look()
