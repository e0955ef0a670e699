"""Official data sets: small ones registered here are found, recognised and read; the real ones where they are there."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import pickle
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from failing_server import Server, serving

from berncert.data import Dataset, formats, load, official, registry
from berncert.data.download import checksum
from berncert.data.registry import OFFICIAL, Edition, File, Official, Published

Packing = Callable[[bytes], bytes]
PACKINGS: dict[str, Packing] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
NOWHERE = ("http://127.0.0.1:9/",)

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
PIXELS[0, 0, 0, :3] = 0, 255, 51
LABELS = np.array([2, 0, 1, 1, 2, 0], dtype=np.uint8)
CLASSES = ("a", "b", "c")
IDX = {
    "t10k-images-idx3-ubyte": bytes([0, 0, 8, 3, 0, 0, 0, 6, 0, 0, 0, 32, 0, 0, 0, 32]) + PIXELS[:, 0].tobytes(),
    "t10k-labels-idx1-ubyte": bytes([0, 0, 8, 1, 0, 0, 0, 6]) + LABELS.tobytes(),
}
RECORDS = np.hstack([LABELS[:, None], PIXELS.reshape(6, -1)])
BINARY = {"data_batch_1.bin": RECORDS[:4].tobytes(), "data_batch_2.bin": RECORDS[4:].tobytes()}
PICKLED = {
    name: pickle.dumps({"data": PIXELS.reshape(6, -1)[rows], "labels": LABELS[rows].tolist()}, protocol=4)
    for name, rows in {"data_batch_1": slice(0, 4), "data_batch_2": slice(4, 6)}.items()
}


def known(contents: dict[str, bytes], algorithm: str = "md5", part: str | None = None) -> tuple[File, ...]:
    return tuple(File(name, {checksum(content, algorithm): part}) for name, content in contents.items())


def write(folder: Path, contents: dict[str, bytes], suffix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / f"{name}{suffix}").write_bytes(PACKINGS[suffix](content))


def archive(folder: str, contents: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name, content in reversed(contents.items()):
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return packed.getvalue()


ARCHIVES = {"batches-bin": archive("batches-bin", BINARY), "batches-py": archive("batches-py", PICKLED)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the user's, and no folder named by the environment."""
    monkeypatch.delenv("BERNCERT_DATA", raising=False)
    monkeypatch.setattr(official, "user_cache_path", lambda _: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(monkeypatch) as server:
        yield server


@pytest.fixture
def grey(cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small mnist, with its test files only."""
    packed = tuple(Published(f"{name}.gz", checksum(gzip.compress(data, mtime=0), "md5")) for name, data in IDX.items())
    editions = {"test": (Edition(formats.read_idx, (known(IDX),), packed),)}
    monkeypatch.setitem(OFFICIAL, "mnist", Official(CLASSES, NOWHERE, ("mnist", "MNIST/raw"), editions))
    return "mnist"


@pytest.fixture
def colour(cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small cifar10, its training split in two batches, binary and pickled."""
    editions = tuple(
        Edition(
            read,
            tuple((file,) for file in known(contents, algorithm)),
            (Published(f"{folder}.tar.gz", checksum(ARCHIVES[folder], "md5")),),
            folder,
        )
        for read, contents, algorithm, folder in (
            (formats.read_cifar_binary, BINARY, "sha1", "batches-bin"),
            (formats.read_cifar_pickle, PICKLED, "md5", "batches-py"),
        )
    )
    monkeypatch.setitem(OFFICIAL, "cifar10", Official(CLASSES, NOWHERE, ("cifar10",), {"train": editions}))
    return "cifar10"


def is_whole(data: Dataset, channels: int) -> bool:
    images = torch.from_numpy(PIXELS[:, :channels]).float() / 255
    return torch.equal(data.images, images) and data.labels.tolist() == LABELS.tolist() and data.part is None


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("below", ["mnist", "", "MNIST/raw"])
def test_files_are_found_plain_or_packed_below_the_folder_or_in_it(
    suffix: str, below: str, grey: str, tmp_path: Path
) -> None:
    write(tmp_path / below, IDX, suffix)
    data = load(grey, data_dir=tmp_path)
    assert is_whole(data, channels=1)
    assert data.images.dtype == torch.float32
    assert data.images[0, 0, 0, :3].tolist() == [0.0, 1.0, np.float32(0.2)]
    assert data.labels.dtype == data.indices.dtype == torch.int64
    assert data.classes == CLASSES
    assert data.files == {f"{name}{suffix}": checksum(content, "md5") for name, content in IDX.items()}


def test_the_folder_given_comes_before_the_environment_and_that_before_the_cache(
    grey: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cache / "mnist", IDX)
    assert list(load(grey).files) == list(IDX)
    monkeypatch.setenv("BERNCERT_DATA", str(tmp_path / "named"))
    write(tmp_path / "named", IDX, ".gz")
    assert list(load(grey).files) == [f"{name}.gz" for name in IDX]
    write(tmp_path / "given", IDX, ".xz")
    assert list(load(grey, data_dir=str(tmp_path / "given")).files) == [f"{name}.xz" for name in IDX]
    (tmp_path / "empty").mkdir()
    assert list(load(grey, data_dir=tmp_path / "empty").files) == [f"{name}.gz" for name in IDX]


def test_an_environment_variable_that_names_no_folder_is_an_error(
    grey: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERNCERT_DATA", str(tmp_path / "mistyped"))
    with pytest.raises(FileNotFoundError, match="expected the environment variable BERNCERT_DATA to name a folder"):
        load(grey)


@pytest.mark.parametrize("name", ["mnist", "digits", "moons"])
def test_a_folder_given_that_is_not_there_is_an_error_whatever_else_has_the_data(
    name: str, grey: str, cache: Path, tmp_path: Path
) -> None:
    write(cache / "mnist", IDX)
    (tmp_path / "file").write_text("")
    for given, got in (("mistyped", "not there"), ("file", "a file")):
        with pytest.raises(
            FileNotFoundError, match=rf"expected data_dir to name a folder, got .*{given}', which is {got}"
        ):
            load(name, data_dir=tmp_path / given)
    assert not (tmp_path / "mistyped").exists()


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_packed_file_that_never_ends_is_refused(
    suffix: str, grey: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, dict.fromkeys(IDX, bytes(2**23)), suffix)
    monkeypatch.setenv("BERNCERT_MAX_GIB", str(2**21 / 2**30))
    with pytest.raises(ValueError, match=r"to unpack to at most .* got more .*; if that is meant"):
        load(grey, data_dir=tmp_path)


@pytest.mark.parametrize(("contents", "folder"), [(BINARY, "batches-bin"), (PICKLED, "batches-py")])
@pytest.mark.parametrize("below", ["cifar10", ""])
@pytest.mark.parametrize("form", ["files", "unpacked archive", "archive", ".gz", ".xz"])
def test_binary_and_pickled_batches_are_found_as_they_are_packed_or_in_their_archive(
    form: str, below: str, contents: dict[str, bytes], folder: str, colour: str, tmp_path: Path
) -> None:
    if form == "archive":
        (tmp_path / below).mkdir(exist_ok=True)
        (tmp_path / below / f"{folder}.tar.gz").write_bytes(ARCHIVES[folder])
    else:
        unpacked = tmp_path / below / (folder if form == "unpacked archive" else "")
        write(unpacked, contents, form if form.startswith(".") else "")
    data = load(colour, "train", data_dir=tmp_path)
    assert is_whole(data, channels=3)
    assert len(data.files) == 2
    algorithm = "sha1" if contents is BINARY else "md5"
    assert list(data.files.values()) == [checksum(content, algorithm) for content in contents.values()]


@pytest.mark.parametrize(
    ("limit", "skip", "rows"),
    [(None, 1, [0, 1, 2, 3, 4, 5]), (2, 1, [0, 1]), (None, 4, [0, 4]), (2, 2, [0, 2]), (9, 5, [0, 5]), (1, 99, [0])],
)
def test_every_skipth_image_up_to_the_limit_is_taken_and_keeps_its_index(
    limit: int | None, skip: int, rows: list[int], colour: str, tmp_path: Path
) -> None:
    write(tmp_path, BINARY)
    data = load(colour, "train", data_dir=tmp_path, limit=limit, skip=skip)
    assert data.indices.tolist() == rows
    assert len(data) == len(rows)
    assert data.labels.tolist() == LABELS[rows].tolist()
    assert torch.equal(data.images, torch.from_numpy(PIXELS[rows]).float() / 255)


def test_batches_beyond_the_limit_are_not_read(colour: str, tmp_path: Path) -> None:
    write(tmp_path, BINARY)
    (tmp_path / "data_batch_2.bin").write_bytes(b"never looked at")
    assert list(load(colour, "train", data_dir=tmp_path, limit=2, skip=2).files) == ["data_batch_1.bin"]
    with pytest.raises(ValueError, match=r"data_batch_2\.bin"):
        load(colour, "train", data_dir=tmp_path, limit=3, skip=2)


def test_a_part_is_loaded_as_such_and_the_whole_is_preferred(
    colour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {"data_batch_first4": BINARY["data_batch_1.bin"]}
    part = Edition(formats.read_cifar_binary, (known(first, part="the first 4 of 6"),))
    whole = OFFICIAL[colour]
    editions = {"train": (*whole.editions["train"], part)}
    monkeypatch.setitem(OFFICIAL, colour, whole._replace(editions=editions))
    write(tmp_path, first, ".xz")
    data = load(colour, "train", data_dir=tmp_path)
    assert data.part == "the first 4 of 6"
    assert len(data) == 4
    write(tmp_path, PICKLED)
    assert load(colour, "train", data_dir=tmp_path).part is None


@pytest.mark.parametrize("suffix", PACKINGS)
def test_an_altered_file_is_refused_with_both_checksums(suffix: str, grey: str, tmp_path: Path) -> None:
    name = "t10k-labels-idx1-ubyte"
    altered = IDX[name][:-1] + b"\1"
    write(tmp_path, IDX | {name: altered}, suffix)
    expected, got = checksum(IDX[name], "md5"), checksum(altered, "md5")
    with pytest.raises(ValueError, match=f"{name}{suffix}: expected content with the checksum {expected}, got {got};"):
        load(grey, data_dir=tmp_path)


@pytest.mark.parametrize("suffix", PACKINGS)
def test_a_file_that_was_cut_off_is_refused_by_its_name(suffix: str, grey: str, tmp_path: Path) -> None:
    write(tmp_path, IDX, suffix)
    path = tmp_path / f"t10k-images-idx3-ubyte{suffix}"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: expected .* got .*copy it again"):
        load(grey, data_dir=tmp_path)


def test_a_damaged_archive_is_refused_by_its_name(colour: str, tmp_path: Path) -> None:
    (tmp_path / "batches-bin.tar.gz").write_bytes(ARCHIVES["batches-bin"][:-100])
    with pytest.raises(ValueError, match=r"batches-bin\.tar\.gz: expected a whole"):
        load(colour, "train", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS[:5], "one label for each image, got 5 labels and 6 images"),
        (LABELS + 1, "from 0 to 2, got 3 for image 0"),
    ],
)
def test_labels_must_fit_the_images_and_the_classes(
    labels: np.ndarray, message: str, grey: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = IDX | {"t10k-labels-idx1-ubyte": bytes([0, 0, 8, 1, 0, 0, 0, len(labels)]) + labels.tobytes()}
    editions = {"test": (Edition(formats.read_idx, (known(contents),)),)}
    monkeypatch.setitem(OFFICIAL, grey, OFFICIAL[grey]._replace(editions=editions))
    write(tmp_path, contents)
    with pytest.raises(ValueError, match=f"t10k-images-idx3-ubyte, .*{message}"):
        load(grey, data_dir=tmp_path)


def test_a_hostile_pickle_is_refused_even_if_its_checksum_were_known(
    colour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"data_batch_1": b"cos\nsystem\n(S'touch harmed'\ntR."}
    editions = {"train": (Edition(formats.read_cifar_pickle, (known(contents),)),)}
    monkeypatch.setitem(OFFICIAL, colour, OFFICIAL[colour]._replace(editions=editions))
    monkeypatch.chdir(tmp_path)
    write(tmp_path, contents)
    with pytest.raises(ValueError, match=r"data_batch_1: expected a pickle of arrays.* got one with os\.system"):
        load(colour, "train", data_dir=tmp_path)
    assert not (tmp_path / "harmed").exists()


def advice(cause: str, folder: Path) -> str:
    return (
        rf"mnist, t10k-images\S+ and t10k-labels\S+, .*{cause}.*Put them into {re.escape(str(folder))}.*BERNCERT_DATA"
    )


def test_without_network_the_error_says_which_files_to_put_where(grey: str, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=advice("could not be downloaded", cache / "mnist")):
        load(grey)
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileNotFoundError, match=advice("refused", tmp_path / "mine" / "mnist")):
        load(grey, data_dir=tmp_path / "mine")


def test_nothing_is_downloaded_when_that_is_forbidden(grey: str, cache: Path) -> None:
    with pytest.raises(FileNotFoundError, match=advice("download=False", cache / "mnist")):
        load(grey, download=False)
    assert not cache.exists()


@pytest.mark.parametrize("given", [False, True])
def test_missing_files_are_downloaded_once_and_kept(
    given: bool, grey: str, cache: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OFFICIAL, grey, OFFICIAL[grey]._replace(homes=(*NOWHERE, server.url(""))))
    server.files = {f"/{name}.gz": gzip.compress(content, mtime=0) for name, content in IDX.items()}
    shared = tmp_path / "shared, not ours to write to"
    shared.mkdir()
    monkeypatch.setenv("BERNCERT_DATA", str(shared))
    folder = tmp_path / "mine" if given else None
    (tmp_path / "mine").mkdir()
    for _ in range(2):
        assert is_whole(load(grey, data_dir=folder), channels=1)
    assert len(server.asked) == 2
    kept = sorted(path.name for path in ((folder or cache) / grey).glob("[!.]*"))
    assert kept == [f"{name}.gz" for name in IDX]
    assert not any(shared.iterdir())


def test_of_two_files_only_the_missing_one_is_downloaded(
    grey: str, cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OFFICIAL, grey, OFFICIAL[grey]._replace(homes=(server.url(""),)))
    server.files = {f"/{name}.gz": gzip.compress(content, mtime=0) for name, content in IDX.items()}
    load(grey)
    (cache / grey / "t10k-labels-idx1-ubyte.gz").unlink()
    assert is_whole(load(grey), channels=1)
    assert len(server.asked) == 3


def test_a_downloaded_archive_is_read_as_it_is(
    colour: str, cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OFFICIAL, colour, OFFICIAL[colour]._replace(homes=(server.url(""),)))
    server.files = {"/batches-bin.tar.gz": ARCHIVES["batches-bin"]}
    assert is_whole(load(colour, "train"), channels=3)
    assert [path.name for path in (cache / colour).glob("[!.]*")] == ["batches-bin.tar.gz"]


def test_the_bar_counts_files(colour: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, BINARY)
    load(colour, "train", data_dir=tmp_path, progress=True)
    assert "reading cifar10" in (shown := capfd.readouterr().err)
    assert "2/2" in shown


def test_every_split_has_an_edition_that_can_be_downloaded_and_every_checksum_its_length() -> None:
    digits = {"md5": 32, "sha1": 40}
    for name, data in registry.OFFICIAL.items():
        assert len(set(data.classes)) == (100 if name == "cifar100" else 10)
        assert all(home.endswith("/") for home in data.homes)
        for split in ("train", "test"):
            editions = data.editions[split]
            assert editions[0].published
            sums = [one for edition in editions for file in edition.files for one in file.known]
            sums += [one.checksum for edition in editions for one in edition.published]
            for algorithm, number in (one.split(":") for one in sums):
                assert re.fullmatch(rf"[0-9a-f]{{{digits[algorithm]}}}", number)
            assert len(set(sums)) >= len({file.name for edition in editions for file in edition.files})


SVHN_TEST = [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
SVHN_TRAIN = [3083, 8477, 6486, 5266, 4615, 4185, 3497, 3447, 3068, 2876]
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
REAL = [
    pytest.param("mnist", "train", (1, 28, 28), MNIST_TRAIN, ""),
    pytest.param("mnist", "test", (1, 28, 28), MNIST_TEST, ""),
    pytest.param("fashion_mnist", "train", (1, 28, 28), [6000] * 10, ""),
    pytest.param("fashion_mnist", "test", (1, 28, 28), [1000] * 10, ""),
    pytest.param("cifar10", "train", (3, 32, 32), [5000] * 10, "", marks=pytest.mark.slow),
    pytest.param("cifar10", "test", (3, 32, 32), [1000] * 10, ""),
    pytest.param("svhn", "train", (3, 32, 32), SVHN_TRAIN, "the first 45000 of 73257", marks=pytest.mark.slow),
    pytest.param("svhn", "test", (3, 32, 32), SVHN_TEST, "", marks=pytest.mark.slow),
]


def real(name: str, split: str = "test", *, skip: int = 1) -> Dataset:
    if "BERNCERT_DATA" not in os.environ:
        pytest.skip("BERNCERT_DATA names no folder with official files")
    try:
        return load(name, split, skip=skip, download=False)
    except FileNotFoundError:
        pytest.skip(f"the {split} files of {name} are not in the folder that BERNCERT_DATA names")


@pytest.mark.parametrize(("name", "split", "shape", "counts", "part"), REAL)
def test_the_real_files_hold_as_many_images_of_each_class_as_they_should(
    name: str, split: str, shape: tuple[int, ...], counts: list[int], part: str
) -> None:
    data = real(name, split)
    if part and data.part is None:
        pytest.skip("the whole is here; these are the counts of a part")
    assert data.images.shape == (sum(counts), *shape)
    assert data.labels.bincount(minlength=10).tolist() == counts
    assert data.images.aminmax() == (0, 1)
    assert data.indices.equal(torch.arange(len(data)))
    assert (data.part or "").startswith(part)


@pytest.mark.parametrize(("split", "count", "of"), [("train", 1117, 50000), ("test", 916, 10000)])
def test_the_beginning_of_cifar100_is_distinguished_from_the_whole(split: str, count: int, of: int) -> None:
    data = real("cifar100", split)
    if data.part is None:
        assert len(data) == of
    else:
        assert data.part == f"the first {count} of {of}"
        assert len(data) == count
    assert set(data.labels.tolist()) == set(range(100))


@pytest.mark.parametrize(
    ("name", "file", "key"), [("cifar10", "batches.meta", "label_names"), ("cifar100", "meta", "fine_label_names")]
)
def test_the_class_names_are_those_of_the_official_list(name: str, file: str, key: str) -> None:
    path = Path(os.environ.get("BERNCERT_DATA", ""), name, file)
    if not path.is_file():
        pytest.skip(f"{file} is not in the folder that BERNCERT_DATA names")
    names = [text.decode() for text in formats.unpickle(path.read_bytes())[key]]
    assert OFFICIAL[name].classes == tuple(names)


def test_every_20th_image_of_cifar10_is_the_one_that_published_certificates_are_of() -> None:
    data = real("cifar10", skip=20)
    assert len(data) == 500
    published = sorted(Path(os.environ["BERNCERT_DATA"]).glob("published/cohen2019/cifar10/*.tsv"))
    if not published:
        pytest.skip("no published certificates in the folder that BERNCERT_DATA names")
    for path in published:
        table = np.loadtxt(path, skiprows=1, usecols=(0, 1), dtype=np.int64)
        assert (table == torch.stack([data.indices, data.labels], dim=1).numpy()).all()
