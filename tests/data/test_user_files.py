"""A user's own images: folders and .npz files."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from berncert.data import load

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
    data = load(str(tmp_path), "all")
    assert data.classes == ("cat", "dog", "emu")
    assert data.labels.tolist() == [0, 0, 1, 1, 2]
    assert torch.equal(data.images, as_floats(COLOUR[[3, 1, 2, 0, 4]].transpose(0, 3, 1, 2)))
    assert data.part is not None
    assert data.part.startswith("all images, those for training among them")


def test_splits_of_a_folder_share_the_numbers_of_their_classes(tmp_path: Path) -> None:
    for row, name in enumerate(["train/cat/1.png", "train/dog/1.png", "test/dog/1.png", "val/emu/1.png"]):
        paint(tmp_path / name, GREY[row])
    for split, labels in {"train": [0, 1], "test": [1], "val": [2]}.items():
        data = load(tmp_path, split)
        assert data.classes == ("cat", "dog", "emu")
        assert data.labels.tolist() == labels
        assert data.part is data.division is None
    assert torch.equal(load(tmp_path, "test").images, as_floats(GREY[2:3, None]))
    with pytest.raises(ValueError, match=r"expected a folder 'tset' in .*, got test, train, val only"):
        load(tmp_path, "tset")


def test_the_checksum_of_a_folder_changes_with_any_name_or_pixel(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", GREY[0])
    paint(tmp_path / "b" / "1.png", GREY[1])
    seen = [load(tmp_path, "all").files, load(tmp_path, "all").files]
    assert seen[0] == seen[1]
    paint(tmp_path / "b" / "1.png", GREY[2])
    seen.append(load(tmp_path, "all").files)
    (tmp_path / "b").rename(tmp_path / "c")
    seen.append(load(tmp_path, "all").files)
    assert len({str(files) for files in seen}) == 3


def test_of_a_folder_only_the_wanted_images_are_read(tmp_path: Path) -> None:
    for row in range(6):
        paint(tmp_path / "a" / f"{row}.png", GREY[row])
    (tmp_path / "a" / "1.png").write_bytes(b"damaged")
    data = load(tmp_path, "all", skip=2, limit=2)
    assert data.indices.tolist() == [0, 2]
    assert torch.equal(data.images, as_floats(GREY[[0, 2], None]))
    with pytest.raises(ValueError, match=r"expected .*1\.png to be a whole PNG or JPEG image, got .*identify"):
        load(tmp_path, "all")


def test_jpeg_and_palette_images_are_read_as_colour(tmp_path: Path) -> None:
    Image.fromarray(COLOUR[0]).quantize(16).save(tmp_path / "0.png")
    (tmp_path / "a").mkdir()
    (tmp_path / "0.png").rename(tmp_path / "a" / "0.png")
    paint(tmp_path / "a" / "1.jpg", np.full((4, 5, 3), 200, np.uint8))
    data = load(tmp_path, "all")
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
        load(tmp_path, "all")


def test_an_image_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", np.repeat(np.repeat(COLOUR[0], 20, axis=0), 20, axis=1))
    whole = (tmp_path / "a" / "1.png").read_bytes()
    (tmp_path / "a" / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"expected .*1\.png to be a whole PNG or JPEG image"):
        load(tmp_path, "all")


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
    split = "test" if "test" in names else "all"
    data = load(path, split)
    assert torch.equal(data.images, expected)
    assert data.labels.tolist() == LABELS.tolist()
    assert data.classes == ("0", "1", "2")
    assert (data.part is None) == (data.division is None) == (split == "test")
    assert list(data.files) == ["mine.npz"]
    assert load(path, split, skip=4).indices.tolist() == [0, 4]


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
        ({"x": GREY, "y": LABELS - 1}, "expected labels from 0 to fewer than 65536, got -1 for image 0; number"),
        ({"x": GREY, "y": LABELS + 10**12 * (LABELS == 1)}, "got 1000000000001 for image 1; number the classes from 0"),
        ({"x": GREY, "y": LABELS.astype(np.uint64) + np.uint64(2**64 - 3)}, "got 18446744073709551615 for image 2"),
        ({"x": GREY, "y": np.array([0, 1, np.nan, 1, 1, 0])}, "expected one integer label .* got float64"),
        ({"x": GREY, "y": LABELS > 0}, "expected one integer label .* got bool"),
        ({"x": GREY, "y": LABELS.astype(str)}, "expected one integer label .* got <U"),
        ({"x": GREY, "y": np.array(3)}, "expected one integer label .* of shape .."),
        ({"x": np.array(3), "y": LABELS}, "got 6 labels and 0 images"),
        ({"x": GREY, "y": LABELS, "classes": np.array("cat")}, "expected classes to be a list of names, got <U3"),
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
    with pytest.raises(ValueError, match=r"expected split to be 'train', 'test', 'all', as .* got 'tset'"):
        load(tmp_path / "mine.npz", "tset")
    paint(tmp_path / "folder" / "cat" / "1.png", GREY[0])
    with pytest.raises(ValueError, match=r"expected split to be 'train', 'test', 'all', as .* got 'tset'"):
        load(tmp_path / "folder", "tset")


def test_an_archive_that_says_it_is_too_large_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.npz"
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (2**20, 64, 64)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("y.npy", "w") as member:
            np.save(member, LABELS)
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(head.getvalue())
            for _ in range(6):
                member.write(bytes(2**20))
    whole = path.read_bytes()
    with pytest.raises(ValueError, match=r"of 6291584 bytes, whose header asks for 4294967296"):
        load(path)
    monkeypatch.setenv("BERNCERT_MAX_GIB", "0.004")
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("unpacked it"))
    with pytest.raises(
        ValueError, match=r"expected .*bomb\.npz to unpack to at most 0\.004 GiB, got more .* BERNCERT_MAX"
    ):
        load(path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "much"])
def test_a_limit_that_is_no_number_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "mine.npz", x=GREY, y=LABELS)
    monkeypatch.setenv("BERNCERT_MAX_GIB", text)
    with pytest.raises(ValueError, match=rf"expected BERNCERT_MAX_GIB to be a number of GiB above 0, got '{text}'"):
        load(tmp_path / "mine.npz")


def test_arrays_that_are_not_wanted_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "mine.npz", x=GREY, y=LABELS, other=np.zeros(2**20))
    monkeypatch.setenv("BERNCERT_MAX_GIB", "0.001")
    assert len(load(tmp_path / "mine.npz", "all")) == 6


def test_an_archive_of_something_else_than_arrays_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        archive.writestr("x", b"text")
        archive.writestr("y", b"text")
    with pytest.raises(ValueError, match=r"to be a whole \.npz file of plain arrays"):
        load(tmp_path / "mine.npz")


def png_that_says(width: int, height: int) -> bytes:
    """A small file whose head promises so many pixels."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(1000))
    chunks = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (body, data))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("side", [10_000, 100_000])
def test_an_image_that_says_it_is_too_large_is_refused(side: int, tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", GREY[0])
    (tmp_path / "a" / "0.png").write_bytes(png_that_says(side, side))
    with pytest.raises(
        ValueError, match=r"expected .*0\.png to have at most \d+ pixels, got more: .*; make it smaller"
    ):
        load(tmp_path, "all")


def test_a_folder_that_would_not_fit_is_refused_after_its_first_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in range(6):
        paint(tmp_path / "a" / f"{row}.png", np.zeros((100, 100), np.uint8))
    monkeypatch.setenv("BERNCERT_MAX_GIB", str(50_000 / 2**30))
    with pytest.raises(ValueError, match="to unpack to at most"):
        load(tmp_path, "all")
    assert len(load(tmp_path, "train")) == 5


def test_a_missing_split_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    paint(tmp_path / "folder" / "train" / "cat" / "1.png", GREY[0])
    with pytest.raises(ValueError, match=r"expected a folder 'test' in .* got train only; .* set aside for testing"):
        load(tmp_path / "folder")
    np.savez(tmp_path / "mine.npz", x_train=GREY, y_train=LABELS)
    with pytest.raises(ValueError, match=r"expected the arrays x_test and y_test.* x and y alone have some images"):
        load(tmp_path / "mine.npz")
