"""What is asked for and what comes back: a request, and the rows that answer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from berncert.floor.arrays import Ints

SPLITS = ("train", "test")
ALL = "all"
"""The split that is everything, of data that came without splits."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and their labels, and all that a record needs to name them."""

    name: str
    split: str
    images: Tensor
    """(N, C, H, W), or (N, d) for points; float32 in [0, 1]."""
    labels: Tensor
    """(N,) int64: positions in `classes`."""
    indices: Tensor
    """(N,) int64: each row's place in the whole split, before `skip` and `limit`; with a `division`, in all of it."""
    classes: tuple[str, ...]
    part: str | None = None
    """How this split differs from the whole official one, before `skip` and `limit`; None when it does not."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What was read: file name -> checksum of its unpacked content; empty for what is generated or embedded."""
    division: Mapping[str, Any] | None = None
    """How data that came without splits was divided, as plain JSON; None when it came with them. See `division`."""

    def __len__(self) -> int:
        return len(self.labels)


class Request(NamedTuple):
    """The options of `load`, once they are known to make sense."""

    name: str
    split: str
    data_dir: Path | None = None
    limit: int | None = None
    skip: int = 1
    download: bool = True
    progress: bool | None = None

    def rows(self, count: int) -> range:
        """Which of the split's `count` rows are wanted: every skip-th, the first `limit` of those."""
        return range(0, count, self.skip)[: self.limit]

    def satisfied_by(self, count: int) -> bool:
        """Whether rows after the first `count` cannot be wanted any more."""
        return self.limit is not None and len(self.rows(count)) == self.limit

    def answer(
        self,
        images: npt.NDArray[Any],
        labels: Ints,
        rows: Sequence[int],
        classes: tuple[str, ...],
        *,
        part: str | None = None,
        files: Mapping[str, str] | None = None,
        division: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """The images and labels of the wanted rows; bytes become float32 numbers k/255."""
        scale = np.float32(255 if images.dtype == np.uint8 else 1)
        return Dataset(
            name=self.name,
            split=self.split,
            images=torch.from_numpy(np.divide(images, scale, dtype=np.float32, order="C")),
            labels=torch.from_numpy(labels.astype(np.int64)),
            indices=torch.tensor(list(rows), dtype=torch.int64),
            classes=classes,
            part=part,
            files=files or {},
            division=division,
        )


def take(array: npt.NDArray[Any], rows: range) -> npt.NDArray[Any]:
    """Those rows, without a copy."""
    return array[rows.start : rows.stop : rows.step]


def check_labels(images: int, labels: Ints, classes: int) -> None:
    """One label for each image, each the number of a class."""
    if len(labels) != images:
        raise ValueError(f"expected one label for each image, got {len(labels)} labels and {images} images")
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"expected labels from 0 to {classes - 1}, got {labels[row]} for image {row}")
