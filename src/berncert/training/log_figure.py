"""A picture of the log of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from berncert.foundation.palette import CLASS_STYLES, GREY, INK, SMALL

CURVES = {  # column of the log -> label, colour, line: solid for test or held-out images, dotted for training images
    "test_accuracy": ("accuracy on test images", CLASS_STYLES[0].ink, "-"),
    "holdout_accuracy": ("accuracy on held-out images", CLASS_STYLES[0].ink, "-"),
    "accuracy": ("accuracy on training images, as augmented or attacked", CLASS_STYLES[0].ink, ":"),
    "test_certified_estimate": ("test images certified at the radius (estimate)", CLASS_STYLES[1].ink, "-"),
    "holdout_certified_estimate": ("held-out images certified at the radius (estimate)", CLASS_STYLES[1].ink, "-"),
    "certified_estimate": ("training images certified (estimate)", CLASS_STYLES[1].ink, ":"),
}


def training_figure(log: Sequence[Mapping[str, float]], title: str) -> Figure:
    """A figure of the accuracies over the epochs, with the loss below."""
    figure = Figure(figsize=(7.2, 5.4), layout="constrained")
    shares, loss = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    epochs = [row["epoch"] for row in log]
    for name, (label, ink, style) in CURVES.items():
        values = [row.get(name, math.nan) for row in log]
        if not all(map(math.isnan, values)):
            shares.plot(epochs, values, style, color=ink, label=label, linewidth=1.6 if style == "-" else 1.2)
    loss.plot(epochs, [row["loss"] for row in log], color=GREY, linewidth=1.4)
    shares.set_title(title, loc="left", fontsize=11.5, fontweight="bold", color=INK)
    shares.yaxis.set_major_formatter(PercentFormatter(1.0))
    shares.legend(frameon=False, fontsize=SMALL, loc="lower right")
    loss.set_ylabel("loss", fontsize=SMALL)
    loss.set_xlabel("epoch", fontsize=SMALL)
    loss.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (shares, loss):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=SMALL)
        axes.grid(alpha=0.25, linewidth=0.6)
    return figure
