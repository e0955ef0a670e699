"""A run on images that the model was trained on says so."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from berncert.data import Dataset, load
from berncert.runs.training_images import seen_in_training
from berncert.training.images import describe_images


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    np.savez(tmp_path / "mine.npz", x=np.random.default_rng(0).random((30, 4)), y=np.arange(30) % 3)
    return tmp_path / "mine.npz"


def trained_on(data: Dataset) -> dict[str, Any]:
    return {"data": describe_images(data)}


def test_what_was_set_aside_was_not_seen(mine: Path) -> None:
    about = trained_on(load(mine, "train"))
    assert seen_in_training(about, load(mine, "test")) == ""
    assert seen_in_training(about, load(mine, "train")) == "these 24 images are training images of the model"
    assert seen_in_training(about, load(mine, "all")) == f"24 of the 30 images of {mine} are training images"


def test_a_path_that_is_written_differently_is_the_same_data(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = trained_on(load(mine, "train"))
    monkeypatch.chdir(mine.parent)
    for name in ("mine.npz", "./mine.npz"):
        assert "24 of the 30" in seen_in_training(about, load(name, "all"))
        assert seen_in_training(about, load(name, "test")) == ""


def test_data_that_was_changed_since_may_have_been_seen(mine: Path) -> None:
    about = trained_on(load(mine, "train"))
    np.savez(mine, x=np.random.default_rng(1).random((40, 4)), y=np.arange(40) % 3)
    assert seen_in_training(about, load(mine, "test")).endswith("some of these 9 may be training images")
    assert "was changed since the model was trained" in seen_in_training(about, load(mine, "all"))


def test_other_data_was_not_seen(mine: Path) -> None:
    about = trained_on(load("digits", "train"))
    for split in ("train", "test", "all"):
        assert seen_in_training(about, load(mine, split)) == ""
    assert seen_in_training(trained_on(load(mine, "train")), load("digits", "train")) == ""


def test_the_training_images_of_data_with_splits_were_seen_and_the_others_not() -> None:
    about = trained_on(load("digits", "train"))
    assert seen_in_training(about, load("digits", "test")) == ""
    train = load("digits", "train")
    assert seen_in_training(about, train) == "these 1442 images are training images of the model"
    limited = about | {"recipe": {"data": {"train_limit": 100}}}
    assert seen_in_training(limited, train) == "some of these 1442 images are training images of the model"


def test_a_model_that_took_undivided_data_whole_has_seen_all_of_it(mine: Path) -> None:
    whole = load(mine, "all")
    old = "all of it, whatever the split: it has no separate images for training and testing"
    about = trained_on(dataclasses.replace(whole, part=old, division=None))
    assert "trained on all images" in seen_in_training(about, load(mine, "test"))


@pytest.mark.parametrize("about", [{}, {"data": None}, {"data": {}}, {"data": "digits"}])
def test_of_a_model_that_does_not_say_one_cannot_know(about: dict[str, Any]) -> None:
    assert "may be training images" in seen_in_training(about, load("digits", "train"))
    assert seen_in_training(about, load("digits", "test")) == ""


def test_held_out_images_were_not_seen_by_a_training_that_set_them_aside() -> None:
    held, train = load("digits", "holdout"), load("digits", "train")
    about = trained_on(train)
    assert seen_in_training(about, held) == "these 145 images are training images of the model"
    aside = about | {"recipe": {"data": {"holdout": True}}}
    assert seen_in_training(aside, held) == ""
    assert seen_in_training(aside, train) == "some of these 1442 images are training images of the model"
    assert "may be training images" in seen_in_training({}, held)
