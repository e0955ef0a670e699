"""Rows of a table: how far features move with the columns, and which features a box of columns can have."""

from fractions import Fraction

from berncert_check.network import Network, Vector
from berncert_check.norms import dual, norm, root
from berncert_check.proof_file import UnsupportedError, stop

MOST_STEPS = 1 << 28


def affine_map(network: Network) -> tuple[list[Vector], Vector]:
    """A and b of the features A x + b of a table before the last step, which must be the clamp to [0, 1].

    All other steps must be affine: then column j of A is the value at the j-th unit vector less that at 0.
    """
    *before, last = network.steps
    count, affine = network.steps[0].inputs, {s.kind for s in before} <= {"linear", "shift", "scale", "divide"}
    work = count * sum(s.inputs * (s.outputs if s.weight else 1) for s in network.steps)
    known = affine and last.kind == "clamp" and last.limits() == [0, 1] and work <= MOST_STEPS
    stop(not known, UnsupportedError("a table with too many columns, or features not affine and clamped to [0, 1]"))
    start = network.value([Fraction(0)] * count, steps=-1)
    columns = [network.value([Fraction(i == j) for i in range(count)], steps=-1) for j in range(count)]
    return [[column[i] - b for column in columns] for i, b in enumerate(start)], start


def matrix_bound(b: list[Vector], p: Fraction | None, q: Fraction | None) -> Fraction:
    """At least norm_q(B u) / norm_p(u), for a matrix B.

    If p = q and no row and no column of B has two entries, B u has entries of u, each once, times an entry of B: the
    largest of these bounds it. For q = inf each entry of B u is at most the dual norm of its row times norm_p(u)
    (Hoelder). For p = q = 2 the square of the norm is the largest eigenvalue of B B^T, at most its largest absolute row
    sum (Gershgorin).
    """
    used = [j for row in b for j, x in enumerate(row) if x]
    if p == q and len(set(used)) == len(used) and all(sum(map(bool, row)) <= 1 for row in b):
        return max(abs(x) for row in b for x in row)
    if q is None:
        return max(norm(row, dual(p))[1] for row in b)
    if p == q == 2 and len(b) ** 2 * len(b[0]) <= MOST_STEPS:
        gram = ((abs(sum((x * y for x, y in zip(r, s, strict=True)), Fraction(0))) for s in b) for r in b)
        return root(max(sum(row, Fraction(0)) for row in gram), 2)[1]
    raise UnsupportedError("no rule bounds these columns in these norms, or they are too many")


def possible_features(a: list[Vector], start: Vector, low: Vector, high: Vector) -> list[tuple[Fraction, Fraction]]:
    """The least and the greatest value of each feature for columns within these limits.

    Each column is taken at the end that makes the feature least, or greatest; the clamp to [0, 1] keeps the order.
    """

    def end(row: Vector, b: Fraction, sign: int) -> Fraction:
        value = sum((x * (low[j] if x * sign > 0 else high[j]) for j, x in enumerate(row)), b)
        return min(max(value, Fraction(0)), Fraction(1))

    return [(end(row, b, 1), end(row, b, -1)) for row, b in zip(a, start, strict=True)]
