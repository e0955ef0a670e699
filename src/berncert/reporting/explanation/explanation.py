"""One image explained: its class, the radius that is proven, the distances of its rivals, the nearest attack."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from os import PathLike
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from berncert import data
from berncert.certification.classifier import Classifier
from berncert.certification.exact import ImageProver, certify
from berncert.certification.inputs import checked_images
from berncert.certification.methods import Exact
from berncert.certification.results import ImageCertificates
from berncert.certification.status import Status
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.foundation.arguments import checked_index, dual_norm
from berncert.foundation.arrays import Floats
from berncert.polynomial import PolynomialHead
from berncert.reporting.explanation.counterexample import Counterexample, nearest_counterexample
from berncert.runs.execute import check_fits
from berncert.runs.settings import RunSettings

MOST_RIVALS = 9  # whose distances are proven one by one: those that look nearest
MOST_RIVAL_BOXES = 10_000  # for each of them, as far rivals take long and matter little
CLOSE = 1e-9  # relative: more than rounding does to a distance


@dataclass(frozen=True, eq=False)
class Rival:
    """Another class, and where it overtakes the predicted one, whatever the other classes do."""

    number: int
    margin: float
    """How much less its logit is than that of the predicted class."""
    radius: float
    """Proven: no image closer than this, in the pixels' norm, gives it a greater logit."""
    feature_radius: float
    """Proven: no point of the cube closer than this, in the certificate's feature norm, does."""
    feature_upper: float
    """The distance of its witness; inf when it has none."""
    witness: Floats
    """A point of the cube at which it is ahead; NaN when none is known."""
    status: Status


@dataclass(frozen=True, eq=False)
class Sample:
    """One image of a data set."""

    name: str
    split: str
    index: int
    image: Tensor
    label: int
    classes: tuple[str, ...]

    @property
    def kind(self) -> str:
        """What the sample is called in messages."""
        return "image" if self.image.ndim == 3 else "point"


@dataclass(frozen=True, eq=False)
class Explanation:
    """The certificate of one image, its rivals, and the nearest image of another class that was found."""

    sample: Sample
    settings: Exact
    model: Classifier
    """The model as it was certified: frozen, in float64."""
    certificate: ImageCertificates
    """One row: by the route that proves more."""
    by_bound: ImageCertificates
    """The same row by the global route alone, which divides by the extractor's Lipschitz bound."""
    reached: tuple[Floats, Floats] | None
    """Between which limits each feature of all images within the radius lies, where the local route proves more."""
    logits: Floats
    rivals: tuple[Rival, ...]
    """The nearest first."""
    found: Counterexample | None
    seconds: float
    """The time that the certificate took."""

    @property
    def predicted(self) -> int:
        """The class that the model predicts."""
        return int(self.certificate.predicted)

    @property
    def status(self) -> Status:
        """How the certificate came to its end."""
        return cast(Status, self.certificate.status)

    @property
    def correct(self) -> bool:
        """Whether the predicted class is the label."""
        return self.predicted == self.sample.label

    @property
    def is_local(self) -> bool:
        """Whether the radius is proven by bounds near this image, not by the Lipschitz bound."""
        return str(self.certificate.route) == "local"

    @property
    def holds_in_cube(self) -> bool:
        """Whether it is proven that no other class leads anywhere in the cube."""
        all_tried = len(self.rivals) == len(self.logits) - 1
        return all_tried and all(rival.feature_radius == math.inf for rival in self.rivals)

    @property
    def probabilities(self) -> Floats:
        """The softmax of the logits."""
        return torch.from_numpy(self.logits).softmax(dim=0).numpy()

    def name(self, number: int) -> str:
        """The name of a class; its number if the data does not name it."""
        return self.sample.classes[number] if number < len(self.sample.classes) else str(number)

    def as_json(self) -> dict[str, Any]:
        """All of it in full precision."""
        c, sample, found = self.certificate, self.sample, self.found
        in_pixels = ("radius", "features", "feature_radius", "lipschitz_bound", "extraction_error")
        in_features = {"rival": "rival", "boxes": "boxes", "witness": "witness", "feature_upper": "upper"}
        return {
            "data": {"name": sample.name, "split": sample.split, "index": sample.index, "classes": sample.classes},
            "norm": self.settings.norm,
            "degree": self.head.degree,
            "tolerance": self.settings.tolerance,
            "max_boxes": self.settings.max_boxes,
            "label": sample.label,
            "predicted": self.predicted,
            "correct": self.correct,
            "status": self.status.name,
            "status_means": str(self.status),
            "route": str(c.route),
            "radius_by_bound": float(self.by_bound.radius),
            "reached": self.reached and dict(zip(("lower", "upper"), self.reached, strict=True)),
            **{name: getattr(c, name).tolist() for name in in_pixels},
            **{name: getattr(c.in_features, field).tolist() for name, field in in_features.items()},
            "feature_norm": float(c.feature_norm),
            "seconds": self.seconds,
            "logits": self.logits,
            "probabilities": self.probabilities,
            "rivals": [vars(rival) | {"status": rival.status.name} for rival in self.rivals],
            "found": found and {"distance": found.distance, "predicted": found.predicted, "image": found.image},
        }

    @property
    def head(self) -> PolynomialHead:
        """The smoothed head."""
        assert isinstance(self.model.head, PolynomialHead)
        return self.model.head


def explain(
    model: Classifier, sample: Sample, settings: Exact, *, attack: bool = True, progress: bool | None = None
) -> Explanation:
    """Certify the image, look at its rivals one by one, and attack it.

    The certificate is checked on the way: the witness has another class and the stated distance, and no attack comes
    closer than the radius. A failure of that is an error of this package, not of the user.
    """
    check_fits(model, sample.name, sample.image.shape, sample.classes)
    began = time.perf_counter()
    prove = ImageProver(settings, model, sample.image.shape, progress=progress)
    images = checked_images(sample.image[None])
    both = [prove.by_global(images)]
    both += [prove.by_local(images, both[0])] if settings.routes == "both" else []
    (by_bound,), (c,) = both[0], both[-1]
    seconds = time.perf_counter() - began
    assert isinstance(prove.head, PolynomialHead)
    head = prove.head.in_float64()
    frozen = Classifier(prove.extractor, head).eval()
    _check_witness(head, c)
    with torch.no_grad():
        logits = head(torch.from_numpy(c.features)[None])[0].numpy()
    found = None
    if attack and cast(Status, c.status) is not Status.WHOLE_CUBE:
        found = nearest_counterexample(
            frozen, sample.image, int(c.predicted), norm=settings.norm, least=float(c.radius), progress=progress
        )
        if found is not None and found.distance < c.radius * (1 - CLOSE):
            raise RuntimeError(
                f"an image of another class was found at {found.distance!r}, within the proven radius {c.radius!r}: "
                "this must not happen; please report it"
            )
    rivals = rivals_of(
        head, by_bound, settings, room=room_in_cube(prove.value, c), least=float(c.radius), progress=progress
    )
    reached = _reached(prove, images, float(c.radius)) if c.route == "local" else None
    return Explanation(sample, settings, frozen, c, by_bound, reached, logits, rivals, found, seconds)


def _reached(prove: ImageProver, images: Tensor, radius: float) -> tuple[Floats, Floats]:
    """Between which limits each feature of all images within the radius lies: proven by the local route's bounds."""
    limits = prove.local.reach.around(images, torch.tensor([radius])).features.interval
    return limits.lower[0].numpy(), limits.upper[0].numpy()


def read_sample(settings: RunSettings, index: int, *, data_dir: str | PathLike[str] | None = None) -> Sample:
    """The image with that number, which runs over the split have in their column idx."""
    assert settings.data is not None
    name, split = settings.data, settings.split
    images = data.load(name, split, data_dir=data_dir, limit=checked_index("index", index) + 1)
    places = (images.indices == index).nonzero().flatten().tolist()
    if places:
        row = places[0]
        return Sample(images.name, split, index, images.images[row], int(images.labels[row]), images.classes)
    if split == data.HOLDOUT:
        raise ValueError(
            f"expected the index of a {split} image of {name}, got {index}, which is none; indices count in the "
            "training images: take it with split='train'"
        )
    if images.division and index < images.division["images"]:
        raise ValueError(
            f"expected the index of a {split} image of {name}, got {index}, which is of another "
            f"split; take it with split={data.ALL!r}"
        )
    count, what = (images.division["images"], "") if images.division else (len(images), f"{split} ")
    raise ValueError(f"expected an index from 0 to {count - 1}, as {name} has {count:,} {what}images, got {index}")


def room_in_cube(value: ValueBound, c: ImageCertificates) -> float:
    """How far the features of other images can be from these, in any norm, while they are proven to be in the cube."""
    low, high = value.limits
    return math.inf if low >= 0 and high <= 1 else float(np.minimum(c.features, 1 - c.features).min())


def rivals_of(
    head: PolynomialHead, c: ImageCertificates, settings: Exact, *, room: float, least: float = 0.0,
    progress: bool | None = None,
) -> tuple[Rival, ...]:  # fmt: skip
    """How far it is to where each rival overtakes, each as a problem of two classes; the nearest first.

    What is proven for all rivals together holds for each, so no distance is below that of the certificate, which is
    one of the global route, or below `least`, in pixels. Nothing is proven of images whose features may be farther
    away than `room`.
    """
    logits, slopes = (part[0].numpy() for part in head.linearise(torch.from_numpy(c.features)[None]))
    predicted = int(c.predicted)
    others = [b for b in _looking_near(logits, slopes, predicted, float(c.feature_norm)) if b != c.in_features.rival]
    chosen = ([int(c.in_features.rival)] if c.in_features.rival >= 0 else []) + others
    found = []
    for number in chosen[:MOST_RIVALS]:
        pair = head.of_classes([predicted, number])
        (own,) = certify(
            pair, c.features[None], norm=float(c.feature_norm), tolerance=settings.tolerance,
            max_boxes=min(settings.max_boxes, MOST_RIVAL_BOXES), progress=progress,
        )  # fmt: skip
        reach = max(float(own.radius), float(c.feature_radius))
        margin = float(logits[predicted] - logits[number])
        radius = max(least, _in_pixels(c, min(reach, room)))
        found.append(Rival(number, margin, radius, reach, float(own.upper), own.witness, cast(Status, own.status)))
    return tuple(sorted(found, key=lambda rival: (rival.feature_upper, rival.feature_radius, -rival.margin)))


def _looking_near(logits: Floats, slopes: Floats, predicted: int, norm: float) -> list[int]:
    """All rivals, in the order in which their linearised margins vanish."""
    steep = np.linalg.norm(slopes - slopes[predicted], ord=dual_norm(norm), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        looks = np.nan_to_num((logits[predicted] - logits) / steep, nan=0.0)
    return [int(b) for b in np.argsort(looks, kind="stable") if b != predicted]


def _in_pixels(c: ImageCertificates, reach: float) -> float:
    """The radius that the certificate proves for a distance >= its own among the features.

    The rounding that is subtracted weighs less the farther one goes, so the ratio of the two is on the safe side.
    """
    if reach <= c.feature_radius or not c.radius > 0:
        return float(c.radius)
    return float(c.radius * (reach / c.feature_radius) * (1 - 2.0**-50)) if math.isfinite(reach) else math.inf


def _check_witness(head: PolynomialHead, c: ImageCertificates) -> None:
    """Raise an error unless the witness has another class, and the stated distance."""
    witness, upper = c.in_features.witness, c.in_features.upper
    if not np.isfinite(witness).all():
        return
    with torch.no_grad():
        given = int(head(torch.from_numpy(witness)[None]).argmax())
    distance = float(np.linalg.norm(witness - c.features, ord=float(c.feature_norm)))
    if given == c.predicted or not math.isclose(distance, upper, rel_tol=CLOSE, abs_tol=1e-12):
        raise RuntimeError(
            f"expected a witness of another class at {upper!r}, got class {given} at {distance!r}: this must "
            "not happen; please report it"
        )
