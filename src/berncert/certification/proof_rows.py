"""The proofs of rows, written down: a tree of boxes with a reason for each leaf, and what leads from inputs to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from berncert.certification.affine_search import AffineSearch
from berncert.certification.feature_space import DenseSearch, posed
from berncert.certification.kernels.affine import AffineProblem
from berncert.certification.kernels.problem import Problem
from berncert.certification.kernels.recording import Claim, affine_leaf, new_desk, record_row
from berncert.certification.methods import Exact
from berncert.certification.network_proof import norm_text
from berncert.certification.proof_file import FORMAT, VERSION, Block, block
from berncert.certification.results import Certificates
from berncert.foundation.arrays import Floats
from berncert.foundation.progress import Bar
from berncert.polynomial import PolynomialHead

LOWERED = 1 - 2.0**-13
"""A radius with a proof is lowered by this factor: room for short hints, and far fewer boxes."""
FINENESS = 8
"""The first box has corners on a grid of 2^-8 of the radius or finer, so that a checker has short numbers."""
FINEST = 2.0**-60
"""No corner is finer than this."""
THIN = 2.0**-40
"""How far the first box reaches beyond a fixed feature."""
MOST_TAGS = 1_000_000


class Question(NamedTuple):
    """Features and what counts around them, as `certify` takes them."""

    features: Floats
    weight: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class Inputs:
    """What rows about images, or about rows of a table, say of them."""

    values: Floats
    """(N, numbers of an input), as they were given."""
    radius: Floats
    """(N,): proven without a file."""
    error: Floats
    """(N,): how far computed features may be from the exact ones."""
    bound: float
    """How far features move at most with an input, rounded up."""
    columns: Floats | None = None
    """(N, 2 m): of a table, the limits of its columns."""

    def row(self, i: int, feature_radius: float) -> tuple[float, dict[str, Floats]]:
        """The radius of this input that follows from one in feature space, and its arrays."""
        room = max(feature_radius - 2 * float(self.error[i]), 0.0)
        follows = room / self.bound * (1 - 2.0**-40) if self.bound > 0 else math.inf
        own = {} if self.columns is None else {"columns": self.columns[i]}
        return min(float(self.radius[i]), follows), {"input": self.values[i], **own}


class Trees(Protocol):
    """A head, and its way to a tree of boxes."""

    @property
    def rounding(self) -> float:
        """How far a margin that is computed may be from the exact one."""

    def opening(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """The fields and arrays of the block about the head."""

    def tree(self, claim: Claim) -> tuple[Floats, Floats] | None:
        """Tags and hints; None where none was found."""


class Recorder:
    """Writes down the proofs of rows about one head, in one norm."""

    def __init__(self, head: PolynomialHead, norm: float) -> None:
        self.head, self.norm, self.text = head, norm, norm_text(norm)
        search = posed(head, Exact(norm=norm))
        if isinstance(search, DenseSearch):
            self.trees: Trees = DenseTrees(head, search.problem)
        elif isinstance(search, AffineSearch):
            self.trees = AffineTrees(head, search.problem)
        else:
            raise TypeError(
                f"expected a SmoothedHead, or a SumHead that is affine, with proof, got an {head.kind}; proofs of sums "
                "with terms are not written yet; certify without proof"
            )
        self.floor = self.trees.rounding * (1 + 2.0**-20)  # above it, although it is itself a rounded number

    def opening(self, about: Mapping[str, str] | None = None) -> Block:
        """The first block of a file; `about` says what the numbers were taken from."""
        fields, arrays = self.trees.opening()
        exponent = math.frexp(max(float(np.abs(values).max()) for values in arrays.values()))[1]
        common = {"format": FORMAT, "version": VERSION, "norm": self.text, "classes": self.head.classes}
        own = {"exponent": exponent, "rounding": self.floor.hex(), "about": dict(about or {})}
        return block("HEAD", common | own | fields, **arrays)

    def rows(
        self, asked: Question, found: Certificates, *, numbers: Any = None, inputs: Inputs | None = None,
        progress: bool | None = None,
    ) -> tuple[Certificates, Floats, list[Block]]:  # fmt: skip
        """A block for each row; the certificates with the radii that are proven there, a little lower; those of inputs.

        A row for which no tree was found is written without one, keeps its radius, and is called unsupported by a
        checker.
        """
        radii, lowered, blocks = found.radius.copy(), np.zeros(len(found)), []
        with Bar("writing proofs", total=len(found), progress=progress) as bar:
            for i in range(len(found)):
                number = i if numbers is None else int(numbers[i])
                fields: dict[str, Any] = {"index": number, "predicted": int(found.predicted[i])}
                arrays = {"x0": asked.features[i], "weight": asked.weight[i]}
                arrays["limits"] = np.concatenate([asked.lower[i], asked.upper[i]])
                radius, more, tree = self._tree(asked, found, i)
                radii[i] = radius
                if inputs is not None:
                    lowered[i], own = inputs.row(i, radius if tree else math.inf)
                    fields["input_radius"] = float(lowered[i]).hex()
                    arrays |= own
                blocks.append(block("ROW", fields | more | {"radius": radius.hex()}, **arrays, **tree))
                bar.update(i + 1)
        return replace(found, radius=radii), lowered, blocks

    def _tree(self, asked: Question, found: Certificates, i: int) -> tuple[float, dict[str, Any], dict[str, Floats]]:
        """The radius that is proven of one row, and the fields and arrays that prove it."""
        radius, tree = float(found.radius[i] * LOWERED), None
        if not radius > 0:
            return 0.0, {"why": "a radius of 0 claims nothing"}, {}
        x0, weight = asked.features[i].copy(), asked.weight[i].copy()
        low, high = first_box(x0, weight, asked.lower[i], asked.upper[i], radius)
        predicted = int(found.predicted[i])
        if (low < high).all():
            tree = self.trees.tree(Claim(x0, weight, low, high, predicted, radius, float(self.norm), self.floor))
        if tree is None:
            return float(found.radius[i]), {"why": "no tree of boxes was found"}, {}
        arrays = {"box": np.concatenate([low, high]), "tags": tree[0], "hints": tree[1]}
        if not np.isfinite(found.upper[i]):
            return radius, {}, arrays
        ends = {"upper": float(found.upper[i]).hex(), "rival": int(found.rival[i])}
        return radius, ends, arrays | {"witness": found.witness[i]}


class DenseTrees:
    """Of a polynomial in all features: boxes are halved until each has a reason."""

    def __init__(self, head: PolynomialHead, problem: Problem) -> None:
        self.head, self.problem, self.rounding = head, problem, problem.rounding
        self.desk = new_desk(len(problem.coefficients), problem.sizes)
        self.tags, self.hints = np.empty(4096, np.uint8), np.empty(65536, np.float32)

    def opening(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """The degrees and the coefficients."""
        (raw,) = (tensor.cpu().numpy() for tensor in self.head.in_float64().tensors)
        return {"head": "dense", "degrees": [n - 1 for n in raw.shape[1:]]}, {"coefficients": raw.reshape(-1)}

    def tree(self, claim: Claim) -> tuple[Any, Any] | None:
        """By the compiled search, with more room if it needs more."""
        b, sizes = self.problem.coefficients, self.problem.sizes
        while True:
            used, hinted = record_row(b, sizes, claim, self.desk, self.tags, self.hints, MOST_TAGS)
            if used != -2:
                return None if used < 0 else (self.tags[:used].copy(), self.hints[:hinted].copy())
            self.tags, self.hints = np.empty(2 * self.tags.size, np.uint8), np.empty(2 * self.hints.size, np.float32)


class AffineTrees:
    """Of an affine head: the first box of each rival is a leaf."""

    def __init__(self, head: PolynomialHead, problem: AffineProblem) -> None:
        self.head, self.problem, self.rounding = head, problem, problem.rounding

    def opening(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """The weights and the biases."""
        weight, bias = (tensor.cpu().numpy() for tensor in self.head.in_float64().tensors)
        return {"head": "affine", "features": weight.shape[1]}, {"weight": weight.reshape(-1), "bias": bias}

    def tree(self, claim: Claim) -> tuple[Any, Any] | None:
        """One leaf for each rival."""
        weight, bias, d = self.problem.weight, self.problem.bias, claim.x0.size
        tags, hints, used = np.empty(len(bias) - 1, np.uint8), np.empty((len(bias) - 1) * (2 * d + 1), np.float32), 0
        rivals = [k for k in range(len(bias)) if k != claim.predicted]
        for place, k in enumerate(rivals):
            slope = weight[claim.predicted] - weight[k]
            tag, written = affine_leaf(slope, bias[claim.predicted] - bias[k], claim, hints[used:])
            if tag == 0:
                return None
            tags[place], used = tag, used + written
        return tags, hints[:used]


def first_box(x0: Floats, weight: Floats, lower: Floats, upper: Floats, radius: float) -> tuple[Floats, Floats]:
    """A box around all points that count, with short corners."""
    low, high = np.floor(lower / FINEST) * FINEST, np.ceil(upper / FINEST) * FINEST
    if radius < math.inf:
        reach = radius / weight * (1 + 2.0**-50)
        grid = np.maximum(2.0 ** np.floor(np.log2(np.minimum(reach, 1.0)) - FINENESS), FINEST)
        low = np.maximum(low, np.floor(np.nextafter(x0 - reach, -math.inf) / grid - 0.01) * grid)
        high = np.minimum(high, np.ceil(np.nextafter(x0 + reach, math.inf) / grid + 0.01) * grid)
    fixed = low == high  # a thin box around it
    low, high = np.where(fixed, low - THIN, low), np.where(fixed, high + THIN, high)
    return np.maximum(low, 0.0), np.minimum(high, 1.0)
