"""Certified accuracy over radii: of runs, and of what others published.

A curve tells for each radius the share of images that are right and hold there. It never rises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import count, product
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from berncert.floor.arrays import Floats
from berncert.floor.claims import Claim
from berncert.floor.rounding import floor_digits, norm_name, number, percent, percent_places
from berncert.reporting.curves.matching import differences
from berncert.reporting.tables import TextTable
from berncert.runs.lookup import named_runs
from berncert.runs.records import Run

MOST_RADII = 7
LEADS = (1, Fraction(5, 2), 5)
"""The first digits of round steps."""
ABOUT_ZERO = 0.01


@dataclass(frozen=True, eq=False)
class Curve:
    """A run, and what it is called in tables and pictures."""

    label: str
    run: Run
    """The rows that are counted."""
    whole: Run | None = None
    """The run with all of its rows, if those that are counted are not all."""

    @property
    def whole_run(self) -> Run:
        """With all rows."""
        return self.whole or self.run

    @property
    def claim(self) -> Claim:
        """What its radii say."""
        return self.run.claim

    @property
    def data(self) -> str:
        """The data set and its part, e.g. "mnist test"; empty if nothing says so."""
        return self.run.data

    @property
    def expected(self) -> int:
        """How many images the run has when it is complete."""
        return int(self.run.about["data"]["images"]) if self.run.about else len(self.whole_run)

    @cached_property
    def holding(self) -> Floats:
        """The radii of the images that are right, ascending."""
        radius = self.run.radius[self.run.correct]
        held: Floats = np.sort(radius[radius >= 0])  # nor is nan
        return held

    @property
    def tried(self) -> Floats:
        """The radii that an attack tried, ascending; none of other runs."""
        told = self.run.about["settings"].get("radii") if self.claim is Claim.ATTACK else ()
        radii = self.holding if told is None else np.asarray(told, dtype=np.float64)
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
        total, right = len(self.run), len(self.holding)
        before = (right - np.searchsorted(self.holding, drops, "left")) / total
        after = (right - np.searchsorted(self.holding, drops, "right")) / total
        shares = np.concatenate([[first], np.column_stack([before, after]).ravel()])
        radii = np.concatenate([[0.0], np.repeat(drops, 2), [end]])
        return radii, np.append(shares, shares[-1])


def curves_of(words: Iterable[str], data_dir: str | PathLike[str] | None = None) -> list[Curve]:
    """The curves of `[LABEL=]RUN` words, as `named_runs` finds them: folders, tables, published rows."""
    return [Curve(label, run) for label, run in named_runs(words, data_dir)]


def radii_of(text: str) -> list[float]:
    """The radii in a text like `0,36/255,0.5`, each once, in its order."""
    return list(dict.fromkeys(_radius_of(word.strip()) for word in text.split(",")))


def _radius_of(word: str) -> float:
    try:
        radius = number(word)
    except ValueError:
        radius = math.nan
    if not 0 <= radius < math.inf:
        raise ValueError(f"expected radii >= 0, as decimals or fractions, like 0,36/255,0.5, got {word!r} for one")
    return abs(radius)  # no -0


def counts_at(run: Run, radii: npt.ArrayLike) -> list[int]:
    """How many images are right and hold at each radius: `Run.standing` in whole numbers."""
    counts: list[int] = np.rint(run.standing(radii) * len(run)).astype(int).tolist()
    return counts


def default_radii(curves: Sequence[Curve]) -> list[float]:
    """Round radii from 0 to where the last curve is about zero; of attacks alone, those that were tried."""
    certified = [curve for curve in curves if curve.claim is not Claim.ATTACK]
    if not certified:
        return sorted({0.0}.union(*(curve.tried.tolist() for curve in curves)))
    end = Fraction(max(curve.reach(ABOUT_ZERO) for curve in certified))
    if not end:
        return [0.0, 1.0] if any(np.isinf(curve.holding).any() for curve in certified) else [0.0]
    powers = (Fraction(10) ** power for power in count(math.floor(math.log10(end)) - 1))
    step = next(x for power in powers for lead in LEADS if end / (x := lead * power) < MOST_RADII)
    return [float(step * k) for k in range(math.floor(end / step) + 1)]


def common_norm(curves: Sequence[Curve]) -> float:
    """The norm of all radii; radii of different norms cannot be compared, and are refused."""
    if not curves:
        raise ValueError("expected at least one run, got none")
    norms = {curve.run.norm for curve in curves}
    if len(norms) > 1:
        told = ", ".join(f"{norm_name(curve.run.norm)} in {curve.label}" for curve in curves)
        raise ValueError(
            f"expected runs in one norm, as radii of different norms cannot be compared, got {told}; make one picture "
            "or table for each norm"
        )
    return norms.pop()


def radius_text(radius: float) -> str:
    """Short: as a decimal if that is exact with few digits, else as the fraction it is, else rounded."""
    if float(f"{radius:.4g}") == radius:
        return f"{radius:.4g}"
    for denominator in (3, 6, 7, 9, 255, *range(11, 100)):
        part = round(radius * denominator) if radius < 100 else 0
        if part and part / denominator == radius:
            return f"{part}/{denominator}"
    return f"{radius:.6g}"


def subject(curves: Sequence[Curve]) -> str:
    """What the shares of these curves are: certified only if all are proven or hold with a probability."""
    certified = all(curve.claim in (Claim.PROVEN, Claim.PROBABLE) for curve in curves)
    return "certified accuracy" if certified else "accuracy"


def accuracy_table(curves: Sequence[Curve], radii: Sequence[float]) -> TextTable:
    """A row for each run: what it claims, how many images, the mean radius, and the share in percent at each radius.

    Radii are rounded down, percentages to the nearest, all with as many decimals as the run with most images needs.
    """
    norm = common_norm(curves)
    if not radii:
        raise ValueError("expected at least one radius, got none")
    claims = [claim for claim in Claim if any(curve.claim is claim for curve in curves)]
    may_abstain = any(map(abstains, curves))
    places = percent_places(max(len(curve.run) for curve in curves))
    rows = []
    for curve in curves:
        shares = [percent(count, len(curve.run), places) for count in counts_at(curve.run, radii)]
        abstained = [str(_abstained(curve)) if abstains(curve) else "-"] * may_abstain
        mean = _mean_radius(curve)
        told = "-" if mean is None or math.isnan(mean) else floor_digits(mean, 3)
        rows.append([curve.label, curve.claim.word, _images(curve), *abstained, told, *shares])
    first, *others = map(radius_text, radii)
    return TextTable(
        ["run", "claim", "images", *["abstained"] * may_abstain, "mean\nradius", f"r={first}", *others],
        rows,
        title=f"{subject(curves).capitalize()} in % at {norm_name(norm)} radius r, in pixel units",
        note="\n".join(f"{claim.word}: {claim.value}" for claim in claims),
        left=2,
    )


def summary(curves: Sequence[Curve], radii: Sequence[float]) -> dict[str, Any]:
    """The table for programs: shares, not percent, in full precision; an attack has no mean radius."""
    return {
        "norm": common_norm(curves),
        "radii": list(radii),
        "curves": [
            {
                "label": curve.label,
                "path": str(curve.run.path),
                "claim": curve.claim.word,
                "data": curve.data or None,
                "images": len(curve.run),
                "images_in_run": len(curve.whole_run),
                "expected_images": curve.expected,
                "abstained": _abstained(curve),
                "mean_radius": _mean_radius(curve),
                "accuracy": curve.run.standing(radii).tolist(),
            }
            for curve in curves
        ],
        "notes": warnings_about(curves),
    }


def warnings_about(curves: Sequence[Curve]) -> list[str]:
    """What to know before these curves are compared; the worst first."""
    return [
        *_contradictions(curves),
        *_training_images(curves),
        *differences(curves),
        *_unclaimed(curves),
        *_unfinished(curves),
    ]


def abstains(curve: Curve) -> bool:
    """Whether it is one that may tell no class: randomized smoothing, or a table in which that happens."""
    return curve.claim is Claim.PROBABLE or bool(curve.run.abstained.any())


def _abstained(curve: Curve) -> int:
    return int(curve.run.abstained.sum())


def _mean_radius(curve: Curve) -> float | None:
    return None if curve.claim is Claim.ATTACK else curve.run.mean_radius


def _images(curve: Curve) -> str:
    if curve.whole is not None or curve.run.complete:
        return str(len(curve.run))
    return f"{len(curve.run)} of {curve.expected}"


def _unfinished(curves: Sequence[Curve]) -> Iterator[str]:
    for curve in curves:
        run = curve.whole_run
        if not run.complete:
            done = f"{len(run)} of {curve.expected} images"
            yield f"{curve.label} is not finished: {done}; its command, run again, goes on"


def _training_images(curves: Sequence[Curve]) -> Iterator[str]:
    """Accuracy on images that the model learnt by heart is not what is asked for."""
    for curve in curves:
        if seen := training_images(curve.run):
            yield f"TRAINING IMAGES: {curve.label}: {seen}"


def training_images(run: Run) -> str:
    """What a run says of training images among its own, if it does."""
    return str(run.about["data"].get("seen_in_training") or "") if run.about else ""


def _unclaimed(curves: Sequence[Curve]) -> Iterator[str]:
    unknown = [curve.label for curve in curves if curve.claim is Claim.UNKNOWN]
    if unknown:
        yield f"{', '.join(unknown)}: {Claim.UNKNOWN}, nor in which norm they are: they are taken as l2"


def _contradictions(curves: Sequence[Curve]) -> Iterator[str]:
    """Images that an attack broke within the radius that a run of the same model tells."""
    attacks = [curve for curve in curves if curve.claim is Claim.ATTACK]
    for curve, attack in product(curves, attacks):
        if curve.claim not in (Claim.PROVEN, Claim.ESTIMATE) or not curve.run.same_task(attack.run):
            continue
        run, other = curve.whole_run, attack.whole_run
        _, mine, its = np.intersect1d(run.rows["idx"], other.rows["idx"], return_indices=True)
        broken = run.correct[mine] & (run.radius[mine] > other.radius[its])
        if not broken.any():
            continue
        which = f"{broken.sum()} of the {len(mine)} images in both"
        if curve.claim is Claim.ESTIMATE:
            yield f"{attack.label} broke {which} within the estimate of {curve.label}: it is no bound"
        else:
            first = run.rows["idx"][mine][broken][0]
            yield (
                f"CONTRADICTION: {attack.label} broke {which}, idx {first} the first, within the radius that "
                f"{curve.label} has proven; one of the two is wrong, or they are not of the same images"
            )
