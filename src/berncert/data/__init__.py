"""Data sets: generated, embedded, official or a user's own; `load` gives float32 images in [0, 1] and int64 labels."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from berncert.data import official, user_files
from berncert.data.dataset import ALL, SPLITS, Dataset, Request, take
from berncert.data.registry import DIGITS, OFFICIAL
from berncert.floor.arrays import Ints
from berncert.floor.reading import given_folder
from berncert.polynomial.grid import positive_int

__all__ = ["ALL", "DATASETS", "SPLITS", "Dataset", "load", "moons"]

MOONS_POINTS, MOONS_NOISE, MOONS_SEEDS = 1000, 0.15, {"train": 0, "test": 1}
DIGITS_TEST_EVERY = 5


def load(
    name: str | PathLike[str],
    split: str = "test",
    *,
    data_dir: str | PathLike[str] | None = None,
    limit: int | None = None,
    skip: int = 1,
    download: bool = True,
    progress: bool | None = None,
) -> Dataset:
    """The data set of that name (one of `DATASETS`), or a folder of images or an .npz file at that path.

    Of the split's images every skip-th is taken, of those the first `limit`; `indices` keeps their places. Certified
    accuracies on CIFAR-10 are mostly told of skip=20.

    Official files are looked for in data_dir, in the folder that the environment variable BERNCERT_DATA names, and in
    the user's cache: there in a subfolder of the data set's name (`mnist/`), or directly. Failing that they are
    downloaded, into data_dir or the cache. Files of unknown content are refused.

    A folder has a subfolder of PNG or JPEG images for each class, or such folders in `train/` and `test/`; for .npz
    files see `user_files.read_npz`. What comes without splits is divided: one in five images of each class is for
    testing, the same on every machine, and `division` records which; the split "all" is all of them. More than
    2 GiB unpacked is refused; the environment variable BERNCERT_MAX_GIB changes that.
    """
    if not isinstance(name, (str, PathLike)):
        raise TypeError(f"expected a data set's name or a path, got {name!r}")
    request = Request(
        str(name),
        split,
        next(iter(given_folder(data_dir)), None),
        None if limit is None else positive_int("limit", limit),
        positive_int("skip", skip),
        download,
        progress,
    )
    if name in DATASETS:
        if split not in SPLITS:
            hint = "; only data without splits is taken whole" if split == ALL else ""
            raise ValueError(f"expected split to be {' or '.join(map(repr, SPLITS))}, got {split!r}{hint}")
        return DATASETS[request.name](request)
    path = Path(name).expanduser()
    if path.is_dir() or (path.suffix == ".npz" and path.is_file()):
        return user_files.read(path, request)
    raise ValueError(
        f"expected one of {', '.join(DATASETS)}, or the path of a folder of images or of an .npz file, "
        f"got {request.name!r}, which is none of them"
    )


def moons(
    count: int, generator: np.random.Generator, *, noise: float = MOONS_NOISE
) -> tuple[npt.NDArray[np.float64], Ints]:
    """Points of [0,1]^2 on two interleaved half circles, with Gaussian noise, and the class of each.

    Those that the noise throws out of the square are drawn again, so that nothing piles up on its edges.
    """
    labels = np.arange(3 * count) % 2
    angle = generator.uniform(0, np.pi, len(labels))
    upper = np.column_stack([np.cos(angle), np.sin(angle)])
    lower = [1.0, 0.5] - upper
    points = np.where(labels[:, None] == 0, upper, lower) + generator.normal(0, noise, upper.shape)
    points = (points - [-1.45, -1.0]) / [3.9, 2.5]
    inside = ((points > 0.02) & (points < 0.98)).all(axis=1)
    return points[inside][:count], labels[inside][:count]


def _read_moons(request: Request) -> Dataset:
    """1000 points for each split, always the same."""
    points, labels = moons(MOONS_POINTS, np.random.default_rng(MOONS_SEEDS[request.split]))
    rows = request.rows(len(points))
    return request.answer(take(points, rows), take(labels, rows), rows, ("upper", "lower"))


def _read_digits(request: Request) -> Dataset:
    """scikit-learn's 1797 images of 8 x 8; of each class every fifth is for testing."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # slow to import, needed here only

    images, labels = load_digits(return_X_y=True)
    rank = np.array([np.count_nonzero(labels[:row] == label) for row, label in enumerate(labels)])
    members = (rank % DIGITS_TEST_EVERY == DIGITS_TEST_EVERY - 1) == (request.split == "test")
    images, labels = images[members].reshape(-1, 1, 8, 8) / 16, labels[members]
    rows = request.rows(len(images))
    return request.answer(take(images, rows), take(labels, rows), rows, DIGITS)


DATASETS: dict[str, Callable[[Request], Dataset]] = {
    "moons": _read_moons,
    "digits": _read_digits,
    **dict.fromkeys(OFFICIAL, official.read),
}
"""Name -> how it is read."""
