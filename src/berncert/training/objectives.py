"""The losses of training: cross-entropies of clean, attacked or noisy images, or of the worst case within a radius.

An extractor with Lipschitz constant L maps a ball of radius r in pixel space into a ball of radius L r, the
`feature_radius`, in feature space, both in the norm of the training. There the worst case is found by calculus on a
polynomial in few variables.
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
from berncert.models.heads import Head, smoothed
from berncert.polynomial import SmoothedHead
from berncert.polynomial.bernstein import restrict_rows
from berncert.polynomial.head import evaluating
from berncert.training.recipes.settings import TrainingSettings

NEWTON_STEPS, BISECTIONS = 5, 30


class BatchLoss(NamedTuple):
    """The loss and the predictions of one batch."""

    loss: Tensor
    correct: Tensor
    """Whether each image, augmented or attacked as it was, is classified correctly."""
    features: Tensor
    head: nn.Module


def batch_loss(
    settings: TrainingSettings, model: Classifier, images: Tensor, labels: Tensor, radius: float, noise: torch.Generator
) -> BatchLoss:
    """The loss of a batch; `radius` is in pixel space, as far as its schedule has raised it."""
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
        reach = feature_radius(model, radius, settings.norm)
        clean = logits = head(attacked_features(head, features, labels, reach, settings))
    else:
        reach = feature_radius(model, radius, settings.norm)
        boxed = settings.norm == math.inf and not _is_affine(model)
        clean, logits = (
            enclosed_logits(head, features, labels, reach)
            if boxed
            else raised_logits(head, features, labels, reach, settings.norm)
        )
    correct = clean.detach().argmax(dim=1) == labels
    loss = F.cross_entropy(logits / settings.temperature, labels) * settings.temperature
    if settings.boundary_weight:
        loss = loss - settings.boundary_weight * boundary_term(head, features, labels)
    return BatchLoss(loss, correct, features, head)


def head_of(model: Classifier, through: str) -> nn.Module:
    """The base head, or its Bernstein polynomial, with gradients to the same parameters."""
    head = model.head
    return smoothed(head, differentiable=True) if through == "smoothed" and isinstance(head, Head) else head


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


def raised_logits(
    head: nn.Module, features: Tensor, labels: Tensor, radius: float, norm: float = 2.0
) -> tuple[Tensor, Tensor]:
    """The logits, and those with each rival's raised by the most it gains on the label's within the feature radius.

    The gain is computed to first order: the radius times the dual norm (2, or 1 of inf) of the difference in slope. For
    affine heads it is exactly the worst case of each rival (near the walls of the cube it is more), so that the label's
    logit is still the largest if and only if the class is proven.
    """
    logits, slopes = _require_smoothed(head).linearise(features)
    own = slopes.gather(1, labels[:, None, None].expand(-1, 1, slopes.shape[2]))
    gains: Tensor = torch.linalg.vector_norm(slopes - own, 1 if norm == math.inf else 2, dim=2)
    return logits, logits + radius * gains


def enclosed_logits(head: nn.Module, features: Tensor, labels: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """The logits, and those with each rival's raised to where it can get, at most, in a box around the features.

    The ball of l-inf is a box, and no polynomial exceeds its greatest Bernstein coefficient there. So the label's logit
    is still the largest only if the class holds in the whole box, for every head; affine ones attain the bound.
    """
    smoothed_head = _require_smoothed(head)
    lower, upper = (features - radius).clamp(0, 1), (features + radius).clamp(0, 1)
    on_box = restrict_rows(smoothed_head.coefficients, lower, upper).flatten(2)
    own = on_box.gather(1, labels[:, None, None].expand(-1, 1, on_box.shape[2]))
    logits: Tensor = smoothed_head(features)
    return logits, logits.gather(1, labels[:, None]) + (on_box - own).amax(dim=2)


def _is_affine(model: Classifier) -> bool:
    """Whether first order is all there is to the head, so that `raised_logits` is exact, and cheaper."""
    return isinstance(model.head, Head) and model.head.description["kind"] in ("identity", "affine")


def _require_smoothed(head: nn.Module) -> SmoothedHead:
    if not isinstance(head, SmoothedHead):
        raise TypeError(f"expected a smoothed head, got {type(head).__name__}; set through='smoothed'")
    return head


def attacked_features(
    head: nn.Module, features: Tensor, labels: Tensor, radius: float, settings: TrainingSettings
) -> Tensor:
    """Features moved by gradient ascent on the loss, within the cube and the feature radius in the training's norm."""
    start = features.detach()
    fixed = SmoothedHead(_require_smoothed(head).coefficients.detach())
    moved, step = start, 2.0 * radius / settings.attack_steps
    for _ in range(settings.attack_steps):
        logits, slopes = fixed.linearise(moved)
        pull = (logits / settings.temperature).softmax(dim=1) - F.one_hot(labels, logits.shape[1])
        slope = torch.einsum("nk,nkd->nd", pull, slopes)  # of the cross-entropy, up to a factor
        moved = (start + _ascent(moved - start, slope, step, radius, settings.norm)).clamp(0, 1)
    return features + (moved - start)


def _ascent(offset: Tensor, slope: Tensor, step: float, radius: float, norm: float) -> Tensor:
    """The offset after the steepest step of this length in the norm, back in the ball of that radius."""
    if norm == math.inf:
        return (offset + step * slope.sign()).clamp(-radius, radius)
    offset = offset + step * F.normalize(slope, dim=1)
    length: Tensor = torch.linalg.vector_norm(offset, dim=1, keepdim=True)
    return offset * (radius / length.clamp_min(1e-12)).clamp(max=1)


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
    boxed = norm == math.inf
    worst = enclosed_logits(head, features, labels, radius) if boxed else raised_logits(head, features, labels, radius)
    return worst[1].argmax(dim=1) == labels
