"""The parts of a checkpoint, and what is proven about them when it is inspected."""

from __future__ import annotations

import copy
import math
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from typing import Any

from torch import nn

from berncert.certification.classifier import Classifier
from berncert.certification.fingerprint import fingerprint
from berncert.certification.prepared_model import routes
from berncert.extractor import FrozenNetwork, LipschitzTable, lipschitz_table
from berncert.extractor.bounds.norm_gains import conversion
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.foundation.arguments import checked_norm
from berncert.models.checkpoint import FORMAT, Checkpoint, open_checkpoint
from berncert.models.heads import smoothed
from berncert.polynomial import Fidelity, PolynomialHead
from berncert.polynomial.fidelity import Comparison, chosen_points
from berncert.polynomial.sampling import Sampler
from berncert.polynomial.sum_head import smoothed_head

ROUNDED_UP = 1 + 1e-9  # more than the rounding error of the few operations of a bound
QUOTIENT = 2.0**-48  # relative: more than `certify` subtracts for the rounding of its own division


@dataclass(frozen=True)
class Route:
    """The Lipschitz bound from the norm of the pixels to a norm of the features."""

    feature_norm: float
    bound: float
    used: bool
    """Whether `certify` proves radii by this route; False if another one gives every image a larger radius."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """The parts of a checkpoint and the proven bounds of its extractor."""

    checkpoint: Checkpoint
    norm: float
    table: LipschitzTable
    """The Lipschitz bound of the extractor, step by step."""
    routes: tuple[Route, ...]
    base_gap: float | None
    """The largest difference between a coefficient and that of the base head smoothed again; None without one."""
    seconds: float
    """The time that the proof took."""
    fidelity: Fidelity | None = None
    """How far the smoothed head agrees with the base head; None without one."""

    @property
    def extractor(self) -> FrozenNetwork:
        """The frozen network of the checkpoint."""
        assert self.checkpoint.extractor is not None
        return self.checkpoint.extractor

    @property
    def head(self) -> PolynomialHead | None:
        """The smoothed head; None if the model is not smoothed."""
        head = self.checkpoint.head
        return head if isinstance(head, PolynomialHead) else None

    @property
    def head_summary(self) -> dict[str, Any]:
        """The sizes and ranges of the polynomial; for a head that is not smoothed, how it was built."""
        head = self.head
        if head is None:
            return {"smoothed": False, **(self.checkpoint.description()["head"] or {})}
        least, greatest = head.enclosed()
        return {
            "smoothed": True,
            "classes": head.classes,
            "dim": head.dim,
            "degree": head.degree,
            "shape": head.description.get("coefficients"),
            "terms": len(head.terms),
            "coefficients": head.numbers,
            "dtype": str(head.tensors[0].dtype).removeprefix("torch."),
            "least": least,
            "greatest": greatest,
        }

    @property
    def rounding_bound(self) -> float:
        """The largest l2 distance of features computed in float64 from the exact ones, for pixels in [0, 1]."""
        slope, constant = self.table.value.error
        return float(slope * math.sqrt(math.prod(self.extractor.input_shape)) + constant) * ROUNDED_UP

    @property
    def rounding_cost(self) -> float:
        """The most that this rounding takes from a radius, in units of the pixels, by any route that is used."""
        return max((self._cost(route) for route in self.routes if route.used), default=math.inf)

    def _cost(self, route: Route) -> float:
        """The largest difference of r / bound from (r - 2 error) / (bound + growth), which `certify` proves.

        Here r is the radius in feature space; if it is finite, it is at most the diagonal of the cube.
        """
        if not 0 < route.bound < math.inf:
            return math.inf
        q, dim = route.feature_norm, self.extractor.dim
        scale = conversion(2.0, q, dim)
        growth = self.table.value.error[0] * scale * conversion(self.norm, 2.0, math.prod(self.extractor.input_shape))
        farthest = conversion(math.inf, q, dim) / route.bound
        lost = 2 * self.rounding_bound * scale + farthest * (growth + route.bound * QUOTIENT)
        return float(lost / route.bound) * ROUNDED_UP

    @cached_property
    def fingerprint(self) -> str | None:
        """What `berncert-check` prints for proofs about this model; None if a proof file cannot hold it."""
        if self.head is None:
            return None
        with suppress(ValueError, TypeError):
            return fingerprint(Classifier(self.extractor, self.head))
        return None

    @property
    def stays_in_cube(self) -> bool:
        """Whether features are proven to lie in [0, 1], where the head is certified."""
        low, high = self.table.value.limits
        return low >= 0 and high <= 1

    def as_json(self) -> dict[str, Any]:
        """The whole inspection, in full precision."""
        file, described = self.checkpoint, self.checkpoint.description()
        return {
            "file": {"path": str(file.path), "bytes": file.size, "sha256": file.sha256, "format": FORMAT},
            "extractor": described["extractor"],
            "fingerprint": self.fingerprint,
            "head": self.head_summary,
            "base": described["base"]
            and described["base"]
            | {
                "largest_difference_of_a_coefficient": self.base_gap,
                "fidelity": self.fidelity and asdict(self.fidelity),
            },
            "about": described["about"],
            "lipschitz": {
                "norm": self.norm,
                "seconds": self.seconds,
                "routes": [asdict(route) for route in self.routes],
                "steps": [asdict(row) for row in self.table],
            },
            "rounding": {"feature_bound": self.rounding_bound, "radius_cost": self.rounding_cost},
            "features_between": self.table.value.limits,
        }


def inspect(model: str | PathLike[str] | Checkpoint, *, norm: float = 2, progress: bool | None = None) -> Inspection:
    """Read a checkpoint and prove the Lipschitz bound of its extractor, step by step, for this norm of the pixels."""
    p, checkpoint = checked_norm(norm), model if isinstance(model, Checkpoint) else open_checkpoint(model)
    if checkpoint.extractor is None:
        raise ValueError(f"expected a checkpoint with an extractor, got {model}, which contains a head only")
    began = time.perf_counter()
    table = lipschitz_table(checkpoint.extractor, checkpoint.extractor.input_shape, p, progress=progress)
    seconds = time.perf_counter() - began
    used = _routes(checkpoint.head, table.value, p)
    return Inspection(checkpoint, p, table, used, _base_gap(checkpoint), seconds, _fidelity(checkpoint))


def _routes(head: nn.Module | None, value: ValueBound, norm: float) -> tuple[Route, ...]:
    """The route to each norm of the features."""
    used = routes(value, norm, head.dim) if isinstance(head, PolynomialHead) else []
    return tuple(Route(q, value.gains.factor(norm, q), q in used) for q in value.gains.norms)


def _base_gap(checkpoint: Checkpoint) -> float | None:
    """The largest difference of a coefficient from that of the base head, smoothed to the same degree."""
    base, head = checkpoint.base, checkpoint.head
    if not isinstance(head, PolynomialHead) or base is None:
        return None
    again = smoothed(base, points=0)
    if again.description != head.description:
        again = smoothed_head(copy.deepcopy(base).double(), head.dim, head.degree, points=0)
    pairs = zip(again.tensors, head.tensors, strict=True)
    return max(float((new - old.double()).abs().max()) for new, old in pairs)


def _fidelity(checkpoint: Checkpoint) -> Fidelity | None:
    """How far the smoothed head agrees with the base head, at points drawn from the cube."""
    base, head = checkpoint.base, checkpoint.head
    if not isinstance(head, PolynomialHead) or base is None:
        return None
    drawn = chosen_points(None, head.dim).beside(head.numbers)
    return Comparison(Sampler(copy.deepcopy(base).double()), drawn).fidelity(head)
