"""Proofs of sums with terms: boxes, and within a box a look at each term by itself."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from berncert_check_files import blocks_of, verdict, write

import berncert
from berncert_check.checking import ACCEPTED, REJECTED, check_file


def sum_head(
    dim: int, degree: int, pairs: int = 0, pair_degree: int = 2, classes: int = 2, seed: int = 0
) -> berncert.SumHead:
    """A term for each feature, and some for two."""
    rng = np.random.default_rng(seed)
    terms = [((j,), torch.tensor(rng.normal(size=(classes, degree + 1)))) for j in range(dim)]
    for _ in range(pairs):
        axes = tuple(int(j) for j in rng.choice(dim, 2, replace=False))
        terms.append((axes, torch.tensor(0.3 * rng.normal(size=(classes, pair_degree + 1, pair_degree + 1)))))
    return berncert.SumHead(torch.tensor(0.3 * rng.normal(size=(classes, dim))), torch.zeros(classes).double(), terms)


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("proof") / "proof.bin"
    berncert.certify(sum_head(3, 2, 1), [[0.3, 0.6, 0.4]], proof=path)
    assert verdict(path) == ACCEPTED
    return path


@pytest.mark.parametrize(
    ("dim", "degree", "pairs", "pair_degree", "norm"),
    [
        (2, 3, 0, 2, 2.0),
        (12, 8, 0, 2, 2.0),
        (5, 4, 4, 2, 2.0),
        (5, 3, 2, 1, 2.0),
        (2, 3, 0, 2, math.inf),
        (5, 3, 2, 1, math.inf),
    ],
)
def test_proofs_of_sums_are_accepted(
    tmp_path: Path, dim: int, degree: int, pairs: int, pair_degree: int, norm: float
) -> None:
    head, x = sum_head(dim, degree, pairs, pair_degree), np.random.default_rng(1).random((2, dim))
    options = {"weights": np.linspace(0.5, 2, dim), "lower": np.clip(x - 0.3, 0, 1), "upper": np.maximum(x, 0.8)}
    for given in ({}, options):
        plain = berncert.certify(head, x, norm=norm, **given)
        c = berncert.certify(head, x, norm=norm, proof=tmp_path / "proof.bin", **given)
        found = list(check_file(tmp_path / "proof.bin"))
        assert {v.verdict for v in found} == {ACCEPTED}, [v.why for v in found]
        assert [math.inf if v.radius is None else float(v.radius) for v in found] == c.radius.tolist()
        np.testing.assert_allclose(c.radius, plain.radius, rtol=2.0**-12)
        assert {v.subject.fingerprint for v in found} == {berncert.fingerprint(head)}


def test_a_class_that_holds_everywhere_is_proven_at_any_distance(tmp_path: Path) -> None:
    """Each term alone is least elsewhere, and its control net is below its values."""
    dip = torch.tensor([[1.0, -0.5, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)  # at least 0.25
    head = berncert.SumHead(torch.zeros(2, 3).double(), torch.zeros(2).double(), [((j,), dip) for j in range(3)])
    c = berncert.certify(head, [[0.2, 0.4, 0.9]], proof=tmp_path / "proof.bin")
    (found,) = check_file(tmp_path / "proof.bin")
    assert (found.verdict, found.radius, c.radius[0]) == (ACCEPTED, None, math.inf)


def test_changed_proofs_are_rejected_or_still_prove_the_same_claim(tmp_path: Path) -> None:
    path, changed, chance, counts = (
        tmp_path / "proof.bin",
        tmp_path / "changed.bin",
        np.random.default_rng(1),
        Counter(),
    )
    head, x = sum_head(3, 4, 1, seed=3), np.array([[0.3, 0.6, 0.45]])
    c = berncert.certify(head, x, proof=path)
    assert verdict(path) == ACCEPTED
    assert 0 < c.radius[0] < c.upper[0] < math.inf
    for way in [*range(6)] * 25:
        blocks = blocks_of(path)
        fields, arrays = blocks[1][1], blocks[1][2]
        if way == 0:
            arrays["tags"][chance.integers(arrays["tags"].size)] = chance.choice(
                [0, 1, 2, 3, 9, 251, 252, 253, 254, 255]
            )
        elif way in (1, 2):
            name = ("tags", "hints")[way - 1]
            arrays[name] = np.delete(arrays[name], chance.integers(arrays[name].size))
        elif way == 3:
            arrays["hints"][chance.integers(arrays["hints"].size)] *= np.float32(chance.choice([-1, 0, 2, 1.01]))
        elif way == 4:
            fields["radius"] = (float(c.upper[0]) * float(chance.uniform(1.0001, 2))).hex()
            arrays["box"] = np.repeat([0.0, 1.0], 3)
        else:
            blocks[0][2]["3.coefficients"] += (
                chance.choice([-1, 1]) * np.repeat([1.0, 0.0], 9) * fields["predicted"] * 3
            )
            fields["predicted"] = 1 - fields["predicted"]
            blocks[0][1]["rounding"] = "0x1p-40"  # enough for the new coefficients
        write(changed, blocks)
        counts[way, verdict(changed)] += 1
    assert all(counts[way, REJECTED] == 25 for way in (1, 2, 4, 5))
    assert counts[0, REJECTED] > counts[0, ACCEPTED]
    assert counts[3, REJECTED] > 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("features", [0, 0]), ("features", [0, 9]), ("features", [0]), ("features", [-1, 0]), ("features", "ab"),
        ("degrees", [2]), ("degrees", [0, 2]), ("degrees", [2, 2.0]), ("degrees", [1 << 22] * 3), ("degrees", None),
    ],
)  # fmt: skip
def test_terms_that_are_none_are_refused(proof: Path, tmp_path: Path, name: str, value: object) -> None:
    blocks = blocks_of(proof)
    blocks[0][1]["terms"][3][name] = value
    write(tmp_path / "bad.bin", blocks)
    assert verdict(tmp_path / "bad.bin") == "UNUSABLE"


def test_a_rounding_that_is_too_small_for_a_sum_is_refused(proof: Path, tmp_path: Path) -> None:
    blocks = blocks_of(proof)
    blocks[0][1]["rounding"] = (float.fromhex(blocks[0][1]["rounding"]) * 0.9).hex()
    write(tmp_path / "bad.bin", blocks)
    assert verdict(tmp_path / "bad.bin") == "UNUSABLE"


def test_norms_without_a_search_for_sums_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the norm 2 or inf with proof for a sum with terms"):
        berncert.certify(sum_head(3, 2), [[0.3, 0.6, 0.4]], norm=1, proof=tmp_path / "proof.bin")
