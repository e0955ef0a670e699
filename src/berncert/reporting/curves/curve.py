"""Certified accuracy over radii as a curve: for each radius the share of images that are correct and hold there.

A curve never rises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike

import numpy as np
import numpy.typing as npt

from berncert.foundation.arrays import Floats
from berncert.certification.status import Claim
from berncert.foundation.rounding import norm_name
from berncert.runs.lookup import named_runs
from berncert.runs.records import Run


@dataclass(frozen=True, eq=False)
class Curve:
    """A run, and its label in tables and pictures."""

    label: str
    run: Run
    """The rows that are counted."""
    whole: Run | None = None
    """The run with all of its rows, if only some of them are counted."""

    @property
    def whole_run(self) -> Run:
        """The run with all of its rows."""
        return self.whole or self.run

    @property
    def claim(self) -> Claim:
        """What the radii say."""
        return self.run.claim

    @property
    def data(self) -> str:
        """The data set and its part, e.g. "mnist test"; empty if the run does not say."""
        return self.run.data

    @property
    def expected(self) -> int:
        """How many images the run has when it is complete."""
        return int(self.run.about["data"]["images"]) if self.run.about else len(self.whole_run)

    @property
    def is_unfinished(self) -> bool:
        """Whether rows that should be counted are still missing."""
        return self.whole is None and not self.run.complete

    @property
    def may_abstain(self) -> bool:
        """Whether images may be left without a class: in randomized smoothing, or in a table where some are."""
        return self.claim is Claim.PROBABLE or bool(self.run.abstained.any())

    @property
    def training_images(self) -> str:
        """What the run says of training images among its own; empty if there are none."""
        return str(self.run.about["data"].get("seen_in_training") or "") if self.run.about else ""

    @cached_property
    def holding(self) -> Floats:
        """The radii of the correct images, ascending."""
        radius = self.run.radius[self.run.correct]
        held: Floats = np.sort(radius[radius >= 0])  # this leaves out NaN too
        return held

    @property
    def tried(self) -> Floats:
        """The radii that an attack tried, ascending; empty for other runs."""
        listed = self.run.about["settings"].get("radii") if self.claim is Claim.ATTACK else ()
        radii = self.holding if listed is None else np.asarray(listed, dtype=np.float64)
        tried: Floats = np.unique(radii[np.isfinite(radii)])
        return tried

    def reach(self, share: float = 0.0) -> float:
        """The largest finite radius at which more than that share of the images hold; 0 if there is none."""
        finite = self.holding[np.isfinite(self.holding)]
        spare = math.floor(share * len(self.run)) - (len(self.holding) - len(finite))
        return float(max(finite[: max(0, len(finite) - max(0, spare))], default=0.0))

    def corners(self, end: float) -> tuple[Floats, Floats]:
        """The exact curve from radius 0 to `end`, as radii and shares of the corners of a line.

        Radii never fall, shares never rise. At the radius of a drop a certificate still holds: the share is that of the
        upper corner. An attack has succeeded there: it is that of the lower one.
        """
        first = float(self.run.standing(0.0)[0])
        drops = np.unique(self.holding[self.holding <= end])
        if self.claim is Claim.ATTACK:
            drops = drops[drops > 0]
        total, correct = len(self.run), len(self.holding)
        before = (correct - np.searchsorted(self.holding, drops, "left")) / total
        after = (correct - np.searchsorted(self.holding, drops, "right")) / total
        shares = np.concatenate([[first], np.column_stack([before, after]).ravel()])
        radii = np.concatenate([[0.0], np.repeat(drops, 2), [end]])
        return radii, np.append(shares, shares[-1])


def curves_of(names: Iterable[str], data_dir: str | PathLike[str] | None = None) -> list[Curve]:
    """The curves of runs that are named `[LABEL=]RUN`: folders, tables, published rows (see `named_runs`)."""
    return [Curve(label, run) for label, run in named_runs(names, data_dir)]


def counts_at(run: Run, radii: npt.ArrayLike) -> list[int]:
    """How many images are correct and hold at each radius: `Run.standing` in whole numbers."""
    counts: list[int] = np.rint(run.standing(radii) * len(run)).astype(int).tolist()
    return counts


def common_norm(curves: Sequence[Curve]) -> float:
    """The norm of all radii; an error if there are several, as their radii cannot be compared."""
    if not curves:
        raise ValueError("expected at least one run, got none")
    norms = {curve.run.norm for curve in curves}
    if len(norms) > 1:
        listed = ", ".join(f"{norm_name(curve.run.norm)} in {curve.label}" for curve in curves)
        raise ValueError(
            f"expected runs in one norm, as radii of different norms cannot be compared, got {listed}; make one "
            "picture or table for each norm"
        )
    return norms.pop()


def share_name(curves: Sequence[Curve]) -> str:
    """What the shares of these curves are called: certified accuracy only if all are proven or probable."""
    certified = all(curve.claim in (Claim.PROVEN, Claim.PROBABLE) for curve in curves)
    return "certified accuracy" if certified else "accuracy"
