"""Attacks: FGSM and PGD in l2 and l-inf. What they break bounds from above what any certificate can prove."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berncert.progress import Bar

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, labels) -> one number for each image, which the attack makes large."""


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """What training makes small."""
    return F.cross_entropy(logits, labels, reduction="none")


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The best rival's logit minus the label's: positive exactly when the class is wrong; it never saturates."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    return logits.scatter(1, labels[:, None], -math.inf).amax(dim=1) - own


LOSSES: dict[str, Loss] = {"cross_entropy": cross_entropy, "margin": margin}


@dataclass(frozen=True)
class Attack:
    """Projected gradient ascent within a ball around each image, and within the pixels' range.

    As it stands this is PGD; `fgsm` is one step of the size of the radius from the image itself.
    """

    norm: float = 2
    steps: int = 20
    restarts: int = 1
    step_size: float | None = None
    """Of one step, as a share of the radius; None takes 2.5 / steps."""
    random_start: bool = True
    loss: str = "cross_entropy"
    pixels: tuple[float, float] = (0.0, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.norm not in (2, math.inf):
            raise ValueError(f"expected norm 2 or inf for an attack, got {self.norm!r}")
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} >= 1, got {getattr(self, name)}")
        if self.loss not in LOSSES:
            raise ValueError(f"expected a loss among {', '.join(LOSSES)}, got {self.loss!r}")

    def __call__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        radius: float | Tensor,
        *,
        batch_size: int = 256,
        progress: bool | None = None,
    ) -> Tensor:
        """For each image one within `radius` (one for all, or one for each) that the model gets wrong, if any is found.

        Where none is found, the one with the greatest loss. The model is used as it is, in its mode and dtype; call
        `.eval()` first. The same arguments give the same images, whatever the batch size.
        """
        radii = torch.as_tensor(radius, dtype=images.dtype, device=images.device).expand(len(images))
        if len(labels) != len(images):
            raise ValueError(f"expected one label for each of {len(images)} images, got {len(labels)}")
        if not (radii >= 0).all():
            raise ValueError("expected radii >= 0, got a negative one or NaN")
        found: list[Tensor] = []
        with _frozen(model), Bar("attacking", total=len(images), progress=progress) as bar:
            for rows in torch.split(torch.arange(len(images)), batch_size):
                found.append(self._attack(model, images[rows], labels[rows], radii[rows], rows))
                bar.update(int(rows[-1]) + 1)
        return torch.cat(found)

    def _attack(self, model: nn.Module, images: Tensor, labels: Tensor, radii: Tensor, rows: Tensor) -> Tensor:
        best, score = images.clone(), torch.full((len(images),), -math.inf, dtype=torch.float64, device=images.device)
        ball = radii.view(-1, *(1,) * (images.ndim - 1))
        step = ball * (2.5 / self.steps if self.step_size is None else self.step_size)
        for restart in range(self.restarts):
            start = self._start(images, rows, restart) * ball if self.random_start else torch.zeros_like(images)
            x = self._inside(images, start, ball)
            for _ in range(self.steps):
                x = x.detach().requires_grad_()
                logits = model(x)
                losses = LOSSES[self.loss](logits, labels)
                self._keep(best, score, x, logits, losses, labels)
                (slope,) = torch.autograd.grad(losses.sum(), x)
                x = self._inside(images, x.detach() + step * self._direction(slope) - images, ball)
            with torch.no_grad():
                logits = model(x)
                self._keep(best, score, x, logits, LOSSES[self.loss](logits, labels), labels)
        return best

    def _start(self, images: Tensor, rows: Tensor, restart: int) -> Tensor:
        """A random point of the unit ball for each image, which depends on its row only."""
        starts = []
        for row in rows.tolist():
            generator = torch.Generator().manual_seed((self.seed * 1009 + restart) * 1_000_003 + row)
            if self.norm == 2:
                point = torch.randn(images.shape[1:], generator=generator, dtype=torch.float64)
                share = torch.rand((), generator=generator, dtype=torch.float64) ** (1 / point.numel())
                starts.append(point / point.norm().clamp_min(1e-300) * share)
            else:
                starts.append(torch.rand(images.shape[1:], generator=generator, dtype=torch.float64) * 2 - 1)
        return torch.stack(starts).to(images)

    def _inside(self, images: Tensor, offset: Tensor, ball: Tensor) -> Tensor:
        """The nearest offset within the ball, then the nearest pixels within their range."""
        if self.norm == 2:
            length = offset.flatten(1).norm(dim=1).view_as(ball)
            offset = offset * (ball / length.clamp_min(1e-30)).clamp(max=1)
        else:
            offset = torch.clamp(offset, -ball, ball)
        return torch.clamp(images + offset, *self.pixels)

    def _direction(self, slope: Tensor) -> Tensor:
        if self.norm == math.inf:
            return slope.sign()
        length: Tensor = torch.linalg.vector_norm(slope.flatten(1), dim=1)
        return slope / length.view(-1, *(1,) * (slope.ndim - 1)).clamp_min(1e-30)

    def _keep(self, best: Tensor, score: Tensor, x: Tensor, logits: Tensor, losses: Tensor, labels: Tensor) -> None:
        """Of all images seen, one that is wrong comes before one with a greater loss."""
        with torch.no_grad():
            wrong = logits.argmax(dim=1) != labels
            rank = torch.sigmoid(losses.double() / 100) + wrong.double()
            better = rank > score
            best[better] = x.detach()[better]
            score[better] = rank[better]


def fgsm(norm: float = math.inf) -> Attack:
    """One step of the size of the radius."""
    return Attack(norm, steps=1, step_size=1.0, random_start=False)


def attacked_accuracy(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    radii: Sequence[float],
    attack: Attack,
    *,
    batch_size: int = 256,
    progress: bool | None = None,
) -> list[float]:
    """The share of images that are right and stay right under the attack, for each radius.

    Radii are taken in increasing order and an image that falls stays fallen, so the values never rise.
    """
    order = sorted(range(len(radii)), key=lambda i: radii[i])
    standing = _classes(model, images, batch_size) == labels
    shares = [0.0] * len(radii)
    for i in order:
        rows = standing.nonzero().flatten()
        if len(rows) and radii[i] > 0:
            moved = attack(model, images[rows], labels[rows], radii[i], batch_size=batch_size, progress=progress)
            with torch.no_grad():
                right = (
                    torch.cat([model(part).argmax(dim=1) for part in torch.split(moved, batch_size)]) == labels[rows]
                )
            standing[rows] = right
        shares[i] = float(standing.double().mean())
    return shares


def _classes(model: nn.Module, images: Tensor, batch_size: int) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(part).argmax(dim=1) for part in torch.split(images, batch_size)])


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """No gradients for the parameters while the pixels' are taken."""
    wanted = [(p, p.requires_grad) for p in model.parameters()]
    try:
        for p, _ in wanted:
            p.requires_grad_(False)
        yield
    finally:
        for p, want in wanted:
            p.requires_grad_(want)
