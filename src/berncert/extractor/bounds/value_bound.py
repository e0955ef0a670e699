"""What is proven of one value of a network: how far it moves with the image, how large it is, how exact."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from berncert.extractor.bounds.layer_bound import LayerBound, Shape, norm_of_ones
from berncert.extractor.bounds.norm_gains import INF, SMALLEST, NormGains
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.foundation.arrays import Floats

WIDER = 1 + 16 * UNIT
UNDERFLOW, UNDERFLOW_SINGLE = 1e-290, 1e-28
"""More than the products and constants of one operation that are flushed to zero can add up to."""
CONSTANT = np.array([0.0, 1.0])


@dataclass(frozen=True)
class ValueBound:
    """What is proven of a value v(x), for every image x. Pairs (a, b) of numbers stand for a norm_2(x) + b."""

    shape: Shape
    gains: NormGains
    """The gains from the image to this value."""
    size: Floats
    """norm_2(v) is at most this."""
    error: Floats
    """The computed v differs from the true one, in norm_2, by at most this, as long as nothing overflows."""
    entry_size: Floats
    """norm_inf(v) is at most this."""
    entry_error: Floats
    """The computed v differs from the true one, in norm_inf, by at most this."""
    peak: Floats
    """No number on the way from the image to v is greater, but for arguments of functions that have saturated: where
    this fits the arithmetic, no overflow changes the result."""
    limits: tuple[float, float] = (-INF, INF)
    """All entries of v lie between these two numbers."""

    @classmethod
    def image(cls, shape: Shape, norms: tuple[float, ...], unit: float = UNIT) -> ValueBound:
        """The image itself: exact in float64, rounded in anything less."""
        error = np.array([0.0, 0.0] if unit <= UNIT else [unit, UNDERFLOW_SINGLE])
        size = np.array([1.0, 0.0])
        return cls(shape, NormGains.identity(norms, math.prod(shape)), size, error, size, error, size + error)

    def through(self, layer: LayerBound, shape: Shape, unit: float) -> tuple[ValueBound, NormGains]:
        """This value after the operation, and the operation's own gains; `unit` is the roundoff of the arithmetic."""
        own = NormGains.of(layer.known, self.gains.norms, math.prod(self.shape), math.prod(shape))
        magnitude = own.factor(2.0, 2.0) if layer.magnitude is None else layer.magnitude
        relative = layer.roundings * unit / (1 - layer.roundings * unit) if layer.roundings * unit < 0.5 else INF
        underflow = UNDERFLOW if unit <= UNIT else UNDERFLOW_SINGLE
        with np.errstate(all="ignore"):  # what overflows is infinite
            computed = self.size + self.error
            most = entry_most = magnitude * computed + layer.offset * CONSTANT
            entry_offset = layer.offset
            if layer.entries is not None:
                factor, entry_offset = layer.entries
                entry_most = factor * (self.entry_size + self.entry_error) + entry_offset * CONSTANT
                most = _lesser(most, norm_of_ones(shape) * entry_most)
            flushed = underflow * ((1 + layer.roundings) * computed + CONSTANT)
            rounded, entry_rounded = (relative * m if relative > 0 else 0.0 * CONSTANT for m in (most, entry_most))
            size = (_stretched(own, 2.0, self.size, self.entry_size) + layer.offset * CONSTANT) * WIDER
            entry_size = (_stretched(own, INF, self.size, self.entry_size) + entry_offset * CONSTANT) * WIDER
            error = (_stretched(own, 2.0, self.error, self.entry_error) + rounded + flushed) * WIDER
            entry_error = (_stretched(own, INF, self.error, self.entry_error) + entry_rounded + flushed) * WIDER
            peak = np.maximum(self.peak, layer.intermediate * (entry_most + error) * WIDER)
        limits = self.limits if layer.keeps_limits else layer.limits
        largest = max(map(abs, limits))
        size, error, entry_size, entry_error, peak = map(_numbers, (size, error, entry_size, entry_error, peak))
        if largest < INF:
            size, entry_size = largest * norm_of_ones(shape) * CONSTANT, largest * CONSTANT
        return ValueBound(shape, self.gains.then(own), size, error, entry_size, entry_error, peak, limits), own

    def plus(self, other: ValueBound, unit: float) -> ValueBound:
        """The sum of two values."""
        with np.errstate(all="ignore"):
            size = self.size + other.size
            error = self.error + other.error + 2 * unit * (size + self.error + other.error)
            entry_size, entry_error = self.entry_size + other.entry_size, self.entry_error + other.entry_error
            entry_error = entry_error + 2 * unit * (entry_size + entry_error)
            peak = np.maximum(np.maximum(self.peak, other.peak), size + error)
        size, error, entry_size, entry_error, peak = (
            _numbers(pair * WIDER) for pair in (size, error, entry_size, entry_error, peak)
        )
        return ValueBound(self.shape, self.gains.plus(other.gains), size, error, entry_size, entry_error, peak)

    def beside(self, other: ValueBound, shape: Shape) -> ValueBound:
        """Two values side by side, in this shape."""
        with np.errstate(all="ignore"):
            size, error = np.hypot(self.size, other.size), np.hypot(self.error, other.error)
            entry_size = np.maximum(self.entry_size, other.entry_size)
            entry_error = np.maximum(self.entry_error, other.entry_error)
        limits = min(self.limits[0], other.limits[0]), max(self.limits[1], other.limits[1])
        peak = np.maximum(self.peak, other.peak)
        size, error, entry_size, entry_error = (
            _numbers(pair * WIDER) for pair in (size, error, entry_size, entry_error)
        )
        return ValueBound(shape, self.gains.beside(other.gains), size, error, entry_size, entry_error, peak, limits)


def _stretched(own: NormGains, t: float, length: Floats, entry: Floats) -> Floats:
    """In norm t after the operation: from norm_2 or from norm_inf before it, whichever gives less."""
    return _lesser(own.factor(2.0, t) * length, own.factor(INF, t) * entry)


def _lesser(a: Floats, b: Floats) -> Floats:
    """The pair that is less for an image of norm 1; both are bounds. What is not a number bounds nothing."""
    return a if not np.isnan(a).any() and not a.sum() > b.sum() else b


def _numbers(values: Floats) -> Floats:
    """NaN becomes infinity, which bounds nothing; what has become too small for a float is not 0."""
    return np.where(np.isnan(values), INF, values + SMALLEST)
