"""One model on some test images: its runs in pixels, and what is proven and estimated in its feature space."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

import berncert
from berncert import data
from berncert.certification.methods import Method
from berncert.data import Dataset
from berncert.foundation.arrays import Flags, Floats, Ints
from berncert.models.checkpoint import Checkpoint, open_checkpoint
from berncert.polynomial import SmoothedHead
from berncert.polynomial.points import drawn_points
from berncert.runs.records import Run
from experiments.paper.work import Work, degrees_may_be_low

MAX_SECONDS = 2.0
"""Of the search for one row: a radius that it cuts off is valid, and counted as it is."""
DRAWN = 2000
"""Points of the cube at which an affine function is fitted to a head."""
EXTRACTED = 100
"""Images in one batch of the extractor."""
FULL, TOY = 500, 10
"""Test images of the full size, as in the paper, and of the toy size."""


class InFeatures(NamedTuple):
    """What is proven of each image's features: radius <= true distance to another class <= upper, in l2."""

    predicted: Ints
    radius: Floats
    upper: Floats
    status: list[str]


@dataclass(frozen=True)
class Subject:
    """A model of the plan or a shipped one, and evenly spread test images of its data set."""

    work: Work
    name: str
    small: int = FULL
    """Test images of the small size, evenly spread; fewer where a root search, a third of a second, is for each."""

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model, trained first if it is not yet."""
        return open_checkpoint(self.work.model(self.name) if self.name in self.work.plan else self.name)

    @cached_property
    def skip(self) -> int:
        """Every so many-th test image is taken."""
        return max(1, len(self._whole) // self.limit)

    @property
    def limit(self) -> int:
        """The number of images, at most."""
        return {"small": self.small, "full": FULL, "toy": TOY}[self.work.size]

    @property
    def data_set(self) -> str:
        """The name of the data set that the model was trained on."""
        name = self.checkpoint.trained_on
        assert name is not None
        return name

    @cached_property
    def _whole(self) -> Dataset:
        return data.load(self.data_set, "test", data_dir=self.work.data_dir)

    @cached_property
    def images(self) -> Dataset:
        """The test images."""
        return data.subset(self._whole, np.arange(0, len(self._whole), self.skip)[: self.limit])

    @property
    def labels(self) -> Ints:
        """Their classes."""
        return np.asarray(self.images.labels.numpy(), dtype=np.int64)

    @cached_property
    def features(self) -> Floats:
        """Where the extractor puts them."""
        return self.extracted(self.images)

    def extracted(self, images: Dataset) -> Floats:
        """Where the extractor puts these images."""
        extractor = self.checkpoint.extractor
        assert extractor is not None
        with torch.no_grad():
            parts = torch.split(images.images.double(), EXTRACTED)
            return torch.cat([extractor(part) for part in parts]).numpy()

    @cached_property
    def lipschitz_bound(self) -> float:
        """The proven bound of the extractor, from pixels to features, in l2."""
        extractor = self.checkpoint.extractor
        assert extractor is not None
        return berncert.lipschitz_bound(extractor, tuple(self.images.images.shape[1:]), norm=2)

    @property
    def is_polynomial(self) -> bool:
        """Whether the head was trained as a polynomial, so that the model is one without being smoothed."""
        base = self.checkpoint.base
        return base is not None and base.description["kind"] == "polynomial"

    def head(self, degree: int | None) -> SmoothedHead:
        """The smoothed head; with a degree, the base head smoothed to that degree."""
        with degrees_may_be_low():
            head = self.checkpoint.smoothed(degree).head
        assert isinstance(head, SmoothedHead)
        return head

    @cached_property
    def bend(self) -> float:
        """How far the base head bends."""
        base = self.checkpoint.base
        assert base is not None
        return bend_of(copy.deepcopy(base).double(), self.features.shape[1])

    def run(self, method: Method, degree: int | str | None = None) -> Run:
        """The method's run over the images, with the base head smoothed to this degree, or with the base head."""
        return self.work.run(self.checkpoint, method, degree=degree, skip=self.skip, limit=self.limit)

    def proven(self, degree: int | None = None) -> InFeatures:
        """The certificates of the features in l2: feature space is where the paper's radius is."""

        def make() -> dict[str, Any]:
            found = berncert.certify(self.head(degree), self.features, norm=2, max_seconds=MAX_SECONDS, threads=1)
            numbers = {name: getattr(found, name).tolist() for name in ("predicted", "radius", "upper")}
            return numbers | {"status": [status.name for status in found.status]}

        kept = self._kept(f"proven-degree{degree}", make)
        radius, upper = (np.asarray(kept[name], dtype=np.float64) for name in ("radius", "upper"))
        return InFeatures(np.asarray(kept["predicted"], dtype=np.int64), radius, upper, kept["status"])

    def estimated(self, degree: int | None = None, conservatism: float | None = None) -> Floats:
        """The paper's radius of each image: Levenberg and Marquardt's point on the boundary, in l2."""

        def make() -> dict[str, Any]:
            found = berncert.estimate(self.head(degree), self.features, solver="lm", norm=2, conservatism=conservatism)
            return {"distance_estimate": found.distance_estimate.tolist()}

        kept = self._kept(f"estimated-degree{degree}-c{conservatism}", make)
        return np.asarray(kept["distance_estimate"], dtype=np.float64)

    def _kept(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return self.work.kept(f"{self.name}-{self.checkpoint.sha256[:12]}-{self.limit}-{key}", make)


def bend_of(head: Callable[[torch.Tensor], torch.Tensor], dim: int) -> float:
    """The share of a head's standard deviation over the cube that no affine function explains: 0 to 1."""
    points = drawn_points(DRAWN, dim)
    with torch.no_grad():
        outputs = head(points).double()
    columns = torch.cat([points, torch.ones(DRAWN, 1, dtype=torch.float64)], dim=1)
    left = outputs - columns @ torch.linalg.lstsq(columns, outputs).solution
    return float(left.std() / outputs.std())


def accuracy_at(correct: Flags, radius: Floats, radii: Floats) -> list[float]:
    """The share of images that are correct and hold at each of these radii."""
    shares: list[float] = (correct & (radius >= radii[:, None])).mean(axis=1).tolist()
    return shares
