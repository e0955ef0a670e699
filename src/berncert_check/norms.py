"""p-norms of rational vectors, enclosed between rationals; p is a Fraction >= 1, or None for infinity."""

from collections.abc import Sequence
from fractions import Fraction

from berncert_check.proof_file import stop

BITS, MOST = 96, 64
"""Roots are enclosed to 2^-96 of the largest entry; a p is a ratio of whole numbers up to 64, so powers stay short."""


def parse_norm(text: str) -> Fraction | None:
    """ "2", "3/2", "inf"; any other text is a ValueError."""
    if text == "inf":
        return None
    above, _, below = text.partition("/")
    known = all(part.isascii() and part.isdecimal() and len(part) <= 2 for part in (above, below or "1"))
    stop(not known, ValueError("expected the p of a norm as inf, 2 or 3/2"))
    p = Fraction(int(above), int(below or "1"))
    stop(p < 1 or p.numerator > MOST, ValueError(f"expected p from 1 to {MOST}, got {text}"))
    return p


def dual(p: Fraction | None) -> Fraction | None:
    """q with 1/p + 1/q = 1."""
    return Fraction(1) if p is None else None if p == 1 else p / (p - 1)


def square_weights_norm(p: Fraction | None) -> Fraction | None:
    """The s for which |w|_s <= 1, w >= 0, implies sum w_j t_j^2 <= |t|_p^2, for p >= 2: Hoelder, s = p / (p - 2)."""
    return Fraction(1) if p is None else None if p == 2 else p / (p - 2)


def norm(vector: Sequence[Fraction], p: Fraction | None) -> tuple[Fraction, Fraction]:
    """Rationals that enclose the p-norm; equal for p = 1 and infinity.

    With M the largest entry, |v|_p = M (sum (|v_j| / M)^p)^(1/p), and the sum lies between 1 and d. For p = a/b a power
    is the b-th root of an a-th power. Each root is rounded down for the lower end, up for the upper one.
    """
    sizes = [abs(v) for v in vector]
    largest = max(sizes)
    if largest == 0 or p is None:
        return largest, largest
    if p == 1:
        return sum(sizes, Fraction(0)), sum(sizes, Fraction(0))
    powers = [root((v / largest) ** p.numerator, p.denominator) for v in sizes]
    ends = (sum(parts, Fraction(0)) ** p.denominator for parts in zip(*powers, strict=True))
    (low, _), (_, high) = (root(end, p.numerator) for end in ends)
    return largest * low, largest * high


def root(x: Fraction, k: int) -> tuple[Fraction, Fraction]:
    """The k-th root of x >= 0, enclosed: with s = 2^BITS, floor((x s^k)^(1/k)) / s is below it, one more is above."""
    scaled = (x.numerator << (k * BITS)) // x.denominator
    root = _integer_root(scaled, k)
    exact = root**k == scaled and (x.numerator << (k * BITS)) % x.denominator == 0
    return Fraction(root, 1 << BITS), Fraction(root if exact else root + 1, 1 << BITS)


def _integer_root(n: int, k: int) -> int:
    """The largest whole number whose k-th power is at most n, by bisection."""
    low, high = (n, n + 1) if k == 1 else (0, 1 << (n.bit_length() // k + 1))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**k <= n else (low, middle)
    return low
