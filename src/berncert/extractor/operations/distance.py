"""The l-inf distance from the value to each of several points, and sums of sorted differences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from berncert.extractor.bounds.layer_bound import LayerBound, Shape, length, norm_of_ones
from berncert.extractor.bounds.local import TINY, Interval, LocalValue
from berncert.extractor.bounds.norm_gains import INF
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.distances import CHUNK, distances, sorted_distances
from berncert.extractor.operations.base import Layer


@dataclass(frozen=True, eq=False)
class Distance(Layer):
    """max_i |x_i - w_ji| + b_j, or with `negative` b_j - max_i |x_i - w_ji|, of a row of numbers x."""

    weight: Tensor
    bias: Tensor
    negative: bool = False

    def check(self) -> None:
        super().check()
        if self.weight.ndim != 2 or not self.weight.numel() or self.bias.shape != self.weight.shape[:1]:
            raise ValueError(
                "expected points as a matrix and a bias for each, got "
                f"{tuple(self.weight.shape)} and {tuple(self.bias.shape)}"
            )
        if not isinstance(self.negative, bool):
            raise ValueError(f"expected negative to be true or false, got {self.negative!r}")

    def evaluate(self, *values: Tensor) -> Tensor:
        found = distances(values[0], self.weight)
        return self.bias - found if self.negative else found + self.bias

    def interval(self, *values: LocalValue) -> Interval | None:
        """Each |x_i - w_ji| is least where x_i is nearest to w_ji, and greatest at one of its limits."""
        low, high = values[0].interval
        least, most = [], []
        for points in torch.split(self.weight, max(1, CHUNK // max(1, low.numel()))):
            left, right = low[:, None] - points, points - high[:, None]
            least.append(torch.maximum(left, right).clamp(min=0).amax(dim=2))
            most.append(torch.maximum(-left, -right).amax(dim=2))
        # two roundings of numbers that are at most the greatest distance and the bias
        farthest = torch.cat(most, dim=1)
        error = 8 * UNIT * (farthest.abs() + self.bias.abs()) + TINY
        if self.negative:
            return Interval(self.bias - farthest - error, self.bias - torch.cat(least, dim=1) + error)
        return Interval(torch.cat(least, dim=1) + self.bias - error, farthest + self.bias + error)

    def output_shape(self, *shapes: Shape) -> Shape:
        outputs, inputs = self.weight.shape
        if shapes[0] != (inputs,):
            raise ValueError(f"expected a row of {inputs} numbers, got shape {shapes[0]}; flatten the image first")
        return (outputs,)

    def layer_bound(self, shape: Shape) -> LayerBound:
        """Each output moves by no more than the input does in l-inf; other norms follow from how they compare.

        A difference is off by one relative rounding, the greatest of them therefore too, and the sum with the bias by
        one more; in float32 the points and the bias are rounded first. Each output is at most |x|_inf + |w_j|_inf, and
        all outputs together at most sqrt(outputs) |x|_2 + the length of these.
        """
        farthest = self.weight.abs().amax(dim=1) + self.bias.abs()
        entries = 1.0, float(farthest.max()) * (1 + 2 * UNIT)
        magnitude = norm_of_ones((len(self.weight),))
        return LayerBound({(INF, INF): 1.0}, length(farthest), 4, magnitude, entries)


@dataclass(frozen=True, eq=False)
class SortedDistance(Layer):
    """sum_k s_k |x - w_j|_(k) + b_j, where |x - w_j|_(k) is the k-th greatest |x_i - w_ji|; or b_j minus that sum.

    The shares s_k are not negative, and their sum is at most 1. `negative` is as in `Distance`.
    """

    weight: Tensor
    bias: Tensor
    shares: Tensor
    negative: bool = False

    def check(self) -> None:
        super().check()
        Distance(self.weight, self.bias, self.negative).check()
        if self.shares.ndim != 1 or not len(self.shares) or not (self.shares >= 0).all():
            raise ValueError(f"expected a row of shares >= 0, got {self.shares.tolist()}")
        if sum(map(Fraction, self.shares.tolist())) > 1:
            raise ValueError(f"expected shares whose sum is at most 1, got {self.shares.tolist()}; divide them by it")

    def evaluate(self, *values: Tensor) -> Tensor:
        found = sorted_distances(values[0], self.weight, self.shares)
        return self.bias - found if self.negative else found + self.bias

    def output_shape(self, *shapes: Shape) -> Shape:
        return Distance(self.weight, self.bias).output_shape(*shapes)

    def layer_bound(self, shape: Shape) -> LayerBound:
        """The k-th greatest of several numbers moves by no more than they do, and so does a mean of such.

        Computed differences are off by one relative rounding of the greatest, therefore their k-th greatest too; each
        is multiplied by a share (one, and one for the share in float32) and added up (as many as there are shares).
        """
        plain = Distance(self.weight, self.bias).layer_bound(shape)
        return replace(plain, roundings=plain.roundings + len(self.shares) + 1)
