"""The two-dimensional problem: noisy, interleaved moons, and a network that fits every last one of their points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from berncert.data import moons
from berncert.foundation.progress import Bar

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Data = tuple[Floats, Ints]
"""Points of the unit square, (N, 2), and their classes."""

NOISE = 0.24  # of the moons: enough that the classes overlap
LEARNING_RATE = 2e-2
DIGITS = 7  # of a weight: so that a record holds exactly the network that was measured


class Amounts(NamedTuple):
    """How much is done at one size."""

    training: int = 150
    """Points that the network is trained on."""
    steps: int = 2500
    fresh: int = 2000
    """Points on which accuracies are measured."""
    tests: int = 60
    """Those of them whose radii are proven."""
    seeds: tuple[int, ...] = (10, 11, 12, 13, 14)
    """The first one is drawn."""
    degree: int = 32
    degrees: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)


AMOUNTS = {
    "small": Amounts(),
    "full": Amounts(tests=500, seeds=tuple(range(10, 30))),
    "toy": Amounts(training=40, steps=60, fresh=200, tests=6, seeds=(10, 11), degree=8, degrees=(1, 4, 16)),
}


class Scene(NamedTuple):
    seed: int
    data: Data
    """What the network is trained on."""
    fresh: Data
    """Drawn in the same way, not seen in training."""
    network: nn.Sequential

    @classmethod
    def of(cls, seed: int, amounts: Amounts) -> Scene:
        generator = np.random.default_rng(seed)
        data, fresh = (moons(count, generator, noise=NOISE) for count in (amounts.training, amounts.fresh))
        return cls(seed, data, fresh, overfitted(*data, seed=seed, steps=amounts.steps))


def untrained() -> nn.Sequential:
    """A 2-64-64-2 network."""
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).double()


def overfitted(points: Floats, labels: Ints, *, seed: int, steps: int) -> nn.Sequential:
    """The network, trained on all points at once, without any regularisation, for far too long."""
    torch.manual_seed(seed)
    network = untrained()
    x, y = torch.from_numpy(points), torch.from_numpy(labels)
    optimiser = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, steps)
    with Bar("training", total=steps) as bar:
        for step in range(steps):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            bar.update(step)
    return read_network(write_network(network))


def write_network(network: nn.Sequential) -> dict[str, str]:
    """The weights as text, each to seven digits, by the names that torch gives them."""
    return {
        name: " ".join(f"{value:.{DIGITS}g}" for value in tensor.flatten().tolist())
        for name, tensor in network.state_dict().items()
    }


def read_network(texts: Mapping[str, str]) -> nn.Sequential:
    """The network with these weights; written again, it gives the same texts."""
    network = untrained()
    state = {
        name: torch.tensor([float(word) for word in texts[name].split()], dtype=torch.float64).reshape(tensor.shape)
        for name, tensor in network.state_dict().items()
    }
    network.load_state_dict(state)
    return network.eval()
