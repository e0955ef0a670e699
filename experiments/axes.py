"""The look of the axes in all pictures of the experiments."""

from __future__ import annotations

from matplotlib.axes import Axes

from berncert.foundation.palette import GREY, INK, PALE, SMALL


def quiet_axes(axes: Axes) -> None:
    """Pale horizontal lines behind the curves, thin axes on the left and below only."""
    axes.grid(axis="y", color=PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelcolor=INK, labelsize=SMALL, length=3, width=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=GREY, linewidth=0.6)
