"""The settings of methods: they name what the library has, and refuse what it does not."""

from __future__ import annotations

import dataclasses
import math
import pickle
from dataclasses import fields
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import berncert
from berncert import data
from berncert.attacks.gradient import LOSSES
from berncert.attacks.methods import Fgsm, Pgd
from berncert.certification.methods import Batch, Estimate, Exact, Method, Randomized
from berncert.certification.prepared_model import UNITS
from berncert.certification.rootfinding import SOLVERS
from berncert.data import ALL, HOLDOUT, SPLITS
from berncert.foundation.settings import Settings
from berncert.runs.settings import RunSettings
from berncert.runs.table import columns_of


def choices(kind: type[Settings], name: str) -> set[str]:
    (entry,) = [entry for entry in fields(kind) if entry.name == name]
    return set(entry.metadata["choices"])


def test_choices_are_those_that_there_are() -> None:
    assert choices(RunSettings, "split") == {*SPLITS, HOLDOUT, ALL}
    assert choices(Exact, "dtype") == {str(kind).removeprefix("torch.") for kind in UNITS}
    assert choices(Estimate, "solver") == set(SOLVERS)
    assert choices(Pgd, "loss") == set(LOSSES)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Exact, {"norm": 0.5}, "expected a norm p with 1 <= p <= inf, got 0.5"),
        (Exact, {"norm": math.nan}, "expected a norm p with 1 <= p <= inf, got nan"),
        (Exact, {"tolerance": 1.0}, r"expected a tolerance in \[0, 1\), got 1.0"),
        (Exact, {"dtype": "float16"}, "expected dtype out of float64, float32"),
        (RunSettings, {"limit": 0}, "expected limit >= 1"),
        (Randomized, {"norm": math.inf}, "expected norm 2 with randomized smoothing"),
        (Randomized, {"sigma": 0.0}, "expected a finite sigma > 0"),
        (Randomized, {"alpha": 1.0}, "expected alpha below 1"),
        (Pgd, {"norm": 1.0}, "expected norm 2 or inf for an attack"),
        (Pgd, {"radii": (0.5, -1.0)}, "expected radii that are finite and > 0"),
        (Pgd, {"radii": ()}, "expected radii to be a list of numbers"),
        (Estimate, {"conservatism": 0.0}, "expected a conservatism C > 0"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: type[Settings], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**settings)


SMALL = [Exact(), Exact(radius=0.3), Estimate(solver="regularised"), Randomized(n=50, n0=5), Pgd(steps=2), Fgsm()]


@pytest.mark.parametrize("method", SMALL, ids=lambda method: type(method).__name__)
def test_a_prepared_method_pickles_and_gives_the_same_rows(method: Method) -> None:
    test = data.load("digits", limit=3)
    work = method.prepare(berncert.load("digits"), test.images.shape[1:], threads=1)
    batch = Batch(test.images, test.labels, test.indices.tolist())
    rows, again = work(batch), pickle.loads(pickle.dumps(work))(batch)
    for name, column in rows.as_columns().items():
        np.testing.assert_array_equal(again.as_columns()[name], column)
    assert all(len(attrgetter(place)(rows)) == 3 for place in columns_of(method).values())


def test_methods_are_plain_values() -> None:
    assert Exact(norm=2) == Exact() == pickle.loads(pickle.dumps(Exact()))
    assert dataclasses.replace(Pgd(), steps=3).steps == 3
    assert Exact(max_boxes=np.int64(7), norm=np.float64(1)).max_boxes == 7


@pytest.mark.parametrize("method", SMALL, ids=lambda method: type(method).__name__)
def test_a_prepared_method_checks_its_batch_and_its_options(method: Method) -> None:
    test, model = data.load("digits", limit=2), berncert.load("digits")
    work = method.prepare(model, test.images.shape[1:], threads=1)
    assert len(work(Batch(test.images[:0], test.labels[:0], []))) == 0
    with pytest.raises(ValueError, match="expected floating images"):
        work(Batch((test.images * 255).byte(), test.labels, [0, 1]))
    with pytest.raises(TypeError, match="bath_size"):
        method.prepare(model, test.images.shape[1:], bath_size=3)  # type: ignore[call-arg]
