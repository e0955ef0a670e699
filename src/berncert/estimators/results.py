"""What is proven about rows of a table, in the user's labels, columns and units."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from berncert.certification.results import Rows
from berncert.certification.status import constant_class
from berncert.foundation.arrays import Flags, Floats, Ints


def _take(value: Any, rows: Any) -> Any:
    """Rows of an array or a data frame."""
    if hasattr(value, "iloc"):
        return value.iloc[rows]
    return value[rows]


@dataclass(frozen=True, eq=False, repr=False)
class TableCertificates(Rows):
    """One proven statement for each row: no admissible row closer than `radius` changes the class.

    Distances are norms of differences divided by the model's `scale_`. It holds for the smoothed model as computed in
    float64 (`predict`), for all rows: inside the domain, and outside, where the model is constant.
    """

    predicted: npt.NDArray[Any]
    """The label that the smoothed model gives."""
    radius: Floats
    """Proven: every admissible row closer than this is given `predicted`."""
    upper: Floats
    """The distance of the counterfactual, rounded up; inf when there is none."""
    counterfactual: Any
    """(N, columns), an array or a data frame as the rows were: an admissible row that is not given `predicted`."""
    rival: npt.NDArray[Any]
    """The label of the counterfactual; None where there is none."""
    flips_base: Flags
    """Whether the base model, too, gives the counterfactual another label than the row."""
    status: npt.NDArray[np.object_]
    """A `Status` for each row."""
    boxes: Ints
    """How many boxes the proof looked at."""

    def __getitem__(self, rows: Any) -> TableCertificates:
        return TableCertificates(*(_take(getattr(self, name), rows) for name in self.__dataclass_fields__))

    def __repr__(self) -> str:
        if np.ndim(self.radius) == 0:
            return f"TableCertificates({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__dataclass_fields__)})"
        ends = ", ".join(f"{number} {status.name}" for status, number in Counter(self.status).most_common())
        if (label := constant_class(self.predicted.tolist(), self.radius.tolist())) is not None:
            ends = f"every radius is inf, as the classifier is constant where it was certified, {label!r}; {ends}"
        return f"TableCertificates({len(self)} rows: {ends}; each with {', '.join(self.__dataclass_fields__)})"

    def certified_accuracy(self, labels: Any, radii: Any) -> Any:
        """The share of rows that are given their label and hold at each of the radii."""
        wanted, at = np.asarray(labels), np.asarray(radii, dtype=np.float64)
        if wanted.shape != self.predicted.shape or not len(wanted):
            raise ValueError(f"expected {len(self)} labels, got shape {wanted.shape}")
        shares = ((self.predicted == wanted) & (self.radius >= at[..., None])).mean(axis=-1)
        return float(shares) if at.ndim == 0 else shares


@dataclass(frozen=True, eq=False, repr=False)
class Counterfactuals(Rows):
    """The nearest admissible row that is given the wanted label, for each row."""

    wanted: npt.NDArray[Any]
    radius: Floats
    """Proven: no admissible row closer than this is given the wanted label."""
    upper: Floats
    """The distance of the counterfactual, rounded up; inf when there is none."""
    counterfactual: Any
    """(N, columns): an admissible row that is given the wanted label; NaN when none is known."""
    flips_base: Flags
    """Whether the base model, too, gives the counterfactual the wanted label."""
    status: npt.NDArray[np.object_]
    """PROVEN: the counterfactual is within the tolerance of the nearest. WHOLE_CUBE: there is none, proven."""
    boxes: Ints

    def __getitem__(self, rows: Any) -> Counterfactuals:
        return Counterfactuals(*(_take(getattr(self, name), rows) for name in self.__dataclass_fields__))

    def __repr__(self) -> str:
        ends = ", ".join(f"{number} {status.name}" for status, number in Counter(np.atleast_1d(self.status)).items())
        return f"Counterfactuals({ends}; each with {', '.join(self.__dataclass_fields__)})"
