"""`berncert report` as a user calls it: where the page goes, exit codes, mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_runs import make_run, make_table

from berncert.cli import main


def test_the_page_of_one_run_goes_into_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", [0.1, 0.2])
    assert main(["report", str(run)]) == 0
    assert f"written: {run / 'report.html'}" in capsys.readouterr().out
    assert "<h1>Robustness report: run</h1>" in (run / "report.html").read_text("utf-8")


def test_the_page_of_several_goes_into_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [f"first={make_run(tmp_path / 'a', [0.1])}", str(make_table(tmp_path / "b.tsv", [0.2]))]
    assert main(["report", *words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"path": "runs/report.html", "bytes": Path("runs/report.html").stat().st_size}
    page = Path("runs/report.html").read_text("utf-8")
    assert all(f">{label}</" in page for label in ("first", "b"))
    assert main(["report", words[1]]) == 0  # nothing is written beside a lone table
    assert "runs/report.html" in capsys.readouterr().out


def test_title_place_and_number_of_examples_are_as_asked(tmp_path: Path) -> None:
    run, out = make_run(tmp_path / "run", [0.1] * 50), tmp_path / "new" / "page.html"
    assert main(["report", str(run), "--out", str(out), "--title", "A & B", "--examples", "20"]) == 0
    page = out.read_text("utf-8")
    assert "<title>A &amp; B</title>" in page
    rows = page.split('<table class="examples">')[1].split("<tbody>")[1].split("</tbody>")[0].count("<tr")
    assert 0 < rows <= 20


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nowhere"], 2, "expected the folder of a run"),
        (["RUN", "--examples", "0"], 2, "expected a whole number --examples >= 1, got 0"),
        (["RUN", "--out", ""], 2, "expected a file that ends in .html or .htm, got ''"),
        (["RUN", "--out", "FOLDER"], 2, "got the folder"),
        (["RUN", "--out", "RUN/new/page.png"], 2, "expected a file that ends in .html or .htm, got"),
        (["RUN", "--out", "RUN/run.json/page.html"], 1, "could not write"),
        (["cohen2019:0.3"], 2, "expected cohen2019 or cohen2019:0.12"),
        (["RUN"] * 11, 2, "expected 1 to 10 runs, got 11"),
    ],
)
def test_a_mistake_is_reported_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    run = make_run(tmp_path / "run", [0.1])
    before = sorted(tmp_path.rglob("*"))
    given = [word.replace("RUN", str(run)).replace("FOLDER", str(tmp_path)) for word in words]
    assert main(["report", *given]) == code
    output = capsys.readouterr()
    assert output.err.startswith("berncert: ")
    assert message in output.err
    assert output.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_without_rows_is_reported_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "empty", [], images=3)
    assert main(["report", str(run), "--out", str(tmp_path / "page.HTM")]) == 0
    assert "note: empty has no rows yet" in capsys.readouterr().out
    assert "This run has no rows yet" in (tmp_path / "page.HTM").read_text("utf-8")


def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["report", "--help"])
    text = capsys.readouterr().out
    assert "berncert report runs/mnist-exact-l2" in text
    assert all(flag in text for flag in ("--out", "--examples", "--title", "--data-dir", "--json"))
