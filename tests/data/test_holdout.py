"""Held-out images: a fixed tenth of the training images of each class, which no training with holdout sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from berncert.data import hold_out, load
from berncert.data.splits import ranges


@pytest.mark.parametrize("name", ["digits", "moons"])
def test_held_out_images_are_a_tenth_of_each_class_and_with_the_rest_all_training_images(name: str) -> None:
    whole = load(name, "train")
    rest, held = hold_out(whole)
    assert torch.equal(torch.cat([rest.indices, held.indices]).sort().values, whole.indices)
    for label in range(len(whole.classes)):
        members, aside = (int((part.labels == label).sum()) for part in (whole, held))
        assert abs(aside - members / 10) <= 0.5
    for part in (rest, held):
        rows = torch.isin(whole.indices, part.indices)
        assert torch.equal(part.images, whole.images[rows])
        assert torch.equal(part.labels, whole.labels[rows])


def test_held_out_images_are_the_same_on_every_machine_and_in_every_version() -> None:
    held = load("digits", "holdout")
    assert (held.split, len(held)) == ("holdout", 145)
    assert ranges(held.indices.tolist()).startswith("14,17,20,76,85-86,89,109,119,126,")


def test_the_split_by_name_is_what_a_training_sets_aside_and_can_be_taken_in_part() -> None:
    _, held = hold_out(load("digits", "train"))
    assert torch.equal(load("digits", "holdout").indices, held.indices)
    assert torch.equal(load("digits", "holdout", skip=3, limit=5).indices, held.indices[::3][:5])
    with pytest.raises(ValueError, match="expected split to be 'train', 'test' or 'holdout'"):
        load("digits", "held-out")


def test_data_that_came_without_splits_has_its_held_out_images_among_those_for_training(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x=np.random.default_rng(0).random((60, 4)), y=np.arange(60) % 3)
    held, train, test = (set(load(path, split).indices.tolist()) for split in ("holdout", "train", "test"))
    assert len(held) == 6
    assert held < train
    assert not held & test
    np.savez(path, x_train=np.zeros((2, 4)), y_train=[0, 1], x_test=np.zeros((2, 4)), y_test=[0, 1])
    with pytest.raises(ValueError, match="expected two training images or more of some class"):
        load(path, "holdout")
