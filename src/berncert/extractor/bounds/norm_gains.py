"""How much a map can stretch a difference, from every norm to every other: a small matrix that multiplies like a path.

Entry (s, t) of a `NormGains` is a proven bound on norm_t(f(x) - f(y)) / norm_s(x - y). Two maps in a row take, for each
pair of norms, the best norm to pass between them: a matrix product in which min stands for the sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from berncert.foundation.arrays import Floats

Known = Mapping[tuple[float, float], float]
"""(s, t) -> a bound on how far a map stretches from norm s to norm t, for as many pairs of norms as are known."""

INF = math.inf
LARGEST = 1e300  # anything beyond is infinite
SMALLEST = 1e-300  # more than what can be lost where a product is too small for a float


def norms_with(p: float) -> tuple[float, ...]:
    """The norms for which layers have bounds of their own, and p."""
    return (1.0, 2.0, INF) if p in (1.0, 2.0, INF) else (1.0, 2.0, INF, p)


def up(value: Floats) -> Floats:
    """The next float: covers the rounding of one operation. What is not a number or too large proves nothing."""
    return np.where(value <= LARGEST, np.nextafter(value, INF) + SMALLEST, INF)


def conversion(s: float, t: float, dim: int) -> float:
    """The least c with norm_t(x) <= c norm_s(x) for every x of this many numbers, rounded up."""
    return 1.0 if s <= t or dim <= 1 else dim ** (1 / t - _inverse(s)) * (1 + 1e-14)


@dataclass(frozen=True)
class NormGains:
    """Proven factors between norms, `factors[i, j]` from norms[i] to norms[j]."""

    norms: tuple[float, ...]
    factors: Floats

    @classmethod
    def identity(cls, norms: tuple[float, ...], dim: int) -> NormGains:
        """The gains of the identity: how the norms themselves compare."""
        return cls(norms, np.array([[conversion(s, t, dim) for t in norms] for s in norms]))

    @classmethod
    def of(cls, known: Known, norms: tuple[float, ...], inputs: int, outputs: int) -> NormGains:
        """All gains that follow from the known ones, by interpolation (Riesz and Thorin) and conversion."""
        ends = tuple(dict.fromkeys((*norms, *(norm for pair in known for norm in pair))))
        middle = np.array([[_between(known, s, t) for t in ends] for s in ends])
        every = NormGains.identity(ends, inputs).then(NormGains(ends, middle)).then(NormGains.identity(ends, outputs))
        keep = [ends.index(norm) for norm in norms]
        return cls(norms, every.factors[np.ix_(keep, keep)])

    def then(self, following: NormGains) -> NormGains:
        """The gains of this map followed by another."""
        with np.errstate(over="ignore", invalid="ignore"):  # 0 * inf is no number, and then proves nothing
            return NormGains(self.norms, up(self.factors[:, :, None] * following.factors[None]).min(axis=1))

    def plus(self, other: NormGains) -> NormGains:
        """The gains of the sum of two maps of one input."""
        return NormGains(self.norms, up(self.factors + other.factors))

    def beside(self, other: NormGains) -> NormGains:
        """The gains of two maps of one input, their outputs side by side."""
        a, b = self.factors, other.factors
        columns = [_stacked(a[:, j], b[:, j], t) for j, t in enumerate(self.norms)]
        return NormGains(self.norms, np.stack(columns, axis=1))

    def factor(self, s: float, t: float) -> float:
        """The gain from norm s to norm t."""
        return float(self.factors[self.norms.index(s), self.norms.index(t)])


def entrywise_gains(factor: float) -> Known:
    """The gains of a map of each entry by itself that stretches none by more than this factor."""
    return {(s, t): factor for s in (1.0, 2.0, INF) for t in (1.0, 2.0, INF) if s <= t}


def copying_gains(times: float) -> Known:
    """The gains of a map whose every output is one of its inputs, and that uses each input at most this many times."""
    return {(s, t): times ** _inverse(t) * (1 + 1e-14) for s in (1.0, 2.0, INF) for t in (1.0, 2.0, INF) if s <= t}


def _inverse(p: float) -> float:
    return 0.0 if p == INF else 1 / p


def _stacked(a: Floats, b: Floats, t: float) -> Floats:
    if t == INF:
        return np.maximum(a, b)
    with np.errstate(over="ignore"):  # infinite is infinite
        high, low = np.maximum(a, b), np.minimum(a, b)
        ratio = np.divide(low, high, out=np.zeros_like(low), where=(high > 0) & np.isfinite(high))
        return np.where(low == 0, high, up(high * (1 + ratio**t) ** (1 / t) * (1 + 1e-14)))


def _between(known: Known, s: float, t: float) -> float:
    """The least bound from s to t that is known or lies on the segment of two known ones; inf where there is none."""
    best = known.get((s, t), INF)
    if s > t:
        return best
    target = np.array([_inverse(s), _inverse(t)])
    for (first, a), (second, b) in combinations(known.items(), 2):
        if first[0] > first[1] or second[0] > second[1]:
            continue  # for maps between real spaces the theorem needs s <= t at both ends
        start, end = (np.array([_inverse(n) for n in pair]) for pair in (first, second))
        step = end - start
        share = float((target - start) @ step / (step @ step))
        if 0 < share < 1 and np.allclose(start + share * step, target, rtol=0, atol=1e-15):
            best = min(best, _geometric_mean(a, b, share))
    return best


def _geometric_mean(a: float, b: float, share: float) -> float:
    if a == 0 or b == 0:
        return 0.0
    mean = math.exp((1 - share) * math.log(a) + share * math.log(b)) if max(a, b) <= LARGEST else INF
    return mean * (1 + 1e-12)
