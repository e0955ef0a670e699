"""A classifier of images: an extractor, and a head on its features."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from berncert.extractor import FrozenNetwork, LipschitzTable, UnitCube, freeze, lipschitz_table
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.proof_cache import proven
from berncert.polynomial import PolynomialHead
from berncert.polynomial.sum_head import SumHead, smoothed_head

WIDEST = 2.0**30
"""The greatest side of the cube around logits: what is wider costs digits of them."""


class Classifier(nn.Module):
    """image -> extractor -> features in [0,1]^d -> head -> logits.

    Example:
        >>> import torch, berncert
        >>> extractor = berncert.build("lipconvnet", (1, 28, 28), dim=4)  # or any network of your own
        >>> head = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10)).double()
        >>> model = berncert.Classifier(extractor, head).eval().smooth(degree=2)
        >>> model(torch.rand(3, 1, 28, 28)).shape
        torch.Size([3, 10])
        >>> bool((berncert.certify(model, torch.rand(3, 1, 28, 28)).radius > 0).all())
        True
    """

    def __init__(self, extractor: nn.Module, head: nn.Module) -> None:
        super().__init__()
        for name, part in (("extractor", extractor), ("head", head)):
            if not isinstance(part, nn.Module):
                raise TypeError(f"expected a torch module as the {name}, got {type(part).__name__}")
        self.extractor = extractor
        self.head = head

    @classmethod
    def of_logits(
        cls, network: nn.Module, input_shape: Sequence[int] | None = None, *, side: float | None = None
    ) -> Classifier:
        """A whole network, whose outputs are logits, as a classifier that can be certified: nothing is smoothed.

        Its logits are the features: scaled to the cube, where everything beyond its `side` is clamped, and back by an
        affine head, which is its own polynomial. The default side is proven to be so wide that nothing is clamped for
        pixels between -1 and 2 (up to a side of 2^30), so that the classifier computes what the network computes.

        Example:
            >>> import torch, berncert
            >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3)).double()
            >>> model = berncert.Classifier.of_logits(network, (1, 2, 2))
            >>> images = torch.rand(5, 1, 2, 2, dtype=torch.float64)
            >>> torch.allclose(model(images), network(images))
            True
        """
        shape = getattr(network, "input_shape", None) if input_shape is None else input_shape
        if shape is None:
            raise ValueError("expected input_shape, e.g. (3, 32, 32), as the network does not say what it takes")
        frozen = freeze(network, shape)
        sizes = ", ".join(map(str, frozen.output_shape))
        if len(frozen.output_shape) != 1:
            raise ValueError(f"expected a network that gives (N, K) logits, got shape (N, {sizes})")
        width = _side_around(frozen) if side is None else UnitCube(side).side
        cube = freeze(nn.Sequential(OrderedDict(cube=UnitCube(width))), frozen.output_shape)
        eye = torch.eye(frozen.dim, dtype=torch.float64)
        return cls(frozen.followed_by(cube), SumHead(width * eye, torch.full((frozen.dim,), -width / 2).double()))

    def forward(self, images: Tensor) -> Tensor:
        """The logits (N, K); of a frozen extractor and a smoothed head in float64, as they are certified."""
        features = self.extractor(images)
        certified = isinstance(self.extractor, FrozenNetwork) and isinstance(self.head, PolynomialHead)
        return cast(Tensor, self.head(features.double() if certified else features))

    def smooth(self, degree: int | Sequence[int], *, dim: int | None = None, points: Any = None) -> Classifier:
        """The same extractor, its head smoothed in float64; `dim` is the number of features, where nothing says it.

        `head.fidelity` of the result says how far both heads agree, at `points` of the features: see `berncert.smooth`.
        """
        if isinstance(self.head, PolynomialHead):
            raise TypeError("expected a head that is not smoothed yet, got a smoothed one; smooth the original model")
        head = copy.deepcopy(self.head).double()
        return Classifier(self.extractor, smoothed_head(head, dim or _features_of(self), degree, points=points))

    def lipschitz_table(
        self, input_shape: Sequence[int], norm: float = 2, *, progress: bool | None = None
    ) -> LipschitzTable:
        """Where the bound of the extractor comes from, for images of this shape."""
        return lipschitz_table(self.extractor, input_shape, norm, progress=progress)

    def freeze(self, input_shape: Sequence[int] | None = None) -> Classifier:
        """The same head on the frozen extractor, for images of this shape: what `certify` certifies, and `save` saves.

        An extractor from `build`, and one that is frozen already, know their shape.
        """
        shape = getattr(self.extractor, "input_shape", None) if input_shape is None else input_shape
        if shape is None:
            raise ValueError("expected input_shape, e.g. (3, 32, 32), as the extractor does not say what it takes")
        frozen = freeze(self.extractor, shape)
        sizes = ", ".join(map(str, frozen.output_shape))
        if len(frozen.output_shape) != 1:
            raise ValueError(f"expected an extractor that gives (N, d) features, got shape (N, {sizes})")
        return self if frozen is self.extractor else Classifier(frozen, self.head)


def _side_around(network: FrozenNetwork) -> float:
    """A power of two; entries of the output are proven to be at most half of it, for pixels between -1 and 2."""
    slope, constant = proven(network, 2.0, UNIT).entry_size
    most = 2 * math.sqrt(math.prod(network.input_shape)) * slope + constant
    return float(2.0 ** math.ceil(math.log2(min(max(2 * most, 1.0), WIDEST))))


def _features_of(model: Classifier) -> int:
    """The number of features, from the extractor's own word or the width of the head's first layer."""
    known = getattr(model.extractor, "dim", None)
    if isinstance(known, int):
        return known
    first = next((m.in_features for m in model.head.modules() if isinstance(m, nn.Linear)), None)
    if first is None:
        raise ValueError("expected dim, as the head does not say the number of features; pass smooth(degree, dim=...)")
    return first
