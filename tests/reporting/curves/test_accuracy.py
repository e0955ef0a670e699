"""Curves: steps are those of the definition, tables have the published numbers, what cannot be compared is told."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run, make_table

from berncert.floor.claims import Claim
from berncert.reporting.curves.accuracy import (
    Curve,
    accuracy_table,
    common_norm,
    curves_of,
    default_radii,
    radii_of,
    radius_text,
    summary,
    warnings_about,
)
from berncert.runs.records import Run, read

RADII = st.sampled_from([0.0, 0.25, 0.5, 1.0, math.inf]) | st.floats(0, 3) | st.just(math.nan)
ROWS = st.lists(st.tuples(RADII, st.booleans()), min_size=1, max_size=30)


def run_of(rows: list[tuple[float, bool]], claim: Claim) -> Run:
    radii, right = zip(*rows, strict=True)
    about = {"claim": claim.name, "settings": {"norm": 2}, "data": {"name": "digits", "images": len(rows)}}
    name = "fallen_at" if claim is Claim.ATTACK else "radius"
    columns = {"idx": np.arange(len(rows)), name: np.array(radii), "correct": np.array(right).astype(int)}
    return Run(Path("run"), about, columns)


def at(curve: Curve, radius: float, end: float) -> float:
    """The share that the corners tell: at a drop the upper one for a certificate, the lower one for an attack."""
    radii, shares = curve.corners(end)
    if curve.claim is Claim.ATTACK:
        return float(shares[np.searchsorted(radii, radius, "right") - 1])
    return float(shares[np.searchsorted(radii, radius, "left")])


@given(rows=ROWS, claim=st.sampled_from(list(Claim)), end=st.floats(0.1, 4), part=st.floats(0, 1))
def test_the_corners_are_those_of_the_definition(
    rows: list[tuple[float, bool]], claim: Claim, end: float, part: float
) -> None:
    curve = Curve("run", run_of(rows, claim))
    drops = [radius for radius, _ in rows if radius <= end]
    for radius in (0.0, part * end, end, *drops):
        holds = [right and (r > radius if claim is Claim.ATTACK else r >= radius) for r, right in rows]
        assert at(curve, radius, end) == sum(holds) / len(rows) == curve.run.standing(radius)[0]


@given(rows=ROWS, claim=st.sampled_from(list(Claim)), end=st.floats(0.1, 4))
def test_corners_go_right_and_never_up(rows: list[tuple[float, bool]], claim: Claim, end: float) -> None:
    radii, shares = Curve("run", run_of(rows, claim)).corners(end)
    assert radii[0] == 0
    assert radii[-1] == end
    assert (np.diff(radii) >= 0).all()
    assert (np.diff(shares) <= 0).all()
    assert np.isfinite([radii, shares]).all()
    assert ((np.diff(radii) == 0) | (np.diff(shares) == 0)).all()  # steps: across or down


@given(rows=ROWS, share=st.floats(0, 0.99))
def test_more_than_the_share_hold_at_the_reach_and_no_more_beyond(rows: list[tuple[float, bool]], share: float) -> None:
    curve = Curve("run", run_of(rows, Claim.PROVEN))
    reach = curve.reach(share)
    later = [radius for radius in curve.holding if reach < radius < math.inf]
    assert reach == 0 or curve.run.standing(reach)[0] > share - 1e-12
    assert all(curve.run.standing(radius)[0] <= share + 1e-12 for radius in later)


@pytest.mark.parametrize(
    ("radii", "expected"),
    [
        ([0.457], [0, 0.1, 0.2, 0.3, 0.4]),
        ([0.978], [0, 0.25, 0.5, 0.75]),
        ([3.45], [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        ([0.09, 0.01], [0, 0.025, 0.05, 0.075]),
        ([500.0], [0, 100, 200, 300, 400, 500]),
        ([0.0], [0]),
        ([math.inf], [0, 1]),
        ([math.inf, 0.5], [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ([math.nan], [0]),
        ([1.0] * 200 + [50.0], [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_default_radii_are_round_and_end_where_the_curve_is_about_zero(
    radii: list[float], expected: list[float]
) -> None:
    assert default_radii([Curve("run", run_of([(radius, True) for radius in radii], Claim.PROVEN))]) == expected


@given(end=st.floats(1e-300, 1e308))
def test_default_radii_are_few_and_within_the_curve_whatever_its_size(end: float) -> None:
    radii = default_radii([Curve("run", run_of([(end, True)], Claim.PROVEN))])
    assert radii[0] == 0
    assert 2 <= len(radii) <= 7
    assert radii[-1] <= end
    assert sorted(set(radii)) == radii


def test_default_radii_of_attacks_alone_are_the_tried_ones(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.5, math.inf], claim="ATTACK", settings={"radii": [0.25, 0.5, 2]})
    assert default_radii(curves_of([str(run)])) == [0, 0.25, 0.5, 2]


def test_radii_are_read_as_decimals_and_fractions() -> None:
    assert radii_of("0, 36/255,0.5 ,1e-1,0.5,-0") == [0, 36 / 255, 0.5, 0.1]
    assert math.copysign(1, radii_of("-0")[0]) == 1


@pytest.mark.parametrize("word", ["", "-1", "nan", "inf", "x", "1/0", "1/2/3", "1e999", "-1/2", "1/", "/2", "1/inf/"])
def test_what_is_no_radius_is_told(word: str) -> None:
    for text in (word, f"0,{word}"):
        with pytest.raises(ValueError, match=r"expected radii >= 0, .* got ") as told:
            radii_of(text)
        assert repr(word) in str(told.value)


@given(part=st.floats(0, 3), bottom=st.sampled_from([3, 7, 85, 255]))
def test_a_fraction_is_told_as_one_that_has_its_value(part: float, bottom: int) -> None:
    top = round(part * bottom)
    text = radius_text(top / bottom)
    assert len(text) <= 7
    assert float(Fraction(text)) == top / bottom


def test_radii_are_told_shortly() -> None:
    assert [radius_text(x) for x in (0, 0.5, 36 / 255, 1 / 3, 0.1416, 1 / math.pi, 2.0)] == [
        "0", "0.5", "36/255", "1/3", "0.1416", "0.31831", "2",
    ]  # fmt: skip


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
    told = ("label", "path", "claim", "data", "images", "expected_images", "abstained")
    assert [row[key] for key in told] == ["a", str(tmp_path / "a"), "proven", "digits test", 3, 4, 0]


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


def test_runs_on_the_same_images_need_no_note(tmp_path: Path) -> None:
    made = [make_run(tmp_path / name, [0.3, 0.2]) for name in "ab"]
    assert warnings_about(curves_of(map(str, made))) == []


def test_an_unfinished_run_is_told_with_how_far_it_is(tmp_path: Path) -> None:
    curves = curves_of([str(make_run(tmp_path / "a", [1.0] * 3, images=8))])
    assert accuracy_table(curves, [0]).rows[0][2] == "3 of 8"
    (note,) = warnings_about(curves)
    assert note.startswith("a is not finished: 3 of 8 images")


def test_other_images_and_other_data_are_told(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "all", [1.0] * 4),
        make_run(tmp_path / "some", [1.0] * 2, first=1),
        make_table(tmp_path / "cifar10" / "lone.tsv", [1.0]),
        make_table(tmp_path / "what.tsv", [1.0]),
    ]
    data, images, unclaimed = warnings_about(curves_of(map(str, runs)))
    assert data == "not all on the same data set (digits test: all, some; cifar10 test: lone; not told: what)"
    assert images == "not all on the same images of digits test (all 4, some 2; 2 are in all)"
    assert unclaimed.startswith(
        "lone, what: a table without a record: it does not say what its radii claim, nor in which"
    )


def test_a_proof_that_an_attack_contradicts_is_told(tmp_path: Path) -> None:
    proven = make_run(tmp_path / "proven", [0.5, 0.5, 0.8, 2.0], correct=[1, 1, 1, 0])
    attack = make_run(tmp_path / "attack", [0.5, math.inf, 0.75, 0.0], correct=[1, 1, 1, 0], claim="ATTACK")
    (note,) = warnings_about(curves_of([str(proven), str(attack)]))
    assert note.startswith("CONTRADICTION: attack broke 1 of the 4 images in both, idx 2 the first, within the radius")


def test_a_wrong_image_that_another_run_has_right_is_a_contradiction(tmp_path: Path) -> None:
    proven = make_run(tmp_path / "proven", [0.5])
    attack = make_run(tmp_path / "attack", [0.0], correct=[0], claim="ATTACK")
    assert "CONTRADICTION" in warnings_about(curves_of([str(proven), str(attack)]))[0]


@pytest.mark.parametrize("change", [{"norm": 1}, {"data": "moons"}, {"settings": {"degree": 5}}, {"first": 1}])
def test_an_attack_on_something_else_contradicts_nothing(tmp_path: Path, change: dict[str, object]) -> None:
    proven = make_run(tmp_path / "proven", [0.5])
    attack = make_run(tmp_path / "attack", [0.1], claim="ATTACK", **change)  # type: ignore[arg-type]
    assert not any("CONTRADICTION" in note for note in warnings_about(curves_of([str(proven), str(attack)])))


def test_an_estimate_beyond_an_attack_is_told_to_be_no_bound(tmp_path: Path) -> None:
    estimate = make_run(tmp_path / "estimate", [0.5, 2.0, 2.0], claim="ESTIMATE")
    attack = make_run(tmp_path / "attack", [1.0] * 3, claim="ATTACK")
    (note,) = warnings_about(curves_of([str(estimate), str(attack)]))
    assert note == "attack broke 2 of the 3 images in both within the estimate of estimate: it is no bound"


PUBLISHED = Path(os.environ.get("BERNCERT_DATA", ""), "published")
README = PUBLISHED / "README.md"
LINES = [line for line in README.read_text("utf-8").splitlines() if line.count("|") == 9] if README.is_file() else []


@pytest.mark.skipif(not LINES, reason="no published certificates in the folder that BERNCERT_DATA names")
def test_the_published_accuracies_are_found_again() -> None:
    told = {
        cells[1].strip(" `"): cells[2:-1]
        for line in LINES
        if (cells := line.split("|"))[1].strip(" `").endswith(".tsv")
    }
    assert len(told) == 15
    for name, (*shares, abstained, largest) in told.items():
        run = read(PUBLISHED / name)
        curve = Curve(name, run)
        assert [f"{share:.3f}" for share in run.standing([0, 0.25, 0.5, 0.75, 1])] == [x.strip() for x in shares]
        assert f"{run.abstained.sum()}/{len(run)}" == abstained.strip()
        assert run.radius.max() == pytest.approx(float(largest), rel=6e-3)
        assert curve.data == "cifar10 test"
        assert [f"{at(curve, r, 4.0):.3f}" for r in (0, 0.25, 0.5, 0.75, 1)] == [x.strip() for x in shares]


@pytest.mark.skipif(not LINES, reason="no published certificates in the folder that BERNCERT_DATA names")
def test_published_names_stand_for_their_files() -> None:
    curves = curves_of(["cohen2019", "cohen2019:.5", "new=salman2019:1"])
    labels = [f"Cohen 2019, sigma {noise}" for noise in ("0.12", "0.25", "0.50", "1.00", "0.50 (2)")]
    assert [curve.label for curve in curves] == [*labels, "new"]
    assert [f"{curve.run.standing(0.25)[0]:.3f}" for curve in curves] == [
        "0.586", "0.600", "0.546", "0.392", "0.546", "0.422",
    ]  # fmt: skip
