"""Images near a given one that the model gives another class: what bounds its radius from above.

Gradient steps towards the nearest rival, then along the way back. Nothing depends on how an image was found: each is
evaluated as the model is, in float64, and counts only if another class clearly leads there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from berncert.extractor import FrozenNetwork
from berncert.extractor.bounds.local import length_bound
from berncert.foundation.arguments import dual_norm
from berncert.foundation.arrays import Floats, Ints
from berncert.foundation.progress import Bar
from berncert.polynomial import PolynomialHead

STEPS = 24
HALVINGS = 20
OVERSHOOT = 1.05
NEARER = 0.85
"""Once an image is found, only those nearer than this share of its distance are looked at."""
SHARE = 0.25
"""Of that distance, at most, is a step then: where the slope is nearly 0, a step to the boundary leads anywhere."""
CLEARLY = 1e-9
"""Another class leads by more than this share of the greatest logit: no order of summation takes that back."""


class CounterexampleSearch:
    """For one model and a norm of its pixels, 1 <= p <= inf."""

    def __init__(
        self, network: FrozenNetwork, head: PolynomialHead, norm: float, batch_size: int = 256,
        progress: bool | None = None,
    ) -> None:  # fmt: skip
        self.network, self.head = network, head.in_float64()
        self.norm, self.batch_size, self.progress = norm, batch_size, progress

    def __call__(self, images: Tensor, predicted: Ints, radius: float = math.inf) -> tuple[Floats, Floats]:
        """For each image one of another class, NaN where none was found, and its distance, rounded up, else inf.

        radius: look only for images that are closer than this.
        """
        x, classes = images.detach().double().cpu(), torch.as_tensor(predicted)
        parts = zip(torch.split(x, self.batch_size), torch.split(classes, self.batch_size), strict=True)
        found: list[tuple[Tensor, Tensor]] = []
        with Bar("looking for counterexamples", total=len(x), progress=self.progress) as bar:
            for part, own in parts:
                found.append(self._found(part, own, radius))
                bar.update(sum(len(far) for _, far in found))
        if not found:
            return x.numpy(), x.new_zeros(0).numpy()
        return torch.cat([image for image, _ in found]).numpy(), torch.cat([far for _, far in found]).numpy()

    def _found(self, x: Tensor, classes: Tensor, radius: float) -> tuple[Tensor, Tensor]:
        best, far = torch.full_like(x, math.nan), x.new_full((len(x),), math.inf)
        moved = x.clone()
        with torch.inference_mode(False), torch.enable_grad():
            for _ in range(STEPS):
                moved = moved.detach().requires_grad_()
                margin = self._margin(moved, classes)[0]
                (slope,) = torch.autograd.grad(margin.sum(), moved)
                most = (NEARER * far).clamp(max=radius)
                step = OVERSHOOT * margin.detach().clamp_min(1e-6) / self._steepness(slope)
                step = torch.minimum(step, SHARE * most)
                moved = moved.detach() - self._along(step) * self._steepest(slope)
                moved = self._within(x, moved, most)
                self._keep(x, moved, classes, best, far, radius)
        low, high = torch.zeros_like(far), torch.ones_like(far)
        for _ in range(HALVINGS):  # along the way from the image to what was found
            share = (low + high) / 2
            tried = x + self._along(share) * torch.where(best.isnan(), x, best).sub(x)
            broken = self._is_other(tried, classes)
            low, high = torch.where(broken, low, share), torch.where(broken, share, high)
        nearest = x + self._along(high) * torch.where(best.isnan(), x, best).sub(x)
        self._keep(x, nearest, classes, best, far, radius)
        return best, far

    def _keep(self, x: Tensor, moved: Tensor, classes: Tensor, best: Tensor, far: Tensor, radius: float) -> None:
        """Of the images seen, the nearest of another class."""
        distance = self._length(moved.detach() - x) * (1 + 1e-12)
        better = self._is_other(moved, classes) & (distance < far) & (distance < radius)
        best[better], far[better] = moved.detach()[better], distance[better]

    def _is_other(self, x: Tensor, classes: Tensor) -> Tensor:
        with torch.no_grad():
            margin, largest = self._margin(x, classes)
            return margin < -CLEARLY * largest  # NaN is not

    def _margin(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """By how much the class leads, and the greatest magnitude of a logit."""
        logits = self.head(self.network(x))
        own = logits.gather(1, classes[:, None]).squeeze(1)
        return own - logits.scatter(1, classes[:, None], -math.inf).amax(dim=1), logits.detach().abs().amax(dim=1)

    def _within(self, x: Tensor, moved: Tensor, radius: Tensor) -> Tensor:
        """Drawn back towards the image where it is farther than its radius."""
        offset, most = moved - x, self._along(radius * (1 - 1e-9))
        if self.norm == math.inf:
            return x + torch.minimum(torch.maximum(offset, -most), most)
        share = most / self._along(self._length(offset).clamp_min(1e-300))
        return x + offset * share.clamp(max=1)

    def _steepest(self, slope: Tensor) -> Tensor:
        """The direction of norm 1 along which the slope rises most."""
        if self.norm == 1:
            flat = slope.flatten(1)
            largest = torch.zeros_like(flat).scatter(1, flat.abs().argmax(dim=1, keepdim=True), 1.0)
            return (flat.sign() * largest).view_as(slope)
        dual = dual_norm(self.norm)
        return slope.sign() * (slope.abs() / self._along(self._steepness(slope))) ** (dual - 1)

    def _steepness(self, slope: Tensor) -> Tensor:
        return length_bound(slope[:, None], dual_norm(self.norm))[:, 0].clamp_min(1e-12)

    def _length(self, offset: Tensor) -> Tensor:
        return length_bound(offset[:, None], self.norm)[:, 0]

    def _along(self, numbers: Tensor) -> Tensor:
        return numbers.view(-1, *(1,) * len(self.network.input_shape))
