"""The box of features that a ball of images can reach, by intervals through a network's own layers: differentiable."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from berncert.certification.classifier import Classifier
from berncert.extractor.bounds.local import Interval, LocalValue
from berncert.extractor.freezing.live_steps import live_steps
from berncert.extractor.frozen import FrozenNetwork, Step, interpret
from berncert.extractor.operations.base import Affine
from berncert.extractor.operations.entrywise import Relaxed
from berncert.foundation.arguments import is_real


class FeatureBox(NamedTuple):
    """Features of some images, and between which limits those of all images of a ball around each lie; (N, d) each.

    Example:
        >>> import torch, berncert
        >>> features, labels = torch.tensor([[0.9, 0.2]]), torch.tensor([0])
        >>> box = berncert.FeatureBox(features, lower=features - 0.1, upper=features + 0.1)
        >>> head = berncert.SumHead(torch.eye(2), torch.zeros(2))
        >>> berncert.certified_loss(box, labels, head)  # of logits 0.9 and 0.4: what the other gains is added
        tensor(0.4741)
    """

    features: Tensor
    lower: Tensor
    upper: Tensor


class _Middle(NamedTuple):
    """A box by its middle, and half of its width."""

    middle: Tensor
    half: Tensor


def feature_box(network: nn.Module, images: Tensor, radius: float) -> FeatureBox:
    """The features of the images, and a box that holds those of all images within a radius in l-inf.

        box = berncert.feature_box(network, images, radius=0.1)        # any network that berncert.freeze takes
        loss = berncert.certified_loss(box, labels, head)              # gradients reach the weights of the network

    Intervals are passed through the layers, of the network as it is: a network that is an ordinary one when the
    training begins learns to keep them narrow. The network is run once, in the mode it is in. Batch normalisation in
    training mode then uses the statistics of these images for the box as well; other layers that are random or
    different in training are refused. Not rounded outwards: what is proven is proven by `certify`, afterwards.

    Example:
        >>> import torch, berncert
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3), torch.nn.Sigmoid())
        >>> box = berncert.feature_box(network, torch.rand(5, 1, 2, 2), radius=0.1)
        >>> bool(((box.lower < box.features) & (box.features < box.upper)).all())
        True
    """
    _check(network, images, radius)
    features, steps = live_steps(network, images)
    middle, half = interpret(steps, _Middle(images, torch.full_like(images, radius)), _through)
    if features.ndim != 2 or middle.shape != features.shape:
        raise ValueError(
            f"expected a network that gives features (N, d), got shape {tuple(features.shape)}; end it with nn.Flatten"
        )
    return FeatureBox(features, middle - half, middle + half)


def _check(network: nn.Module, images: Tensor, radius: float) -> None:
    if not isinstance(network, nn.Module) or isinstance(network, FrozenNetwork):
        what = "a frozen network, which has no weights to train" if isinstance(network, nn.Module) else repr(network)
        raise TypeError(f"expected a torch module that is trained, got {what}; pass the extractor itself")
    if isinstance(network, Classifier):
        raise TypeError(
            "expected an extractor, got a whole Classifier; pass model.extractor, and model.head to the loss"
        )
    if not isinstance(images, Tensor) or not images.is_floating_point() or images.ndim < 2 or not len(images):
        got = f"{images.dtype} of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(
            f"expected images as a floating tensor (N, ...) with N >= 1, got {got}; convert them with torch.as_tensor, "
            "bytes with images.float() / 255"
        )
    if not images.isfinite().all():
        raise ValueError("expected finite pixels, got NaN or infinity; look for what made them so")
    if not is_real(radius) or not 0 <= radius <= torch.finfo(images.dtype).max:
        raise ValueError(
            f"expected radius to be a finite number >= 0, got {radius!r}; it is in l-inf, in units of the pixels, the "
            "same for all images: e.g. 0.1"
        )


def _through(step: Step, boxes: tuple[_Middle, ...]) -> _Middle:
    """The box of the step's result, by the operation's own definition."""
    operation = step.operation
    if isinstance(operation, Affine):
        middle = operation.evaluate(*(box.middle for box in boxes))
        return _Middle(middle, operation.absolute(*(box.half for box in boxes)))
    interval: Interval | None
    if isinstance(operation, Relaxed) and operation.shape_of_curve.turn is None:  # it never falls
        interval = Interval(*(operation.evaluate(side) for side in _sides(boxes[0])))
    else:
        interval = operation.interval(*map(_local, boxes))
    if interval is None:
        raise TypeError(
            f"{step.name}: no interval is known for {step.layer}; for networks that are 1-Lipschitz by construction "
            "pass certified_loss a radius of features instead"
        )
    return _Middle((interval.lower + interval.upper) / 2, (interval.upper - interval.lower) / 2)


def _sides(box: _Middle) -> Interval:
    return Interval(box.middle - box.half, box.middle + box.half)


def _local(box: _Middle) -> LocalValue:
    far = box.half.detach().flatten(1).amax(dim=1, keepdim=True)
    return LocalValue(box.middle, _sides(box), math.inf, (math.inf,), far)
