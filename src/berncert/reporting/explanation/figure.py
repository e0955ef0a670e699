"""The picture of an explanation: the image and what fools it, the decision surface around it, its rivals' distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from berncert.certification.status import Status
from berncert.foundation.palette import GREY, INK, PALE, SMALL
from berncert.foundation.rounding import ceil_digits, floor_digits
from berncert.reporting.explanation.explanation import Explanation
from berncert.reporting.explanation.surface import HALO, draw_line, draw_slice, slice_of, styles_of
from berncert.reporting.picture_text import DETAIL, MESSAGE, norm_symbol

EDGE, SQUARE, IMAGE, RIVALS = 0.25, 4.2, 1.16, 3.5  # inches
HEIGHT = 5.75
FAR = 4.0  # times the farthest bar: an attack farther away is mentioned, not drawn
LEAST_ROWS = 6
MUTED = "#9aa7b5"


def explanation_figure(explained: Explanation) -> Figure:
    """Left the images, if the sample is one; in the middle a plane through feature space; right the rivals."""
    pictures = explained.sample.image.ndim == 3
    left = EDGE + (IMAGE + 0.5 if pictures else 0.0)
    right = left + SQUARE + 1.1
    width = right + RIVALS + 0.6
    figure = Figure(figsize=(width, HEIGHT), facecolor="white")

    def panel(at: float, bottom: float, wide: float, high: float) -> Axes:
        return figure.add_axes((at / width, bottom / HEIGHT, wide / width, high / HEIGHT))

    figure.text(EDGE / width, 1 - 0.36 / HEIGHT, title_of(explained), **{**MESSAGE, "fontsize": 14})
    figure.text(EDGE / width, 1 - 0.60 / HEIGHT, detail_of(explained), **DETAIL)
    if pictures:
        _draw_images(explained, [panel(EDGE, bottom, IMAGE, IMAGE) for bottom in (3.3, 1.78, 0.26)])
    dim = len(explained.certificate.features)
    if dim == 1:
        surface = panel(left + 0.2, 0.7, SQUARE - 0.5, SQUARE - 0.44)
        draw_line(surface, explained)
    else:
        surface = panel(left, 0.26, SQUARE, SQUARE)
        draw_slice(surface, explained, slice_of(explained))
    plane = f"a plane of its {dim} features, at true proportions; " if dim > 2 else "among its features; "
    _heading(surface, "Where the class changes", f"{plane}at a witness another class leads")
    _draw_rivals(panel(right, 1.42, RIVALS, 3.04), explained)
    for line, text in enumerate(derivation(explained)):
        ink = {"color": GREY if line else INK, "fontweight": "normal" if line else "bold"}
        figure.text(right / width, (0.72 - 0.19 * line) / HEIGHT, text, **{**DETAIL, **ink})
    return figure


def title_of(explained: Explanation) -> str:
    """The title: the class, and what is proven of it."""
    c, name = explained.certificate, explained.name
    wrong = "" if explained.correct else f" (wrong: it is '{name(explained.sample.label)}')"
    predicted = f"'{name(explained.predicted)}'{wrong}"
    rival = f"'{name(int(c.in_features.rival))}'" if c.in_features.rival >= 0 else ""
    if c.radius == math.inf:
        return f"{predicted} whatever the image: no other class ever leads"
    if c.radius > 0:
        nearest = f"; nearest rival: {rival}" if rival else ""
        return f"{predicted} is proven up to {floor_digits(c.radius, 3)}{nearest}"
    if explained.status is Status.TIE:
        return f"{predicted} ties with {rival or 'another class'}: nothing is proven"
    return f"{predicted} is not proven at all: {explained.status.split(':')[0]}"


def detail_of(explained: Explanation) -> str:
    """Which image, and between which numbers the true distance lies."""
    sample, c, norm = explained.sample, explained.certificate, norm_symbol(explained.settings.norm)
    parts = [f"{sample.name}, {sample.split} {sample.kind} {sample.index}, labelled '{explained.name(sample.label)}'"]
    if 0 < c.radius < math.inf:
        parts.append(f"no {sample.kind} within {norm} distance {floor_digits(c.radius, 4)} changes the class")
    if explained.found is not None:
        found = f"one at {ceil_digits(explained.found.distance, 4)}"
        parts.append(f"{found} does" if c.radius > 0 else f"{found} ({norm}) has another class")
    return "   ·   ".join(parts)


def derivation(explained: Explanation) -> list[str]:
    """How the radius is computed, line by line; the status where there is none."""
    c, norm = explained.certificate, explained.settings.norm
    if not 0 < c.radius < math.inf:
        return wrap(f"{explained.status.name}: {explained.status}", 58)
    pixels, features = norm_symbol(norm), norm_symbol(float(c.feature_norm))
    boxes = f"{c.in_features.boxes} box{'' if c.in_features.boxes == 1 else 'es'} searched"
    search = boxes if explained.status is Status.PROVEN else explained.status.name
    distance, bound = floor_digits(c.feature_radius, 4), ceil_digits(c.lipschitz_bound, 4)
    rounding = ceil_digits(2 * c.extraction_error, 1)
    if explained.reached is not None:
        widest = ceil_digits((explained.reached[1] - explained.reached[0]).max(), 3)
        return [
            f"radius {floor_digits(c.radius, 4)}: by bounds near this {explained.sample.kind}",
            f"within it no feature varies by more than {widest}",
            f"global route alone: {floor_digits(explained.by_bound.radius, 3)} = ({distance} - {rounding}) / {bound}",
            f"{bound}: Lipschitz bound, proven from {pixels} of pixels to {features} of features",
        ]
    return [
        f"radius {floor_digits(c.radius, 4)} = ({distance} - {rounding}) / {bound}",
        f"{distance}: proven distance of the features ({features}; {search})",
        f"{rounding}: the effect of rounding on the features of two {explained.sample.kind}s",
        f"{bound}: Lipschitz bound, proven from {pixels} of pixels to {features} of features",
    ]


def _draw_images(explained: Explanation, panels: Sequence[Axes]) -> None:
    """The image; the image of another class that was found; the difference."""
    sample, found = explained.sample, explained.found
    _show(panels[0], sample.image, f"seen as '{explained.name(explained.predicted)}'")
    if found is None:
        for axes in panels[1:]:
            axes.set_axis_off()
        return
    _show(panels[1], found.image, f"seen as '{explained.name(found.predicted)}'")
    change = found.image - sample.image.double()
    most = float(change.abs().max())
    _show(panels[2], 0.5 + change / (2 * most), f"the change (max {ceil_digits(most, 2)})", diverging=True)


def _show(axes: Axes, image: Tensor, caption: str, *, diverging: bool = False) -> None:
    pixels = image.double().clamp(0, 1).numpy()
    if len(pixels) == 3:
        axes.imshow(pixels.transpose(1, 2, 0), interpolation="nearest")
    else:
        axes.imshow(pixels[0], cmap="PuOr" if diverging else "gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color=GREY, linewidth=0.6)
    axes.set_title(caption, loc="left", fontsize=SMALL, color=INK, pad=3)


def _draw_rivals(axes: Axes, explained: Explanation) -> None:
    """A bar for each rival: how far it is proven to stay behind; a line where an attack succeeded."""
    rivals, styles, found = explained.rivals, styles_of(explained), explained.found
    reach = max((rival.radius for rival in rivals if math.isfinite(rival.radius)), default=0.0)
    near = found is not None and (found.distance < FAR * reach or reach == 0)
    right = 1.25 * max(reach, found.distance if found and near else 0.0) or 1.0
    for row, rival in enumerate(rivals):
        endless = not math.isfinite(rival.radius)
        ink = PALE if endless else styles[rival.number].ink if row == 0 else MUTED
        axes.barh(row, right if endless else rival.radius, height=0.62, color=ink, zorder=2)
        text = "never" if endless else floor_digits(rival.radius, 3)
        axes.annotate(text, (1, row), xycoords=("axes fraction", "data"),
                      fontsize=SMALL, color=INK, ha="right", va="center", zorder=4, **HALO)  # fmt: skip
    if found is not None:
        at, left = min(found.distance, right), found.distance > right / 2
        axes.annotate(f"an attack succeeded at {ceil_digits(found.distance, 3)}{'' if near else ' →'}", (at, 0),
                      (-5 if left else 5, 3), xycoords=("data", "axes fraction"), textcoords="offset points",
                      fontsize=SMALL, color=INK, ha="right" if left else "left", va="bottom", zorder=4)  # fmt: skip
        if near:
            axes.axvline(found.distance, color=INK, linewidth=1.4, linestyle=(0, (1, 1.6)), zorder=3)
    axes.set_yticks(range(len(rivals)), [explained.name(rival.number) for rival in rivals])
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.set(xlim=(0, right), ylim=(max(len(rivals), LEAST_ROWS) + 0.4, -0.6))
    axes.tick_params(axis="y", length=0, labelsize=SMALL + 1, colors=INK)
    axes.tick_params(axis="x", labelsize=SMALL, colors=GREY)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set(color=GREY, linewidth=0.6)
    norm = norm_symbol(explained.settings.norm)
    axes.set_xlabel(f"{norm} distance, in units of the pixels", fontsize=SMALL, color=GREY)
    _heading(axes, "How far each rival stays behind", "proven; the least of these is the radius")


def _heading(axes: Axes, message: str, detail: str) -> None:
    axes.annotate(message, (0, 1), (0, 20), xycoords="axes fraction", textcoords="offset points", **MESSAGE)
    axes.annotate(detail, (0, 1), (0, 7), xycoords="axes fraction", textcoords="offset points", **DETAIL)
