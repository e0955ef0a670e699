"""The proofs of rows, written down: a tree of boxes with a reason for each leaf, and what leads from inputs to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from berncert.certification.affine_search import AffineSearch
from berncert.certification.box_search import Watched, usable_cores
from berncert.certification.feature_space import DenseSearch, Search, posed
from berncert.certification.kernels.affine import AffineProblem
from berncert.certification.kernels.problem import Problem
from berncert.certification.kernels.recorded_reason import Claim, Desk, affine_leaf, new_desk
from berncert.certification.kernels.recording import Claims, laid_out, record_rows
from berncert.certification.kernels.sum_problem import SumProblem
from berncert.certification.methods import Exact
from berncert.certification.network_proof import norm_text
from berncert.certification.proof_content import head_content
from berncert.certification.proof_file import FORMAT, VERSION, Block, block
from berncert.certification.proof_sums import MOST_BOXES, Group, SumTree
from berncert.certification.results import Certificates
from berncert.certification.status import Status
from berncert.certification.sum_search import SumSearch
from berncert.foundation.arguments import checked_count
from berncert.foundation.arrays import Flags, Floats
from berncert.foundation.progress import Bar
from berncert.polynomial import PolynomialHead

LOWERED = 1 - 2.0**-13
"""A radius with a proof is lowered by this factor: room for short hints, and far fewer boxes."""
SHARES_OF_SUMS = (0.99, 0.95, 0.9, 0.75, 0.5)
"""What is tried of the radius of a sum, one after the other, where the simple search of its trees finds none."""
FINENESS = 8
"""The first box has corners on a grid of 2^-8 of the radius or finer, so that a checker has short numbers."""
FINEST = 2.0**-60
"""No corner is finer than this."""
FINEST_WITNESS = 2.0**128
"""A witness with coordinates that are no multiples of 1 / this is left out."""
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


Tree = tuple[Any, Any]
"""Tags and hints."""


class Trees(Protocol):
    """A head, and its way to trees of boxes."""

    shares: tuple[float, ...]
    """Of the radius, where no tree of the whole of it was found."""

    @property
    def rounding(self) -> float:
        """How far a margin that is computed may be from the exact one."""

    def find(self, claims: Claims, near: Floats, threads: int, progress: bool | None) -> list[Tree | None]:
        """The tree of each row; None where none was found."""


class Recorder:
    """Writes down the proofs of rows about one head, in one norm."""

    def __init__(self, head: PolynomialHead, norm: float, search: Search | None = None) -> None:
        """search: the head as `posed`, in this norm, where that is there already."""
        self.head, self.norm, self.text = head, norm, norm_text(norm)
        self.content = head_content(head)  # or an error
        search = posed(head, Exact(norm=norm)) if search is None else search
        self.trees = _trees(search, norm)
        self.floor = self.trees.rounding * (1 + 2.0**-20)  # above it, although it is itself a rounded number

    def opening(self, about: Mapping[str, str] | None = None) -> Block:
        """The first block of a file; `about` says what the numbers were taken from."""
        fields, arrays = self.content
        exponent = math.frexp(max(float(np.abs(values).max()) for values in arrays.values()))[1]
        common = {"format": FORMAT, "version": VERSION, "norm": self.text, "classes": self.head.classes}
        own = {"exponent": exponent, "rounding": self.floor.hex(), "about": dict(about or {})}
        return block("HEAD", common | own | fields, **arrays)

    def rows(
        self, asked: Question, found: Certificates, *, numbers: Any = None, inputs: Inputs | None = None,
        threads: int | None = None, progress: bool | None = None,
    ) -> tuple[Certificates, Floats, list[Block]]:  # fmt: skip
        """A block for each row; the certificates with the radii that are proven there, a little lower; those of inputs.

        A row for which no tree was found is written without one, keeps its radius, and is called unsupported by a
        checker. Where the tree is of a share of the radius, the status says that the radius may not be the largest.
        """
        proofs, shares = self._proofs(asked, found, threads, progress)
        radii, lowered, blocks = found.radius.copy(), np.zeros(len(found)), []
        for i, (_, proof) in enumerate(proofs):
            if proof or not radii[i] > 0:
                radii[i] = max(radii[i] * shares[i], 0.0)
        status = np.where((shares < LOWERED) & (found.status == Status.PROVEN), Status.BUDGET, found.status)
        indices = range(len(found)) if numbers is None else map(int, numbers)
        limits, texts = np.concatenate([asked.lower, asked.upper], axis=1), map(float.hex, radii.tolist())
        each = zip(indices, found.predicted.tolist(), texts, proofs, strict=True)
        for i, (number, predicted, text, (more, proof)) in enumerate(each):
            fields = {"index": number, "predicted": predicted, **more, "radius": text}
            arrays = {"x0": asked.features[i], "weight": asked.weight[i], "limits": limits[i]}
            if inputs is not None:
                lowered[i], own = inputs.row(i, radii[i] if proof else math.inf)
                fields["input_radius"] = float(lowered[i]).hex()
                arrays |= own
            blocks.append(block("ROW", fields, **arrays, **proof))
        return replace(found, radius=radii, status=status), lowered, blocks

    def _proofs(
        self, asked: Question, found: Certificates, threads: int | None, progress: bool | None
    ) -> tuple[list[tuple[dict[str, Any], dict[str, Floats]]], Floats]:
        """The fields and arrays that prove each row, no arrays where nothing does; the share of the radius proven."""
        near = np.where(np.isfinite(found.upper)[:, None], found.witness, asked.features)
        workers = usable_cores() if threads is None else checked_count("threads", threads)
        shares, boxes = np.full(len(found), LOWERED), np.zeros((len(found), 2 * asked.features.shape[1]))
        trees: dict[int, Tree] = {}
        open_rows = found.radius > 0
        for share in (LOWERED, *self.trees.shares):
            radius = found.radius * share
            low, high = first_box(*asked, radius)
            rows = np.flatnonzero(open_rows & (low < high).all(axis=1))
            parts = (asked.features, asked.weight, low, high, found.predicted, radius, near)
            *own, point = (np.ascontiguousarray(part[rows]) for part in parts)
            claims = Claims._make((*own, float(self.norm), self.floor))
            for i, tree in zip(rows.tolist(), self.trees.find(claims, point, workers, progress), strict=True):
                if tree is not None:
                    trees[i], shares[i], boxes[i] = tree, share, np.concatenate([low[i], high[i]])
                    open_rows[i] = False
            open_rows &= np.isfinite(found.radius) & (found.status != Status.HOLDS)  # of others a share is no answer
            if not open_rows.any():
                break
        known = np.isfinite(found.upper) & (found.witness * FINEST_WITNESS % 1 == 0).all(axis=1)
        proofs: list[tuple[dict[str, Any], dict[str, Floats]]] = []
        for i, (upper, rival) in enumerate(zip(found.upper.tolist(), found.rival.tolist(), strict=True)):
            if (tree := trees.get(i)) is None:
                none = "no tree of boxes was found" if found.radius[i] > 0 else "a radius of 0 claims nothing"
                proofs.append(({"why": none}, {}))
                continue
            arrays = {"box": boxes[i], "tags": tree[0], "hints": tree[1]}
            ends = {"upper": upper.hex(), "rival": rival} if known[i] else {}
            proofs.append((ends, arrays | ({"witness": found.witness[i]} if ends else {})))
        return proofs, shares


class Room:
    """What one thread writes to."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.tags, self.hints = np.empty(4096, np.uint8), np.empty(65536, np.float32)

    def double(self) -> None:
        """Twice as many tags and hints."""
        self.tags, self.hints = np.empty(2 * self.tags.size, np.uint8), np.empty(2 * self.hints.size, np.float32)


class DenseTrees:
    """Of a polynomial in all features: boxes are halved until each has a reason."""

    shares: tuple[float, ...] = ()

    def __init__(self, problem: Problem) -> None:
        self.heads, self.rounding = laid_out(problem), problem.rounding

    def find(self, claims: Claims, near: Floats, threads: int, progress: bool | None) -> list[Tree | None]:
        """By the compiled search, a few rows at a time."""
        found: list[Tree | None] = [None] * len(claims.x0)

        def prepare() -> Room:
            return Room(new_desk(len(self.heads.flattest), self.heads.sizes))

        def work(first: int, last: int, stop: Flags, clock: Floats, room: Room) -> None:
            while first < last and not stop[0]:
                some = self._some(claims, first, last, stop, room)
                found[first : first + len(some)] = some
                first += len(some)
                if first < last:
                    room.double()

        Watched("writing proofs", len(found), threads, None, progress).run(prepare, work)
        return found

    def _some(self, claims: Claims, first: int, last: int, stop: Flags, room: Room) -> list[Tree | None]:
        """The trees of the first rows, as far as there is room for them."""
        ends = np.zeros((last + 1, 2), np.int64)  # one more: those of the row before the first
        done = record_rows(self.heads, claims, first, last, room.desk, stop, room.tags, room.hints, MOST_TAGS, ends)
        found: list[Tree | None] = []
        for i in range(first, done):
            (tagged, hinted), (used, written) = ends[i - 1], ends[i]
            tree = room.tags[tagged:used].copy(), room.hints[hinted:written].copy()
            found.append(tree if used > tagged else None)
        return found


class AffineTrees:
    """Of an affine head: the first box of each rival is a leaf."""

    shares: tuple[float, ...] = ()

    def __init__(self, problem: AffineProblem) -> None:
        self.problem, self.rounding = problem, problem.rounding

    def find(self, claims: Claims, near: Floats, threads: int, progress: bool | None) -> list[Tree | None]:
        """One leaf for each rival."""
        rows = zip(*claims[:6], strict=True)
        return [self._leaves(Claim._make((*row, claims.norm, claims.floor))) for row in rows]

    def _leaves(self, claim: Claim) -> Tree | None:
        weight, bias, d = self.problem.weight, self.problem.bias, claim.x0.size
        tags, hints, used = np.empty(len(bias) - 1, np.uint8), np.empty((len(bias) - 1) * (d + 1), np.float32), 0
        rivals = [k for k in range(len(bias)) if k != claim.predicted]
        for place, k in enumerate(rivals):
            slope = weight[claim.predicted] - weight[k]
            tag, written = affine_leaf(slope, bias[claim.predicted] - bias[k], claim, hints[used:])
            if tag == 0:
                return None
            tags[place], used = tag, used + written
        return tags, hints[:used]


class SumTrees:
    """Of a sum with terms: boxes are halved, and within each the terms by themselves."""

    shares: tuple[float, ...] = SHARES_OF_SUMS

    def __init__(self, problem: SumProblem) -> None:
        self.problem, self.rounding = problem, problem.rounding

    def find(self, claims: Claims, near: Floats, threads: int, progress: bool | None) -> list[Tree | None]:
        """Row by row."""
        rows = [Claim._make((*row[:6], claims.norm, claims.floor)) for row in zip(*claims[:6], strict=True)]
        found = []
        with Bar("writing proofs", total=len(rows), progress=progress) as bar:
            for i, (row, point) in enumerate(zip(rows, near, strict=True)):
                bar.update(i)
                found.append(self._of(row, point))
        return found

    def _of(self, claim: Claim, near: Floats) -> Tree | None:
        problem, tags, hints = self.problem, [], []
        for k in range(len(problem.bias)):
            if k != claim.predicted:
                constant = float(problem.bias[claim.predicted] - problem.bias[k])
                slope = problem.weight[claim.predicted] - problem.weight[k]
                tree = SumTree(slope, constant, _groups(problem, claim.predicted, k), claim, near).write(MOST_BOXES)
                if tree is None:
                    return None
                tags += tree[0]
                hints += tree[1]
        return np.array(tags, np.uint8), np.array(hints, np.float32)


def _groups(problem: SumProblem, ahead: int, behind: int) -> list[Group]:
    """The terms of a margin, those of the same degrees together."""
    margin = problem.coefficients[ahead] - problem.coefficients[behind]
    found: dict[tuple[int, ...], list[int]] = {}
    for term in range(len(problem.begin) - 1):
        found.setdefault(tuple(problem.sizes[problem.place[term] : problem.place[term + 1]]), []).append(term)
    groups = []
    for sizes, terms in found.items():
        axes = np.array([problem.axes[problem.place[t] : problem.place[t + 1]] for t in terms])
        parts = np.array([margin[problem.begin[t] : problem.begin[t + 1]].reshape(sizes) for t in terms])
        groups.append(Group(np.array(terms), axes, parts))
    return groups


def _trees(search: Search, norm: float) -> Trees:
    if isinstance(search, DenseSearch):
        return DenseTrees(search.problem)
    if isinstance(search, AffineSearch):
        return AffineTrees(search.problem)
    assert isinstance(search, SumSearch)
    if norm not in (2.0, math.inf):
        raise ValueError(
            f"expected the norm 2 or inf with proof for a sum with terms, got {norm:g}; certify without proof, or in "
            "one of these norms"
        )
    return SumTrees(search.problem)


def first_box(x0: Floats, weight: Floats, lower: Floats, upper: Floats, radius: Floats) -> tuple[Floats, Floats]:
    """Boxes around all points that count, (N, d) or (d,), with short corners."""
    low, high = np.floor(lower / FINEST) * FINEST, np.ceil(upper / FINEST) * FINEST
    reach = np.asarray(radius)[..., None] / weight * (1 + 2.0**-50)
    grid = np.maximum(2.0 ** np.floor(np.log2(np.clip(reach, FINEST, 1.0)) - FINENESS), FINEST)
    low = np.maximum(low, np.floor(np.nextafter(x0 - reach, -math.inf) / grid - 0.01) * grid)
    high = np.minimum(high, np.ceil(np.nextafter(x0 + reach, math.inf) / grid + 0.01) * grid)
    fixed = low == high  # a thin box around it
    low, high = np.where(fixed, low - THIN, low), np.where(fixed, high + THIN, high)
    return np.maximum(low, 0.0), np.minimum(high, 1.0)
