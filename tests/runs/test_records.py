"""A run on disk: read back as it was written, mended after a kill, never mixed with another."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berncert.certification.status import STATUSES, Claim, Status
from berncert.runs import table
from berncert.runs.records import RUN, Run, read
from berncert.runs.rows import FIRST
from berncert.runs.table import open_table, text_lines

INDICES = np.array([0, 20, 40, 60])
COLUMNS = (*FIRST, "status", "upper", "witness")


def about(**changes: Any) -> dict[str, Any]:
    told = {
        "format": "berncert run 1",
        "kind": "certify",
        "method": "exact",
        "claim": "PROVEN",
        "settings": {"norm": 2.0, "tolerance": 0.001},
        "model": {"sha256": "m"},
        "data": {"images": len(INDICES), "sha256": "d"},
        "versions": {"berncert": "0"},
        "origin": {"command": "berncert certify"},
    }
    return told | changes


def row(idx: int, **changes: Any) -> dict[str, Any]:
    cells = {
        "idx": idx, "label": 3, "predict": 3, "radius": 0.1 + 0.2, "correct": True,
        "time": timedelta(seconds=0.25), "status": "PROVEN", "upper": math.inf, "witness": np.array([0.1, 1 / 3]),
    }  # fmt: skip
    return cells | changes


def written(folder: Path, rows: list[Mapping[str, Any]], **changes: Any) -> Run:
    folder.mkdir(exist_ok=True)
    open_table(folder, about(**changes), COLUMNS, INDICES).append(text_lines(COLUMNS, rows))
    return read(folder)


def test_rows_are_read_back_to_the_last_bit(tmp_path: Path) -> None:
    tiny = 5e-324
    run = written(
        tmp_path, [row(0), row(20, radius=tiny, predict=4, correct=False), row(40, radius=1 / 3, predict=-1, correct=0)]
    )
    assert run.rows["idx"].tolist() == [0, 20, 40]
    assert run.radius.tolist() == [0.1 + 0.2, tiny, 1 / 3]
    assert run.correct.tolist() == [True, False, False]
    assert run.abstained.tolist() == [False, False, True]
    assert run.rows["upper"].tolist() == [math.inf] * 3
    assert run.vectors("witness").tolist() == [[0.1, 1 / 3]] * 3
    assert run.rows["time"].tolist() == [0.25] * 3
    assert (run.claim, run.norm, run.complete) == (Claim.PROVEN, 2.0, False)


def test_the_first_columns_are_those_of_the_field_and_its_script_reads_them(tmp_path: Path) -> None:
    written(tmp_path, [row(0), row(20, radius=0.5, predict=1, correct=False)])
    with (tmp_path / "certificates.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [*rows[0]][:6] == ["idx", "label", "predict", "radius", "correct", "time"]
    # ApproximateAccuracy.at_radii of Cohen et al.
    accuracy = np.mean([float(r["correct"]) * (float(r["radius"]) >= 0.25) for r in rows])
    assert accuracy == 0.5
    assert rows[0]["time"] == "0:00:00.250000"


def test_a_published_table_is_a_run_without_a_record(tmp_path: Path) -> None:
    lines = ["\t".join(FIRST), "0\t3\t3\t0.978\t1\t0:00:15.4", "20\t7\t-1\t0.0\t0\t1 day, 0:00:01.5"]
    (tmp_path / "sigma_0.25.tsv").write_text("\n".join(lines))  # no newline at its end
    run = read(tmp_path / "sigma_0.25.tsv")
    assert len(run) == 2
    assert (run.claim, run.complete, run.label) == (Claim.UNKNOWN, True, "sigma_0.25")
    assert read(run.path, claim=Claim.PROBABLE).claim is Claim.PROBABLE
    assert run.rows["time"].tolist() == [15.4, 86401.5]
    assert run.standing([0, 0.978, 0.98]).tolist() == [0.5, 0.5, 0.0]
    assert run.mean_radius == 0.489


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 4)), min_size=1, max_size=30),
    st.lists(st.floats(0, 5), min_size=1, max_size=10),
)
def test_standing_is_the_share_that_is_right_and_holds_and_never_rises(
    rows: list[tuple[bool, float]], radii: list[float]
) -> None:
    right, radius = np.array([r for r, _ in rows]), np.array([r for _, r in rows])
    run = Run(Path("x"), {}, {"idx": np.arange(len(rows)), "correct": right.astype(int), "radius": radius})
    expected = [sum(r and value >= at for r, value in rows) / len(rows) for at in sorted(radii)]
    assert run.standing(sorted(radii)).tolist() == pytest.approx(expected)
    assert (np.diff(run.standing(sorted(radii))) <= 0).all()


def test_an_attack_limits_every_radius_from_above() -> None:
    rows = {"idx": np.arange(4), "correct": np.array([0, 1, 1, 1]), "fallen_at": np.array([0.0, 0.5, 1.0, math.inf])}
    run = Run(Path("x"), about(claim="ATTACK", kind="attack"), rows)
    assert run.standing([0, 0.49, 0.5, 0.99, 1.0, 9.0]).tolist() == [0.75, 0.75, 0.5, 0.5, 0.25, 0.25]


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_line_that_was_not_written_to_its_end_is_written_again(tmp_path: Path, cut: int) -> None:
    rows = [row(int(i)) for i in INDICES]
    whole = tmp_path / "whole"
    written(whole, rows)
    folder = tmp_path / "cut"
    written(folder, rows[:3])
    path = folder / "certificates.tsv"
    os.truncate(path, path.stat().st_size - cut)
    (folder / ".certificates.tsv.partial").write_text("left over")
    assert len(read(folder)) == 2  # who looks at it now sees whole rows only
    table = open_table(folder, about(), COLUMNS, INDICES)
    assert table.done == 2
    table.append(text_lines(COLUMNS, rows[2:]))
    assert path.read_bytes() == (whole / "certificates.tsv").read_bytes()
    assert sorted(p.name for p in folder.iterdir()) == ["certificates.tsv", RUN]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"norm": 1.0, "tolerance": 0.001}}, r"settings\.norm \(2\.0 there, 1\.0 here\)"),
        ({"model": {"sha256": "other"}}, r"model\.sha256"),
        ({"data": {"images": 4, "sha256": "other"}}, r"data\.sha256"),
        ({"versions": {"berncert": "1"}}, r"versions\.berncert"),
        ({"kind": "attack"}, "kind"),
        ({"claim": "ESTIMATE"}, "claim"),
        ({"method": "estimate"}, "method"),
    ],
)
def test_a_folder_of_another_run_is_refused_and_kept(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    written(tmp_path, [row(0)])
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=f"expected a new folder or one of the same run.*{message}"):
        open_table(tmp_path, about(**changes), COLUMNS, INDICES)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_where_a_run_comes_from_does_not_decide(tmp_path: Path) -> None:
    written(tmp_path, [row(0)])
    assert open_table(tmp_path, about(origin={"command": "another"}), COLUMNS, INDICES).done == 1
    assert json.loads((tmp_path / RUN).read_text("utf-8"))["origin"] == {"command": "berncert certify"}


def test_infinity_is_told_in_json_that_every_reader_takes(tmp_path: Path) -> None:
    run = written(tmp_path, [row(0)], settings={"norm": math.inf})
    told = json.loads((tmp_path / RUN).read_text("utf-8"), parse_constant=lambda word: pytest.fail(word))
    assert told["settings"]["norm"] == "inf"
    assert run.norm == math.inf


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "without idx, label"),
        (b"idx\tlabel\n", "without predict, radius, correct, time"),
        (b"idx\tlabel\tpredict\tradius\tcorrect\ttime\n1\t2\n", "expected 6 columns in line 2 of .*, got 2"),
        (b"idx\tlabel\tpredict\tradius\tcorrect\ttime\n1\t2\t3\tx\t1\t1\n", "column radius has something else"),
        (b"\xff\xfe\x00", "which is no text"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.tsv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "x.tsv")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "berncert run 9", "kind": "certify"}', "{"])
def test_what_is_no_record_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / RUN).write_text(content)
    with pytest.raises(ValueError, match="expected the record of a run"):
        read(tmp_path)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="which is not there"):
        read(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"it has no run\.json"):
        read(tmp_path)
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(ValueError, match="it is a training's folder"):
        read(tmp_path)


def test_rows_of_other_images_are_not_gone_on_with(tmp_path: Path) -> None:
    written(tmp_path, [row(0)])
    path = tmp_path / "certificates.tsv"
    path.write_text(path.read_text("utf-8").replace("\n0\t", "\n1\t"))
    with pytest.raises(ValueError, match="expected the rows of this run"):
        open_table(tmp_path, about(), COLUMNS, INDICES)
    (tmp_path / RUN).unlink()
    with pytest.raises(ValueError, match=r"it has certificates\.tsv but no run\.json"):
        open_table(tmp_path, about(), COLUMNS, INDICES)


def test_a_full_disk_is_told_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"expected room for .* bytes in .*No space left on device; no work was done"):
        open_table(tmp_path, about(), COLUMNS, INDICES, more=lambda: pytest.fail("work"))
    assert not [*tmp_path.iterdir()]


def test_rows_before_a_disk_is_full_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(tmp_path, about(), COLUMNS, INDICES)
    table.append(text_lines(COLUMNS, [row(0)]))

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="the 1 rows before are kept, the same command resumes from there"):
        table.append(text_lines(COLUMNS, [row(20)]))
    with pytest.raises(OSError, match="no work was done"):
        open_table(tmp_path, about(), COLUMNS, INDICES)  # room for the missing rows is tried too


@pytest.mark.parametrize("count", [1, 40])
def test_room_is_tried_for_all_numbers_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    asked: list[int] = []
    monkeypatch.setattr(table, "_try_room", lambda path, size: asked.append(size))
    opened = open_table(tmp_path, about(), COLUMNS, INDICES, numbers_per_row=len(COLUMNS) + count)
    rows = [row(int(i), witness=-np.random.default_rng(0).random(count) * 1e-100) for i in INDICES]
    opened.append(text_lines(COLUMNS, rows))
    assert asked[0] >= (tmp_path / "certificates.tsv").stat().st_size - 200  # the header aside


def test_one_feature_is_a_vector_too(tmp_path: Path) -> None:
    run = written(tmp_path, [row(0, witness=np.array([0.25])), row(20, witness=np.array([math.nan]))])
    assert run.vectors("witness").shape == (2, 1)
    assert run.vectors("witness")[0, 0] == 0.25


def test_a_run_without_rows_says_so(tmp_path: Path) -> None:
    run = written(tmp_path, [])
    for ask in (lambda: run.standing([0]), lambda: run.mean_radius):
        with pytest.raises(ValueError, match="which has none yet; run its command again"):
            ask()


def test_the_statuses_of_a_proof_are_those_that_there_are() -> None:
    assert STATUSES[Claim.PROVEN] == tuple(status.name for status in Status)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.30000000000000004", "nan", "a radius that is no number, or below 0, in line 2"),
        ("0.30000000000000004", "-1.0", "a radius that is no number, or below 0"),
        ("\t3\t3\t", "\t3\t4\t", "another correct than predict and label say"),
        ("\t1\t0:00", "\t7\t0:00", "another correct than predict and label say"),
        ("PROVEN", "ESTIMATE", "a status that proven rows do not have"),
        ("\n20\t", "\n0\t", "an idx that is not above the one before, in line 3"),
        ("\n20\t", "\n99999999999999999999\t", "column idx has something else"),
    ],
)
def test_rows_that_no_run_writes_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    written(tmp_path, [row(0), row(20)])
    path = tmp_path / "certificates.tsv"
    path.write_text(path.read_text("utf-8").replace(old, new))
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_more_rows_than_images_are_refused(tmp_path: Path) -> None:
    written(tmp_path, [row(0), row(20)])
    (tmp_path / RUN).write_text(json.dumps(about(data={"images": 1})))
    with pytest.raises(ValueError, match=r"expected at most 1 rows in .*, got 2"):
        read(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"claim": "CERTAIN"}, {"claim": "ATTACK"}, {"claim": None}, {"kind": ["certify"]}, {"kind": "guess"},
        {"settings": None}, {"settings": {}}, {"settings": {"norm": "abc"}}, {"settings": {"norm": 0.5}},
        {"data": {}}, {"data": {"images": None}}, {"data": 3},
    ],
)  # fmt: skip
def test_a_record_that_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    written(tmp_path, [row(0)])
    (tmp_path / RUN).write_text(json.dumps(about(**changes)))
    with pytest.raises(ValueError, match=r"expected kind, claim, settings\.norm and data\.images in"):
        read(tmp_path)


def test_a_record_nested_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / RUN).write_text("[" * 100_000)
    with pytest.raises(ValueError, match="expected the record of a run"):
        read(tmp_path)


def test_one_long_cell_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["\t".join((*FIRST, "remark")), *(f"{k}\t3\t3\t0.5\t1\t0:00:01\t-" for k in range(1000))]
    (tmp_path / "bomb.tsv").write_text("\n".join(lines) + "x" * 100_000)
    monkeypatch.setenv("BERNCERT_MAX_GIB", "0.1")
    with pytest.raises(ValueError, match=r"bomb\.tsv: expected column remark to unpack to at most 0\.1 GiB, got more"):
        _ = read(tmp_path / "bomb.tsv").rows["remark"]  # the rest of the table is as good as ever
    assert len(read(tmp_path / "bomb.tsv")) == 1000
    (tmp_path / "bomb.tsv").write_text("\n".join(lines))
    assert read(tmp_path / "bomb.tsv").rows["remark"].tolist() == ["-"] * 1000


def test_a_column_that_is_text_in_its_last_part_is_text_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berncert.runs.rows.ROWS_AT_ONCE", 2)
    cells = {
        "whole": "7 8 9 10 11",
        "number": "007 8 9.5 1e3 11",
        "text": "007 8 9 x 11",
        "long": f"1 2 3 4 {'y' * 99}",
    }
    columns = [text.split() for text in cells.values()]
    lines = [f"{k}\t3\t3\t0.5\t1\t0:00:01\t" + "\t".join(row) for k, row in enumerate(zip(*columns, strict=True))]
    (tmp_path / "mixed.tsv").write_text("\n".join(["\t".join((*FIRST, *cells)), *lines]) + "\n")
    rows = read(tmp_path / "mixed.tsv").rows
    assert rows["whole"].tolist() == [7, 8, 9, 10, 11]
    assert rows["number"].tolist() == [7.0, 8.0, 9.5, 1000.0, 11.0]
    assert rows["text"].tolist() == ["007", "8", "9", "x", "11"]
    assert rows["long"].tolist() == ["1", "2", "3", "4", "y" * 99]
    assert list(rows) == [*FIRST, *cells]
    with pytest.raises(KeyError):
        rows["other"]


def test_rows_that_come_later_do_not_lengthen_vectors_of_a_run_that_was_read(tmp_path: Path) -> None:
    witness = np.linspace(0, 1, 9) / 3
    run = written(tmp_path, [row(0, witness=witness)])
    open_table(tmp_path, about(), COLUMNS, INDICES).append(text_lines(COLUMNS, [row(20, witness=witness)]))
    assert len(run) == 1
    assert run.vectors("witness").tolist() == [witness.tolist()]
