"""What must be known before curves are compared is reported."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from made_runs import make_run, make_table

from berncert.reporting.curves import accuracy_table, curves_of, warnings_about


def test_runs_on_the_same_images_need_no_note(tmp_path: Path) -> None:
    made = [make_run(tmp_path / name, [0.3, 0.2]) for name in "ab"]
    assert warnings_about(curves_of(map(str, made))) == []


def test_an_unfinished_run_is_reported_with_how_far_it_is(tmp_path: Path) -> None:
    curves = curves_of([str(make_run(tmp_path / "a", [1.0] * 3, images=8))])
    assert accuracy_table(curves, [0]).rows[0][2] == "3 of 8"
    (note,) = warnings_about(curves)
    assert note.startswith("a is not finished: 3 of 8 images")


def test_other_images_and_other_data_are_reported(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "all", [1.0] * 4),
        make_run(tmp_path / "some", [1.0] * 2, first=1),
        make_table(tmp_path / "cifar10" / "lone.tsv", [1.0]),
        make_table(tmp_path / "what.tsv", [1.0]),
    ]
    data, images, unclaimed = warnings_about(curves_of(map(str, runs)))
    assert data == "not all on the same data set (digits test: all, some; cifar10 test: lone; unknown: what)"
    assert images == "not all on the same images of digits test (all 4, some 2; 2 are in all)"
    assert unclaimed.startswith(
        "lone, what: a table without a record: it does not say what its radii claim, nor in which"
    )


def test_a_proof_that_an_attack_contradicts_is_reported(tmp_path: Path) -> None:
    proven = make_run(tmp_path / "proven", [0.5, 0.5, 0.8, 2.0], correct=[1, 1, 1, 0])
    attack = make_run(tmp_path / "attack", [0.5, math.inf, 0.75, 0.0], correct=[1, 1, 1, 0], claim="ATTACK")
    (note,) = warnings_about(curves_of([str(proven), str(attack)]))
    assert note.startswith("CONTRADICTION: attack broke 1 of the 4 images in both, idx 2 the first, within the radius")


def test_a_wrong_image_that_another_run_has_correct_is_a_contradiction(tmp_path: Path) -> None:
    proven = make_run(tmp_path / "proven", [0.5])
    attack = make_run(tmp_path / "attack", [0.0], correct=[0], claim="ATTACK")
    assert "CONTRADICTION" in warnings_about(curves_of([str(proven), str(attack)]))[0]


@pytest.mark.parametrize("change", [{"norm": 1}, {"data": "moons"}, {"settings": {"degree": 5}}, {"first": 1}])
def test_an_attack_on_something_else_contradicts_nothing(tmp_path: Path, change: dict[str, object]) -> None:
    proven = make_run(tmp_path / "proven", [0.5])
    attack = make_run(tmp_path / "attack", [0.1], claim="ATTACK", **change)  # type: ignore[arg-type]
    assert not any("CONTRADICTION" in note for note in warnings_about(curves_of([str(proven), str(attack)])))


def test_an_estimate_beyond_an_attack_is_reported_as_no_bound(tmp_path: Path) -> None:
    estimate = make_run(tmp_path / "estimate", [0.5, 2.0, 2.0], claim="ESTIMATE")
    attack = make_run(tmp_path / "attack", [1.0] * 3, claim="ATTACK")
    (note,) = warnings_about(curves_of([str(estimate), str(attack)]))
    assert note == "attack broke 2 of the 3 images in both within the estimate of estimate: it is no bound"


def test_a_classifier_that_is_constant_is_called_so(tmp_path: Path) -> None:
    constant = make_run(tmp_path / "constant", [math.inf] * 3)
    (note,) = warnings_about(curves_of([str(constant)]))
    assert note.startswith(
        "constant: every radius is inf because the smoothed classifier is constant, class 3: smoothing"
    )
    file = tmp_path / "constant" / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"table": {"constraints": {"fixed": [0, 1]}}}))
    (note,) = warnings_about(curves_of([str(tmp_path / "constant")]))
    assert "all changes that the constraints admit keep class 3" in note, "it may change its class elsewhere"
    two_classes = make_run(tmp_path / "two", [math.inf] * 3, correct=[1, 1, 0])  # of which only a box was asked about
    nearly = make_run(tmp_path / "nearly", [math.inf, math.inf, 9.0])
    stands = make_run(tmp_path / "stands", [math.inf] * 3, claim="ATTACK")
    for other in (two_classes, nearly, stands):
        assert warnings_about(curves_of([str(other)])) == []
