"""The checkpoints that are shipped with the package are as good as they are said to be, on real images."""

from __future__ import annotations

import os
from itertools import product

import numpy as np
import pytest
import torch

import berncert
from berncert import data
from berncert.attacks.methods import Pgd
from berncert.models.checkpoint import open_checkpoint, shipped_models
from berncert.training.recipes import load_recipe

needs_mnist = pytest.mark.skipif(
    not os.environ.get("BERNCERT_DATA"), reason="MNIST's files are looked for where BERNCERT_DATA says"
)


def test_digits_and_mnist_are_shipped_under_their_names() -> None:
    assert {"digits", "mnist"} <= set(shipped_models())


@pytest.mark.parametrize("name", shipped_models())
def test_a_shipped_model_was_made_by_the_recipe_of_its_name(name: str) -> None:
    saved, now = open_checkpoint(name).about["recipe"], load_recipe(name).as_dict()
    for section in ("data", "model", "training"):
        for key, value in saved[section].items():
            if key not in now[section] or key == "precision":  # a setting that has gone since, or the machine's
                continue
            current = now[section][key]
            assert value == (list(current) if isinstance(current, tuple) else current), f"{section}.{key}"


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_a_shipped_model_has_fewer_features_than_classes_and_a_head_that_bends(name: str) -> None:
    head = berncert.load(name).head
    assert head.dim <= 6 < head.classes
    corners = torch.tensor(list(product((0.0, 1.0), repeat=head.dim)), dtype=torch.float64)
    middle = head(torch.full((1, head.dim), 0.5, dtype=torch.float64))[0]
    spread = head(corners).amax() - head(corners).amin()
    assert float((head(corners).mean(dim=0) - middle).abs().max() / spread) > 0.01  # an affine head has 0


def test_digits_are_classified_correctly_and_proven_far() -> None:
    test = data.load("digits", "test")
    c = berncert.certify(berncert.load("digits"), test.images)
    correct = c.predicted == test.labels.numpy()
    assert correct.mean() >= 0.97
    assert (c.radius * correct).mean() >= 0.6


def test_no_attack_goes_below_what_is_proven() -> None:
    test, model, radii = data.load("digits", "test"), berncert.load("digits").double(), (0.1, 0.3, 0.6, 1.0)
    c = berncert.certify(model, test.images)
    right = c.predicted == test.labels.numpy()
    attacked = Pgd(norm=2, steps=10, loss="margin").accuracy(model, test.images.double(), test.labels, radii)
    proven = [np.mean(right & (c.radius >= radius)) for radius in radii]
    assert all(below <= above for below, above in zip(proven, attacked, strict=True))
    assert attacked[-1] < 0.5  # the attack is one


@needs_mnist
def test_mnist_is_classified_correctly_and_proven_at_the_usual_radius() -> None:
    test = data.load("mnist", "test", download=False, limit=2000)
    c = berncert.certify(berncert.load("mnist"), test.images, radius=0.3)
    assert (c.predicted == test.labels.numpy()).mean() >= 0.97
    assert c.certified_accuracy(test.labels.numpy(), [0.3])[0] >= 0.94
