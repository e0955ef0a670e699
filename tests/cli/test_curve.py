"""`berncert curve` as a user calls it: tables, pictures, notes, exit codes, mistakes."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import make_run, make_table

from berncert.cli import main


@pytest.fixture
def proven(tmp_path: Path) -> str:
    return str(make_run(tmp_path / "proven-run", [0.5, 1.5, 1 / 3, 0.2], correct=[1, 1, 1, 0]))


@pytest.fixture
def attack(tmp_path: Path) -> str:
    radii = [0.75, math.inf, 0.5, 0.0]
    return str(make_run(tmp_path / "attack-run", radii, correct=[1, 1, 1, 0], claim="ATTACK"))


def test_the_table_is_printed_with_what_the_words_mean(
    proven: str, attack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["curve", f"ours={proven}", attack, "--radii", "0,1/3,1"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("Accuracy in % at l2 radius r, in pixel units")  # one is an attack
    rows = [line.split() for line in output.splitlines()]
    assert ["ours", "proven", "4", "0.583", "75.0", "75.0", "25.0"] in rows
    assert ["attack-run", "attack", "4", "-", "75.0", "75.0", "25.0"] in rows
    assert "proven: no image within the radius changes its class" in output
    assert "note:" not in output


def test_markdown_and_latex_are_the_table_alone(
    proven: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(make_run(tmp_path / "other", [1.0]))
    words = [f"a_b & c%={proven}", other, "--radii", "0", "--own-images"]
    assert main(["curve", *words, "--format", "markdown"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[2] == r"| a_b \& c% | proven | 4 | 0.583 | 75.0 |"
    assert len(captured.out.splitlines()) == 4
    assert "note: not all on the same images" in captured.err
    assert main(["curve", *words, "--format", "latex"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(r"\begin{tabular}")
    assert r"a\_b \& c\% & proven & 4 & 0.583 & 75.0 \\" in captured.out
    assert captured.out.endswith("\\end{tabular}\n")


def test_runs_on_unequal_images_are_compared_on_those_that_all_have(
    proven: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = str(make_run(tmp_path / "some", [2.0, 0.5], claim="ATTACK", first=1))
    assert main(["curve", proven, some, "--radii", "0,0.4"]) == 0
    output = capsys.readouterr().out
    rows = [line.split() for line in output.splitlines()]
    assert ["proven-run", "proven", "2", "0.916", "100.0", "50.0"] in rows
    said = "compared on the 2 images of digits test that are in all runs (proven-run 4, some 2)"
    assert f"note: {said}; --own-images keeps each run on all of its own" in output
    assert "not all on the same images" not in output
    assert main(["curve", proven, some, "--radii", "0", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(row["images"], row["images_in_run"]) for row in printed["curves"]] == [(2, 4), (2, 2)]
    assert printed["notes"] == [said]
    assert main(["curve", proven, some, "--radii", "0", "--json", "--own-images"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["images"] for row in printed["curves"]] == [4, 2]


def test_json_is_one_document_in_full_precision(
    proven: str, attack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "new" / "a.svg"
    assert main(["curve", proven, attack, "--radii", "0.4", "--json", "--out", str(picture)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["accuracy"] for row in printed["curves"]] == [[0.5], [0.75]]
    assert [row["mean_radius"] for row in printed["curves"]] == [(0.5 + 1.5 + 1 / 3) / 4, None]
    assert (printed["norm"], printed["radii"], printed["notes"], printed["pictures"]) == (2, [0.4], [], [str(picture)])
    assert picture.is_file()


def test_pictures_are_written_in_every_form_and_again_the_same(
    proven: str, attack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "deep" / "er" / name for name in ("a.png", "a.svg", "a.PDF")]
    words = ["curve", proven, attack, "--title", "A title", *(w for file in files for w in ("--out", str(file)))]
    assert main(words) == 0
    first = [file.read_bytes() for file in files]
    assert [content[:4] for content in first] == [b"\x89PNG", b"<?xm", b"%PDF"]
    assert b"A title" in first[1]
    assert f"written: {files[0]}" in capsys.readouterr().out
    assert main(words) == 0
    assert [file.read_bytes() for file in files] == first
    assert len(list(files[0].parent.iterdir())) == 3


def test_a_run_that_is_not_finished_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curve", str(make_run(tmp_path / "a", [1.0] * 3, images=9))]) == 0
    assert "note: a is not finished: 3 of 9 images" in capsys.readouterr().out


def test_names_that_look_like_markup_are_printed_as_they_are(proven: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curve", f"[red]x[/]={proven}", f"\x1b[31mred={proven}"]) == 0
    output = capsys.readouterr().out
    assert "[red]x[/]" in output
    assert "\x1b" not in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--radii", "0,x"], "expected --radii >= 0, as decimals or fractions, like 0,36/255,0.5, got 'x'"),
        (["--radii", ""], "got ''"),
        (["--radii=-0.1,1"], "got '-0.1'"),
        (["--radii", "nan"], "got 'nan'"),
        (["--out", "a.jpg"], "expected a file that ends in .png, .svg or .pdf, got 'a.jpg'"),
        (["--out", ""], "expected a file that ends in .png, .svg or .pdf, got ''"),
        (["cohen2019:7"], "expected cohen2019 or cohen2019:0.12"),
    ],
)
def test_a_mistake_is_reported_and_nothing_is_written(
    proven: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["curve", proven, *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_different_norms_are_refused_with_who_has_which(
    proven: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_run(tmp_path / "other", [0.1], norm=math.inf)
    assert main(["curve", proven, str(other), "--out", str(tmp_path / "a.png")]) == 2
    assert "l2 in proven-run, linf in other" in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()


def test_a_run_without_rows_or_a_folder_that_is_none_is_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["curve", str(make_run(tmp_path / "empty", [], images=3))]) == 2
    assert "expected a run with rows" in capsys.readouterr().err
    assert main(["curve", str(tmp_path)]) == 2
    assert "expected the folder of a run" in capsys.readouterr().err


def test_what_is_missing_cannot_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERNCERT_DATA", raising=False)
    assert main(["curve", str(tmp_path / "nothing")]) == 2
    assert "which is not there" in capsys.readouterr().err
    assert main(["curve", "salman2019", "--data-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "PGD_2steps_eps_64_resnet110_noise_0.12_test_sigma_0.12.tsv" in error
    assert str(tmp_path) in error


def test_a_picture_that_cannot_be_written_is_reported(
    proven: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["curve", proven, "--out", str(tmp_path / "file" / "a.png")]) == 1
    assert "could not write" in capsys.readouterr().err
    (tmp_path / "b.png").mkdir()
    assert main(["curve", proven, "--out", str(tmp_path / "b.png")]) == 2
    assert "expected the path of a file, got the folder" in capsys.readouterr().err


def test_a_lone_table_needs_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = make_table(tmp_path / "theirs.tsv", [0.5, 0.25], [3, -1])
    assert main(["curve", str(table), "--radii", "0,0.5"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["theirs", "unknown", "claim", "2", "1", "0.25", "50.0", "50.0"] in rows


def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["curve", "--help"])
    output = capsys.readouterr().out
    assert "examples:\n  berncert curve" in output
    assert "cohen2019:0.25" in output
    with pytest.raises(SystemExit, match="2"):
        main(["curve", "x", "--json", "--format", "latex"])


def test_a_table_needs_neither_torch_nor_matplotlib(proven: str) -> None:
    code = (
        "import sys; from berncert.cli import main; code = main(sys.argv[1:]);"
        "assert not {'torch', 'matplotlib'} & set(sys.modules); sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", code, "curve", proven], check=True, capture_output=True)
