"""A classifier of images: an extractor, and a head on its features."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from berncert.extractor import LipschitzTable, lipschitz_table
from berncert.extractor.remembered import plain_copy
from berncert.polynomial import SmoothedHead, smooth


class Classifier(nn.Module):
    """image -> extractor -> features in [0,1]^d -> head -> logits."""

    def __init__(self, extractor: nn.Module, head: nn.Module) -> None:
        super().__init__()
        for name, part in (("extractor", extractor), ("head", head)):
            if not isinstance(part, nn.Module):
                raise TypeError(f"expected a torch module as the {name}, got {type(part).__name__}")
        self.extractor = extractor
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        """The logits (N, K)."""
        return cast(Tensor, self.head(self.extractor(images)))

    def smooth(self, degree: int | Sequence[int], *, dim: int | None = None) -> Classifier:
        """The same extractor, its head smoothed in float64; `dim` is the number of features, if it cannot be told."""
        if isinstance(self.head, SmoothedHead):
            raise TypeError("expected a head that is not smoothed yet, got a SmoothedHead; smooth the original model")
        head = copy.deepcopy(self.head).double()
        return Classifier(self.extractor, smooth(head, dim or _features_of(self), degree))

    def lipschitz_table(
        self, input_shape: Sequence[int], norm: float = 2, *, progress: bool | None = None
    ) -> LipschitzTable:
        """Where the bound of the extractor comes from, for images of this shape."""
        return lipschitz_table(plain_copy(self.extractor, torch.float64), input_shape, norm, progress=progress)


def _features_of(model: Classifier) -> int:
    """The number of features, from the extractor's own word or the width of the head's first layer."""
    told = getattr(model.extractor, "dim", None)
    if isinstance(told, int):
        return told
    first = next((m.in_features for m in model.head.modules() if isinstance(m, nn.Linear)), None)
    if first is None:
        raise ValueError("expected dim, as the head does not tell the number of features; pass smooth(degree, dim=...)")
    return first
