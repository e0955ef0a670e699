"""The local route: what the features of all images of a ball can be, and that every margin is positive there.

It stands beside the global one (radius in features / Lipschitz bound), whose constant has to hold everywhere.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from berncert.certification.affine_search import AffineSearch
from berncert.certification.box_search import Questions, Watched, usable_cores
from berncert.certification.feature_space import DenseSearch, Search, posed
from berncert.certification.kernels.planes import plane_rows
from berncert.certification.kernels.problem import Problem, Samples, Whole, allocate, without_axes
from berncert.certification.lowered_head import head_of, lowered
from berncert.certification.methods import Exact
from berncert.extractor import FrozenNetwork
from berncert.extractor.bounds.local import length_bound
from berncert.extractor.bounds.norm_gains import conversion
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.extractor.reach import Known, LocalReach, Reached
from berncert.foundation.arguments import dual_norm
from berncert.foundation.arrays import Flags, Floats, Ints
from berncert.foundation.progress import Bar
from berncert.polynomial import PolynomialHead

THINNEST = 1e-9
"""Boxes of features are widened to this: a wider box only makes the proof say more."""
MOST_BOXES = 200
"""Of a search for points of another class in a box of features."""
FEW, ROUNDS = 3, 6
"""So many radii are tried for an image, and up to so many where little is known after those."""
CLOSE = 1.3
"""Radii are tried until one that is not proven is less than this many times one that is,"""
ENOUGH = 0.35
"""or the margin that is left at one that is proven is less than this share of that at the image."""
ROUGHLY = 1.6
"""The first of the two, after a few radii."""
AIM = math.log(0.88)
"""Where the next radius is aimed at: an eighth of the margin left. This and the next as `_Trail` has them."""
STEEP = 2.0
"""The power of the radius with which the part of the margin that is lost is taken to grow, while nothing is known."""
FARTHEST, LEAST_BACK = math.log(4), math.log(1.1)
"""The largest step from a radius that was tried, and the least one back while none is proven."""
FIRST = 0.06
"""The first radius that is tried where nothing better is known, as a share of where an affine model would change."""
NOISE, SAMPLES = 64, 3
"""Images of noise, and those of the largest margin, on which the model's usual radius is measured;"""
GROWTH, WITH_LINEAR = 0.5, 0.12
"""radii grow about like these powers of the margin at the image and of where an affine model would change."""
WORTHWHILE = 0.1
"""The local route is tried if the global one proves less than this share of where that would be."""
CLEAR = 100
"""A head of a lower degree is asked about rows whose class leads by this many times what it may be off."""
MOST_NUMBERS = 2**23
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


class _Margins(NamedTuple):
    """Of the features within a radius of each image, and of the margins on them."""

    error: Floats
    """How far computed features are from the exact ones."""
    low: Floats
    high: Floats
    """Between which computed features lie,"""
    known: Flags
    """if this is true."""
    sharp: Flags
    """Whether the head itself has to be asked."""
    planes: Planes
    least: Floats
    """(N, K): no margin is less."""


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
        self.nearly = lowered(self.search) if isinstance(self.search, DenseSearch) else None
        shapes = [math.prod(shape) for shape in network.shapes]
        self.at_once = max(1, MOST_NUMBERS // (2 * max(shapes) * max(head.dim, head.classes)))

    def radii(self, images: Tensor, predicted: Ints, global_radius: Floats) -> Floats:
        """For each image a radius that is proven, 0 where nothing is or where the global one is good enough.

        The first radius that is tried is a share of where the class would change if the model were affine.
        """
        found = np.zeros(len(images))
        linear, lead = self.linear(images, predicted)
        rows = np.flatnonzero(global_radius < WORTHWHILE * linear)
        if not len(rows):
            return found
        first_tried = self._first_tried(linear, lead)
        with Bar("local proofs", total=len(rows), progress=self.progress) as bar:
            done = 0
            for some in self._parts(rows):
                start = np.maximum(first_tried[some], 1.01 * global_radius[some])
                found[some] = self._searched(images[some], predicted[some], start, lead[some])
                done += len(some)
                bar.update(done)
        return found

    def _first_tried(self, linear: Floats, lead: Floats) -> Floats:
        """A guess at the radii that can be proven, for each image by itself."""
        usual = self._usual
        return FIRST * linear if usual is None else np.minimum(usual * _expected(linear, lead), linear)

    @cached_property
    def _usual(self) -> float | None:
        """What to multiply the powers with: for images of noise it gives what is proven of them."""
        noise = torch.rand(NOISE, *self.network.input_shape, generator=torch.Generator().manual_seed(0)).double()
        with torch.no_grad():
            predicted = self.head.in_float64()(self.network(noise)).argmax(dim=1).numpy()
        linear, lead = self.linear(noise, predicted)
        rows = np.argsort(-lead, kind="stable")[:SAMPLES]
        start = FIRST * linear[rows]
        radius = self._searched(noise[rows], predicted[rows], start, lead[rows])
        with np.errstate(all="ignore"):
            factor = radius / _expected(linear[rows], lead[rows])
        some = (factor > 0) & np.isfinite(factor)
        return float(np.median(factor[some])) if some.any() else None

    def holds(self, images: Tensor, predicted: Ints, radius: float) -> Flags:
        """Whether each image's class is proven within this radius: by bounds forwards, else by backwards ones too."""
        found = np.zeros(len(images), np.bool_)
        for proven in (self._proven_forwards, self._proven):
            for some in self._parts(np.flatnonzero(~found)):
                at = np.full(len(some), radius)
                found[some] = proven(images[some], predicted[some], at)[0] >= radius
        return found

    def _parts(self, rows: Ints) -> list[Ints]:
        """The rows in parts that are worked on together."""
        return np.array_split(rows, -(-len(rows) // self.at_once)) if len(rows) else []

    def linear(self, images: Tensor, predicted: Ints) -> tuple[Floats, Floats]:
        """Where the first rival would be reached if the model were affine, and by how much the class leads.

        Estimates, only to choose what to try.
        """
        x, found = images.detach().double().cpu(), []
        head = self.head.in_float64() if self.nearly is None else head_of(self.nearly)
        with torch.inference_mode(False), torch.enable_grad():
            for part, classes in zip(torch.split(x, 256), torch.split(torch.as_tensor(predicted), 256), strict=True):
                part = part.clone().requires_grad_()
                logits = head(self.network(part))
                own = logits.gather(1, classes[:, None])
                margin = (own - logits.scatter(1, classes[:, None], -math.inf)).amin(dim=1)
                (slope,) = torch.autograd.grad(margin.sum(), part)
                steep = length_bound(slope[:, None], dual_norm(self.norm))[:, 0]
                found.append(torch.stack([margin / steep.clamp_min(1e-12), margin]).detach())
        radius, lead = torch.cat(found, dim=1).clamp(0, 1e6).nan_to_num(0.0).numpy()
        return radius, np.ldexp(lead, -self.search.exponent)

    def _searched(self, images: Tensor, predicted: Ints, start: Floats, lead: Floats) -> Floats:
        """Radii are tried, each from what is left of the margin at those before, until both sides are close."""
        trail, before, known = _Trail(start), np.zeros(0, np.int64), None
        for tries in range(ROUNDS):
            rows = trail.unfinished(tries)
            if not len(rows):
                break
            if known is not None:
                known = known.rows(torch.as_tensor(np.searchsorted(before, rows)))
            got, least, known = self._proven(images[rows], predicted[rows], trail.radius[rows], known)
            before = rows
            with np.errstate(all="ignore"):
                left = np.nan_to_num(least / lead[rows], nan=-math.inf)
            trail.add(rows, got, np.clip(left, -1e3, 1.0))
        return trail.proven

    def _proven(
        self, images: Tensor, predicted: Ints, radius: Floats, known_before: Known | None = None
    ) -> tuple[Floats, Floats, Known]:
        """The largest radius that is proven with the bounds that hold within the given one; at most that one.

        The features lie in a box. On it each margin is proven positive by its coefficients, or has an affine minorant,
        which the bounds of the features make one of the image: there, the radius at which it vanishes is known. Also
        returned is the least margin that is left within the given radius, as far as the bounds say, and what is known
        of these images then.
        """
        reached = self.reach.around(images, torch.as_tensor(radius), known_before)
        error, low, high, known, sharp, planes, least = self._margins(reached, predicted, radius)
        open_ = ~(least > 0)  # what is not a number proves nothing
        rows = np.flatnonzero(known & open_.any(axis=1))
        proven = np.where(known & ~open_.any(axis=1), radius, 0.0)
        if len(rows):
            vanishing, least[rows] = _vanishing(reached, planes, least[rows], open_[rows], error, rows, radius)
            proven[rows] = vanishing
            rows = rows[vanishing < radius[rows]]
        if len(rows):
            rows = rows[self._may_hold(planes, low, high, least, predicted, rows)]
        if len(rows):
            whole = self._holds(low[rows], high[rows], predicted[rows], sharp[rows])
            proven[rows[whole]] = radius[rows[whole]]
        return proven, np.where(known, least.min(axis=1), -math.inf), reached.known

    def _proven_forwards(self, images: Tensor, predicted: Ints, radius: Floats) -> tuple[Floats, Floats]:
        """The radius where bounds that only go forwards prove it, else 0, and the least margin that they leave.

        In a fraction of the time of `_proven`; of networks that were trained through their boxes it is most images.
        """
        reached = self.reach.around(images, torch.as_tensor(radius), backwards=False)
        margins = self._margins(reached, predicted, radius)
        least = np.where(margins.known, margins.least.min(axis=1), -math.inf)
        return np.where(least > 0, radius, 0.0), least

    def _margins(self, reached: Reached, predicted: Ints, radius: Floats) -> _Margins:
        """What is known of all margins from the box of the features."""
        error = self._extraction_error(reached, radius)
        low, high, known = self._box(reached, error)
        known &= np.isfinite(radius)
        sharp = self._sharp(reached, known)
        planes = self._planes(low, high, predicted, sharp)
        return _Margins(error, low, high, known, sharp, planes, planes.least(low, high))

    def _sharp(self, reached: Reached, known: Any) -> Any:
        """For which rows the head itself has to be asked: those whose class leads by little."""
        sharp = np.ones(len(known), np.bool_)
        if self.nearly is not None:
            features = reached.features.centre[known].numpy().clip(0, 1)
            sharp[known] = self.nearly.classify(features)[1] < CLEAR * self.nearly.rounding
        return sharp

    def _planes(self, low: Floats, high: Floats, predicted: Ints, sharp: Any) -> Planes:
        """Affine functions below all margins on the boxes, in units of `search`."""
        found = Planes(*(np.zeros((*low.shape[:1], self.head.classes, *low.shape[1:i])) for i in (1, 2)))
        for search, rows in self._searches(sharp):
            planes = _planes(search, low[rows], high[rows], predicted[rows], self.threads)
            for into, part in zip(found, planes, strict=True):
                into[rows] = np.ldexp(part, search.exponent - self.search.exponent)
        return found

    def _may_hold(self, planes: Planes, low: Floats, high: Floats, least: Floats, predicted: Ints, rows: Ints) -> Any:
        """Of these rows, those whose class holds at the corner of the box where the worst margin seems least."""
        if isinstance(self.search, AffineSearch):  # its margins are their own minorants
            return np.zeros(len(rows), np.bool_)
        steep = planes.slope[rows, least[rows].argmin(axis=1)]
        corner = np.where(steep > 0, low[rows], high[rows])
        return (self.nearly or self.search).classify(corner)[0] == predicted[rows]

    def _holds(self, low: Floats, high: Floats, predicted: Ints, sharp: Any) -> Any:
        """Whether each row's class is proven on its box."""
        found = np.zeros(len(low), np.bool_)
        for search, rows in self._searches(sharp):
            found[rows] = _holds(search, low[rows], high[rows], predicted[rows], self.threads)
        return found

    def _searches(self, sharp: Any) -> list[tuple[Search, Ints]]:
        """Which of the two heads is asked about which rows."""
        pairs = ((self.nearly, np.flatnonzero(~sharp)), (self.search, np.flatnonzero(sharp)))
        return [(search, rows) for search, rows in pairs if search is not None and len(rows)]

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


class _Trail:
    """Radii that were tried for each row, whether they are proven, and how much of the margin was left.

    The part of the margin that is lost grows about like a power of the radius, from 0 to 1 where the last of it is
    lost: with logarithms of both, the next radius is on the line through two that were tried.
    """

    def __init__(self, start: Floats) -> None:
        count = len(start)
        self.radius = start.copy()
        self.proven, self.failed = np.zeros(count), np.full(count, math.inf)
        self.least_left = np.ones(count)
        self.below, self.above = np.full((2, 2, count), math.nan)
        """Logarithms of a radius and of the part lost: for the largest that held, and for the least that did not."""

    def unfinished(self, tries: int) -> Ints:
        """The rows for which another radius is worth a trial, after so many."""
        apart = CLOSE if tries < FEW else ROUGHLY
        close = (self.failed <= apart * (1 + 1e-6) * self.proven) | (self.least_left < ENOUGH)  # steps may be CLOSE
        return np.flatnonzero(~close & (self.radius > 0) & (self.radius < math.inf))

    def add(self, rows: Ints, got: Floats, left: Floats) -> None:
        """For some rows: what was proven of the radius that was tried, and the share of the margin left there."""
        tried, held = self.radius[rows], got >= self.radius[rows]
        points = np.stack([np.log(tried), np.log(np.maximum(1 - left, 1e-3))])
        self.proven[rows] = np.maximum(self.proven[rows], got)
        self.least_left[rows[held]] = np.maximum(left[held], 0)
        self.below[:, rows[held]] = points[:, held]
        self.failed[rows[~held]] = tried[~held]
        self.above[:, rows[~held]] = points[:, ~held]
        self.radius[rows] = np.maximum(np.exp(self._next(rows)), math.sqrt(CLOSE) * self.proven[rows])

    def _next(self, rows: Ints) -> Floats:
        low, lost_low = self.below[:, rows]
        high, lost_high = self.above[:, rows]
        with np.errstate(all="ignore"):
            share = np.nan_to_num((AIM - lost_low) / (lost_high - lost_low), nan=0.5)
            between = low + np.clip(share, 0.1, 0.9) * (high - low)
        larger = low + np.clip((AIM - lost_low) / STEEP, math.log(CLOSE), FARTHEST)
        smaller = high - np.clip((lost_high - AIM) / STEEP, LEAST_BACK, FARTHEST)
        return np.asarray(np.where(np.isnan(high), larger, np.where(np.isnan(low), smaller, between)))


def _expected(linear: Floats, lead: Floats) -> Floats:
    """What proven radii are about proportional to, over the images of a model."""
    return np.asarray(lead**GROWTH * linear**WITH_LINEAR)


def _vanishing(
    reached: Reached, planes: Planes, least: Floats, open_: Any, error: Floats, rows: Ints, radius: Floats
) -> tuple[Floats, Floats]:
    """For some rows, the radius at which the first of the affine minorants that are still open vanishes.

    And (rows, K) what the margins are at least within the given radius. The rival that comes nearest on the box is
    tried first; where its minorant vanishes at the image, the others are left out.
    """
    found, bounds = radius[rows].copy(), least.copy()
    nearest = np.zeros_like(open_)
    nearest[np.arange(len(rows)), np.where(open_, least, math.inf).argmin(axis=1)] = True
    for asked in (open_ & nearest, open_ & ~nearest):
        row, rival = np.nonzero(asked & (found > 0)[:, None])
        bounds[asked & (found == 0)[:, None]] = math.inf
        if not len(row):
            continue
        slope, constant = planes.slope[rows[row], rival], planes.constant[rows[row], rival]
        constant = constant - np.abs(slope).sum(axis=1) * error[rows[row]] * (1 + 1e-9)
        constant = constant - 8 * UNIT * np.abs(constant)
        pulled = reached.lower_bounds(
            torch.as_tensor(slope[:, None]), torch.as_tensor(constant[:, None]), torch.as_tensor(rows[row])
        )
        start, rate = pulled.start.numpy()[:, 0], pulled.rate.numpy()[:, 0]
        with np.errstate(all="ignore"):
            vanishes = np.nan_to_num(np.where(start > 0, start / rate * DOWN, 0.0), nan=0.0)
        np.minimum.at(found, row, vanishes)
        failed = ~(pulled.within(torch.as_tensor(found[row])).numpy()[:, 0] > 0)
        found[row[failed]] = 0.0
        within = pulled.within(torch.as_tensor(radius[rows[row]])).numpy()[:, 0]
        bounds[row, rival] = np.fmax(bounds[row, rival], within)
    return found, bounds


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
