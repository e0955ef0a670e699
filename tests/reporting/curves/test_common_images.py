"""Curves on the images that all runs have: no proof is above an attack for want of images, and it is said."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import HEADER, make_run, make_table

from berncert.certification.status import Claim
from berncert.reporting.curves import Curve, curves_of, on_common_images, warnings_about
from berncert.reporting.curves.common_images import ENOUGH, image_keys, same_data
from berncert.runs.records import Run

CHOSEN = st.lists(st.sets(st.integers(0, 30), min_size=1), min_size=1, max_size=5)


def run_over(numbers: set[int], claim: Claim, truth: dict[int, float], data: str = "digits") -> Run:
    """A run over these images, as true as can be: the attack finds the truth, the proof half of it."""
    idx = np.array(sorted(numbers))
    name, part = ("fallen_at", 1.0) if claim is Claim.ATTACK else ("radius", 0.5)
    radii = np.array([part * truth[number] for number in idx.tolist()])
    about = {"claim": claim.name, "settings": {"norm": 2}, "data": {"name": data, "split": "test", "images": len(idx)}}
    zeros = np.zeros_like(idx)
    return Run(
        Path(claim.name), about, {"idx": idx, "label": zeros, "predict": zeros, name: radii, "correct": zeros + 1}
    )


@given(chosen=CHOSEN, seed=st.integers(0, 100))
def test_on_common_images_no_proof_is_above_an_attack(chosen: list[set[int]], seed: int) -> None:
    truth = dict(enumerate(np.random.default_rng(seed).uniform(0.1, 1, 31).tolist()))
    claims = [Claim.ATTACK if k % 2 else Claim.PROVEN for k in range(len(chosen))]
    curves = [
        Curve(str(k), run_over(numbers, claim, truth))
        for k, (numbers, claim) in enumerate(zip(chosen, claims, strict=True))
    ]
    matched, notes = on_common_images(curves)
    shared = set.intersection(*chosen)
    assert all(matched[k].whole_run is curves[k].run for k in range(len(curves)))
    if not shared:
        assert not notes
        assert all(after.run is before.run for after, before in zip(matched, curves, strict=True))
        return
    assert all({idx for idx, _ in image_keys(curve.run)} == shared for curve in matched)
    assert bool(notes) == any(numbers != shared for numbers in chosen)
    for radius in np.linspace(0, 1, 11):
        proven = [curve.run.standing(radius)[0] for curve in matched if curve.claim is Claim.PROVEN]
        attacked = [curve.run.standing(radius)[0] for curve in matched if curve.claim is Claim.ATTACK]
        assert max(proven, default=0) <= min(attacked, default=1)


def test_without_a_common_image_each_run_is_on_its_own_and_that_is_said(tmp_path: Path) -> None:
    curves = curves_of([str(make_run(tmp_path / name, [1.0] * 2, first=first)) for name, first in (("a", 0), ("b", 5))])
    matched, notes = on_common_images(curves)
    assert [len(curve.run) for curve in matched] == [2, 2]
    assert notes == []
    assert warnings_about(matched) == ["not all on the same images of digits test (a 2, b 2; 0 are in all)"]


def test_runs_over_different_data_are_matched_among_their_like(tmp_path: Path) -> None:
    sizes = {"a": ("mnist", 4), "b": ("mnist", 3), "c": ("moons", 5), "d": ("moons", 2)}
    curves = curves_of([str(make_run(tmp_path / k, [1.0] * n, data=data)) for k, (data, n) in sizes.items()])
    matched, notes = on_common_images(curves)
    assert [len(curve.run) for curve in matched] == [3, 3, 2, 2]
    assert notes == [
        "compared on the 3 images of mnist test that are in all runs (a 4, b 3)",
        "compared on the 2 images of moons test that are in all runs (c 5, d 2)",
    ]
    assert warnings_about(matched) == ["not all on the same data set (mnist test: a, b; moons test: c, d)"]


def test_a_run_without_rows_does_not_empty_the_others(tmp_path: Path) -> None:
    curves = curves_of([str(make_run(tmp_path / "a", [1.0] * 3)), str(make_run(tmp_path / "b", [], images=3))])
    assert [len(curve.run) for curve in on_common_images(curves)[0]] == [3, 0]


def test_a_contradiction_is_found_on_images_that_a_third_run_lacks(tmp_path: Path) -> None:
    proven, attack = make_run(tmp_path / "p", [0.5] * 3), make_run(tmp_path / "a", [0.1, 1.0, 1.0], claim="ATTACK")
    third = make_run(tmp_path / "third", [1.0], first=2)
    matched, _ = on_common_images(curves_of(map(str, (proven, attack, third))))
    assert [len(curve.run) for curve in matched] == [1, 1, 1]
    assert warnings_about(matched)[0].startswith("CONTRADICTION: a broke 1 of the 3 images in both")


def test_an_unfinished_run_is_reported_with_all_of_its_rows(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", [1.0] * 3, images=8), make_run(tmp_path / "b", [1.0] * 2)]
    matched, _ = on_common_images(curves_of(map(str, runs)))
    assert warnings_about(matched) == ["a is not finished: 3 of 8 images; its command, run again, resumes it"]


def table(path: Path, labels: list[int]) -> str:
    path.write_text("\n".join([HEADER, *(f"{k}\t{label}\t{label}\t0.5\t1\t0:01" for k, label in enumerate(labels))]))
    return str(path)


@pytest.mark.parametrize(
    ("labels", "joined"),
    [
        ([k % 3 for k in range(ENOUGH)], True),
        ([k % 3 for k in range(ENOUGH - 1)], False),
        ([0] + [k % 3 for k in range(1, ENOUGH)] + [7], False),
        ([k % 2 for k in range(ENOUGH)], False),
    ],
)
def test_a_table_that_does_not_say_its_data_goes_where_its_labels_agree(
    labels: list[int], joined: bool, tmp_path: Path
) -> None:
    curve = curves_of([table(tmp_path / "theirs.tsv", labels)])[0]
    idx, truth = np.arange(20), np.arange(20) % 3
    about = {"claim": "PROVEN", "settings": {"norm": 2}, "data": {"name": "digits", "split": "test", "images": 20}}
    rows = {"idx": idx, "label": truth, "predict": truth, "radius": idx * 0.1, "correct": np.ones_like(idx)}
    ours = Curve("ours", Run(tmp_path, about, rows))
    assert same_data([curve, ours]) == ([[0, 1]] if joined else [[0], [1]])
    matched, notes = on_common_images([curve, ours])
    assert len(matched[1].run) == (ENOUGH if joined else 20)
    said = "theirs taken to be of digits test: it does not say so, but its labels agree"
    assert (said in warnings_about(matched)) == bool(notes) == joined


def test_parts_of_data_that_was_divided_count_in_the_same_numbers(tmp_path: Path) -> None:
    curves = []
    for split, numbers in {"test": [1, 4], "all": [0, 1, 2, 3, 4], "train": [0, 2, 3]}.items():
        recorded = {"name": "./mine", "split": split, "images": len(numbers), "division": {"images": 5}}
        ones = np.ones(len(numbers), dtype=int)
        rows = {"idx": np.array(numbers), "label": ones, "predict": ones, "radius": ones * 0.5, "correct": ones}
        about = {"claim": "PROVEN", "settings": {"norm": 2}, "data": recorded}
        curves.append(Curve(split, Run(tmp_path, about, rows)))
    matched, notes = on_common_images(curves[:2])
    assert [len(curve.run) for curve in matched] == [2, 2]
    assert len(notes) == 1
    assert [note.partition("(")[2] for note in warnings_about(curves[::2])] == ["test 2, train 3; 0 are in all)"]


def test_a_lone_table_in_a_folder_of_the_field_is_matched_by_its_name(tmp_path: Path) -> None:
    lone = make_table(tmp_path / "cifar10" / "lone.tsv", [1.0] * 3)
    run = make_run(tmp_path / "run", [math.inf] * 2, data="cifar10")
    matched, _ = on_common_images(curves_of([str(lone), str(run)]))
    assert [len(curve.run) for curve in matched] == [2, 2]
