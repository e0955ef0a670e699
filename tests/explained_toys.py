"""Classifiers of points whose features are the points themselves, so that distances are known; and one to be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import berncert
from berncert.certification.classifier import Classifier
from berncert.certification.methods import Exact
from berncert.extractor import UnitCube, build
from berncert.models.checkpoint import save
from berncert.models.heads import build_head, smoothed
from berncert.reporting.explanation import Explanation, Sample, explain

JAGGED = torch.randn(5, 4, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
PLACE = [0.55, 0.4, 0.6]
HALVES = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)  # equal at 1/2


def classifier(coefficients: Tensor) -> Classifier:
    """features = the point."""
    head = berncert.SmoothedHead(coefficients.double().contiguous())
    same = nn.Linear(head.dim, head.dim)
    with torch.no_grad():
        same.weight.copy_(torch.eye(head.dim))
        same.bias.fill_(-0.5)  # the cube's middle is where UnitCube puts 0
    return Classifier(nn.Sequential(same, UnitCube(1.0)), head).eval()


def open_classifier(coefficients: Tensor) -> Classifier:
    """features = the point, also where that is outside the cube."""
    model = classifier(coefficients)
    same = model.extractor[0]  # type: ignore[index]
    with torch.no_grad():
        same.bias.fill_(0.0)
    model.extractor = nn.Sequential(same)
    return model.eval()


def explained(
    coefficients: Tensor, place: list[float], *, label: int = 0, attack: bool = True, **settings: Any
) -> Explanation:
    """The explanation of that point."""
    names = tuple(f"c{number}" for number in range(len(coefficients)))
    sample = Sample("toy", "test", 7, torch.tensor(place), label, names)
    return explain(classifier(coefficients), sample, Exact(**settings), attack=attack)


def boxy(dim: int) -> Tensor:
    """Two classes in dim features that meet in the middle of the first axis."""
    return HALVES.reshape(2, 2, *(1,) * (dim - 1)).expand(2, *(2,) * dim)


def towards(
    target: np.ndarray, start: np.ndarray, radius: float, norm: float, rng: np.random.Generator, count: int = 400
) -> np.ndarray:
    """Points within the p-norm radius of the start, most of them at its rim, and more or less towards the target."""
    steps = (target - start) * (1 + 0.5 * rng.normal(size=(count, len(start))))
    shares = radius * (1 - 1e-12) * rng.uniform(size=(count, 1)) ** (1 / 16)
    return start + steps / lengths(steps, norm)[:, None] * shares


def lengths(vectors: np.ndarray, norm: float) -> np.ndarray:
    return np.linalg.norm(vectors, ord=norm, axis=-1)


def saved(path: Path, *, kind: str = "mlp", degree: int = 2, about: dict[str, Any] | None = None) -> Classifier:
    """A small untrained model of 4x4 images at that path."""
    torch.manual_seed(1)
    extractor = build("mlp", (1, 4, 4), 3, depth=1, width=8, side=2.0)
    head = build_head(kind, 3, 4, scale=2.0, width=8, degree=degree)
    model = Classifier(extractor, smoothed(head)).eval()
    save(model, path, base=head, about=about)
    return model
