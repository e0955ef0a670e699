"""From image to radius: what the proof in feature space and the bound of the extractor give together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from berncert.certification.certificate import Certificates, ImageCertificates
from berncert.certification.classifier import Classifier
from berncert.certification.exact import certify_features
from berncert.certification.inputs import ONE_EACH, checked_images, placement
from berncert.extractor import FrozenNetwork
from berncert.extractor.bounds.norm_gains import SMALLEST, conversion
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.extractor.evaluation import require_evaluation
from berncert.extractor.proof_cache import proven
from berncert.floor.arguments import checked_count, checked_norm
from berncert.floor.arrays import Floats
from berncert.floor.claims import Status
from berncert.floor.progress import Bar
from berncert.polynomial import SmoothedHead

UNITS = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
LARGEST = {dtype: torch.finfo(dtype).max / 64 for dtype in UNITS}  # some functions compute several times x on the way
NO_PIXEL = 1e290
DOWN = 1 - 2.0**-50  # more than the rounding of a subtraction and a division


@overload
def certify(
    model: SmoothedHead, inputs: Any, *, norm: float = ..., tolerance: float = ..., max_boxes: int = ...,
    threads: int | None = ..., progress: bool | None = ..., dtype: torch.dtype = ..., batch_size: int = ...,
) -> Certificates: ...  # fmt: skip
@overload
def certify(
    model: Classifier, inputs: Any, *, norm: float = ..., tolerance: float = ..., max_boxes: int = ...,
    threads: int | None = ..., progress: bool | None = ..., dtype: torch.dtype = ..., batch_size: int = ...,
) -> ImageCertificates: ...  # fmt: skip
def certify(
    model: SmoothedHead | Classifier,
    inputs: Any,
    *,
    norm: float = 2,
    tolerance: float = 1e-3,
    max_boxes: int = 100_000,
    threads: int | None = None,
    progress: bool | None = None,
    dtype: torch.dtype = torch.float64,
    batch_size: int = 256,
) -> Certificates:
    """Prove, for each input, how far it is from the nearest one that gets another class.

    Of a `SmoothedHead` and features: for every row, radius <= true distance <= upper: no point of [0,1]^d closer than
    `radius` changes the class, and `witness`, at distance `upper`, does. All rivals count. The proof holds for the
    polynomial in real arithmetic, with the coefficients taken as exact, and for `SmoothedHead` evaluated in float64 on
    any hardware with IEEE arithmetic (denormals included). It says nothing about evaluation in float32, nor about
    points outside the cube.

    Of a `Classifier` with a smoothed head and images: `radius` is in the units of the pixels. No image closer than it
    changes the class: of the frozen network (`freeze`) in real arithmetic, and as computed in `dtype`. Of the proven
    routes from the norm of the pixels to norms of the features, each row takes the one that gives it most. See
    `ImageCertificates`.

    inputs: (N, d) features in [0, 1], or (N, ...) images in the units that the extractor was made for (whole numbers
        are taken as they are, 0 to 255, not scaled): a tensor on any device, an array or nested lists.
    norm: the p of the norm, 1 <= p <= inf.
    tolerance: stop when upper - radius <= tolerance * upper.
    max_boxes: how many boxes may be looked at for one row, give or take a path. Then the search stops: `radius` is as
        far as the proof has come, which still holds, and the status says so.
    threads: one row is solved by one thread, in a fixed order of operations, so neither their number nor the batch
        changes a bit of the result. None takes all cores that this process may use.
    progress: a bar on stderr; None shows one when stderr is a terminal and two seconds have passed.
    dtype: of the extraction. float32 is faster; what it loses is proven, subtracted, and told in `extraction_error`.
    batch_size: how many images are extracted together.

    The first call on a machine compiles the search, which takes about half a minute; later ones load it from a cache.
    Ctrl-C stops within a moment.
    """
    if isinstance(model, SmoothedHead):
        return certify_features(
            model, inputs, norm=norm, tolerance=tolerance, max_boxes=max_boxes, threads=threads, progress=progress
        )
    images = checked_images(inputs)
    prove = ImageProver(
        model, images.shape[1:], norm=norm, tolerance=tolerance, max_boxes=max_boxes, threads=threads,
        progress=progress, dtype=dtype, batch_size=batch_size,
    )  # fmt: skip
    return prove(images)


class Prepared:
    """A smoothed classifier made ready for images of one shape: frozen, and what is proven of its extractor.

    The bound is proven once; batches of images then cost only themselves.
    """

    def __init__(
        self,
        model: Classifier,
        input_shape: Sequence[int],
        *,
        norm: float = 2,
        dtype: torch.dtype = torch.float64,
        batch_size: int = 256,
        progress: bool | None = None,
    ) -> None:
        if not isinstance(model, Classifier) or not isinstance(model.head, SmoothedHead):
            head = f" with a {type(model.head).__name__}" if isinstance(model, Classifier) else ""
            raise TypeError(
                f"expected a SmoothedHead, or a Classifier with one, got {type(model).__name__}{head}; make one with "
                "berncert.smooth(head, dim, degree) or classifier.smooth(degree)"
            )
        if dtype not in UNITS:
            raise ValueError(f"expected dtype torch.float64 or torch.float32, got {dtype}")
        self.head, self.norm, self.dtype = model.head, checked_norm(norm), dtype
        self.shape, self.progress = tuple(input_shape), progress
        self.batch_size = checked_count("batch_size", batch_size)
        self.device = placement(model).device
        self.extractor = frozen_for(model, self.shape)
        self.value = proven(self.extractor, self.norm, UNITS[dtype], progress)

    def features(self, images: Tensor) -> Floats:
        """Where the extractor puts the images, in float64."""
        parts: list[Tensor] = []
        bar = Bar("extracting", total=len(images), progress=self.progress)
        with torch.no_grad(), bar:
            for batch in torch.split(images, self.batch_size):
                parts.append(self.extractor(batch.to(device=self.device, dtype=self.dtype)).double().cpu())
                bar.update(sum(map(len, parts)))
        return torch.cat(parts).numpy()

    def bound(self, feature_norm: float) -> float:
        """The Lipschitz bound of the extractor, from the norm of the pixels to this one of the features."""
        return self.value.gains.factor(self.norm, feature_norm)

    def routes(self) -> list[float]:
        """The feature norms by which radii are proven."""
        return routes(self.value, self.norm, self.head.dim)


def frozen_for(model: Classifier, shape: Sequence[int]) -> FrozenNetwork:
    """The frozen extractor of this model for images of this shape; an error that says what to do if they do not fit."""
    known = getattr(model.extractor, "input_shape", None)
    if known is not None and tuple(known) != tuple(shape):
        got = f"shape (N, {', '.join(map(str, shape))})"
        raise ValueError(f"expected images of shape (N, {', '.join(map(str, known))}), got {got}; {ONE_EACH}")
    require_evaluation(model.extractor)
    try:
        extractor = model.freeze(shape).extractor
    except ValueError as error:
        got = f"shape (N, {', '.join(map(str, shape))}) ({error})"
        raise ValueError(f"expected images that the extractor takes, got {got}; {ONE_EACH}") from error
    assert isinstance(extractor, FrozenNetwork)
    return extractor


class ImageProver(Prepared):
    """`certify` for images of one shape, batch after batch."""

    def __init__(
        self, model: Classifier, input_shape: Sequence[int], *, tolerance: float = 1e-3, max_boxes: int = 100_000,
        threads: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(model, input_shape, **options)
        self.search = {"tolerance": tolerance, "max_boxes": max_boxes, "threads": threads}

    def __call__(self, images: Tensor) -> ImageCertificates:
        """One proven statement for each image."""
        features, sizes = self.features(images), _sizes(images)
        best: ImageCertificates | None = None
        for q in self.routes():
            inner = certify_features(self.head, features, norm=q, progress=self.progress, **self.search)  # type: ignore[arg-type]
            found = self._in_pixels(inner, features, q, sizes)
            best = found if best is None else _better(best, found)
        assert best is not None
        return best

    def _in_pixels(self, inner: Certificates, features: Floats, q: float, sizes: Floats) -> ImageCertificates:
        """What a proof in feature space, in norm q, says about images of these sizes (norm_2).

        Features of an image r away are at most bound r away, and those of both are computed with an error. That of the
        other image grows with its size, which is at most r more, or for p > 2 a power of the number of pixels times r.
        """
        (count, dim), value, bound = features.shape, self.value, self.bound(q)
        slope, constant = value.error * conversion(2.0, q, dim) * (1 + 1e-12)
        error = (slope * sizes + constant) * (1 + 1e-12)
        spread = conversion(self.norm, 2.0, math.prod(self.shape))
        growth = slope * spread
        reach, status = inner.radius, inner.status.copy()
        if value.limits[0] < 0 or value.limits[1] > 1:
            gap = np.minimum(features, 1 - features).min(axis=1)
            status[gap < reach] = Status.LEAVES_CUBE
            reach = np.minimum(reach, gap)
        with np.errstate(all="ignore"):  # a bound or an error that is infinite proves nothing
            left = np.where(np.isfinite(error), np.maximum(reach - 2 * error, 0.0) * DOWN, 0.0)
            radius = np.where(left > 0, left / (bound + growth) * DOWN, 0.0)
        status[(left == 0) & (reach > 0)] = Status.EXTRACTION
        safe = _without_overflow(value, sizes, spread, LARGEST[self.dtype])
        status[(radius > safe) & (reach < math.inf)] = Status.OVERFLOW
        radius = np.minimum(radius, safe)
        return ImageCertificates(
            predicted=inner.predicted,
            radius=radius,
            upper=np.full(count, math.inf),
            witness=inner.witness,
            rival=inner.rival,
            status=status,
            boxes=inner.boxes,
            features=features,
            feature_radius=reach,
            feature_upper=inner.upper,
            feature_norm=np.full(count, q),
            lipschitz_bound=np.full(count, bound),
            extraction_error=error,
        )


def _without_overflow(value: ValueBound, sizes: Floats, spread: float, largest: float) -> Floats:
    """How far from images of these sizes no number that the extractor computes is beyond the largest.

    Images with pixels of 1e290 and more are none: what is safe up to there is safe everywhere.
    """
    slope, constant = value.peak
    if not constant < largest or not math.isfinite(slope):
        return np.zeros_like(sizes)
    with np.errstate(all="ignore"):
        room = (largest - constant) / slope if slope > 0 else math.inf
        safe = np.maximum(room - sizes, 0.0) / spread * DOWN
    return np.where(safe < NO_PIXEL, safe, math.inf)


def routes(value: ValueBound, norm: float, dim: int) -> list[float]:
    """The norms of `dim` features that can give the largest radius to some row; none is left out that could."""
    bounds = {q: value.gains.factor(norm, q) for q in value.gains.norms}
    order = sorted(bounds, key=lambda q: (q != norm, q))

    def beaten(q: float) -> bool:
        # a point r away in another norm is at most conversion * r away in this one; of equals the first stays
        return any(
            bounds[other] * conversion(other, q, dim) <= bounds[q] * (1 + (1e-9 if rank < order.index(q) else -1e-9))
            for rank, other in enumerate(order)
            if other != q
        )

    return [q for q in order if math.isfinite(bounds[q]) and not beaten(q)] or [norm]


def _better(a: ImageCertificates, b: ImageCertificates) -> ImageCertificates:
    """Row by row, the one with the larger radius; the work of both is counted."""
    wins = b.radius > a.radius
    fields = {name: (getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__}
    chosen = {name: np.where(wins.reshape(-1, *(1,) * (x.ndim - 1)), y, x) for name, (x, y) in fields.items()}
    return ImageCertificates(**chosen | {"boxes": a.boxes + b.boxes})


def _sizes(images: Tensor) -> Floats:
    """The norm_2 of each image, rounded up."""
    rows = images.flatten(1).double()
    largest = rows.abs().amax(dim=1).clamp_min(SMALLEST)
    norms: Tensor = torch.linalg.vector_norm(rows / largest[:, None], dim=1) * largest  # squares do not underflow
    return norms.cpu().numpy() * (1 + rows.shape[1] * 2.0**-50) + SMALLEST
