"""Layers to build extractors from, with a Lipschitz constant of 1 (or 1 / side for the last, `UnitCube`).

Linear and convolutional layers come from torch, with their weight kept at norm 1 by `parametrizations.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from berncert.extractor.distances import INF, distances, sorted_distances
from berncert.extractor.operations.groupwise import reflected_pairs, require_groups, sorted_groups
from berncert.extractor.operations.linear import potential_step


class MaxMin(nn.Module):
    """Channels in pairs, each replaced by its maximum and its minimum: 1-Lipschitz in every norm."""

    def forward(self, x: Tensor) -> Tensor:
        return _sorted(x, 2)


class GroupSort(nn.Module):
    """Channels in groups of `group_size`, each sorted downwards: 1-Lipschitz in every norm; with 2 it is `MaxMin`."""

    def __init__(self, group_size: int) -> None:
        super().__init__()
        if group_size < 1:
            raise ValueError(f"expected group_size >= 1, got {group_size}; 2 sorts pairs")
        self.group_size = group_size

    def forward(self, x: Tensor) -> Tensor:
        return _sorted(x, self.group_size)

    def extra_repr(self) -> str:
        return f"group_size={self.group_size}"


def _sorted(x: Tensor, group_size: int) -> Tensor:
    require_groups(tuple(x.shape[1:]), group_size)
    return sorted_groups(x, group_size)


class Householder(nn.Module):
    """Channels in pairs, each reflected in a learnt line when it lies on the wrong side of it: 1-Lipschitz in l2."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        if channels < 2 or channels % 2:
            raise ValueError(f"expected an even number of channels, got {channels}; they are reflected in pairs")
        self.angle = nn.Parameter(torch.full((channels // 2,), math.pi / 2))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != 2 * len(self.angle):
            raise ValueError(f"expected {2 * len(self.angle)} channels, got a tensor of shape {tuple(x.shape)}")
        return reflected_pairs(x, torch.stack([(self.angle / 2).sin(), -(self.angle / 2).cos()]))

    def extra_repr(self) -> str:
        return f"channels={2 * len(self.angle)}"


class Normalise(nn.Module):
    """(x - mean) / std for each channel: part of the extractor, so that radii stay in the units of the pixels."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not all(s > 0 for s in std):
            raise ValueError(f"expected one mean and one positive std for each channel, got {mean!r} and {std!r}")
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *(1,) * (x.ndim - 2))
        return (x - self.mean.view(shape)) / self.std.view(shape)

    def extra_repr(self) -> str:
        return f"mean={self.mean.tolist()}, std={self.std.tolist()}"


class Clip(nn.Module):
    """Each number moved into [0, 1], where pixels are: 1-Lipschitz in every norm.

    At 0 and 1 its slope is 1, where that of torch's Hardtanh is 0: attacks and training see black and white pixels.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(0.0, 1.0)


class UnitCube(nn.Module):
    """A cube of the given side around 0, scaled to [0,1]^d, and everything outside clamped: 1/side-Lipschitz.

    Example:
        >>> import torch, berncert
        >>> berncert.UnitCube(side=2.0)(torch.tensor([[-3.0, -1.0, 0.0, 0.5]]))
        tensor([[0.0000, 0.0000, 0.5000, 0.7500]])
    """

    def __init__(self, side: float = 1.0) -> None:
        super().__init__()
        if not (0 < side < math.inf):
            raise ValueError(f"expected a finite side > 0, got {side}; a larger side keeps more features off the rim")
        self.side = float(side)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.bfloat16:  # near 1/2 its steps are 1/256: for a side of 16 a sixteenth of a pixel's range
            x = x.float()
        return (x / self.side + 0.5).clamp(0, 1)

    def extra_repr(self) -> str:
        return f"side={self.side:g}"


class PotentialStep(nn.Module):
    """x - 2 W relu(W^T x + b), where `inner` computes W^T x + b: 1-Lipschitz in l2 when the norm of W is at most 1.

    The map is a gradient step on a convex potential, so its derivative is symmetric, with eigenvalues between
    1 - 2 |W|^2 and 1. It takes the place of a residual block, its skip connection included.
    """

    def __init__(self, inner: nn.Linear | nn.Conv2d) -> None:
        super().__init__()
        if isinstance(inner, nn.Conv2d) and (inner.padding_mode != "zeros" or isinstance(inner.padding, str)):
            raise ValueError(
                f"expected a convolution with zero padding given as a number, got padding={inner.padding!r}, "
                f"padding_mode={inner.padding_mode!r}; its transpose is not available in torch"
            )
        self.inner = inner

    @property
    def settings(self) -> tuple[Any, ...]:
        """The stride, padding, dilation and groups of a convolution; nothing for a linear layer."""
        if isinstance(self.inner, nn.Linear):
            return ()
        return (*(tuple(getattr(self.inner, n)) for n in ("stride", "padding", "dilation")), self.inner.groups)

    def forward(self, x: Tensor) -> Tensor:
        return potential_step(x, self.inner.weight, self.inner.bias, *self.settings)


class LinfDistance(nn.Module):
    """Distances to `outputs` learnt points, y_j = max_i |x_i - w_ji| + b_j: 1-Lipschitz in l-inf (Zhang et al., 2021).

    With `negative`, y_j = b_j - max_i |x_i - w_ji|, which is large near the point. While it is trained, the distance is
    that of the p-norm, whose gradient reaches every weight; p rises to infinity (`norm_of_training`). With `centred`,
    the mean over the batch is subtracted in training, and its running mean in evaluation: a shift, without a scale.

    Points start as noise of size `spread`. With `identity`, point j starts at minus that along input j (counted again
    from 0 where there are more points than inputs), so that y_j starts as that input, up to a constant.
    """

    mean: Tensor

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        centred: bool = True,
        negative: bool = False,
        spread: float = 0.3,
        identity: float = 0.0,
    ) -> None:
        super().__init__()
        self.negative, self.centred, self.momentum = negative, centred, 0.1
        self.norm_of_training = 8.0
        self.weight = nn.Parameter(spread * torch.randn(outputs, inputs))
        if identity and inputs <= outputs:
            with torch.no_grad():
                self.weight[torch.arange(outputs), torch.arange(outputs) % inputs] = -identity
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.register_buffer("mean", torch.zeros(outputs))

    def distance(self, x: Tensor) -> Tensor:
        """Distances to the points: those of the p-norm in training, and in evaluation the greatest differences."""
        return distances(x, self.weight, self.norm_of_training if self.training else INF)

    def forward(self, x: Tensor) -> Tensor:
        y = self.distance(x)
        if self.training and self.centred:
            mean = y.mean(dim=0)
            with torch.no_grad():
                self.mean.lerp_(mean.to(self.mean), self.momentum)
        else:
            mean = self.mean
        shifted = y - mean
        return (self.bias - shifted) if self.negative else (shifted + self.bias)

    def extra_repr(self) -> str:
        outputs, inputs = self.weight.shape
        return f"inputs={inputs}, outputs={outputs}, centred={self.centred}, negative={self.negative}"


class SortedDistance(LinfDistance):
    """Weighted sums of sorted differences, y_j = sum_k s_k |x - w_j|_(k) + b_j: 1-Lipschitz in l-inf (SortNet, 2022).

    |x - w_j|_(k) is the k-th greatest |x_i - w_ji|. The shares s_k = (1 - decay) decay^k, for k from 0, are the chances
    of the k-th to be the greatest when inputs are dropped at random with probability `decay`. So it is trained: as a
    `LinfDistance` of the inputs that are left, the same for the whole batch. With p = inf it is what is evaluated.
    """

    shares: Tensor

    def __init__(self, inputs: int, outputs: int, *, decay: float = 0.3, **options: Any) -> None:
        super().__init__(inputs, outputs, **options)
        if not 0 < decay < 1:
            raise ValueError(f"expected decay between 0 and 1, got {decay}; near 0 the greatest difference has it all")
        self.decay = decay
        self.register_buffer("shares", geometric_shares(decay, inputs))

    def distance(self, x: Tensor) -> Tensor:
        if not self.training or self.norm_of_training == INF:
            return sorted_distances(x, self.weight, self.shares)
        left = torch.rand(self.weight.shape[1], device=x.device) >= self.decay
        return distances(x[:, left], self.weight[:, left], self.norm_of_training)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, decay={self.decay:g}"


def geometric_shares(decay: float, most: int) -> Tensor:
    """(1 - decay) decay^k for k = 0, 1, ..., at most so many, until what is left is below 1/1000; float32, sum <= 1."""
    ranks = min(most, math.ceil(math.log(1e-3) / math.log(decay)))
    shares = (1 - decay) * decay ** torch.arange(ranks, dtype=torch.float64)
    return torch.nextafter(shares.float(), torch.zeros(1))  # downwards: their sum is at most 1 whatever the rounding
