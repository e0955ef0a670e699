"""`diagnose`: why radii are small, and what would help: the proof beside an attack, taken apart factor by factor."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from berncert.certification.classifier import Classifier
from berncert.certification.exact import certify
from berncert.certification.prepared_model import frozen_classifier
from berncert.extractor.lipschitz import LipschitzRow
from berncert.foundation.arguments import checked_norm
from berncert.foundation.rounding import ceil_digits, floor_digits, norm_name
from berncert.reporting.explanation.counterexample import nearest_counterexample

MOST_IMAGES = 5
WORTH_NAMING = 2.0
"""A loss by less than this factor is not what is to blame."""


@dataclass(frozen=True)
class Diagnosis:
    """Medians over a few images; a loss is the factor by which the proof falls behind the attack for one reason.

    Example:
        >>> import berncert
        >>> model, test = berncert.load("digits"), berncert.data.load("digits", limit=2)
        >>> print(str(berncert.diagnose(model, test.images)).splitlines()[0][:29])
        diagnosis: l2 radius 0.772 pr
    """

    norm: float
    images: int
    radius: float
    """Proven."""
    attacked_estimate: float
    """Where an attack finds another class; inf if it finds none."""
    lipschitz_bound: float
    """Of the extractor, from `norm` of the pixels to the norm of the features that was taken."""
    slope_estimate: float
    """How far features moved for each unit of the pixels, on the way to what the attack found."""
    layers: tuple[LipschitzRow, ...]
    """Those that stretch most, the worst first."""
    routes: dict[str, int]
    """How many images each route proved most for."""

    @property
    def gap(self) -> float:
        """How many times the proven radius the attack needs: at most so much can be gained without another network."""
        return self.attacked_estimate / self.radius if self.radius > 0 else math.inf

    @property
    def bound_loss(self) -> float:
        """What the bound loses: it holds everywhere, and the network is nowhere as steep on the way."""
        return self.lipschitz_bound / self.slope_estimate if self.slope_estimate > 0 else math.inf

    @property
    def head_loss(self) -> float:
        """The rest: in feature space another class is nearer than what the attack found, or in another direction."""
        return self.gap / self.bound_loss

    @property
    def advice(self) -> str:
        """What would help most."""
        if not self.attacked_estimate > 2 * small_radius(self.norm):
            return (
                "the network itself falls to small changes, so no proof can help: train it for robustness, with "
                "berncert.certified_loss or berncert train"
            )
        if self.gap < WORTH_NAMING:
            return "the proof is nearly as good as it can be for this network: only another training helps"
        if self.bound_loss >= max(self.head_loss, WORTH_NAMING):
            names = " and ".join(row.name for row in self.layers)
            return (
                f"the bound is to blame ({names} most): train with berncert.certified_loss, which keeps it down, or "
                "build the network 1-Lipschitz (berncert.build, docs/layers.md)"
            )
        return (
            "the head is to blame: classes lie closer in feature space than in the pixels; train it with "
            "berncert.certified_loss, or smooth it to another degree (berncert.choose_degree)"
        )

    def __str__(self) -> str:
        found = (
            "finds none" if self.attacked_estimate == math.inf else f"needs {ceil_digits(self.attacked_estimate, 3)}"
        )
        layers = ", ".join(f"{row.name} ({row.layer}) x {ceil_digits(row.factor, 3)}" for row in self.layers)
        routes = ", ".join(f"{name} {count}" for name, count in self.routes.items())
        parts = f"{self.bound_loss:.2g} by the bound, {self.head_loss:.2g} by the head"
        gap = f", {self.gap:.2g} times as much ({parts})" if math.isfinite(self.gap) else ""
        bound = f"proven {ceil_digits(self.lipschitz_bound, 3)}, seen {floor_digits(self.slope_estimate, 3)}"
        radius = f"{norm_name(self.norm)} radius {floor_digits(self.radius, 3)}"
        return (
            f"diagnosis: {radius} proven, an attack {found}{gap}; Lipschitz bound {bound}, most of it {layers}; "
            f"routes: {routes}\nwhat helps: {self.advice}"
        )


def small_radius(norm: float) -> float:
    """Below this a radius says little of an image with pixels in [0, 1]: 0.1 in l2, 0.01 in l-inf, 1 in l1."""
    return float(10 ** (2 / norm - 2))


def diagnose(model: Classifier, images: Any, *, norm: float = 2, progress: bool | None = None) -> Diagnosis:
    """Why the radii of these images are as small as they are: proofs and attacks of the first few, taken apart.

    The gap between proof and attack is a product: how much steeper the proven bound is than the network was on the way
    to what the attack found, and the rest, which happens in feature space. Printed, it is two lines; nothing of it is
    proven but the radius and the bound.

    Example:
        >>> import torch, berncert
        >>> layers = [torch.nn.Flatten(), torch.nn.Linear(64, 30), torch.nn.ReLU(), torch.nn.Linear(30, 10)]
        >>> network = torch.nn.Sequential(*layers)
        >>> model = berncert.Classifier.of_logits(network, (1, 8, 8))
        >>> diagnosis = berncert.diagnose(model, berncert.data.load("digits", limit=3).images)
        >>> diagnosis.radius <= diagnosis.attacked_estimate, len(diagnosis.layers)
        (True, 2)
    """
    p = checked_norm(norm)
    chosen = torch.as_tensor(images)[:MOST_IMAGES].double()
    if not len(chosen):
        raise ValueError("expected at least one image, got none")
    shape = tuple(chosen.shape[1:])
    exact = frozen_classifier(model, shape, "float64")
    c = certify(exact, chosen, norm=p, progress=progress)
    distances, slopes = [], []
    for image, row in zip(chosen, range(len(chosen)), strict=True):
        found = nearest_counterexample(exact, image, int(c.predicted[row]), norm=p, progress=False)
        distances.append(math.inf if found is None else found.distance)
        if found is not None:
            moved = exact.extractor(found.image[None]) - exact.extractor(image[None])
            slopes.append(float(torch.linalg.vector_norm(moved, float(c.feature_norm[row]))) / found.distance)
    table = exact.lipschitz_table(shape, p)
    steep = sorted((row for row in table if row.factor > 1), key=lambda row: -row.factor)[:2]
    routes = Counter(str(getattr(route, "name", route)).lower() for route in getattr(c, "route", ["global"] * len(c)))
    return Diagnosis(
        norm=p, images=len(chosen), radius=float(np.median(c.radius)), attacked_estimate=float(np.median(distances)),
        lipschitz_bound=float(np.median(c.lipschitz_bound)), slope_estimate=float(np.median(slopes)) if slopes else 0.0,
        layers=tuple(steep), routes=dict(routes),
    )  # fmt: skip
