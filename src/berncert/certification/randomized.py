"""The rival: randomized smoothing (Cohen, Rosenfeld, Kolter, ICML 2019), its PREDICT and CERTIFY.

The smoothed classifier gives an image the class that the base classifier most often gives to the image plus noise from
N(0, sigma^2 I). If class a comes up with probability p > 1/2, no image closer than sigma Phi^-1(p) in l2 gets another
class. The probability is never known, only bounded from votes, so nothing here is proven: a radius is probable. Nor is
it sound as computed: the theorem wants real arithmetic. Voracek and Hein ("Sound Randomized Smoothing in
Floating-Point Arithmetic", ICLR 2023) give an example in which 1.26 is certified although an adversarial example is 0.8
away. What is returned holds with the stated confidence for the smoothed classifier in real arithmetic only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import beta, binomtest
from torch import Tensor, nn

from berncert.certification.certificate import Rows
from berncert.certification.inputs import ONE_EACH, checked_images, placement, tried_on
from berncert.extractor.evaluation import require_evaluation
from berncert.floor.arguments import checked_count, checked_index, is_real
from berncert.floor.arrays import Flags, Floats, Ints
from berncert.floor.progress import Bar

ABSTAIN = -1
LARGEST = float(np.finfo(np.float64).max)
SEEDS = 2**32  # torch's generator on the CPU takes no more of a seed
ODD = 0x9E3779B1  # neighbouring images get seeds far apart, and odd: no two images of a run the same one


@dataclass(frozen=True, eq=False, repr=False)
class RandomizedCertificates(Rows):
    """One statement for each image that is true with probability `confidence`, each by itself: see the module.

    Of N images, all statements together are true with probability 1 - N alpha at least, not 1 - alpha.
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
        """Where the votes do not tell a class."""
        return np.asarray(self.predicted == ABSTAIN)

    def _summary(self) -> str:
        if not len(self):
            return "no rows"
        least, median, greatest = np.quantile(self.probable_radius, [0.0, 0.5, 1.0], method="nearest")
        return (
            f"{len(self)} rows: probable radius {least:.4g} to {greatest:.4g}, median {median:.4g}, each with "
            f"confidence {self.confidence[0]:.6g}; {self.abstained.sum()} abstained"
        )


def certify_randomized(
    model: nn.Module,
    images: Any,
    *,
    sigma: float,
    n0: int = 100,
    n: int = 100_000,
    alpha: float = 0.001,
    batch_size: int = 1000,
    seed: int = 0,
    first_index: int = 0,
    progress: bool | None = None,
) -> RandomizedCertificates:
    """CERTIFY of Cohen et al.: the class of the smoothed classifier and a radius that probably holds, in l2.

    Of n0 votes the most frequent class is the candidate. Of n fresh votes its share gives a lower confidence bound p of
    its probability (Clopper and Pearson), and sigma Phi^-1(p) is the radius; below p = 1/2 there is none, and it
    abstains. So n below log2(1 / alpha) always abstains, and no radius exceeds sigma Phi^-1(alpha^(1/n)).

    Each row is true with probability 1 - alpha over the noise, in real arithmetic; it is no proof (see the module). It
    is about the smoothed classifier, whose class may differ from the model's own.

    model: images (N, ...) -> logits (N, K), in evaluation mode; its device and dtype are used.
    images: in the units that the model takes. Noise is added in these units and not clipped.
    sigma: the standard deviation of the noise; the model should have been trained with it.
    batch_size: how many noisy images are in memory at once.
    seed, first_index: the noise of an image follows from the seed and its number, counted from first_index; not from
        the batch size, nor from the other images. A run in parts gives the rows of the whole. (Of a network that rounds
        differently in batches of another size, a vote within rounding of a tie may still turn.)
    progress: a bar on stderr; None shows one when stderr is a terminal and two seconds have passed.
    """
    n0, n, alpha = checked_count("n0", n0), checked_count("n", n), _checked_alpha(alpha)
    votes = _Votes(model, images, sigma, batch_size, seed, first_index)
    candidates, counts = votes.empty(()), votes.empty((votes.classes,))
    with votes.shown(n0 + n, progress):
        for row, (image, noise) in enumerate(votes.images_with_noise()):
            candidates[row] = votes.under_noise(image, n0, noise).argmax()
            counts[row] = votes.under_noise(image, n, noise)
    bound = lower_confidence_bound(np.take_along_axis(counts, candidates[:, None], axis=1)[:, 0], n, alpha)
    told = bound >= 0.5
    return RandomizedCertificates(
        predicted=np.where(told, candidates, ABSTAIN),
        probable_radius=np.where(told, votes.sigma * ndtri(bound), 0.0),
        candidate=candidates,
        probability_limit=bound,
        counts=counts,
        confidence=np.full(len(counts), 1 - alpha),
        sigma=np.full(len(counts), votes.sigma),
    )


def predict_randomized(
    model: nn.Module,
    images: Any,
    *,
    sigma: float,
    n: int = 100_000,
    alpha: float = 0.001,
    batch_size: int = 1000,
    seed: int = 0,
    first_index: int = 0,
    progress: bool | None = None,
) -> Ints:
    """PREDICT of Cohen et al.: the class of the smoothed classifier for each image, -1 where it abstains.

    It abstains unless a two-sided binomial test tells the two most frequent of n votes apart at level alpha. So each
    row is a wrong class with probability alpha at most. The options are those of `certify_randomized`.
    """
    n, alpha = checked_count("n", n), _checked_alpha(alpha)
    votes = _Votes(model, images, sigma, batch_size, seed, first_index)
    predicted = votes.empty(())
    with votes.shown(n, progress):
        for row, (image, noise) in enumerate(votes.images_with_noise()):
            predicted[row] = winner(votes.under_noise(image, n, noise), alpha)
    return predicted


def lower_confidence_bound(successes: Ints, n: int, alpha: float) -> Floats:
    """One-sided Clopper-Pearson: each entry is <= the probability of success with probability >= 1 - alpha."""
    bound = beta.ppf(alpha, np.maximum(successes, 1), n - successes + 1)
    return np.where(successes > 0, bound, 0.0)


def winner(counts: Ints, alpha: float) -> int:
    """The class with most votes, or -1 when a fair coin between the two best could well have given their votes."""
    best, second = np.argsort(-counts, kind="stable")[:2]
    together = int(counts[best] + counts[second])
    told = binomtest(int(counts[best]), together, 0.5).pvalue <= alpha
    return int(best) if told else ABSTAIN


class _Votes:
    """SAMPLEUNDERNOISE of the paper: what a checked model says of checked images under noise."""

    def __init__(
        self, model: nn.Module, images: Any, sigma: float, batch_size: int, seed: int, first_index: int
    ) -> None:
        self.sigma = _checked_sigma(sigma)
        self.batch_size = checked_count("batch_size", batch_size)
        self.first_index = checked_index("first_index", first_index)
        self.first_seed = int(np.random.SeedSequence(checked_index("seed", seed)).generate_state(1)[0])
        self.images = checked_images(images)
        self.model = _checked_model(model)
        self.like = placement(model)
        self.classes = _classes_of(model, self.images, self.like)
        self.done = 0

    def empty(self, shape: tuple[int, ...]) -> Ints:
        """Room for a row of this shape for each image."""
        return np.zeros((len(self.images), *shape), dtype=np.int64)

    def shown(self, votes_per_image: int, progress: bool | None) -> Bar:
        """The bar that the votes move."""
        self.bar = Bar("voting", total=len(self.images) * votes_per_image, progress=progress)
        return self.bar

    def images_with_noise(self) -> Iterator[tuple[Tensor, torch.Generator]]:
        """Each image, where the model is, and the source of its noise, which only its number and the seed decide."""
        for index, image in enumerate(self.images, self.first_index):
            noise = torch.Generator().manual_seed((self.first_seed + ODD * index) % SEEDS)
            yield image.to(self.like), noise

    def under_noise(self, image: Tensor, n: int, noise: torch.Generator) -> Ints:
        """How often each class comes up in n votes."""
        counts = np.zeros(self.classes, dtype=np.int64)
        for start in range(0, n, self.batch_size):
            steps = torch.empty(min(self.batch_size, n - start), *image.shape, dtype=image.dtype)
            for step in steps:  # one by one: numbers drawn in blocks would depend on the size of the block
                step.normal_(generator=noise)
            counts += self._count(image + self.sigma * steps.to(image.device))
            self.done += len(steps)
            self.bar.update(self.done)
        return counts

    @torch.no_grad()
    def _count(self, noisy: Tensor) -> Ints:
        logits = self.model(noisy)
        if logits.shape != (len(noisy), self.classes):
            raise ValueError(
                f"expected logits of shape {(len(noisy), self.classes)} from the model, got {tuple(logits.shape)}; it "
                "must give one row for each image"
            )
        if logits.isnan().any():
            raise ValueError(
                f"expected logits that are numbers, got NaN under noise of sigma {self.sigma}; check the weights, and "
                "that the model takes values outside the range of pixels, as noise is not clipped"
            )
        counts: Ints = torch.bincount(logits.argmax(dim=1), minlength=self.classes).cpu().numpy()
        return counts


def _checked_model(model: nn.Module) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch module from images to logits, got {type(model).__name__}; wrap it in one")
    require_evaluation(model)
    return model


def _classes_of(model: nn.Module, images: Tensor, like: Tensor) -> int:
    """The number of logits; an error that says what to do if the model does not take images of this shape."""
    logits = tried_on(model, "model", images.shape[1:], like.dtype, like.device)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 2:
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        shape = tuple(images.shape[1:])
        raise ValueError(f"expected (N, K) logits from the model, got {got} for 2 images of shape {shape}; {ONE_EACH}")
    if logits.shape[1] < 2:
        raise ValueError(
            f"expected a model with at least 2 classes, got {logits.shape[1]}; of one logit z make two: (0, z)"
        )
    return int(logits.shape[1])


def _checked_sigma(sigma: Any) -> float:
    if not is_real(sigma) or not 0 < sigma <= LARGEST:
        raise ValueError(f"expected a finite sigma > 0, got {sigma!r}; pass e.g. 0.25, in units of the pixels")
    return float(sigma)


def _checked_alpha(alpha: Any) -> float:
    if not is_real(alpha) or not 0 < alpha < 1:
        raise ValueError(
            f"expected an alpha with 0 < alpha < 1, got {alpha!r}; it is how often a row may be false, e.g. 0.001"
        )
    return float(alpha)
