"""The network from inputs to features: its value at an input, exactly, and how far that moves with the input."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from operator import add, mul, truediv
from typing import Any

from berncert_check.norms import parse_norm, root
from berncert_check.proof_file import Block, UnsupportedError, UnusableError, exact_number, stop, whole_number

MOST_NUMBERS = 1 << 24
FINEST = 1 << 400
"""No weight of a network is finer than 1 / FINEST, so that none gets long."""
Vector = list[Fraction]


@dataclass(frozen=True)
class Step:
    """One step: its kind and settings, its arrays, and the numbers of entries before and after it."""

    kind: str
    fields: dict[str, Any]
    inputs: int
    outputs: int
    by: Vector
    """Of a shift, scale or division; the biases of others."""
    weight: list[list[int]]
    """Row by row, in units of 1 / unit."""
    unit: int

    def limits(self) -> list[Fraction | None]:
        """Of a clamp, None for no limit."""
        return [None if (end := self.fields[name]) is None else exact_number(end) for name in ("low", "high")]

    def value(self, x: Vector) -> Vector:
        """What the step makes of x, exactly.

        shift: x + by; scale: x * by; divide: x / by; linear: W x + by. clamp: entries beyond a limit moved to it. sort:
        groups of `size` channels, each sorted downwards; a channel has `inner` entries, which stay apart. distance:
        by_j + max_i |x_i - W_ji|, or with `negative` by_j - max_i |x_i - W_ji|.
        """
        if self.kind in ENTRYWISE:
            return list(map(ENTRYWISE[self.kind], x, self.by))
        if self.kind == "clamp":
            low, high = self.limits()
            x = x if low is None else [max(entry, low) for entry in x]
            return x if high is None else [min(entry, high) for entry in x]
        if self.kind == "sort":
            size, inner, sorted_x = self.fields["size"], self.fields["inner"], list(x)
            for first in (s + i for s in range(0, len(x), size * inner) for i in range(inner)):
                group = slice(first, first + size * inner, inner)
                sorted_x[group] = sorted(x[group], reverse=True)
            return sorted_x
        unit = lcm(*(entry.denominator for entry in x))
        numbers = [int(entry * unit) for entry in x]
        if self.kind == "linear":
            found = [Fraction(sum(map(mul, row, numbers)), unit * self.unit) for row in self.weight]
        else:
            numbers, sign = [n * self.unit for n in numbers], -1 if self.fields.get("negative") else 1
            farthest = (max(abs(a - b * unit) for a, b in zip(numbers, row, strict=True)) for row in self.weight)
            found = [Fraction(sign * far, unit * self.unit) for far in farthest]
        return list(map(add, found, self.by))


ENTRYWISE = {"shift": add, "scale": mul, "divide": truediv}


def step_bound(step: Step, p: Fraction | None, block: Block, number: int) -> Fraction:
    """At least norm_p(f(x) - f(y)) / norm_p(x - y), for a step f.

    Shifts and clamps move no two numbers apart. Sorting is continuous and a permutation piece by piece, so it moves no
    two points apart. Scaling: the largest factor. The l-inf distance to a point moves by no more than x does in l-inf.
    A matrix: the largest absolute row sum in l-inf, column sum in l1, and `spectral_bound` in l2.
    """
    if step.kind in ("scale", "divide"):
        return max(map(abs, step.by)) if step.kind == "scale" else 1 / min(map(abs, step.by))
    if step.kind in ("shift", "clamp", "sort") or (step.kind == "distance" and p is None):
        return Fraction(1)
    if step.kind == "linear" and p in (None, 1):
        lines = step.weight if p is None else zip(*step.weight, strict=True)
        return Fraction(max(sum(map(abs, line)) for line in lines), step.unit)
    if step.kind == "linear" and p == 2 and step.fields.get("side") in ("inputs", "outputs"):
        vectors = step.weight if step.fields["side"] == "outputs" else list(zip(*step.weight, strict=True))
        factor = whole(block.array(f"{number}.factor", len(vectors) * (len(vectors) + 1) // 2))
        return spectral_bound(vectors, step.unit, exact_number(step.fields["square"]), *factor)
    raise UnsupportedError(f"no rule bounds a {step.kind} step in the norm {'inf' if p is None else p}")


def spectral_bound(
    vectors: Sequence[Sequence[int]], unit: int, square: Fraction | None, factor: list[int], factor_unit: int
) -> Fraction:
    """A bound on the 2-norm of a matrix, from the Gram matrix G of its rows (side "outputs") or columns ("inputs").

    The largest eigenvalue of G is norm^2. For a number s2 and any matrix R let E = s2 I - G - R^T R. R^T R has no
    negative eigenvalue and E none below -rho, its largest absolute row sum (Gershgorin), so s2 I - G has none below
    -rho, and norm^2 <= s2 + rho. The file gives s2 and an upper triangular R, column by column: column j has j + 1
    numbers. Bad ones only make rho large.
    """
    if square is None or square < 0:
        raise UnusableError("expected the square of a norm")
    common, sums = lcm(unit, factor_unit, square.denominator), [0] * len(vectors)
    columns = [factor[j * (j + 1) // 2 : (j + 1) * (j + 2) // 2] for j in range(len(vectors))]
    grow, lift, diagonal = (common // unit) ** 2, (common // factor_unit) ** 2, int(square * common**2)
    for j, (vector, column) in enumerate(zip(vectors, columns, strict=True)):
        for k in range(j, len(vectors)):
            gram = sum(map(mul, vector, vectors[k])) * grow
            product = sum(map(mul, column, columns[k])) * lift  # stops at the end of the shorter column
            entry = abs((diagonal if j == k else 0) - gram - product)
            sums[j] += entry
            sums[k] += entry if k > j else 0
    return root(square + Fraction(max(sums), common**2), 2)[1]


@dataclass(frozen=True)
class Network:
    """Steps, one after the other; the norm in which inputs are apart, and how far features move at most with them."""

    steps: list[Step]
    norm: Fraction | None
    bound: Fraction
    """In the norm of the inputs; of a table, `matrix_bound` is the rule."""
    units: Vector
    """Of a table: inputs are as far apart as the norm of their difference divided by these; else empty."""

    def value(self, x: Vector, *, steps: int | None = None) -> Vector:
        """The features of an input, exactly, or what it is after some steps."""
        for step in self.steps[:steps]:
            x = step.value(x)
        return x

    def stays_in_cube(self) -> bool:
        """Whether the last step clamps to limits within [0, 1]."""
        low, high = self.steps[-1].limits() if self.steps[-1].kind == "clamp" else (None, None)
        return low is not None and high is not None and 0 <= low <= high <= 1


def network_of(block: Block, q: Fraction | None) -> Network:
    """The network of a block, its shapes checked. Its bound is the product of those of its steps, because

    norm_p(f(g(x)) - f(g(y))) <= bound(f) norm_p(g(x) - g(y)) <= bound(f) bound(g) norm_p(x - y).

    q: the p of the norm of the features. Claims in float64 would need a rule for the rounding of each step.
    """
    steps, bound, fields, table = [], Fraction(1), block.fields, "units" in block.arrays
    p = parse_norm(fields["norm"])
    count = inputs = block.whole("inputs", 1, MOST_NUMBERS)
    stop(fields["arithmetic"] != "real", UnsupportedError("claims about networks in other than real arithmetic"))
    stop(not fields["steps"] or (p != q and not table), ValueError("no steps, or another norm than the head's"))
    for number, settings in enumerate(fields["steps"]):
        steps.append(_step(block, number, settings, count))
        count = steps[-1].outputs
        if not table:
            bound *= step_bound(steps[-1], p, block, number)
            bound = Fraction(-((-bound.numerator << 96) // bound.denominator), 1 << 96)  # rounded up, to stay short
    units = block.exact("units", inputs) if table else []
    stop(table and min(units) <= 0, ValueError("units that are not above 0"))
    return Network(steps, p, bound, units)


def _step(block: Block, number: int, fields: dict[str, Any], count: int) -> Step:
    kind, weight, unit = fields["kind"], [], 1
    stop(kind not in (*ENTRYWISE, "clamp", "sort", "linear", "distance"), UnsupportedError(f"a step of kind {kind!r}"))
    matrix = kind in ("linear", "distance")
    outputs = whole_number(fields["outputs"], "outputs", 1, MOST_NUMBERS) if matrix else count
    by = [] if kind in ("clamp", "sort") else block.exact(f"{number}.{'bias' if matrix else 'by'}", outputs)
    if matrix:
        numbers, unit = whole(block.array(f"{number}.weight", count * outputs))
        weight = [numbers[i * count : (i + 1) * count] for i in range(outputs)]
    if kind == "sort":
        size, inner = (whole_number(fields[name], name, 1, count) for name in ("size", "inner"))
        stop(count % (size * inner), ValueError("groups that do not divide the channels"))
    if kind == "divide" and (0 in by or len(set(by)) * count > MOST_NUMBERS):  # their common multiple is long
        raise UnsupportedError("a step that divides by 0, or by very many different numbers")
    step = Step(kind, fields, count, outputs, by, weight, unit)
    if kind == "clamp" and None not in (ends := step.limits()) and ends[0] > ends[1]:  # type: ignore[operator]
        raise ValueError("limits of a clamp that are not in order")
    return step


def whole(floats: Sequence[float]) -> tuple[list[int], int]:
    """Whole numbers and a unit: every finite float is one of these times 1 / unit."""
    try:
        parts = [float(x).as_integer_ratio() for x in floats]
    except (ValueError, OverflowError) as error:
        raise UnusableError("expected finite numbers in the network") from error
    unit = max(below for _, below in parts)
    stop(unit > FINEST, UnsupportedError("numbers in a network that are finer than 2^-400"))
    return [above * (unit // below) for above, below in parts], unit
