"""The loss of certified training: the cross-entropy of the worst that can happen within a radius in feature space.

There the worst case is found by calculus on a polynomial in few variables; no attack in pixel space is needed.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berncert.foundation.arguments import checked_index, checked_norm, dual_norm, is_real
from berncert.polynomial import PolynomialHead
from berncert.polynomial.norms import row_norms
from berncert.training.feature_box import FeatureBox

ROUNDED = 0.05
"""More than features may be beyond the sides of their box because both are rounded, in any dtype."""


def certified_loss(
    features: Tensor | FeatureBox,
    labels: Tensor,
    head: nn.Module,
    radius: float | None = None,
    norm: float = 2.0,
    *,
    temperature: float = 1.0,
    attack_steps: int = 0,
) -> Tensor:
    """A loss for your own training loop: it falls as more inputs keep their class within the radius.

        features = network(images)                                # (N, d) in [0,1]^d, from an L-Lipschitz network
        loss = berncert.certified_loss(features, labels, head, radius=L * 0.5, norm=2)   # 0.5 in units of the pixels
        loss.backward()                                           # reaches the network, and the head's coefficients

    The head is a `SmoothedHead` or a `SumHead`; `SmoothedHead(torch.nn.Parameter(coefficients))` is trained too, and
    `smooth(head, dim, degree, differentiable=True)` in each step trains the head that it smooths. The radius is one of
    features, in any p-norm: the network's Lipschitz constant in that norm (`berncert.lipschitz_bound`) times the radius
    in pixels. It may grow from 0 during the first part of the training.

    A network without such a constant is trained for the local route of `certify`, with the box of features that the
    images of a ball reach instead of a radius:

        box = berncert.feature_box(network, images, radius=0.1)                          # in pixels, in l-inf
        loss = berncert.certified_loss(box, labels, head)

    Each rival's logit is raised by the most that it gains on the label's within the radius: in l-inf bounded by the
    Bernstein coefficients on that box, else to first order; for an affine head both are the exact worst case. With
    `attack_steps` the features are moved instead, by so many steps of gradient ascent: a fast head that bends can
    deceive the first order, and not these. Logits are divided by `temperature`, and the loss multiplied by it: with a
    small one it rests as soon as an input keeps its class.

    Example:
        >>> import torch, berncert
        >>> extractor = berncert.build("mlp", (1, 8, 8), dim=3)  # 1-Lipschitz
        >>> head = berncert.SmoothedHead(torch.nn.Parameter(torch.rand(10, 3, 3, 3)))  # degree 2, trained too
        >>> train = berncert.data.load("digits", split="train", limit=64)
        >>> loss = berncert.certified_loss(extractor(train.images), train.labels, head, radius=0.3)
        >>> loss.backward()  # reaches the extractor and the coefficients
        >>> head.coefficients.grad.shape
        torch.Size([10, 3, 3, 3])
    """
    steps, norm = checked_index("attack_steps", attack_steps), checked_norm(norm)
    if isinstance(features, FeatureBox):
        if radius is not None or steps:
            raise ValueError("expected a box of features alone, got radius or attack_steps too; the box says it all")
        _check(features.features, labels, head, 0.0, temperature)
        _check_box(features)
        worst = enclosed_logits(head, features, labels)[1]
    else:
        if isinstance(features, tuple):
            raise TypeError(
                "expected features as a tensor or a berncert.FeatureBox, got a tuple; write "
                "berncert.FeatureBox(features, lower, upper)"
            )
        if radius is None:
            raise ValueError("expected a radius of the features, or a box of them from berncert.feature_box, got none")
        _check(features, labels, head, radius, temperature)
        worst = worst_logits(features, labels, head, radius, norm, temperature, steps)[1]
    return tempered_cross_entropy(worst, labels, temperature)


def tempered_cross_entropy(logits: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The cross-entropy of logits / temperature, times the temperature, so that its slopes are those of the logits."""
    return F.cross_entropy(logits / temperature, labels) * temperature


def worst_logits(
    features: Tensor, labels: Tensor, head: nn.Module, radius: float, norm: float, temperature: float,
    attack_steps: int, *, affine: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The logits by which accuracy is counted, and those of the worst case, whose cross-entropy is the loss.

    Of a head that is known to be `affine` first order is all there is: the same in l-inf as the enclosure, and cheaper.
    """
    if attack_steps:
        logits = head(attacked_features(head, features, labels, radius, norm, temperature, attack_steps))
        return logits, logits
    if norm == math.inf and not affine:
        return enclosed_logits(head, FeatureBox(features, features - radius, features + radius), labels)
    return raised_logits(head, features, labels, radius, norm)


def raised_logits(
    head: nn.Module, features: Tensor, labels: Tensor, radius: float, norm: float = 2.0
) -> tuple[Tensor, Tensor]:
    """The logits, and those with each rival's raised by the most it gains on the label's within the radius.

    The gain is computed to first order: the radius times the dual norm of the difference in slope. For affine heads it
    is exactly the worst case of each rival (near the walls of the cube it is more), so that the label's logit is still
    the largest if and only if the class is proven.
    """
    logits, gains = _require_smoothed(head).steepness(features, labels, dual_norm(norm))
    return logits, logits + radius * gains


def enclosed_logits(head: nn.Module, box: FeatureBox, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The logits, and those with each rival's raised to where it can get, at most, in the box around the features.

    No polynomial exceeds its greatest Bernstein coefficient on a box, as the ball of l-inf is one. So the label's logit
    is still the largest only if the class holds in the whole box, for every head; affine ones attain the bound.
    """
    smoothed = _require_smoothed(head)
    dtype = torch.promote_types(box.features.dtype, smoothed.tensors[0].dtype)
    features, lower, upper = (side.to(dtype) for side in box)
    logits: Tensor = smoothed(features)
    lead = smoothed.greatest_lead(lower.clamp(0, 1), upper.clamp(0, 1), labels)
    return logits, logits.gather(1, labels[:, None]) + lead


def attacked_features(
    head: nn.Module, features: Tensor, labels: Tensor, radius: float, norm: float, temperature: float, steps: int
) -> Tensor:
    """Features moved by gradient ascent on the loss, within the cube and the radius."""
    start = features.detach()
    fixed = _require_smoothed(head).detached()
    moved, step = start, 2.0 * radius / steps
    for _ in range(steps):
        logits, slopes = fixed.linearise(moved)
        pull = (logits / temperature).softmax(dim=1) - F.one_hot(labels, logits.shape[1])
        slope = torch.einsum("nk,nkd->nd", pull, slopes)  # of the cross-entropy, up to a factor
        offset = moved + step * _steepest(slope, norm) - start
        moved = (start + _back_in_ball(offset, radius, norm)).clamp(0, 1)
    return features + (moved - start)


def _steepest(slope: Tensor, norm: float) -> Tensor:
    """The direction of norm 1 along which the slope (N, d) rises most."""
    if norm == 1:
        return slope.sign() * F.one_hot(slope.abs().argmax(dim=1), slope.shape[1])
    dual = dual_norm(norm)
    size: Tensor = slope.abs() / row_norms(slope, dual)[:, None].clamp_min(1e-30)
    return slope.sign() * size ** (dual - 1)


def _back_in_ball(offset: Tensor, radius: float, norm: float) -> Tensor:
    if norm == math.inf:
        return offset.clamp(-radius, radius)
    length = row_norms(offset, norm)[:, None]
    return offset * (radius / length.clamp_min(1e-12)).clamp(max=1)


def _require_smoothed(head: nn.Module) -> PolynomialHead:
    if not isinstance(head, PolynomialHead):
        inner = getattr(head, "head", None)
        if isinstance(inner, PolynomialHead):
            raise TypeError(f"expected a smoothed head, got {type(head).__name__}; pass its .head")
        raise TypeError(
            f"expected a smoothed head, got {type(head).__name__}; smooth it with "
            "berncert.smooth(head, dim, degree, differentiable=True), or set through='smoothed' in a recipe"
        )
    return head


def _check(features: Tensor, labels: Tensor, head: nn.Module, radius: float, temperature: float) -> None:
    dim, classes = _require_smoothed(head).dim, _require_smoothed(head).classes
    if not (isinstance(features, Tensor) and isinstance(labels, Tensor)):
        raise TypeError(
            "expected features (or a berncert.FeatureBox) and labels as torch tensors, got "
            f"{type(features).__name__} and {type(labels).__name__}; convert them with torch.as_tensor"
        )
    if features.ndim != 2 or features.shape[1] != dim or not len(features) or not features.is_floating_point():
        raise ValueError(
            f"expected features of shape (N, {dim}) with N >= 1, as the head has {dim}, got {features.dtype} of shape "
            f"{tuple(features.shape)}; pass what the extractor gives"
        )
    known = features.detach()
    if known.isnan().any():
        raise ValueError("expected features in [0, 1], got NaN; the training has diverged: lower its learning rate")
    if not ((known >= 0) & (known <= 1)).all():
        got = f"{float(known.min()):.4g} to {float(known.max()):.4g}"
        raise ValueError(f"expected features in [0, 1], got {got}; end the network with berncert.UnitCube or a sigmoid")
    if labels.shape != features.shape[:1] or labels.dtype != torch.int64:
        raise ValueError(
            f"expected {len(features)} labels, torch.int64, got {labels.dtype} of shape {tuple(labels.shape)}; write "
            "labels.long(), of one-hot rows labels.argmax(1)"
        )
    if not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(
            f"expected labels from 0 to {classes - 1}, as the head has {classes} classes, got {int(labels.min())} to "
            f"{int(labels.max())}"
        )
    for name, value, least in (("radius", radius, "a finite number >= 0"), ("temperature", temperature, "one > 0")):
        if not is_real(value) or not 0 <= value < math.inf or (name == "temperature" and value == 0):
            raise ValueError(f"expected {name} to be {least}, got {value!r}")


def _check_box(box: FeatureBox) -> None:
    """Raise an error unless it is one: sides of the features' shape, in order, and the features between them."""
    features, *sides = (side.detach() if isinstance(side, Tensor) else side for side in box)
    for name, side in zip(("lower", "upper"), sides, strict=True):
        if not isinstance(side, Tensor) or not side.is_floating_point() or side.shape != features.shape:
            got = f"{side.dtype} of shape {tuple(side.shape)}" if isinstance(side, Tensor) else type(side).__name__
            raise ValueError(
                f"expected {name} of the box as a floating tensor of shape {tuple(features.shape)}, as the features "
                f"have, got {got}; berncert.feature_box makes all three"
            )
    lower, upper = sides
    if not (lower <= upper).all():  # NaN is in no order
        row, axis = (int(i) for i in (~(lower <= upper)).nonzero()[0])
        raise ValueError(
            f"expected lower <= upper in the box, got {float(lower[row, axis])} and {float(upper[row, axis])} in row "
            f"{row}, axis {axis}; NaN means that the training has diverged: lower its learning rate"
        )
    if ((lower > features + ROUNDED) | (upper < features - ROUNDED)).any():
        raise ValueError(
            "expected the features between lower and upper of their box, got some outside; check the order"
        )
