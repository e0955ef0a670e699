"""Which images a training takes; augmentation is shifts and mirror images, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from berncert.data import load
from berncert.models.checkpoint import open_checkpoint
from berncert.training.images import augment, image_notes, load_images
from berncert.training.loop import train
from berncert.training.recipes import Recipe, load_recipe


def images(count: int = 60, channels: int = 2, height: int = 5, width: int = 4) -> Tensor:
    """No two pixels of one image are alike, and none is grey."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, channels, height, width, generator=generator) * 0.4


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("crop", [1, 3, 6])
def test_every_crop_is_a_shift_with_grey_coming_in_and_all_shifts_come_up(crop: int) -> None:
    x = images(900 if crop == 1 else 60)
    got, found = augment(x, crop, False, seeded()), set()
    assert got.shape == x.shape
    assert got.dtype == x.dtype
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (crop, crop), (crop, crop)), constant_values=0.5)
    for row, image in enumerate(got.numpy()):
        moves = [
            (down, right)
            for down in range(2 * crop + 1)
            for right in range(2 * crop + 1)
            if np.array_equal(image, padded[row, :, down : down + x.shape[2], right : right + x.shape[3]])
        ]
        assert moves
        found.update(moves[:1])
    if crop == 1:
        assert len(found) == 9


def test_half_of_the_images_are_mirrored_and_the_rest_untouched() -> None:
    x = images(4000)
    got = augment(x, 0, True, seeded())
    same, mirrored = ((got == y).flatten(1).all(dim=1) for y in (x, x.flip(3)))
    assert (same ^ mirrored).all()
    assert 0.46 < mirrored.double().mean() < 0.54


def test_the_generator_alone_decides_and_the_images_are_left_as_they_are() -> None:
    x = images()
    before = x.clone()
    torch.manual_seed(1)
    a = augment(x, 2, True, seeded(3))
    torch.manual_seed(2)
    assert torch.equal(a, augment(x, 2, True, seeded(3)))
    assert not torch.equal(a, augment(x, 2, True, seeded(4)))
    generator = seeded(3)
    assert torch.equal(a, augment(x, 2, True, generator))
    assert not torch.equal(a, augment(x, 2, True, generator))  # always others
    assert torch.equal(x, before)


def test_with_nearest_edges_a_shift_copies_the_pixels_at_the_edge() -> None:
    x = images(30)
    got = augment(x, 1, False, seeded(), "nearest")
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    down, right = torch.randint(3, (2, 30), generator=seeded())
    for row, image in enumerate(got.numpy()):
        height, width = slice(down[row], down[row] + x.shape[2]), slice(right[row], right[row] + x.shape[3])
        np.testing.assert_array_equal(image, padded[row, :, height, width])


def test_without_augmentation_nothing_happens() -> None:
    generator = seeded()
    x, points = images(), torch.rand(20, 2)
    assert torch.equal(augment(x, 0, False, generator), x)
    assert torch.equal(augment(points, 0, False, generator), points)
    assert torch.equal(torch.rand(3, generator=generator), torch.rand(3, generator=seeded()))


def own(path: Path, count: int = 200, shape: tuple[int, ...] = (1, 4, 4), flipped: bool = False) -> Recipe:
    """A recipe for images of two classes, sorted by class."""
    labels = np.repeat([0, 1], count // 2)
    images = (
        np.random.default_rng(0).uniform(size=(count, *shape)).astype(np.float32) * 0.5
        + 0.4 * labels[:, None, None, None]
    )
    np.savez(path, images=images.astype(np.float32), labels=1 - labels if flipped else labels)
    return load_recipe("digits-small", dataset=str(path), dim=2, width=8, epochs=3, test_limit=50)


def test_a_part_of_sorted_images_has_all_classes(tmp_path: Path) -> None:
    recipe = own(tmp_path / "mine.npz").change(train_limit=40, test_limit=10)
    training, test = load_images(recipe, None, False)
    assert len(training) == 40
    assert len(test) == 10
    for part in (training, test):
        assert set(part.labels.tolist()) == {0, 1}
        assert (part.indices.diff() > 0).all()


def test_the_seed_draws_the_training_images(tmp_path: Path) -> None:
    recipe = own(tmp_path / "mine.npz").change(train_limit=40)
    first, again, other = (load_images(recipe.change(seed=seed), None, False)[0].indices for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("crop", "flip", "dataset"), [(8, False, "digits"), (300, False, "digits"), (1, False, "moons"), (0, True, "moons")]
)
def test_augmentation_that_does_not_fit_the_images_is_refused(crop: int, flip: bool, dataset: str) -> None:
    recipe = load_recipe(dataset, crop=crop, flip=flip)
    with pytest.raises(ValueError, match="expected crop and flip that fit images of shape"):
        load_images(recipe, None, False)


@pytest.mark.parametrize("changes", [{"flipped": True}, {"count": 100}, {"shape": (1, 5, 5)}])
def test_other_images_do_not_take_the_place_of_those_that_a_training_began_with(
    changes: dict[str, object], tmp_path: Path
) -> None:
    recipe, folder = own(tmp_path / "mine.npz"), tmp_path / "run"
    train(recipe, folder, progress=False)
    before = (folder / "model.safetensors").read_bytes()
    own(tmp_path / "mine.npz", **changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected the data that the training in .* began with"):
        train(recipe, folder, progress=False)
    assert (folder / "model.safetensors").read_bytes() == before


def test_test_images_that_are_trained_on_are_counted(tmp_path: Path) -> None:
    recipe = own(tmp_path / "mine.npz").change(test_limit=None)
    training, test = load_images(recipe, None, False)
    (divided,) = image_notes(training, test)
    assert divided.endswith("mine.npz came without splits: 40 of its 200 images are set aside for testing")
    assert not {*training.indices.tolist()} & {*test.indices.tolist()}
    pixels = np.random.default_rng(0).random((30, 4))
    labels = np.arange(30) % 3
    np.savez(tmp_path / "both.npz", x_train=pixels[:20], y_train=labels[:20], x_test=pixels[13:], y_test=labels[13:])
    (seen,) = image_notes(*load_images(recipe.change(dataset=str(tmp_path / "both.npz")), None, False))
    assert seen.startswith("TRAINING IMAGES: 7 of the 17 test images are training images too")
    assert image_notes(*load_images(load_recipe("digits"), None, False)) == []


def test_what_a_training_is_of_says_how_it_was_divided(tmp_path: Path) -> None:
    recipe, said = own(tmp_path / "mine.npz").change(epochs=1), []
    train(recipe, tmp_path / "run", progress=False, on_note=said.append)
    description = open_checkpoint(tmp_path / "run").about["data"]
    assert description["division"] == load(tmp_path / "mine.npz").division
    assert description["images"] == 160
    assert len(said) == 1
