"""The losses of training: cross-entropies of clean, attacked or noisy images, or of the worst case within a radius.

An extractor with Lipschitz constant L maps a ball of radius r in pixel space into a ball of radius L r, the
`feature_radius`, in feature space, both in the norm of the training: the global route. Any other network maps a ball of
l-inf into a box, by intervals through its layers: the local route.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from berncert.attacks.methods import Pgd
from berncert.certification.classifier import Classifier
from berncert.models.heads import AFFINE_HEADS, Head, smoothed
from berncert.polynomial import SumHead
from berncert.polynomial.sampling import evaluating
from berncert.training.certified_loss import enclosed_logits, tempered_cross_entropy, worst_logits
from berncert.training.feature_box import feature_box
from berncert.training.recipes.settings import TrainingSettings

NEWTON_STEPS, BISECTIONS = 5, 30


class BatchLoss(NamedTuple):
    """The loss and the predictions of one batch."""

    loss: Tensor
    correct: Tensor
    """Whether each image, augmented or attacked as it was, is classified correctly."""
    features: Tensor
    head: nn.Module
    proven: Tensor | None = None
    """By the local route: whether each image keeps its class within the radius of this batch."""


def batch_loss(
    settings: TrainingSettings, model: Classifier, images: Tensor, labels: Tensor, radius: float,
    noise: torch.Generator, *, done: float = 0.0,
) -> BatchLoss:  # fmt: skip
    """The loss of a batch; `radius` is in pixel space, as far as its schedule has raised it.

    done: the share of the training that is done.
    """
    with torch.autocast(images.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        if settings.objective == "adversarial" and radius > 0:
            images = attacked_images(settings, model, images, labels, radius, noise)
        elif settings.objective == "gaussian":
            images = images + settings.noise * torch.randn(images.shape, generator=noise).to(images)
        local = settings.objective == "certified" and settings.route == "local"
        box = feature_box(model.extractor, images, radius) if local else None
        features = model.extractor(images) if box is None else box.features
    features, proven = features.float(), None
    head = head_of(model, settings.through)
    if box is not None:
        clean, logits = enclosed_logits(affine_or(head, model), box, labels)
        proven = logits.detach().argmax(dim=1) == labels
    elif settings.objective == "certified":
        reach = feature_radius(model, radius, settings.norm)
        clean, logits = worst_logits(
            features, labels, head, reach, settings.norm, settings.temperature, settings.attack_steps,
            affine=_is_affine(model.head),
        )  # fmt: skip
    else:
        clean = logits = head(features)
    correct = clean.detach().argmax(dim=1) == labels
    loss = tempered_cross_entropy(logits, labels, settings.temperature)
    if settings.loss == "hinge":
        start, end = settings.clean_weight, settings.clean_weight_end
        weight = start * (end / start) ** done
        loss = clipped_hinge(clean, logits, labels)
        loss = loss + weight * F.cross_entropy(clean / settings.temperature, labels)
    if settings.boundary_weight:
        loss = loss - settings.boundary_weight * boundary_term(head, features, labels)
    return BatchLoss(loss, correct, features, head, proven)


def clipped_hinge(clean: Tensor, worst: Tensor, labels: Tensor) -> Tensor:
    """The mean share of the radius that is not proven, 1 - margin / what the margin must be, kept within [0, 1].

    clean, worst: logits of the images, and those with rivals raised by what they can gain on the label's. Of an image
    that is classified wrongly the share is 1 and has no gradient: nothing is spent on what cannot be proven yet (Zhang,
    Jiang, He, Wang, 2022). The cross-entropy of the clean logits, with a weight that falls, wins such images.
    """
    own = labels[:, None]
    lead = clean.gather(1, own) - clean.scatter(1, own, -torch.inf).amax(dim=1, keepdim=True)
    behind = worst.scatter(1, own, -torch.inf).amax(dim=1, keepdim=True) - worst.gather(1, own)
    needed = (lead + behind).detach().clamp_min(1e-6)
    return (behind / needed).clamp(0, 1).mean()


def head_of(model: Classifier, through: str) -> nn.Module:
    """The base head, or its Bernstein polynomial, with gradients to the same parameters."""
    head = model.head
    return smoothed(head, differentiable=True) if through == "smoothed" and isinstance(head, Head) else head


def affine_or(head: nn.Module, model: Classifier) -> nn.Module:
    """The head; of an affine one the affine function, which is enclosed in no time, instead of its coefficients."""
    layer = model.head.affine_layer if isinstance(model.head, Head) else None
    return head if layer is None else SumHead.of_linear(layer, differentiable=True)


def _is_affine(head: nn.Module) -> bool:
    return isinstance(head, Head) and head.description["kind"] in AFFINE_HEADS


def lipschitz_estimate(model: Classifier, norm: float = 2.0) -> float | None:
    """The Lipschitz constant that the extractor's construction aims at in this norm; None if it aims at none."""
    estimate: float | None = getattr(model.extractor, "lipschitz_estimate", None)
    return estimate if getattr(model.extractor, "norm", 2.0) == norm else None


def feature_radius(model: Classifier, radius: float, norm: float = 2.0) -> float:
    """The radius of the ball in feature space that contains the features of a ball of this radius in pixel space."""
    lipschitz = lipschitz_estimate(model, norm)
    own = getattr(model.extractor, "norm", norm)
    if lipschitz is None and own != norm:
        raise ValueError(
            f"expected an extractor that is 1-Lipschitz in the norm of the training, {norm:g}, got one built for norm "
            f"{own:g}; set norm = {own:g}, or choose {'distnet' if norm == math.inf else 'another architecture'}"
        )
    if lipschitz is None:
        raise ValueError(
            "expected an extractor in the lipschitz construction for the certified objective, got one whose constant "
            "is not known while it is trained; set construction='lipschitz', or train with objective='adversarial'"
        )
    return radius * lipschitz


def attacked_images(
    settings: TrainingSettings, model: Classifier, images: Tensor, labels: Tensor, radius: float, noise: torch.Generator
) -> Tensor:
    """Images attacked by PGD in pixel space, in evaluation mode, through the head that the loss uses."""
    seed = int(torch.randint(2**31, (1,), generator=noise))
    attack = Pgd(norm=settings.norm, steps=settings.attack_steps, loss="cross_entropy", seed=seed)
    with evaluating(model):
        with torch.no_grad():
            target = Classifier(model.extractor, head_of(model, settings.through)).eval()
        with parametrize.cached():  # weights are normalised once for all steps
            return attack(target, images, labels, radius, batch_size=len(images), progress=False)


def boundary_term(head: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
    """The paper's F-hat = min over x of phi(x)^2 / 2 + |x0 - x|^2, where phi is the margin over the runner-up.

    It is the mean over the images that are classified correctly. Gauss-Newton finds the minimiser; the derivative of
    F-hat is the one with x held fixed there.
    """
    with torch.no_grad():
        first, second = head(features).topk(2, dim=1).indices.unbind(1)
    correct = first == labels

    def margin(x: Tensor) -> Tensor:
        logits: Tensor = head(x)
        return (logits.gather(1, first[:, None]) - logits.gather(1, second[:, None])).squeeze(1)

    start = features.detach()
    x = start.clone()
    for _ in range(NEWTON_STEPS):
        x = x.requires_grad_()
        value = margin(x)
        (slope,) = torch.autograd.grad(value.sum(), x)
        with torch.no_grad():
            x = _nearest(start, slope, value - (slope * x).sum(dim=1))
    energy = margin(x.detach()).square() / 2 + (features - x.detach()).square().sum(dim=1)
    mean: Tensor = (energy * correct).sum() / correct.sum().clamp_min(1)
    return mean


def _nearest(start: Tensor, slope: Tensor, constant: Tensor) -> Tensor:
    """The minimiser over the cube of (slope x + constant)^2 / 2 + |start - x|^2.

    It is clip(start - t slope) for the t at which slope x + constant = 2 t, by bisection, as the left side falls.
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
def certified_estimate(head: nn.Module, features: Tensor, labels: Tensor, radius: float, norm: float = 2.0) -> Tensor:
    """Whether each image would be certified at this feature radius: exact for affine heads, but for rounding.

    For others it is to first order in l2, and in l-inf a proof, but for rounding, that may miss some.
    """
    return worst_logits(features, labels, head, radius, norm, 1.0, 0)[1].argmax(dim=1) == labels


@torch.no_grad()
def local_estimate(
    model: Classifier, extractor: nn.Module, images: Tensor, labels: Tensor, radius: float
) -> tuple[Tensor, Tensor]:
    """Whether each image is correct, and whether intervals through the extractor prove it but for rounding.

    `certify` proves more: it passes the head's margins back through the network.
    """
    box = feature_box(extractor, images, radius)
    clean, worst = enclosed_logits(affine_or(head_of(model, "smoothed"), model), box, labels)
    return clean.argmax(dim=1) == labels, worst.argmax(dim=1) == labels
