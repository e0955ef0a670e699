"""Proofs about rows of a table: columns, projections, limits; and changed ones."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from berncert_check_files import blocks_of, write
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from berncert import Status
from berncert.estimators import BernsteinClassifier
from berncert_check.checking import ACCEPTED, REJECTED, UNSUPPORTED, Verdict, check_file
from berncert_check.proof_file import UnusableError

NORMS = (1.0, 1.5, 2.0, math.inf)


def fitted(load: object, dim: int | None) -> tuple[BernsteinClassifier, np.ndarray]:
    x, y = load(return_X_y=True)  # type: ignore[operator]
    model = BernsteinClassifier(LogisticRegression(max_iter=5000), degree=2, dim=dim).fit(x[::2], y[::2])
    rows = x[1::20].copy()
    rows[0] += 3 * x.std(axis=0)  # outside the domain
    return model, rows


@pytest.fixture(scope="module")
def iris() -> tuple[BernsteinClassifier, np.ndarray]:
    return fitted(load_iris, None)


@pytest.fixture(scope="module")
def wine() -> tuple[BernsteinClassifier, np.ndarray]:
    return fitted(load_wine, 3)


def verdicts(path: Path) -> list[Verdict]:
    return list(check_file(path))


def verdict(path: Path) -> str:
    try:
        return verdicts(path)[0].verdict
    except UnusableError:
        return "UNUSABLE"


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["iris", "wine"])
def test_rows_are_accepted_and_none_within_the_radius_has_another_label(
    name: str, norm: float, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model, x = request.getfixturevalue(name)
    plain = model.certify(x, norm=norm)
    c = model.certify(x, norm=norm, proof=tmp_path / "proof.bin")
    found = verdicts(tmp_path / "proof.bin")
    assert {v.verdict for v in found} == {ACCEPTED}, [v.why for v in found]
    assert {v.conditions for v in found} == {()}
    assert [math.inf if v.radius is None else float(v.radius) for v in found] == c.radius.tolist()
    assert (c.radius <= plain.radius).all()
    inside = slice(1, None)
    if norm == 2 or name == "iris":  # otherwise proofs take one route of two
        np.testing.assert_allclose(c.radius[inside], plain.radius[inside], rtol=2.0**-12)
    steps = np.random.default_rng(0).normal(size=(300, *x.shape))
    steps /= np.linalg.norm(steps, ord=norm, axis=2)[..., None]
    moved = x + steps * np.minimum(c.radius, 9.0)[:, None] * 0.999 * model.scale_
    for k in range(len(x)):
        assert (model.predict(moved[:, k]) == c.predicted[k]).all()


def test_limits_of_columns_are_in_the_file_and_must_be_those_of_the_tree(
    iris: tuple[BernsteinClassifier, np.ndarray], tmp_path: Path
) -> None:
    model, x = iris
    path = tmp_path / "proof.bin"
    constraints = {"fixed": [0], "increasing": [1], "upper": {2: 4.0}}
    free = model.certify(x[1:4])
    c = model.certify(x[1:4], proof=path, **constraints)
    assert {v.verdict for v in verdicts(path)} == {ACCEPTED}
    assert {v.conditions for v in verdicts(path)} >= {("within limits of columns", "with fixed columns")}
    assert (c.radius >= free.radius * (1 - 1e-3)).all()
    assert (c.radius > free.radius * 1.001).any()
    for column in range(3):  # a claim about more rows than the tree is about
        blocks = blocks_of(path)
        blocks[2][2]["columns"][column] -= 0.5
        blocks[2][2]["columns"][4 + column] += 0.5
        write(path.with_suffix(".wider"), blocks)
        assert verdict(path.with_suffix(".wider")) == REJECTED


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_changed_rows_and_maps_are_rejected(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    model, x = request.getfixturevalue(name)
    path, changed = tmp_path / "proof.bin", tmp_path / "changed.bin"
    model.certify(x[1:2], proof=path)
    for name_of_array, amount in (("0.by", 0.3), ("1.by", 0.3), ("2.weight", 0.3), ("3.by", 0.3), ("units", 0.1)):
        blocks = blocks_of(path)
        values = blocks[1][2][name_of_array]
        values[np.abs(values).argmax()] *= 1 + amount
        write(changed, blocks)
        assert verdict(changed) in (REJECTED, ACCEPTED) if name_of_array == "3.by" else verdict(changed) == REJECTED
    for way in ("input", "input_radius", "units"):
        blocks = blocks_of(path)
        if way == "input":
            blocks[2][2]["input"][1] += 0.05
        elif way == "units":
            blocks[1][2]["units"][0] = -1.0
        else:
            blocks[2][1]["input_radius"] = (float.fromhex(blocks[2][1]["input_radius"]) * 1.001).hex()
        write(changed, blocks)
        assert verdict(changed) == ("UNUSABLE" if way == "units" else REJECTED), way
    blocks = blocks_of(path)
    blocks[1][1]["steps"][5]["high"] = (0.9).hex()
    write(changed, blocks)
    assert verdict(changed) == UNSUPPORTED


def test_whole_numbers_and_categories_have_no_proof_yet(
    iris: tuple[BernsteinClassifier, np.ndarray], tmp_path: Path
) -> None:
    model, x = iris
    with pytest.raises(ValueError, match="expected no whole and no categories with proof"):
        model.certify(x, whole=[0], proof=tmp_path / "proof.bin")


def test_sums_of_stumps_are_proven_at_radii_that_are_a_little_lower(tmp_path: Path) -> None:
    x, y = load_wine(return_X_y=True)
    stumps = GradientBoostingClassifier(max_depth=1, n_estimators=20, random_state=0)
    model, rows = BernsteinClassifier(stumps, terms="auto", degree=6).fit(x[::2], y[::2]), x[1::30]
    plain, c = model.certify(rows), model.certify(rows, proof=tmp_path / "proof.bin")
    assert {v.verdict for v in verdicts(tmp_path / "proof.bin")} == {ACCEPTED}
    assert (c.radius > 0.45 * plain.radius).all()
    assert (c.radius < plain.radius).all()
    assert set(plain.status) == {Status.PROVEN}
    short = c.radius < (1 - 2.0**-11) * plain.radius
    assert short.any()  # else the shares of the radius were not tried
    assert c.status.tolist() == [Status.BUDGET if one else Status.PROVEN for one in short]
