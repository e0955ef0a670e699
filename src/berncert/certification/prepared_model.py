"""A classifier made ready for images of one shape: frozen, and what is proven of its extractor."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from berncert.certification.classifier import Classifier
from berncert.certification.inputs import ONE_EACH, placement
from berncert.extractor import FrozenNetwork
from berncert.extractor.bounds.norm_gains import conversion
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.extractor.evaluation import require_evaluation
from berncert.extractor.proof_cache import proven
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Floats
from berncert.foundation.progress import Bar
from berncert.polynomial import PolynomialHead

UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}


class PreparedModel:
    """A classifier whose bound is proven once, so that batches of images cost only themselves.

    A proof needs a smoothed head; `any_head` takes others too.
    """

    def __init__(
        self,
        model: Classifier,
        input_shape: Sequence[int],
        *,
        norm: float,
        dtype: torch.dtype = torch.float64,
        batch_size: int = 256,
        progress: bool | None = None,
        any_head: bool = False,
    ) -> None:
        if not isinstance(model, Classifier) or not (any_head or isinstance(model.head, PolynomialHead)):
            head = f" with a {type(model.head).__name__}" if isinstance(model, Classifier) else ""
            whole = ""
            if isinstance(model, nn.Module) and not isinstance(model, Classifier):
                whole = "berncert.Classifier.of_logits(network, input_shape) of a whole network, "
            raise TypeError(
                f"expected a SmoothedHead, or a Classifier with one, got {type(model).__name__}{head}; make one with "
                f"{whole}berncert.smooth(head, dim, degree) or classifier.smooth(degree)"
            )
        self.norm, self.dtype = norm, dtype
        self.head: nn.Module = model.head
        self.shape, self.progress = tuple(input_shape), progress
        self.batch_size = checked_count("batch_size", batch_size)
        self.device = placement(model).device
        self.extractor = frozen_for(model, self.shape)
        self.value = proven(self.extractor, norm, UNITS[dtype], progress)

    def features(self, images: Tensor) -> Floats:
        """Where the extractor puts the images, in float64."""
        parts: list[Tensor] = []
        bar = Bar("extracting", total=len(images), progress=self.progress)
        with torch.no_grad(), bar:
            for batch in torch.split(images, self.batch_size):
                parts.append(self.extractor(batch.to(device=self.device, dtype=self.dtype)).double().cpu())
                bar.update(sum(map(len, parts)))
        return torch.cat(parts).numpy()

    def bound(self, feature_norm: float) -> float:
        """The Lipschitz bound of the extractor, from the norm of the pixels to this one of the features."""
        return self.value.gains.factor(self.norm, feature_norm)

    def routes(self) -> list[float]:
        """The feature norms by which radii are proven."""
        return routes(self.value, self.norm, self.extractor.dim)


def frozen_for(model: Classifier, shape: Sequence[int]) -> FrozenNetwork:
    """The frozen extractor of this model for images of this shape; an error that says what to do if they do not fit."""
    known = getattr(model.extractor, "input_shape", None)
    if known is not None and tuple(known) != tuple(shape):
        got = f"shape (N, {', '.join(map(str, shape))})"
        raise ValueError(f"expected images of shape (N, {', '.join(map(str, known))}), got {got}; {ONE_EACH}")
    require_evaluation(model.extractor)
    try:
        extractor = model.freeze(shape).extractor
    except ValueError as error:
        got = f"shape (N, {', '.join(map(str, shape))}) ({error})"
        raise ValueError(f"expected images that the extractor takes, got {got}; {ONE_EACH}") from error
    assert isinstance(extractor, FrozenNetwork)
    return extractor


def frozen_classifier(model: Classifier, shape: Sequence[int], dtype: str) -> Classifier:
    """The frozen model, which is what is certified, with a head in this dtype."""
    return Classifier(frozen_for(model, shape), copy.deepcopy(model.head).to(getattr(torch, dtype))).eval()


def routes(value: ValueBound, norm: float, dim: int) -> list[float]:
    """The norms of `dim` features that can give the largest radius to some row; none is left out that could."""
    bounds = {q: value.gains.factor(norm, q) for q in value.gains.norms}
    order = sorted(bounds, key=lambda q: (q != norm, q))

    def beaten(q: float) -> bool:
        # a point r away in another norm is at most conversion * r away in this one; of equals the first stays
        return any(
            bounds[other] * conversion(other, q, dim) <= bounds[q] * (1 + (1e-9 if rank < order.index(q) else -1e-9))
            for rank, other in enumerate(order)
            if other != q
        )

    return [q for q in order if math.isfinite(bounds[q]) and not beaten(q)] or [norm]
