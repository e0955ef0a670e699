"""Figures 1 and 3 at toy size: estimates are counted correctly, the record holds all that tables and pictures show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiments.paper.boundary import __main__ as command
from experiments.paper.boundary.experiments import FIGURE1, FIGURE3
from experiments.paper.boundary.measure import classes, degrees
from experiments.paper.boundary.scene import AMOUNTS, Scene, read_network, write_network
from experiments.paper.boundary.tables import comparisons
from experiments.paper.work import Experiment, Work

import berncert

EXPERIMENTS = pytest.mark.parametrize("experiment", [FIGURE1, FIGURE3], ids=lambda experiment: experiment.name)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("records")
    work = Work("toy", out / "work")
    return {experiment.name: experiment.record(work, out) for experiment in (FIGURE1, FIGURE3)} | {"out": out}


def never(work: Work) -> dict[str, Any]:
    raise AssertionError("measured twice")


@EXPERIMENTS
def test_a_finished_record_is_not_measured_twice_and_comes_back_as_it_was(
    experiment: Experiment, records: dict[str, Any]
) -> None:
    out = records["out"]
    assert experiment._replace(measure=never).record(Work("toy", out / "work"), out) == records[experiment.name]


@EXPERIMENTS
def test_tables_and_picture_are_made_of_the_written_record_alone(
    experiment: Experiment, records: dict[str, Any], tmp_path: Path
) -> None:
    record = json.loads((records["out"] / f"{experiment.name}.json").read_text())
    sections = experiment.render(record, tmp_path)
    assert [section.cells for section in sections] == [s.cells for s in experiment.sections(records[experiment.name])]
    assert (tmp_path / f"{experiment.name}.png").stat().st_size > 1000
    assert f"![{experiment.title}]" in (tmp_path / f"{experiment.name}.md").read_text()


def test_brute_force_never_finds_another_class_within_a_radius(records: dict[str, Any]) -> None:
    for one in records["figure1"]["norms"]:
        for row in one["rows"]:
            if row["brute_force"] is not None:
                assert row["radius"] <= row["brute_force"] * (1 + 1e-9)
                assert row["radius"] <= row["upper"] <= row["brute_force"] * 1.01


def test_estimates_above_the_upper_bound_are_those_that_a_second_count_finds(records: dict[str, Any]) -> None:
    norms = records["figure1"]["norms"]
    for one in comparisons(norms):
        (rows,) = [each["rows"] for each in norms if each["norm"] == one.norm]
        upper = np.array([np.inf if row["upper"] is None else row["upper"] for row in rows])
        estimate = np.array([row["estimates"][one.solver] for row in rows], dtype=float)
        assert one.above == (estimate > upper).sum()
        assert one.points == len(rows)


def test_counts_of_a_record_made_by_hand() -> None:
    rows = [
        {"radius": 0.9, "upper": 1.0, "brute_force": 1.0, "estimates": {"lm": 2.0}},
        {"radius": 0.9, "upper": 1.0, "brute_force": 0.5, "estimates": {"lm": 4.0}},
        {"radius": 1.0, "upper": 1.0, "brute_force": 1.0, "estimates": {"lm": 1.0}},
        {"radius": 1.0, "upper": None, "brute_force": None, "estimates": {"lm": 9.0}},
        {"radius": 1.0, "upper": 1.0, "brute_force": 1.0, "estimates": {"lm": None}},
    ]
    (found,) = comparisons([{"norm": "2", "rows": rows}])
    assert (found.points, found.above, found.factor, found.below) == (5, 2, 3.0, 1)
    assert found.widest == pytest.approx(0.1)


def test_a_network_that_was_written_and_read_is_the_same_network() -> None:
    amounts = AMOUNTS["toy"]
    scene = Scene.of(3, amounts._replace(steps=5))
    again = read_network(json.loads(json.dumps(write_network(scene.network))))
    points = torch.from_numpy(scene.data[0])
    assert torch.equal(again(points), scene.network(points))


def test_the_recorded_network_has_the_recorded_accuracy_and_radii(records: dict[str, Any]) -> None:
    record = records["figure1"]
    smoothed = berncert.smooth(read_network(record["network"]), dim=2, degree=record["degree"])
    rows = record["norms"][0]["rows"]
    proven = berncert.certify(smoothed, np.array([row["point"] for row in rows]), norm=2)
    assert proven.radius == pytest.approx([row["radius"] for row in rows], rel=2e-3)
    correct = classes(read_network(record["network"]), np.array(record["points"])) == record["labels"]
    assert correct.mean() == pytest.approx(record["accuracy"]["training"], abs=0.03)  # points have four digits


def test_the_higher_the_degree_the_more_the_models_agree() -> None:
    amounts = AMOUNTS["toy"]._replace(degrees=(1, 64), tests=2)
    low, high = degrees(amounts, [Scene.of(0, amounts)])["rows"]
    assert high["agreement"] >= max(low["agreement"], 0.95)


def test_the_command_draws_both_figures_in_any_norm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--norm", "1", "--degree", "4", "--seed", "2", "--out", str(tmp_path)]
    assert command.main(words, AMOUNTS["toy"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {f"figure{n}.{end}" for n in (1, 3) for end in ("png", "svg")}
    assert "No brute-force distance is below a radius (6 points)." in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--norm", "0.5"], ["--degree", "65"], ["--seed", "-1"], ["--out", " "]])
def test_a_wrong_option_ends_with_a_message(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.main(words)
    assert end.value.code == 2
    assert "expected" in capsys.readouterr().err
