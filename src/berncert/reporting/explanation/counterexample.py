"""The nearest image of another class that an attack finds: no proof can give a larger radius."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from berncert.attacks.methods import Pgd
from berncert.certification.classifier import Classifier
from berncert.foundation.arrays import Floats
from berncert.polynomial import PolynomialHead

TRIES, STEPS = 8, 30  # radii at once, steps at each
NEAREST = 2.0**-10  # of the distance to the farthest image: where to begin if nothing is known
LARGE_HEAD = 1 << 20  # coefficients; with more, a third of the steps must do
HALVINGS = 20  # then the margin is small, and still far more than rounding


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An image of another class: the true distance is at most its own."""

    image: Tensor
    """The image, in float64."""
    distance: float
    predicted: int


def nearest_counterexample(
    model: Classifier, image: Tensor, predicted: int, *, norm: float, least: float = 0.0, progress: bool | None = None
) -> Counterexample | None:
    """The nearest image that projected gradient ascent finds; None if it finds none.

    Its pixels are in [0, 1], or between the least and the greatest of the image where these are beyond.

    Growing radii are tried, some at once, and once more below the first that succeeds; what is found is drawn back
    towards the image as far as it keeps its other class. Norms that have no attack of their own take that of l2. The
    model is used as it is, in float64; `least` is a distance within which there is nothing to be found.
    """
    x = image.double()
    pixels = min(0.0, float(x.min())), max(1.0, float(x.max()))
    is_large = isinstance(model.head, PolynomialHead) and model.head.numbers > LARGE_HEAD
    attack = Pgd(norm=norm if norm in (2, math.inf) else 2, steps=STEPS // 3 if is_large else STEPS, pixels=pixels)

    def found_at(radii: Floats) -> dict[float, Counterexample]:
        batch, labels = x.expand(len(radii), *x.shape), torch.full((len(radii),), predicted)
        tried = attack(model, batch, labels, torch.from_numpy(radii), progress=progress)
        fell = _classes(model, tried) != predicted
        if not fell.any():
            return {}
        nearer = _drawn_back(model, x, tried[fell], predicted)
        lengths = np.linalg.norm((nearer - x).flatten(1).numpy(), ord=norm, axis=1).tolist()
        found = map(Counterexample, nearer, lengths, _classes(model, nearer).tolist())
        return dict(zip(radii[fell.numpy()].tolist(), found, strict=True))

    far = float(torch.maximum(x - pixels[0], pixels[1] - x).flatten().norm(p=attack.norm))  # no image is farther
    low = min(max(least if attack.norm == norm else 0.0, far * NEAREST), far)
    found: dict[float, Counterexample] = {}
    for high in (min(16 * low, far), far):
        if not found:
            radii = np.geomspace(low, high, TRIES)
            found, low = found_at(radii), high
    if not found:
        return None
    first = min(found)
    below = max(radii[radii < first], default=0.0)  # among the last radii tried
    found |= found_at(np.linspace(below, first, TRIES + 1)[1:-1])
    return min(found.values(), key=lambda one: one.distance)


def _drawn_back(model: Classifier, x: Tensor, moved: Tensor, predicted: int) -> Tensor:
    """Points of another class just behind the boundary, between x and each of these, by halving."""
    low, high = (torch.full((len(moved), *(1,) * x.ndim), share, dtype=x.dtype) for share in (0.0, 1.0))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        same = (_classes(model, x + middle * (moved - x)) == predicted).view_as(middle)
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    return x + high * (moved - x)


@torch.no_grad()
def _classes(model: Classifier, images: Tensor) -> Tensor:
    classes: Tensor = model(images).argmax(dim=1)
    return classes
