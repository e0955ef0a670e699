"""The settings of methods: they name what the library has, and refuse what it does not."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from berncert.attacks.gradient import LOSSES
from berncert.certification.images import UNITS
from berncert.certification.rootfinding import JACOBIANS, SOLVERS
from berncert.data import ALL, SPLITS
from berncert.runs.methods import Estimated, Exact, Pgd, Randomized, RunSettings


def choices(kind: type[RunSettings], name: str) -> set[str]:
    (entry,) = [entry for entry in fields(kind) if entry.name == name]
    return set(entry.metadata["choices"])


def test_choices_are_those_that_there_are() -> None:
    assert choices(Exact, "split") == {*SPLITS, ALL}
    assert choices(Exact, "dtype") == {str(kind).removeprefix("torch.") for kind in UNITS}
    assert choices(Estimated, "solver") == set(SOLVERS)
    assert choices(Estimated, "jacobian") == set(JACOBIANS)
    assert choices(Pgd, "loss") == set(LOSSES)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Exact, {"norm": 0.5}, "expected norm >= 1, got 0.5"),
        (Exact, {"norm": math.nan}, "expected norm >= 1, got nan"),
        (Exact, {"tolerance": 1.0}, "expected tolerance below 1"),
        (Exact, {"dtype": "float16"}, "expected dtype out of float64, float32"),
        (Exact, {"limit": 0}, "expected limit >= 1"),
        (Randomized, {"norm": math.inf}, "expected norm 2 with randomized smoothing"),
        (Randomized, {"sigma": 0.0}, "expected a finite sigma > 0"),
        (Randomized, {"alpha": 1.0}, "expected alpha below 1"),
        (Pgd, {"norm": 1.0}, "expected norm 2 or inf for an attack"),
        (Pgd, {"radii": (0.5, -1.0)}, "expected radii that are finite and > 0"),
        (Pgd, {"radii": ()}, "expected radii to be a list of numbers"),
        (Estimated, {"conservatism": 0.0}, "expected a finite conservatism > 0"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: type[RunSettings], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**settings)
