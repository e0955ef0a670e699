"""Proofs of affine heads, in any number of features: the closed form is the leaf of a tree of one box."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from berncert_check_files import blocks_of, write

import berncert
from berncert_check.bernstein import Sum, net_of
from berncert_check.checking import ACCEPTED, REJECTED, UNSUPPORTED, check_file

NORMS = (1.0, 4 / 3, 1.5, 2.0, 7 / 3, 3.0, math.inf)


def affine_head(classes: int, dim: int) -> berncert.SumHead:
    rng = np.random.default_rng(dim)
    return berncert.SumHead(
        torch.tensor(rng.normal(size=(classes, dim))), torch.tensor(0.1 * rng.normal(size=classes))
    )  # fmt: skip


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("classes", "dim"), [(3, 2), (5, 40)])
def test_the_closed_form_is_accepted_but_for_what_proofs_take_off(
    tmp_path: Path, classes: int, dim: int, norm: float
) -> None:
    head, x = affine_head(classes, dim), np.random.default_rng(0).random((3, dim))
    options = {"weights": np.linspace(0.5, 2, dim), "lower": np.clip(x - 0.3, 0, 1), "upper": np.maximum(x, 0.8)}
    for given in ({}, options):
        plain = berncert.certify(head, x, norm=norm, **given)
        c = berncert.certify(head, x, norm=norm, proof=tmp_path / "proof.bin", **given)
        found = list(check_file(tmp_path / "proof.bin"))
        assert {v.verdict for v in found} == {ACCEPTED}, [v.why for v in found]
        assert [math.inf if v.radius is None else float(v.radius) for v in found] == c.radius.tolist()
        np.testing.assert_allclose(c.radius, plain.radius, rtol=2.0**-12)


def test_more_features_than_tags_can_name_are_proven(tmp_path: Path) -> None:
    head, x = affine_head(2, 300), np.full((1, 300), 0.5)
    berncert.certify(head, x, proof=tmp_path / "proof.bin")
    (verdict,) = check_file(tmp_path / "proof.bin")
    assert verdict.verdict == ACCEPTED


def test_changed_weights_and_radii_are_rejected(tmp_path: Path) -> None:
    path, changed, chance = tmp_path / "proof.bin", tmp_path / "changed.bin", np.random.default_rng(1)
    c = berncert.certify(affine_head(3, 20), np.full((1, 20), 0.5), proof=path)
    for _ in range(60):
        blocks = blocks_of(path)
        blocks[1][1]["radius"] = (float(c.upper[0]) * float(chance.uniform(1.0001, 1.5))).hex()
        if chance.random() < 0.5:
            blocks[1][2]["hints"] *= np.float32(chance.uniform(0.9, 1.1))
        write(changed, blocks)
        (verdict,) = check_file(changed)
        assert verdict.verdict == REJECTED
    blocks = blocks_of(path)
    rival = blocks[1][1]["rival"]
    blocks[0][2]["bias"][rival] += 0.02
    write(changed, blocks)
    (verdict,) = check_file(changed)
    assert verdict.verdict == REJECTED


def test_another_kind_of_head_is_unsupported(tmp_path: Path) -> None:
    path = tmp_path / "other.bin"
    berncert.certify(affine_head(3, 5), np.full((1, 5), 0.5), proof=path)
    blocks = blocks_of(path)
    blocks[0][1]["head"] = "spline"
    write(path, blocks)
    (verdict,) = check_file(path)
    assert (verdict.verdict, verdict.why) == (UNSUPPORTED, "a head of kind 'spline'")


def test_an_affine_function_and_a_term_of_degree_1_are_the_same() -> None:
    """What both say of the same function on a box and its halves, of its least value and of a minorant."""
    weight, bias = [Fraction(3, 4), Fraction(-5, 8)], Fraction(1, 16)
    corners = [bias, bias + weight[1], bias + weight[0], bias + weight[0] + weight[1]]
    low, high = [Fraction(1, 8), Fraction(1, 4)], [Fraction(3, 4), Fraction(7, 8)]
    plane = Sum(bias + sum(weight) / 2, [w / 2 for w in weight], []).on(low, high)
    term = Sum(Fraction(0), [Fraction(0)] * 2, [((0, 1), net_of(corners, (2, 2)))]).on(low, high)
    for axis in (0, 1):
        for a, b in zip((plane, *plane.halves(axis)), (term, *term.halves(axis)), strict=True):
            assert a.least() == b.least()
            net, common = b.terms[0][1].less(a.slope, {})
            assert net.least() / common == a.middle  # nothing but the constant is left
