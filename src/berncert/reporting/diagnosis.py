"""`diagnose`: why radii are small, and what would help: the proof beside an attack, taken apart factor by factor."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from berncert.certification.classifier import Classifier
from berncert.certification.exact import ImageProver
from berncert.certification.inputs import checked_images
from berncert.certification.methods import Exact
from berncert.certification.prepared_model import frozen_classifier
from berncert.certification.status import Status
from berncert.extractor.lipschitz import LipschitzRow
from berncert.foundation.arguments import checked_norm
from berncert.foundation.progress import Bar
from berncert.foundation.rounding import ceil_digits, floor_digits, norm_name
from berncert.reporting.explanation.counterexample import nearest_counterexample

MOST_IMAGES = 5
MOST_LAYERS = 2
WORTH_NAMING = 2.0
"""A loss by less than this factor is not what is to blame."""
STRETCHES = 1.25
"""Nor is a layer at which the bound grows by less than this factor."""
SAY_WHY = (Status.WHOLE_CUBE, Status.TIE, Status.EXTRACTION, Status.LEAVES_CUBE, Status.OVERFLOW)
"""Ends that are not about how good the bounds are."""


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
    radius_by_bound: float
    """Proven by the global route alone, from the Lipschitz bound."""
    attacked_estimate: float
    """Where an attack finds another class; inf if it finds none."""
    lipschitz_bound: float
    """Of the extractor, from `norm` of the pixels to the norm of the features that was taken."""
    allowed_slope: float
    """How far features may move for each unit of the pixels, for all that is proven: the distance that they may move
    over the radius. By the global route it is the Lipschitz bound."""
    slope_estimate: float
    """How far features moved for each unit of the pixels, on the way to what the attack found."""
    layers: tuple[LipschitzRow, ...]
    """Those at which the Lipschitz bound grows most, the worst first; none where it hardly grows at any."""
    routes: dict[str, int]
    """How many images each route proved most for."""
    status: Status
    """How most of the proofs ended."""

    @property
    def is_local(self) -> bool:
        """Whether most radii are those of bounds near each image."""
        return self.routes.get("local", 0) > self.images / 2

    @property
    def gap(self) -> float:
        """How many times the proven radius the attack needs: at most so much can be gained without another network."""
        return self.attacked_estimate / self.radius if self.radius > 0 else math.inf

    @property
    def bound_loss(self) -> float:
        """What the bounds of the extractor lose: features move less for the attack than they are allowed to."""
        return self.allowed_slope / self.slope_estimate if self.slope_estimate > 0 else math.inf

    @property
    def head_loss(self) -> float:
        """The rest: in feature space another class is nearer than what the attack found, or in another direction."""
        return self.gap / self.bound_loss

    @property
    def advice(self) -> str:
        """What would help most."""
        if self.status in SAY_WHY:
            return str(self.status)
        if not self.attacked_estimate > 2 * small_radius(self.norm):
            return (
                "the network itself falls to small changes, so no proof can help: train it for robustness, with "
                "berncert.certified_loss or berncert train"
            )
        if self.gap < WORTH_NAMING:
            return "the proof is nearly as good as it can be for this network: only another training helps"
        if self.bound_loss < max(self.head_loss, WORTH_NAMING):
            return (
                "the head is to blame: classes lie closer in feature space than in the pixels; train it with "
                "berncert.certified_loss, or smooth it to another degree (berncert.choose_degree)"
            )
        narrow = "train it through the features that a ball of images reaches (berncert.feature_box)"
        distances = "distance layers (berncert.build('distnet', ...), docs/layers.md)"
        layers = distances if self.norm == math.inf else "layers of norm 1 (berncert.build, docs/layers.md)"
        rebuild = f"{narrow}, or build it of {layers}; both with berncert.certified_loss"
        if self.is_local:
            return f"the bounds near the images are to blame: {rebuild}"
        if self.layers:
            names = " and ".join(row.name for row in self.layers)
            return f"the Lipschitz bound is to blame, which grows most at {names}: {rebuild}"
        return (
            "the bound is to blame, and no layer stretches: the network is less steep here than it may be; train it "
            "for a larger radius, with berncert.certified_loss"
        )

    def __str__(self) -> str:
        found = (
            "finds none" if self.attacked_estimate == math.inf else f"needs {ceil_digits(self.attacked_estimate, 3)}"
        )
        routes = ", ".join(f"{name} {count}" for name, count in self.routes.items())
        bounds = "bounds near the images" if self.is_local else "the Lipschitz bound"
        parts = f"{self.bound_loss:.2g} by {bounds}, {self.head_loss:.2g} by the head"
        gap = f", {self.gap:.2g} times as much ({parts})" if math.isfinite(self.gap) else ""
        radius = f"{norm_name(self.norm)} radius {floor_digits(self.radius, 3)}"
        return (
            f"diagnosis: {radius} proven, an attack {found}{gap}; {self._bound()}; routes: {routes}\n"
            f"what helps: {self.advice}"
        )

    def _bound(self) -> str:
        """The Lipschitz bound, and what it makes of the radius or where it comes from."""
        bound = f"Lipschitz bound {ceil_digits(self.lipschitz_bound, 3)}"
        if self.is_local:
            return f"by the {bound} alone it would be {floor_digits(self.radius_by_bound, 3)}"
        layers = ", ".join(f"{row.name} ({row.layer}) x {ceil_digits(row.growth, 3)}" for row in self.layers)
        seen = f"seen {floor_digits(self.slope_estimate, 3)}" if self.slope_estimate > 0 else "nothing seen"
        return f"{bound}, {seen}, {f'most of it {layers}' if layers else 'no layer stretches'}"


def small_radius(norm: float) -> float:
    """Below this a radius says little of an image with pixels in [0, 1]: 0.1 in l2, 0.01 in l-inf, 1 in l1."""
    return float(10 ** (2 / norm - 2))


def diagnose(model: Classifier, images: Any, *, norm: float = 2, progress: bool | None = None) -> Diagnosis:
    """Why the radii of these images are as small as they are: proofs and attacks of the first few, taken apart.

    The gap between proof and attack is a product: how much farther the bounds let features move than they moved on the
    way to what the attack found, and the rest, which happens in feature space. Printed, it is two lines; nothing of it
    is proven but the radius and the bound.

    Example:
        >>> import torch, berncert
        >>> layers = [torch.nn.Flatten(), torch.nn.Linear(64, 30), torch.nn.ReLU(), torch.nn.Linear(30, 10)]
        >>> network = torch.nn.Sequential(*layers)
        >>> model = berncert.Classifier.of_logits(network, (1, 8, 8))
        >>> diagnosis = berncert.diagnose(model, berncert.data.load("digits", limit=3).images)
        >>> diagnosis.radius <= diagnosis.attacked_estimate, sum(diagnosis.routes.values())
        (True, 3)
    """
    p = checked_norm(norm)
    chosen = checked_images(images)[:MOST_IMAGES].double().cpu()
    if not len(chosen):
        raise ValueError("expected at least one image, got none")
    shape = tuple(chosen.shape[1:])
    prove = ImageProver(Exact(norm=p), model, shape, progress=progress)
    by_bound = prove.by_global(chosen)
    c = prove.by_local(chosen, by_bound)
    exact = frozen_classifier(model, shape, "float64")
    distances, slopes = [], []
    with Bar("attacking", total=len(chosen), progress=progress) as bar:
        for row, image in enumerate(chosen):
            found = nearest_counterexample(exact, image, int(c.predicted[row]), norm=p, progress=False)
            distances.append(math.inf if found is None else found.distance)
            if found is not None:
                moved = exact.extractor(found.image[None]) - exact.extractor(image[None])
                slopes.append(float(torch.linalg.vector_norm(moved, float(c.feature_norm[row]))) / found.distance)
            bar.update(row + 1)
    with np.errstate(all="ignore"):
        allowed = c.in_features.radius / c.radius
    table = exact.lipschitz_table(shape, p)
    steep = sorted((row for row in table if row.growth >= STRETCHES), key=lambda row: -row.growth)[:MOST_LAYERS]
    status, _ = Counter(c.status.tolist()).most_common(1)[0]
    bound = float(np.median(c.lipschitz_bound))
    return Diagnosis(
        norm=p, images=len(chosen), radius=float(np.median(c.radius)),
        radius_by_bound=float(np.median(by_bound.radius)), attacked_estimate=float(np.median(distances)),
        lipschitz_bound=bound, allowed_slope=float(np.median(np.where(np.isfinite(allowed), allowed, bound))),
        slope_estimate=float(np.median(slopes)) if slopes else 0.0, layers=tuple(steep),
        routes=dict(Counter(map(str, c.route))), status=cast(Status, status),
    )  # fmt: skip
