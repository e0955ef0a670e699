"""Data sets: generated, embedded, official, or your own images.

Example:
    >>> import berncert
    >>> test = berncert.data.load("digits", split="test", limit=100)
    >>> test.images.shape, test.labels[:3].tolist(), test.classes[:3]
    (torch.Size([100, 1, 8, 8]), [5, 0, 9], ('0', '1', '2'))
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

import numpy as np

from berncert.data import official, user_files
from berncert.data.dataset import SPLITS, Dataset, Request, take
from berncert.data.holdout import HOLDOUT, hold_out, subset
from berncert.data.registry import DIGITS, OFFICIAL
from berncert.data.splits import ALL
from berncert.foundation.arguments import checked_count, guess
from berncert.foundation.arrays import Floats, Ints
from berncert.foundation.safe_reading import given_folder

__all__ = ["ALL", "DATASETS", "HOLDOUT", "SPLITS", "Dataset", "hold_out", "load", "moons", "subset"]

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
    """Load a data set by its name, or your own images by the path of a folder or an .npz file.

        test = berncert.data.load("digits")             # or "moons", "mnist", "fashion_mnist", "svhn", "cifar10", ...
        test.images, test.labels, test.classes          # two tensors with one row for each image, and the class names
        train = berncert.data.load("digits", split="train")

    Images are float32 numbers in [0, 1], of shape (N, channels, height, width): a whole-number (uint8) pixel k of a
    file becomes k/255. `skip=20` takes only every 20th image, as is usual for certified accuracies on CIFAR-10, and
    `limit` only the first so many of those; `indices` holds their positions in the whole split. split="holdout" are
    the training images that a training with `holdout` sets aside, one in ten of each class, always the same.

    "moons" and "digits" need no files. The files of the others are searched for in `data_dir`, in the folder that the
    environment variable BERNCERT_DATA names, and in the user's cache: there in a subfolder with the name of the data
    set (`mnist/`), or directly. If they are in none of these, they are downloaded into `data_dir` or the cache, unless
    `download=False`. Files whose checksum is unknown are refused.

    A folder of your own has one subfolder of PNG or JPEG images for each class, or has such subfolders in `train/` and
    `test/`; an .npz file has arrays x and y, or x_train, y_train, x_test and y_test (`user_files.read_npz` lists more
    names). Data without splits is divided: one in five images of each class is for testing, the same ones on every
    machine, and `division` records which; split="all" gives all images. Data of more than 2 GiB when unpacked is
    refused; the environment variable BERNCERT_MAX_GIB changes that limit.
    """
    if not isinstance(name, (str, PathLike)):
        raise TypeError(f"expected a data set's name or a path, got {name!r}")
    if split == HOLDOUT:
        training = load(name, "train", data_dir=data_dir, download=download, progress=progress)
        _, held = hold_out(training)
        rows = np.arange(0, len(held), checked_count("skip", skip))
        return subset(held, rows[: None if limit is None else checked_count("limit", limit)])
    request = Request(
        str(name),
        split,
        next(iter(given_folder(data_dir)), None),
        None if limit is None else checked_count("limit", limit),
        checked_count("skip", skip),
        download,
        progress,
    )
    if name in DATASETS:
        if split not in SPLITS:
            hint = "; only data without splits can be loaded whole" if split == ALL else ""
            raise ValueError(f"expected split to be {', '.join(map(repr, SPLITS))} or {HOLDOUT!r}, got {split!r}{hint}")
        return DATASETS[request.name](request)
    path = Path(name).expanduser()
    if path.is_dir():
        return user_files.read_folder(path, request)
    if path.suffix == ".npz" and path.is_file():
        return user_files.read_npz(path, request)
    raise ValueError(
        f"expected one of {', '.join(DATASETS)}, or the path of a folder of images or of an .npz file, "
        f"got {request.name!r}, which is none of them{guess(name, DATASETS) if isinstance(name, str) else ''}"
    )


def moons(count: int, generator: np.random.Generator, *, noise: float = MOONS_NOISE) -> tuple[Floats, Ints]:
    """Random points of [0,1]^2 on two interleaved half circles, with Gaussian noise, and the class of each point.

    Points that the noise moves out of the square are drawn again, so that none pile up on its edges.
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
    return request.dataset(take(points, rows), take(labels, rows), rows, ("upper", "lower"))


def _read_digits(request: Request) -> Dataset:
    """The 1797 images of 8 x 8 pixels that scikit-learn contains; every fifth of each class is for testing."""
    from sklearn.datasets import load_digits  # slow to import, needed only for this

    images, labels = load_digits(return_X_y=True)
    rank = np.array([np.count_nonzero(labels[:row] == label) for row, label in enumerate(labels)])
    members = (rank % DIGITS_TEST_EVERY == DIGITS_TEST_EVERY - 1) == (request.split == "test")
    images, labels = images[members].reshape(-1, 1, 8, 8) / 16, labels[members]
    rows = request.rows(len(images))
    return request.dataset(take(images, rows), take(labels, rows), rows, DIGITS)


DATASETS: dict[str, Callable[[Request], Dataset]] = {
    "moons": _read_moons,
    "digits": _read_digits,
    **dict.fromkeys(OFFICIAL, official.read),
}
"""The name of each data set -> the function that reads it."""
