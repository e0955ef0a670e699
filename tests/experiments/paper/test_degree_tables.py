"""Rows of the paper's tables: laws that hold of any model, here of a toy one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from experiments.paper import EXPERIMENTS
from experiments.paper.degree_tables import TABLES, degree_row, measured, sections
from experiments.paper.subject import Subject, bend_of
from experiments.paper.work import Work

from berncert.attacks.methods import Pgd
from berncert.certification.methods import Exact

EPSILON = 0.02


@pytest.mark.parametrize("name", ["cifar10-paper", "cifar10-ours-d6"])
def test_no_row_proves_what_an_attack_refutes(toy: Work, name: str) -> None:
    subject = Subject(toy, name)
    row = degree_row(subject, 2, EPSILON)
    assert row["proven"] <= row["pgd"] <= row["natural"]
    attack = subject.run(Pgd(norm=math.inf, radii=(EPSILON,), loss="cross_entropy"), 2)
    proof = subject.run(Exact(norm=math.inf, max_seconds=2.0), 2)
    assert not (attack.correct & (proof.radius >= EPSILON) & (attack.radius <= EPSILON)).any()


def test_a_1_lipschitz_network_proves_more_in_pixels_than_the_papers_construction(toy: Work) -> None:
    theirs, ours = (degree_row(Subject(toy, name), 2, EPSILON) for name in ("cifar10-paper", "cifar10-ours-d6"))
    assert ours["mean_pixel_radius"] > 10 * theirs["mean_pixel_radius"]


def test_a_high_degree_agrees_with_the_base_head(toy: Work) -> None:
    subject = Subject(toy, "cifar10-plain-d3")
    base = subject.checkpoint.base
    assert base is not None
    classes = base.double()(torch.from_numpy(subject.features)).argmax(dim=1).numpy()
    close = subject.proven(24)
    margin = np.abs(close.radius) > 0.05  # not those next to the boundary, which moves a little
    assert margin.any()
    assert (close.predicted == classes)[margin].all()


def test_the_table_has_the_papers_figures_beside_its_construction_only(toy: Work) -> None:
    table = TABLES["table-svhn"]
    record = measured(table, toy)
    theirs, ours = sections(table, record)
    assert [row["degree"] for row in theirs.rows] == ["base", 1, 3]
    assert [row["paper_natural"] for row in theirs.rows] == [95.07, 78.31, 94.59]
    assert "paper_natural" not in ours.rows[0]
    assert theirs.rows[0]["proven"] is None, "a base head has no proof"
    assert [row["degree"] for row in ours.rows] == ["trained", "base", 1, 3]
    trained, base = ours.rows[:2]
    assert trained["natural"] == base["natural"], "they are the same function"
    assert trained["proven"] <= trained["pgd"]
    assert "The model itself is the row `trained`" in ours.note
    assert "trained" not in theirs.note


def test_a_head_that_does_not_bend_loses_nothing_at_any_degree(toy: Work) -> None:
    (weight,) = torch.randn(1, 4, 3, dtype=torch.float64)
    assert bend_of(lambda x: x @ weight.T, 3) == pytest.approx(0, abs=1e-12)
    assert bend_of(lambda x: (x @ weight.T).square(), 3) > 0.05
    record = EXPERIMENTS["bent-heads"].measure(toy)
    for row in record["rows"]:
        assert 0 <= row["bend"] <= 1
        assert all(0 <= share <= 1 for share in (row["base"], *row["degrees"].values()))
    (section,) = EXPERIMENTS["bent-heads"].sections(record)
    assert [row["head"] for row in section.rows] == [row["head"] for row in record["rows"]]
