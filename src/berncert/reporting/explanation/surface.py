"""The decision surface around one image, in a plane of features: regions, boundary, proven ball and witnesses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Polygon
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from scipy.ndimage import distance_transform_edt

from berncert.foundation.arrays import Floats
from berncert.foundation.palette import CLASS_STYLES, GREY, INK, SMALL, ClassStyle
from berncert.reporting.explanation.explanation import Explanation
from berncert.reporting.slices import Slice, leads_of, window_logits

STYLES = (
    *CLASS_STYLES,
    ClassStyle("#7b4a12", "#eadccb", "v"),
    ClassStyle("#5b4a9e", "#e2def2", "P"),
    ClassStyle("#3d7a1e", "#eaf5d8", "X"),
    ClassStyle("#a3281e", "#f6d5cf", "p"),
    ClassStyle("#0b6f8a", "#d0ecf3", "h"),
)
OTHER = ClassStyle("#4a4a4a", "#ececec", "*")
"""The style of all further classes, which only their names distinguish."""
HALO: Mapping[str, Any] = {"path_effects": [withStroke(linewidth=2.6, foreground="white")]}
SHOWN = 5.0  # times the nearest witness' distance: a second one farther away is left out
ROOM = 1.45  # of the window, around what is to be seen
LETTER = 0.017, 0.028  # of the window: half the width of a letter of a name, half the height of all
WORDS = 0.12, 0.04  # of the window: half the width and height of what is written in the ball
MARK = np.array([8 * LETTER[0], 2 * LETTER[1]])  # of the window: half the width and height of a mark with its text
NOTHING = 1e-9  # shorter than this is no distance to draw


def styles_of(explained: Explanation) -> dict[int, ClassStyle]:
    """Class -> its style: first the predicted one, then the rivals from near to far."""
    near = [explained.predicted, *(rival.number for rival in explained.rivals)]
    rest = [number for number in range(len(explained.logits)) if number not in near]
    looks = [*STYLES, *[OTHER] * len(explained.logits)]
    return dict(zip(near + rest, looks, strict=False))


def slice_of(explained: Explanation) -> Slice:
    """The plane through the features and the witnesses of two rivals; without these, where margins fall most."""
    c = explained.certificate
    known = [c.in_features.witness, *(rival.witness for rival in explained.rivals)]
    _, slopes = explained.head.linearise(torch.from_numpy(c.features)[None])
    downhill = (slopes[0] - slopes[0, explained.predicted]).detach().numpy()
    order = [rival.number for rival in explained.rivals]
    return Slice.through(c.features, [*(w for w in known if np.isfinite(w).all()), *(c.features + downhill[order])])


def draw_slice(axes: Axes, explained: Explanation, cut: Slice) -> None:
    """Draw the regions of the classes, their boundary, the proven ball cut by the plane, and the witnesses in it."""
    c, head, styles = explained.certificate, explained.head, styles_of(explained)
    outline = np.zeros((0, 2))
    if NOTHING < c.feature_radius < math.inf:
        outline = cut.ball_outline(float(c.feature_norm), float(c.feature_radius))
    witnesses = _witnesses(explained, cut)
    low, high = _window(witnesses, outline)
    x, y, logits = window_logits(head, cut, low, high, head.numbers)
    leads = leads_of(logits)
    cube = cut.cube_outline(low, high)
    edge = Polygon(cube, closed=True, facecolor="none", edgecolor=GREY, linewidth=0.6, zorder=6)
    axes.add_patch(edge)
    for number in np.flatnonzero(leads.max(axis=(1, 2)) > 0).tolist():
        lead, tint = leads[number], styles[number].tint
        axes.contourf(x, y, lead, levels=[0, lead.max() + 1], colors=[tint], zorder=0).set_clip_path(edge)
        if lead.min() < 0:
            axes.contour(x, y, lead, levels=[0], colors=INK, linewidths=0.8, zorder=2).set_clip_path(edge)
    own = styles[explained.predicted].ink
    ball = Polygon(outline, closed=True, facecolor=to_rgba(own, 0.2), edgecolor=own, linewidth=1.4, zorder=3)
    axes.add_patch(ball)
    ball.set_clip_path(edge)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    _mark(axes, explained, witnesses, outline, cube)
    grid = np.stack(np.meshgrid(x, y), axis=-1)
    inside, covered = (Path(corners).contains_points(grid.reshape(-1, 2)) for corners in (cube, outline))
    free = (inside & ~covered).reshape(len(y), len(x))
    for mark in (np.zeros(2), *(place for _, place in witnesses)):  # with its text
        free &= (np.abs(grid - mark) >= MARK * (high - low)).any(axis=-1)
    _name_regions(axes, explained, np.where(free, leads.argmax(axis=0), -1), x, y)


def draw_line(axes: Axes, explained: Explanation) -> None:
    """Draw the logits along a single feature, the class that leads, and the proven interval."""
    c, styles = explained.certificate, styles_of(explained)
    x = np.linspace(0, 1, 501)
    with torch.no_grad():
        logits = explained.head(torch.from_numpy(x)[:, None]).numpy()
    leader = logits.argmax(axis=1)
    for number in np.unique(leader).tolist():
        axes.fill_between(x, 0, 1, where=leader == number, transform=axes.get_xaxis_transform(), step="mid",
                          color=styles[number].tint, linewidth=0, zorder=0)  # fmt: skip
    for number, style in styles.items():
        axes.plot(x, logits[:, number], color=style.ink, linewidth=1.6, zorder=3)
        axes.annotate(explained.name(number), (1, logits[-1, number]), (4, 0), textcoords="offset points",
                      color=style.ink, fontsize=SMALL, va="center", annotation_clip=False)  # fmt: skip
    (start,) = c.features
    if c.feature_radius > 0:
        reach = np.clip([start - c.feature_radius, start + c.feature_radius], 0, 1)
        axes.axvspan(*reach, color=styles[explained.predicted].ink, alpha=0.2, linewidth=0, zorder=1)
    top = float(logits[np.abs(x - start).argmin(), explained.predicted])
    axes.scatter([start], [top], s=36, color=styles[explained.predicted].ink, edgecolors="white", zorder=5)
    if np.isfinite(c.in_features.witness).all():
        axes.axvline(float(c.in_features.witness[0]), color=INK, linewidth=0.8, zorder=2)
    axes.set(xlim=(0, 1), yticks=[])
    axes.set_xlabel("the feature", fontsize=SMALL, color=GREY)
    axes.set_ylabel("logit", fontsize=SMALL, color=GREY)
    axes.tick_params(labelsize=SMALL, colors=GREY)
    axes.spines[["top", "right"]].set_visible(False)


def _witnesses(explained: Explanation, cut: Slice) -> list[tuple[str, Floats]]:
    """Name and place of the witnesses in the plane, the nearest first, one for each rival, at most two."""
    c = explained.certificate
    known = {int(c.in_features.rival): c.in_features.witness}
    for rival in explained.rivals:
        known.setdefault(rival.number, rival.witness)
    in_plane = [(n, cut.coordinates(w)) for n, w in known.items() if np.isfinite(w).all() and cut.contains(w)][:2]
    lengths = [float(np.linalg.norm(place)) for _, place in in_plane]
    too_far = len(in_plane) == 2 and NOTHING < SHOWN * lengths[0] < lengths[1]
    return [(explained.name(number), place) for number, place in (in_plane[:1] if too_far else in_plane)]


def _window(witnesses: Sequence[tuple[str, Floats]], outline: Floats) -> tuple[Floats, Floats]:
    """A square around the image, the ball and the witnesses."""
    seen = np.array([np.zeros(2), *outline, *(place for _, place in witnesses)])
    low, high = seen.min(axis=0), seen.max(axis=0)
    span = float((high - low).max())
    if span < NOTHING:  # a tie, or a class that nothing overtakes
        span = 1.0
    middle = (low + high) / 2
    return middle - ROOM * span / 2, middle + ROOM * span / 2


def _mark(
    axes: Axes, explained: Explanation, witnesses: Sequence[tuple[str, Floats]], outline: Floats, cube: Floats
) -> None:
    """The image as a dot, each witness as a cross, a thin line between them; words in the ball where they have room."""
    style: Mapping[str, Any] = {"textcoords": "offset points", "fontsize": SMALL, "color": INK, "zorder": 7, **HALO}
    own = styles_of(explained)[explained.predicted].ink
    for row, (name, (x, y)) in enumerate(witnesses):
        axes.plot([0, x], [0, y], color=INK, linewidth=0.7, zorder=4)
        axes.scatter([x], [y], s=34, marker="x", color=INK, linewidths=1.5, zorder=5)
        if row == 0:
            axes.annotate("witness", (x, y), (6, -4), va="top", **style)
        else:  # a third class may lead there, so it needs its name
            axes.annotate(f"'{name}' overtakes", (x, y), (0, 6), ha="center", **style)
    axes.annotate(f"this {explained.sample.kind}", (0, 0), (-7, 6), ha="right", **style)
    axes.scatter([0], [0], s=44, color=own, edgecolors="white", linewidths=0.8, zorder=5)
    width, height = np.array(WORDS) * float(np.diff(axes.get_xlim())[0])
    corners = np.array([[-width, -height], [width, -height], [width, height], [-width, height]])
    place = np.array([0, 0.5 * outline[:, 1].min(initial=0)])
    fits = all(len(part) and Path(part).contains_points(corners + place).all() for part in (outline, cube))
    if fits and -place[1] > 1.8 * height:
        words: Mapping[str, Any] = {"fontsize": SMALL, "color": own, "zorder": 7}
        axes.text(0, place[1], "proven:\nthe same class", ha="center", va="center", **words)


def _name_regions(axes: Axes, explained: Explanation, leader: npt.NDArray[np.int64], x: Floats, y: Floats) -> None:
    """The name of each class where its region has most room for it, if it has any; no class leads where it is -1."""
    letter, line = LETTER
    for number, style in styles_of(explained).items():
        name = explained.name(number)
        sizes = line * len(y), (letter * len(name) + 0.01) * len(x)
        room = distance_transform_edt(np.pad(leader == number, 1), sampling=(1 / sizes[0], 1 / sizes[1]))[1:-1, 1:-1]
        row, column = np.unravel_index(int(room.argmax()), room.shape)
        if room[row, column] >= 1:
            axes.text(x[column], y[row], name, color=style.ink, fontsize=14, fontweight="bold", ha="center",
                      va="center", zorder=7, **HALO)  # fmt: skip
