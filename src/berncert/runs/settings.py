"""What a run works on. How it does that is a method: `certification.methods`, `attacks.methods`."""

from __future__ import annotations

from dataclasses import dataclass

from berncert.attacks.methods import ATTACKS
from berncert.certification.methods import CERTIFIERS
from berncert.foundation.settings import Settings, count_or, setting

BASE = "base"
"""Instead of a degree: the head as it was before smoothing."""
METHODS = {"certify": CERTIFIERS, "attack": ATTACKS}
"""Kind of run -> name -> method."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """Options that every run has."""

    data: str | None = setting(None, "a data set's name, a folder of images or an .npz (what the model was trained on)")
    split: str = setting(
        "test",
        "which part of it; all is for data without parts, holdout what a training with holdout sets aside",
        choices=("train", "test", "holdout", "all"),
    )
    degree: int | str | None = setting(
        None,
        "smooth the model's base head again, to this degree; base: take that head as it is (as it was saved)",
        check=count_or(BASE, "degree"),
    )
    skip: int = setting(1, "take every so many-th image", least=1)
    limit: int | None = setting(None, "take only the first so many of those", least=1)
    batch_size: int | None = setting(
        None, "images worked on, and written, together (256; estimate 16, randomized 1)", least=1
    )
