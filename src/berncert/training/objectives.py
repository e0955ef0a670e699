"""What training makes small: cross-entropies of clean, attacked or noisy images, or of what an attacker could reach.

Radii are in the units of the pixels. An extractor with Lipschitz constant L takes a ball of radius r into one of radius
`reach` = L r in feature space, so that there the worst case is found by calculus on a polynomial in few variables.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from berncert.attacks.methods import Pgd
from berncert.certification.classifier import Classifier
from berncert.models.heads import Head, smoothed
from berncert.polynomial import SmoothedHead
from berncert.polynomial.head import evaluating
from berncert.training.recipes.settings import TrainingSettings

NEWTON_STEPS, BISECTIONS = 5, 30


class Outcome(NamedTuple):
    """Of one batch."""

    loss: Tensor
    right: Tensor
    """Whether each image gets its class, as it came into the network."""
    features: Tensor
    head: nn.Module


def outcome(
    settings: TrainingSettings, model: Classifier, images: Tensor, labels: Tensor, radius: float, noise: torch.Generator
) -> Outcome:
    """The loss of this batch for the radius that the schedule has come to."""
    if settings.objective == "adversarial" and radius > 0:
        images = attacked_images(settings, model, images, labels, radius, noise)
    elif settings.objective == "gaussian":
        images = images + settings.noise * torch.randn(images.shape, generator=noise).to(images)
    with torch.autocast(images.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        features = model.extractor(images)
    features = features.float()
    head = head_of(model, settings.through)
    if settings.objective != "certified":
        clean = logits = head(features)
    elif settings.attack_steps:
        clean = logits = head(attacked_features(head, features, labels, reach_of(model, radius), settings))
    else:
        clean, logits = raised_logits(head, features, labels, reach_of(model, radius))
    right = clean.detach().argmax(dim=1) == labels
    loss = F.cross_entropy(logits / settings.temperature, labels) * settings.temperature
    if settings.boundary_weight:
        loss = loss - settings.boundary_weight * boundary_term(head, features, labels)
    return Outcome(loss, right, features, head)


def head_of(model: Classifier, through: str) -> nn.Module:
    """The base head, or the polynomial in its place, with gradients to the same parameters."""
    head = model.head
    return smoothed(head, differentiable=True) if through == "smoothed" and isinstance(head, Head) else head


def stretch_of(model: Classifier) -> float | None:
    """How far features move at most when pixels move by 1: what the construction aims at, None if at nothing."""
    estimate: float | None = getattr(model.extractor, "lipschitz_estimate", None)
    return estimate


def reach_of(model: Classifier, radius: float) -> float:
    """How far features move at most when pixels move by the radius."""
    stretch = stretch_of(model)
    if stretch is None:
        raise ValueError(
            "expected an extractor in the lipschitz construction for the certified objective, got one whose constant "
            "is not known while it is trained; set construction='lipschitz', or train with objective='adversarial'"
        )
    return radius * stretch


def raised_logits(head: nn.Module, features: Tensor, labels: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """The logits, and the same with each rival's raised by what it gains on the label's within `reach`, to first order.

    For affine heads this is the worst case of each rival exactly (but for the walls of the cube, where it is more), so
    that the label's is still the largest if and only if the class is proven.
    """
    logits, slopes = _smooth(head).linearise(features)
    own = slopes.gather(1, labels[:, None, None].expand(-1, 1, slopes.shape[2]))
    gains: Tensor = torch.linalg.vector_norm(slopes - own, dim=2)
    return logits, logits + reach * gains


def _smooth(head: nn.Module) -> SmoothedHead:
    if not isinstance(head, SmoothedHead):
        raise TypeError(f"expected a smoothed head, got {type(head).__name__}; set through='smoothed'")
    return head


def attacked_features(
    head: nn.Module, features: Tensor, labels: Tensor, reach: float, settings: TrainingSettings
) -> Tensor:
    """Features moved by gradient ascent on the loss, by at most `reach` in l2 and within the cube."""
    start = features.detach()
    fixed = SmoothedHead(_smooth(head).coefficients.detach())
    moved, step = start, 2.0 * reach / settings.attack_steps
    for _ in range(settings.attack_steps):
        logits, slopes = fixed.linearise(moved)
        pull = (logits / settings.temperature).softmax(dim=1) - F.one_hot(labels, logits.shape[1])
        slope = torch.einsum("nk,nkd->nd", pull, slopes)  # of the cross-entropy, up to a factor
        offset = moved + step * F.normalize(slope, dim=1) - start
        length: Tensor = torch.linalg.vector_norm(offset, dim=1, keepdim=True)
        moved = (start + offset * (reach / length.clamp_min(1e-12)).clamp(max=1)).clamp(0, 1)
    return features + (moved - start)


def attacked_images(
    settings: TrainingSettings, model: Classifier, images: Tensor, labels: Tensor, radius: float, noise: torch.Generator
) -> Tensor:
    """PGD in pixel space, in evaluation mode, on the head that the loss is taken of."""
    seed = int(torch.randint(2**31, (1,), generator=noise))
    attack = Pgd(steps=settings.attack_steps, loss="cross_entropy", seed=seed)
    with evaluating(model):
        with torch.no_grad():
            target = Classifier(model.extractor, head_of(model, settings.through)).eval()
        with parametrize.cached():  # weights are normalised once for all steps
            return attack(target, images, labels, radius, batch_size=len(images), progress=False)


def boundary_term(head: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    """The paper's F-hat = min over x of phi(x)^2 / 2 + |x0 - x|^2, phi the lead over the runner-up; mean of right rows.

    Gauss-Newton finds the minimiser; there the derivative is that of F-hat with x held fixed.
    """
    with torch.no_grad():
        first, second = head(features).topk(2, dim=1).indices.unbind(1)
    right = first == labels

    def lead(x: Tensor) -> Tensor:
        logits: Tensor = head(x)
        return (logits.gather(1, first[:, None]) - logits.gather(1, second[:, None])).squeeze(1)

    start = features.detach()
    x = start.clone()
    for _ in range(NEWTON_STEPS):
        x = x.requires_grad_()
        value = lead(x)
        (slope,) = torch.autograd.grad(value.sum(), x)
        with torch.no_grad():
            x = _nearest(start, slope, value - (slope * x).sum(dim=1))
    energy = lead(x.detach()).square() / 2 + (features - x.detach()).square().sum(dim=1)
    mean: Tensor = (energy * right).sum() / right.sum().clamp_min(1)
    return mean


def _nearest(start: Tensor, slope: Tensor, constant: Tensor) -> Tensor:
    """The minimiser over the cube of (slope x + constant)^2 / 2 + |start - x|^2.

    It is clip(start - t slope) for the t at which slope x + constant = 2 t, found by halving: the left side falls in t.
    """

    def moved(t: Tensor) -> Tensor:
        return (start - t[:, None] * slope).clamp(0, 1)

    ahead = (slope * start).sum(dim=1) + constant
    low, high = (ahead / 2).clamp(max=0), (ahead / 2).clamp(min=0)
    for _ in range(BISECTIONS):
        t = (low + high) / 2
        below = (slope * moved(t)).sum(dim=1) + constant > 2 * t
        low, high = torch.where(below, t, low), torch.where(below, high, t)
    return moved((low + high) / 2)


@torch.no_grad()
def proven_estimate(head: nn.Module, features: Tensor, labels: Tensor, reach: float) -> Tensor:
    """Whether each image would be certified at this reach, to first order: an estimate, exact for affine heads."""
    return raised_logits(head, features, labels, reach)[1].argmax(dim=1) == labels
