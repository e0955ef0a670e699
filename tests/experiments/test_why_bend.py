"""The plan compares like with like, and the table sums it up."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.why_bend.plan import ARMS, DIMS, RADII, SEEDS, trials
from experiments.why_bend.tables import summary

OF_THE_HEAD = {"head", "degree", "attack_steps", "head_lr", "temperature", "radius_warmup"}


def test_both_arms_differ_in_nothing_but_what_concerns_the_head() -> None:
    plan = list(trials())
    assert len(plan) == len(ARMS) * len(DIMS) * len(SEEDS)
    assert len({trial.name for trial in plan}) == len(plan)
    for dim in DIMS:
        affine, bending = (next(t for t in plan if (t.arm, t.dim) == (arm, dim)).recipe.as_dict() for arm in ARMS)
        assert affine["data"] == bending["data"]
        for section in ("model", "training"):
            differs = {key for key in affine[section] if affine[section][key] != bending[section][key]}
            assert differs <= OF_THE_HEAD


def test_a_cell_has_the_mean_and_the_spread_of_its_seeds() -> None:
    rows = [
        {"arm": "affine", "dim": 3, "settings": {"degree": 1}, "certified": (np.linspace(0.9, 0.4, len(RADII)) + shift)}
        for shift in (-0.02, 0.0, 0.02)
    ]
    cell = summary(rows)["affine", 3]
    assert cell.mean(0.0) == pytest.approx(90)
    assert cell.spread(0.0) == pytest.approx(2)
