"""The network from images to features: its value at an image, exactly, and how far that moves with the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from operator import mul
from typing import Any

from berncert_check.norms import root
from berncert_check.proof_file import Block, UnusableError, exact_number


class UnsupportedError(Exception):
    """The file speaks of something that this checker knows no rule for."""


@dataclass(frozen=True)
class Whole:
    """Rationals as whole numbers over a common denominator: numbers / unit."""

    numbers: list[int]
    unit: int

    def at(self, unit: int) -> Whole:
        """The same over a multiple of the denominator."""
        return Whole([n * (unit // self.unit) for n in self.numbers], unit)

    def plus(self, other: Whole) -> Whole:
        """The sum, entry by entry."""
        unit = lcm(self.unit, other.unit)
        return Whole([a + b for a, b in zip(self.at(unit).numbers, other.at(unit).numbers, strict=True)], unit)


def whole(floats: Sequence[float]) -> Whole:
    """Every finite float is such a number."""
    try:
        parts = [float(x).as_integer_ratio() for x in floats]
    except (ValueError, OverflowError) as error:
        raise UnusableError("expected finite numbers in the network or the image") from error
    unit = max((below for _, below in parts), default=1)
    return Whole([above * (unit // below) for above, below in parts], unit)


@dataclass(frozen=True)
class Step:
    """One step: its kind and settings, its arrays, and the numbers of entries before and after it."""

    fields: dict[str, Any]
    arrays: dict[str, Whole]
    inputs: int
    outputs: int

    def rows(self, unit: int | None = None) -> list[list[int]]:
        """The matrix of weights, row by row."""
        weight = self.arrays["weight"]
        numbers = weight.numbers if unit is None else weight.at(unit).numbers
        return [numbers[i * self.inputs : (i + 1) * self.inputs] for i in range(self.outputs)]

    def limits(self) -> list[Fraction | None]:
        """Of a clamp, None for no limit."""
        return [None if self.fields[end] is None else exact_number(self.fields[end]) for end in ("low", "high")]


def linear(step: Step, x: Whole) -> Whole:
    """W x + b."""
    products = [sum(map(mul, row, x.numbers)) for row in step.rows()]
    return Whole(products, step.arrays["weight"].unit * x.unit).plus(step.arrays["bias"])


def distance(step: Step, x: Whole) -> Whole:
    """b_j + max_i |x_i - w_ji|, or b_j - max_i |x_i - w_ji|."""
    unit, sign = lcm(x.unit, step.arrays["weight"].unit), -1 if step.fields.get("negative") else 1
    point = x.at(unit).numbers
    far = [sign * max(abs(a - b) for a, b in zip(point, row, strict=True)) for row in step.rows(unit)]
    return Whole(far, unit).plus(step.arrays["bias"])


def shift(step: Step, x: Whole) -> Whole:
    """X + by."""
    return x.plus(step.arrays["by"])


def scale(step: Step, x: Whole) -> Whole:
    """X * by."""
    return Whole(list(map(mul, x.numbers, step.arrays["by"].numbers)), x.unit * step.arrays["by"].unit)


def divide(step: Step, x: Whole) -> Whole:
    """X / by."""
    by = step.arrays["by"]
    common = lcm(*by.numbers)
    return Whole([n * by.unit * (common // b) for n, b in zip(x.numbers, by.numbers, strict=True)], x.unit * common)


def clamp(step: Step, x: Whole) -> Whole:
    """Entries beyond a limit moved to it."""
    low, high = step.limits()
    x = x.at(lcm(x.unit, *(limit.denominator for limit in (low, high) if limit is not None)))
    numbers = x.numbers if low is None else [max(n, int(low * x.unit)) for n in x.numbers]
    return Whole(numbers if high is None else [min(n, int(high * x.unit)) for n in numbers], x.unit)


def sort(step: Step, x: Whole) -> Whole:
    """Groups of `size` channels, each sorted downwards; a channel has `inner` entries, which stay apart."""
    size, inner, numbers = step.fields["size"], step.fields["inner"], list(x.numbers)
    for start in range(0, len(numbers), size * inner):
        for first in range(start, start + inner):
            group = slice(first, first + size * inner, inner)
            numbers[group] = sorted(numbers[group], reverse=True)
    return Whole(numbers, x.unit)


VALUES = {f.__name__: f for f in (linear, distance, shift, scale, divide, clamp, sort)}


def step_bound(step: Step, p: Fraction | None) -> Fraction:
    """At least norm_p(f(x) - f(y)) / norm_p(x - y), for a step f.

    Shifts and clamps move no two numbers apart. Sorting is continuous and a permutation piece by piece, so it moves no
    two points apart. Scaling: the largest factor. The l-inf distance to a point moves by no more than x does in l-inf.
    A matrix: the largest absolute row sum in l-inf, column sum in l1, and `spectral_bound` in l2.
    """
    kind = step.fields["kind"]
    if kind in ("scale", "divide"):
        by, sizes = step.arrays["by"], list(map(abs, step.arrays["by"].numbers))
        return Fraction(max(sizes), by.unit) if kind == "scale" else Fraction(by.unit, min(sizes))
    if kind not in ("linear", "distance"):
        return Fraction(1)
    if kind == "linear" and p in (None, 1):
        lines = step.rows() if p is None else zip(*step.rows(), strict=True)
        return Fraction(max(sum(map(abs, line)) for line in lines), step.arrays["weight"].unit)
    if kind == "linear" and p == 2 and step.fields.get("side") in ("inputs", "outputs"):
        return spectral_bound(step)
    if kind == "distance" and p is None:
        return Fraction(1)
    raise UnsupportedError(f"no rule bounds a {kind} step in the norm {'inf' if p is None else p}")


def spectral_bound(step: Step) -> Fraction:
    """A bound on the 2-norm of a matrix, from the Gram matrix G of its rows (side "outputs") or columns ("inputs").

    The largest eigenvalue of G is norm^2. For a number s2 and any matrix R let E = s2 I - G - R^T R. R^T R has no
    negative eigenvalue and E none below -rho, its largest absolute row sum (Gershgorin), so s2 I - G has none below
    -rho, and norm^2 <= s2 + rho. The file gives s2 and an upper triangular R, column by column: column j has j + 1
    numbers. Bad ones only make rho large.
    """
    square, weight, factor = exact_number(step.fields["square"]), step.arrays["weight"], step.arrays["factor"]
    if square is None or square < 0:
        raise UnusableError("expected the square of a norm")
    unit = lcm(weight.unit, factor.unit, square.denominator)
    vectors = step.rows() if step.fields["side"] == "outputs" else list(zip(*step.rows(), strict=True))
    columns = [factor.numbers[j * (j + 1) // 2 : (j + 1) * (j + 2) // 2] for j in range(len(vectors))]
    grow, lift, sums = (unit // weight.unit) ** 2, (unit // factor.unit) ** 2, [0] * len(vectors)
    for j, (vector, column) in enumerate(zip(vectors, columns, strict=True)):
        for k in range(j, len(vectors)):
            gram = sum(map(mul, vector, vectors[k])) * grow
            product = sum(map(mul, column, columns[k])) * lift  # stops at the end of the shorter column
            entry = abs((int(square * unit**2) if j == k else 0) - gram - product)
            sums[j] += entry
            sums[k] += entry if k > j else 0
    return root(square + Fraction(max(sums), unit**2), 2)[1]


@dataclass(frozen=True)
class Network:
    """Steps, one after the other, and how far features move at most with the image, both in norm p."""

    steps: list[Step]
    norm: Fraction | None
    bound: Fraction

    def value(self, pixels: Sequence[float]) -> list[Fraction]:
        """The features of an image, exactly."""
        x = whole(pixels)
        for step in self.steps:
            x = VALUES[step.fields["kind"]](step, x)
        return [Fraction(n, x.unit) for n in x.numbers]

    def stays_in_cube(self) -> bool:
        """Whether the last step clamps to limits within [0, 1]."""
        low, high = self.steps[-1].limits() if self.steps[-1].fields["kind"] == "clamp" else (None, None)
        return low is not None and high is not None and 0 <= low <= high <= 1


def network_of(block: Block, p: Fraction | None) -> Network:
    """The network of a block, its shapes checked. Its bound is the product of those of its steps, because

    norm_p(f(g(x)) - f(g(y))) <= bound(f) norm_p(g(x) - g(y)) <= bound(f) bound(g) norm_p(x - y).
    """
    steps, bound = [], Fraction(1)
    try:
        count = int(block.fields["inputs"])
        for number, fields in enumerate(block.fields["steps"]):
            steps.append(_step(block, number, fields, count))
            count = steps[-1].outputs
            bound *= step_bound(steps[-1], p)
            bound = Fraction(-((-bound.numerator << 96) // bound.denominator), 1 << 96)  # rounded up, to stay short
        if not steps or block.fields["norm"] != ("inf" if p is None else str(p)):
            raise ValueError("no steps, or another norm than the head's")
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise UnusableError(f"the network lacks something, or has it wrong: {error}") from error
    return Network(steps, p, bound)


def _step(block: Block, number: int, fields: dict[str, Any], count: int) -> Step:
    kind, outputs, sizes = fields["kind"], int(fields.get("outputs", count)), {"by": count}
    if kind not in VALUES:
        raise UnsupportedError(f"a step of kind {kind!r}")
    if kind in ("linear", "distance"):
        side = {"inputs": count, "outputs": outputs}.get(str(fields.get("side")), 0)
        sizes = {"weight": count * outputs, "bias": outputs, "factor": side * (side + 1) // 2}
    elif outputs != count:
        raise ValueError(f"a step of kind {kind!r} that changes the number of entries")
    if kind == "sort" and (min(fields["size"], fields["inner"]) < 1 or count % (fields["size"] * fields["inner"])):
        raise ValueError("groups that do not divide the channels")
    if min(count, outputs) < 1:
        raise ValueError("a value without entries")
    needed = {name: size for name, size in sizes.items() if size and kind not in ("sort", "clamp")}
    step = Step(fields, {n: whole(block.array(f"{number}.{n}", size)) for n, size in needed.items()}, count, outputs)
    if kind == "clamp" and None not in (ends := step.limits()) and ends[0] > ends[1]:  # type: ignore[operator]
        raise ValueError("limits of a clamp that are not in order")
    return step
