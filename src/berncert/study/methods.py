"""The methods of a run: their settings, each defined once, and what they do with a batch of images."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from berncert.certify import Classifier, Status, certify_randomized
from berncert.certify.images import UNITS, ImageProver
from berncert.certify.rootfinding import JACOBIANS, SOLVERS, ImageEstimator
from berncert.extractor.proofs.facts import placement
from berncert.extractor.remembered import plain_copy
from berncert.study.attacks import LOSSES, Attack, fallen_at
from berncert.study.data import SPLITS
from berncert.study.records import Claim
from berncert.study.settings import Section, setting

Rows = list[dict[str, Any]]
Work = Callable[[Tensor, Tensor, Sequence[int]], Rows]
"""(images, labels, their numbers) -> the cells of each image's row, without those that all rows have."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(Section):
    """Of every run."""

    kind: ClassVar[str]
    claim: ClassVar[Claim]
    columns: ClassVar[tuple[str, ...]]
    """After those of the field."""
    radius_column: ClassVar[str] = "radius"
    doing: ClassVar[str] = "certifying"
    has_bound: ClassVar[bool] = True
    """Whether the result rests on the Lipschitz bound of the extractor."""

    data: str | None = setting(None, "a data set's name, a folder of images or an .npz (what the model was trained on)")
    split: str = setting("test", "which part of it", choices=SPLITS)
    norm: float = setting(2.0, "the p of the norm, 1 to inf", least=1, endless=True)
    degree: int | None = setting(None, "smooth the model's base head anew, to this degree (as it was saved)", least=1)
    skip: int = setting(1, "every so many-th image", least=1)
    limit: int | None = setting(None, "only the first so many of those", least=1)
    batch_size: int = setting(256, "images that are worked on, and written, together", least=1)

    @abstractmethod
    def work(self, model: Classifier, shape: Sequence[int]) -> Work:
        """What is to be done with each batch of images of this shape."""


@dataclass(frozen=True, kw_only=True)
class Exact(RunSettings):
    """Proven: no image within the radius changes its class."""

    kind, claim = "certify", Claim.PROVEN
    columns = ("status", "rival", "boxes", "upper", "feature_radius", "feature_upper", "feature_norm",
               "lipschitz_bound", "extraction_error", "features", "witness")  # fmt: skip

    tolerance: float = setting(1e-3, "stop within this share of the largest possible radius", least=0, below=1)
    max_boxes: int = setting(100_000, "boxes that may be looked at for one image", least=1)
    dtype: str = setting("float64", "of the extraction; what is proven is of this arithmetic",
                         choices=tuple(str(kind).removeprefix("torch.") for kind in UNITS))  # fmt: skip

    def work(self, model: Classifier, shape: Sequence[int]) -> Work:
        prove = ImageProver(
            model, shape, norm=self.norm, tolerance=self.tolerance, max_boxes=self.max_boxes,
            dtype=getattr(torch, self.dtype), batch_size=self.batch_size, threads=torch.get_num_threads(),
        )  # fmt: skip
        prove.progress = False  # one bar, that of the run
        prove(torch.zeros(1, *shape))  # the compiled search is loaded before times are taken

        def rows(images: Tensor, labels: Tensor, numbers: Sequence[int]) -> Rows:
            return [
                {"predict": row.predicted, "radius": row.radius, "status": Status(str(row.status)).name}
                | {name: getattr(row, name) for name in self.columns[1:]}
                for row in prove(images)
            ]

        return rows


@dataclass(frozen=True, kw_only=True)
class Estimated(RunSettings):
    """The radius of the paper's root finder: not proven, and most often too large."""

    kind, claim = "certify", Claim.ESTIMATE
    columns = ("status", "runner_up", "residual", "evaluations", "feature_distance_estimate", "feature_norm",
               "lipschitz_bound")  # fmt: skip

    batch_size: int = setting(16, "images that are worked on, and written, together", least=1)
    solver: str = setting("lm", "the paper's is lm for l2 and dogbox for l-inf", choices=tuple(SOLVERS))
    conservatism: float | None = setting(None, "C of the paper: ask for 1/C of the margin (none at all)", above=0)
    jacobian: str = setting("2-point", "finite differences, as in the paper, or faster", choices=JACOBIANS)

    def work(self, model: Classifier, shape: Sequence[int]) -> Work:
        options = {"solver": self.solver, "conservatism": self.conservatism, "jacobian": self.jacobian}
        estimate = ImageEstimator(model, shape, norm=self.norm, progress=False, **options)

        def rows(images: Tensor, labels: Tensor, numbers: Sequence[int]) -> Rows:
            return [
                {"predict": row.predicted, "radius": row.distance_estimate, "status": "ESTIMATE"}
                | {name: getattr(row, name) for name in self.columns[1:]}
                for row in estimate(images)
            ]

        return rows


@dataclass(frozen=True, kw_only=True)
class Randomized(RunSettings):
    """Randomized smoothing (Cohen et al.): l2 only, and each row is true with probability 1 - alpha."""

    kind, claim = "certify", Claim.PROBABLE
    columns = ("status", "candidate", "probability_limit", "counts")
    has_bound = False

    batch_size: int = setting(1, "images that are worked on, and written, together", least=1)
    sigma: float = setting(0.25, "standard deviation of the noise", above=0)
    n0: int = setting(100, "votes that choose the class", least=1)
    n: int = setting(100_000, "votes that bound its probability", least=1)
    alpha: float = setting(0.001, "how often a row may be false", above=0, below=1)
    vote_batch: int = setting(1000, "noisy images in memory at once", least=1)
    seed: int = setting(0, "of the noise", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm != 2:
            raise ValueError(f"expected norm 2 with --method randomized, got {self.norm:g}; it knows no other")

    def work(self, model: Classifier, shape: Sequence[int]) -> Work:
        plain = _plain(model, torch.float32)
        options = {name: getattr(self, name) for name in ("sigma", "n0", "n", "alpha", "seed")}

        def rows(images: Tensor, labels: Tensor, numbers: Sequence[int]) -> Rows:
            found = []
            for image, number in zip(images, numbers, strict=True):
                (row,) = certify_randomized(
                    plain, image[None], batch_size=self.vote_batch, first_index=number, progress=False, **options
                )
                status = "ABSTAINED" if row.predicted == -1 else "PROBABLE"
                cells = {name: getattr(row, name) for name in self.columns[1:]}
                found.append({"predict": row.predicted, "radius": row.probable_radius, "status": status} | cells)
            return found

        return rows


@dataclass(frozen=True, kw_only=True)
class Attacked(RunSettings):
    """Images within a radius that change the class are looked for: an upper limit for every certificate."""

    kind, claim, radius_column = "attack", Claim.ATTACK, "fallen_at"
    columns = ("status",)
    doing, has_bound = "attacking", False

    method: str = setting("pgd", "many steps from random starts, or one from the image", choices=("pgd", "fgsm"))
    radii: tuple[float, ...] = setting(
        (0.1, 0.25, 0.5, 1.0, 1.5, 2.0), "where to look, e.g. 0.1,0.5,36/255; in units of the pixels"
    )
    steps: int = setting(20, "of pgd", least=1)
    restarts: int = setting(1, "of pgd", least=1)
    loss: str = setting("margin", "what is made large", choices=tuple(LOSSES))
    seed: int = setting(0, "of the random starts", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 < radius < math.inf for radius in self.radii):
            raise ValueError(f"expected radii that are finite and > 0, got {', '.join(map(str, self.radii))}")
        self.attack()  # which refuses what it cannot do

    def attack(self) -> Attack:
        if self.method == "fgsm":
            return Attack(self.norm, steps=1, step_size=1.0, random_start=False, loss=self.loss)
        return Attack(self.norm, steps=self.steps, restarts=self.restarts, loss=self.loss, seed=self.seed)

    def work(self, model: Classifier, shape: Sequence[int]) -> Work:
        plain = _plain(model, torch.float64)  # what a proof is of
        like = placement(plain)

        def rows(images: Tensor, labels: Tensor, numbers: Sequence[int]) -> Rows:
            images, labels = images.to(like), labels.to(like.device)
            with torch.no_grad():
                predicted = plain(images).argmax(dim=1)
            fallen = fallen_at(
                plain, images, labels, self.radii, self.attack(), numbers=numbers, batch_size=len(images),
                progress=False,
            )  # fmt: skip
            words = {0.0: "WRONG", math.inf: "STANDS"}
            return [
                {"predict": int(p), "fallen_at": at, "status": words.get(at, "BROKEN")}
                for p, at in zip(predicted, fallen.tolist(), strict=True)
            ]

        return rows


CERTIFIERS: dict[str, type[RunSettings]] = {"exact": Exact, "estimate": Estimated, "randomized": Randomized}
"""The methods of `certify`."""


def _plain(model: Classifier, dtype: torch.dtype) -> Classifier:
    """The same with plain weights in this dtype: what is certified, and many times faster to run."""
    return Classifier(plain_copy(model.extractor, dtype), copy.deepcopy(model.head).to(dtype)).eval()
