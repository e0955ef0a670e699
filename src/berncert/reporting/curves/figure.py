"""The picture of some curves: exact steps, each line in the style of its claim, labels beside the lines if they fit."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath

from berncert.certification.status import Claim
from berncert.foundation.arrays import Floats
from berncert.foundation.palette import GREY, INK, PALE, SMALL
from berncert.reporting.curves.curve import Curve, common_norm, share_name
from berncert.reporting.picture_text import DETAIL, MESSAGE, norm_symbol

COLOURS = (
    "#1d4f91", "#d9820b", "#590d0d", "#4fb0c2", "#c2a06b", "#751fcc", "#9c8ae6", "#a6636d", "#a64319", "#591b4a",
)  # fmt: skip
"""Any two are far apart, for the colour-blind too, whatever their kind: 20 or more in CIE Lab."""
STYLES: Mapping[Claim, Mapping[str, Any]] = {
    Claim.PROVEN: {"linestyle": "-", "linewidth": 1.8},
    Claim.PROBABLE: {"linestyle": (0, (5, 1.8)), "linewidth": 1.5},
    Claim.ESTIMATE: {"linestyle": (0, (7, 1.8, 1.2, 1.8)), "linewidth": 1.5},
    Claim.UNKNOWN: {"linestyle": (0, (7, 1.6, 1.2, 1.6, 1.2, 1.6)), "linewidth": 1.2},
    Claim.ATTACK: {"linestyle": (0, (1, 1.4)), "linewidth": 1.5},
}
MARKER: Mapping[str, Any] = {"marker": "o", "markersize": 4.2, "markerfacecolor": "white", "markeredgewidth": 1.1}
LIMITS = {Claim.ESTIMATE: ", not proven", Claim.ATTACK: ", upper limit"}
"""What is added to the name of a claim, so that nobody takes it for a proof."""
TITLE = "How many images are classified correctly, and stay so within a radius"
WIDTH, HEIGHT, MARGINS = 7.6, 4.7, (0.62, 0.25, 0.55, 0.72)  # inches; left, right, bottom, top
LINE_HEIGHT, TITLE_HEIGHT, PAD, SAMPLE = 0.165, 0.21, 0.07, 0.34  # inches; around a label, of a line in the legend
STRETCH = 3.0  # times the last proven radius: as far as estimates are shown
SMALLEST, LARGEST = 1e-100, 1e100  # radii that can be drawn
TOUCH = 1e-6  # inches that do not matter
LONGEST, LONGEST_TITLE, MOST_LINES = 36, 78, 3  # letters in a line, lines
MOST_BESIDE, CHOICES = 5, 8  # curves with labels beside them, places to choose from for each


@dataclass(frozen=True)
class Frame:
    """The axes: what they show, and how large they are in inches."""

    end: float
    top: float
    width: float
    height: float

    def line(self, curve: Curve) -> tuple[Floats, Floats]:
        """Radii and percents of the curve's corners; it ends where it comes to zero."""
        radii, shares = curve.corners(self.end)
        kept = slice(int(np.argmin(shares)) + 1 if shares[-1] == 0 else None)
        return radii[kept], 100 * shares[kept]


@dataclass(frozen=True)
class Box:
    """A rectangle on the axes, in inches from the lower left corner."""

    left: float
    bottom: float
    right: float
    top: float

    def grown(self, by: float) -> Box:
        return Box(self.left - by, self.bottom - by, self.right + by, self.top + by)

    def meets(self, other: Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def meets_line(self, x: Floats, y: Floats) -> bool:
        """Whether a line that never rises, with these corners, comes into the box; it may run along its edges."""
        after = int(np.searchsorted(x, self.left + TOUCH, "right"))
        before = int(np.searchsorted(x, self.right - TOUCH, "left")) - 1
        within = after < len(x) and before >= 0
        return within and bool(y[after] > self.bottom + TOUCH and y[before] < self.top - TOUCH)


class Row(NamedTuple):
    """A row of the legend: a curve, by its number, or a heading."""

    curve: int | None
    text: str


def curve_figure(curves: Sequence[Curve], *, title: str | None = None) -> Figure:
    """The curves, each in the style of its claim, with labels beside the lines if all fit, else in a legend."""
    norm = common_norm(curves)
    left, right, bottom, above = MARGINS
    labels = [_folded(curve.label, LONGEST) for curve in curves]
    message = _folded(TITLE if title is None else title, LONGEST_TITLE)
    above += TITLE_HEIGHT * message.count("\n")
    frame = Frame(_end(curves), _top(curves), WIDTH - left - right, HEIGHT - bottom - above)
    places = _places(curves, labels, frame) if len(curves) <= MOST_BESIDE else None
    rows = [] if places else list(_legend_rows(curves, labels))
    legend = max((SAMPLE + 0.25 + _text_width(row.text) for row in rows), default=0.0)
    height = max(HEIGHT, bottom + above + sum(map(_row_height, rows)))
    figure = Figure(figsize=(WIDTH + legend, height), facecolor="white")
    sides = np.array([left, bottom, frame.width, height - bottom - above])
    axes = figure.add_axes(tuple(sides / np.tile(figure.get_size_inches(), 2)))
    _prepare(axes, frame, norm, share_name(curves))
    for k, curve in enumerate(curves):
        _draw(axes, frame, curve, COLOURS[k % len(COLOURS)])
        if places:
            _write(axes, frame, places[k], labels[k], curve.claim, COLOURS[k % len(COLOURS)])
    _legend(figure, rows, curves, height - above)
    _title(figure, message, _data_and_images(curves))
    return figure


def _end(curves: Sequence[Curve]) -> float:
    """A little more than where the last curve ends; attacks may have no end, and estimates are cut off."""
    ends = {claim: max((curve.reach() for curve in curves if curve.claim is claim), default=0.0) for claim in Claim}
    certified = max(ends[Claim.PROVEN], ends[Claim.PROBABLE], ends[Claim.UNKNOWN])
    tried = max([0.0, *(x for c in curves for x in c.tried)])
    estimated = min(ends[Claim.ESTIMATE], STRETCH * certified) if certified else ends[Claim.ESTIMATE]
    end = max(certified, estimated) or tried
    return 1.03 * float(np.clip(end, SMALLEST, LARGEST)) if end else 1.0


def _top(curves: Sequence[Curve]) -> float:
    """A round number of percent above all curves."""
    most = max(float(curve.run.standing(0.0)[0]) for curve in curves)
    return 1.02 * min(100.0, 10 * math.ceil(10 * most) if most else 100.0)  # lines have a width


def _prepare(axes: Axes, frame: Frame, norm: float, shares: str) -> None:
    axes.set(xlim=(0, frame.end), ylim=(0, frame.top))
    axes.set_xlabel(f"radius in the {norm_symbol(norm)} norm, pixel units", fontsize=9.5, color=INK)
    axes.set_ylabel(f"{shares} (% of the images)", fontsize=9.5, color=INK)
    axes.grid(axis="y", color=PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelcolor=INK, labelsize=SMALL, length=3, width=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=GREY, linewidth=0.6)


def _draw(axes: Axes, frame: Frame, curve: Curve, colour: str) -> None:
    x, y = frame.line(curve)
    axes.plot(x, y, color=colour, solid_joinstyle="miter", dash_capstyle="butt", **STYLES[curve.claim])
    tried = curve.tried[curve.tried <= frame.end]
    if len(tried):
        axes.plot(tried, 100 * curve.run.standing(tried), color=colour, linestyle="", clip_on=False, **MARKER)


def _places(curves: Sequence[Curve], labels: Sequence[str], frame: Frame) -> list[Box] | None:
    """For each label a box beside its line which no line and no other label comes into; None if there are none."""
    lines = [(x * frame.width / frame.end, y * frame.height / frame.top) for x, y in map(frame.line, curves)]
    candidates: list[list[Box]] = []
    for curve, label, line in zip(curves, labels, lines, strict=True):
        width = max(_text_width(label), _text_width(_caption(curve.claim))) + 2 * PAD
        height = LINE_HEIGHT * (2 + label.count("\n")) + 2 * PAD
        free = [
            box
            for box in _beside(line, width, height)
            if box.left >= 0 and box.right <= frame.width and box.bottom >= 0 and box.top <= frame.height
            and not box.meets_line(*line)
            and not any(box.grown(PAD).meets_line(*other) for other in lines if other is not line)
        ]  # fmt: skip
        candidates.append(free[:: -(-len(free) // CHOICES) or 1])
    return _chosen(candidates, [])


def _beside(line: tuple[Floats, Floats], width: float, height: float) -> Iterator[Box]:
    """Boxes that touch a line that never rises, on its right and on its left, from the middle of its height on."""
    x, y = line

    def reach(level: float) -> float:
        return float(x[max(0, int(np.searchsorted(-y, -level, "right")) - 1)])  # the last corner as high as that

    middle = (y[0] + y[-1]) / 2
    bottoms = np.concatenate([np.arange(0.05, y[0] + height, 0.1), [y[-1], y[-1] - height, y[0], y[0] - height]])
    for bottom in sorted(bottoms.tolist(), key=lambda bottom: abs(bottom + height / 2 - middle)):
        for left in (reach(bottom), reach(bottom + height) - width):
            yield Box(left, bottom, left + width, bottom + height)


def _chosen(candidates: Sequence[Sequence[Box]], taken: list[Box]) -> list[Box] | None:
    """One box of each, no two of which meet: the first such choice."""
    if not candidates:
        return taken
    for box in candidates[0]:
        if not any(box.meets(other) for other in taken):
            rest = _chosen(candidates[1:], [*taken, box])
            if rest is not None:
                return rest
    return None


def _write(axes: Axes, frame: Frame, box: Box, label: str, claim: Claim, colour: str) -> None:
    x, y = (box.left + PAD) / frame.width, (box.top - PAD) / frame.height
    style: dict[str, Any] = {"transform": axes.transAxes, "fontsize": SMALL, "va": "top", "parse_math": False}
    style["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # over the grid
    below = y - LINE_HEIGHT * (1 + label.count("\n")) / frame.height
    axes.text(x, below, _caption(claim), color=GREY, **style)
    axes.text(x, y, label, color=_darker(colour), fontweight="bold", **style)


def _legend_rows(curves: Sequence[Curve], labels: Sequence[str]) -> Iterator[Row]:
    """For each claim its caption, then its curves."""
    for claim in Claim:
        members = [Row(k, labels[k]) for k, curve in enumerate(curves) if curve.claim is claim]
        yield from [Row(None, _caption(claim)), *members] if members else []


def _caption(claim: Claim) -> str:
    return claim.word + LIMITS.get(claim, "")


def _row_height(row: Row) -> float:
    return LINE_HEIGHT * (1.2 + row.text.count("\n") + 0.4 * (row.curve is None))


def _legend(figure: Figure, rows: Sequence[Row], curves: Sequence[Curve], y: float) -> None:
    """The rows from height y down, on the right of the axes."""
    width, height = map(float, figure.get_size_inches())
    text_style: dict[str, Any] = {"fontsize": SMALL, "va": "center_baseline", "parse_math": False}
    left = WIDTH - 0.05
    for row in rows:
        y -= _row_height(row)
        middle = (y + LINE_HEIGHT * (1.2 + row.text.count("\n")) / 2) / height
        if row.curve is None:
            figure.text(left / width, middle, row.text, color=GREY, **text_style)
            continue
        claim, colour = curves[row.curve].claim, COLOURS[row.curve % len(COLOURS)]
        x = [(left + part * SAMPLE) / width for part in (0, 0.5, 1)]
        style = {**STYLES[claim], **(MARKER if claim is Claim.ATTACK else {})}
        figure.add_artist(Line2D(x, [middle] * 3, color=colour, markevery=[1], **style))
        figure.text((left + SAMPLE + 0.1) / width, middle, row.text, color=INK, **text_style)


def _data_and_images(curves: Sequence[Curve]) -> str:
    """The data sets and the numbers of images, for the line below the title."""
    sets = dict.fromkeys(curve.data or "unknown data set" for curve in curves)
    counts = sorted({len(curve.run) for curve in curves})
    images = (
        f"{counts[0]} image{'s' * (counts[-1] != 1)}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} images"
    )
    return f"{', '.join(sets)}; {images}"


def _title(figure: Figure, message: str, detail: str) -> None:
    size = figure.get_size_inches()
    below = TITLE_HEIGHT * message.count("\n")
    left: dict[str, Any] = {"x": 0.17 / size[0], "parse_math": False}
    figure.text(s=message, y=1 - 0.16 / size[1], linespacing=1.2, **{**MESSAGE, "va": "top"}, **left)
    y = 1 - (0.5 + below) / size[1]
    figure.text(s=textwrap.shorten(detail, 110, placeholder=" …"), y=y, **DETAIL, **left)


def _darker(colour: str) -> str:
    """A darker shade for text, which is thinner than lines."""
    red, green, blue = (0.65 * mine + 0.35 * ink for mine, ink in zip(to_rgb(colour), to_rgb(INK), strict=True))
    return to_hex((red, green, blue))


def _folded(text: str, longest: int) -> str:
    """The text in a few lines of at most so many letters; the middle of a very long text is left out."""
    half = longest * MOST_LINES * 2 // 5  # folding leaves gaps
    short = text if len(text) <= 2 * half else f"{text[:half]} … {text[-half:]}"
    return "\n".join(textwrap.wrap(short, longest))


def _text_width(text: str) -> float:
    """The width of the longest line in bold, in inches."""
    font = FontProperties(weight="bold")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        widths = [
            TextPath((0, 0), line.replace("$", r"\$"), size=SMALL, prop=font).get_extents().width
            for line in text.split("\n")
            if line.strip()
        ]
    return float(max(widths, default=0.0)) / 72
