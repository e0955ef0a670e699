"""The picture: certified accuracy over the number of features, and over the radius with few of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from berncert.foundation.palette import CLASS_STYLES, GREY, INK, SMALL
from experiments.axes import quiet_axes
from experiments.why_bend.plan import ARMS, CHOSEN_BY, DIMS, RADII
from experiments.why_bend.tables import Cell

STYLES = {"affine": CLASS_STYLES[1], "bending": CLASS_STYLES[0]}
NAMES = {"affine": "affine head: flat boundaries", "bending": "polynomial head: boundaries bend"}
FEW = DIMS[0]


def why_bend_figure(cells: Mapping[tuple[str, int], Cell], images: int) -> Figure:
    """Two panels, with the lines of both arms in each."""
    figure = Figure(figsize=(9.4, 4.3), facecolor="white")
    left, right = (figure.add_axes(place) for place in ((0.075, 0.135, 0.5, 0.68), (0.665, 0.135, 0.315, 0.68)))
    _over_features(left, cells)
    _over_radius(right, cells)
    figure.text(0.016, 0.965, TITLE, fontsize=12, fontweight="bold", color=INK, va="top")
    detail = f"MNIST, l2, first {images:,} test images; same extractor and epochs; dots: three seeds; left axis from 50"
    figure.text(0.016, 0.9, detail, fontsize=SMALL, color=GREY, va="top")
    return figure


TITLE = "On three or four features a head that bends proves more; on five or more it does not"


def _over_features(axes: Axes, cells: Mapping[tuple[str, int], Cell]) -> None:
    """The mean certified accuracy over d; the gain of bending is written where it is beyond the seeds' spread."""
    for arm in ARMS:
        mine = [cells[arm, dim] for dim in DIMS if (arm, dim) in cells]
        ink = STYLES[arm].ink
        axes.plot([c.dim for c in mine], [c.overall.mean() for c in mine], color=ink, linewidth=2.4, label=NAMES[arm])
        for cell in mine:
            dims = np.full(len(cell.overall), cell.dim)
            axes.plot(dims, cell.overall, STYLES[arm].marker, color=ink, markersize=4.5, alpha=0.75)
    for dim in DIMS:
        if ("affine", dim) in cells and ("bending", dim) in cells:
            affine, bending = cells["affine", dim].overall, cells["bending", dim].overall
            if bending.min() > affine.max():
                text = f"+{bending.mean() - affine.mean():.1f}"
                axes.annotate(text, (dim, bending.max()), (-7, 3), textcoords="offset points", ha="right",
                              fontsize=10, fontweight="bold", color=STYLES["bending"].ink)  # fmt: skip
    radii = ", ".join(f"{radius:g}" for radius in CHOSEN_BY[:-1])
    axes.set(xticks=DIMS, xlabel="number of features d (ten classes)", xlim=(2.2, 10.3), ylim=(50, 76))
    title = f"certified accuracy (%), mean of radii {radii} and {CHOSEN_BY[-1]:g}"
    axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    axes.legend(frameon=False, fontsize=SMALL + 0.5, loc="lower right")
    _quiet(axes)


def _over_radius(axes: Axes, cells: Mapping[tuple[str, int], Cell]) -> None:
    for arm in ARMS:
        if (arm, FEW) in cells:
            values, ink = cells[arm, FEW].values, STYLES[arm].ink
            axes.fill_between(RADII, values.min(axis=0), values.max(axis=0), color=ink, alpha=0.18, linewidth=0)
            axes.plot(RADII, values.mean(axis=0), STYLES[arm].marker + "-", color=ink, linewidth=2, markersize=4.5)
    axes.set(xlabel="radius", xlim=(0, 2.06), xticks=(0, 0.5, 1, 1.5, 2), ylim=(0, 100))
    axes.set_title(f"d = {FEW}: certified accuracy over the radius", loc="left", fontsize=9.5, color=INK)
    _quiet(axes)


def _quiet(axes: Axes) -> None:
    quiet_axes(axes)
    axes.xaxis.label.set(fontsize=9.5, color=INK)
