"""What comes out of a method, row by row. What is proven, what is probable and what was found are different types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from berncert.certification.status import Status, constant_class
from berncert.foundation.arrays import Flags, Floats, Ints

ABSTAIN = -1


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
        """One row is shown in full; of many rows a summary is, and the names of their fields."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        if np.ndim(values["predicted"]) == 0:
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"
        summary = self._summary() if len(self) else "no rows"
        return f"{type(self).__name__}({summary}; each with {', '.join(values)})"

    def _summary(self) -> str:
        return f"{len(self)} rows"

    @classmethod
    def concatenate(cls, parts: Iterable[Self]) -> Self:
        """The rows of all parts, one part after the other."""
        parts = list(parts)
        if not parts or {type(part) for part in parts} != {cls}:
            kinds = ", ".join(sorted({type(part).__name__ for part in parts})) or "nothing"
            raise TypeError(f"expected a list of {cls.__name__} to concatenate, got {kinds}")
        columns = ([getattr(part, f.name) for part in parts] for f in fields(cls))  # type: ignore[arg-type]
        return cls(*(type(c[0]).concatenate(c) if isinstance(c[0], Rows) else np.concatenate(c) for c in columns))

    def to_pandas(self) -> Any:
        """A table with a column for each field, those of `in_features` too; points are arrays in their cells."""
        try:
            from pandas import DataFrame  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError("expected pandas to be installed, got none; pip install pandas") from error
        return DataFrame(self.as_columns())

    def as_columns(self) -> dict[str, Any]:
        """Field -> its values, those of `in_features` too; of points a list of arrays."""
        found: dict[str, Any] = {}
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if isinstance(value, Rows):
                found |= {f"{f.name}.{name}": column for name, column in value.as_columns().items()}
            else:
                found[f.name] = value if value.ndim == 1 else list(value)
        return found


def certified_accuracy(predicted: Ints, radius: Floats, labels: Any, radii: Any) -> Any:
    """The share of rows that are given their label and hold at each of the radii; a number for a single radius."""
    wanted, at = np.asarray(labels), np.asarray(radii, dtype=np.float64)
    if wanted.shape != predicted.shape or wanted.dtype.kind not in "iu":
        raise ValueError(
            f"expected {len(predicted)} labels that are whole numbers, got shape {wanted.shape}, {wanted.dtype}"
        )
    if not len(predicted) or not (at >= 0).all():
        raise ValueError(f"expected at least one row and radii >= 0, got {len(predicted)} rows and radii {radii}")
    shares = ((predicted == wanted) & (radius >= at[..., None])).mean(axis=-1)
    return float(shares) if at.ndim == 0 else shares


def _quantiles(radius: Floats) -> str:
    least, median, greatest = np.quantile(radius, [0.0, 0.5, 1.0], method="nearest")
    return f"{least:.4g} to {greatest:.4g}, median {median:.4g}"


class ProvenRows(Rows):
    """Rows with a proven radius and a `Status`."""

    predicted: Ints
    radius: Floats
    status: npt.NDArray[np.object_]

    def certified_accuracy(self, labels: Any, radii: Any) -> Any:
        """The share of inputs that are given their label and hold at each of the radii."""
        return certified_accuracy(self.predicted, self.radius, labels, radii)

    def _summary(self) -> str:
        ends = ", ".join(f"{count} {status.name}" for status, count in Counter(self.status).most_common())
        constant = constant_class(self.predicted.tolist(), self.radius.tolist())
        if constant is not None:
            where = "the classifier is constant where it was certified"
            return f"{len(self)} rows: every radius is inf, as {where}, class {constant}; {ends}"
        return f"{len(self)} rows: radius {_quantiles(self.radius)}; {ends}"


@dataclass(frozen=True, eq=False, repr=False)
class Certificates(ProvenRows):
    """One proven statement for each input: nothing within `radius` changes the class, `witness` at `upper` does.

    For every row, radius <= true distance to the decision boundary <= upper.

    Example:
        >>> import torch, berncert
        >>> head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [0.5, 0.5]]).double())  # logits x and 0.5
        >>> c = berncert.certify(head, [[0.2], [0.9]])
        >>> bool((c.radius <= [0.3, 0.4]).all()), bool((c.upper >= [0.3, 0.4]).all())
        (True, True)
        >>> c.certified_accuracy([1, 0], [0.1, 0.35])  # both rows are of the correct class
        array([1. , 0.5])
        >>> c[1].witness.round(3)  # of class 1
        array([0.5])
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


@dataclass(frozen=True, eq=False, repr=False)
class ImageCertificates(ProvenRows):
    """One proven statement for each image: no image within `radius` changes the class.

    By the global route, `radius` is (feature_radius - 2 extraction_error) / lipschitz_bound, and a little less for
    rounding at the other image. By the local one it comes from bounds on the features that hold near this image only;
    the fields about features are those of the global route all the same. The witness of `in_features` need not be the
    features of any image: the `witness` here is an image, where one was looked for and found.

    Example:
        >>> import berncert
        >>> test = berncert.data.load("digits", limit=5)
        >>> c = berncert.certify(berncert.load("digits"), test.images)
        >>> bool((c.radius <= c.feature_radius / c.lipschitz_bound).all()), c.features.shape
        (True, (5, 6))
        >>> c.certified_accuracy(test.labels, [0, 0.3]).tolist()
        [1.0, 0.8]
    """

    predicted: Ints
    """The class of the smoothed classifier."""
    radius: Floats
    """Proven, in the units of the pixels."""
    status: npt.NDArray[np.object_]
    """A `Status` for each row."""
    features: Floats
    """(N, d): where the extractor put the images."""
    feature_radius: Floats
    """How far features may move: the radius of `in_features`, or less where they would leave the cube."""
    feature_norm: Floats
    """The p of the norm of the features that gave this row its largest radius; that of `in_features`."""
    lipschitz_bound: Floats
    """The extractor's bound, from the norm asked for to `feature_norm`."""
    extraction_error: Floats
    """How far, in `feature_norm`, computed features can be from the true ones: what the arithmetic costs."""
    in_features: Certificates
    """The proof in feature space, with its witness."""
    route: npt.NDArray[np.object_]
    """"global" or "local": by which bounds on the extractor `radius` is proven."""
    upper: Floats
    """The distance of the witness: radius <= truth <= upper; inf where none is known. Such images are looked for with
    `counterexamples=True`, and where a decision at one radius is asked for (`berncert.verify`)."""
    witness: Floats
    """(N, ...): an image that is not given `predicted` in float64, NaN where none is known. Its pixels may leave their
    range: the radius is about all images."""

    def _summary(self) -> str:
        known = self.upper[np.isfinite(self.upper)]
        if len(known):
            return f"{super()._summary()}; upper {_quantiles(known)}, of {len(known)} rows"
        asked = set(self.status) & {Status.HOLDS, Status.FALLS, Status.UNKNOWN}
        return f"{super()._summary()}{'' if asked else '; upper not known: counterexamples=True looks for it'}"


@dataclass(frozen=True, eq=False, repr=False)
class RandomizedCertificates(Rows):
    """One statement for each image that is true with probability `confidence`, each by itself: see `randomized`.

    Of N images, all statements together are true with probability 1 - N alpha at least, not 1 - alpha.

    Example:
        >>> import berncert
        >>> test = berncert.data.load("digits", limit=2)
        >>> c = berncert.Randomized(sigma=0.25, n=1000).certify(berncert.load("digits"), test.images)
        >>> c.confidence, c.counts.sum(axis=1), c.abstained
        (array([0.999, 0.999]), array([1000, 1000]), array([False, False]))
    """

    predicted: Ints
    """The class of the smoothed classifier; -1 where it abstained."""
    probable_radius: Floats
    """With probability `confidence`, no image closer than this in l2 changes the class; 0 where it abstained."""
    candidate: Ints
    """The class that came first among the n0 votes, whether or not the n votes then confirmed it."""
    probability_limit: Floats
    """With probability `confidence`, the candidate comes up at least so often under noise."""
    counts: Ints
    """(N, K): how many of the n votes each class got."""
    confidence: Floats
    """1 - alpha."""
    sigma: Floats
    """Of the noise: it makes the smoothed classifier what it is."""

    @property
    def abstained(self) -> Flags:
        """Where the votes do not decide on a class."""
        return np.asarray(self.predicted == ABSTAIN)

    @property
    def status(self) -> npt.NDArray[np.str_]:
        """PROBABLE or ABSTAINED."""
        return np.where(self.abstained, "ABSTAINED", "PROBABLE")

    def certified_accuracy(self, labels: Any, radii: Any) -> Any:
        """The share of images that are given their label and probably hold at each of the radii."""
        return certified_accuracy(self.predicted, self.probable_radius, labels, radii)

    def _summary(self) -> str:
        return (
            f"{len(self)} rows: probable radius {_quantiles(self.probable_radius)}, each with confidence "
            f"{self.confidence[0]:.6g}; {self.abstained.sum()} abstained"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(Rows):
    """What the paper's root finder returned. Nothing here is proven: see `berncert.estimate`.

    Example:
        >>> import torch, berncert
        >>> head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [0.5, 0.5]]).double())  # logits x and 0.5
        >>> e = berncert.estimate(head, [[0.2]])
        >>> e.distance_estimate.round(3), e.runner_up, e.residual.round(3)
        (array([0.3]), array([0]), array([0.]))
    """

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
class ImageEstimates(Rows):
    """The estimates of images: `distance_estimate` is the features' divided by lipschitz_bound, in units of the pixels.

    The bound is proven; the distance that it divides is not, so neither is the quotient.

    Example:
        >>> import berncert
        >>> test = berncert.data.load("digits", limit=1)
        >>> e = berncert.estimate(berncert.load("digits"), test.images)
        >>> bool(e.distance_estimate[0] == e.feature_distance_estimate[0] / e.lipschitz_bound[0])
        True
    """

    predicted: Ints
    """The class of the smoothed classifier."""
    distance_estimate: Floats
    """The paper's "certified radius", in the units of the pixels."""
    feature_distance_estimate: Floats
    """How far away the solver stopped, in `feature_norm`."""
    feature_norm: Floats
    """The p of the norm that gave this row its largest estimate."""
    lipschitz_bound: Floats
    """The extractor's bound, from the norm asked for to `feature_norm`."""
    in_features: Estimates
    """What the solver returned in feature space."""

    @property
    def status(self) -> npt.NDArray[np.str_]:
        """ESTIMATE, in every row."""
        return np.full(len(self), "ESTIMATE")


@dataclass(frozen=True, eq=False, repr=False)
class AttackResults(Rows):
    """What an attack found: no certificate can go beyond it.

    Example:
        >>> import berncert
        >>> test = berncert.data.load("digits", limit=2)
        >>> attack = berncert.Pgd(radii=(1e-3, 3.0)).prepare(berncert.load("digits"), test.images.shape[1:])
        >>> attack(berncert.Batch(test.images, test.labels, test.indices.tolist())).fallen_at
        array([3., 3.])
    """

    predicted: Ints
    """The class of the image itself."""
    fallen_at: Floats
    """The least of the radii at which the image fell: 0 if its class is wrong as it is, inf if it stands."""

    @property
    def status(self) -> npt.NDArray[np.str_]:
        """WRONG, BROKEN or STANDS."""
        return np.select([self.fallen_at == 0, self.fallen_at == np.inf], ["WRONG", "STANDS"], "BROKEN")
