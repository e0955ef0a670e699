"""What holds for every data set, and those that need no files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from berncert.data import DATASETS, load, moons


@pytest.mark.parametrize("name", ["moons", "digits"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_what_is_generated_or_embedded_is_the_same_each_time_and_lies_in_the_unit_cube(name: str, split: str) -> None:
    data, again = load(name, split), load(name, split)
    assert torch.equal(data.images, again.images)
    assert torch.equal(data.labels, again.labels)
    assert data.images.dtype == torch.float32
    assert data.labels.dtype == torch.int64
    assert data.images.min() >= 0
    assert data.images.max() <= 1
    assert set(data.labels.tolist()) == set(range(len(data.classes)))
    assert (data.name, data.split, data.part, data.files) == (name, split, None, {})


def test_moons_are_points_of_two_classes_and_their_splits_share_none() -> None:
    train, test = load("moons", "train"), load("moons", "test")
    assert train.images.shape == test.images.shape == (1000, 2)
    assert train.labels.bincount().tolist() == pytest.approx([500, 500], abs=5)
    assert not (train.images[:, None] == test.images[None]).all(dim=2).any()


def test_moons_without_noise_lie_on_their_half_circles() -> None:
    points, labels = moons(200, np.random.default_rng(0), noise=0.0)
    x, y = (points * [3.9, 2.5] + [-1.45, -1.0]).T
    upper = labels == 0
    assert np.hypot(x, y)[upper] == pytest.approx(1)
    assert np.hypot(x - 1, y - 0.5)[~upper] == pytest.approx(1)
    assert (y[upper] >= 0).all()
    assert (y[~upper] <= 0.5).all()


def test_digits_are_split_class_by_class_and_nothing_is_lost() -> None:
    train, test = load("digits", "train"), load("digits", "test")
    assert train.images.shape[1:] == test.images.shape[1:] == (1, 8, 8)
    images, labels = load_digits(return_X_y=True)
    both = torch.cat([train.images, test.images]).flatten(1) * 16
    assert sorted(map(tuple, both.tolist())) == sorted(map(tuple, images.tolist()))
    share = test.labels.bincount() / torch.from_numpy(labels).bincount()
    assert share.min() > 0.19
    assert share.max() <= 0.2


@pytest.mark.parametrize("name", ["moons", "digits"])
def test_skip_and_limit_choose_rows_of_the_whole(name: str) -> None:
    whole, some = load(name), load(name, skip=7, limit=11)
    assert some.indices.tolist() == list(range(0, 77, 7))
    assert torch.equal(some.images, whole.images[some.indices])
    assert torch.equal(some.labels, whole.labels[some.indices])
    assert len(some) == 11


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"limit": 0}, ValueError, "expected a whole number limit >= 1, got 0"),
        ({"limit": 2.5}, ValueError, "expected a whole number limit >= 1, got 2.5"),
        ({"skip": 0}, ValueError, "expected a whole number skip >= 1, got 0"),
        ({"skip": -20}, ValueError, "expected a whole number skip >= 1, got -20"),
        ({"skip": True}, ValueError, "expected a whole number skip >= 1, got True"),
        ({"split": "validation"}, ValueError, "expected split to be 'train', 'test' or 'holdout', got 'validation'"),
        ({"name": "minst"}, ValueError, r"expected one of moons, digits, mnist, .* got 'minst', .* mean mnist\?"),
        ({"name": "nowhere/mine.npz"}, ValueError, "or the path of a folder .* got 'nowhere/mine.npz'"),
        ({"name": Path("moons")}, ValueError, "got 'moons', which is none of them"),
        ({"name": 3}, TypeError, "expected a data set's name or a path, got 3"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        load(**({"name": "moons"} | options))


def test_the_table_names_what_can_be_loaded() -> None:
    assert list(DATASETS) == ["moons", "digits", "mnist", "fashion_mnist", "svhn", "cifar10", "cifar100"]
