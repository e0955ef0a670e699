"""Every operation of frozen networks, with values that it takes and torch's own function that does the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from networks import seeded
from torch import Tensor

from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.frozen import FrozenNetwork, Step
from berncert.extractor.operations import (
    Activation,
    AdaptiveAverage,
    AdaptiveMaximum,
    Add,
    AveragePool,
    Celu,
    Clamp,
    Concatenate,
    Convolution,
    Distance,
    Elu,
    Gather,
    GroupSort,
    Householder,
    Leaky,
    Linear,
    MaximumPool,
    Mean,
    Operation,
    PotentialStep,
    Reshape,
    Scale,
    Shift,
    Softmax,
    Softplus,
    SortedDistance,
)


class Example(NamedTuple):
    """An operation, the shapes of the values that it takes, and what it computes."""

    operation: Operation
    shapes: tuple[Shape, ...]
    reference: Callable[..., Tensor]


W, B = seeded(5, 4), seeded(5)
K, KB = seeded(6, 2, 3, 2), seeded(6)
CHANNELS = seeded(3, 1, 1)
N = torch.nn.functional.normalize(seeded(2, 3), dim=0)
SHARES = torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64)
ORDER = torch.tensor([[3, 0, 0], [5, 1, 2]])


def reflected(x: Tensor) -> Tensor:
    pairs = x.unflatten(1, (3, 2))
    side = (pairs * N.T).sum(dim=2, keepdim=True)
    return torch.where(side < 0, pairs - 2 * side * N.T, pairs).flatten(1)


def spread(x: Tensor) -> Tensor:
    return (x[:, None] - W).abs().sort(dim=2, descending=True).values[:, :, :3] @ SHARES


def stepped(x: Tensor) -> Tensor:
    options = {"stride": (1, 2), "padding": (1, 1)}
    hidden = F.relu(F.conv2d(x, K, KB, **options))
    return x - 2 * F.conv_transpose2d(hidden, K, output_padding=(0, 1), **options)


EXAMPLES: list[Example] = [
    Example(Shift(CHANNELS), ((3, 2, 4),), lambda x: x + CHANNELS),
    Example(Scale(CHANNELS), ((3, 2, 4),), lambda x: x * CHANNELS),
    Example(Scale(CHANNELS, divide=True), ((3, 2, 4),), lambda x: x / CHANNELS),
    Example(Leaky(CHANNELS), ((3, 2, 4),), lambda x: F.prelu(x, CHANNELS.flatten())),
    Example(Clamp(-0.3, 0.7), ((5,),), lambda x: x.clamp(-0.3, 0.7)),
    Example(Clamp(None, 0.1), ((5,),), lambda x: x.clamp(max=0.1)),
    Example(Clamp(None, None), ((5,),), lambda x: x),
    Example(Elu(2.5), ((2, 3),), lambda x: F.elu(x, 2.5)),
    Example(Celu(0.5), ((2, 3),), lambda x: F.celu(x, 0.5)),
    Example(Softplus(3.0), ((2, 3),), lambda x: F.softplus(x, 3.0)),
    Example(Linear(W, B), ((4,),), lambda x: F.linear(x, W, B)),
    Example(Linear(W), ((3, 2, 4),), lambda x: F.linear(x, W)),
    Example(Distance(W, B), ((4,),), lambda x: torch.cdist(x, W, p=torch.inf) + B),
    Example(Distance(W, B, negative=True), ((4,),), lambda x: B - torch.cdist(x, W, p=torch.inf)),
    *(
        Example(SortedDistance(W, B, SHARES, negative=sign < 0), ((4,),), lambda x, sign=sign: B + sign * spread(x))
        for sign in (1, -1)
    ),
    Example(Convolution(K, KB, (1, 2), ((1, 1), (2, 2)), (2, 1)), ((2, 6, 5),),
            lambda x: F.conv2d(x, K, KB, (1, 2), (1, 2), (2, 1))),
    Example(Convolution(K, None, (2, 1), ((0, 1), (2, 0)), groups=2), ((4, 6, 5),),
            lambda x: F.conv2d(F.pad(x, (2, 0, 0, 1)), K, None, (2, 1), groups=2)),
    *(
        Example(Convolution(K, KB, padding=((1, 2), (3, 0)), mode=mode), ((2, 4, 5),),
                lambda x, mode=mode: F.conv2d(F.pad(x, (3, 0, 1, 2), mode=mode), K, KB))
        for mode in ("circular", "reflect", "replicate")
    ),
    Example(PotentialStep(W, B), ((4,),), lambda x: x - 2 * F.relu(x @ W.T + B) @ W),
    Example(PotentialStep(K, KB, (1, 2), (1, 1)), ((2, 5, 5),), stepped),
    Example(Mean((0, 2)), ((2, 3, 4),), lambda x: x.mean((1, 3))),
    Example(Mean((1,), keep=True), ((2, 3, 4),), lambda x: x.mean(2, keepdim=True)),
    Example(Mean((0,)), ((4,),), lambda x: x.mean(1)),
    Example(MaximumPool((2, 3), (1, 2), (1, 1), True, (2, 1)), ((2, 5, 6),),
            lambda x: F.max_pool2d(x, (2, 3), (1, 2), (1, 1), (2, 1), True)),
    Example(AveragePool((2, 3), (1, 2), (1, 1), True, False), ((2, 5, 6),),
            lambda x: F.avg_pool2d(x, (2, 3), (1, 2), (1, 1), True, False)),
    Example(AveragePool((2, 2), (2, 2), divisor=3), ((2, 5, 6),), lambda x: F.avg_pool2d(x, 2, divisor_override=3)),
    Example(AdaptiveMaximum((2, 5)), ((2, 5, 6),), lambda x: F.adaptive_max_pool2d(x, (2, 5))),
    Example(AdaptiveAverage((7, 4)), ((2, 5, 6),), lambda x: F.adaptive_avg_pool2d(x, (7, 4))),
    Example(Reshape((4, 3)), ((2, 6),), lambda x: x.reshape(-1, 4, 3)),
    Example(Reshape((1,)), ((1, 1, 1),), lambda x: x.flatten(1)),
    Example(Gather(ORDER), ((2, 3),), lambda x: x.flatten(1)[:, ORDER]),
    Example(Gather(torch.tensor([-1, 2, -1])), ((3,),), lambda x: F.pad(x[:, 2:], (1, 1))),
    Example(Gather(torch.tensor(1)), ((3,),), lambda x: x[:, 1]),
    Example(GroupSort(2), ((6, 2),),
            lambda x: x.unflatten(1, (3, 2)).sort(2, descending=True).values.flatten(1, 2)),
    Example(GroupSort(3), ((6,),), lambda x: x.unflatten(1, (2, 3)).sort(2, descending=True).values.flatten(1)),
    Example(Householder(N), ((6,),), reflected),
    Example(Softmax(1), ((3, 4),), lambda x: x.softmax(2)),
    Example(Add(), ((2, 3), (2, 3)), lambda x, y: x + y),
    Example(Concatenate(0), ((2, 3), (1, 3), (4, 3)), lambda *parts: torch.cat(parts, 1)),
    Example(Concatenate(1), ((2, 3), (2, 1)), lambda *parts: torch.cat(parts, 2)),
    Example(Concatenate(0), ((2, 3),), lambda x: x),
    Example(Activation("relu"), ((2, 3),), torch.relu),
    Example(Activation("relu6"), ((2, 3),), F.relu6),
    Example(Activation("abs"), ((2, 3),), torch.abs),
    Example(Activation("tanh"), ((2, 3),), torch.tanh),
    Example(Activation("sigmoid"), ((2, 3),), torch.sigmoid),
    Example(Activation("hardsigmoid"), ((2, 3),), F.hardsigmoid),
    Example(Activation("hardswish"), ((2, 3),), F.hardswish),
    Example(Activation("silu"), ((2, 3),), F.silu),
    Example(Activation("mish"), ((2, 3),), F.mish),
    Example(Activation("softsign"), ((2, 3),), F.softsign),
    Example(Activation("logsigmoid"), ((2, 3),), F.logsigmoid),
    Example(Activation("selu"), ((2, 3),), F.selu),
    Example(Activation("gelu"), ((2, 3),), F.gelu),
    Example(Activation("gelu_tanh"), ((2, 3),), lambda x: F.gelu(x, approximate="tanh")),
]  # fmt: skip


def names(examples: list[Example]) -> list[str]:
    return [type(example.operation).__name__ for example in examples]


def network_of(example: Example) -> FrozenNetwork:
    """A network of this operation alone; where it takes several values, they are parts of the image."""
    sizes = [torch.Size(shape).numel() for shape in example.shapes]
    steps: list[Step] = []
    for shape, size, end in zip(example.shapes, sizes, torch.tensor(sizes).cumsum(0).tolist(), strict=True):
        part = Gather(torch.arange(end - size, end).reshape(shape))
        steps.append(Step(part, (0,), f"part {len(steps)}", "getitem"))
    inputs = tuple(range(1, len(sizes) + 1))
    return FrozenNetwork((sum(sizes),), [*steps, Step(example.operation, inputs, "layer", "Layer")])
