"""Proof files: what `certify` writes is accepted by the checker, which shares no code with it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from random_heads import random_head

import berncert
from berncert_check.checking import ACCEPTED, check_file

NORMS = (1.0, 1.5, 2.0, 3.0, math.inf)


def features(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((rows, dim))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("dim", "degree"), [(1, 5), (2, 4), (3, 2), (4, 1)])
def test_every_proof_that_is_written_is_accepted(tmp_path: Path, dim: int, degree: int, norm: float) -> None:
    head, x = random_head(np.random.default_rng(dim), 4, (degree,) * dim, bend=0.3), features(4, dim)
    plain = berncert.certify(head, x, norm=norm)
    c = berncert.certify(head, x, norm=norm, proof=tmp_path / "proof.bin")
    verdicts = list(check_file(tmp_path / "proof.bin"))
    assert [v.verdict for v in verdicts] == [ACCEPTED] * len(x), [v.why for v in verdicts]
    assert [v.predicted for v in verdicts] == c.predicted.tolist()
    assert [math.inf if v.radius is None else float(v.radius) for v in verdicts] == c.radius.tolist()
    near = np.isfinite(plain.radius)
    assert (c.radius[near] <= plain.radius[near]).all()
    assert (c.radius[near] >= plain.radius[near] * (1 - 2.0**-12)).all()


def test_proofs_with_weights_and_limits_are_accepted(tmp_path: Path) -> None:
    head, x = random_head(np.random.default_rng(5), 3, (3,) * 3, bend=0.3), features(5, 3)
    box = {"weights": [1.0, 0.3, 4.0], "lower": x - [0.2, 0.4, 1], "upper": x + 0.3}
    c = berncert.certify(head, x, norm=2, proof=tmp_path / "proof.bin", **box)
    verdicts = list(check_file(tmp_path / "proof.bin"))
    assert {v.verdict for v in verdicts} == {ACCEPTED}, [v.why for v in verdicts]
    assert (c.radius > 0).all()


def test_a_class_that_holds_in_the_whole_cube_is_proven_at_any_distance(tmp_path: Path) -> None:
    head = berncert.SmoothedHead(torch.tensor([[0.9, 1.5, 1.0], [0.0, 0.7, 0.5]], dtype=torch.float64))
    berncert.certify(head, [[0.3]], proof=tmp_path / "proof.bin")
    (verdict,) = check_file(tmp_path / "proof.bin")
    assert (verdict.verdict, verdict.radius) == (ACCEPTED, None)


def test_a_tie_has_a_radius_of_0_which_claims_nothing(tmp_path: Path) -> None:
    head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64))
    berncert.certify(head, [[0.3]], proof=tmp_path / "proof.bin")
    (verdict,) = check_file(tmp_path / "proof.bin")
    assert (verdict.verdict, verdict.radius, verdict.why) == (ACCEPTED, 0, "a radius of 0 claims nothing")


def test_fixed_features_are_proven_too(tmp_path: Path) -> None:
    head, x = random_head(np.random.default_rng(5), 3, (3,) * 3, bend=0.3), features(5, 3)
    fixed = x.copy()
    fixed[:, 1:] = 1
    lower = np.where(fixed == 1, 0, x)
    c = berncert.certify(head, x, lower=lower, upper=fixed, proof=tmp_path / "proof.bin")
    verdicts = list(check_file(tmp_path / "proof.bin"))
    assert (c.radius > 0).all()
    assert {v.verdict for v in verdicts} == {ACCEPTED}, [v.why for v in verdicts]


def test_a_place_where_no_file_can_be_written_is_named_before_any_work(tmp_path: Path) -> None:
    head = random_head(np.random.default_rng(5), 3, (3,) * 3, bend=0.3)
    for place in ("", ".", tmp_path, tmp_path / "missing" / "proof.bin"):
        with pytest.raises(ValueError, match="expected a file in a folder that exists as proof, got"):
            berncert.certify(head, features(1, 3), proof=place)


def test_a_decision_at_one_radius_has_no_proof_file(tmp_path: Path) -> None:
    head = random_head(np.random.default_rng(5), 3, (3,) * 3, bend=0.3)
    with pytest.raises(ValueError, match="expected either proof or radius, got both"):
        berncert.certify(head, features(1, 3), radius=0.1, proof=tmp_path / "proof.bin")
