"""The local route: what the features of all images of a ball can be, and that every margin is positive there.

It stands beside the global one (radius in features / Lipschitz bound), whose constant has to hold everywhere.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from berncert.certification.affine_search import AffineSearch
from berncert.certification.box_search import Questions, Watched, usable_cores
from berncert.certification.feature_space import DenseSearch, Search, posed
from berncert.certification.kernels.planes import plane_rows
from berncert.certification.kernels.problem import Problem, Samples, Whole, allocate, without_axes
from berncert.certification.methods import Exact
from berncert.extractor import FrozenNetwork
from berncert.extractor.bounds.norm_gains import conversion
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.extractor.reach import LocalReach, Reached
from berncert.foundation.arguments import dual_norm
from berncert.foundation.arrays import Flags, Floats, Ints
from berncert.foundation.progress import Bar
from berncert.polynomial import PolynomialHead

THINNEST = 1e-9
"""Boxes of features are widened to this: a wider box only makes the proof say more."""
MOST_BOXES = 200
"""Of a search for points of another class in a box of features."""
ROUNDS = 6
"""The most radii that are tried for an image."""
CLOSE = 1.1
"""Radii are tried until one that is not proven is less than this many times one that is."""
FIRST = 0.08
"""The first radius that is tried, as a share of where the class would change if the model were affine."""
WORTHWHILE = 0.1
"""The local route is tried if the global one proves less than this share of where that would be."""
MOST_NUMBERS = 2**24
"""In the rows of all images that are worked on together."""
DOWN = 1 - 2.0**-48


class Planes(NamedTuple):
    """For each row and rival: margin > constant + slope . features on the row's box of features."""

    constant: Floats
    """(N, K); inf for the class itself."""
    slope: Floats
    """(N, K, d)"""

    def least(self, low: Floats, high: Floats) -> Floats:
        """(N, K): no value on the box is less, rounded down."""
        parts = np.minimum(self.slope * low[:, None], self.slope * high[:, None])
        size = np.abs(parts).sum(axis=2)
        finite = np.where(np.isfinite(self.constant), np.abs(self.constant), 0.0)
        rounding = 4 * (self.slope.shape[2] + 4) * UNIT * (size + finite)
        return np.asarray(self.constant + parts.sum(axis=2) - rounding)


def local_route_takes(head: Any) -> bool:
    """Whether the local route is there for this head: a dense polynomial or an affine one, no sum of both."""
    return isinstance(head, PolynomialHead) and (head.affine is None or not head.terms)


class LocalRoute:
    """The local route of one model, for a norm of its pixels."""

    def __init__(
        self, network: FrozenNetwork, value: ValueBound, head: PolynomialHead, norm: float, *,
        threads: int | None = None, progress: bool | None = None,
    ) -> None:  # fmt: skip
        self.network, self.value, self.head, self.norm = network, value, head, norm
        self.threads, self.progress = threads, progress
        self.reach = LocalReach(network, norm)
        self.search = posed(head, Exact(radius=2.0, max_boxes=MOST_BOXES), math.inf)
        shapes = [math.prod(shape) for shape in network.shapes]
        self.at_once = max(1, MOST_NUMBERS // (2 * max(shapes) * max(head.dim, head.classes)))

    def radii(self, images: Tensor, predicted: Ints, global_radius: Floats) -> Floats:
        """For each image a radius that is proven, 0 where nothing is or where the global one is good enough.

        The first radius that is tried is a share of where the class would change if the model were affine.
        """
        found = np.zeros(len(images))
        linear = self.linear_radius(images, predicted)
        rows = np.flatnonzero(global_radius < WORTHWHILE * linear)
        with Bar("local proofs", total=len(rows), progress=self.progress) as bar:
            for first in range(0, len(rows), self.at_once):
                some = rows[first : first + self.at_once]
                start = np.maximum(FIRST * linear[some], 1.01 * global_radius[some])
                found[some] = self._searched(images[some], predicted[some], start)
                bar.update(first + len(some))
        return found

    def holds(self, images: Tensor, predicted: Ints, radius: float) -> Floats:
        """Whether each image's class is proven within this radius."""
        parts = [
            self._proven(images[rows], predicted[rows], np.full(len(rows), radius)) >= radius
            for rows in np.array_split(np.arange(len(images)), max(1, -(-len(images) // self.at_once)))
        ]
        return np.concatenate(parts)

    def linear_radius(self, images: Tensor, predicted: Ints) -> Floats:
        """Where the first rival would be reached if the model were affine: an estimate, only to choose what to try."""
        x = images.detach().double().cpu()
        found = []
        with torch.inference_mode(False), torch.enable_grad():
            for part, classes in zip(torch.split(x, 256), torch.split(torch.as_tensor(predicted), 256), strict=True):
                part = part.clone().requires_grad_()
                logits = self.head.in_float64()(self.network(part))
                own = logits.gather(1, classes[:, None])
                margin = (own - logits.scatter(1, classes[:, None], -math.inf)).amin(dim=1)
                (slope,) = torch.autograd.grad(margin.sum(), part)
                steep = torch.linalg.vector_norm(slope.flatten(1), dual_norm(self.norm), dim=1)
                found.append((margin / steep.clamp_min(1e-12)).detach())
        return torch.cat(found).clamp(0, 1e6).nan_to_num(0.0).numpy()

    def _searched(self, images: Tensor, predicted: Ints, start: Floats) -> Floats:
        """Radii are tried, each from those proven and not proven before, until both are close."""
        proven, failed, radius = np.zeros(len(start)), np.full(len(start), math.inf), start.copy()
        for _ in range(ROUNDS):
            rows = np.flatnonzero((failed > CLOSE * proven) & (radius > 0))
            if not len(rows):
                break
            tried = radius[rows]
            got = self._proven(images[rows], predicted[rows], tried)
            proven[rows] = np.maximum(proven[rows], got)
            failed[rows] = np.where(got < tried, np.minimum(failed[rows], tried), failed[rows])
            with np.errstate(invalid="ignore"):
                between = np.where(proven > 0, np.sqrt(proven * failed), failed / 4)
            radius = np.where(np.isinf(failed), 2 * radius, between)
        return proven

    def _proven(self, images: Tensor, predicted: Ints, radius: Floats) -> Floats:
        """The largest radius that is proven with the bounds that hold within the given one; at most that one.

        The features lie in a box. On it each margin is proven positive by its coefficients, or has an affine minorant,
        which the bounds of the features make one of the image: there, the radius at which it vanishes is known.
        """
        reached = self.reach.around(images, torch.as_tensor(radius))
        error = self._extraction_error(reached, radius)
        low, high, known = self._box(reached, error)
        known &= np.isfinite(radius)
        planes = _planes(self.search, low, high, predicted, self.threads)
        open_ = ~(planes.least(low, high) > 0)  # what is not a number proves nothing
        rows = np.flatnonzero(known & open_.any(axis=1))
        proven = np.where(known & ~open_.any(axis=1), radius, 0.0)
        if len(rows):
            whole = _holds(self.search, low[rows], high[rows], predicted[rows], self.threads)
            proven[rows[whole]] = radius[rows[whole]]
            rows = rows[~whole]
        if len(rows):
            proven[rows] = _vanishing(reached, planes, open_, error, rows, radius)
        return proven

    def _extraction_error(self, reached: Reached, radius: Floats) -> Floats:
        """How far computed features of images within the radius can be from the exact ones, in each entry."""
        slope, constant = self.value.error
        spread = conversion(self.norm, 2.0, math.prod(self.network.input_shape))
        with np.errstate(over="ignore", invalid="ignore"):
            error = (slope * (reached.sizes.numpy() + spread * radius) + constant) * (1 + 1e-12)
        return np.asarray(np.nan_to_num(error, nan=math.inf))

    def _box(self, reached: Reached, error: Floats) -> tuple[Floats, Floats, Any]:
        """Where computed features lie, and whether the head is known there."""
        low, high = (side.numpy() for side in reached.features.interval)
        least, greatest = self.value.limits
        low = np.clip(low - error[:, None] - THINNEST, least, greatest)
        high = np.clip(high + error[:, None] + THINNEST, least, greatest)
        fine = np.isfinite(low) & np.isfinite(high) & (low <= high)
        if not isinstance(self.search, AffineSearch):
            fine &= (low >= 0) & (high <= 1)
        known = fine.all(axis=1)
        safe = known[:, None]
        low, high = np.where(safe, low, 0.0), np.where(safe, high, 1.0)
        thin = high - low < THINNEST  # at a face of the cube
        return (
            np.where(thin & (low > 0.5), low - THINNEST, low),
            np.where(thin & (low <= 0.5), high + THINNEST, high),
            known,
        )


def _vanishing(reached: Reached, planes: Planes, open_: Any, error: Floats, rows: Ints, radius: Floats) -> Floats:
    """For some rows, the radius at which the first of the affine minorants that are still open vanishes."""
    count = int(open_[rows].sum(axis=1).max())
    order = np.argsort(~open_[rows], axis=1, kind="stable")[:, :count]
    needed = np.take_along_axis(open_[rows], order, axis=1)
    slope = np.take_along_axis(planes.slope[rows], order[..., None], axis=1)
    constant = np.take_along_axis(planes.constant[rows], order, axis=1)
    lost = np.abs(slope).sum(axis=2) * error[rows, None] * (1 + 1e-9)
    constant = np.where(needed, constant, 1.0)
    constant = constant - lost - 4 * UNIT * np.abs(constant)
    slope = np.where(needed[..., None], slope, 0.0)
    bounds = reached.lower_bounds(torch.as_tensor(slope), torch.as_tensor(constant), torch.as_tensor(rows))
    start, rate = bounds.start.numpy(), bounds.rate.numpy()
    with np.errstate(all="ignore"):
        vanishes = np.where(start > 0, start / rate * DOWN, 0.0)
    vanishes = np.where(needed, np.nan_to_num(vanishes, nan=0.0), math.inf).min(axis=1)
    found = np.minimum(vanishes, radius[rows])
    holds = (bounds.within(torch.as_tensor(found)).numpy() > 0) | ~needed
    return np.where(holds.all(axis=1), found, 0.0)


def _planes(search: Search, low: Floats, high: Floats, predicted: Ints, threads: int | None) -> Planes:
    """Affine functions below all margins on the boxes, what the head is rounded by in float64 included."""
    if isinstance(search, AffineSearch):
        return _affine_planes(search, low, high, predicted)
    assert isinstance(search, DenseSearch)
    problem = search.problem
    count, dim = low.shape
    classes = len(problem.coefficients)
    constant, slope = np.zeros((count, classes)), np.zeros((count, classes, dim))
    samples = Samples((low + high) / 2, low, high, np.ones_like(low), np.zeros((count, 0)), np.full(count, math.inf))

    def prepare() -> tuple[Problem, Whole, Any]:
        mine, whole = without_axes(problem, np.zeros(dim, np.int64))
        return mine, whole, allocate(mine)

    def work(first: int, last: int, stop: Flags, clock: Floats, own: tuple[Problem, Whole, Any]) -> None:
        mine, whole, memory = own
        plane_rows(mine, memory, whole, samples, first, last, stop, clock, predicted, constant, slope)

    Watched("margins", count, usable_cores() if threads is None else threads, None, False).run(prepare, work)
    # in units of the features: y = (x - centre) / half
    centre, half = ((low + high) / 2)[:, None], ((high - low) / 2)[:, None]
    steep = slope / half
    rounding = 16 * (dim + 4) * UNIT * (np.abs(steep) * (np.abs(centre) + half)).sum(axis=2)
    return Planes(constant - (steep * centre).sum(axis=2) - rounding, steep)


def _affine_planes(search: AffineSearch, low: Floats, high: Floats, predicted: Ints) -> Planes:
    """The margins themselves; features outside the cube are rounded by as much more as they are larger."""
    weight, bias = search.problem.weight, search.problem.bias
    slope = weight[predicted][:, None] - weight
    largest = np.maximum(np.abs(low), np.abs(high)).max(axis=1, initial=1.0)[:, None]
    size = np.abs(slope).sum(axis=2) * largest + np.abs(bias) + np.abs(bias[predicted])[:, None]
    constant = bias[predicted][:, None] - bias - search.rounding * largest - 8 * UNIT * size
    constant[np.arange(len(predicted)), predicted] = math.inf
    return Planes(constant, slope)


def _holds(search: Search, low: Floats, high: Floats, predicted: Ints, threads: int | None) -> Any:
    """Whether each row's class is proven on its box, halved as often as it takes."""
    if isinstance(search, AffineSearch):
        return np.zeros(len(low), np.bool_)
    weight = 2 / (high - low)
    middle = np.clip((low + high) / 2, low, high)
    asked = Questions(middle, low, high, weight, predicted, np.full(len(low), 2.0))
    return search.solve(asked, threads=threads).radius >= 2.0
