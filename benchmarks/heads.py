"""Trained heads to measure on, the same at every run: handwritten digits, and a thousand prototypes."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

TRAINING_IMAGES = 1437  # the other 360 are the test images
EPOCHS, BATCH = 60, 64
PROTOTYPES = 1000
PROTOTYPE_STEPS, PROTOTYPE_BATCH = 600, 512
TRAINING_NOISE, SAMPLE_NOISE = 0.05, 0.02


class Trained(NamedTuple):
    head: nn.Module  # float64, features in [0,1]^d -> logits
    features: Tensor  # (N, d), float64, of samples it was not trained on
    accuracy: float  # of the head on them, before smoothing


@cache
def digits(dim: int) -> Trained:
    """Extractor 64-64-dim with sigmoid features, head dim-32-10, trained together; features of the test images."""
    torch.manual_seed(0)
    pixels, numbers = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(numbers)
    extractor = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, dim), nn.Sigmoid())
    head = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, 10))
    network = nn.Sequential(extractor, head)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(TRAINING_IMAGES).split(BATCH):
            _step(network, optimizer, images[batch], labels[batch])
    network.double()
    with torch.no_grad():
        features = extractor(images[TRAINING_IMAGES:].double())
    return Trained(head, features, _accuracy(head, features, labels[TRAINING_IMAGES:]))


@cache
def prototypes(dim: int) -> Trained:
    """Head dim-64-1000 that tells noisy copies of random points of the cube apart; features of one copy of each."""
    torch.manual_seed(1)
    points = torch.rand(PROTOTYPES, dim)
    head = nn.Sequential(nn.Linear(dim, 64), nn.Tanh(), nn.Linear(64, PROTOTYPES))
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    for _ in range(PROTOTYPE_STEPS):
        labels = torch.randint(0, PROTOTYPES, (PROTOTYPE_BATCH,))
        _step(head, optimizer, _noisy(points[labels], TRAINING_NOISE), labels)
    features = _noisy(points, SAMPLE_NOISE).double()
    return Trained(head.double(), features, _accuracy(head, features, torch.arange(PROTOTYPES)))


def _noisy(points: Tensor, noise: float) -> Tensor:
    return (points + noise * torch.randn_like(points)).clamp(0, 1)


def _step(network: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> None:
    optimizer.zero_grad()
    cross_entropy(network(inputs), labels).backward()
    optimizer.step()


def _accuracy(head: nn.Module, features: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return (head(features).argmax(dim=1) == labels).double().mean().item()
