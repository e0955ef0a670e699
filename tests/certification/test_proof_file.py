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


def test_high_degrees_and_samples_at_the_edge_of_the_cube_are_accepted(tmp_path: Path) -> None:
    chance = np.random.default_rng(6)
    for sizes in ((2, 120), (3, 20, 9)):
        head = berncert.SmoothedHead(torch.from_numpy(chance.normal(size=sizes)))
        x = np.array([[0.4] * head.dim, [0.0] * head.dim, [1.0] * head.dim, [1e-300] * head.dim])
        berncert.certify(head, x, proof=tmp_path / "proof.bin")
        verdicts = list(check_file(tmp_path / "proof.bin"))
        assert {v.verdict for v in verdicts} == {ACCEPTED}, [v.why for v in verdicts]


def test_the_number_of_threads_changes_no_byte(tmp_path: Path) -> None:
    head, x = random_head(np.random.default_rng(5), 4, (2, 3), bend=0.3), features(40, 2)
    for threads in (1, 3):
        berncert.certify(head, x, proof=tmp_path / f"{threads}.bin", threads=threads)
    assert (tmp_path / "1.bin").read_bytes() == (tmp_path / "3.bin").read_bytes()


def test_trees_that_need_more_room_than_there_is_at_first_are_written_all_the_same(tmp_path: Path) -> None:
    """Many classes, all of which need a tree."""
    head = berncert.SmoothedHead(torch.from_numpy(np.random.default_rng(7).normal(size=(1200, 2, 2, 3))))
    found = berncert.certify(head, features(4, 3), proof=tmp_path / "proof.bin")
    verdicts = list(check_file(tmp_path / "proof.bin"))
    assert {v.verdict for v in verdicts} == {ACCEPTED}, [v.why for v in verdicts]
    assert (found.radius > 0).all()
    assert sum(v.nodes for v in verdicts) > 4096


def test_what_no_file_can_hold_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coefficients = torch.rand(2, 2, 2, dtype=torch.float64)
    monkeypatch.setattr("berncert.certification.proof_content.MOST_COEFFICIENTS", 7)
    with pytest.raises(ValueError, match="expected a head of up to 7 numbers with proof"):
        berncert.certify(berncert.SmoothedHead(coefficients), features(1, 2), proof=tmp_path / "proof.bin")
    assert not list(tmp_path.iterdir())
