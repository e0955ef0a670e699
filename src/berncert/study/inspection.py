"""What a checkpoint is made of and what is proven of it: proven here and now, and beside that what the file claims."""

from __future__ import annotations

import copy
import hashlib
import math
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from berncert.arguments import checked_norm
from berncert.certification import Classifier
from berncert.certification.images import UNITS, proven_flow, routes
from berncert.extractor import Extractor, LipschitzTable, lipschitz_table
from berncert.extractor.proofs.flow import Flow
from berncert.extractor.proofs.gains import conversion
from berncert.extractor.remembered import fingerprint, plain_copy
from berncert.polynomial import SmoothedHead, smooth
from berncert.study.checkpoint import FORMAT, describe, found, load
from berncert.study.heads import Head, smoothed

Floats = npt.NDArray[np.float64]

QUESTION = re.compile(r"shape \(([\d, ]+)\), norms \(([\w., ]+)\), unit ([\de.-]+)")
SAME = 1e-9  # relative: more than two proofs of the same weights, bit for bit, differ
ROUNDED_UP = 1 + 1e-9  # more than rounding does to the few operations of a limit
QUOTIENT = 2.0**-48  # relative: more than `certify` takes off for the rounding of its own division


@dataclass(frozen=True)
class StoredProof:
    """A proof that comes with the file."""

    shape: tuple[int, ...]
    norms: tuple[float, ...]
    bounds: tuple[float, ...]
    """What it claims, from each norm to the same."""
    dtype: str
    """Of the arithmetic whose rounding it bounds."""
    fits: bool
    """Whether it is of these very weights and of this version: else nobody believes it."""
    excess: float | None
    """The greatest ratio of a bound proven here to the one that it claims; None if it was not proven again."""

    @property
    def honest(self) -> bool:
        """Whether it claims no more than can be proven, as far as that was tried."""
        return self.excess is None or not self.fits or self.excess <= 1 + SAME


@dataclass(frozen=True)
class Route:
    """From the norm of the pixels to one of the features."""

    feature_norm: float
    bound: float
    used: bool
    """Whether `certify` proves radii by it: another one may give more to every image."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """All there is to say of a checkpoint."""

    path: Path
    size: int
    sha256: str
    description: Mapping[str, Any]
    model: Classifier
    norm: float
    table: LipschitzTable | None
    """Step by step, proven here; None where the stored proof was believed instead."""
    flow: Flow
    """What is proven of the extractor."""
    routes: tuple[Route, ...]
    stored: tuple[StoredProof, ...]
    base_gap: float | None
    """The greatest difference of a coefficient from the base head smoothed anew; None without a base head."""
    seconds: float
    """That the proof took."""

    @property
    def extractor(self) -> Extractor:
        """As the checkpoint builds it."""
        assert isinstance(self.model.extractor, Extractor)
        return self.model.extractor

    @property
    def head(self) -> SmoothedHead | None:
        """None if the model is not smoothed."""
        return self.model.head if isinstance(self.model.head, SmoothedHead) else None

    @property
    def head_facts(self) -> dict[str, Any]:
        """Sizes and ranges of the polynomial; of a head that is not smoothed, how it was built."""
        head = self.head
        if head is None:
            return {"smoothed": False, **self.description["head"]}
        rows = head.coefficients.detach().flatten(1)
        return {
            "smoothed": True,
            "classes": head.classes,
            "dim": head.dim,
            "degree": head.degree,
            "shape": list(head.coefficients.shape),
            "coefficients": head.coefficients.numel(),
            "dtype": str(head.coefficients.dtype).removeprefix("torch."),
            "least": rows.amin(dim=1),
            "greatest": rows.amax(dim=1),
        }

    @property
    def parameters(self) -> int:
        """Numbers that the extractor was trained with."""
        return sum(p.numel() for p in self.extractor.parameters())

    @property
    def rounding_bound(self) -> float:
        """How far features computed in float64 can be from the true ones, in l2, if pixels are in [0, 1]."""
        slope, constant = self.flow.error
        return float(slope * math.sqrt(math.prod(self.extractor.input_shape)) + constant) * ROUNDED_UP

    @property
    def rounding_cost(self) -> float:
        """What that takes from a radius at most, in units of the pixels, whichever route gives it."""
        return max((self._cost(route) for route in self.routes if route.used), default=math.inf)

    def _cost(self, route: Route) -> float:
        """The most that reach / bound can be above (reach - 2 error) / (bound + growth), which `certify` proves.

        A reach that is finite is at most that of a corner of the cube from the opposite one.
        """
        if not 0 < route.bound < math.inf:
            return math.inf
        q, dim = route.feature_norm, self.extractor.dim
        scale = conversion(2.0, q, dim)
        growth = self.flow.error[0] * scale * conversion(self.norm, 2.0, math.prod(self.extractor.input_shape))
        farthest = conversion(math.inf, q, dim) / route.bound
        lost = 2 * self.rounding_bound * scale + farthest * (growth + route.bound * QUOTIENT)
        return float(lost / route.bound) * ROUNDED_UP

    @property
    def stays_in_cube(self) -> bool:
        """Whether features are proven to lie in [0, 1], where the head is certified."""
        return self.flow.limits[0] >= 0 and self.flow.limits[1] <= 1

    def as_json(self) -> dict[str, Any]:
        """Everything, in full precision."""
        told, table = self.description, self.table
        return {
            "file": {"path": str(self.path), "bytes": self.size, "sha256": self.sha256, "format": FORMAT},
            "extractor": told["extractor"] | {"parameters": self.parameters},
            "head": self.head_facts,
            "base": told["base"] and told["base"] | {"largest_difference_of_a_coefficient": self.base_gap},
            "about": told["about"],
            "lipschitz": {
                "norm": self.norm,
                "proven": "here" if table is not None else "believed, from the file",
                "seconds": self.seconds,
                "routes": [asdict(route) for route in self.routes],
                "steps": None if table is None else [asdict(row) for row in table],
            },
            "rounding": {"feature_bound": self.rounding_bound, "radius_cost": self.rounding_cost},
            "features_between": self.flow.limits,
            "stored_proofs": [asdict(proof) | {"honest": proof.honest} for proof in self.stored],
        }


def inspect(
    path: str | PathLike[str], *, norm: float = 2, believe: bool = False, prove: bool = False,
    progress: bool | None = None,
) -> Inspection:  # fmt: skip
    """Take the checkpoint apart and prove the bound of its extractor, step by step.

    norm: of the pixels. believe: take what the file says to be proven of these weights, if it says so, as
    `berncert.load` does; there are no steps then. prove: prove everything again that the file claims, also for other
    norms.
    """
    p = checked_norm(norm)
    file, description, model = found(path), describe(path), load(path)
    extractor = model.extractor
    assert isinstance(extractor, Extractor)
    shape = extractor.input_shape
    questions = _questions(description["proofs"])
    began = time.perf_counter()
    table = None if believe else model.lipschitz_table(shape, p, progress=progress)
    flow = table.flow if table else proven_flow(extractor, shape, p, progress=progress)
    seconds = time.perf_counter() - began
    known = {(shape, flow.gains.norms, UNITS[torch.float64]): flow} if table else {}
    stored = tuple(_looked_at(question, extractor, known, prove) for question in questions)
    content = file.read_bytes()
    return Inspection(
        file, len(content), hashlib.sha256(content).hexdigest(), description, model, p, table, flow,
        _routes(model, flow, p), stored, _base_gap(path, description, model), seconds,
    )  # fmt: skip


class Question(NamedTuple):
    """What a stored proof is about, and what it says."""

    mark: str
    shape: tuple[int, ...]
    norms: tuple[float, ...]
    unit: float
    factors: Floats
    error: Floats
    limits: Floats


def _questions(proofs: Any) -> list[Question]:
    """All that the file claims to be proven; what cannot be read is refused."""
    try:
        return [_read(mark, text, claim) for mark, claims in proofs.items() for text, claim in claims.items()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected stored proofs that can be read, got something else ({error}); do not believe this file: load it "
            "with proofs=False"
        ) from error


def _read(mark: str, text: str, claim: Mapping[str, Any]) -> Question:
    parts = QUESTION.fullmatch(text)
    if parts is None:
        raise ValueError(f"the question {text!r}")
    shape = tuple(int(n) for n in parts[1].split(",") if n.strip())
    norms = tuple(map(float, parts[2].split(",")))
    factors, error, limits = (np.array(claim[name], dtype=float) for name in ("factors", "error", "limits"))
    return Question(mark, shape, norms, float(parts[3]), factors.reshape(len(norms), len(norms)), error, limits)


def _looked_at(
    question: Question, extractor: Extractor, known: Mapping[tuple[Any, ...], Flow], prove: bool
) -> StoredProof:
    """The claim beside what is proven here of the same question, if it is."""
    _, shape, norms, unit, factors, error, limits = question
    dtype = next((kind for kind, own in UNITS.items() if own == unit), torch.float64)
    plain = plain_copy(extractor, dtype)
    flow = known.get((shape, norms, unit))
    if prove and flow is None:
        flow = lipschitz_table(plain, shape, norms[-1], unit=unit).flow
    excess = None
    if flow is not None:
        narrower = limits[0] > flow.limits[0] or limits[1] < flow.limits[1]
        ratios = _ratio(flow.gains.factors, factors), _ratio(flow.error, error)
        excess = math.inf if narrower else max(ratios)
    bounds = tuple(np.diag(factors).tolist())
    name = str(dtype).removeprefix("torch.")
    return StoredProof(shape, norms, bounds, name, fingerprint(plain) == question.mark, excess)


def _ratio(proven: Floats, claimed: Floats) -> float:
    """The greatest of proven / claimed; claims that are no numbers, or below 0, are infinitely bold."""
    with np.errstate(all="ignore"):
        ratios = np.where(proven == claimed, 1.0, proven / claimed)
    return float(np.where(ratios >= 0, ratios, math.inf).max())


def _routes(model: Classifier, flow: Flow, norm: float) -> tuple[Route, ...]:
    """The bound to each norm of the features, and whether it is used."""
    used = routes(flow, norm, model.head.dim) if isinstance(model.head, SmoothedHead) else []
    return tuple(Route(q, flow.gains.factor(norm, q), q in used) for q in flow.gains.norms)


def _base_gap(path: str | PathLike[str], description: Mapping[str, Any], model: Classifier) -> float | None:
    """How far the coefficients are from those of the base head, smoothed to the same degree."""
    if not isinstance(model.head, SmoothedHead) or description["base"] is None:
        return None
    base, head = load(path, base=True).head, model.head
    assert isinstance(base, Head)
    again = smoothed(base)
    if again.degree != head.degree:
        again = smooth(copy.deepcopy(base).double(), head.dim, head.degree)
    return float((again.coefficients - head.coefficients.double()).abs().max())
