"""The two attacks: PGD of this package, and AutoAttack's standard set of a peer package; both give images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor, nn

import berncert
from berncert.certification.classifier import Classifier
from berncert.foundation.arrays import Flags

PGD_STEPS, PGD_RESTARTS = 50, 5
AUTOATTACK_BATCH = 250
NAMES = {2.0: "L2", math.inf: "Linf"}


def pgd(model: Classifier, images: Tensor, labels: Tensor, radius: float, norm: float) -> Tensor:
    """Projected gradient ascent on the margin, from several random starts."""
    attack = berncert.Pgd(norm=norm, steps=PGD_STEPS, restarts=PGD_RESTARTS, loss="margin")
    return attack(model.double(), images.double(), labels, radius, progress=False)


def autoattack(model: Classifier, images: Tensor, labels: Tensor, radius: float, norm: float) -> Tensor:
    """APGD-CE, targeted APGD-DLR, targeted FAB and Square, each on the images that stood those before, in float32."""
    from pyautoattack import AutoAttack  # type: ignore[import-not-found]  # for experiments only

    wrapped = Float32Logits(model.float())
    attack = AutoAttack(wrapped, norm=NAMES[norm], eps=radius, version="standard", device="cpu", seed=0)
    found: Tensor = attack.run_standard_evaluation(images.float(), labels, batch_size=AUTOATTACK_BATCH)[0]
    return found


class Float32Logits(nn.Module):
    """The model with its logits in the dtype of the images: a smoothed head computes in its own."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images).float()
        return logits


ATTACKS: Mapping[str, Callable[[Classifier, Tensor, Tensor, float, float], Tensor]] = {
    "pgd": pgd,
    "autoattack": autoattack,
}
"""The name of each attack -> its images for a model, images, labels, a radius and a norm."""


def settings() -> dict[str, str]:
    """What was run, for the record."""
    return {
        "pgd": f"margin loss, {PGD_STEPS} steps, {PGD_RESTARTS} random starts, float64",
        "autoattack": f"standard set (APGD-CE, APGD-T, FAB-T, Square), float32, pyautoattack {version('pyautoattack')}",
    }


@torch.no_grad()
def fallen(
    model: Classifier, images: Tensor, labels: Tensor, found: Tensor, radius: float, norm: float
) -> tuple[Flags, Tensor]:
    """Where the found images are misclassified in float64, which is what is proven, and how far away they are.

    They are first pulled back into the ball and the pixels' range, out of which rounding may have taken them.
    """
    start = images.double()
    offset = (found.double() - start).flatten(1)
    length = torch.linalg.vector_norm(offset, ord=norm, dim=1, keepdim=True)
    offset = offset * (radius * (1 - 1e-12) / length.clamp_min(1e-300)).clamp(max=1)
    moved = (start + offset.view_as(start)).clamp(0, 1)
    distance = torch.linalg.vector_norm((moved - start).flatten(1), ord=norm, dim=1)
    wrong = np.asarray(model.double()(moved).argmax(dim=1) != labels)
    return wrong, distance
