"""Attacks in l2 and l-inf, as objects: `Pgd(norm=2, steps=40)(model, images, labels, radius)`.

Their options are read without torch, which the work in `gradient` needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from berncert.certification.methods import Batch, Method
from berncert.certification.status import Claim
from berncert.foundation.arguments import is_real
from berncert.foundation.settings import setting

if TYPE_CHECKING:
    from torch import Tensor, nn

    from berncert.certification.classifier import Classifier
    from berncert.certification.results import Rows


def _checked_norm(norm: Any) -> float:
    if not is_real(norm) or norm not in (2, math.inf):
        raise ValueError(f"expected norm 2 or inf for an attack, got {norm!r}; pass 2 or inf")
    return float(norm)


def _checked_pixels(pixels: Any) -> tuple[float, float]:
    if not isinstance(pixels, Sequence) or [is_real(p) for p in pixels] != [True, True] or not pixels[0] < pixels[1]:
        raise ValueError(f"expected pixels (lowest, highest) in this order, got {pixels!r}; pass e.g. 0 and 1")
    return float(pixels[0]), float(pixels[1])


@dataclass(frozen=True, kw_only=True)
class Attack(Method):
    """Gradient ascent within a ball around each image, and within the range of the pixels."""

    kind, claim, doing, has_bound = "attack", Claim.ATTACK, "attacking", False

    norm: float = setting(2.0, "the p of the norm, 2 or inf", check=_checked_norm)
    radii: tuple[float, ...] = setting(
        (0.1, 0.25, 0.5, 1.0, 1.5, 2.0), "where a run looks, e.g. 0.1,0.5,36/255; in units of the pixels"
    )
    loss: str = setting("margin", "what is made large", choices=("cross_entropy", "margin"))
    pixels: tuple[float, ...] = setting((0.0, 1.0), "least and greatest value of a pixel", check=_checked_pixels)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 < radius < math.inf for radius in self.radii):
            got = ", ".join(map(str, self.radii))
            raise ValueError(f"expected radii that are finite and > 0, got {got}; radius 0 is the clean accuracy")

    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, radius: float | Tensor, **options: Any
    ) -> Tensor:
        """For each image one within `radius` (one for all, or one for each) that the model gets wrong, if any is found.

        Where none is found, the one with the greatest loss. The model is used as it is, in its dtype, and in evaluation
        mode. The same arguments give the same images, whatever the batch size: the random start of an image follows
        from the seed and its number, which is its place unless the option `numbers` says otherwise. Further options:
        batch_size (256) and progress.
        """
        from berncert.attacks.gradient import attacked_images

        assert isinstance(self, Pgd | Fgsm)
        return attacked_images(self, model, images, labels, radius, **options)

    def accuracy(
        self, model: nn.Module, images: Tensor, labels: Tensor, radii: Sequence[float], **options: Any
    ) -> list[float]:
        """The attacked accuracy: the share of images whose class is correct and stays so, for each radius."""
        from berncert.attacks.gradient import fallen_at

        if not len(images):
            raise ValueError("expected at least one image, got none; the accuracy on no images is not a number")
        assert isinstance(self, Pgd | Fgsm)
        fallen = fallen_at(model, images, labels, radii, self, **options)
        return [float((fallen > radius).double().mean()) for radius in radii]

    def prepare(self, model: Classifier, input_shape: Sequence[int], **execution: Any) -> Callable[[Batch], Rows]:
        from berncert.attacks.gradient import Attacker

        assert isinstance(self, Pgd | Fgsm)
        return Attacker(self, model, input_shape, **execution)


@dataclass(frozen=True, kw_only=True)
class Pgd(Attack):
    """Projected gradient ascent: many steps, from random starts.

    Example:
        >>> import berncert
        >>> model, test = berncert.load("digits"), berncert.data.load("digits", limit=5)
        >>> berncert.Pgd(norm=2, steps=10).accuracy(model, test.images, test.labels, [0.1, 3.0])
        [1.0, 0.0]
    """

    name = "pgd"

    steps: int = setting(20, "gradient steps from each start", least=1)
    restarts: int = setting(1, "how many starts", least=1)
    step_size: float | None = setting(None, "of one step, as a share of the radius (2.5 / steps)", above=0)
    random_start: bool = setting(True, "start at a random point of the ball, not at the image")
    seed: int = setting(0, "of the random starts", least=0)


@dataclass(frozen=True, kw_only=True)
class Fgsm(Attack):
    """One step of the size of the radius, from the image itself.

    Example:
        >>> import berncert
        >>> model, test = berncert.load("digits"), berncert.data.load("digits", limit=5)
        >>> attacked = berncert.Fgsm(norm=float("inf"))(model, test.images, test.labels, 0.1)
        >>> bool((attacked - test.images).abs().max() <= 0.1 + 1e-6)
        True
    """

    name, steps, restarts, step_size, random_start, seed = "fgsm", 1, 1, 1.0, False, 0


ATTACKS: dict[str, type[Method]] = {kind.name: kind for kind in (Pgd, Fgsm)}
"""Name -> attack."""
