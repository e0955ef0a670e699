"""Runs with proofs: a file beside the table, resumed with it, from any engine, checked by folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from berncert_check_files import blocks_of, write

from berncert.certification.methods import Exact
from berncert.certification.proof_file import ProofFile, block
from berncert.runs.execute import execute
from berncert.runs.settings import RunSettings
from berncert.runs.table_settings import TableSettings
from berncert.runs.tables import execute_table
from berncert_check.__main__ import main
from berncert_check.checking import ACCEPTED, REJECTED
from berncert_check.run import check_run

SETTINGS = RunSettings(limit=6, batch_size=4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run = execute("digits", Exact(proof=True), folder, SETTINGS)
    plain = execute("digits", Exact(), folder.with_name("plain"), SETTINGS)
    assert run.complete
    assert (run.radius <= plain.radius).all()
    np.testing.assert_allclose(run.radius, plain.radius, rtol=2.0**-12)
    return folder


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_every_row_of_a_run_is_accepted(whole: Path) -> None:
    found = list(check_run(whole))
    assert [v.verdict for v in found] == [ACCEPTED] * 6
    assert main([str(whole)]) == 0
    assert main([str(whole / "proof.bin")]) == 0


@pytest.mark.parametrize("cut", ["proof", "table", "both", "no proof", "no end", "no table"])
def test_a_run_that_was_cut_off_resumes_to_the_same_proofs(whole: Path, tmp_path: Path, cut: str) -> None:
    folder = copied(whole, tmp_path / "run")
    proof, table = folder / "proof.bin", folder / "certificates.tsv"
    lines = table.read_text().splitlines(keepends=True)
    if cut in ("proof", "both"):
        proof.write_bytes(proof.read_bytes()[:-10_000])
    if cut in ("table", "both"):
        table.write_text("".join(lines[:4]) + lines[4][:20])
    if cut == "no proof":
        proof.unlink()
    if cut == "no end":
        proof.write_bytes(proof.read_bytes()[:-30])
    if cut == "no table":
        table.write_text("".join(lines[:1]))
    if cut != "no end":
        assert main([str(folder)]) == 2  # before it is resumed
    run = execute("digits", Exact(proof=True), folder, SETTINGS)
    assert run.complete
    assert main([str(folder)]) == 0
    assert proof.read_bytes() == (whole / "proof.bin").read_bytes()


def test_processes_write_the_same_proofs(whole: Path, tmp_path: Path) -> None:
    execute("digits", Exact(proof=True), tmp_path / "run", SETTINGS, engine="processes:1")
    assert (tmp_path / "run" / "proof.bin").read_bytes() == (whole / "proof.bin").read_bytes()
    assert main([str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("column", ["radius", "predict", "idx"])
def test_a_table_that_says_more_than_the_proofs_is_rejected(whole: Path, tmp_path: Path, column: str) -> None:
    folder = copied(whole, tmp_path / "run")
    lines = [line.split("\t") for line in (folder / "certificates.tsv").read_text().splitlines()]
    place = lines[0].index(column)
    lines[2][place] = repr(float(lines[2][place]) * 1.01) if column == "radius" else "7"
    (folder / "certificates.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    found = list(check_run(folder))
    assert [v.verdict for v in found].count(REJECTED) == 1
    assert found[1].verdict == REJECTED
    assert "its table has" in found[1].why
    assert main([str(folder)]) == 1


def rewritten(whole: Path, folder: Path, change: Callable[[list[list[str]]], object]) -> Path:
    copied(whole, folder)
    lines = [line.split("\t") for line in (folder / "certificates.tsv").read_text().splitlines()]
    change(lines)
    (folder / "certificates.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    return folder


def test_a_column_that_is_there_twice_and_a_row_that_is_there_twice_make_a_run_unusable(
    whole: Path, tmp_path: Path
) -> None:
    def doubled(lines: list[list[str]]) -> None:
        for line in lines:
            line.append("radius" if line is lines[0] else "99.0")

    assert main([str(rewritten(whole, tmp_path / "column", doubled))]) == 2
    folder = rewritten(whole, tmp_path / "row", lambda lines: lines.__setitem__(slice(1, None), [lines[1]] * 6))
    blocks = blocks_of(folder / "proof.bin")
    write(folder / "proof.bin", [*blocks[:2], *[blocks[2]] * 6, blocks[-1]])
    assert main([str(folder)]) == 2
    assert main([str(folder / "proof.bin")]) == 2


def test_a_line_that_no_run_writes_is_refused(whole: Path, tmp_path: Path) -> None:
    def below(lines: list[list[str]]) -> None:
        lines[2][lines[0].index("radius")] = "-1"

    assert main([str(rewritten(whole, tmp_path / "more", lambda lines: lines[2].append("0.5")))]) == 2
    assert main([str(rewritten(whole, tmp_path / "fewer", lambda lines: lines[2].pop()))]) == 2
    found = list(check_run(rewritten(whole, tmp_path / "below", below)))
    assert [v.verdict for v in found].count(REJECTED) == 1


def test_another_class_is_rejected_with_a_radius_of_0_too(whole: Path, tmp_path: Path) -> None:
    def other(lines: list[list[str]]) -> None:
        lines[1][lines[0].index("predict")], lines[1][lines[0].index("radius")] = "7", "0.0"

    found = list(check_run(rewritten(whole, tmp_path / "run", other)))
    assert (found[0].verdict, found[0].why) == (REJECTED, "its table has another class")
    assert {v.verdict for v in found[1:]} == {ACCEPTED}


def test_another_norm_in_the_record_is_rejected_and_a_missing_row_makes_the_run_unusable(
    whole: Path, tmp_path: Path
) -> None:
    folder = copied(whole, tmp_path / "run")
    record = (folder / "run.json").read_text()
    (folder / "run.json").write_text(record.replace('"norm": 2.0', '"norm": 1.0'))
    assert {v.verdict for v in check_run(folder)} == {REJECTED}
    (folder / "run.json").write_text(record)
    lines = (folder / "certificates.tsv").read_text().splitlines(keepends=True)
    for changed in (lines[:-1], [*lines, lines[-1]]):
        (folder / "certificates.tsv").write_text("".join(changed))
        assert main([str(folder)]) == 2


def test_a_run_on_a_table_has_proofs_too(tmp_path: Path) -> None:
    settings = TableSettings(target="class", dim=3, degree=2, limit=5, model="logistic")
    run = execute_table("wine", tmp_path / "run", settings, Exact(proof=True), threads=1)
    assert run.complete
    found = list(check_run(tmp_path / "run"))
    assert [v.verdict for v in found] == [ACCEPTED] * 5, [v.why for v in found]
    assert [v.index for v in found] == run.rows["idx"].tolist()


def test_a_decision_at_one_radius_writes_no_proofs() -> None:
    with pytest.raises(ValueError, match="expected either proof or radius, got both"):
        Exact(proof=True, radius=0.1)


def test_a_resumed_file_keeps_whole_rows_up_to_those_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "proof.bin"
    opening, rows = [block("HEAD", {"a": 1})], [block("ROW", {"index": i}) for i in range(5)]
    file = ProofFile.new(path, [*opening, *rows])
    file.end()
    raw = path.read_bytes()
    for most, kept in ((5, 5), (3, 3), (9, 5), (0, 0)):
        path.write_bytes(raw)
        again = ProofFile.resumed(path, opening, most)
        assert again.rows == kept
        again.append(rows[kept:])
        again.end()
        assert path.read_bytes() == raw
    path.write_bytes(raw[:7])
    assert ProofFile.resumed(path, opening, 5).rows == 0
