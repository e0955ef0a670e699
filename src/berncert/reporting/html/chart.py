"""The geometry of the charts: scales with round ticks, curves as paths, histograms as bars. No colours, no markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from berncert.certification.status import Claim
from berncert.foundation.arrays import Floats
from berncert.foundation.rounding import percent, percent_places
from berncert.reporting.curves.curve import counts_at
from berncert.runs.records import Run

ENDS = {"1": 5, "1.2": 6, "1.5": 6, "2": 4, "2.5": 5, "3": 6, "4": 4, "5": 5, "6": 6, "8": 4}
"""Where a scale may end, up to a power of ten -> its ticks."""
FINE = 50
"""Steps from tick to tick: where a curve can be read off."""
COARSE = 10
"""Steps between the rows of a table, and the edges of a histogram."""
ROOM = 0.005
"""The share of correct images whose radius may lie beyond the end of the scale: one outlier shall not flatten all."""
FAR = 1.25
"""How many times as far a histogram may go, to hold them all."""
BOX = 2000
"""A curve's path is in a square of this side."""


@dataclass(frozen=True)
class Scale:
    """A scale from 0 to a round end."""

    end: Decimal
    ticks: int

    @property
    def step(self) -> Decimal:
        """The smallest step that can be read off."""
        return (self.end / self.ticks / FINE).normalize()

    @property
    def last(self) -> int:
        """How many steps there are."""
        return self.ticks * FINE

    @property
    def places(self) -> int:
        """Decimals that write each step in full."""
        return max(0, -int(self.step.as_tuple().exponent))

    def radii(self, every: int = 1) -> Floats:
        """The radii at every so many steps, 0 and the end included."""
        return np.array([float(self.step * k) for k in range(0, self.last + 1, every)])

    def text(self, steps: int) -> str:
        """The radius after so many steps, as short as it can be written."""
        return f"{(self.step * steps).normalize():f}"

    def aligned(self, steps: int) -> str:
        """The radius after so many steps, with the same number of decimals in all rows of a table."""
        row = (self.step * COARSE).normalize()
        return f"{self.step * steps:.{max(0, -int(row.as_tuple().exponent))}f}"

    def tick_texts(self) -> list[str]:
        """The radius at each tick, from 0."""
        return [self.text(k * FINE) for k in range(self.ticks + 1)]


def scale_to(greatest: float) -> Scale:
    """The shortest scale that holds the number; to 1 if there is nothing to hold."""
    if not (np.isfinite(greatest) and greatest > 0):
        return Scale(Decimal(1), 5)
    wanted = Decimal(repr(float(greatest)))
    power = wanted.adjusted()
    ends = [(Decimal(end).scaleb(power + more), ticks) for more in (0, 1) for end, ticks in ENDS.items()]
    return next(Scale(end, ticks) for end, ticks in ends if end >= wanted)


def correct_radii(run: Run) -> Floats:
    """The finite radii of the correct images."""
    return run.radius[run.correct & np.isfinite(run.radius)]


def reach(run: Run) -> float:
    """The radius beyond which hardly a correct image is left; 0 if there is none."""
    radii = correct_radii(run)
    return float(np.quantile(radii, 1 - ROOM, method="higher")) if len(radii) else 0.0


def own_scale(run: Run) -> Scale:
    """The scale for the histogram of one run: to its largest radius, unless that is far beyond all others."""
    return scale_to(min(float(correct_radii(run).max(initial=0)), FAR * reach(run)))


def common_scale(runs: Sequence[Run]) -> Scale:
    """The scale for the curves of these runs: to the end of what is certified, whatever estimates and attacks have."""
    certified = [run for run in runs if run.claim not in (Claim.ESTIMATE, Claim.ATTACK)]
    return scale_to(max(map(reach, certified), default=0) or max(map(reach, runs), default=0))


def outline(run: Run, scale: Scale) -> str:
    """`Run.standing` as a path: a step down at each radius, from the left edge of the box to its right or bottom."""
    end = float(scale.end)
    radii = run.radius[run.correct & (run.radius >= 0)]  # this leaves out NaN
    x = np.rint(np.minimum(radii, 2 * end) / end * BOX).astype(int)
    places, falling = np.unique(x, return_counts=True)
    left = len(radii) - np.cumsum(falling)
    inside = places <= BOX
    heights = np.rint((1 - np.r_[len(radii), left[inside]] / len(run)) * BOX).astype(int)
    steps = zip(np.diff(places[inside], prepend=0), np.diff(heights), strict=True)
    path = "".join(f"h{dx}v{dy}" for dx, dy in steps)
    return f"M0 {heights[0]}{path}" + (f"H{BOX}" if heights[-1] < BOX else "")


@dataclass(frozen=True)
class Reading:
    """What can be read off a curve: out of how many images how many hold, at each step of the scale."""

    of: int
    counts: Sequence[int]
    places: int
    """The number of decimals of its percentages."""

    def percent(self, step: int) -> str:
        """The share at that step, to the nearest."""
        return percent(self.counts[step], self.of, self.places)

    def height(self, step: int) -> float:
        """The height of the curve at that step, in percent from the top."""
        return round(100 - 100 * self.counts[step] / self.of, 3)


def reading(run: Run, scale: Scale) -> Reading:
    """The reading of a run: `Run.standing` at each step."""
    return Reading(len(run), counts_at(run, scale.radii()), percent_places(len(run)))


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram: how many values from `start` on, below `stop`; its height in percent of the chart."""

    start: str
    stop: str
    count: int
    height: float


@dataclass(frozen=True)
class Histogram:
    """How many values there are of each size; `beyond` of them do not fit on the scale."""

    scale: Scale
    bars: tuple[Bar, ...]
    total: int
    beyond: int


def histogram(values: Floats, scale: Scale) -> Histogram:
    """The histogram of the finite values; a value at the very end of the scale belongs to the last bar."""
    finite = values[np.isfinite(values)]
    counts, _ = np.histogram(finite, bins=scale.radii(COARSE))
    most = max(int(counts.max()), 1)
    bars = tuple(
        Bar(scale.aligned(k * COARSE), scale.aligned((k + 1) * COARSE), number, round(100 * number / most, 2))
        for k, number in enumerate(counts.tolist())
    )
    return Histogram(scale, bars, len(finite), len(finite) - int(counts.sum()))
