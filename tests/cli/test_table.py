"""`berncert table`: from a file to a run with counterfactuals, a report, and a model that loads."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from berncert.cli import main
from berncert.estimators import BernsteinClassifier, load
from berncert.runs.records import read


@pytest.fixture
def loans(tmp_path: Path) -> Path:
    """Whole numbers, categories, a number; 80 rows."""
    rng = np.random.default_rng(0)
    lines = ["age,home,income,approved"]
    for _ in range(80):
        age, home, income = rng.integers(18, 80), rng.choice(["rent", "own"]), rng.uniform(1, 9)
        lines.append(f"{age},{home},{income:.3f},{'yes' if income + 2 * (home == 'own') > 5.5 else 'no'}")
    path = tmp_path / "loans.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_without_the_extra_a_sentence_says_what_to_install_before_any_work(
    loans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_work(*_: object, **__: object) -> None:
        raise AssertionError("the model was fitted before skops was looked for")

    monkeypatch.setitem(sys.modules, "skops.io", None)
    monkeypatch.setattr(BernsteinClassifier, "fit", no_work)
    words = ["table", str(loans), "--target", "approved", "--model", "logistic", "--limit", "2", "--out"]
    assert main([*words, str(tmp_path / "run")]) == 1
    assert "expected skops for models of tables, got none; pip install 'berncert[tables]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_table_becomes_a_run_a_report_and_a_model(
    loans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["table", str(loans), "--target", "approved", "--model", "logistic", "--degree", "3", "--fixed", "age",
             "--limit", "12", "--threads", "1", "--out", str(tmp_path / "run")]  # fmt: skip
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "12 rows held out" in printed
    assert "nearest to another class: row" in printed
    run, model = read(tmp_path / "run"), load(tmp_path / "run" / "model.skops")
    assert len(run) == 12
    columns = run.about["data"]["columns"]
    for i in range(len(run)):
        row, other = (np.array([float(v) for v in run.rows[name][i].split()]) for name in ("row", "counterfactual"))
        assert model.predict(row[None])[0] == run.about["data"]["classes"][run.rows["predict"][i]]
        if math.isfinite(run.rows["upper"][i]):
            assert model.predict(other[None])[0] == run.about["data"]["classes"][run.rows["rival"][i]]
            assert other[columns.index("age")] == row[columns.index("age")]
            assert sorted(other[[columns.index("home=own"), columns.index("home=rent")]]) == [0, 1]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Nearest to another class" in page
    assert "What each column does" in page
    assert "no admissible row within the radius" in page
    first = (tmp_path / "run" / "certificates.tsv").read_bytes()
    assert main([*words, "--json"]) == 0  # resumed: there is nothing left to do
    assert json.loads(capsys.readouterr().out)["rows"] == 12
    assert (tmp_path / "run" / "certificates.tsv").read_bytes() == first


def test_a_killed_run_goes_on_to_the_same_rows(loans: Path, tmp_path: Path) -> None:
    words = ["table", str(loans), "--target", "approved", "--model", "logistic", "--degree", "2", "--threads", "1"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    table = tmp_path / "a" / "certificates.tsv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:19]) + lines[19][:10])
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    resumed = [line.split("\t") for line in table.read_text().splitlines(keepends=True)]
    whole = [line.split("\t") for line in lines]
    for one, two in zip(resumed, whole, strict=True):
        assert [v for k, v in enumerate(one) if k != 5] == [v for k, v in enumerate(two) if k != 5]  # but the time


def test_wide_tables_are_projected(tmp_path: Path) -> None:
    x, y = load_iris(return_X_y=True)
    path = tmp_path / "iris.csv"
    rows = [",".join(map(str, row)) + f",kind{k}" for row, k in zip(x, y, strict=True)]
    path.write_text("a,b,c,d,kind\n" + "\n".join(rows) + "\n")
    words = [
        "table",
        str(path),
        "--target",
        "kind",
        "--model",
        "neighbours",
        "--dim",
        "2",
        "--limit",
        "9",
        "--norm",
        "inf",
    ]
    assert main([*words, "--threads", "1", "--out", str(tmp_path / "run")]) == 0
    run = read(tmp_path / "run")
    assert run.about["model"]["axes"] == 2
    assert run.norm == math.inf


def test_columns_are_selected_and_those_that_are_constrained_are_among_them(loans: Path, tmp_path: Path) -> None:
    words = ["table", str(loans), "--target", "approved", "--dim", "select:3", "--degree", "2", "--fixed", "age",
             "--limit", "6", "--threads", "1", "--out", str(tmp_path / "run")]  # fmt: skip
    assert main(words) == 0
    run = read(tmp_path / "run")
    assert run.about["model"]["axes"] == 3
    assert run.about["model"]["form"] == "one polynomial"
    assert run.about["table"]["projected"] == []
    age = run.about["data"]["columns"].index("age")
    pairs = [(run.rows["row"][i].split(), run.rows["counterfactual"][i].split()) for i in range(len(run))]
    changed = {j for before, after in pairs for j in range(len(before)) if before[j] != after[j]}
    assert changed
    assert age not in changed
    assert len(changed) <= 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "approved", "--dim", "choose"], "expected --dim as a whole number, None, 'select' or"),
        (["--target", "approved", "--terms", "own"], "expected --terms out of none, auto, fit, got 'own'"),
        (["--target", "aproved"], "did you mean approved"),
        (["--target", "income"], "different values; for a number"),
        (["--target", "approved", "--fixed", "agee"], "got 'agee'; did you mean age"),
        (["--target", "approved", "--degree", "high"], "expected --degree to be a whole number >= 1, or auto"),
        (["--target", "approved", "--model", "oracle"], "model out of random_forest"),
    ],
)
def test_mistakes_are_explained(
    words: list[str], message: str, loans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", str(loans), *words, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
