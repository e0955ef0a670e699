"""The methods of a run: their settings, each defined once. What they do is in `workers.py`, as that takes torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from berncert.floor.claims import Claim
from berncert.floor.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """Of every run."""

    kind: ClassVar[str]
    method: ClassVar[str]
    """Its name among those of the kind."""
    claim: ClassVar[Claim]
    columns: ClassVar[tuple[str, ...]]
    """After those of the field."""
    radius_column: ClassVar[str] = "radius"
    doing: ClassVar[str] = "certifying"
    has_bound: ClassVar[bool] = True
    """Whether the result rests on the Lipschitz bound of the extractor."""

    data: str | None = setting(None, "a data set's name, a folder of images or an .npz (what the model was trained on)")
    split: str = setting("test", "which part of it; all is for data without parts", choices=("train", "test", "all"))
    norm: float = setting(2.0, "the p of the norm, 1 to inf", least=1, endless=True)
    degree: int | None = setting(None, "smooth the model's base head anew, to this degree (as it was saved)", least=1)
    skip: int = setting(1, "every so many-th image", least=1)
    limit: int | None = setting(None, "only the first so many of those", least=1)
    batch_size: int = setting(256, "images worked on, and written, together; estimate 16, randomized 1", least=1)


@dataclass(frozen=True, kw_only=True)
class Exact(RunSettings):
    """Proven: no image within the radius changes its class."""

    kind, method, claim = "certify", "exact", Claim.PROVEN
    columns = ("status", "rival", "boxes", "upper", "feature_radius", "feature_upper", "feature_norm",
               "lipschitz_bound", "extraction_error", "features", "witness")  # fmt: skip

    tolerance: float = setting(1e-3, "stop within this share of the largest possible radius", least=0, below=1)
    max_boxes: int = setting(100_000, "boxes that may be looked at for one image", least=1)
    dtype: str = setting(
        "float64", "of the extraction; what is proven is of this arithmetic", choices=("float64", "float32")
    )


@dataclass(frozen=True, kw_only=True)
class Estimated(RunSettings):
    """The radius of the paper's root finder: not proven, and most often too large."""

    kind, method, claim = "certify", "estimate", Claim.ESTIMATE
    columns = ("status", "runner_up", "residual", "evaluations", "feature_distance_estimate", "feature_norm",
               "lipschitz_bound")  # fmt: skip

    batch_size: int = setting(16, "images that are worked on, and written, together", least=1)
    solver: str = setting(
        "lm", "the paper's is lm for l2 and dogbox for l-inf", choices=("lm", "dogbox", "trf", "regularised")
    )
    conservatism: float | None = setting(None, "C of the paper: ask for 1/C of the margin (none at all)", above=0)
    jacobian: str = setting("2-point", "finite differences, as in the paper, or faster", choices=("2-point", "exact"))


@dataclass(frozen=True, kw_only=True)
class Randomized(RunSettings):
    """Randomized smoothing (Cohen et al.): l2 only, and each row is true with probability 1 - alpha."""

    kind, method, claim = "certify", "randomized", Claim.PROBABLE
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
            raise ValueError(f"expected norm 2 with randomized smoothing, got {self.norm:g}; it knows no other")


@dataclass(frozen=True, kw_only=True)
class AttackSettings(RunSettings):
    """Of every attack."""

    kind, claim, radius_column = "attack", Claim.ATTACK, "fallen_at"
    columns = ("status",)
    doing, has_bound = "attacking", False

    norm: float = setting(2.0, "the p of the norm, 2 or inf", least=1, endless=True)
    radii: tuple[float, ...] = setting(
        (0.1, 0.25, 0.5, 1.0, 1.5, 2.0), "where to look, e.g. 0.1,0.5,36/255; in units of the pixels"
    )
    loss: str = setting("margin", "what is made large", choices=("cross_entropy", "margin"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(0 < radius < math.inf for radius in self.radii):
            raise ValueError(f"expected radii that are finite and > 0, got {', '.join(map(str, self.radii))}")
        if self.norm not in (2, math.inf):
            raise ValueError(f"expected norm 2 or inf for an attack, got {self.norm:g}; pass 2 or inf")


@dataclass(frozen=True, kw_only=True)
class Pgd(AttackSettings):
    """Many steps, from random starts."""

    method = "pgd"

    steps: int = setting(20, "from each start", least=1)
    restarts: int = setting(1, "how many starts", least=1)
    seed: int = setting(0, "of the random starts", least=0)


@dataclass(frozen=True, kw_only=True)
class Fgsm(AttackSettings):
    """One step of the size of the radius, from the image itself."""

    method = "fgsm"


CERTIFIERS: dict[str, type[RunSettings]] = {kind.method: kind for kind in (Exact, Estimated, Randomized)}
ATTACKS: dict[str, type[RunSettings]] = {kind.method: kind for kind in (Pgd, Fgsm)}
