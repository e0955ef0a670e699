"""Proofs that were changed are rejected, unless what they claim then follows all the same."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from berncert_check_files import blocks_of, verdict, write
from random_heads import random_head

import berncert
from berncert_check.__main__ import main
from berncert_check.checking import ACCEPTED, REJECTED, check_file


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("proof") / "proof.bin"
    x = np.random.default_rng(3).random((1, 3))
    c = berncert.certify(random_head(np.random.default_rng(2), 3, (3,) * 3, bend=0.3), x, proof=path)
    assert 0 < c.radius[0] < math.inf
    assert [v.verdict for v in check_file(path)] == [ACCEPTED]
    return path


def test_any_changed_byte_is_refused(proof: Path, tmp_path: Path) -> None:
    raw, changed = proof.read_bytes(), tmp_path / "changed.bin"
    for at in np.random.default_rng(0).choice(len(raw), 300, replace=False):
        changed.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert verdict(changed) == "UNUSABLE"
    for end in (0, 5, 40, len(raw) // 2, len(raw) - 1):
        changed.write_bytes(raw[:end])
        assert main([str(changed)]) == 2


@pytest.mark.parametrize("factor", [1 + 2.0**-9, 1.1, 2.0, 100.0])
def test_a_larger_radius_is_rejected(proof: Path, tmp_path: Path, factor: float) -> None:
    blocks = blocks_of(proof)
    fields = blocks[1][1]
    fields["radius"] = (float.fromhex(fields["radius"]) * factor).hex()
    write(tmp_path / "changed.bin", blocks)
    assert verdict(tmp_path / "changed.bin") == REJECTED
    assert main([str(tmp_path / "changed.bin")]) == 1


def test_another_class_a_nearer_upper_end_and_a_witness_elsewhere_are_rejected(proof: Path, tmp_path: Path) -> None:
    changed, (_, fields, arrays) = tmp_path / "changed.bin", blocks_of(proof)[1]
    others = [fields | {"predicted": k} for k in (-1, 3, *{0, 1, 2} - {fields["predicted"]})]
    others += [
        fields | {"upper": (float.fromhex(fields["upper"]) * 0.99).hex()},
        fields | {"rival": fields["predicted"]},
    ]
    moved = arrays | {"witness": arrays["x0"]}
    for kind, row, numbers in [*(("ROW", other, arrays) for other in others), ("ROW", fields, moved)]:
        write(changed, [blocks_of(proof)[0], (kind, row, numbers), blocks_of(proof)[2]])
        assert verdict(changed) == REJECTED


def test_a_first_box_that_leaves_something_out_is_rejected(proof: Path, tmp_path: Path) -> None:
    for side in range(6):
        blocks = blocks_of(proof)
        box = blocks[1][2]["box"]
        middle = (box[side % 3] + box[side % 3 + 3]) / 2
        box[side] = (box[side] + middle) / 2
        write(tmp_path / "changed.bin", blocks)
        assert verdict(tmp_path / "changed.bin") == REJECTED


def test_changed_trees_and_hints_are_rejected_or_still_prove_the_same_claim(proof: Path, tmp_path: Path) -> None:
    """The claim stays the same, and true: a changed proof may still prove it, but most do not. Nothing crashes."""
    chance, changed, counts = np.random.default_rng(1), tmp_path / "changed.bin", Counter()
    for _ in range(400):
        blocks = blocks_of(proof)
        arrays = blocks[1][2]
        way = chance.integers(4)
        if way == 0:
            tags = arrays["tags"]
            tags[chance.integers(tags.size)] = chance.choice([0, 1, 2, 3, 100, 251, 252, 253, 254, 255])
        elif way == 1:
            arrays["tags"] = np.delete(arrays["tags"], chance.integers(arrays["tags"].size))
        elif way == 2:
            hints = arrays["hints"]
            hints[chance.integers(hints.size)] *= np.float32(chance.choice([-1, 0, 2, 1.01, math.nan, math.inf]))
        else:
            arrays["hints"] = np.delete(arrays["hints"], chance.integers(arrays["hints"].size))
        write(changed, blocks)
        counts[int(way), verdict(changed)] += 1
    assert {way for way, _ in counts} == {0, 1, 2, 3}
    assert counts[1, ACCEPTED] == counts[3, ACCEPTED] == 0
    assert counts[0, REJECTED] > 3 * counts[0, ACCEPTED]
    assert counts[2, REJECTED] > 10


def test_false_claims_are_rejected_whatever_the_tree_says(tmp_path: Path) -> None:
    """A radius beyond a known counterexample, with the tree of an honest, smaller one, and with made-up trees."""
    head, x = random_head(np.random.default_rng(4), 3, (3,) * 2, bend=0.3), np.array([[0.4, 0.6]])
    path, chance = tmp_path / "proof.bin", np.random.default_rng(2)
    c = berncert.certify(head, x, proof=path)
    assert c.upper[0] < math.inf
    for _ in range(200):
        blocks = blocks_of(path)
        fields, arrays = blocks[1][1], blocks[1][2]
        fields["radius"] = (float(c.upper[0]) * float(chance.uniform(1.0001, 2))).hex()
        arrays["box"] = np.array([0.0, 0.0, 1.0, 1.0])
        if chance.random() < 0.8:
            arrays["tags"] = chance.choice([0, 1, 251, 252, 253, 254, 255], chance.integers(1, 30)).astype(np.uint8)
            arrays["hints"] = chance.normal(size=chance.integers(0, 60)).astype(np.float32)
        write(path.with_suffix(".false"), blocks)
        assert verdict(path.with_suffix(".false")) == REJECTED
