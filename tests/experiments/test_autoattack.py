"""An attack counts where the class changes within the ball, in float64, and nowhere else."""

from __future__ import annotations

import math

import pytest
import torch
from experiments.autoattack.peers import fallen

import berncert


@pytest.mark.parametrize("norm", [2.0, math.inf])
def test_found_images_are_pulled_back_into_the_ball_before_they_count(norm: float) -> None:
    head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64))  # x against 1 - x
    model = berncert.Classifier(torch.nn.Flatten(), head)
    images, labels = torch.full((3, 1, 1, 1), 0.7, dtype=torch.float64), torch.tensor([0, 0, 1])
    found = images + torch.tensor([-0.25, -0.9, 0.0]).view(3, 1, 1, 1)
    for radius, expected in ((0.3, [True, True, True]), (0.1, [False, False, True])):
        wrong, distance = fallen(model, images, labels, found, radius, norm)
        assert wrong.tolist() == expected
        assert (distance <= radius).all()
