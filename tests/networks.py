"""Networks to bound and freeze, shared by the tests of the extractor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from berncert.extractor import MaxMin

Forward = Callable[[Any, Tensor], Tensor]


class Net(nn.Module):
    """A forward and what it uses: modules and parameters as they are, tensors as buffers."""

    def __init__(self, forward: Forward, **parts: Any) -> None:
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def net(forward: Forward, **parts: Any) -> Net:
    return Net(forward, **parts).double().eval()


def seeded(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


class Block(nn.Module):
    """A residual block as they are written everywhere."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


def random_statistics(network: nn.Module, seed: int) -> nn.Module:
    rng = np.random.default_rng(seed)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            n = part.num_features
            part.running_mean = torch.tensor(rng.normal(size=n))
            part.running_var = torch.tensor(rng.uniform(0.01, 2, size=n))
            part.weight.data = torch.tensor(rng.normal(size=n))
            part.bias.data = torch.tensor(rng.normal(size=n))
    return network.double().eval()


def random_network(rng: np.random.Generator) -> nn.Module:
    """Layers of every kind in a row, with a skip around some."""
    width = 4
    menu = [
        lambda: nn.Conv2d(width, width, 3, padding=1),
        lambda: nn.Conv2d(width, width, 3, padding=1, groups=2, padding_mode="circular"),
        lambda: nn.BatchNorm2d(width),
        lambda: nn.ReLU(),
        lambda: MaxMin(),
        lambda: nn.ELU(2.0),
        lambda: nn.AvgPool2d(3, 1, 1),
        lambda: nn.MaxPool2d(3, 1, 1),
        lambda: Block(width),
        lambda: nn.GELU(),
    ]
    body = [menu[int(i)]() for i in rng.integers(len(menu), size=4)]

    def forward(s: Any, x: Tensor) -> Tensor:
        y = s.lift(x)
        z = s.body(y)
        z = torch.cat([z + y, s.body[0](z)], 1) if s.skip else z
        return s.down(z.mean((2, 3)))

    skip = bool(rng.integers(2))
    network = Net(
        forward, lift=nn.Conv2d(1, width, 2), body=nn.Sequential(*body), skip=skip, down=nn.Linear(8 if skip else 4, 3)
    )
    return random_statistics(network, int(rng.integers(1000)))


def random_conv(rng: np.random.Generator, *, largest: int = 9, mode: str | None = None) -> tuple[nn.Conv2d, list[int]]:
    """A convolution of any kind and a map it takes, kernels larger than the map included."""
    while True:
        groups = int(rng.choice([1, 1, 2, 3]))
        kernel = rng.choice([1, 2, 3, 3, 4, 5, 7], size=2)
        size = rng.integers(1, largest + 1, size=2)
        same = rng.uniform() < 0.2
        padding = "same" if same else tuple(int(rng.integers(0, k + 1)) for k in kernel)
        chosen = mode or str(rng.choice(["zeros", "zeros", "circular", "reflect", "replicate"]))
        conv = nn.Conv2d(
            groups * int(rng.integers(1, 3)),
            groups * int(rng.integers(1, 4)),
            tuple(map(int, kernel)),
            stride=1 if same else tuple(map(int, rng.integers(1, 4, size=2))),
            padding=padding,
            dilation=tuple(map(int, rng.choice([1, 1, 1, 2, 3], size=2))),
            groups=groups,
            bias=False,
            padding_mode=chosen,
            dtype=torch.float64,
        )
        conv.weight.data = torch.tensor(FAMILIES_OF_KERNELS[int(rng.integers(3))](rng, tuple(conv.weight.shape)))
        try:
            conv(torch.zeros(1, conv.in_channels, *map(int, size), dtype=torch.float64))
        except RuntimeError:  # a kernel that does not fit, or more padding than pixels
            continue
        return conv.eval(), [int(n) for n in size]


FAMILIES_OF_KERNELS = [
    lambda rng, shape: rng.normal(size=shape),
    lambda rng, shape: rng.uniform(size=shape),  # a low pass: its norm is reached at frequency 0
    lambda rng, shape: rng.normal(size=shape) * (-1.0) ** np.indices(shape)[2:].sum(axis=0),  # a high pass
]
