"""`verify`: whether images keep their class within a radius: proven, refuted by an image, or neither."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from berncert.certification.classifier import Classifier
from berncert.certification.exact import certify
from berncert.certification.methods import Exact
from berncert.certification.results import ImageCertificates, Rows
from berncert.certification.status import Status
from berncert.foundation.arrays import Flags, Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class Verdicts(Rows):
    """For each image: HOLDS, FALLS with the image that does it, or UNKNOWN.

    Example:
        >>> import berncert
        >>> test = berncert.data.load("digits", limit=2)
        >>> verdicts = berncert.verify(berncert.load("digits"), test.images, radius=3)
        >>> verdicts.falls.tolist(), verdicts.witness.shape
        ([True, True], (2, 1, 8, 8))
    """

    predicted: Ints
    """The class of the model."""
    status: npt.NDArray[np.object_]
    """`Status.HOLDS`, `Status.FALLS` or `Status.UNKNOWN`."""
    witness: Floats
    """(N, ...): of those that fall, an image within the radius that is not given `predicted` in float64; else NaN."""
    certificates: ImageCertificates
    """What was proven, and by which route."""

    @property
    def holds(self) -> Flags:
        """Where the class is proven within the radius."""
        return np.asarray(self.status == Status.HOLDS)

    @property
    def falls(self) -> Flags:
        """Where an image within the radius is given another class."""
        return np.asarray(self.status == Status.FALLS)

    def _summary(self) -> str:
        return ", ".join(f"{count} {status.name}" for status, count in Counter(self.status).most_common())


def verify(
    model: Classifier, images: Any, radius: float, norm: float = Exact.norm, *, threads: int | None = None,
    progress: bool | None = None, batch_size: int = Exact.batch_size,
) -> Verdicts:  # fmt: skip
    """Decide for each image whether any closer than `radius` is given another class; both routes, then an attack.

    It is `certify` with `radius=`, for images, with the answer in front. HOLDS is a proof, FALLS comes with the image,
    evaluated in float64 as the model is; UNKNOWN is neither.

    Example:
        >>> import berncert
        >>> test = berncert.data.load("digits", limit=3)
        >>> verdicts = berncert.verify(berncert.load("digits"), test.images, radius=0.1)
        >>> [status.name for status in verdicts.status]
        ['HOLDS', 'HOLDS', 'HOLDS']
        >>> berncert.verify(berncert.load("digits"), test.images, radius=3).falls.tolist()
        [True, True, True]
    """
    found = certify(
        model, images, norm=norm, radius=radius, threads=threads, progress=progress, batch_size=batch_size
    )  # fmt: skip
    return Verdicts(found.predicted, found.status, found.witness, found)
