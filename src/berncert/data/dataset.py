"""A checked request for images, and the data set that it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from berncert.data.splits import PARTS, Division
from berncert.foundation.arrays import Ints

SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with their labels, and what a record needs to identify them."""

    name: str
    split: str
    images: Tensor
    """(N, C, H, W), or (N, d) for points; float32 in [0, 1]."""
    labels: Tensor
    """(N,) int64: positions in `classes`."""
    indices: Tensor
    """(N,) int64: the position of each image in the whole split, or in the whole data set if there is a `division`."""
    classes: tuple[str, ...]
    part: str | None = None
    """How this split differs from the whole official one, before `skip` and `limit`; None if it does not."""
    files: Mapping[str, str] = field(default_factory=dict)
    """File name -> checksum of its unpacked content; empty for generated or embedded data."""
    division: Mapping[str, Any] | None = None
    """How data without splits was divided, as plain JSON (see `division`); None if it came with splits."""

    def __len__(self) -> int:
        return len(self.labels)


class Request(NamedTuple):
    """The options of `load`, after they were checked."""

    name: str
    split: str
    data_dir: Path | None = None
    limit: int | None = None
    skip: int = 1
    download: bool = True
    progress: bool | None = None

    def rows(self, count: int) -> range:
        """The requested rows of a split of `count` images: every skip-th, and of those the first `limit`."""
        return range(0, count, self.skip)[: self.limit]

    def is_complete(self, count: int) -> bool:
        """Whether the first `count` images of the split contain all requested rows."""
        return self.limit is not None and len(self.rows(count)) == self.limit

    def dataset(
        self,
        images: npt.NDArray[Any],
        labels: Ints,
        rows: Sequence[int],
        classes: tuple[str, ...],
        *,
        part: str | None = None,
        files: Mapping[str, str] | None = None,
        division: Division | None = None,
    ) -> Dataset:
        """The data set with the images and labels of the requested rows; uint8 pixels k become k/255."""
        scale = np.float32(255 if images.dtype == np.uint8 else 1)
        return Dataset(
            name=self.name,
            split=self.split,
            images=torch.from_numpy(np.divide(images, scale, dtype=np.float32, order="C")),
            labels=torch.from_numpy(labels.astype(np.int64)),
            indices=torch.tensor(list(rows), dtype=torch.int64),
            classes=classes,
            part=PARTS[self.split] if division else part,
            files=files or {},
            division=division and division.record,
        )


def take(array: npt.NDArray[Any], rows: Sequence[int]) -> npt.NDArray[Any]:
    """Those rows of an array; a range is not copied."""
    return array[rows.start : rows.stop : rows.step] if isinstance(rows, range) else array[list(rows)]


def check_labels(images: int, labels: Ints, classes: int) -> None:
    """Raise a ValueError unless there is one label for each image, and each is the number of a class."""
    if len(labels) != images:
        raise ValueError(f"expected one label for each image, got {len(labels)} labels and {images} images")
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"expected labels from 0 to {classes - 1}, got {labels[row]} for image {row}")
