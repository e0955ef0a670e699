"""The methods of certification: each is a frozen dataclass whose fields are its options, with their help.

Prepared with a model and the shape of its images, a method is a picklable callable from a batch to rows. `certify`,
runs, the command line and any cluster use it. The work is done in the module that `prepare` imports: options are read
without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from berncert.certification.status import Claim
from berncert.foundation.arguments import as_float, checked_count, checked_norm, checked_tolerance, is_real
from berncert.foundation.settings import Settings, setting

if TYPE_CHECKING:
    from torch import Tensor, nn

    from berncert.certification.classifier import Classifier
    from berncert.certification.results import RandomizedCertificates, Rows
    from berncert.foundation.arrays import Ints


class Batch(NamedTuple):
    """Images, and what some methods need to know of them.

    Example:
        >>> import berncert
        >>> test = berncert.data.load("digits", limit=3)
        >>> batch = berncert.Batch(test.images, test.labels)
        >>> prove = berncert.Exact().prepare(berncert.load("digits"), test.images.shape[1:])
        >>> len(prove(batch))
        3
    """

    images: Tensor
    labels: Tensor | None = None
    """For attacks."""
    numbers: Sequence[int] | None = None
    """Their places in the data set, from which random numbers follow; by default their places in the batch."""


@dataclass(frozen=True, kw_only=True)
class Method(Settings):
    """What can be done with a batch of images."""

    kind: ClassVar[str] = "certify"
    name: ClassVar[str]
    claim: ClassVar[Claim]
    batch_size: ClassVar[int] = 256
    """Images that a run works on, and writes, together, unless it is given another number."""
    doing: ClassVar[str] = "certifying"
    has_bound: ClassVar[bool] = True
    """Whether the result rests on the Lipschitz bound of the extractor."""

    norm: float = setting(2.0, "the p of the norm, 1 to inf", check=checked_norm)

    def prepare(
        self,
        model: Classifier,
        input_shape: Sequence[int],
        *,
        threads: int | None = None,
        batch_size: int = 256,
        progress: bool | None = None,
    ) -> Callable[[Batch], Rows]:
        """Do once what can be done once; the result maps batches of images of this shape to rows, and pickles.

        threads: of the search for a proof; None takes all cores. batch_size: images that the extractor, or an attack,
        takes at once. progress: as in `certify`.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Exact(Method):
    """Proven: no image within the radius changes its class.

    Example:
        >>> import berncert
        >>> method = berncert.Exact(norm=1, tolerance=0.01)
        >>> test = berncert.data.load("digits", limit=3)
        >>> prove = method.prepare(berncert.load("digits"), test.images.shape[1:])  # a callable that pickles
        >>> prove(berncert.Batch(test.images)).predicted.tolist()
        [5, 0, 9]
    """

    name, claim = "exact", Claim.PROVEN

    tolerance: float = setting(
        1e-3, "stop within this share of the largest possible radius, 0 to 1", check=checked_tolerance
    )
    max_boxes: int = setting(100_000, "boxes of the search for one input", check=partial(checked_count, "max_boxes"))
    max_seconds: float | None = setting(None, "seconds of the search for one input", above=0)
    radius: float | None = setting(None, "decide at this radius only, which is faster", above=0)
    dtype: str = setting("float64", "arithmetic of the extraction", choices=("float64", "float32"))
    proof: bool = setting(
        False, "write proofs that berncert-check checks; radii are what they prove, by the global route"
    )
    routes: str = setting(
        "both",
        "prove by the extractor's Lipschitz bound, and by bounds near each image too",
        choices=("both", "global"),
    )
    counterexamples: bool = setting(
        False,
        "look for images of another class: the distance of the nearest, column upper, bounds the radius from above",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.proof and self.radius is not None:
            raise ValueError(
                "expected either proof or radius, got both; leave radius out: the file says how far is proven"
            )

    def prepare(self, model: Classifier, input_shape: Sequence[int], **execution: Any) -> Callable[[Batch], Rows]:
        from berncert.certification.exact import ImageProver

        return ImageProver(self, model, input_shape, **execution)


def _checked_conservatism(conservatism: Any) -> float:
    if not is_real(conservatism) or not conservatism > 0:
        raise ValueError(f"expected a conservatism C > 0, got {conservatism!r}; pass None for the boundary itself")
    return as_float(conservatism)


@dataclass(frozen=True, kw_only=True)
class Estimate(Method):
    """The radius of the paper's root finder: not proven, and most often too large.

    Example:
        >>> import berncert
        >>> test = berncert.data.load("digits", limit=2)
        >>> method = berncert.Estimate(solver="dogbox", norm=float("inf"))
        >>> find = method.prepare(berncert.load("digits"), test.images.shape[1:])
        >>> find(berncert.Batch(test.images)).status.tolist()
        ['ESTIMATE', 'ESTIMATE']
    """

    name, claim, batch_size = "estimate", Claim.ESTIMATE, 16

    solver: str = setting(
        "lm", "the paper's is lm for l2 and dogbox for l-inf", choices=("lm", "dogbox", "trf", "regularised")
    )
    conservatism: float | None = setting(
        None, "C of the paper: ask for 1/C of the margin (none at all)", check=_checked_conservatism
    )
    jacobian: str = setting("2-point", "finite differences, as in the paper, or faster", choices=("2-point", "exact"))

    def prepare(self, model: Classifier, input_shape: Sequence[int], **execution: Any) -> Callable[[Batch], Rows]:
        from berncert.certification.rootfinding import ImageEstimator

        return ImageEstimator(self, model, input_shape, **execution)


def _only_l2(norm: Any) -> float:
    if checked_norm(norm) != 2:
        raise ValueError(f"expected norm 2 with randomized smoothing, got {norm}; its theorem holds for no other")
    return 2.0


@dataclass(frozen=True, kw_only=True)
class Randomized(Method):
    """Randomized smoothing (Cohen et al.): l2 only, and each row is true with probability 1 - alpha.

    Example:
        >>> import berncert
        >>> test = berncert.data.load("digits", limit=2)
        >>> probably = berncert.Randomized(sigma=0.25, n=1000).certify(berncert.load("digits"), test.images)
        >>> probably.predicted.tolist(), bool((probably.probable_radius > 0).all())
        ([5, 0], True)
    """

    name, claim, batch_size, has_bound = "randomized", Claim.PROBABLE, 1, False

    norm: float = setting(2.0, "the p of the norm: 2", check=_only_l2)
    sigma: float = setting(0.25, "standard deviation of the noise, in units of the pixels", above=0)
    n0: int = setting(100, "votes that choose the class", least=1)
    n: int = setting(100_000, "votes that bound its probability", least=1)
    alpha: float = setting(0.001, "how often a row may be false", above=0, below=1)
    vote_batch: int = setting(1000, "noisy images in memory at once", least=1)
    seed: int = setting(0, "of the noise", least=0)

    def prepare(self, model: Classifier, input_shape: Sequence[int], **execution: Any) -> Callable[[Batch], Rows]:
        from berncert.certification.prepared_model import frozen_classifier
        from berncert.certification.randomized import Voter

        plain = frozen_classifier(model, input_shape, "float32")
        return Voter(self, plain, input_shape, **execution)

    def certify(
        self, model: nn.Module, images: Any, *, first_index: int = 0, progress: bool | None = None
    ) -> RandomizedCertificates:
        """CERTIFY of Cohen et al.: the class of the smoothed classifier and a radius that probably holds, in l2.

        Of n0 votes the most frequent class is the candidate. Of n fresh votes its share gives a lower confidence bound
        p of its probability (Clopper and Pearson), and sigma Phi^-1(p) is the radius; below p = 1/2 there is none, and
        it abstains. So n below log2(1 / alpha) always abstains, and no radius exceeds sigma Phi^-1(alpha^(1/n)).

        Each row is true with probability 1 - alpha over the noise, in real arithmetic; it is no proof (see the module
        `randomized`). It is about the smoothed classifier, whose class may differ from the model's own.

        model: images (N, ...) -> logits (N, K), in evaluation mode; its device and dtype are used.
        images: in the units that the model takes. Noise is added in these units and not clipped.
        first_index: the noise of an image follows from the seed and its number, counted from here; not from the batch
            size, nor from the other images. A run in parts gives the rows of the whole. (Of a network that rounds
            differently in batches of another size, a vote within rounding of a tie may still turn.)
        """
        from berncert.certification.randomized import Voter, numbered

        batch = numbered(images, first_index)
        return Voter(self, model, batch.images.shape[1:], progress=progress)(batch)

    def predict(self, model: nn.Module, images: Any, *, first_index: int = 0, progress: bool | None = None) -> Ints:
        """PREDICT of Cohen et al.: the class of the smoothed classifier for each image, -1 where it abstains.

        It abstains unless a two-sided binomial test distinguishes the two most frequent of n votes at level alpha. So
        each row is a wrong class with probability alpha at most.
        """
        from berncert.certification.randomized import Voter, numbered

        batch = numbered(images, first_index)
        return Voter(self, model, batch.images.shape[1:], progress=progress).predict(batch)


CERTIFIERS: dict[str, type[Method]] = {kind.name: kind for kind in (Exact, Estimate, Randomized)}
"""Name -> method."""
