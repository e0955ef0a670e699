"""Curves never rise, proofs stay below attacks, and refuted estimates are counted image by image."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from experiments.paper import EXPERIMENTS
from experiments.paper.curves import ATTACKED, PAPER_DEGREE, RADII, refuted
from experiments.paper.subject import Subject
from experiments.paper.work import Work

from berncert.attacks.methods import Pgd


@pytest.mark.parametrize("name", ["figure4", "figure5", "figure6", "figure8", "figure9", "figure10"])
def test_curves_never_rise_and_the_tables_and_the_picture_are_made_of_the_record(
    toy: Work, tmp_path: Path, name: str
) -> None:
    experiment = EXPERIMENTS[name]
    record = experiment.record(toy, tmp_path)
    for panel in record["panels"]:
        for line in panel["curves"]:
            assert (np.diff(line["accuracy"]) <= 0).all()
            assert len(line["accuracy"]) == len(line.get("radii", RADII))
    written = json.loads((tmp_path / f"{name}.json").read_text())
    experiment.render(written, tmp_path)
    page = (tmp_path / f"{name}.md").read_text()
    assert page.startswith(f"# {experiment.title}\n")
    assert all(panel["title"] in page for panel in record["panels"])
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_estimates_that_are_refuted_are_counted_right(toy: Work) -> None:
    subject = Subject(toy, "cifar10-paper")
    counted = refuted(subject, PAPER_DEGREE)
    estimate, upper = subject.estimated(PAPER_DEGREE), subject.proven(PAPER_DEGREE).upper
    fallen = subject.run(Pgd(norm=2.0, radii=ATTACKED), PAPER_DEGREE)
    assert counted["estimate_above_upper"] == sum(e > u for e, u in zip(estimate, upper, strict=True))
    refutations = [ok and e > at for ok, e, at in zip(fallen.correct, estimate, fallen.radius, strict=True)]
    assert counted["estimate_above_attack"] == sum(refutations)
    assert counted["proven_above_attack"] == 0
    assert counted["images"] == len(estimate)
    assert counted["correct"] > 0, "otherwise nothing was counted"


def test_a_record_is_not_measured_twice(toy: Work, tmp_path: Path) -> None:
    experiment = EXPERIMENTS["figure10"]
    first = experiment.record(toy, tmp_path)
    unable = experiment._replace(measure=lambda work: pytest.fail("measured again"))
    assert unable.record(toy, tmp_path) == json.loads(json.dumps(first))
    other = Work("small", toy.folder, None, toy.plan)
    with pytest.raises(ValueError, match="expected a record of the small size"):
        unable.record(other, tmp_path)
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        unable.record(toy, tmp_path, again=True)
