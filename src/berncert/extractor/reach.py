"""The features that the images of a ball can reach: bounds of values forwards, affine bounds of the last backwards.

Where a global Lipschitz constant has to hold everywhere, these hold near one image only, and are much closer there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from berncert.extractor.arithmetic import on_cpu, plain_arithmetic
from berncert.extractor.bounds.local import (
    TINY,
    AffineBounds,
    Interval,
    LocalValue,
    flat,
    gamma,
    length_bound,
    total,
)
from berncert.extractor.bounds.norm_gains import NormGains, conversion, norms_with
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.extractor.frozen import FrozenNetwork, Step, interpret
from berncert.extractor.operations import Concatenate
from berncert.extractor.operations.base import Affine
from berncert.extractor.operations.entrywise import Relaxed
from berncert.extractor.patches import Patches
from berncert.foundation.arguments import dual_norm

MOST_NUMBERS = 2**23
"""In the rows that are pulled back together, for each value on the way."""
LITTLE_MORE = 1.6
"""Bounds along patches that were found within a radius are used within one smaller by at most this factor."""
MOST_ENTRIES = 1024
"""Values with more entries are bounded by intervals and norms only: a row for each entry would take too long."""


class LocalReach:
    """What can be reached from an image, for a network and a norm of its pixels: what is the same for all images."""

    def __init__(self, network: FrozenNetwork, norm: float) -> None:
        self.network, self.norm, self.norms = network, norm, norms_with(norm)
        self.values, self.gains = _step_bounds(network, self.norms)
        self.tightened = _tightened(network)
        self.patches = Patches(network, self.tightened)

    def around(self, images: Tensor, radius: Tensor, larger: Known | None = None, *, backwards: bool = True) -> Reached:
        """All values for images (N, ...) within a radius (N,) each.

        larger: what is known of the same images; it is not found again where that radius is little more than this one.
        backwards: bound values by affine functions of the image too; without, only forwards, in a fraction of the time.
        """
        images, radius = images.double().cpu(), radius.double().cpu()
        with torch.inference_mode(False), torch.no_grad(), on_cpu(), plain_arithmetic():
            return Reached(self, images, radius, larger, backwards=backwards)


@dataclass(frozen=True)
class _Image:
    """The ball itself."""

    x: Tensor
    radius: Tensor


class Known(NamedTuple):
    """What was found within a radius of some images."""

    radius: Tensor
    along_patches: dict[int, AffineBounds]
    """Of the entries of some values, and of their negatives: (N, 2, entries)."""

    def rows(self, chosen: Tensor) -> Known:
        """Of some of the images."""
        parts = {i: AffineBounds(*(part[chosen] for part in bounds)) for i, bounds in self.along_patches.items()}
        return Known(self.radius[chosen], parts)


class Reached:
    """The values of a network for all images of a ball around each of some images."""

    def __init__(
        self, reach: LocalReach, images: Tensor, radius: Tensor, larger: Known | None, *, backwards: bool
    ) -> None:
        self.reach, self.ball = reach, _Image(images, radius)
        self.tightened = reach.tightened if backwards else {}
        self.larger, self.along_patches = larger, dict[int, AffineBounds]()
        self.sizes = length_bound(images[:, None], 2.0)[:, 0]
        self.values = [self._start()]
        for number, step in enumerate(reach.network.steps, start=1):
            self.values.append(self._next(number, step))

    def _start(self) -> LocalValue:
        x, radius, norm = self.ball.x, self.ball.radius, self.reach.norm
        balls = [conversion(norm, t, x[0].numel()) * (1 + 8 * UNIT) for t in self.reach.norms]
        per_pixel = radius.view(-1, *(1,) * (x.ndim - 1)) * (1 + 8 * UNIT) + 4 * UNIT * x.abs() + TINY
        return LocalValue(
            x,
            Interval(x - per_pixel, x + per_pixel),
            norm,
            self.reach.norms,
            radius[:, None] * x.new_tensor(balls) + TINY,
        )

    def _next(self, number: int, step: Step) -> LocalValue:
        """From the bounds of its arguments: by intervals, and by how far values can move in norms."""
        values = [self.values[i] for i in step.inputs]
        centre = step.operation.evaluate(*(v.centre for v in values))
        error = self._error(number)
        balls = self._moved(number, values, step) + error
        far = balls[:, self.reach.norms.index(math.inf)].view(-1, *(1,) * (centre.ndim - 1))
        half = far * (1 + 4 * UNIT) + 4 * UNIT * centre.abs() + TINY
        interval = Interval(centre - half, centre + half)
        found = step.operation.interval(*values)
        interval = interval if found is None else interval.within(found)
        if number in self.tightened:
            interval = self._tighter(number, LocalValue(centre, interval, self.reach.norm, self.reach.norms, balls))
        width = torch.maximum(interval.upper - centre, centre - interval.lower)[:, None]
        widths = torch.cat([length_bound(width, t) for t in self.reach.norms], dim=1) * (1 + 8 * UNIT)
        return LocalValue(centre, interval, self.reach.norm, self.reach.norms, torch.minimum(balls, widths))

    def _error(self, number: int) -> Tensor:
        """(N, norms): how far the computed value of the image itself is from the true one."""
        bound, count = self.reach.values[number], math.prod(self.reach.network.shapes[number])
        slope, constant = bound.error
        wider = self.sizes.new_tensor([conversion(2.0, t, count) for t in self.reach.norms]) * (1 + 1e-12)
        error: Tensor = (slope * self.sizes + constant)[:, None] * wider
        return error

    def _moved(self, number: int, values: Sequence[LocalValue], step: Step) -> Tensor:
        """(N, norms): how far the exact value is from that of the centres of its arguments, which are computed."""
        gains = self.reach.gains[number]
        if gains is not None:
            factors = self.sizes.new_tensor(gains.factors)
            least: Tensor = (values[0].balls[:, :, None] * factors).amin(dim=1)
            return least * (1 + 8 * UNIT) + TINY
        parts = torch.stack([v.balls for v in values])
        if isinstance(step.operation, Concatenate):
            rows = parts.permute(1, 2, 0)
            return torch.cat([length_bound(rows[:, j : j + 1], t) for j, t in enumerate(self.reach.norms)], dim=1)
        return parts.sum(dim=0) * (1 + gamma(len(values)))

    def _tighter(self, number: int, value: LocalValue) -> Interval:
        """The interval of a value from affine bounds of its entries in the image."""
        if number not in self.reach.patches:
            return self._along_all(number, value) if math.prod(value.shape) <= MOST_ENTRIES else value.interval
        kinks = self.tightened[number]
        open_ = torch.ones_like(value.centre, dtype=torch.bool)
        if kinks is not None:
            open_ = torch.stack([(value.interval.lower < k) & (value.interval.upper > k) for k in kinks]).any(dim=0)
        start = torch.stack([flat(value.interval.lower, 1), -flat(value.interval.upper, 1)], dim=1)
        bounds = AffineBounds(start, torch.zeros_like(start))
        if self.larger is not None and number in self.larger.along_patches:
            much = self.larger.radius
            again = (self.ball.radius <= much) & (much <= LITTLE_MORE * self.ball.radius)
            pairs = zip(self.larger.along_patches[number], bounds, strict=True)
            bounds = AffineBounds(*(torch.where(again[:, None, None], old, new) for old, new in pairs))
            open_ = open_ & ~again.view(-1, *(1,) * (open_.ndim - 1))
        bounds = self.reach.patches.bounds(number, [*self.values, value], open_, bounds)
        self.along_patches[number] = bounds
        lower, upper = (side.view_as(value.centre) for side in bounds.within(self.ball.radius).unbind(1))
        return value.interval.within(Interval(lower, -upper))

    @property
    def known(self) -> Known:
        """What can be used again within smaller radii."""
        return Known(self.ball.radius, self.along_patches)

    def _along_all(self, number: int, value: LocalValue) -> Interval:
        """The same for a value with few entries, each of which may depend on everything."""
        values, count = [*self.values, value], math.prod(value.shape)
        unit = torch.eye(count, dtype=torch.float64).view(count, *value.shape)
        ends = []
        widest = max(math.prod(shape) for shape in self.reach.network.shapes[: number + 1])
        for part in torch.split(unit, max(1, MOST_NUMBERS // (2 * len(value.centre) * widest))):
            rows = torch.stack([part, -part]).expand(len(value.centre), 2, *part.shape).flatten(1, 2)
            bounds = self._pulled(rows, rows.new_zeros(rows.shape[:2]), values, number)
            ends.append(torch.unflatten(bounds.within(self.ball.radius), 1, (2, -1)))
        lower, upper = (side.reshape(value.centre.shape) for side in torch.cat(ends, dim=2).unbind(1))
        return value.interval.within(Interval(lower, -upper))

    @property
    def features(self) -> LocalValue:
        """The last value."""
        return self.values[-1]

    def lower_bounds(self, rows: Tensor, constant: Tensor, rows_of: Tensor | None = None) -> AffineBounds:
        """Of rows . features + constant, for rows (N, R, d) and constants (N, R); all are affine in the image.

        `rows_of`: the images that the rows are of, by number; by default all, in order.
        """
        with torch.inference_mode(False), torch.no_grad(), on_cpu(), plain_arithmetic():
            values = self.values if rows_of is None else [v.rows(rows_of) for v in self.values]
            return self._pulled(rows.double(), constant.double(), values, len(values) - 1)

    def _pulled(self, rows: Tensor, constant: Tensor, values: Sequence[LocalValue], last: int) -> AffineBounds:
        """Of rows times the value with this number."""
        pending: dict[int, Tensor] = {last: rows}
        for number in range(last, 0, -1):
            if number not in pending:
                continue
            step, rows = self.reach.network.steps[number - 1], pending.pop(number)
            pulled = step.operation.pull_back(rows, values[number], *(values[i] for i in step.inputs))
            constant = constant + pulled.constant
            constant = constant - 8 * UNIT * (constant.abs() + pulled.constant.abs()) - TINY
            for i, part in zip(step.inputs, pulled.rows, strict=True):
                if part is None:
                    continue
                if i in pending:  # a value that is used twice: the sum is rounded
                    part = pending[i] + part
                    size = flat(part.abs(), 2).sum(dim=2) * values[i].interval.size[:, None]
                    constant = constant - 4 * UNIT * size - TINY
                pending[i] = part
        image = pending.get(0)
        if image is None:
            return AffineBounds(constant, torch.zeros_like(constant))
        pixels = values[0].centre
        rounding = gamma(pixels[0].numel()) * total(image.abs(), pixels.abs()) + 8 * UNIT * constant.abs() + TINY
        rate = length_bound(image, dual_norm(self.reach.norm)) * (1 + 8 * UNIT)
        return AffineBounds(total(image, pixels) + constant - rounding, rate)


def _step_bounds(network: FrozenNetwork, norms: tuple[float, ...]) -> tuple[list[ValueBound], list[NormGains | None]]:
    """For the image and each step: what is proven of its value everywhere, and the gains of the step alone."""
    values = [ValueBound.image(network.input_shape, norms)]
    gains: list[NormGains | None] = [None]

    def visit(step: Step, arguments: tuple[ValueBound, ...]) -> ValueBound:
        value, own = step.operation.bound(*arguments, unit=UNIT)
        values.append(value)
        gains.append(own)
        return value

    with torch.inference_mode(False), torch.no_grad(), on_cpu():
        interpret(network.steps, values[0], visit)
    return values, gains


def _tightened(network: FrozenNetwork) -> dict[int, tuple[float, ...] | None]:
    """The values that a function which is not affine takes, after another such function.

    With the kinks of the functions that take one, if those are affine in between: only where an entry may be on both
    sides of a kink it matters how far it moves.
    """
    bent: set[int] = set()
    found: dict[int, tuple[float, ...] | None] = {}
    for number, step in enumerate(network.steps, start=1):
        operation = step.operation
        if isinstance(operation, Affine):
            bent.update([number] if bent.intersection(step.inputs) else [])
            continue
        bent.add(number)
        shape = operation.shape_of_curve if isinstance(operation, Relaxed) else None
        kinks = shape.kinks if shape is not None and not shape.bend else None
        for i in bent.intersection(step.inputs):
            taken, where = i, kinks
            while taken in bent and isinstance(network.steps[taken - 1].operation, Relaxed):
                (taken,), where = network.steps[taken - 1].inputs, None  # its range is that of what it takes
            if taken in bent:
                known = found.get(taken, ())
                found[taken] = None if where is None or known is None else (*known, *where)
    return found
