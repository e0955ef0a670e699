"""A user's own images: folders and .npz files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from berncert.study.data import load

GENERATOR = np.random.default_rng(0)
GREY = GENERATOR.integers(0, 256, (6, 4, 5), dtype=np.uint8)
COLOUR = GENERATOR.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 2, 1, 0])


def paint(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def as_floats(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).float() / 255


def test_classes_and_images_of_a_folder_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for row, name in enumerate(["dog/2.png", "cat/b.png", "dog/1.png", "cat/a.PNG", "emu/x.png"]):
        paint(tmp_path / name, COLOUR[row])
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".git").mkdir()
    data = load(str(tmp_path))
    assert data.classes == ("cat", "dog", "emu")
    assert data.labels.tolist() == [0, 0, 1, 1, 2]
    assert torch.equal(data.images, as_floats(COLOUR[[3, 1, 2, 0, 4]].transpose(0, 3, 1, 2)))
    assert data.part is not None
    assert data.part.startswith("all of it, whatever the split")


def test_splits_of_a_folder_share_the_numbers_of_their_classes(tmp_path: Path) -> None:
    for row, name in enumerate(["train/cat/1.png", "train/dog/1.png", "test/dog/1.png", "val/emu/1.png"]):
        paint(tmp_path / name, GREY[row])
    for split, labels in {"train": [0, 1], "test": [1], "val": [2]}.items():
        data = load(tmp_path, split)
        assert data.classes == ("cat", "dog", "emu")
        assert data.labels.tolist() == labels
        assert data.part is None
    assert torch.equal(load(tmp_path, "test").images, as_floats(GREY[2:3, None]))
    with pytest.raises(ValueError, match=r"expected a folder 'tset' in .*, got test, train, val only"):
        load(tmp_path, "tset")


def test_the_checksum_of_a_folder_changes_with_any_name_or_pixel(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", GREY[0])
    paint(tmp_path / "b" / "1.png", GREY[1])
    seen = [load(tmp_path).files, load(tmp_path).files]
    assert seen[0] == seen[1]
    paint(tmp_path / "b" / "1.png", GREY[2])
    seen.append(load(tmp_path).files)
    (tmp_path / "b").rename(tmp_path / "c")
    seen.append(load(tmp_path).files)
    assert len({str(files) for files in seen}) == 3


def test_of_a_folder_only_the_wanted_images_are_read(tmp_path: Path) -> None:
    for row in range(6):
        paint(tmp_path / "a" / f"{row}.png", GREY[row])
    (tmp_path / "a" / "1.png").write_bytes(b"damaged")
    data = load(tmp_path, skip=2, limit=2)
    assert data.indices.tolist() == [0, 2]
    assert torch.equal(data.images, as_floats(GREY[[0, 2], None]))
    with pytest.raises(ValueError, match=r"expected .*1\.png to be a whole PNG or JPEG image, got .*identify"):
        load(tmp_path)


def test_jpeg_and_palette_images_are_read_as_colour(tmp_path: Path) -> None:
    Image.fromarray(COLOUR[0]).quantize(16).save(tmp_path / "0.png")
    (tmp_path / "a").mkdir()
    (tmp_path / "0.png").rename(tmp_path / "a" / "0.png")
    paint(tmp_path / "a" / "1.jpg", np.full((4, 5, 3), 200, np.uint8))
    data = load(tmp_path)
    assert data.images.shape == (2, 3, 4, 5)
    assert (data.images[1] - 200 / 255).abs().max() < 0.02


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (GREY[0], r"expected .*2\.png to be 5 x 4 in colour as 1\.png is, got 5 x 4 in grey; .*resize or convert"),
        (COLOUR[0, :3], "got 5 x 3 in colour"),
        (np.zeros((4, 5, 4), np.uint8), "got Pillow's mode RGBA; convert"),
        (np.zeros((4, 5), np.uint16), "got Pillow's mode I;16; convert"),
    ],
)
def test_images_that_do_not_agree_are_refused(pixels: np.ndarray, message: str, tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", COLOUR[0])
    paint(tmp_path / "a" / "2.png", pixels)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_an_image_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", np.repeat(np.repeat(COLOUR[0], 20, axis=0), 20, axis=1))
    whole = (tmp_path / "a" / "1.png").read_bytes()
    (tmp_path / "a" / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"expected .*1\.png to be a whole PNG or JPEG image"):
        load(tmp_path)


def test_a_folder_without_class_folders_is_refused(tmp_path: Path) -> None:
    paint(tmp_path / "1.png", GREY[0])
    with pytest.raises(ValueError, match="expected a subfolder for each class"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (GREY, as_floats(GREY[:, None])),
        (COLOUR, as_floats(COLOUR.transpose(0, 3, 1, 2))),
        (COLOUR.transpose(0, 3, 1, 2), as_floats(COLOUR.transpose(0, 3, 1, 2))),
        (GREY[..., None], as_floats(GREY[:, None])),
        (GREY.reshape(6, -1), as_floats(GREY.reshape(6, -1))),
        (GREY / 256, torch.from_numpy(GREY[:, None]).float() / 256),
        ((GREY / 256).astype(np.float32), torch.from_numpy(GREY[:, None]).float() / 256),
    ],
)
@pytest.mark.parametrize("names", ["x y", "images labels", "x_test y_test", "test_images test_labels"])
def test_arrays_in_any_layout_become_floats_with_channels_first(
    names: str, given: np.ndarray, expected: torch.Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "mine.npz"
    arrays: Any = dict(zip(names.split(), (given, LABELS.astype(np.uint8)[:, None]), strict=True))
    np.savez_compressed(path, **arrays)
    data = load(path)
    assert torch.equal(data.images, expected)
    assert data.labels.tolist() == LABELS.tolist()
    assert data.classes == ("0", "1", "2")
    assert (data.part is None) == ("test" in names)
    assert list(data.files) == ["mine.npz"]
    assert load(path, skip=4).indices.tolist() == [0, 4]


def test_the_classes_of_an_npz_file_are_named_or_counted_over_all_splits(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=GREY, y_train=LABELS, x_test=GREY[:2], y_test=LABELS[:2])
    assert load(path).classes == ("0", "1", "2")
    np.savez(path, x=GREY, y=LABELS, classes=np.array(["cat", "dog", "emu", "owl"]))
    assert load(path).classes == ("cat", "dog", "emu", "owl")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": GREY}, "expected the arrays x_test and y_test, or .* got none"),
        ({"x": GREY, "y": LABELS[:5]}, "got 5 labels and 6 images"),
        ({"x": GREY, "y": LABELS - 1}, "expected labels from 0 to 1, got -1 for image 0"),
        ({"x": GREY, "y": LABELS, "classes": np.array(["cat", "dog"])}, "from 0 to 1, got 2 for image 2"),
        ({"x": GREY, "y": LABELS.astype(float)}, "integer label .* got float64"),
        ({"x": GREY[:0], "y": LABELS[:0]}, "integer label .* got int64 of shape .0,."),
        ({"x": GREY.astype(np.int64), "y": LABELS}, "uint8 or floats, got int64"),
        ({"x": GREY.astype(float), "y": LABELS}, r"floats in \[0, 1\], got values from .* scale them"),
        ({"x": np.full((6, 2), np.nan), "y": LABELS}, r"floats in \[0, 1\]"),
        ({"x": np.zeros((6, 3, 4, 3), np.uint8), "y": LABELS}, "which can be either"),
        ({"x": np.zeros((6, 4, 4, 4), np.uint8), "y": LABELS}, "expected images of shape"),
        ({"x": LABELS, "y": LABELS}, "expected images of shape"),
        ({"x": np.array([{}] * 6), "y": LABELS}, "plain arrays, got Object arrays cannot be loaded"),
    ],
)
def test_arrays_that_are_no_images_are_refused(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "mine.npz")


def test_what_is_no_npz_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, x=GREY, y=LABELS)
    whole = path.read_bytes()
    single = io.BytesIO()
    np.save(single, GREY)
    for content in (whole[:-30], whole[:500], b"", b"cos\nsystem\n(S'true'\ntR.", single.getvalue()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"to be a whole \.npz file of plain arrays"):
            load(path)


def test_a_split_that_nothing_is_known_of_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=GREY, y=LABELS)
    with pytest.raises(ValueError, match="expected split to be 'train' or 'test', got 'tset'"):
        load(tmp_path / "mine.npz", "tset")
    paint(tmp_path / "folder" / "cat" / "1.png", GREY[0])
    with pytest.raises(ValueError, match="expected split to be 'train' or 'test', got 'tset'"):
        load(tmp_path / "folder", "tset")
