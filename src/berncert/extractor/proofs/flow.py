"""What is proven of one value of a network: how far it moves with the image, how large it is, how exact."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from berncert.extractor.proofs.facts import Layer, Shape, root_of
from berncert.extractor.proofs.gains import INF, Floats, Gains
from berncert.extractor.proofs.norms import UNIT

WIDER = 1 + 16 * UNIT
UNDERFLOW, UNDERFLOW_SINGLE = 1e-290, 1e-28  # more than a layer's products that are flushed to zero can add up to
CONSTANT = np.array([0.0, 1.0])


@dataclass(frozen=True)
class Flow:
    """Facts of a value v(x) of the network, for every image x."""

    shape: Shape
    gains: Gains
    """From the image to this value."""
    size: Floats
    """norm_2(v) <= size[0] norm_2(x) + size[1]."""
    error: Floats
    """The computed v differs from the true one, in norm_2, by at most error[0] norm_2(x) + error[1]."""
    limits: tuple[float, float] = (-INF, INF)
    """Between which all entries of v lie."""

    @classmethod
    def image(cls, shape: Shape, norms: tuple[float, ...], unit: float = UNIT) -> Flow:
        """The image itself: exact in float64, rounded in anything less."""
        error = np.array([unit if unit > UNIT else 0.0, 0.0])
        return cls(shape, Gains.identity(norms, math.prod(shape)), np.array([1.0, 0.0]), error)

    def through(self, layer: Layer, shape: Shape, unit: float) -> tuple[Flow, Gains]:
        """This value after the layer, and the layer's own gains; `unit` is the roundoff of the arithmetic used."""
        own = Gains.of(layer.known, self.gains.norms, math.prod(self.shape), math.prod(shape))
        stretch = own.factor(2.0, 2.0)
        magnitude = stretch if layer.magnitude is None else layer.magnitude
        with np.errstate(all="ignore"):  # what overflows is infinite
            size = (stretch * self.size + layer.offset * CONSTANT) * WIDER
            rounded = unit * layer.roundings * (magnitude * (self.size + self.error) + layer.offset * CONSTANT)
            underflow = UNDERFLOW if unit <= UNIT else UNDERFLOW_SINGLE
            error = (stretch * self.error + rounded + (layer.deviation + underflow) * CONSTANT) * WIDER
        limits = self.limits if layer.keeps_limits else layer.limits
        largest = max(map(abs, limits)) * root_of(shape)
        if largest < INF:
            size = largest * CONSTANT
        return Flow(shape, self.gains.then(own), _numbers(size), _numbers(error), limits), own

    def plus(self, other: Flow, unit: float) -> Flow:
        """The sum of two values."""
        with np.errstate(all="ignore"):
            size = self.size + other.size
            error = self.error + other.error + unit * (size + self.error + other.error)
        return Flow(self.shape, self.gains.plus(other.gains), _numbers(size * WIDER), _numbers(error * WIDER))

    def beside(self, other: Flow) -> Flow:
        """Two values side by side; the shape stays that of the first."""
        size, error = np.hypot(self.size, other.size), np.hypot(self.error, other.error)
        limits = min(self.limits[0], other.limits[0]), max(self.limits[1], other.limits[1])
        return Flow(self.shape, self.gains.beside(other.gains), size * WIDER, error * WIDER, limits)

    def tightened(self, gains: Gains) -> Flow:
        """The same value, of which another proof gives these gains."""
        return replace(self, gains=Gains(gains.norms, np.minimum(self.gains.factors, gains.factors)))


def _numbers(values: Floats) -> Floats:
    return np.where(np.isnan(values), INF, values)
