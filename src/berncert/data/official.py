"""The official data sets: found on this machine or downloaded from their homes, recognised, and read.

A file counts as official by the checksum of its unpacked content, so it may lie there plain, packed as .gz or .xz, or
in the archive in which it was published. A file with any other content is refused.
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
from berncert.floor.progress import Bar
from berncert.floor.reading import DATA_VARIABLE, data_folders

ARCHIVE = ".tar.gz"


class Found(NamedTuple):
    """An edition, and either where each of its files is, or the archive that holds them."""

    edition: Edition
    paths: Mapping[str, Path]
    archive: Path | None = None


class Content(NamedTuple):
    """A file, unpacked."""

    file: File
    name: str
    """As it was found: packed, or within an archive."""
    place: Path
    data: bytes


def read(request: Request) -> Dataset:
    """The wanted rows of an official data set, from the first place that has it, else from its home."""
    official, places = OFFICIAL[request.name], _places(request)
    found = _find(official, request.split, places) or _fetch(official, request, places)
    batches: list[formats.Batch] = []
    files: dict[str, str] = {}
    parts: dict[str, None] = {}  # in order, each once
    with Bar(f"reading {request.name}", total=len(found.edition.batches), progress=request.progress) as bar:
        for contents in _contents(found):
            for content in contents:
                files[content.name], part = _recognised(content, official)
                parts |= {part: None} if part else {}
            with _telling_where(", ".join(str(content.place / content.name) for content in contents)):
                images, labels = found.edition.read(*(content.data for content in contents))
                check_labels(len(images), labels, len(official.classes))
            batches.append((images, labels))
            bar.update(len(batches))
            if request.satisfied_by(sum(len(labels) for _, labels in batches)):
                break
    rows = request.rows(sum(len(labels) for _, labels in batches))
    images, labels = (take(np.concatenate(arrays), rows) for arrays in zip(*batches, strict=True))
    return request.answer(images, labels, rows, official.classes, part="; ".join(parts) or None, files=files)


def _places(request: Request) -> list[Path]:
    """The data folders, in the order in which they are searched."""
    return [*data_folders(request.data_dir), user_cache_path("berncert")]


def _find(official: Official, split: str, places: Sequence[Path]) -> Found | None:
    for folder in (place / below for place in places for below in (*official.folders, "")):
        for edition in official.editions[split]:
            for home in (folder, folder / edition.folder):
                paths = {file.name: path for file in edition.files if (path := _packed(home, file.name))}
                if len(paths) == len(edition.files):
                    return Found(edition, paths)
            for published in edition.published:
                if published.name.endswith(ARCHIVE) and (folder / published.name).is_file():
                    return Found(edition, {}, folder / published.name)
    return None


def _packed(folder: Path, name: str) -> Path | None:
    """The file, plain or packed, if it is there."""
    candidates = (folder / f"{name}{suffix}" for suffix in ("", *formats.PACKINGS))
    return next((path for path in candidates if path.is_file()), None)


def _fetch(official: Official, request: Request, places: Sequence[Path]) -> Found:
    """The first edition from its home, into data_dir or the cache: the environment variable's folder may be shared."""
    root = request.data_dir or places[-1]
    folder = root / official.folders[0]
    published = official.editions[request.split][0].published
    failure = "download=False forbids to download them"
    if request.download:
        try:
            for name, expected in published:
                urls = [home + name for home in official.homes]
                download(urls, folder / name, expected, progress=request.progress)
        except OSError as error:
            failure = f"they could not be downloaded ({error})"
        else:
            found = _find(official, request.split, [root])
            assert found is not None  # each file is there, or download had raised
            return found
    raise FileNotFoundError(
        f"expected the {request.split} files of {request.name}, {' and '.join(name for name, _ in published)}, in one "
        f"of {', '.join(map(str, places))}; they are in none of them, and {failure}. Put them into {folder}, or into "
        f"{official.folders[0]}/ in a folder that data_dir or the environment variable {DATA_VARIABLE} names; "
        f"they are published at {' and '.join(official.homes)}"
    )


def _contents(found: Found) -> Iterator[list[Content]]:
    """Batch by batch, the content of each file."""
    edition, archive = found.edition, found.archive
    if archive is None:
        for batch in edition.batches:
            yield [_plain(file, found.paths[file.name]) for file in batch]
        return
    with _telling_where(archive):
        members = formats.archived(archive, [f"{edition.folder}/{file.name}" for file in edition.files])
    for batch in edition.batches:
        names = [f"{edition.folder}/{file.name}" for file in batch]
        yield [Content(file, name, archive, members[name]) for file, name in zip(batch, names, strict=True)]


def _plain(file: File, path: Path) -> Content:
    with _telling_where(path):
        return Content(file, path.name, path.parent, formats.unpacked(path))


def _recognised(content: Content, official: Official) -> tuple[str, str | None]:
    """The checksum of a known file, and how it differs from the whole official one, if it does."""
    known = content.file.known
    got = {algorithm: checksum(content.data, algorithm) for algorithm in {name.partition(":")[0] for name in known}}
    for one in got.values():
        if one in known:
            return one, known[one]
    raise ValueError(
        f"{content.place / content.name}: expected content with the checksum {' or '.join(known)}, got "
        f"{' or '.join(got.values())}; the file is altered, cut off or another one: remove it and load again to "
        f"download it, or copy it anew from {' or '.join(official.homes)}"
    )


@contextmanager
def _telling_where(place: Path | str) -> Iterator[None]:
    """Readers know of bytes only; errors should name the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}; remove it and load again to download it, or copy it anew") from error
