"""The steps of a network that is being trained, by the same translation as `freeze`: gradients reach its weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from berncert.extractor.evaluation import CHANGES_IN_TRAINING, layer_name
from berncert.extractor.freezing.modules import BATCH_NORMS
from berncert.extractor.freezing.registration import RULES
from berncert.extractor.freezing.tracing import trace
from berncert.extractor.freezing.translation import Translator
from berncert.extractor.frozen import Step

BATCH = 2
"""Images in the probes of the translation."""


def live_steps(network: nn.Module, images: Tensor) -> tuple[Tensor, Sequence[Step]]:
    """What the network, as it is, computes of these images, and steps that compute the same with its own weights.

    Numbers of the steps are in the images' dtype. Batch normalisation in training mode uses the statistics of these
    images, in both; its running statistics are updated once. Nothing is compared and nothing proven: a network that is
    changed by every step of a training is followed as it says, and `freeze` looks closely when it is to be certified.
    """
    _refuse(network)
    with _statistics(network) as stand_ins:
        features = _run(network, images)
    root = nn.Sequential(network)  # so that a single layer is traced as a layer
    translator = Translator(root, tuple(images.shape[1:]), BATCH)
    translator.modules = {name: stand_ins.get(part, part) for name, part in translator.modules.items()}
    steps = translator.translate(trace(root))
    return features, [replace(step, operation=step.operation.to(images.dtype, images.device)) for step in steps]


def _run(network: nn.Module, images: Tensor) -> Tensor:
    """What the network gives; an error that says what it was given if it does not take these images."""
    try:
        features = network(images)
    except (RuntimeError, ValueError, IndexError) as error:
        weights = {p.dtype for p in network.parameters() if p.is_floating_point()}
        wanted = f"; its weights are in {', '.join(map(str, weights))}" if weights - {images.dtype} else ""
        raise ValueError(
            f"expected images that the network takes, got {images.dtype} of shape {tuple(images.shape)} "
            f"({str(error).splitlines()[0]}){wanted}"
        ) from error
    if not isinstance(features, Tensor):
        raise TypeError(f"expected a network that returns one tensor, got {type(features).__name__}")
    return features


def _refuse(network: nn.Module) -> None:
    """Raise an error for layers that are random or different in training, and for weights that are computed."""
    for part in network.modules():
        if part.training and isinstance(part, CHANGES_IN_TRAINING) and type(part) not in BATCH_NORMS:
            raise ValueError(
                f"expected layers that do the same for every image, got {layer_name(part)} in training mode; take it "
                "out, or call .eval() on it"
            )
        if type(part) in RULES:
            raise TypeError(
                f"expected layers that intervals pass, got {layer_name(part)}, of which only a Lipschitz bound was "
                "registered; write it with layers that berncert knows (docs/layers.md)"
            )
        if is_parametrized(part):
            raise TypeError(
                f"expected plain weights, got {layer_name(part)} whose weight is computed; networks that are kept at a "
                "norm are trained with a radius of features, others without parametrisations"
            )


@contextmanager
def _statistics(network: nn.Module) -> Iterator[dict[nn.Module, nn.Module]]:
    """While the network is run, layers that normalise the batch get a stand-in each that does so in evaluation."""
    found: dict[nn.Module, nn.Module] = {}

    def keep(layer: nn.Module, arguments: Any) -> None:
        if layer in found:
            raise TypeError(f"expected {layer_name(layer)} to be used once, as its statistics are those of one value")
        found[layer] = _with_statistics(layer, arguments[0])

    layers = [part for part in network.modules() if type(part) in BATCH_NORMS and part.training]
    hooks = [layer.register_forward_pre_hook(keep) for layer in layers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _with_statistics(layer: Any, value: Tensor) -> nn.Module:
    """The same layer in evaluation mode, whose running statistics are those of this value."""
    axes = [axis for axis in range(value.ndim) if axis != 1]
    stand_in: nn.Module = copy.copy(layer)
    rough = value.mean(axes, keepdim=True)  # on a CPU means take a tenth of the time of torch.var_mean
    rest = value - rough
    off = rest.mean(axes)  # of a mean that is large beside the deviation, a rounding
    mean, variance = rough.flatten() + off, rest.square().mean(axes) - off.square()
    stand_in._buffers = {**layer._buffers, "running_mean": mean, "running_var": variance}
    stand_in._forward_pre_hooks = {}
    stand_in.training = False
    return stand_in
