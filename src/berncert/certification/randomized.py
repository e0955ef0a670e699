"""The rival: randomized smoothing (Cohen, Rosenfeld, Kolter, ICML 2019), its PREDICT and CERTIFY.

The smoothed classifier gives an image the class that the base classifier most often gives to the image plus noise from
N(0, sigma^2 I). If class a comes up with probability p > 1/2, no image closer than sigma Phi^-1(p) in l2 gets another
class. The probability is never known, only bounded from votes, so nothing here is proven: a radius is probable. Nor is
it sound as computed: the theorem wants real arithmetic. Voracek and Hein ("Sound Randomized Smoothing in
Floating-Point Arithmetic", ICLR 2023) give an example in which 1.26 is certified although an adversarial example is 0.8
away. What is returned holds with the stated confidence for the smoothed classifier in real arithmetic only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import beta, binomtest
from torch import Tensor, nn

from berncert.certification.inputs import ONE_EACH, checked_images, placement, tried_on
from berncert.certification.methods import Batch, Randomized
from berncert.certification.results import ABSTAIN, RandomizedCertificates
from berncert.extractor.evaluation import require_evaluation
from berncert.foundation.arguments import checked_index
from berncert.foundation.arrays import Floats, Ints
from berncert.foundation.progress import Bar

SEEDS = 2**32  # torch's generator on the CPU takes no more of a seed
ODD = 0x9E3779B1  # neighbouring images get seeds far apart, and odd: no two images of a run the same one


def numbered(images: Any, first_index: int) -> Batch:
    """The images as a batch, with their numbers from first_index on."""
    first = checked_index("first_index", first_index)
    return Batch(images := checked_images(images), numbers=range(first, first + len(images)))


def lower_confidence_bound(successes: Ints, n: int, alpha: float) -> Floats:
    """One-sided Clopper-Pearson: each entry is <= the probability of success with probability >= 1 - alpha."""
    bound = beta.ppf(alpha, np.maximum(successes, 1), n - successes + 1)
    return np.where(successes > 0, bound, 0.0)


def winner(counts: Ints, alpha: float) -> int:
    """The class with most votes, or -1 when a fair coin between the two best could well have given their votes."""
    best, second = np.argsort(-counts, kind="stable")[:2]
    together = int(counts[best] + counts[second])
    decided = binomtest(int(counts[best]), together, 0.5).pvalue <= alpha
    return int(best) if decided else ABSTAIN


class Voter:
    """`Randomized`, prepared: what a model says of images under noise; SAMPLEUNDERNOISE of the paper."""

    def __init__(
        self,
        method: Randomized,
        model: nn.Module,
        input_shape: Sequence[int],
        *,
        threads: int | None = None,
        batch_size: int = 256,
        progress: bool | None = None,
    ) -> None:
        self.method, self.model, self.progress = method, _checked_model(model), progress
        self.first_seed = int(np.random.SeedSequence(method.seed).generate_state(1)[0])
        self.classes = _classes_of(model, input_shape, placement(model))

    def __call__(self, batch: Batch) -> RandomizedCertificates:
        """CERTIFY for each image."""
        method, votes = self.method, list(self._votes(batch, (self.method.n0, self.method.n)))
        candidates = np.array([first.argmax() for first, _ in votes], dtype=np.int64)
        counts = np.array([second for _, second in votes], dtype=np.int64).reshape(-1, self.classes)
        chosen = np.take_along_axis(counts, candidates[:, None], axis=1)[:, 0]
        bound = lower_confidence_bound(chosen, method.n, method.alpha)
        decided = bound >= 0.5
        return RandomizedCertificates(
            predicted=np.where(decided, candidates, ABSTAIN),
            probable_radius=np.where(decided, method.sigma * ndtri(bound), 0.0),
            candidate=candidates,
            probability_limit=bound,
            counts=counts,
            confidence=np.full(len(counts), 1 - method.alpha),
            sigma=np.full(len(counts), method.sigma),
        )

    def predict(self, batch: Batch) -> Ints:
        """PREDICT for each image."""
        votes = self._votes(batch, (self.method.n,))
        return np.array([winner(counts, self.method.alpha) for (counts,) in votes], dtype=np.int64)

    def _votes(self, batch: Batch, rounds: Sequence[int]) -> Iterator[list[Ints]]:
        """For each image how often each class came up, in each round of so many votes.

        Only its number and the seed decide the noise of an image.
        """
        like, done, images = placement(self.model), 0, checked_images(batch.images)
        numbers = range(len(images)) if batch.numbers is None else batch.numbers
        with Bar("voting", total=len(images) * sum(rounds), progress=self.progress) as bar:
            for number, image in zip(numbers, images, strict=True):
                noise = torch.Generator().manual_seed((self.first_seed + ODD * number) % SEEDS)
                counts = []
                for n in rounds:
                    counts.append(np.zeros(self.classes, dtype=np.int64))
                    for part in self._under_noise(image.to(like), n, noise):
                        counts[-1] += part
                        done += int(part.sum())
                        bar.update(done)
                yield counts

    def _under_noise(self, image: Tensor, n: int, noise: torch.Generator) -> Iterator[Ints]:
        """How often each class comes up in n votes, a few votes at a time."""
        for start in range(0, n, self.method.vote_batch):
            steps = torch.empty(min(self.method.vote_batch, n - start), *image.shape, dtype=image.dtype)
            for step in steps:  # one by one: numbers drawn in blocks would depend on the size of the block
                step.normal_(generator=noise)
            yield self._count(image + self.method.sigma * steps.to(image.device))

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
                f"expected logits that are numbers, got NaN under noise of sigma {self.method.sigma}; check the "
                "weights, and that the model takes values outside the range of pixels, as noise is not clipped"
            )
        counts: Ints = torch.bincount(logits.argmax(dim=1), minlength=self.classes).cpu().numpy()
        return counts


def _checked_model(model: nn.Module) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch module from images to logits, got {type(model).__name__}; wrap it in one")
    require_evaluation(model)
    return model


def _classes_of(model: nn.Module, shape: Sequence[int], like: Tensor) -> int:
    """The number of logits; an error that says what to do if the model does not take images of this shape."""
    logits = tried_on(model, "model", shape, like.dtype, like.device)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 2:
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"expected (N, K) logits from the model, got {got} for 2 images of shape {tuple(shape)}; {ONE_EACH}"
        )
    if logits.shape[1] < 2:
        raise ValueError(
            f"expected a model with at least 2 classes, got {logits.shape[1]}; of one logit z make two: (0, z)"
        )
    return int(logits.shape[1])
