"""The whole curves: certified accuracy by each route, and what an attack leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("agg")
import matplotlib.pyplot as plt

from berncert.foundation.palette import CLASS_STYLES, GREY, INK, SMALL

TITLES = {"linf": "l-inf", "l2": "l2"}
FIRST = {"linf": 3e-5, "l2": 1e-3}


def draw(record: dict[str, Any], path: Path) -> None:
    """Of the ordinary network, in both norms; radii on a logarithmic axis."""
    row = record["rows"][0]
    figure, panels = plt.subplots(1, len(TITLES), figsize=(9, 3.6), layout="constrained", sharey=True)
    for panel, (norm, title) in zip(panels, TITLES.items(), strict=True):
        _panel(panel, row[norm], FIRST[norm])
        panel.set_title(f"{title}, radius in units of the pixels", loc="left", fontsize=10, color=INK)
    panels[0].set_ylabel("accuracy, %")
    figure.legend(
        *panels[0].get_legend_handles_labels(), frameon=False, fontsize=SMALL, loc="outside upper right", ncols=3
    )
    figure.supxlabel(
        f"an ordinary CNN of MNIST, {record['images']} test images: proven (solid), and what PGD leaves (broken)",
        fontsize=SMALL, color=GREY,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _panel(panel: Any, r: dict[str, Any], first: float) -> None:
    for label, radii, style in (
        ("global route alone", r["global_radii"], CLASS_STYLES[1]),
        ("both routes", r["radii"], CLASS_STYLES[0]),
    ):
        at = np.concatenate([[first], np.maximum(np.sort(radii), first)])
        shares = 100 * np.concatenate([[len(radii)], len(radii) - np.arange(len(radii))]) / len(radii)
        panel.step([*at, at[-1]], [*np.minimum(shares, 100 * r["clean"]), 0], where="pre", color=style.ink, label=label)
    at, left = zip(*((float(k), 100 * v) for k, v in r["attacked"].items()), strict=True)
    panel.plot([first, *at], [100 * r["clean"], *left], color=GREY, linestyle="--", label="left by PGD")
    panel.set(xscale="log", xlim=(first, at[-1]), ylim=(0, 101))
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(colors=GREY, labelsize=SMALL)
