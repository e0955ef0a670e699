"""The work of gradient attacks. What they break bounds from above what any certificate can prove."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berncert.attacks.methods import Fgsm, Pgd
from berncert.certification.classifier import Classifier
from berncert.certification.inputs import checked_images, placement
from berncert.certification.methods import Batch
from berncert.certification.prepared_model import frozen_classifier
from berncert.certification.results import AttackResults
from berncert.extractor.evaluation import require_evaluation
from berncert.foundation.arguments import checked_count
from berncert.foundation.progress import Bar

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, labels) -> one number for each image, which the attack makes large."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """What training makes small. Of small logits, as 1-Lipschitz networks have, it pulls towards all rivals at once."""
    return F.cross_entropy(logits, labels, reduction="none")


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The best rival's logit minus the label's: positive exactly when the class is wrong; it never saturates."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    return logits.scatter(1, labels[:, None], -math.inf).amax(dim=1) - own


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "margin": margin}


def attacked_images(
    attack: Pgd | Fgsm,
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    radius: float | Tensor,
    *,
    numbers: Tensor | None = None,
    batch_size: int = 256,
    progress: bool | None = None,
) -> Tensor:
    """What `Attack` says it returns when it is called."""
    images, labels = _checked(model, images, labels, attack.pixels)
    radii = _checked_radii(radius, len(images)).to(images)
    if not len(images):
        return images.clone()
    places = torch.arange(len(images)) if numbers is None else numbers
    found: list[Tensor] = []
    with _frozen(model), Bar("attacking", total=len(images), progress=progress) as bar:
        for rows in torch.split(torch.arange(len(images)), checked_count("batch_size", batch_size)):
            found.append(_ascend(attack, model, images[rows], labels[rows], radii[rows], places[rows]))
            bar.update(int(rows[-1]) + 1)
    return torch.cat(found)


def _ascend(
    attack: Pgd | Fgsm, model: nn.Module, images: Tensor, labels: Tensor, radii: Tensor, places: Tensor
) -> Tensor:
    """Of all images on the way of the ascent, from every start, the best for each image."""
    best, score = images.clone(), torch.full((len(images),), -math.inf, dtype=torch.float64, device=images.device)
    ball = radii.view(-1, *(1,) * (images.ndim - 1))
    step = ball * (2.5 / attack.steps if attack.step_size is None else attack.step_size)
    for restart in range(attack.restarts):
        start = _start(attack, images, places, restart) * ball if attack.random_start else torch.zeros_like(images)
        x = _inside(attack, images, start, ball)
        for _ in range(attack.steps):
            x = x.detach().requires_grad_()
            logits = _logits(model, x, labels)
            losses = LOSSES[attack.loss](logits, labels)
            _keep(best, score, x, logits, losses, labels)
            (slope,) = torch.autograd.grad(losses.sum(), x)
            x = _inside(attack, images, x.detach() + step * _direction(attack, slope) - images, ball)
        with torch.no_grad():
            logits = _logits(model, x, labels)
            _keep(best, score, x, logits, LOSSES[attack.loss](logits, labels), labels)
    return best


def _start(attack: Pgd | Fgsm, images: Tensor, places: Tensor, restart: int) -> Tensor:
    """A random point of the unit ball for each image, which depends on its number only."""
    starts = []
    for place in places.tolist():
        generator = torch.Generator().manual_seed((attack.seed * 1009 + restart) * 1_000_003 + place)
        if attack.norm == 2:
            point = torch.randn(images.shape[1:], generator=generator, dtype=torch.float64)
            share = torch.rand((), generator=generator, dtype=torch.float64) ** (1 / point.numel())
            starts.append(point / point.norm().clamp_min(1e-300) * share)
        else:
            starts.append(torch.rand(images.shape[1:], generator=generator, dtype=torch.float64) * 2 - 1)
    return torch.stack(starts).to(images)


def _inside(attack: Pgd | Fgsm, images: Tensor, offset: Tensor, ball: Tensor) -> Tensor:
    """The nearest offset within the ball, then the nearest pixels within their range."""
    if attack.norm == 2:
        length = offset.flatten(1).norm(dim=1).view_as(ball)
        offset = offset * (ball / length.clamp_min(1e-30)).clamp(max=1)
    else:
        offset = torch.clamp(offset, -ball, ball)
    return torch.clamp(images + offset, *attack.pixels)


def _direction(attack: Pgd | Fgsm, slope: Tensor) -> Tensor:
    if attack.norm == math.inf:
        return slope.sign()
    length: Tensor = torch.linalg.vector_norm(slope.flatten(1), dim=1)
    return slope / length.view(-1, *(1,) * (slope.ndim - 1)).clamp_min(1e-30)


def _keep(best: Tensor, score: Tensor, x: Tensor, logits: Tensor, losses: Tensor, labels: Tensor) -> None:
    """Of all images seen, one that is wrong comes before one with a greater loss."""
    with torch.no_grad():
        wrong = logits.argmax(dim=1) != labels
        rank = torch.sigmoid(losses.double() / 100) + wrong.double()
        better = rank > score
        best[better] = x.detach()[better]
        score[better] = rank[better]


def fallen_at(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    radii: Sequence[float],
    attack: Pgd | Fgsm,
    *,
    numbers: Sequence[int] | None = None,
    batch_size: int = 256,
    progress: bool | None = None,
) -> Tensor:
    """For each image the least of the radii at which it falls: 0 if its class is wrong as it is, inf if it stands.

    An image that falls is not attacked again: what breaks it at one radius breaks it at all larger ones. `numbers` are
    those of the images, for the random starts; by default their places.
    """
    images, labels = _checked(model, images, labels, attack.pixels)
    for radius in radii:
        _checked_radii(radius, len(images))
    places = torch.arange(len(images)) if numbers is None else torch.as_tensor(numbers)
    fallen = torch.where(_correct(model, images, labels, batch_size), math.inf, 0.0).double()
    for radius in sorted(radius for radius in radii if radius > 0):
        rows = (fallen == math.inf).nonzero().flatten()
        if len(rows):
            moved = attack(
                model, images[rows], labels[rows], radius,
                numbers=places[rows.cpu()], batch_size=batch_size, progress=progress,
            )  # fmt: skip
            broken = ~_correct(model, moved, labels[rows], batch_size)
            fallen[rows[broken]] = radius
    return fallen


class Attacker:
    """An attack, prepared: it breaks the frozen model in float64, which is what is certified."""

    def __init__(
        self,
        attack: Pgd | Fgsm,
        model: Classifier,
        input_shape: Sequence[int],
        *,
        threads: int | None = None,
        batch_size: int = 256,
        progress: bool | None = None,
    ) -> None:
        self.attack, self.progress, self.batch_size = attack, progress, checked_count("batch_size", batch_size)
        self.model = frozen_classifier(model, input_shape, "float64")

    def __call__(self, batch: Batch) -> AttackResults:
        """The class of each image, and the least of the attack's radii at which it falls."""
        if batch.labels is None:
            raise ValueError("expected a batch with labels, got none; an attack starts from the correct class")
        like = placement(self.model)
        images, labels = checked_images(batch.images).to(like), torch.as_tensor(batch.labels).to(like.device)
        if not len(images):
            return AttackResults(np.zeros(0, np.int64), np.zeros(0))
        fallen = fallen_at(
            self.model, images, labels, self.attack.radii, self.attack,
            numbers=batch.numbers, batch_size=self.batch_size, progress=self.progress,
        )  # fmt: skip
        with torch.no_grad():
            predicted = self.model(images).argmax(dim=1)
        return AttackResults(predicted.cpu().numpy(), fallen.cpu().numpy())


def _checked(model: nn.Module, images: Any, labels: Any, pixels: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """The images, within their range, and one label for each; what cannot be attacked is an error."""
    require_evaluation(model)
    x, y = checked_images(images), torch.as_tensor(labels)
    low, high = pixels
    if not ((x >= low) & (x <= high)).all():  # NaN is in no interval
        raise ValueError(
            f"expected pixels in [{low:g}, {high:g}], got {x.min():g} to {x.max():g}; scale the images, or give "
            "the attack their range, Pgd(pixels=(low, high))"
        )
    if y.shape != x.shape[:1]:
        raise ValueError(
            f"expected one label for each of {len(x)} images, got shape {tuple(y.shape)}; write labels.argmax(1) for "
            "one-hot rows"
        )
    if y.dtype == torch.bool or y.is_floating_point() or y.is_complex() or (y < 0).any():
        raise ValueError(f"expected labels that are whole numbers >= 0, got {y}; write labels.long() if they are")
    return x, y.to(x.device, torch.long)


def _checked_radii(radius: Any, count: int) -> Tensor:
    """A radius for each of so many images, finite and >= 0; anything else is a ValueError."""
    radii = torch.as_tensor(radius, dtype=torch.float64)
    if radii.shape not in ((), (count,)) or not ((radii >= 0) & (radii < math.inf)).all():
        raise ValueError(f"expected finite radii >= 0, one for all {count} images or one for each, got {radius!r}")
    return radii.expand(count)


def _logits(model: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    """The model's logits; if they are no numbers, or have no place for some label, an error."""
    logits: Tensor = model(x)
    if logits.ndim != 2 or len(logits) != len(x) or not logits.shape[1] > max(1, int(labels.max())):
        raise ValueError(
            f"expected a model that gives (N, K) logits, K >= 2, for labels 0 to K - 1, got shape "
            f"{tuple(logits.shape)} for {len(x)} images with labels up to {labels.max()}"
        )
    if logits.isnan().any():
        raise FloatingPointError("expected logits that are numbers, got NaN; train with a smaller lr, or in float32")
    return logits


@torch.no_grad()
def _correct(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int) -> Tensor:
    """Whether each image gets its label."""
    size = checked_count("batch_size", batch_size)
    parts = zip(torch.split(images, size), torch.split(labels, size), strict=True)
    return torch.cat([_logits(model, x, y).argmax(dim=1) == y for x, y in parts])


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """No gradients for the parameters while the pixels' are taken, even where the caller wants none at all."""
    wanted = [(p, p.requires_grad) for p in model.parameters()]
    try:
        for p, _ in wanted:
            p.requires_grad_(False)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for p, want in wanted:
            p.requires_grad_(want)
