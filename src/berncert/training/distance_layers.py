"""Training of networks with distance layers: the p of their norm, and the means that they have in l-inf."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from berncert.extractor import LinfDistance


def distance_layers(network: nn.Module) -> list[LinfDistance]:
    """The distance layers of the network, in order."""
    return [part for part in network.modules() if isinstance(part, LinfDistance)]


def set_norm(network: nn.Module, p: float) -> None:
    """Let all distance layers use this p while they are trained."""
    for layer in distance_layers(network):
        layer.norm_of_training = p


@torch.no_grad()
def settle_means(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set the means that distance layers subtract in evaluation to those of these images, with p = inf.

    While p is finite, the running means are those of another function. Nothing else of the network is changed.
    """
    layers = [layer for layer in distance_layers(network) if layer.centred]
    if not layers:
        return
    before = [(layer.training, layer.norm_of_training, layer.momentum) for layer in layers]
    for count, images in enumerate(batches, start=1):
        for layer in layers:
            layer.train()
            layer.norm_of_training, layer.momentum = math.inf, 1 / count
        network(images)
    for layer, (training, norm, momentum) in zip(layers, before, strict=True):
        layer.train(training)
        layer.norm_of_training, layer.momentum = norm, momentum
