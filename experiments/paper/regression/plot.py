"""The picture: one over-fitted model and its smoothed curve with the proven band; errors over the degree."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from berncert.foundation.arrays import Floats
from berncert.foundation.palette import CLASS_STYLES, GREY, INK, SMALL
from berncert.reporting.picture_text import DETAIL, MESSAGE
from experiments.axes import quiet_axes
from experiments.paper.regression.measure_curves import TEST, read_column
from experiments.paper.regression.problem import truth
from experiments.paper.work import Record

BLUE, ORANGE, GREEN, PINK = CLASS_STYLES
SHOWN = "neural network"
LINES = {
    "neural network": ("neural network", BLUE),
    "decision tree": ("tree, nearest neighbour,\nboosting: all alike", ORANGE),
    "polynomial, degree 15": ("polynomial of degree 15", PINK),
}
"""Models of the right panel -> their names there and styles."""
RIVAL = "smoothing spline"
LEAST, MOST = 0.1, 1.5


def regression_figure(record: Record) -> Figure:
    curves = record["curves"]
    figure = Figure(figsize=(9.4, 4.5), facecolor="white")
    left, right = (figure.add_axes(place) for place in ((0.04, 0.115, 0.49, 0.755), (0.6, 0.115, 0.385, 0.755)))
    _curve(left, curves["drawn"], curves["move"])
    _errors(right, curves)
    return figure


def _curve(axes: Axes, drawn: Record, move: float) -> None:
    one = drawn["curves"][SHOWN]
    t, y, outlier = read_column(drawn["t"]), read_column(drawn["y"]), np.array(drawn["outlier"])
    smoothed, lower, upper = (read_column(one[key]) for key in ("smoothed", "lower", "upper"))
    places = np.linspace(0, 1, len(smoothed))
    axes.fill_between(places, lower, upper, color=BLUE.ink, alpha=0.2, linewidth=0, label="proven range")
    axes.plot(TEST, read_column(one["raw"]), color=ORANGE.ink, linewidth=1.1, label="raw model")
    axes.plot(places, smoothed, color=BLUE.ink, linewidth=2.4, label="smoothed")
    axes.plot(TEST, truth(TEST), color=INK, linewidth=1.2, dashes=(4, 3), label="truth")
    axes.plot(t[~outlier], y[~outlier], "o", color=GREY, markersize=3.4, label="training point")
    axes.plot(t[outlier], y[outlier], "X", color=INK, markersize=6, markeredgecolor="white", label="outlier")
    middle = (y.min() + y.max()) / 2
    reach = 0.55 * (y.max() - y.min())
    axes.set(
        xlim=(-0.01, 1.01), ylim=(middle - reach, middle + 1.4 * reach), xlabel="input", xticks=(0, 0.25, 0.5, 0.75, 1)
    )
    axes.legend(ncols=3, loc="upper left", frameon=False, fontsize=SMALL, labelcolor=INK, columnspacing=1.4,
                handletextpad=0.6, borderaxespad=0.2)  # fmt: skip
    _title(
        axes,
        "Smoothed, it follows the trend",
        f"a {SHOWN}, degree {one['degree']}; range proven for inputs moved by {move:g}",
    )
    _quiet(axes)


def _errors(axes: Axes, curves: Record) -> None:
    """The error of each model over the degree; the raw model stands beyond the last one."""
    degrees = curves["amounts"]["degrees"]
    beyond = degrees[-1] * 3.2
    for place, (model, (name, style)) in enumerate(LINES.items(), start=-1):
        rows = [row for row in curves["rows"] if row["model"] == model]
        low, middle, high = _quartiles([row["by_degree"] for row in rows])
        raw_low, raw, raw_high = _quartiles([row["raw"] for row in rows])
        axes.fill_between(degrees, low, high, color=style.ink, alpha=0.14, linewidth=0)
        axes.plot(degrees, middle, style.marker + "-", color=style.ink, linewidth=2, markersize=4.5, label=name)
        at = beyond * 1.3**place  # side by side
        axes.plot([degrees[-1], at], [middle[-1], raw], color=style.ink, linewidth=0.9, dashes=(2, 2))
        axes.plot([at, at], [raw_low, raw_high], color=style.ink, linewidth=3, alpha=0.4, solid_capstyle="butt")
        axes.plot(at, raw, style.marker, color=style.ink, markersize=6.5)
    rival = np.median([row["error"] for row in curves["rivals"] if row["model"] == RIVAL])
    axes.axhline(rival, color=GREEN.ink, linewidth=1.2, dashes=(5, 2))
    axes.text(degrees[0], rival / 1.03, f"{RIVAL} of the points", color=GREEN.ink, fontsize=SMALL, va="top")
    axes.set(xscale="log", yscale="log", xlim=(degrees[0] / 1.3, beyond * 1.8), ylim=(LEAST, MOST), xlabel="degree")
    axes.set_xticks([*degrees, beyond], [*map(str, degrees), "raw"])
    axes.set_yticks([0.1, 0.2, 0.3, 0.5, 1], ["0.1", "0.2", "0.3", "0.5", "1"])
    axes.minorticks_off()
    axes.legend(fontsize=SMALL, labelcolor=INK, loc="upper right", borderaxespad=0.1, facecolor="white",
                framealpha=1, edgecolor="none")  # fmt: skip
    draws = curves["amounts"]["seeds"]
    _title(axes, "A middle degree errs least", f"error against the truth: median and middle half of {draws} draws")
    _quiet(axes)


def _quartiles(values: Any) -> Floats:
    """The quarter, the middle and the three quarters of the draws: single draws of a polynomial are far off."""
    found: Floats = np.percentile(values, (25, 50, 75), axis=0)
    return found


def _title(axes: Axes, message: str, detail: str) -> None:
    axes.text(0, 1.095, message, transform=axes.transAxes, **MESSAGE)
    axes.text(0, 1.035, detail, transform=axes.transAxes, **DETAIL)


def _quiet(axes: Axes) -> None:
    quiet_axes(axes)
    axes.xaxis.label.set(fontsize=9.5, color=INK)
