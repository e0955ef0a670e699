"""What is proven and what was found, as two different types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from berncert.floor.arrays import Floats, Ints


class Rows:
    """Arrays that share their first axis: sized, iterable and indexable row by row."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def __getitem__(self, rows: Any) -> Self:
        """One row (its fields are then scalars, the points vectors) or a selection of rows."""
        return type(self)(*(getattr(self, f.name)[rows] for f in fields(self)))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        """One row in full; of many how many they are, and what there is to ask them for."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        if np.ndim(values["predicted"]) == 0:
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"
        return f"{type(self).__name__}({self._summary()}; each with {', '.join(values)})"

    def _summary(self) -> str:
        return f"{len(self)} rows"


@dataclass(frozen=True, eq=False, repr=False)
class Certificates(Rows):
    """One proven statement for each input: nothing within `radius` changes the class, `witness` at `upper` does.

    For every row, radius <= true distance to the decision boundary <= upper.
    """

    predicted: Ints
    """The class of the smoothed head."""
    radius: Floats
    """Proven: every point of the cube closer than this keeps the class, in real and in float64 arithmetic."""
    upper: Floats
    """The distance of the witness; inf when there is none."""
    witness: Floats
    """(N, d): a point of the cube that is not given `predicted`; NaN when none is known."""
    rival: Ints
    """A class with a greater logit than `predicted` at the witness; -1 when no witness is known."""
    status: npt.NDArray[np.object_]
    """A `Status` for each row."""
    boxes: Ints
    """How many boxes the proof looked at."""

    def _summary(self) -> str:
        if not len(self):
            return "no rows"
        least, median, greatest = np.quantile(self.radius, [0.0, 0.5, 1.0], method="nearest")
        ends = ", ".join(f"{count} {status.name}" for status, count in Counter(self.status).most_common())
        return f"{len(self)} rows: radius {least:.4g} to {greatest:.4g}, median {median:.4g}; {ends}"


@dataclass(frozen=True, eq=False, repr=False)
class ImageCertificates(Certificates):
    """One proven statement for each image: no image within `radius` changes the class.

    `radius` is (feature_radius - 2 extraction_error) / lipschitz_bound, and a little less for rounding at the other
    image. `witness`, `rival`, `status` and `boxes` tell of the proof in feature space; the witness need not be the
    features of any image, so `upper` is inf.
    """

    features: Floats
    """(N, d): where the extractor put the images."""
    feature_radius: Floats
    """Proven, in feature space, in `feature_norm`."""
    feature_upper: Floats
    """The distance of the witness, in the same norm."""
    feature_norm: Floats
    """The p of the norm that gave this row its largest radius."""
    lipschitz_bound: Floats
    """Of the extractor, from the norm asked for to `feature_norm`."""
    extraction_error: Floats
    """How far, in `feature_norm`, computed features can be from the true ones: what the arithmetic costs."""


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Rows):
    """What the paper's root finder returned. Nothing here is proven: see `berncert.estimate`."""

    predicted: Ints
    """The class of the smoothed head."""
    runner_up: Ints
    """The only rival the paper looks at."""
    distance_estimate: Floats
    """The paper's "certified radius": the distance to the point at which the solver stopped."""
    boundary_point: Floats
    """(N, d): the point at which the solver stopped, projected onto the cube."""
    residual: Floats
    """Half the sum of squares of the boundary's equations at that point before projection; 0 would be a solution."""
    evaluations: Ints
    """How often the solver evaluated the system, finite differences included; an exact Jacobian counts as one."""


@dataclass(frozen=True, eq=False, repr=False)
class ImageEstimate(Estimate):
    """The same of images: `distance_estimate` is feature_distance_estimate / lipschitz_bound, in units of the pixels.

    The bound is proven; the distance that it divides is not, so neither is the quotient.
    """

    feature_distance_estimate: Floats
    """In feature space, in `feature_norm`: how far away the solver stopped."""
    feature_norm: Floats
    """The p of the norm that gave this row its largest estimate."""
    lipschitz_bound: Floats
    """Of the extractor, from the norm asked for to `feature_norm`."""
