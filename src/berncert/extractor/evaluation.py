"""Evaluation mode: a proof is about a fixed function, so nothing may be random, average the batch, or be hooked."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from berncert.extractor.layers import LinfDistance

CHANGES_IN_TRAINING = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RReLU, LinfDistance)


def require_evaluation(module: nn.Module) -> None:
    """Raise a ValueError if any part of the module is in training mode and computes something else there."""
    for part in module.modules():
        legacy = any(isinstance(hook, SpectralNorm) for hook in part._forward_pre_hooks.values())
        if part.training and (isinstance(part, CHANGES_IN_TRAINING) or hasattr(part, "parametrizations") or legacy):
            raise ValueError(
                f"expected evaluation mode, got {layer_name(part)} in training mode, in which it does not compute a "
                "fixed function; call .eval() on the network"
            )


def require_no_hooks(module: nn.Module) -> None:
    """Raise a TypeError if the module has hooks, except torch's own that compute a weight: those are run once."""
    anywhere = nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks
    for part in module.modules():
        before = list(part._forward_pre_hooks.values())
        if part._forward_hooks or anywhere or not all(isinstance(hook, SpectralNorm | WeightNorm) for hook in before):
            raise TypeError(f"expected {layer_name(part)} without hooks, got some, which may change its output")
        for hook in before:
            hook(part, ())


def layer_name(module: nn.Module) -> str:
    """The name of a layer's type, as tables and errors show it."""
    return type(module).__name__.removeprefix("Parametrized")
