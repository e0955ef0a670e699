"""Pictures of two-dimensional classifiers: regions, boundaries, and the balls in which a class is proven to hold.

The `draw_` functions put arrays on given axes; the `_figure` functions arrange them. No function writes a file or
needs a screen: a `Figure` is returned, and `figure.savefig` does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.path import Path

from berncert.foundation.arrays import Floats
from berncert.foundation.palette import CLASS_STYLES, GREY, INK, SMALL, ClassStyle
from berncert.reporting.picture_text import DETAIL, MESSAGE, norm_symbol
from berncert.reporting.slices import SQUARE, Head, leads_of, logits_on

SOLID: Mapping[str, Any] = {"colors": INK, "linewidths": 1.3}
DASHED: Mapping[str, Any] = {"colors": GREY, "linewidths": 0.8, "linestyles": [(0, (4, 3))]}


class Zones(NamedTuple):
    """Points with the balls in which their class is proven to hold."""

    centres: Floats
    """(N, 2)"""
    radius: Floats
    predicted: npt.NDArray[np.int64]
    witness: Floats
    """(N, 2): where the class is another one, at the rim of the ball; nan where there is no such point."""


def sample_leads(head: Head, *, resolution: int = 201) -> Floats:
    """(K, rows, columns): how far each logit is ahead of the best other one, on a regular grid of the unit square.

    A class is predicted where its lead is positive; the decision boundary is where the two highest leads are zero.
    """
    ticks = np.linspace(0, 1, resolution)
    return leads_of(logits_on(head, SQUARE, ticks, ticks))


def ball_outline(norm: float, *, count: int = 240) -> Floats:
    """(count, 2): points once round the unit ball, each of p-norm 1; with count a multiple of 8, corners included."""
    return SQUARE.ball_outline(norm, 1.0, count=count)


def draw_square(axes: Axes) -> None:
    """Set the axes to the unit square: no ticks, a thin frame, equal scales."""
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=GREY, linewidth=0.6)


def draw_regions(axes: Axes, leads: Floats) -> None:
    """Tint the region of each class."""
    x, y = _ticks(leads)
    for lead, style in zip(leads, _styles(len(leads)), strict=True):
        if lead.max() > 0:
            axes.contourf(x, y, lead, levels=[0, lead.max() + 1], colors=[style.tint], zorder=0)


def draw_boundary(axes: Axes, leads: Floats, style: Mapping[str, Any] = SOLID) -> None:
    """Draw the curve on which two classes tie; nothing where one class holds the whole square."""
    x, y = _ticks(leads)
    for lead in leads[:-1]:  # whatever bounds the last class bounds another one too
        if lead.min() < 0 < lead.max():
            axes.contour(x, y, lead, levels=[0], zorder=2, **style)


def draw_points(axes: Axes, points: Floats, classes: npt.ArrayLike, *, size: float = 14) -> None:
    """Draw the points, each with the ink and the marker of its class."""
    for label, style in enumerate(_styles(int(np.max(classes, initial=-1)) + 1)):
        x, y = points[np.asarray(classes) == label].T
        axes.scatter(x, y, s=size, marker=style.marker, color=style.ink, linewidths=0.4, edgecolors="white", zorder=4)


def draw_balls(axes: Axes, centres: Floats, radii: Floats, norm: float, classes: npt.ArrayLike) -> PolyCollection:
    """Draw the balls { x : norm_p(x - centre) <= radius }, cut off at the unit square, in the inks of their classes."""
    inks = [_styles(int(label) + 1)[-1].ink for label in np.asarray(classes)]
    outlines = centres[:, None] + radii[:, None, None] * ball_outline(norm)
    balls = PolyCollection(
        list(outlines),
        facecolors=[to_rgba(ink, 0.16) for ink in inks],
        edgecolors=inks,
        linewidths=0.9,
        zorder=3,
    )
    axes.add_collection(balls, autolim=False)
    balls.set_clip_path(Rectangle((0, 0), 1, 1, transform=axes.transData))
    return balls


def draw_witnesses(axes: Axes, centres: Floats, witnesses: Floats) -> None:
    """Draw a cross on each witness, joined to its point; certificates without a witness are left out."""
    known = np.isfinite(witnesses).all(axis=1)
    pairs = np.stack([centres[known], witnesses[known]], axis=1)
    axes.add_collection(LineCollection(list(pairs), colors=INK, linewidths=0.5, zorder=3.5), autolim=False)
    x, y = witnesses[known].T
    axes.scatter(x, y, s=13, marker="x", color=INK, linewidths=0.9, zorder=5, clip_on=False)


def safe_zones_figure(
    network: Floats,
    smoothed: Floats,
    *,
    degree: int,
    data: tuple[Floats, npt.ArrayLike],
    zones: Zones,
    norm: float,
) -> Figure:
    """The paper's Figure 1: the network's boundary with its data; the smoothed one with the proven balls.

    network, smoothed: the leads of both; data: the points the network was trained on, and their classes.
    """
    figure = Figure(figsize=(9.2, 5.25), facecolor="white")
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.015, right=0.985, bottom=0.075, top=0.905, wspace=0.04)
    for axes, leads in ((left, network), (right, smoothed)):
        draw_square(axes)
        draw_regions(axes, leads)
        draw_boundary(axes, leads)
    draw_points(left, *data)
    draw_boundary(right, network, DASHED)
    draw_balls(right, zones.centres, zones.radius, norm, zones.predicted)
    draw_witnesses(right, zones.centres, zones.witness)
    draw_points(right, zones.centres, zones.predicted, size=20)
    ball = Path(ball_outline(norm), closed=False)
    _title(left, "The network: sharp and over-fitted", "it bends around single points to fit its training data")
    _title(
        right,
        "Proven: no point inside a ball changes class",
        f"smoothed to a Bernstein polynomial of degree {degree}; balls of the {norm_symbol(norm)} norm",
    )
    a, b = CLASS_STYLES[:2]
    _legend(
        figure,
        {
            "class 0": Line2D([], [], color=a.ink, marker=a.marker, linestyle="", markersize=4.5),
            "class 1": Line2D([], [], color=b.ink, marker=b.marker, linestyle="", markersize=4.5),
            "boundary": Line2D([], [], color=INK, linewidth=1.3),
            "boundary of the network": Line2D([], [], color=GREY, linewidth=0.8, dashes=(4, 3)),
            "proven safe zone": Line2D(
                [], [], marker=ball, linestyle="", markersize=10, mfc=to_rgba(a.ink, 0.16), mec=a.ink, mew=0.9
            ),
            "witness: another class": Line2D([], [], color=INK, marker="x", linestyle="", markersize=4),
        },
    )
    return figure


def degrees_figure(by_degree: Mapping[int, Floats], network: Floats, data: tuple[Floats, npt.ArrayLike]) -> Figure:
    """The paper's Figure 3: one panel for each degree's leads, the network's boundary dashed; the network last."""
    columns = 4
    rows = -(-(len(by_degree) + 1) // columns)
    height, left = 0.68 + 2.42 * rows, 0.012
    figure = Figure(figsize=(9.2, height), facecolor="white")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    figure.subplots_adjust(left, 0.1 / height, 1 - left, 1 - 0.78 / height, wspace=0.045, hspace=0.13)
    for axes, (degree, leads) in zip(panels, by_degree.items(), strict=False):
        draw_square(axes)
        draw_regions(axes, leads)
        draw_boundary(axes, network, DASHED)
        draw_boundary(axes, leads)
        axes.set_title(f"degree {degree}", loc="left", pad=4, fontsize=SMALL, color=INK)
    last, *unused = panels[len(by_degree) :]
    draw_square(last)
    draw_regions(last, network)
    draw_boundary(last, network)
    draw_points(last, *data, size=7)
    last.set_title("the network", loc="left", pad=4, fontsize=SMALL, color=INK)
    for axes in unused:
        axes.set_axis_off()
    top = 1 - 0.26 / height
    figure.text(left, top, "The higher the degree, the closer the smoothed boundary comes to the original", **MESSAGE)
    figure.text(left, top - 0.21 / height, "dashed: the boundary of the network that was smoothed", **DETAIL)
    return figure


def _title(axes: Axes, message: str, detail: str) -> None:
    axes.text(0, 1.058, message, transform=axes.transAxes, **MESSAGE)
    axes.text(0, 1.022, detail, transform=axes.transAxes, **DETAIL)


def _legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=SMALL,
        labelcolor=INK,
        handletextpad=0.6,
        columnspacing=2.0,
        borderaxespad=0.35,
    )


def _ticks(leads: Floats) -> tuple[Floats, Floats]:
    """The coordinates of the grid's columns and rows."""
    _, rows, columns = leads.shape
    return np.linspace(0, 1, columns), np.linspace(0, 1, rows)


def _styles(classes: int) -> tuple[ClassStyle, ...]:
    if classes > len(CLASS_STYLES):
        raise ValueError(
            f"expected at most {len(CLASS_STYLES)} classes, got {classes}; not everybody can distinguish more colours"
        )
    return CLASS_STYLES[:classes]
