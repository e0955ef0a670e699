"""Images of the user: a folder with one subfolder for each class, or an .npz file of arrays."""

from __future__ import annotations

import hashlib
import math
import struct
import unicodedata
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from berncert.data.dataset import SPLITS, Dataset, Request, check_labels, take
from berncert.data.splits import Division, divide, encode
from berncert.data.download import checksum
from berncert.foundation.arrays import Ints
from berncert.foundation.progress import Bar
from berncert.foundation.safe_reading import check_unpacked

SUFFIXES = (".png", ".jpg", ".jpeg")
MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB"}
"""Pillow's mode -> the one it is read in; transparent images, or those with 16 bits, would lose something."""
CHANNELS = (1, 3)
MOST_CLASSES = 2**16
"""Larger labels are more likely something else: the number of a person, a price."""
BROKEN_ARCHIVE = (ValueError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error)
BROKEN_IMAGE = (OSError, ValueError, SyntaxError, EOFError, OverflowError, struct.error, zlib.error)
TOO_LARGE = (Image.DecompressionBombError, Image.DecompressionBombWarning)


def read_folder(folder: Path, request: Request) -> Dataset:
    """The requested images of folder/class/image.png, or folder/split/class/image.png, in the order of their names.

    A folder without subfolders for splits is divided, see `division`.
    """
    folders = _folders(folder)
    splits = folders if any(below.name in SPLITS for below in folders) else []
    if splits and folder / request.split not in splits:
        raise ValueError(
            f"expected a folder {request.split!r} in {folder}, got {', '.join(below.name for below in splits)} only; "
            "choose another split, or put the class folders there to have some images of each set aside for testing"
        )
    # the classes of all splits: a class that one split lacks must not shift the numbers of the others
    classes = sorted({below.name for split in splits or [folder] for below in _folders(split)}, key=_sort_key)
    root = folder / request.split if splits else folder
    found = [(path, label) for label, name in enumerate(classes) for path in _images(root / name)]
    if not found:
        raise ValueError(
            f"expected a subfolder for each class in {root}, with {', '.join(SUFFIXES)} images in them, got none; "
            "for arrays use an .npz file"
        )
    division = None if splits else _divide_folder(folder, found, request.split)
    rows = _requested_rows(request, len(found), division)
    paths, labels = zip(*(found[row] for row in rows), strict=True)
    images, digest = _decode(root, paths, request.progress)
    files = {f"{folder.name}/{len(rows)} images": digest}
    return request.dataset(images, np.array(labels), rows, tuple(classes), files=files, division=division)


def _divide_folder(folder: Path, found: Sequence[tuple[Path, int]], split: str) -> Division:
    names = [_sort_key(path.relative_to(folder).as_posix())[0] for path, _ in found]
    sizes = ",".join(str(path.stat().st_size) for path, _ in found)
    return divide(names, [label for _, label in found], split, folder, sizes)


def _requested_rows(request: Request, count: int, division: Division | None) -> Sequence[int]:
    """The positions of the requested images among the `count` images of the split, or of all if they are divided."""
    if division is None:
        return request.rows(count)
    chosen: list[int] = take(division.rows, request.rows(len(division.rows))).tolist()
    return chosen


def read_npz(path: Path, request: Request) -> Dataset:
    """The requested images of the arrays x and y, or images and labels, or, if splits have arrays of their own, x_test
    and y_test, or test_images and test_labels, and so on.

    Images are uint8, or floats in [0, 1], in any of the shapes (N, d), (N, H, W), (N, C, H, W), (N, H, W, C) with C = 1
    or 3. An array `classes` names the classes; otherwise they are numbered up to the largest label of any split. A file
    with x and y only is divided, see `division`.
    """
    pairs, arrays = _pairs(request.split), _arrays(path, request.split)
    chosen = next((pair for pair in pairs if arrays.keys() >= set(pair)), None)
    if chosen is None:
        expected = ", or ".join(" and ".join(pair) for pair in pairs)
        raise ValueError(
            f"expected the arrays {expected} in {path}, got none of these pairs; x and y alone have some images of "
            "each class set aside for testing"
        )
    pixels, numbers = (arrays[name] for name in chosen)
    files = {path.name: checksum(path, "sha256")}
    try:
        labels = _integers(numbers)
        classes = _class_names(arrays, request.split, pairs.index(chosen))
        check_labels(len(pixels) if pixels.ndim else 0, labels, len(classes))
        division = None
        if chosen in pairs[2:]:
            division = divide([str(row) for row in range(len(labels))], labels, request.split, path, files[path.name])
        rows = _requested_rows(request, len(labels), division)
        images = _channels_first(take(pixels, rows))
        _check_values(images)
    except ValueError as error:
        raise ValueError(f"{path}, {' and '.join(chosen)}: {error}") from error
    return request.dataset(images, take(labels, rows), rows, classes, files=files, division=division)


def _pairs(split: str) -> list[tuple[str, str]]:
    """The names that images and labels may have; the last two pairs are for all splits."""
    own = [(f"x_{split}", f"y_{split}"), (f"{split}_images", f"{split}_labels")]
    return [*own, ("x", "y"), ("images", "labels")]


def _arrays(path: Path, split: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays that this split needs, among them the labels of the other splits."""
    labels = {label for one in (*SPLITS, split) for _, label in _pairs(one)}
    wanted = {"classes", *labels, *(image for image, _ in _pairs(split))}
    try:
        with path.open("rb") as file:  # numpy does not close a damaged file that it opened itself
            if zipfile.is_zipfile(file):
                _check_size(path, file, wanted)
            file.seek(0)
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("a single array")
            arrays = {key: archive[key] for key in archive.files if key in wanted}
            if not all(isinstance(array, np.ndarray) for array in arrays.values()):
                raise ValueError("something other than arrays in it")
            return arrays
    except _TooLargeError:
        raise
    except BROKEN_ARCHIVE as error:
        raise ValueError(f"expected {path} to be a whole .npz file of plain arrays, got {error}") from error


class _TooLargeError(ValueError):
    """The error for a file that would take more memory than is allowed."""


def _check_size(path: Path, file: Any, wanted: set[str]) -> None:
    """Check the sizes in the archive's directory and in the headers of its arrays, before anything is unpacked.

    numpy allocates what an array's header asks for, so no header may ask for more than the directory says.
    """
    with zipfile.ZipFile(file) as archive:
        members = [info for info in archive.infolist() if info.filename.removesuffix(".npy") in wanted]
        try:
            check_unpacked(path, sum(info.file_size for info in members))
        except ValueError as error:
            raise _TooLargeError(str(error)) from None
        for info in members:
            with archive.open(info) as member:
                declared = _declared_bytes(member)
            if declared > info.file_size:
                raise ValueError(f"{info.filename} of {info.file_size} bytes, whose header asks for {declared}")


def _declared_bytes(member: Any) -> int:
    """The bytes that the array's header asks for; 0 for an array of objects, which numpy refuses."""
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(member)
    if version not in headers:
        raise ValueError(f"an array in version {version} of its format")
    shape, _, dtype = headers[version](member)
    return 0 if dtype.hasobject else math.prod(shape) * dtype.itemsize


def _class_names(arrays: Mapping[str, npt.NDArray[Any]], split: str, kind: int) -> tuple[str, ...]:
    if "classes" in arrays:
        names = arrays["classes"]
        if names.ndim != 1 or not names.size:
            raise ValueError(f"expected classes to be a list of names, got {names.dtype} of shape {names.shape}")
        return tuple(str(name) for name in names)
    labels = [arrays[name] for name in {_pairs(one)[kind][1] for one in (*SPLITS, split)} if name in arrays]
    return tuple(str(number) for number in range(max(int(_integers(some).max()) for some in labels) + 1))


def _folders(folder: Path) -> list[Path]:
    found = (below for below in folder.iterdir() if below.is_dir() and not below.name.startswith("."))
    return sorted(found, key=lambda below: _sort_key(below.name))


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():  # a class that this split lacks
        return []
    found = (path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.name[0] != ".")
    return sorted(found, key=lambda path: _sort_key(path.name))


def _sort_key(name: str) -> tuple[str, str]:
    """A key that sorts names the same way on every machine: file systems spell accents differently."""
    return unicodedata.normalize("NFC", name), name


def _decode(root: Path, paths: Sequence[Path], progress: bool | None) -> tuple[npt.NDArray[np.uint8], str]:
    """The pixels (N, C, H, W), and one checksum of all names and files."""
    digest = hashlib.sha256()
    images: list[npt.NDArray[np.uint8]] = []
    with Bar(f"reading {root.name}", total=len(paths), progress=progress) as bar:
        for path in paths:
            digest.update(encode(f"{path.relative_to(root).as_posix()} {checksum(path, 'sha256')}\n"))
            images.append(_pixels(path))
            if len(images) == 1:
                check_unpacked(root, images[0].size * len(paths))
            if images[-1].shape != images[0].shape:
                raise ValueError(
                    f"expected {path} to be {_size(images[0])} as {paths[0].name} is, got {_size(images[-1])}; "
                    "all images must agree: resize or convert them first"
                )
            bar.update(len(images))
    return np.stack(images), f"sha256:{digest.hexdigest()}"


def _pixels(path: Path) -> npt.NDArray[np.uint8]:
    """The pixels (C, H, W), with one channel for grey images and three for others; Pillow limits their number."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:  # reads the header only
                mode = image.mode
                pixels = np.asarray(image.convert(MODES[mode])) if mode in MODES else None
    except TOO_LARGE as error:
        raise ValueError(
            f"expected {path} to have at most {Image.MAX_IMAGE_PIXELS} pixels, got more: {error}; make it smaller"
        ) from error
    except BROKEN_IMAGE as error:
        raise ValueError(
            f"expected {path} to be a whole PNG or JPEG image, got {error}; replace or remove it"
        ) from error
    if pixels is None:
        raise ValueError(
            f"expected {path} to be grey or RGB, with 8 bits a channel, got Pillow's mode {mode}; convert it first"
        )
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _size(pixels: npt.NDArray[np.uint8]) -> str:
    channels, height, width = pixels.shape
    return f"{width} x {height} in {'grey' if channels == 1 else 'colour'}"


def _integers(labels: npt.NDArray[Any]) -> Ints:
    """The labels as one row of whole numbers; an error unless each can be the number of a class."""
    if (
        not np.issubdtype(labels.dtype, np.integer)
        or labels.size == 0
        or labels.ndim == 0
        or labels.size != len(labels)
    ):
        raise ValueError(
            f"expected one integer label for each image, got {labels.dtype} of shape {labels.shape}; number the "
            "classes from 0"
        )
    least, greatest = int(labels.min()), int(labels.max())
    if not 0 <= least <= greatest < MOST_CLASSES:
        wrong = least if least < 0 else greatest
        row = int((labels.reshape(-1) == wrong).argmax())
        raise ValueError(
            f"expected labels from 0 to fewer than {MOST_CLASSES}, got {wrong} for image {row}; number the classes "
            "from 0"
        )
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


def _check_values(images: npt.NDArray[Any]) -> None:
    if images.dtype == np.uint8:
        return
    if not np.issubdtype(images.dtype, np.floating):
        raise ValueError(f"expected images of uint8 or floats, got {images.dtype}")
    if not ((images >= 0) & (images <= 1)).all():  # NaN fails, too
        raise ValueError(
            f"expected floats in [0, 1], got values from {images.min()} to {images.max()}; scale them, or give uint8"
        )
