"""A user's own images: a folder with one subfolder for each class, or an .npz file of arrays."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from berncert.progress import Bar
from berncert.study.data.dataset import SPLITS, Dataset, Ints, Request, check_labels, take
from berncert.study.data.download import checksum

SUFFIXES = (".png", ".jpg", ".jpeg")
MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}
"""Pillow's mode -> the one it is read in; what is transparent, or has 16 bits, would lose something."""
UNSPLIT = "all of it, whatever the split: it has no separate images for training and testing"
CHANNELS = (1, 3)


def read(path: Path, request: Request) -> Dataset:
    """The wanted rows of a folder or an .npz file."""
    return read_folder(path, request) if path.is_dir() else read_npz(path, request)


def read_folder(folder: Path, request: Request) -> Dataset:
    """folder/class/image.png, or folder/split/class/image.png; classes and images in the order of their names."""
    folders = _folders(folder)
    splits = folders if any(below.name in SPLITS for below in folders) else []
    if splits and folder / request.split not in splits:
        there = ", ".join(below.name for below in splits)
        raise ValueError(f"expected a folder {request.split!r} in {folder}, got {there} only; choose another split")
    if not splits:
        _check_unsplit(request.split, folder)
    # the classes of all splits: one that a split lacks must not shift the numbers of the others
    classes = sorted({below.name for split in splits or [folder] for below in _folders(split)})
    root = folder / request.split if splits else folder
    found = [(path, label) for label, name in enumerate(classes) for path in _images(root / name)]
    if not found:
        raise ValueError(
            f"expected a subfolder for each class in {root}, with {', '.join(SUFFIXES)} images in them, got none; "
            "arrays can come in an .npz file"
        )
    rows = request.rows(len(found))
    paths, labels = zip(*(found[row] for row in rows), strict=True)
    images, digest = _decoded(root, paths, request.progress)
    return request.answer(
        images,
        np.array(labels),
        rows,
        tuple(classes),
        part=None if splits else UNSPLIT,
        files={f"{folder.name}/{len(rows)} images": digest},
    )


def read_npz(path: Path, request: Request) -> Dataset:
    """Arrays x and y, or images and labels; where splits have their own, x_test and y_test, or test_images and so on.

    Images are bytes, or floats in [0, 1], in any of the shapes (N, d), (N, H, W), (N, C, H, W), (N, H, W, C) with C = 1
    or 3. Classes are named by an array `classes`, else numbered up to the greatest label of any split.
    """
    pairs, arrays = _pairs(request.split), _arrays(path, request.split)
    chosen = next((pair for pair in pairs if arrays.keys() >= set(pair)), None)
    if chosen is None:
        expected = ", or ".join(" and ".join(pair) for pair in pairs)
        raise ValueError(f"expected the arrays {expected} in {path}, got none of these pairs")
    unsplit = chosen in pairs[2:]
    if unsplit:
        _check_unsplit(request.split, path)
    try:
        labels = _integers(arrays[chosen[1]])
        classes = _class_names(arrays, request.split, pairs.index(chosen))
        check_labels(len(arrays[chosen[0]]), labels, len(classes))
        rows = request.rows(len(labels))
        images = _checked(_channels_first(take(arrays[chosen[0]], rows)))
    except ValueError as error:
        raise ValueError(f"{path}, {' and '.join(chosen)}: {error}") from error
    files = {path.name: checksum(path, "sha256")}
    return request.answer(images, take(labels, rows), rows, classes, part=UNSPLIT if unsplit else None, files=files)


def _pairs(split: str) -> list[tuple[str, str]]:
    """What images and labels may be called; the last two are for all splits."""
    own = [(f"x_{split}", f"y_{split}"), (f"{split}_images", f"{split}_labels")]
    return [*own, ("x", "y"), ("images", "labels")]


def _arrays(path: Path, split: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays that matter to this split, among them the labels of the others."""
    labels = {label for one in (*SPLITS, split) for _, label in _pairs(one)}
    wanted = {"classes", *labels, *(image for image, _ in _pairs(split))}
    try:
        with path.open("rb") as file:  # numpy leaves a damaged file open that it opened itself
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("a single array")
            return {key: archive[key] for key in archive.files if key in wanted}
    except (ValueError, OSError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"expected {path} to be a whole .npz file of plain arrays, got {error}") from error


def _class_names(arrays: Mapping[str, npt.NDArray[Any]], split: str, kind: int) -> tuple[str, ...]:
    if "classes" in arrays:
        return tuple(str(name) for name in arrays["classes"])
    labels = [arrays[name] for name in {_pairs(one)[kind][1] for one in (*SPLITS, split)} if name in arrays]
    return tuple(str(number) for number in range(max(int(_integers(some).max()) for some in labels) + 1))


def _check_unsplit(split: str, path: Path) -> None:
    if split not in SPLITS:
        raise ValueError(f"expected split to be {' or '.join(map(repr, SPLITS))}, got {split!r}, which {path} has not")


def _folders(folder: Path) -> list[Path]:
    return sorted(below for below in folder.iterdir() if below.is_dir() and not below.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():  # a class that this split lacks
        return []
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.name[0] != ".")


def _decoded(root: Path, paths: Sequence[Path], progress: bool | None) -> tuple[npt.NDArray[np.uint8], str]:
    """Pixels (N, C, H, W), and one checksum of all names and files."""
    digest = hashlib.sha256()
    images: list[npt.NDArray[np.uint8]] = []
    with Bar(f"reading {root.name}", total=len(paths), progress=progress) as bar:
        for path in paths:
            digest.update(f"{path.relative_to(root).as_posix()} {checksum(path, 'sha256')}\n".encode())
            images.append(_pixels(path))
            if images[-1].shape != images[0].shape:
                raise ValueError(
                    f"expected {path} to be {_size(images[0])} as {paths[0].name} is, got {_size(images[-1])}; "
                    "all images must agree: resize or convert them first"
                )
            bar.update(len(images))
    return np.stack(images), f"sha256:{digest.hexdigest()}"


def _pixels(path: Path) -> npt.NDArray[np.uint8]:
    """(C, H, W): one channel for grey images, three for others."""
    try:
        with Image.open(path) as image:
            mode = image.mode
            pixels = np.asarray(image.convert(MODES[mode]))
    except KeyError:
        raise ValueError(
            f"expected {path} to be grey or RGB, with 8 bits a channel, got Pillow's mode {mode}; convert it first"
        ) from None
    except OSError as error:
        raise ValueError(
            f"expected {path} to be a whole PNG or JPEG image, got {error}; replace or remove it"
        ) from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _size(pixels: npt.NDArray[np.uint8]) -> str:
    channels, height, width = pixels.shape
    return f"{width} x {height} in {'grey' if channels == 1 else 'colour'}"


def _integers(labels: npt.NDArray[Any]) -> Ints:
    if not np.issubdtype(labels.dtype, np.integer) or labels.size == 0 or labels.size != len(labels):
        raise ValueError(f"expected one integer label for each image, got {labels.dtype} of shape {labels.shape}")
    return labels.reshape(-1).astype(np.int64)


def _channels_first(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if images.ndim == 2:
        return images
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4:
        first, last = (images.shape[axis] in CHANNELS for axis in (1, 3))
        if first and last:
            raise ValueError(f"expected channels first or last, got the shape {images.shape}, which can be either")
        if first or last:
            return images if first else images.transpose(0, 3, 1, 2)
    raise ValueError(
        f"expected images of shape (N, d), (N, H, W), (N, C, H, W) or (N, H, W, C) with C = 1 or 3, got {images.shape}"
    )


def _checked(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if images.dtype == np.uint8:
        return images
    if not np.issubdtype(images.dtype, np.floating):
        raise ValueError(f"expected images of uint8 or floats, got {images.dtype}")
    if not ((images >= 0) & (images <= 1)).all():  # not a number fails, too
        raise ValueError(
            f"expected floats in [0, 1], got values from {images.min()} to {images.max()}; scale them, or give uint8"
        )
    return images
