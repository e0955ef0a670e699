"""The checkpoints that come with the package are as good as they are said to be, on real images."""

from __future__ import annotations

import os

import numpy as np
import pytest

import berncert
from berncert import data
from berncert.attacks.methods import Pgd
from berncert.models.checkpoint import open_checkpoint, shipped
from berncert.training.recipes import load_recipe

needs_mnist = pytest.mark.skipif(
    not os.environ.get("BERNCERT_DATA"), reason="MNIST's files are looked for where BERNCERT_DATA says"
)


def test_digits_and_mnist_come_along_by_name() -> None:
    assert {"digits", "mnist"} <= set(shipped())


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_a_shipped_model_was_made_by_the_recipe_of_its_name(name: str) -> None:
    told, now = open_checkpoint(name).about["recipe"], load_recipe(name).as_dict()
    for section in ("data", "model", "training"):
        for key, value in told[section].items():
            current = now[section][key]
            assert value == (list(current) if isinstance(current, tuple) else current), f"{section}.{key}"


def test_digits_are_right_and_proven_far() -> None:
    test = data.load("digits", "test")
    c = berncert.certify(berncert.load("digits"), test.images)
    right = c.predicted == test.labels.numpy()
    assert right.mean() >= 0.96
    assert (c.radius * right).mean() >= 0.35


def test_no_attack_goes_below_what_is_proven() -> None:
    test, model, radii = data.load("digits", "test"), berncert.load("digits").double(), (0.1, 0.3, 0.6, 1.0)
    c = berncert.certify(model, test.images)
    right = c.predicted == test.labels.numpy()
    attacked = Pgd(norm=2, steps=10, loss="margin").accuracy(model, test.images.double(), test.labels, radii)
    proven = [np.mean(right & (c.radius >= radius)) for radius in radii]
    assert all(below <= above for below, above in zip(proven, attacked, strict=True))
    assert attacked[-1] < 0.5  # the attack is one


@needs_mnist
def test_mnist_is_right_and_proven_at_the_usual_radius() -> None:
    test = data.load("mnist", "test", download=False)
    c = berncert.certify(berncert.load("mnist"), test.images)
    right = c.predicted == test.labels.numpy()
    assert right.mean() >= 0.98
    assert (right & (c.radius >= 0.3)).mean() >= 0.95
