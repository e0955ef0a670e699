"""What is proven of a value while the image stays in a ball, and how a bound on a value becomes one on those before it.

All tensors are float64 on the CPU, with the images as their first axis. Numbers are rounded outwards: every statement
here holds in real arithmetic, for the floats as they are (docs/proof.md, "The local route").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from berncert.extractor import line_kernels
from berncert.extractor.bounds.spectral_norm import UNIT

CELLS = 32
"""Into so many parts an interval is divided where a curve is enclosed: the lines lose a thousandth of its own sag."""
LEVEL = 1e-9
"""Numbers this close, relative to their size, count as equal where a choice rests on them: no last bit decides it."""
TURN = 1e-9
"""How far the place of a minimum may be from where it is said to be."""
TINY = 1e-280
"""More than all that is lost where numbers become too small for a float."""


def gamma(terms: float) -> float:
    """The relative error of a sum of so many products, in any order, and more than that of anything around it."""
    return 4 * (terms + 16) * UNIT


class Interval(NamedTuple):
    """Two numbers for each entry, (N, ...), between which it lies."""

    lower: Tensor
    upper: Tensor

    @property
    def magnitude(self) -> Tensor:
        """No entry is larger in magnitude."""
        return torch.maximum(self.lower.abs(), self.upper.abs())

    @property
    def size(self) -> Tensor:
        """(N,): no entry of the image's value is larger in magnitude."""
        return flat(self.magnitude, 1).amax(dim=1)

    def within(self, other: Interval) -> Interval:
        """What both say; they enclose the same values, so that they overlap."""
        return Interval(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))


@dataclass(frozen=True)
class LocalValue:
    """A value v(x) of the network while the image x is in a ball around x0."""

    centre: Tensor
    """v(x0) as computed: any point would do, this one makes the rest narrow."""
    interval: Interval
    """Every v(x) lies in it."""
    norm: float
    """That of the pixels."""
    norms: tuple[float, ...]
    """1, 2, inf and the norm of the pixels."""
    balls: Tensor
    """(N, norms): norm_t(v(x) - centre) is at most this, for each t of the norms."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value of one image."""
        return tuple(self.centre.shape[1:])

    @property
    def euclidean(self) -> Tensor:
        """(N,): the ball in norm_2."""
        return self.balls[:, 1]

    def rows(self, chosen: Tensor) -> LocalValue:
        """The values of some of the images."""
        interval = Interval(self.interval.lower[chosen], self.interval.upper[chosen])
        return replace(self, centre=self.centre[chosen], interval=interval, balls=self.balls[chosen])


class Pulled(NamedTuple):
    """rows . f(v) >= sum of rows' . v + constant, for everything that the values v can be."""

    rows: tuple[Tensor | None, ...]
    """(N, R, ...) for each argument of f; None where it plays no part."""
    constant: Tensor
    """(N, R), less what was rounded on the way."""


class AffineBounds(NamedTuple):
    """Functions of the image: each is at least start - rate r for all images within r of x0, inside the ball."""

    start: Tensor
    rate: Tensor

    def within(self, radius: Tensor) -> Tensor:
        """(N, ...): the bounds at these radii, (N,), rounded down."""
        change = radius.view(-1, *(1,) * (self.rate.ndim - 1)) * self.rate
        return self.start - change - 4 * UNIT * (self.start.abs() + change)


class Lines(NamedTuple):
    """For each entry, a line that stays below the function on its interval and one that stays above."""

    lower_slope: Tensor
    lower_at_zero: Tensor
    upper_slope: Tensor
    upper_at_zero: Tensor

    def largest(self, magnitude: Tensor) -> Tensor:
        """(N,): no value of a line, and none of its terms, is larger while the entries are of these magnitudes."""
        lower = self.lower_slope.abs() * magnitude + self.lower_at_zero.abs()
        upper = self.upper_slope.abs() * magnitude + self.upper_at_zero.abs()
        return flat(torch.maximum(lower, upper), 1).amax(dim=1)


class CurveShape(NamedTuple):
    """What is proven of the shape of a function of one number."""

    bend: float
    """The slope changes by at most this for each 1, between kinks."""
    kinks: tuple[float, ...] = ()
    """Where the slope jumps."""
    turn: float | None = None
    """Where it has its minimum, to within `TURN`: it falls before, and rises after. None if it never falls."""


def flat(values: Tensor, axes: int) -> Tensor:
    """The axes after the first few as one, which also a single number has."""
    return values.reshape(*values.shape[:axes], math.prod(values.shape[axes:]))


def total(rows: Tensor, values: Tensor) -> Tensor:
    """(N, R): the sum of rows (N, R, ...) times values (N, ...)."""
    return torch.einsum("nrk,nk->nr", flat(rows, 2), flat(values, 1))


def less(constant: Tensor, rows: Tensor, slack: Tensor) -> Tensor:
    """The constant less slack |rows|_1, for what was rounded; slack (N,) is for rows whose entries are 1."""
    size: Tensor = torch.linalg.vector_norm(flat(rows, 2), 1, dim=2)
    return constant - size * slack[:, None]


def through_constants(rows: Tensor, result: Interval, arguments: int = 1) -> Pulled:
    """For any function: the bound at the ends of its interval, which no longer depends on the arguments."""
    positive = rows.clamp(min=0)
    constant = total(positive, result.lower) + total(rows - positive, result.upper)
    return Pulled((None,) * arguments, less(constant, rows, gamma(math.prod(rows.shape[2:])) * result.size))


def through_lines(rows: Tensor, lines: Lines, value: LocalValue) -> Pulled:
    """For a function of each entry: the lower line where a row is positive, else the upper one."""
    out, constant = torch.empty(rows.shape, dtype=torch.float64), rows.new_empty(rows.shape[:2])
    a, low, b, high = (part.numpy() for part in rounded_lines(lines, value))
    line_kernels.through_lines(_numbers(rows, 2), a, low, b, high, _numbers(out, 2), constant.numpy())
    return Pulled((out,), constant)


def rounded_lines(lines: Lines, value: LocalValue) -> list[Tensor]:
    """The lines (N, entries), with what is lost where they are applied; where all is 0 there is nothing to lose."""
    parts = [flat(part, 1).contiguous() for part in lines]
    a, _, b, _ = parts
    low, high = torch.empty_like(a), torch.empty_like(a)
    relative = 4 * gamma(math.prod(value.shape))
    from_, at, to, up = (part.numpy() for part in parts)
    magnitude = _numbers(value.interval.magnitude, 1)
    line_kernels.round_lines(from_, at, to, up, magnitude, relative, low.numpy(), high.numpy())
    return [a, low, b, high]


def through_secants(rows: Tensor, lines: Lines, secants: Interval, at_centre: Tensor, value: LocalValue) -> Pulled:
    """`through_lines`, but for entries that are better bounded together, by how far all of them can move in norm_2.

    f(v) - f(c) lies between the secants' slopes times v - c. With s and k the middle and half of their range, entries j
    of a set J contribute at least rows_j (f(c) + s (v - c))_j each, less norm_2(rows_j k_j, j in J) norm_2(v - c) for
    all of them. Any set is sound. One entry is worth its place if its part of that norm is less than what its line
    loses at the centre; where none is, J is empty.
    """
    middle = (secants.lower + secants.upper) / 2
    half = torch.maximum(secants.upper - middle, middle - secants.lower) * (1 + 4 * UNIT)
    magnitude = value.interval.magnitude
    largest = torch.maximum(
        lines.largest(magnitude), flat(at_centre.abs() + 2 * middle.abs() * magnitude, 1).amax(dim=1)
    )
    out, constant = torch.empty(rows.shape, dtype=torch.float64), rows.new_empty(rows.shape[:2])
    relative = gamma(math.prod(value.shape))
    a, low, b, high = (_numbers(part, 1) for part in lines)
    line_kernels.through_secants(
        _numbers(rows, 2), a, low, b, high,
        line_kernels.Secants(*(_numbers(part, 1) for part in (middle, half, value.centre, at_centre))),
        (value.euclidean * (1 + relative)).numpy(), (8 * relative * largest).numpy(), _numbers(out, 2),
        constant.numpy(),
    )  # fmt: skip
    return Pulled((out,), constant)


def _numbers(values: Tensor, axes: int) -> Any:
    """For a kernel."""
    return flat(values, axes).contiguous().numpy()


def kinked_lines(interval: Interval, below: Tensor | float) -> Lines:
    """Of x where x > 0, else below * x: for the ReLU and its relatives.

    On the convex side the line through 0 with the slope that loses less; on the other the chord.
    """
    low, high = interval
    left = torch.as_tensor(below, dtype=torch.float64).expand_as(low[0]).contiguous()
    lines = Lines(*(torch.empty(low.shape, dtype=torch.float64) for _ in range(4)))
    line_kernels.kinked_lines(
        _numbers(low, 1), _numbers(high, 1), _numbers(left, 0), 1 + LEVEL, *(_numbers(part, 1) for part in lines)
    )
    return lines


def kinked_secants(value: LocalValue, below: Tensor | float) -> Interval:
    """The slopes of all secants of that function from the centre to points of the interval, rounded outwards.

    To the centre's own side of 0 it is that side's slope; beyond 0, a mean of both slopes by the parts of the way.
    """
    c = value.centre
    left = torch.as_tensor(below, dtype=torch.float64).expand_as(c[0]).contiguous()
    found = Interval(torch.empty(c.shape, dtype=torch.float64), torch.empty(c.shape, dtype=torch.float64))
    low, high, least, most = (_numbers(part, 1) for part in (*value.interval, *found))
    line_kernels.kinked_secants(low, high, _numbers(c, 1), _numbers(left, 0), least, most)
    return found


def curve_lines(function: Callable[[Tensor], Tensor], interval: Interval, shape: CurveShape, error: Tensor) -> Lines:
    """Lines below and above a function of one number, of all such those that are best at the middle of the interval.

    Between neighbours of a grid that holds the kinks, the function is within bend width^2 / 8 of its chord; so a line
    that passes all points of the grid by that much passes the function. `error` is that of the computed function.
    """
    points, values, sag = _grid(function, interval, shape)
    middle = ((interval.lower + interval.upper) / 2).contiguous()
    a, low, b, high = (torch.empty(middle.shape, dtype=torch.float64) for _ in range(4))
    numbers = (part.view(-1).numpy() for part in (middle, a, low, b, high))
    line_kernels.hull_lines(points.flatten(0, -2).numpy(), values.flatten(0, -2).numpy(), *numbers)
    largest = values.abs().amax(dim=-1) + torch.maximum(a.abs(), b.abs()) * interval.magnitude
    rounding = sag + error + 16 * UNIT * largest + TINY
    return Lines(a, low - rounding, b, high + rounding)


def curve_range(function: Callable[[Tensor], Tensor], interval: Interval, shape: CurveShape, error: Tensor) -> Interval:
    """Between which numbers such a function lies on the interval: what it is at the ends, and where it turns.

    Its minimum is less than what it is where it is said to turn by at most bend TURN^2 / 2.
    """
    low, high = interval
    ends = [function(low), function(high)]
    if shape.turn is not None:
        ends.append(function(torch.full_like(low, shape.turn).clamp(low, high)))
        error = error + shape.bend * TURN**2
    values = torch.stack(ends)
    return Interval(values.amin(dim=0) - error, values.amax(dim=0) + error)


def _grid(function: Callable[[Tensor], Tensor], interval: Interval, shape: CurveShape) -> tuple[Tensor, Tensor, Tensor]:
    """(..., points): of the interval in order, its ends and the kinks inside among them; their values; and the sag."""
    low, high = interval
    shares = [k / CELLS for k in range(1, CELLS)] if shape.bend else []
    inner = [torch.clamp(low + (high - low) * share, low, high) for share in shares]
    inner += [torch.full_like(low, kink).clamp(low, high) for kink in shape.kinks]
    points = torch.stack([low, *inner, high], dim=-1).sort(dim=-1).values
    values = function(points.flatten(0, 1)).view_as(points)
    widest = points.diff(dim=-1).amax(dim=-1)
    return points, values, shape.bend * widest.square() / 8 * (1 + 1e-9)


class MaximumLines(NamedTuple):
    """Of maxima (N, outputs) of k entries each: at least that of `lower`, (N, outputs, k), and at most upper . v + at.

    No number on the way is more than `largest`, (N,).
    """

    lower: Tensor
    upper: Tensor
    at_zero: Tensor
    largest: Tensor


def maximum_lines(index: Tensor, value: LocalValue) -> MaximumLines:
    """For the greatest of some entries of the value, whose numbers are a row of `index`, -1 for none.

    With l, u their limits and a the first entry whose l is the greatest, or as good as that: the maximum is at least
    v_a. It is at most v_a plus, for each other entry that can exceed l_a, (u - l_a) / (u - l) (v - l), with l_a for l
    if that is less; or at most the greatest u, if that is less.
    """
    low, high = (_gathered(side, index, -math.inf) for side in value.interval)
    greatest, top = low.amax(dim=2), high.amax(dim=2)
    near = LEVEL * (greatest.abs() + top.abs())
    first = (low >= (greatest - near)[..., None]).byte().argmax(dim=2, keepdim=True)
    best = low.gather(2, first)
    chosen = torch.zeros_like(low).scatter(2, first, 1.0)
    rivals = (high > best) & (chosen == 0)
    least = torch.where(rivals, torch.minimum(low, best), 0.0)
    room = torch.where(rivals, high - least, 1.0)
    extra = torch.where(rivals, (high - best) / room * (1 + 8 * UNIT), 0.0)
    middle = torch.where(rivals, room / 2, 0.0)
    at_middle = (best + high.gather(2, first)).squeeze(2) / 2 + (extra * middle).sum(dim=2)
    constant = (at_middle > top + near) & rivals.any(dim=2)
    slopes = torch.where(constant[..., None], 0.0, chosen + extra)
    at_zero = torch.where(constant, top, -(extra * least).sum(dim=2))
    largest = value.interval.size * (2 + 2 * extra.sum(dim=2).amax(dim=1))
    return MaximumLines(chosen, slopes, at_zero, largest)


def through_maxima(rows: Tensor, index: Tensor, value: LocalValue) -> Pulled:
    """By the lines of maxima."""
    chosen, slopes, at_zero, largest = maximum_lines(index, value)
    wide = flat(rows, 2)
    positive = wide.clamp(min=0)
    negative = wide - positive
    parts = positive[..., None] * chosen[:, None] + negative[..., None] * slopes[:, None]
    entries = math.prod(value.shape)
    pulled = rows.new_zeros(*rows.shape[:2], entries + 1)  # the last one for -1
    pulled.index_add_(2, index.flatten() % (entries + 1), flat(parts, 2))
    slack = gamma(wide.shape[2] + index.numel()) * largest
    return Pulled(
        (pulled[..., :-1].reshape(*rows.shape[:2], *value.shape),), less(total(negative, at_zero), rows, slack)
    )


def _gathered(values: Tensor, index: Tensor, missing: float) -> Tensor:
    """(N, outputs, k): the entries with these numbers."""
    return torch.nn.functional.pad(flat(values, 1), (0, 1), value=missing)[:, index]


def length_bound(rows: Tensor, q: float) -> Tensor:
    """(N, R): the q-norm of each of the rows, rounded up."""
    wide = flat(rows, 2)
    largest = wide.abs().amax(dim=2)
    scale = largest.clamp_min(TINY)
    norm: Tensor = largest if q == math.inf else torch.linalg.vector_norm(wide / scale[..., None], q, dim=2) * scale
    return norm * (1 + gamma(wide.shape[2] + 64)) + TINY
