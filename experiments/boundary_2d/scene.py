"""The two-dimensional problem: noisy, interleaved moons, and a network that fits every last one of their points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from berncert.foundation.progress import Bar

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Data = tuple[Floats, Ints]
"""Points of the unit square, (N, 2), and their classes."""

NOISE = 0.24  # of the moons: enough that the classes overlap
STEPS = 2500
LEARNING_RATE = 2e-2


def overfitted(points: Floats, labels: Ints, *, seed: int) -> nn.Module:
    """A 2-64-64-2 network, trained on all points at once, without any regularisation, for far too long."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).double()
    x, y = torch.from_numpy(points), torch.from_numpy(labels)
    optimiser = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, STEPS)
    with Bar("training", total=STEPS) as bar:
        for step in range(STEPS):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            bar.update(step)
    return network.eval()
