"""What a result claims, and how a row of it may end: the words of tables, pictures, records and reports."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a certificate came to its end; each value says what that means.

    Example:
        >>> import torch, berncert
        >>> constant = berncert.SmoothedHead(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
        >>> status = berncert.certify(constant, [[0.5]]).status[0]
        >>> status.name, status is berncert.Status.WHOLE_CUBE
        ('WHOLE_CUBE', True)
        >>> print(berncert.Status.PROVEN.value)
        the radius is within the tolerance of the largest possible; of an image: that of its features is
    """

    PROVEN = "the radius is within the tolerance of the largest possible; of an image: that of its features is"
    WHOLE_CUBE = (
        "the class holds in the whole cube, so the classifier is constant; or in all of the box that was asked about"
    )
    TIE = "the two best classes cannot be distinguished in float64: no radius"
    BUDGET = "box budget spent; the radius is valid but may not be the largest"
    TIME = "time spent; the radius is valid but may not be the largest"
    EXTRACTION = "the rounding of the extractor uses up the radius: no radius; extract in float64"
    LEAVES_CUBE = (
        "beyond the radius features may leave the cube, where nothing is proven; end the extractor in UnitCube"
    )
    OVERFLOW = "beyond the radius numbers may overflow in the extractor; extract in float64, or scale the network"
    PROJECTED = "by a bound on the projection of the columns; the radius is valid but may not be the largest"
    LOCAL = "by bounds that hold near this input; the radius is valid but may not be the largest"
    ROUNDING = "float64 cannot separate the classes near the boundary; the radius is valid but may not be the largest"
    HOLDS = "asked at one radius: nothing closer changes the class, proven"
    FALLS = "asked at one radius: the witness is closer, and is given another class"
    UNKNOWN = "asked at one radius: neither a proof nor a counterexample"


def constant_class(predicted: Iterable[Any], radius: Iterable[float]) -> Any:
    """The class that all rows have, if all radii are infinite: the classifier is constant where it was certified."""
    classes = set(predicted)
    return classes.pop() if len(classes) == 1 and all(r == math.inf for r in radius) else None


class Claim(StrEnum):
    """What the radii of a run say; each value says what that means."""

    PROVEN = "no image within the radius changes its class"
    PROBABLE = "no image within the radius changes its class, with a stated probability, each row by itself"
    ESTIMATE = "the radius of the paper's root finder: nothing is proven"
    UNKNOWN = "a table without a record: it does not say what its radii claim"
    ATTACK = "an image at this distance that is given another class was found: no proof can go beyond"

    @property
    def word(self) -> str:
        """What it is called, in tables, pictures, reports and JSON."""
        return "unknown claim" if self is Claim.UNKNOWN else self.name.lower()


CLAIMS = {"certify": (Claim.PROVEN, Claim.PROBABLE, Claim.ESTIMATE), "attack": (Claim.ATTACK,)}
"""Kind of run -> what it may claim."""
STATUSES: dict[Claim, tuple[str, ...]] = {
    Claim.PROVEN: tuple(Status.__members__),
    Claim.PROBABLE: ("PROBABLE", "ABSTAINED"),
    Claim.ESTIMATE: ("ESTIMATE",),
    Claim.UNKNOWN: (),
    Claim.ATTACK: ("WRONG", "BROKEN", "STANDS"),
}
"""Claim -> how its rows may end."""
