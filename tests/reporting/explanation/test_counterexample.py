"""What an attack finds is an image of another class, and nearly the nearest where that is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from explained_toys import JAGGED, PLACE, boxy, classifier

import berncert
from berncert.reporting.explanation.counterexample import nearest_counterexample

NORMS = [1, 1.5, 2, math.inf]


@pytest.mark.parametrize("norm", NORMS)
def test_what_is_found_has_another_class_and_is_as_far_as_is_said(norm: float) -> None:
    model, point = classifier(JAGGED).double(), torch.tensor(PLACE)
    proven = berncert.certify(model, point[None], norm=norm)
    found = nearest_counterexample(model, point, int(proven.predicted[0]), norm=norm, least=float(proven.radius[0]))
    assert found is not None
    assert berncert.certify(model, found.image[None]).predicted[0] == found.predicted != proven.predicted[0]
    assert found.distance == pytest.approx(np.linalg.norm((found.image - point).numpy(), ord=norm))
    assert found.distance >= proven.radius[0]
    assert 0 <= found.image.min() <= found.image.max() <= 1


@pytest.mark.parametrize("norm", [2, math.inf])
@pytest.mark.parametrize("least", [0.0, 0.2])
def test_the_way_to_a_plane_is_found(norm: float, least: float) -> None:
    model = classifier(boxy(3)).double()
    found = nearest_counterexample(model, torch.tensor([0.25, 0.5, 0.5]), 1, norm=norm, least=least)
    assert found is not None
    assert found.distance == pytest.approx(0.25, rel=0.02)
    assert found.predicted == 0


def test_where_there_is_nothing_nothing_is_found() -> None:
    model = classifier(torch.tensor([[3.0, 3.0], [0.0, 1.0]])).double()
    assert nearest_counterexample(model, torch.tensor([0.5]), 0, norm=2) is None


def test_the_same_question_has_the_same_answer() -> None:
    model = classifier(JAGGED).double()
    one, other = (nearest_counterexample(model, torch.tensor(PLACE), 2, norm=2) for _ in range(2))
    assert one is not None
    assert other is not None
    assert torch.equal(one.image, other.image)
