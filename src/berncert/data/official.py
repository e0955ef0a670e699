"""The official data sets: found on this machine or downloaded from their publishers, checked, and read.

A file is recognised by the checksum of its unpacked content, so it may be plain, packed as .gz or .xz, or in the
archive in which it was published. A file with any other content is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from platformdirs import user_cache_path

from berncert.data import formats
from berncert.data.dataset import Dataset, Request, check_labels, take
from berncert.data.download import checksum, download
from berncert.data.registry import OFFICIAL, Edition, File, Official
from berncert.foundation.progress import Bar
from berncert.foundation.safe_reading import DATA_VARIABLE, data_folders

ARCHIVE = ".tar.gz"


class LocalEdition(NamedTuple):
    """An edition on this machine: the path of each of its files, or the archive that contains them."""

    edition: Edition
    paths: Mapping[str, Path]
    archive: Path | None = None


class Content(NamedTuple):
    """The unpacked content of a file."""

    file: File
    name: str
    """The name under which it was found: of a packed file, or within an archive."""
    place: Path
    """Its folder or archive."""
    data: bytes


def read(request: Request) -> Dataset:
    """The requested rows of an official data set, from the first folder that has it, or downloaded."""
    official = OFFICIAL[request.name]
    places = [*data_folders(request.data_dir), user_cache_path("berncert")]  # in the order in which they are searched
    found = _find(official, request.split, places) or _fetch(official, request, places)
    batches: list[formats.Batch] = []
    files: dict[str, str] = {}
    parts: dict[str, None] = {}  # in order, each once
    with Bar(f"reading {request.name}", total=len(found.edition.batches), progress=request.progress) as bar:
        for contents in _contents(found):
            for content in contents:
                files[content.name], part = _recognise(content, official)
                parts |= {part: None} if part else {}
            with _naming(", ".join(str(content.place / content.name) for content in contents)):
                images, labels = found.edition.read(*(content.data for content in contents))
                check_labels(len(images), labels, len(official.classes))
            batches.append((images, labels))
            bar.update(len(batches))
            if request.is_complete(sum(len(labels) for _, labels in batches)):
                break
    rows = request.rows(sum(len(labels) for _, labels in batches))
    images, labels = (take(np.concatenate(arrays), rows) for arrays in zip(*batches, strict=True))
    return request.dataset(images, labels, rows, official.classes, part="; ".join(parts) or None, files=files)


def _find(official: Official, split: str, places: Sequence[Path]) -> LocalEdition | None:
    """The first edition of the split that is in one of these folders."""
    for folder in (place / below for place in places for below in (*official.folders, "")):
        for edition in official.editions[split]:
            for home in (folder, folder / edition.folder):
                paths = {file.name: path for file in edition.files if (path := _plain_or_packed(home, file.name))}
                if len(paths) == len(edition.files):
                    return LocalEdition(edition, paths)
            for published in edition.published:
                if published.name.endswith(ARCHIVE) and (folder / published.name).is_file():
                    return LocalEdition(edition, {}, folder / published.name)
    return None


def _plain_or_packed(folder: Path, name: str) -> Path | None:
    """The path of the file, plain or packed, if it exists."""
    candidates = (folder / f"{name}{suffix}" for suffix in ("", *formats.PACKINGS))
    return next((path for path in candidates if path.is_file()), None)


def _fetch(official: Official, request: Request, places: Sequence[Path]) -> LocalEdition:
    """Download the first edition into data_dir or the cache: the environment variable's folder may be shared."""
    root = request.data_dir or places[-1]
    folder = root / official.folders[0]
    published = official.editions[request.split][0].published
    failure = "download=False forbids downloading them"
    if request.download:
        try:
            for name, expected in published:
                urls = [home + name for home in official.homes]
                download(urls, folder / name, expected, progress=request.progress)
        except OSError as error:
            failure = f"they could not be downloaded ({error})"
        else:
            found = _find(official, request.split, [root])
            assert found is not None  # or download had raised an error
            return found
    raise FileNotFoundError(
        f"expected the {request.split} files of {request.name}, {' and '.join(name for name, _ in published)}, in one "
        f"of {', '.join(map(str, places))}; they are in none of them, and {failure}. Put them into {folder}, or into "
        f"{official.folders[0]}/ in a folder that data_dir or the environment variable {DATA_VARIABLE} names; "
        f"they are published at {' and '.join(official.homes)}"
    )


def _contents(found: LocalEdition) -> Iterator[list[Content]]:
    """The contents of the files, batch by batch."""
    edition, archive = found.edition, found.archive
    if archive is None:
        for batch in edition.batches:
            yield [_plain(file, found.paths[file.name]) for file in batch]
        return
    with _naming(archive):
        members = formats.read_members(archive, [f"{edition.folder}/{file.name}" for file in edition.files])
    for batch in edition.batches:
        names = [f"{edition.folder}/{file.name}" for file in batch]
        yield [Content(file, name, archive, members[name]) for file, name in zip(batch, names, strict=True)]


def _plain(file: File, path: Path) -> Content:
    with _naming(path):
        return Content(file, path.name, path.parent, formats.read_unpacked(path))


def _recognise(content: Content, official: Official) -> tuple[str, str | None]:
    """The checksum of the content, and how it differs from the whole official file, if it does; an error if unknown."""
    known = content.file.known
    got = {algorithm: checksum(content.data, algorithm) for algorithm in {name.partition(":")[0] for name in known}}
    for one in got.values():
        if one in known:
            return one, known[one]
    raise ValueError(
        f"{content.place / content.name}: expected content with the checksum {' or '.join(known)}, got "
        f"{' or '.join(got.values())}; the file is altered, cut off or another one: remove it and load again to "
        f"download it, or copy it again from {' or '.join(official.homes)}"
    )


@contextmanager
def _naming(place: Path | str) -> Iterator[None]:
    """Put the name of the file in front of errors: the readers see its bytes only."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}; remove it and load again to download it, or copy it again") from error
