"""Data without splits is divided: class by class, nothing lost, nothing twice, and the same on every machine."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from berncert.data import Dataset, load
from berncert.data.splits import ONE_IN, divide, drawn_rows, ranges

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=60)


def named(count: int) -> list[str]:
    return [f"image-{number}" for number in range(count)]


def rows(labels: list[int], split: str) -> list[int]:
    found: list[int] = divide(named(len(labels)), labels, split, "mine", "").rows.tolist()
    return found


@given(labels=LABELS)
def test_of_each_class_one_in_five_is_for_testing_and_at_least_one_for_training(labels: list[int]) -> None:
    testing = drawn_rows(named(len(labels)), np.array(labels), ONE_IN)
    assert sorted(set(testing)) == testing
    for label in set(labels):
        members = labels.count(label)
        count = sum(labels[row] == label for row in testing)
        assert members == 1 or abs(count - members / 5) <= max(0.5, 1 - members / 5)
        assert count == 0 if members == 1 else 1 <= count < members


@given(labels=LABELS.filter(lambda labels: len(set(labels)) < len(labels)))
def test_training_and_test_images_are_all_images_each_once(labels: list[int]) -> None:
    train, test, whole = (rows(labels, split) for split in ("train", "test", "all"))
    assert sorted([*train, *test]) == whole == list(range(len(labels)))


@given(labels=LABELS, chance=st.randoms(use_true_random=False))
def test_names_decide_and_not_their_order(labels: list[int], chance: object) -> None:
    names, order = named(len(labels)), list(range(len(labels)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    straight = {names[row] for row in drawn_rows(names, np.array(labels), ONE_IN)}
    shuffled = [names[row] for row in order]
    assert straight == {shuffled[row] for row in drawn_rows(shuffled, np.array(labels)[order], ONE_IN)}


def test_the_division_is_the_same_on_every_machine_and_in_every_version() -> None:
    names, labels = [f"cat/{k}.png" for k in range(20)] + [f"dog/{k}.png" for k in range(10)], [0] * 20 + [1] * 10
    record = divide(names, labels, "test", "mine", "content").record
    assert record["test_rows"] == "7,12,16,19-20,24"
    assert (record["seed"], record["images"], record["test_images"]) == (0, 30, 6)
    assert record["sha256"] != divide(names, labels, "test", "mine", "other content").record["sha256"]


@given(numbers=st.sets(st.integers(0, 40)))
def test_ranges_say_the_numbers(numbers: set[int]) -> None:
    said = [part.split("-") for part in ranges(sorted(numbers)).split(",") if part]
    assert [number for ends in said for number in range(int(ends[0]), int(ends[-1]) + 1)] == sorted(numbers)
    assert len(said) == len([number for number in numbers if number - 1 not in numbers])


def test_a_single_image_of_each_class_cannot_be_divided() -> None:
    assert rows([0, 1, 2], "train") == rows([0, 1, 2], "all") == [0, 1, 2]
    with pytest.raises(ValueError, match=r"expected two images or more of some class in mine, .* take all with split="):
        rows([0, 1, 2], "test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, with 12 and 8 images; no two alike."""
    chance = np.random.default_rng(0)
    for name in [*(f"cat/{k}.png" for k in range(12)), *(f"dog/{k}.png" for k in range(8))]:
        (tmp_path / "flat" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(chance.integers(0, 256, (4, 4), dtype=np.uint8)).save(tmp_path / "flat" / name)
    return tmp_path / "flat"


def contents(data: Dataset) -> dict[int, bytes]:
    return {index: image.numpy().tobytes() for index, image in zip(data.indices.tolist(), data.images, strict=True)}


def test_the_splits_of_a_flat_folder_share_no_image_and_number_the_same_ones(folder: Path) -> None:
    train, test, whole = (load(folder, split) for split in ("train", "test", "all"))
    assert (len(train), len(test), test.labels.tolist()) == (16, 4, [0, 0, 1, 1])
    assert not set(contents(train).values()) & set(contents(test).values())
    assert contents(train) | contents(test) == contents(whole)
    assert train.division == test.division == whole.division
    assert test.division is not None
    assert test.division["test_rows"] == ranges(test.indices.tolist())
    assert test.part == "one in 5 images of each class, set aside for testing, as the data came without splits"
    assert torch.equal(load(folder).images, test.images)


def test_skip_and_limit_choose_among_the_test_images(folder: Path) -> None:
    test, some = load(folder, "test"), load(folder, "test", skip=2, limit=2)
    assert some.indices.tolist() == test.indices[::2].tolist()
    assert torch.equal(some.images, test.images[::2])


def test_the_order_of_a_file_system_does_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(folder, "test")
    iterdir = Path.iterdir
    for backwards in (False, True):
        monkeypatch.setattr(Path, "iterdir", lambda self, way=backwards: iter(sorted(iterdir(self), reverse=way)))
        assert contents(load(folder, "test")) == contents(before)
        assert load(folder, "test").division == before.division


@pytest.mark.skipif(sys.getfilesystemencoding() != "utf-8", reason="this file system spells no accents")
def test_the_spelling_of_accents_does_not_matter(folder: Path) -> None:
    for path in [*(folder / "dog").iterdir(), folder / "dog"]:
        path.rename(path.with_name(f"{path.stem}é{path.suffix}"))
    before = load(folder, "test")
    for path in [*(folder / "dogé").iterdir(), folder / "dogé"]:
        path.rename(path.with_name(unicodedata.normalize("NFD", path.name)))
    again = load(folder, "test")
    assert contents(again) == contents(before)
    assert again.division == before.division


def test_another_file_of_the_same_name_is_another_division(folder: Path) -> None:
    before = load(folder, "test").division
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(folder / "cat" / "3.png")
    after = load(folder, "test").division
    assert before is not None
    assert after is not None
    assert after["test_rows"] == before["test_rows"]
    assert after["sha256"] != before["sha256"]


def test_an_npz_of_x_and_y_alone_is_divided(tmp_path: Path) -> None:
    images, labels = np.random.default_rng(0).random((50, 6)), np.arange(50) % 5
    np.savez(tmp_path / "mine.npz", x=images, y=labels)
    train, test = load(tmp_path / "mine.npz", "train"), load(tmp_path / "mine.npz")
    assert train.labels.bincount().tolist() == [8] * 5
    assert test.labels.bincount().tolist() == [2] * 5
    for part in (train, test):
        assert torch.equal(part.images, torch.from_numpy(images).float()[part.indices])
        assert torch.equal(part.labels, torch.from_numpy(labels)[part.indices])
    assert not set(train.indices.tolist()) & set(test.indices.tolist())
