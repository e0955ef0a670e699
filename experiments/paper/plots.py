"""Pictures of certified curves, panel by panel: colour says which model, the style of the line what is claimed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from berncert.certification.status import Claim
from berncert.foundation.arrays import Floats
from berncert.foundation.palette import GREY, INK, SMALL
from berncert.reporting.curves.figure import COLOURS, STYLES
from berncert.reporting.picture_text import MESSAGE
from experiments.axes import quiet_axes

KINDS: Mapping[str, Mapping[str, Any]] = {
    "estimate": STYLES[Claim.ESTIMATE],
    "proven in features": {**STYLES[Claim.PROVEN], "linewidth": 1.3},
    "proven in pixels": {**STYLES[Claim.PROVEN], "linewidth": 2.6},
    "attack": {
        **STYLES[Claim.ATTACK],
        "marker": "o",
        "markersize": 3.6,
        "markerfacecolor": "white",
        "drawstyle": "steps-post",  # between two radii that were tried, the one before is the limit
    },
    "probable": STYLES[Claim.PROBABLE],
}
"""What a curve claims -> how it is drawn."""
IN_FEATURES = ("estimate", "proven in features")
"""Curves over a distance in feature space; the others are over one in pixels."""
CAPTIONS = {
    "estimate": "the paper's estimate, in feature space",
    "proven in features": "proven, in feature space",
    "proven in pixels": "proven, in pixels",
    "attack": "left by PGD, in pixels",
    "probable": "randomized smoothing, published",
}
PANEL, AXES, TOP = 4.4, 2.6, 0.78
"""Inches: width of a panel, height of its axes, and what is above them."""
LEAST_WIDTH, LINE = 9.4, 0.2
"""Inches: of the picture, so that its title has room, and the height of a line of a legend."""


def curves_figure(message: str, panels: Sequence[Mapping[str, Any]], radii: Floats) -> Figure:
    """All panels side by side, a legend of models under each, one of claims under the title."""
    width = max(LEAST_WIDTH, PANEL * len(panels) + 0.5)
    bottom = 0.62 + LINE * max(_legend_lines(panel) for panel in panels)
    height = TOP + AXES + bottom
    figure = Figure(figsize=(width, height), facecolor="white")
    step = (width - 0.5) / len(panels)
    for number, panel in enumerate(panels):
        place = ((0.62 + number * step) / width, bottom / height, (step - 0.42) / width, AXES / height)
        _draw_panel(figure.add_axes(place), panel, radii, first=number == 0)
    figure.text(0.12 / width, 1 - 0.27 / height, message, **MESSAGE)
    _claims(figure, panels, 0.08 / width, 1 - 0.34 / height)
    return figure


def _legend_lines(panel: Mapping[str, Any]) -> int:
    """The lines of the legend of models under a panel."""
    models = list(dict.fromkeys(line["label"] for line in panel["curves"]))
    return 0 if len(models) < 2 else -(-len(models) // _columns(models))


def _draw_panel(axes: Axes, panel: Mapping[str, Any], radii: Floats, *, first: bool) -> None:
    models = list(dict.fromkeys(line["label"] for line in panel["curves"]))
    colours = {label: COLOURS[number % len(COLOURS)] for number, label in enumerate(models)}
    for line in panel["curves"]:
        x, y = np.asarray(line.get("radii", radii)), 100 * np.asarray(line["accuracy"])
        axes.plot(x, y, color=colours[line["label"]], **KINDS[line["kind"]])
    axes.set(xlim=(0, radii[-1]), ylim=(0, 101))
    axes.set_title(panel["title"], loc="left", fontsize=9.5, color=INK)
    spaces = {"features" if line["kind"] in IN_FEATURES else "pixels" for line in panel["curves"]}
    axes.set_xlabel(rf"radius, $\ell_2$, in {' or '.join(sorted(spaces))}", fontsize=9.5, color=INK)
    if first:
        axes.set_ylabel("correct, and holding (%)", fontsize=9.5, color=INK)
    quiet_axes(axes)
    if len(models) > 1:
        handles = [Line2D([], [], color=colour, linewidth=2) for colour in colours.values()]
        names = [textwrap.fill(label, 30) for label in models]
        axes.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=_columns(models),
                    frameon=False, fontsize=SMALL, labelcolor=INK, handlelength=1.4, columnspacing=1.2)  # fmt: skip


def _columns(labels: Sequence[str]) -> int:
    """Short names go side by side."""
    return 4 if max(map(len, labels)) < 10 else 2


def _claims(figure: Figure, panels: Sequence[Mapping[str, Any]], left: float, top: float) -> None:
    used = dict.fromkeys(line["kind"] for panel in panels for line in panel["curves"])
    handles = [Line2D([], [], color=GREY, **KINDS[kind]) for kind in used]
    figure.legend(
        handles, [CAPTIONS[kind] for kind in used], loc="upper left", bbox_to_anchor=(left, top), ncols=len(used),
        frameon=False, fontsize=SMALL, labelcolor=INK, handlelength=2.6, columnspacing=1.4, borderpad=0.1,
    )  # fmt: skip
