"""`certify`: the proof in feature space and the bound of the extractor, together a radius for each image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from berncert.certification.classifier import Classifier
from berncert.certification.counterexample import CounterexampleSearch
from berncert.certification.feature_space import certify_features, posed
from berncert.certification.inputs import checked_box, checked_features, checked_images, checked_weights
from berncert.certification.local_route import LocalRoute, local_route_takes
from berncert.certification.methods import Batch, Exact
from berncert.certification.network_proof import NetworkProof, network_proof
from berncert.certification.prepared_model import PreparedModel
from berncert.certification.proof_file import Block, block, checked_place, write_proofs
from berncert.certification.proof_rows import Inputs, Question, Recorder
from berncert.certification.results import Certificates, ImageCertificates
from berncert.certification.status import Status
from berncert.extractor.bounds.norm_gains import SMALLEST, conversion
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.foundation.arrays import Floats
from berncert.polynomial import PolynomialHead

LARGEST = {dtype: torch.finfo(dtype).max / 64 for dtype in (torch.float64, torch.float32)}
"""Some functions compute several times x on the way."""
NO_PIXEL = 1e290
DOWN = 1 - 2.0**-50  # more than the rounding of a subtraction and a division
UP = 1 + 2.0**-46  # more than undoes it


@overload
def certify(
    model: PolynomialHead, inputs: Any, *, norm: float = ..., weights: Any = ..., lower: Any = ..., upper: Any = ...,
    tolerance: float = ..., max_boxes: int = ..., max_seconds: float | None = ..., radius: float | None = ...,
    threads: int | None = ..., progress: bool | None = ..., dtype: torch.dtype | str = ..., batch_size: int = ...,
    proof: str | PathLike[str] | None = ...,
) -> Certificates: ...  # fmt: skip
@overload
def certify(
    model: Classifier, inputs: Any, *, norm: float = ..., tolerance: float = ..., max_boxes: int = ...,
    max_seconds: float | None = ..., radius: float | None = ..., threads: int | None = ...,
    progress: bool | None = ..., dtype: torch.dtype | str = ..., batch_size: int = ...,
    proof: str | PathLike[str] | None = ..., routes: str = ..., counterexamples: bool = ...,
) -> ImageCertificates: ...  # fmt: skip
def certify(
    model: PolynomialHead | Classifier,
    inputs: Any,
    *,
    norm: float = Exact.norm,
    weights: Any = None,
    lower: Any = None,
    upper: Any = None,
    tolerance: float = Exact.tolerance,
    max_boxes: int = Exact.max_boxes,
    max_seconds: float | None = None,
    radius: float | None = None,
    threads: int | None = None,
    progress: bool | None = None,
    dtype: torch.dtype | str = Exact.dtype,
    batch_size: int = Exact.batch_size,
    proof: str | PathLike[str] | None = None,
    routes: str = Exact.routes,
    counterexamples: bool = Exact.counterexamples,
) -> Certificates | ImageCertificates:
    """Prove, for each input, how far it is from the nearest one that gets another class.

    Of a `SmoothedHead` and features: for every row, radius <= true distance <= upper: no point of [0,1]^d closer than
    `radius` changes the class, and `witness`, at distance `upper`, does. All rivals count. The proof holds for the
    polynomial in real arithmetic, with the coefficients taken as exact, and for `SmoothedHead` evaluated in float64 on
    any hardware with IEEE arithmetic (denormals included). It says nothing about evaluation in float32, nor about
    points outside the cube.

    Of a `Classifier` with a smoothed head and images: `radius` is in the units of the pixels. No image closer than it
    changes the class: of the frozen network (`freeze`) in real arithmetic, and as computed in `dtype`. There are two
    ways: the global route divides a radius in features by the extractor's Lipschitz bound (between the norms that give
    a row most); the local route bounds the features that images near this one can have. Each row takes the one that
    proves more, which `route` names. See `ImageCertificates`.

    inputs: (N, d) features in [0, 1], or (N, ...) floating images in the units that the extractor was made for: a
        tensor on any device, an array or nested lists. Whole-number images are refused: divide bytes by 255, or not.
    norm: the p of the norm, 1 <= p <= inf.
    weights: of the axes, (d,) or (N, d), above 0, for a `SmoothedHead`: distances are norms of weights * (x - x0).
    lower, upper: a box, (d,) or (N, d), for a `SmoothedHead`: only points of the cube within it count. An axis with
        lower = upper is fixed, one with lower = x0 may only grow. x0 itself may lie outside its box.
    tolerance: stop when upper - radius <= tolerance * upper.
    max_boxes: how many boxes may be looked at for one row, give or take a path. Then the search stops: `radius` is as
        far as the proof has come, which still holds, and the status says so.
    max_seconds: how long one row may take, give or take a box; after it the radius is as far as the proof has come,
        which still holds, and the status is TIME. How far that is depends on the machine.
    radius: decide at this radius only, which is faster. The status is then HOLDS (proven: nothing closer changes the
        class), FALLS (a witness is closer) or UNKNOWN. Images are tried by both routes, then attacked: one that falls
        comes with the image that does it. See `berncert.verify`.
    threads: one row is solved by one thread, in a fixed order of operations, so neither their number nor the batch
        changes a bit of the result. None takes all cores that this process may use.
    progress: a bar on stderr; None shows one when stderr is a terminal and two seconds have passed.
    dtype: of the extraction. float32 is faster; what it loses is proven, subtracted, and stated in `extraction_error`.
    batch_size: how many images are extracted together.
    proof: a file to write the proofs to: whoever does not trust this program checks it with `berncert-check`, in exact
        arithmetic (docs/audit.md). Radii are lowered by a factor of 1 - 2^-13, to what is proven there. Of a
        `Classifier`, the network's weights are in the file, the claim is about it in real arithmetic, and radii are
        those of the global route: a file holds no proof of the local one.
    routes: of images, "both", or "global" only, as with `proof`. The local route costs 40 or more
        evaluations of the model for an image; it is left out where the global one has proven a tenth of the distance at
        which the class would change if the model were affine, as it does for 1-Lipschitz models.
    counterexamples: of images, look for ones of another class, so that `upper` and `witness` are known where one is
        found: radius <= truth <= upper. It costs about 120 evaluations of the model for an image, which is why it is
        not done unasked, but with `radius`.

    The first call on a machine compiles the search, which takes ten to twenty seconds; later ones load it from a cache.
    Ctrl-C stops within a moment.

    Example:
        >>> import torch, berncert
        >>> head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [0.5, 0.5]]).double())  # logits x and 0.5
        >>> c = berncert.certify(head, [[0.2]])
        >>> print(c.predicted, c.radius.round(3), c.rival, c.status[0].name)
        [1] [0.3] [0] PROVEN
        >>> berncert.certify(head, [[0.2]], radius=0.25).status[0].name
        'HOLDS'
    """
    name = str(dtype).removeprefix("torch.")
    method = Exact(
        norm=norm, tolerance=tolerance, max_boxes=max_boxes, max_seconds=max_seconds, radius=radius, dtype=name,
        proof=proof is not None, routes=routes, counterexamples=counterexamples,
    )  # fmt: skip
    if proof is not None:
        checked_place(proof)
    if not isinstance(model, PolynomialHead) and any(option is not None for option in (weights, lower, upper)):
        raise ValueError(
            "expected weights, lower and upper with a SmoothedHead and features, got them with a Classifier and "
            "images; certify model.head on model.extractor(images) to use them"
        )
    if not isinstance(model, PolynomialHead):
        images = checked_images(inputs)
        prove = ImageProver(method, model, images.shape[1:], threads=threads, batch_size=batch_size, progress=progress)
        if proof is None:
            return prove(Batch(images))
        opening = prove.opening()  # an error before any work
        certificates, blocks = prove.with_proofs(Batch(images))
        write_proofs(proof, [*opening, *blocks])
        return certificates
    problem = posed(model, method)
    recorder = Recorder(model, norm, problem) if proof is not None else None  # an error before any work
    found = certify_features(
        model, inputs, method, weights=weights, lower=lower, upper=upper, problem=problem, threads=threads,
        progress=progress,
    )  # fmt: skip
    if proof is None or recorder is None:
        return found
    x = checked_features(model, inputs)
    weight = np.ones_like(x) if weights is None else checked_weights(weights, x.shape)
    asked = Question(x, weight, *checked_box(lower, upper, x.shape))
    found, _, blocks = recorder.rows(asked, found, threads=threads, progress=progress)
    write_proofs(proof, [recorder.opening(), *blocks])
    return found


class ImageProver(PreparedModel):
    """`Exact`, prepared: proofs for images of one shape, batch after batch."""

    def __init__(
        self,
        method: Exact,
        model: Classifier,
        input_shape: Sequence[int],
        *,
        threads: int | None = None,
        batch_size: int = Exact.batch_size,
        progress: bool | None = None,
    ) -> None:
        dtype = getattr(torch, method.dtype)
        super().__init__(model, input_shape, norm=method.norm, dtype=dtype, batch_size=batch_size, progress=progress)
        self.method, self.threads = method, threads

    def __call__(self, batch: Batch) -> ImageCertificates:
        """One proven statement for each image: by the route that gives it most."""
        images = checked_images(batch.images)
        if self.method.proof:
            return self.with_proofs(batch)[0]
        best = self.by_global(images)
        if self.method.routes == "both":
            best = self.by_local(images, best)
        if self.method.counterexamples or self.method.radius is not None:
            best = self._attacked(images, best)
        return best

    @cached_property
    def local(self) -> LocalRoute:
        """What is proven once for all images that the local route looks at."""
        assert isinstance(self.head, PolynomialHead)
        return LocalRoute(
            self.extractor, self.value, self.head, self.norm, threads=self.threads, progress=self.progress
        )

    def by_local(self, images: Tensor, by_global: ImageCertificates) -> ImageCertificates:
        """The same rows, with what the local route proves where it proves more."""
        best = by_global[np.arange(len(by_global))]
        asked, safe = self.method.radius, _without_overflow(self.value, _sizes(images), self._spread, self._largest)
        rows = np.flatnonzero((best.status != Status.TIE) & (best.radius < (safe if asked is None else asked)))
        if not len(rows) or not local_route_takes(self.head):
            return best
        if asked is None:
            found = self.local.radii(images[rows], best.predicted[rows], best.radius[rows])
        else:
            found = np.where(self.local.holds(images[rows], best.predicted[rows], asked), asked, 0.0)
        found = np.minimum(found, safe[rows])
        better = found > best.radius[rows]
        for column, value in (("radius", found[better]), ("route", "local")):
            getattr(best, column)[rows[better]] = value
        best.status[rows[better]] = (
            Status.LOCAL
            if asked is None
            else [Status.HOLDS if radius >= asked else Status.UNKNOWN for radius in found[better]]
        )
        return best

    def _attacked(self, images: Tensor, best: ImageCertificates) -> ImageCertificates:
        """The same, with images of another class where some are found; not where the class is proven as asked."""
        asked = self.method.radius
        rows = np.flatnonzero(best.status != Status.HOLDS)
        assert isinstance(self.head, PolynomialHead)
        search = CounterexampleSearch(self.extractor, self.head, self.norm, self.batch_size, self.progress)
        witness, upper = search(images[rows], best.predicted[rows], math.inf if asked is None else asked)
        best.witness[rows], best.upper[rows] = witness, upper
        if asked is not None:
            best.status[rows[upper < asked]] = Status.FALLS
        return best

    def by_global(self, images: Tensor) -> ImageCertificates:
        """By the Lipschitz bound of the extractor, in the norm of the features that gives a row most."""
        features, sizes = self.features(images), _sizes(images)
        best: ImageCertificates | None = None
        for q in self.routes():
            found = self._by_route(features, sizes, q)
            best = found if best is None else _better(best, found)
        assert best is not None
        return best

    @cached_property
    def recorder(self) -> Recorder:
        """Of the head."""
        assert isinstance(self.head, PolynomialHead)
        return Recorder(self.head, self.norm)

    @cached_property
    def network(self) -> NetworkProof:
        """The extractor, as a proof file holds it."""
        return network_proof(self.extractor, self.norm)

    def opening(self, about: Mapping[str, str] | None = None) -> list[Block]:
        """The first blocks of a file of proofs; `about` says what the model was read from."""
        return [self.recorder.opening(about), block("NET", self.network.fields, **self.network.arrays)]

    def with_proofs(self, batch: Batch) -> tuple[ImageCertificates, list[Block]]:
        """The certificates and their proofs: by the way through the network in the norm of the pixels all along."""
        images = checked_images(batch.images)
        found = self._by_route(self.features(images), _sizes(images), self.norm)
        pixels = images.flatten(1).double().cpu().numpy()
        inputs = Inputs(pixels, found.radius, found.extraction_error, self.network.bound)
        x = found.features
        inner, radius, blocks = self.recorder.rows(
            Question(x, np.ones_like(x), np.zeros_like(x), np.ones_like(x)),
            replace(found.in_features, radius=found.feature_radius), numbers=batch.numbers, inputs=inputs,
            threads=self.threads, progress=self.progress,
        )  # fmt: skip
        short = (inner.status == Status.BUDGET) & (found.status == Status.PROVEN)
        status = np.where(short, Status.BUDGET, found.status)
        found = replace(found, radius=radius, status=status, feature_radius=inner.radius)
        return self._attacked(images, found) if self.method.counterexamples else found, blocks

    @property
    def _spread(self) -> float:
        """How far in norm_2 an image is that is 1 away."""
        return conversion(self.norm, 2.0, math.prod(self.shape))

    @property
    def _largest(self) -> float:
        return LARGEST[self.dtype]

    def _by_route(self, features: Floats, sizes: Floats, q: float) -> ImageCertificates:
        """What a proof in feature space, in norm q, says about images of these sizes (norm_2).

        Features of an image r away are at most bound r away, and those of both are computed with an error. That of the
        other image grows with its size, which is at most r more, or for p > 2 a power of the number of pixels times r.
        """
        (count, dim), value, bound = features.shape, self.value, self.bound(q)
        slope, constant = value.error * conversion(2.0, q, dim) * (1 + 1e-12)
        error = (slope * sizes + constant) * (1 + 1e-12)
        growth = slope * self._spread
        target = None
        if self.method.radius is not None:
            needed = (self.method.radius * (bound + growth) + 2 * error) * UP
            target = np.where(np.isfinite(needed), needed, 0.0)  # what is infinite proves nothing
        assert isinstance(self.head, PolynomialHead)
        inner = certify_features(
            self.head, features, self.method, norm=q, target=target, threads=self.threads, progress=self.progress
        )
        reach, status = inner.radius, inner.status.copy()
        if value.limits[0] < 0 or value.limits[1] > 1:
            gap = np.minimum(features, 1 - features).min(axis=1)
            status[gap < reach] = Status.LEAVES_CUBE
            reach = np.minimum(reach, gap)
        with np.errstate(all="ignore"):  # a bound or an error that is infinite proves nothing
            left = np.where(np.isfinite(error), np.maximum(reach - 2 * error, 0.0) * DOWN, 0.0)
            radius = np.where(left > 0, left / (bound + growth) * DOWN, 0.0)
        status[(left == 0) & (reach > 0)] = Status.EXTRACTION
        safe = _without_overflow(value, sizes, self._spread, self._largest)
        status[(radius > safe) & (reach < math.inf)] = Status.OVERFLOW
        radius = np.minimum(radius, safe)
        if self.method.radius is not None:
            ends = [Status.HOLDS if proven else Status.UNKNOWN for proven in radius >= self.method.radius]
            status = np.array(ends, dtype=object)
        return ImageCertificates(
            predicted=inner.predicted,
            radius=radius,
            status=status,
            features=features,
            feature_radius=reach,
            feature_norm=np.full(count, q),
            lipschitz_bound=np.full(count, bound),
            extraction_error=error,
            in_features=inner,
            route=np.full(count, "global", dtype=object),
            upper=np.full(count, math.inf),
            witness=np.full((count, *self.shape), math.nan),
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


def _better(a: ImageCertificates, b: ImageCertificates) -> ImageCertificates:
    """Row by row, the one with the larger radius; the work of both is counted."""
    both = ImageCertificates.concatenate([a, b])
    best = both[np.where(b.radius > a.radius, len(a), 0) + np.arange(len(a))]
    best.in_features.boxes[:] = a.in_features.boxes + b.in_features.boxes
    return best


def _sizes(images: Tensor) -> Floats:
    """The norm_2 of each image, rounded up."""
    rows = images.flatten(1).double()
    largest = rows.abs().amax(dim=1).clamp_min(SMALLEST)
    norms: Tensor = torch.linalg.vector_norm(rows / largest[:, None], dim=1) * largest  # squares do not underflow
    return norms.cpu().numpy() * (1 + rows.shape[1] * 2.0**-50) + SMALLEST
