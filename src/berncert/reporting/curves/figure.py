"""The picture of some curves: exact steps, each line in the style of its claim, labels beside the lines if they fit."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from matplotlib.typing import ColorType

from berncert.certification.status import Claim
from berncert.foundation.arrays import Floats
from berncert.foundation.palette import GREY, INK, PALE, SMALL
from berncert.reporting.curves.curve import Curve, common_norm, share_name
from berncert.reporting.picture_text import DETAIL, MESSAGE, missing_glyphs_as_boxes, norm_symbol

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
TITLE_HEIGHT, PAD = 0.21, 0.07  # inches; of a line of the title, around a label
STRETCH = 3.0  # times the last proven radius: as far as estimates are shown
SMALLEST, LARGEST = 1e-100, 1e100  # radii that can be drawn
TOUCH = 1e-3  # pixels that do not matter
LONGEST, LONGEST_TITLE, MOST_LINES = 36, 78, 3  # letters in a line, lines
MOST_BESIDE, CHOICES = 5, 8  # curves with labels beside them, places to choose from for each


@missing_glyphs_as_boxes()
def curve_figure(curves: Sequence[Curve], *, title: str | None = None) -> Figure:
    """The curves, each in the style of its claim, with labels beside the lines if all fit, else in a legend."""
    norm = common_norm(curves)
    labels = [_folded(curve.label, LONGEST) for curve in curves]
    message = _folded(TITLE if title is None else title, LONGEST_TITLE)
    left, right, bottom, above = MARGINS
    above += TITLE_HEIGHT * message.count("\n")
    figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="white")
    axes = figure.add_axes((left / WIDTH, bottom / HEIGHT, 1 - (left + right) / WIDTH, 1 - (bottom + above) / HEIGHT))
    axes.set(xlim=(0, _end(curves)), ylim=(0, _top(curves)))
    _name_axes(axes, norm, share_name(curves))
    lines = [_draw(axes, curve, COLOURS[k % len(COLOURS)]) for k, curve in enumerate(curves)]
    captions = [curve.claim.word + LIMITS.get(curve.claim, "") for curve in curves]
    places = _places(axes, lines, labels, captions) if len(curves) <= MOST_BESIDE else None
    if places:
        for place, line, label, caption in zip(places, lines, labels, captions, strict=True):
            _write(axes, place, label, caption, _darker(str(line.get_color())))
    else:
        legend = _legend(figure, curves, labels, captions)
        extent = legend.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        height = max(HEIGHT, extent.height + bottom + above)
        figure.set_size_inches(WIDTH + extent.width, height)
        legend.set_bbox_to_anchor((WIDTH - 0.1, height - above), figure.dpi_scale_trans)
        sides = np.array([left, bottom, WIDTH - left - right, height - bottom - above])
        axes.set_position(tuple(sides / np.tile(figure.get_size_inches(), 2)))
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


def _name_axes(axes: Axes, norm: float, shares: str) -> None:
    axes.set_xlabel(f"radius in the {norm_symbol(norm)} norm, pixel units", fontsize=9.5, color=INK)
    axes.set_ylabel(f"{shares} (% of the images)", fontsize=9.5, color=INK)
    axes.grid(axis="y", color=PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelcolor=INK, labelsize=SMALL, length=3, width=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=GREY, linewidth=0.6)


def _draw(axes: Axes, curve: Curve, colour: str) -> Line2D:
    """The line of a curve, which ends where it comes to zero, with marks at the radii that an attack tried."""
    end = axes.get_xlim()[1]
    radii, shares = curve.corners(end)
    kept = slice(int(np.argmin(shares)) + 1 if shares[-1] == 0 else None)
    style = {"color": colour, "solid_joinstyle": "miter", "dash_capstyle": "butt", **STYLES[curve.claim]}
    (line,) = axes.plot(radii[kept], 100 * shares[kept], **style)
    tried = curve.tried[curve.tried <= end]
    if len(tried):
        axes.plot(tried, 100 * curve.run.standing(tried), color=colour, linestyle="", clip_on=False, **MARKER)
    return line


def _places(axes: Axes, lines: Sequence[Line2D], labels: Sequence[str], captions: Sequence[str]) -> list[Bbox] | None:
    """For each label a box beside its line which no line and no other label comes into; None if there are none.

    Boxes are in pixels of the figure, as are the lines that they are compared with.
    """
    paths = [axes.transData.transform_path(line.get_path()) for line in lines]
    pad = PAD * axes.figure.dpi
    candidates: list[list[Bbox]] = []
    for path, label, caption in zip(paths, labels, captions, strict=True):
        text = Text(text=f"{label}\n{caption}", fontsize=SMALL, fontweight="bold", parse_math=False, figure=axes.figure)
        extent = text.get_window_extent()
        others = [other for other in paths if other is not path]
        free = [
            box
            for box in _beside(np.asarray(path.vertices), extent.width + 2 * pad, extent.height + 2 * pad)
            if axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1)
            and axes.bbox.containsy(box.y0) and axes.bbox.containsy(box.y1)
            and not path.intersects_bbox(box.padded(-TOUCH), filled=False)
            and not any(other.intersects_bbox(box.padded(pad), filled=False) for other in others)
        ]  # fmt: skip
        candidates.append(free[:: -(-len(free) // CHOICES) or 1])
    choices = product(*candidates)
    return next((list(boxes) for boxes in choices if not any(a.overlaps(b) for a, b in combinations(boxes, 2))), None)


def _beside(corners: Floats, width: float, height: float) -> Iterator[Bbox]:
    """Boxes that touch a line that never rises, on its right and on its left, from the middle of its height on."""
    x, y = corners.T

    def reach(level: float) -> float:
        return float(x[max(0, int(np.searchsorted(-y, -level, "right")) - 1)])  # the last corner as high as that

    middle = (y[0] + y[-1]) / 2
    ends = [y[-1], y[-1] - height, y[0], y[0] - height]
    bottoms = np.concatenate([np.arange(y.min() - height, y[0] + height, height / 4), ends])
    for bottom in sorted(bottoms.tolist(), key=lambda bottom: abs(bottom + height / 2 - middle)):
        for left in (reach(bottom), reach(bottom + height) - width):
            yield Bbox.from_bounds(left, bottom, width, height)


def _write(axes: Axes, box: Bbox, label: str, caption: str, colour: ColorType) -> None:
    """The label at the top of the box, the caption at its bottom, both on white, which covers the grid."""
    white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    style: dict[str, Any] = {"transform": axes.transAxes, "fontsize": SMALL, "parse_math": False, "bbox": white}
    inner = box.padded(-PAD * axes.figure.dpi)
    (left, bottom), (_, top) = axes.transAxes.inverted().transform(inner.get_points())
    axes.text(left, bottom, caption, color=GREY, va="bottom", **style)
    axes.text(left, top, label, color=colour, fontweight="bold", va="top", **style)


def _legend(figure: Figure, curves: Sequence[Curve], labels: Sequence[str], captions: Sequence[str]) -> Legend:
    """For each claim its caption, then its curves."""
    rows = []
    for claim in Claim:
        members = [k for k, curve in enumerate(curves) if curve.claim is claim]
        if not members:
            continue
        style = {**STYLES[claim], **(MARKER if claim is Claim.ATTACK else {})}
        rows.append((captions[members[0]], GREY, Line2D([], [], linestyle="")))
        rows += [(labels[k], INK, Line2D([], [], color=COLOURS[k % len(COLOURS)], **style)) for k in members]
    texts, colours, samples = zip(*rows, strict=True)
    legend = figure.legend(
        samples,
        [""] * len(rows),
        loc="upper left",
        fontsize=SMALL,
        labelcolor=colours,
        handlelength=3,
        borderaxespad=0,
        frameon=False,
    )
    for entry, text in zip(legend.get_texts(), texts, strict=True):
        entry.set(text=text, parse_math=False)
    return legend


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


def _darker(colour: str) -> ColorType:
    """A darker shade for text, which is thinner than lines."""
    return LinearSegmentedColormap.from_list("", [colour, INK])(0.35)


def _folded(text: str, longest: int) -> str:
    """The text in a few lines of at most so many letters; the middle of a very long text is left out."""
    half = longest * MOST_LINES * 2 // 5  # folding leaves gaps
    short = text if len(text) <= 2 * half else f"{text[:half]} … {text[-half:]}"
    return "\n".join(textwrap.wrap(short, longest))
