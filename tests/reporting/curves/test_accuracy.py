"""Tables of accuracy have the numbers of the definition, rounded to the safe side, in the words of their claims."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from made_runs import make_run, make_table

from berncert.reporting.curves import accuracy_table, common_norm, curves_of, default_radii, summary


def test_the_table_has_a_row_for_each_run_and_percents_at_each_radius(tmp_path: Path) -> None:
    proven = make_run(tmp_path / "proven", [0.5, 1.5, 2.0, 9.0], correct=[1, 1, 1, 0])
    attack = make_run(tmp_path / "attack", [0, 1.0, 2.0, math.inf], correct=[0, 1, 1, 1], claim="ATTACK")
    table = make_table(tmp_path / "cifar10" / "lone.tsv", [0.5, 0.0, 0.3], [3, -1, 4])
    grid = accuracy_table(curves_of(map(str, (proven, attack, table))), [0, 36 / 255, 1, 2])
    assert grid.headings == ["run", "claim", "images", "abstained", "mean\nradius", "r=0", "36/255", "1", "2"]
    assert grid.rows == [
        ["proven", "proven", "4", "-", "1", "75.0", "75.0", "50.0", "25.0"],
        ["attack", "attack", "4", "-", "-", "75.0", "75.0", "50.0", "25.0"],
        ["lone", "unknown claim", "3", "1", "0.166", "33.3", "33.3", "0.0", "0.0"],
    ]
    assert grid.title == "Accuracy in % at l2 radius r, in pixel units"
    assert [line.partition(":")[0] for line in grid.note.splitlines()] == ["proven", "unknown claim", "attack"]


@pytest.mark.parametrize(
    ("claim", "meaning"), [("ESTIMATE", "nothing is proven"), ("ATTACK", "no proof can go beyond")]
)
def test_what_is_not_certified_is_never_called_so(claim: str, meaning: str, tmp_path: Path) -> None:
    grid = accuracy_table(curves_of([str(make_run(tmp_path, [1.0], claim=claim))]), [0])
    assert "ertified" not in grid.title
    assert meaning in grid.note


def test_accuracy_is_certified_where_all_is_proven_or_probable(tmp_path: Path) -> None:
    words = [str(make_run(tmp_path / claim, [1.0], claim=claim)) for claim in ("PROVEN", "PROBABLE")]
    grid = accuracy_table(curves_of(words), [0])
    assert grid.title == "Certified accuracy in % at l2 radius r, in pixel units"


def test_more_than_a_thousand_images_get_two_decimals(tmp_path: Path) -> None:
    run = make_run(tmp_path, np.linspace(0, 1, 3000).tolist())
    assert accuracy_table(curves_of([str(run)]), [0.5]).rows[0][-1] == "50.00"


def test_percentages_are_to_the_nearest_halves_up_and_all_with_the_same_decimals(tmp_path: Path) -> None:
    radii = [1.0] * 49 + [0.0] * 351  # 12.25 %
    few, many = make_run(tmp_path / "few", radii), make_run(tmp_path / "many", radii * 3)
    assert accuracy_table(curves_of([str(few)]), [0.5]).rows[0][-1] == "12.3"
    assert [row[-1] for row in accuracy_table(curves_of([str(few), str(many)]), [0.5]).rows] == ["12.25", "12.25"]


@pytest.mark.parametrize("claim", ["PROVEN", "PROBABLE", "ESTIMATE"])
def test_a_mean_radius_is_never_rounded_up(tmp_path: Path, claim: str) -> None:
    curves = curves_of([str(make_run(tmp_path, [0.12399, 0.12399], claim=claim))])
    assert accuracy_table(curves, [0]).rows[0][-2] == "0.123"


def test_infinite_radii_count_at_every_radius_and_in_the_mean(tmp_path: Path) -> None:
    curves = curves_of([str(make_run(tmp_path, [math.inf, 1.0]))])
    assert accuracy_table(curves, [0, 1e300]).rows[0][3:] == ["inf", "100.0", "50.0"]
    assert summary(curves, [2])["curves"][0]["mean_radius"] == math.inf


def test_the_summary_has_full_precision(tmp_path: Path) -> None:
    made = summary(curves_of([str(make_run(tmp_path / "a", [1 / 3, 0.1, 0.2], norm=math.inf, images=4))]), [0.0, 0.15])
    assert made["norm"] == math.inf
    assert made["radii"] == [0.0, 0.15]
    (row,) = made["curves"]
    assert row["accuracy"] == [1.0, 2 / 3]
    assert row["mean_radius"] == pytest.approx((1 / 3 + 0.3) / 3, rel=1e-15)
    names = ("label", "path", "claim", "data", "images", "expected_images", "abstained")
    assert [row[name] for name in names] == ["a", str(tmp_path / "a"), "proven", "digits test", 3, 4, 0]


def test_runs_in_different_norms_are_refused(tmp_path: Path) -> None:
    curves = curves_of([str(make_run(tmp_path / "a", [1.0])), f"x={make_run(tmp_path / 'b', [1.0], norm=math.inf)}"])
    with pytest.raises(ValueError, match=r"expected runs in one norm, .* got l2 in a, linf in x; make one"):
        accuracy_table(curves, [0])
    assert common_norm(curves[1:]) == math.inf


def test_no_runs_no_radii_and_runs_without_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected at least one run"):
        accuracy_table([], [0])
    with pytest.raises(ValueError, match="expected at least one radius"):
        accuracy_table(curves_of([str(make_run(tmp_path / "a", [1.0]))]), [])
    empty = curves_of([str(make_run(tmp_path / "empty", [], images=5))])
    with pytest.raises(ValueError, match=r"expected a run with rows, got .*empty"):
        accuracy_table(empty, default_radii(empty))
