"""The picture: curves of radii for every image, and published figures, which are points."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from berncert.certification.status import Claim
from berncert.foundation.arrays import Floats
from berncert.foundation.palette import GREY, INK, SMALL
from berncert.reporting.curves.figure import COLOURS, STYLES
from berncert.reporting.picture_text import norm_symbol
from experiments.axes import quiet_axes
from experiments.rivals.points import Picture, Point

OURS, OTHERS = COLOURS[:2] + COLOURS[5:6] + COLOURS[2:3], (COLOURS[3], COLOURS[6], COLOURS[4], COLOURS[7], COLOURS[8])
GAP = 4.3
"""Percent between two labels of points, one above the other."""
LEGEND_LETTERS, LETTER = 36, 0.0145
"""Letters in a line of the legend; width of a letter of a label, as a share of the axis."""
SHIFTS = (0.0, -6.0, 6.0, -12.0, 12.0, -18.0, 18.0, -24.0)
"""Percent by which the labels of points may be moved."""
CAPTIONS = {Claim.PROVEN: "proven, berncert", Claim.PROBABLE: "randomized smoothing: probable"}


def rivals_figure(picture: Picture, curves: Sequence[Mapping[str, Any]], title: str, detail: str) -> Figure:
    """All curves, a legend beside them, and the published points with their names."""
    figure = Figure(figsize=(9.6, 5.0), facecolor="white")
    axes = figure.add_axes((0.075, 0.115, 0.6, 0.755))
    axes.set(xlim=(0, picture.end), ylim=(0, 101))
    handles = _draw_curves(axes, curves, picture.end)
    _draw_points(axes, picture.points, picture.end)
    _name_axes(axes, picture.norm)
    _legend(figure, handles, bool(picture.points))
    figure.text(0.018, 0.965, title, fontsize=12, fontweight="bold", color=INK, va="top")
    figure.text(0.018, 0.912, detail, fontsize=SMALL, color=GREY, va="top")
    return figure


def _draw_curves(axes: Axes, curves: Sequence[Mapping[str, Any]], end: float) -> dict[Claim, list[tuple[Line2D, str]]]:
    """The lines, by claim; ours are drawn last, on top."""
    handles: dict[Claim, list[tuple[Line2D, str]]] = {}
    colours = {Claim.PROVEN: iter(OURS * 9)}
    rest = iter(OTHERS * 9)
    for curve in curves:
        claim = Claim[curve["claim"]]
        shares = 100 * np.asarray(curve["curve"])
        kept = slice(int(np.argmin(shares)) + 1 if shares[-1] == 0 else None)
        style = {**STYLES[claim], "color": next(colours.get(claim, rest))}
        if claim is Claim.PROVEN:
            style |= {"linewidth": 2.4, "zorder": 4}
        (line,) = axes.plot(np.linspace(0, end, len(shares))[kept], shares[kept], **style)
        text = textwrap.fill(f"{curve['label']} ({curve['images']:,} images)", LEGEND_LETTERS)
        handles.setdefault(claim, []).append((line, text))
    return handles


def _draw_points(axes: Axes, points: Sequence[Point], end: float) -> None:
    """Diamonds with their names beside them, moved apart where they would overlap, and away from the curves."""
    lines = [_dense(np.asarray(line.get_xydata(), dtype=float)) for line in axes.get_lines()]
    for radius, group in groupby(sorted(points, key=lambda p: (p.radius, -p.certified)), key=lambda p: p.radius):
        column = list(group)
        heights = np.array(_apart([point.certified for point in column], GAP, 98.5))
        width = LETTER * end * max(len(_named(point)) for point in column)
        places = [(x, shift) for shift in SHIFTS for x in (radius + 0.03 * end, radius - 0.03 * end - width)]
        left, shift = min(places, key=lambda place: _hits(lines, place[0], width, heights + place[1], end))
        for point, height in zip(column, heights + shift, strict=True):
            axes.plot(radius, point.certified, "D", color=INK, markersize=5.5, markeredgecolor="white", zorder=6)
            right = left < radius
            axes.annotate(
                _named(point), (radius, point.certified), (left + width if right else left, height),
                fontsize=SMALL, color=INK, va="center", ha="right" if right else "left", zorder=7,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5},
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkB": 3, "shrinkA": 0,
                            "relpos": (float(right), 0.5)},
            )  # fmt: skip


def _dense(corners: Floats) -> Floats:
    """The corners of a line, and points between them: a steep piece has few corners."""
    steps = np.linspace(0, len(corners) - 1, 8 * len(corners))
    return np.stack([np.interp(steps, np.arange(len(corners)), column) for column in corners.T], axis=1)


def _named(point: Point) -> str:
    return f"{point.label}  {point.certified:g}"


def _hits(lines: Sequence[Floats], left: float, width: float, heights: Floats, end: float) -> float:
    """How many corners of curves lie under labels there; a place outside of the picture is worst."""
    if left < 0 or left + width > end or heights.min() < 2 or heights.max() > 99:
        return float("inf")
    low, high = heights.min() - GAP / 2, heights.max() + GAP / 2
    under = [(x >= left) & (x <= left + width) & (y > low) & (y < high) for x, y in (line.T for line in lines)]
    return float(sum(map(np.count_nonzero, under)))


def _apart(heights: Sequence[float], gap: float, top: float) -> list[float]:
    """Descending heights, each at least a gap below the one before, and as near to where they were as that allows."""
    wanted = np.asarray(heights, dtype=float)
    steps = gap * np.arange(len(wanted))
    level = wanted + steps  # isotonic regression: groups of heights that must share a level take its mean
    groups: list[list[float]] = []
    for value in level:
        groups.append([value])
        while len(groups) > 1 and np.mean(groups[-2]) < np.mean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    flat = np.concatenate([[float(np.mean(group))] * len(group) for group in groups]) - steps
    placed: list[float] = (flat - max(0.0, float(flat[0]) - top)).tolist()
    return placed


def _name_axes(axes: Axes, norm: float) -> None:
    axes.set_xlabel(f"radius in the {norm_symbol(norm)} norm, pixel units", fontsize=9.5, color=INK)
    axes.set_ylabel("certified accuracy (% of the images)", fontsize=9.5, color=INK)
    quiet_axes(axes)


def _legend(figure: Figure, handles: Mapping[Claim, Sequence[tuple[Line2D, str]]], points: bool) -> None:
    rows: list[tuple[Line2D, str, str]] = []
    empty = Line2D([], [], linestyle="")
    for claim in Claim:
        if claim in handles:
            rows.append((empty, CAPTIONS.get(claim, claim.word), GREY))
            rows += [(line, text, INK) for line, text in handles[claim]]
    if points:
        rows.append((empty, "proven, as published", GREY))
        rows.append((Line2D([], [], marker="D", color=INK, linestyle="", markersize=5), "other systems", INK))
    lines, texts, colours = zip(*rows, strict=True)
    figure.legend(
        lines, texts, loc="upper left", bbox_to_anchor=(0.685, 0.885), fontsize=SMALL, labelcolor=list(colours),
        handlelength=2.6, frameon=False,
    )  # fmt: skip
