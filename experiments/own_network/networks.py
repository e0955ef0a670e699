"""The networks: an ordinary CNN with a head, and the same with its layers kept at norm 1."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import berncert
from berncert.data import Dataset
from berncert.extractor import MaxMin, almost_orthogonal, orthogonal
from berncert.models.heads import build_head

SIDE = 4.0
"""Of the last network's cube of features, before it is scaled to 1: in it they move no further than the pixels do."""


def ordinary() -> berncert.Classifier:
    """Ordinary layers with five features; a small head."""
    return berncert.Classifier(_layers(5), nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 10)))


def kept_at_norm_one() -> berncert.Classifier:
    """The same layers at norm 1, sorted pairs instead of ReLU, no BatchNorm, and a polynomial head that is trained."""
    extractor = nn.Sequential(
        almost_orthogonal(nn.Conv2d(1, 16, 3, stride=2, padding=1)), MaxMin(),
        almost_orthogonal(nn.Conv2d(16, 32, 3, stride=2, padding=1)), MaxMin(),
        nn.Flatten(), orthogonal(nn.Linear(1568, 5)), berncert.UnitCube(SIDE),
    )  # fmt: skip
    return berncert.Classifier(extractor, build_head("polynomial", 5, 10, scale=SIDE, degree=2).layers)


def to_be_narrow() -> berncert.Classifier:
    """The ordinary layers again, with ten features, which are the logits, and weights from which boxes start narrow."""
    return berncert.Classifier(
        berncert.narrow_weights(_layers(10)), berncert.SumHead(10 * torch.eye(10), torch.zeros(10))
    )


def _layers(features: int) -> nn.Sequential:
    """Three-by-three convolutions with stride 2, BatchNorm, ReLU, sigmoid features."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(1568, features), nn.Sigmoid(),
    )  # fmt: skip


def train(
    model: berncert.Classifier, data: Dataset, epochs: int, loss: Callable[[Tensor, Tensor, float], Tensor]
) -> None:
    """A plain loop: Adam, batches of 128; `loss` gets images, labels and the share of the training that is done."""
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    batches = -(-len(data) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, total_steps=epochs * batches)
    model.train()
    for epoch in range(epochs):
        order = torch.randperm(len(data))
        for number, rows in enumerate(order.split(128)):
            optimiser.zero_grad()
            done = (epoch + number / batches) / epochs
            loss(data.images[rows], data.labels[rows], done).backward()
            optimiser.step()
            schedule.step()
    model.eval()
