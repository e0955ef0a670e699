"""Readers of the official file formats, from bytes to images (N, C, H, W) and labels. No file can run code."""

from __future__ import annotations

import gzip
import io
import lzma
import math
import pickle
import pickletools
import re
import tarfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from berncert.foundation.arrays import Ints
from berncert.foundation.safe_reading import check_unpacked

Pixels = npt.NDArray[np.uint8]
Batch = tuple[Pixels, Ints]

PACKINGS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
DAMAGED = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, tarfile.TarError)
CIFAR_SHAPE = (3, 32, 32)
BLOCK_BYTES = 2**20


def read_unpacked(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz or .xz."""
    blocks, size = [], 0
    try:
        with PACKINGS.get(path.suffix, open)(path, "rb") as file:
            while block := file.read(BLOCK_BYTES):  # the unpacked size is not known before
                size += len(block)
                check_unpacked(path, size)
                blocks.append(block)
    except DAMAGED as error:
        raise ValueError(f"expected a whole {path.suffix} file, got a damaged one: {error}") from error
    return b"".join(blocks)


def read_members(path: Path, members: Collection[str]) -> dict[str, bytes]:
    """The contents of those members of a .tar.gz file; nothing is written to the disk."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                if member.name in members and (file := archive.extractfile(member)):
                    check_unpacked(f"{member.name} in {path}", member.size)
                    contents[member.name] = file.read()
                if len(contents) == len(members):
                    return contents
    except DAMAGED as error:
        raise ValueError(f"expected a whole .tar.gz file, got a damaged one: {error}") from error
    missing = ", ".join(sorted(set(members) - set(contents)))
    raise ValueError(f"expected an archive with {missing}, got one without")


def read_idx(images: bytes, labels: bytes) -> Batch:
    """MNIST's pair of idx files; pixels are (N, 1, H, W)."""
    return _idx(images, 3)[:, None], _idx(labels, 1).astype(np.int64)


def read_mat(content: bytes) -> Batch:
    """SVHN's MATLAB file, with X (H, W, 3, N) and y (N, 1), in which the digit 0 has the label 10."""
    try:
        from scipy.io import loadmat  # slow to import, and for one data set alone

        found = loadmat(io.BytesIO(content), variable_names=["X", "y"])  # type: ignore[arg-type]
    except Exception as error:  # scipy's parser can raise anything
        raise ValueError(f"expected a MATLAB 5 file, got one that cannot be read: {error}") from error
    images, labels = found.get("X"), found.get("y")
    if images is None or images.ndim != 4 or images.shape[2] != 3 or images.dtype != np.uint8:
        raise ValueError(f"expected X to be bytes of shape (H, W, 3, N), got {_describe(images)}")
    if labels is None or labels.size != max(labels.shape) or not np.isin(labels, np.arange(1, 11)).all():
        raise ValueError(f"expected y to be a column of labels from 1 to 10, got {_describe(labels)}")
    return images.transpose(3, 2, 0, 1), labels.ravel().astype(np.int64) % 10


def read_cifar_binary(content: bytes, label_bytes: int = 1) -> Batch:
    """CIFAR's binary batch: records of one or two labels, of which the last is used, and 3072 pixels."""
    size = label_bytes + math.prod(CIFAR_SHAPE)
    if not content or len(content) % size:
        raise ValueError(f"expected records of {size} bytes each, got {len(content)} bytes, which is not a multiple")
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    return records[:, label_bytes:].reshape(-1, *CIFAR_SHAPE), records[:, label_bytes - 1].astype(np.int64)


def read_cifar_pickle(content: bytes, key: str = "labels") -> Batch:
    """CIFAR's pickled batch: a dictionary with `data` (N, 3072) and, under the key, a list of labels."""
    batch = unpickle(content)
    images, labels = batch.get("data"), batch.get(key)
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (math.prod(CIFAR_SHAPE),):
        raise ValueError(f"expected data to be bytes of shape (N, 3072), got {_describe(images)}")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise ValueError(f"expected {key} to be a list of integers, got {_describe(labels)}")
    return images.reshape(-1, *CIFAR_SHAPE), np.array(labels, dtype=np.int64)


def unpickle(content: bytes) -> dict[str, Any]:
    """A pickled dictionary of numeric arrays and plain containers; a pickle of anything else is refused."""
    try:
        if extension := next((op.name for op, _, _ in pickletools.genops(content) if op.name.startswith("EXT")), None):
            _refuse(f"an entry of copyreg's registry ({extension})")  # these can bypass find_class
        found = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except _RefusedError:
        raise
    except Exception as error:  # a pickle that is cut off or forged can fail in any way
        raise ValueError(f"expected a whole pickle, got one that cannot be read: {error!r}") from error
    if not isinstance(found, dict):
        raise ValueError(f"expected a pickled dictionary, got {type(found).__name__}")
    return {_text(key): value.numbers if isinstance(value, _PickledArray) else value for key, value in found.items()}


class _RefusedError(ValueError):
    """The error for a pickle that contains more than data."""


def _refuse(what: str) -> NoReturn:
    raise _RefusedError(
        f"expected a pickle of arrays, numbers, strings and plain containers only, got one with {what}; "
        "it is not an official file and nothing of it was run: remove it"
    )


class _PickledDtype:
    """A replacement of numpy.dtype that accepts plain numbers only, never objects."""

    __slots__ = ("code", "order")

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code, self.order = _text(code), "="
        if not re.fullmatch(r"b1|[iu][1248]|f[248]", self.code):
            _refuse(f"an array of dtype {self.code!r}")

    def __setstate__(self, state: Any) -> None:
        order, *structure = state[1:5]
        self.order = _text(order)
        if self.order not in ("<", ">", "|", "=") or structure != [None, None, None]:
            _refuse(f"an array of a structured dtype {state!r}")


class _PickledArray:
    """A replacement of numpy.ndarray, which would trust what a forged state says about its memory."""

    __slots__ = ("numbers",)

    def __init__(self, *_: object) -> None:
        self.numbers: npt.NDArray[Any] = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _PickledDtype) or not isinstance(raw, bytes):
            _refuse("an array that does not hold plain numbers")
        numbers = np.frombuffer(raw, dtype.order + dtype.code)
        self.numbers = numbers.reshape(shape, order="F" if fortran else "C")


class _Replacement:
    """What a pickle gets for a name: something that can be called, but neither changed nor subclassed."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call

    def __call__(self, *arguments: object) -> object:
        return self._call(*arguments)

    def __setstate__(self, state: object) -> NoReturn:
        _refuse("a state for a function")


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows only the names in an array's pickle, as numpy 1 and 2 spell them, and replaces them."""

    def find_class(self, module: str, name: str, /) -> object:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _Replacement(_PickledArray)
        if (module, name) == ("numpy", "dtype"):
            return _Replacement(_PickledDtype)
        if (module, name) == ("numpy", "ndarray"):
            return _Replacement(lambda *_: _refuse("a call of numpy.ndarray"))
        return _refuse(f"{module}.{name}")


def _text(key: object) -> str:
    """A string of a pickle, which Python 2 wrote as bytes."""
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _idx(content: bytes, dimensions: int) -> Pixels:
    magic, start = bytes([0, 0, 8, dimensions]), 4 + 4 * dimensions
    if content[:4] != magic or len(content) < start:
        raise ValueError(
            f"expected an idx file of bytes in {dimensions} dimensions, which begins with {magic.hex()}, "
            f"got one that begins with {content[:4].hex()}"
        )
    shape = [int(size) for size in np.frombuffer(content, ">u4", dimensions, 4)]
    if len(content) - start != math.prod(shape):
        raise ValueError(f"expected {math.prod(shape)} bytes for the shape {shape}, got {len(content) - start}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return "nothing" if value is None else f"a {type(value).__name__}"
