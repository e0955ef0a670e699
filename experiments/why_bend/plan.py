"""What is trained: two arms, six numbers of features, three seeds; settings were chosen on held-out images.

Both arms have the same extractor, images, number of epochs and radius. The head's learning rate and the temperature are
those with the highest certified accuracy at the radius on training images that were set aside (`holdout`; 1000 of
them), of trials with seed 0 on 20,000 images at d = 3, 5 and 8; where that differs by less than half a point, those
with the highest clean accuracy. `trials.tsv` lists all trials. No test image was looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from berncert.training.recipes import Recipe, load_recipe

DIMS = (3, 4, 5, 6, 8, 10)
SEEDS = (0, 1, 2)
RADIUS = 1.58
RADII = (0.0, 0.3, 0.5, 1.0, 1.58, 2.0)
"""Where the certified accuracy is proven; 0 is the clean accuracy."""
BASE: Mapping[str, Any] = {"radius": RADIUS, "side": 8.0, "epochs": 5, "test_limit": 500}
DEGREES = {3: 8, 4: 5, 5: 4, 6: 2, 8: 2, 10: 1}
"""The number of features -> the degree of the bending head in each of them."""
ARMS: Mapping[str, Mapping[str, Any]] = {
    "affine": {"head": "affine", "degree": 1},
    "bending": {"head": "polynomial", "attack_steps": 5},
}


class Trial(NamedTuple):
    """One training: an arm, a number of features, a seed, and all settings that differ from the recipe mnist-small."""

    arm: str
    dim: int
    seed: int
    changes: dict[str, Any]

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.arm}-d{self.dim}-seed{self.seed}"

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return load_recipe("mnist-small", **self.changes)


def trials(arms: tuple[str, ...] = tuple(ARMS), dims: tuple[int, ...] = DIMS) -> Iterator[Trial]:
    """All trainings, seed by seed, so that an early look has every number of features."""
    for seed in SEEDS:
        for dim in dims:
            for arm in arms:
                yield Trial(arm, dim, seed, settings(arm, dim, seed))


def settings(arm: str, dim: int, seed: int) -> dict[str, Any]:
    """The settings of one training that differ from the recipe."""
    own = {"degree": DEGREES[dim]} if arm == "bending" else {}
    return {**BASE, **ARMS[arm], **own, **chosen(arm, dim), "dim": dim, "seed": seed}


def chosen(arm: str, dim: int) -> dict[str, Any]:
    """What was chosen on held-out images: at d = 3 for d <= 4, at d = 5 for 5 and 6, at d = 8 from there on."""
    tried_at = 3 if dim <= 4 else 5 if dim <= 6 else 8
    head_lr, temperature = CHOSEN[arm, tried_at]
    return {"head_lr": head_lr, "temperature": temperature}


CHOSEN = {
    ("affine", 3): (10.0, 0.25),
    ("affine", 5): (30.0, 0.25),
    ("affine", 8): (1.0, 0.5),
    ("bending", 3): (10.0, 0.5),
    ("bending", 5): (10.0, 0.5),
    ("bending", 8): (10.0, 0.25),
}
"""Arm and number of features -> head_lr, temperature."""
