"""The plan compares like with like, and the table sums it up."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.timing import origin
from experiments.why_bend.plan import ARMS, CHOSEN, DIMS, RADII, SEEDS, trials
from experiments.why_bend.tables import summary, text

MAY_DIFFER = {"head", "degree", "attack_steps"}.union(*CHOSEN.values())


def test_both_arms_have_the_same_extractor_images_and_epochs() -> None:
    plan = list(trials())
    assert len(plan) == len(ARMS) * len(DIMS) * len(SEEDS)
    assert len({trial.name for trial in plan}) == len(plan)
    for dim in DIMS:
        affine, bending = (next(t for t in plan if (t.arm, t.dim) == (arm, dim)).recipe.as_dict() for arm in ARMS)
        assert affine["data"] == bending["data"]
        for section in ("model", "training"):
            differs = {key for key in affine[section] if affine[section][key] != bending[section][key]}
            assert differs <= MAY_DIFFER


def test_a_cell_has_the_mean_and_the_spread_of_its_seeds() -> None:
    rows = [
        {
            "arm": arm, "dim": 3, "settings": {"degree": 1, "epochs": 5, "train_limit": 100},
            "certified": (np.linspace(0.9, 0.4, len(RADII)) + shift).tolist(), "training_cpu_seconds": 9.0,
        }
        for shift in (-0.02, 0.0, 0.02) for arm in ARMS
    ]  # fmt: skip
    assert summary(rows)["affine", 3].overall == pytest.approx([68, 70, 72])
    page = text({"rows": rows, "images": 2000, **origin("test")})
    assert "| 3 | affine | 90.0 ± 2.0 |" in page
