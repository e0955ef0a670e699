"""What is measured for Figures 1 and 3: radii beside brute force and the paper's estimates, accuracies by degree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from benchmarks.timing import shown
from torch import nn

import berncert
from experiments.paper.boundary.brute_force import BruteForce, lengths
from experiments.paper.boundary.scene import AMOUNTS, Amounts, Data, Floats, Ints, Scene, write_network
from experiments.paper.work import Record, Work

NORMS = (2.0, math.inf)
MOST_BALLS, SMALLEST_BALL, LARGEST_BALL = 24, 0.02, 0.2  # what a picture can show


def measure_figure1(work: Work) -> Record:
    amounts = AMOUNTS[work.size]
    return safe_zones(Scene.of(amounts.seeds[0], amounts), amounts, NORMS)


def measure_figure3(work: Work) -> Record:
    amounts = AMOUNTS[work.size]
    return degrees(amounts, (Scene.of(seed, amounts) for seed in amounts.seeds))


def safe_zones(scene: Scene, amounts: Amounts, norms: Iterable[float]) -> Record:
    """Figure 1: one smoothed network, its radii in these norms; the balls of the first norm are drawn."""
    norms = list(norms)
    smoothed = berncert.smooth(scene.network, dim=2, degree=amounts.degree)
    points, labels = scene.data
    zones = berncert.certify(smoothed, points, norm=norms[0])
    drawn = readable_selection(points, labels, zones, norms[0])
    return {
        **_shared(scene),
        "degree": amounts.degree,
        "fresh": len(scene.fresh[1]),
        "accuracy": {
            "training": accuracy(scene.network, scene.data),
            "network": accuracy(scene.network, scene.fresh),
            "smoothed": accuracy(smoothed, scene.fresh),
        },
        "zones": [
            {
                "point": points[row].tolist(),
                "predicted": int(zones.predicted[row]),
                "radius": float(zones.radius[row]),
                "witness": zones.witness[row].tolist(),
            }
            for row in drawn
        ],
        "norms": [_distances(smoothed, scene.fresh[0][: amounts.tests], norm) for norm in norms],
    }


def degrees(amounts: Amounts, scenes: Iterable[Scene]) -> Record:
    """Figure 3: agreement with the network, accuracy and mean radius by degree, for each of the scenes."""
    scenes = list(scenes)
    rows = []
    for scene, degree in shown("degrees", [(scene, degree) for scene in scenes for degree in amounts.degrees]):
        smoothed = berncert.smooth(scene.network, dim=2, degree=degree, points=0)  # a table shows how far it agrees
        proven = berncert.certify(smoothed, scene.fresh[0][: amounts.tests], norm=2)
        rows.append({
            "seed": scene.seed,
            "degree": degree,
            "agreement": float(np.mean(classes(smoothed, scene.fresh[0]) == classes(scene.network, scene.fresh[0]))),
            "accuracy": accuracy(smoothed, scene.fresh),
            "mean_radius": float(proven.radius.mean()),
        })  # fmt: skip
    return {
        **_shared(scenes[0]),
        "degrees": list(amounts.degrees),
        "fresh": amounts.fresh,
        "tests": amounts.tests,
        "networks": [
            {"seed": s.seed, "training": accuracy(s.network, s.data), "accuracy": accuracy(s.network, s.fresh)}
            for s in scenes
        ],
        "rows": rows,
    }


def classes(head: nn.Module, points: Floats) -> Ints:
    with torch.no_grad():
        found: Ints = head(torch.from_numpy(points)).argmax(dim=1).numpy()
    return found


def accuracy(head: nn.Module, data: Data) -> float:
    points, labels = data
    return float(np.mean(classes(head, points) == labels))


def readable_selection(points: Floats, labels: Ints, proven: berncert.Certificates, norm: float) -> list[int]:
    """Rows of correctly classified points whose balls can be seen and do not overlap; middle sizes come first."""
    visible = (proven.radius >= SMALLEST_BALL) & (proven.radius <= LARGEST_BALL)
    rows = np.flatnonzero(visible & (proven.predicted == labels))
    middle = np.sqrt(SMALLEST_BALL * LARGEST_BALL)
    chosen: list[int] = []
    for row in rows[np.argsort(np.abs(np.log(proven.radius[rows] / middle)))]:
        apart = lengths(points[chosen] - points[row], norm) > proven.radius[chosen] + proven.radius[row]
        if apart.all() and len(chosen) < MOST_BALLS:
            chosen.append(int(row))
    return chosen


def _shared(scene: Scene) -> Record:
    """What both pictures draw: the network itself, and the points that it was trained on, to four digits."""
    points, labels = scene.data
    return {
        "seed": scene.seed,
        "network": write_network(scene.network),
        "points": np.round(points, 4).tolist(),
        "labels": labels.tolist(),
    }


def _distances(smoothed: berncert.SmoothedHead, points: Floats, norm: float) -> dict[str, Any]:
    """What is known of each point's distance to the boundary in this norm."""
    proven = berncert.certify(smoothed, points, norm=norm)
    brute_force = BruteForce(smoothed.coefficients.numpy())
    tried = [brute_force.distance(point, norm) for point in shown("brute force", points)]
    estimates = papers_estimates(smoothed, points, norm)
    rows = [
        {
            "point": points[row].tolist(),
            "radius": _finite(proven.radius[row]),
            "upper": _finite(proven.upper[row]),
            "brute_force": _finite(tried[row]),
            "estimates": {solver: _finite(values[row]) for solver, values in estimates.items()},
        }
        for row in range(len(points))
    ]
    return {"norm": f"{norm:g}", "rows": rows}


def papers_estimates(smoothed: berncert.SmoothedHead, points: Floats, norm: float) -> dict[str, Floats]:
    """What the paper takes for the radius, by the name of the solver it chose for the norm, and by its 2-D variant."""
    solvers = ("dogbox" if np.isinf(norm) else "lm", "regularised")
    return {s: berncert.estimate(smoothed, points, solver=s, norm=norm).distance_estimate for s in solvers}


def _finite(value: float) -> float | None:
    """The number, or None where there is none: no point of another class, no root found."""
    return float(value) if math.isfinite(value) else None
