"""The official formats: written here byte by byte, read back, and refused when they are not what they should be."""

from __future__ import annotations

import copyreg
import gzip
import io
import lzma
import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from berncert.data import formats

GENERATOR = np.random.default_rng(0)
PIXELS = GENERATOR.integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
LABELS = [3, 0, 9, 1, 1]


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def mat(images: np.ndarray, labels: list[int], *, compressed: bool = False) -> bytes:
    file = io.BytesIO()
    arrays = {"X": images.transpose(2, 3, 1, 0), "y": np.array(labels, np.uint8)[:, None]}
    scipy.io.savemat(file, arrays, do_compression=compressed)
    return file.getvalue()


def binary(images: np.ndarray, *labels: list[int]) -> bytes:
    columns = np.array(labels, np.uint8).T
    return np.hstack([columns, images.reshape(len(images), -1)]).tobytes()


def python2_string(text: bytes) -> bytes:
    return b"U" + bytes([len(text)]) + text if len(text) < 256 else b"T" + struct.pack("<i", len(text)) + text


def python2_array(array: np.ndarray, core: bytes = b"numpy.core") -> bytes:
    """As Python 2 and numpy 1 wrote CIFAR's batches."""
    shape = b"".join(b"M" + struct.pack("<H", size) for size in array.shape)
    empty = b"c" + core + b".multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    return empty + b"(K\x01(" + shape + b"t" + dtype + b"\x89" + python2_string(array.tobytes()) + b"tb"


def python2_batch(images: np.ndarray, key: bytes, labels: list[int], core: bytes = b"numpy.core") -> bytes:
    data = python2_string(b"data") + python2_array(images.reshape(len(images), -1), core)
    numbers = python2_string(key) + b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + data + numbers + b"u."


def test_idx_files_give_back_their_pixels_and_labels() -> None:
    images, labels = formats.read_idx(idx(PIXELS[:, 0]), idx(np.array(LABELS)))
    assert (images == PIXELS[:, :1]).all()
    assert labels.tolist() == LABELS
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (idx(np.array(LABELS)), "begins with 00000803, got one that begins with 00000801"),
        (b"\x89PNG....", "begins with 89504e47"),
        (b"", "begins with 00000803"),
        (idx(PIXELS[:, 0])[:10], "begins with 00000803"),
        (idx(PIXELS[:, 0])[:-1], "expected 5120 bytes for the shape .5, 32, 32., got 5119"),
        (idx(PIXELS[:, 0]) + b"\0", "got 5121"),
    ],
)
def test_what_is_no_whole_idx_file_of_images_is_refused(images: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        formats.read_idx(images, idx(np.array(LABELS)))


@pytest.mark.parametrize("compressed", [False, True])
def test_svhn_files_give_back_their_pixels_and_label_10_means_0(compressed: bool) -> None:
    images, labels = formats.read_mat(mat(PIXELS, [1, 10, 9, 2, 10], compressed=compressed))
    assert (images == PIXELS).all()
    assert labels.tolist() == [1, 0, 9, 2, 0]


def without_y() -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, {"X": PIXELS.transpose(2, 3, 1, 0)})
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (mat(PIXELS, [1, 0, 9, 2, 10]), "labels from 1 to 10"),
        (mat(PIXELS, [1, 11, 9, 2, 10]), "labels from 1 to 10"),
        (mat(PIXELS.astype(float), [1, 1, 1, 1, 1]), "X to be bytes .* got float64"),
        (mat(PIXELS[:, :1], [1, 1, 1, 1, 1]), "got uint8 of shape"),
        (without_y(), "expected y .* got nothing"),
        (mat(PIXELS, [1, 1, 1, 1, 1])[:1000], "cannot be read"),
        (b"not a mat file" * 50, "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_what_is_no_whole_svhn_file_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        formats.read_mat(content)


def test_binary_batches_give_back_their_pixels_and_the_fine_labels() -> None:
    images, labels = formats.read_cifar_binary(binary(PIXELS, LABELS))
    assert (images == PIXELS).all()
    assert labels.tolist() == LABELS
    images, labels = formats.read_cifar_binary(binary(PIXELS, [7, 7, 7, 7, 7], LABELS), 2)
    assert (images == PIXELS).all()
    assert labels.tolist() == LABELS


@pytest.mark.parametrize("content", [b"", binary(PIXELS, LABELS)[:-1], binary(PIXELS, LABELS, LABELS)])
def test_a_binary_batch_of_broken_records_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="expected records of 3073 bytes each"):
        formats.read_cifar_binary(content)


PICKLES = {
    "python 2": python2_batch(PIXELS, b"labels", LABELS),
    "numpy 2's name in python 2's form": python2_batch(PIXELS, b"labels", LABELS, b"numpy._core"),
    "bytes as keys": pickle.dumps({b"data": PIXELS.reshape(5, -1), b"labels": LABELS}, protocol=3),
    "text as keys": pickle.dumps({"data": PIXELS.reshape(5, -1), "labels": LABELS}, protocol=4),
    "column by column": pickle.dumps({"data": np.asfortranarray(PIXELS.reshape(5, -1)), "labels": LABELS}, protocol=4),
}


@pytest.mark.parametrize("content", PICKLES.values(), ids=PICKLES)
def test_pickled_batches_give_back_their_pixels_and_labels(content: bytes) -> None:
    images, labels = formats.read_cifar_pickle(content)
    assert (images == PIXELS).all()
    assert labels.tolist() == LABELS


def test_a_pickled_batch_of_cifar100_gives_its_fine_labels() -> None:
    _, labels = formats.read_cifar_pickle(python2_batch(PIXELS, b"fine_labels", LABELS), "fine_labels")
    assert labels.tolist() == LABELS


@pytest.mark.parametrize("dtype", ["<i8", ">i8", ">u2", "<f4", "?"])
def test_arrays_of_any_plain_number_are_read_in_their_byte_order(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    assert (formats.unpickle(pickle.dumps({"a": array}, protocol=4))["a"] == array).all()


class Runs:
    """Pickles into a call of anything."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def harm(marker: Path) -> list[Runs]:
    code = f"open({str(marker)!r}, 'w')"
    return [
        Runs(os.system, f"touch '{marker}'"),
        Runs(eval, code),
        Runs(exec, code),
        Runs(open, str(marker), "w"),
        Runs(__import__, "os"),
        Runs(np.save, str(marker), [1]),
    ]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("which", range(6))
def test_no_call_in_a_pickle_is_ever_made(protocol: int, which: int, tmp_path: Path) -> None:
    marker = tmp_path / "harmed"
    evil = harm(marker)[which]
    flat = PIXELS.reshape(5, -1)
    objects = np.array([evil, evil], dtype=object)
    nestings: list[Any] = [evil, {"data": evil}, {"data": [(evil,)]}, {evil: flat}, {"data": objects}]
    for nested in nestings:
        for spelling in (b"numpy._core", b"numpy.core"):
            content = pickle.dumps(nested, protocol=protocol).replace(b"numpy._core", spelling)
            with pytest.raises(ValueError, match="expected a"):
                formats.unpickle(content)
    assert not marker.exists()


FORGED = {
    "os.system by its name": (b"cos\nsystem\n(S'true'\ntR.", "got one with os.system"),
    "an old-style instance": (b"(S'true'\nios\nsystem\n.", "got one with os.system"),
    "an object": (b"(cos\nsystem\nS'true'\no.", "got one with os.system"),
    "another of numpy's functions": (b"cnumpy.core.multiarray\nfromfile\n(S'f'\ntR.", "core.multiarray.fromfile"),
    "a dotted name": (b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__base__\x93.", "numpy.dtype.__base__"),
    "a call of ndarray": (b"\x80\x02cnumpy\nndarray\nK\x02\x85R.", "a call of numpy.ndarray"),
    "an instance of a stand-in": (b"\x80\x02cnumpy\ndtype\nU\x02u1\x85\x81.", "must be a type"),
    "a state for a function": (b"\x80\x02cnumpy\ndtype\n}U\x01aK\x01sb.", "a state for a function"),
    "attributes for a function": (b"\x80\x02cnumpy\ndtype\nN}U\x05_callK\x01s\x86b.", "a state for a function"),
    "an array of objects": (b"\x80\x02cnumpy\ndtype\nU\x02O8\x85R.", "dtype 'O8'"),
    "a structured array": (
        b"\x80\x02cnumpy\ndtype\nU\x02u1\x85R(K\x03U\x01|NU\x01a}NJ\xff\xff\xff\xffK\x00tb.",
        "structured dtype",
    ),
    "a list for an array's bytes": (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\n)R"
        b"(K\x01K\x01\x85cnumpy\ndtype\nU\x02u1\x85R\x89](Netbs.",
        "does not hold plain numbers",
    ),
    "an array larger than its bytes": (PICKLES["python 2"].replace(b"M\x05\x00", b"M\xff\x00"), "cannot reshape"),
    "a persistent name": (b"Pfile\n.", "cannot be read"),
    "an extension": (b"\x80\x02\x82\xf0.", "copyreg"),
    "one cut off": (PICKLES["python 2"][:-100], "expected a whole pickle"),
    "no dictionary": (pickle.dumps([1, 2]), "expected a pickled dictionary, got list"),
    "nothing": (b"", "expected a whole pickle"),
}


@pytest.mark.parametrize(("content", "reason"), FORGED.values(), ids=FORGED)
def test_a_forged_pickle_is_refused_with_an_error_that_says_why(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        formats.unpickle(content)


def test_registered_extensions_are_refused_even_when_python_has_met_them_before(tmp_path: Path) -> None:
    copyreg.add_extension("os", "mkdir", 0xF0)
    try:
        assert pickle.loads(b"\x80\x02\x82\xf0.") is os.mkdir  # from here on it no longer passes by find_class
        argument = str(tmp_path / "harmed").encode()
        with pytest.raises(ValueError, match="copyreg"):
            formats.unpickle(b"\x80\x02\x82\xf0" + python2_string(argument) + b"\x85R.")
        assert not (tmp_path / "harmed").exists()
    finally:
        copyreg.remove_extension("os", "mkdir", 0xF0)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"labels": LABELS}, "expected data .* got nothing"),
        ({"data": PIXELS, "labels": LABELS}, "shape .N, 3072., got uint8 of shape"),
        ({"data": PIXELS.reshape(5, -1).astype(float), "labels": LABELS}, "got float64"),
        ({"data": PIXELS.reshape(5, -1)}, "expected labels .* got nothing"),
        ({"data": PIXELS.reshape(5, -1), "labels": ["3"]}, "list of integers"),
        ({"data": PIXELS.reshape(5, -1), "fine_labels": LABELS}, "expected labels"),
    ],
)
def test_a_pickle_that_is_no_batch_is_refused(batch: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        formats.read_cifar_pickle(pickle.dumps(batch, protocol=4))


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_packed_files_are_unpacked_and_damaged_ones_refused(suffix: str, pack: Any, tmp_path: Path) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(pack(PIXELS.tobytes()))
    assert formats.read_unpacked(path) == PIXELS.tobytes()
    if suffix:
        whole = path.read_bytes()
        for damaged in (whole[:-20], whole[:9], b"plain", whole[:200] + b"\0\1\2\3" + whole[204:]):
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=f"expected a whole {suffix} file"):
                formats.read_unpacked(path)


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def test_archives_give_the_members_asked_for_and_write_nothing(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", {"../escaped": b"x", "set/other": b"y", "set/one": b"1", "set/two": b"22"})
    assert formats.read_members(path, ["set/two", "set/one"]) == {"set/one": b"1", "set/two": b"22"}
    assert list(tmp_path.iterdir()) == [path]


def test_an_archive_that_lacks_a_member_or_its_end_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", {"set/one": PIXELS.tobytes()})
    with pytest.raises(ValueError, match="an archive with set/two, got one without"):
        formats.read_members(path, ["set/one", "set/two"])
    whole = path.read_bytes()
    for damaged in (whole[:-3000], whole[:5], b"not packed"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"expected a whole \.tar\.gz file"):
            formats.read_members(path, ["set/one"])
