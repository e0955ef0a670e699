"""The command draws without measuring, never writes over a record unasked, and says what is wrong in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from experiments.paper import EXPERIMENTS, work
from experiments.paper.__main__ import main

RECORDS = Path(__file__).parents[3] / "experiments" / "paper" / "records"


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring anything is an error."""
    for name, experiment in EXPERIMENTS.items():
        unable = experiment._replace(measure=lambda work: pytest.fail("measured"))
        monkeypatch.setitem(EXPERIMENTS, name, unable)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return Path(shutil.copy(RECORDS / "figure3.json", tmp_path))


@pytest.mark.parametrize("size", work.SIZES)
@pytest.mark.parametrize("options", [[], ["--full"]])
@pytest.mark.usefixtures("unmeasured")
def test_drawing_measures_nothing_and_keeps_records_of_every_size(record: Path, size: str, options: list[str]) -> None:
    text = json.dumps(json.loads(record.read_text()) | {"size": size})
    record.write_text(text)
    assert main(["all", "--draw", "--out", str(record.parent), *options]) == 0
    assert record.read_text() == text
    assert record.with_suffix(".md").read_text() == (RECORDS / "figure3.md").read_text()


@pytest.mark.usefixtures("unmeasured")
def test_a_record_of_another_size_is_not_written_over(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = record.read_text()
    assert main(["figure3", "--full", "--out", str(record.parent)]) == 1
    assert "expected a record of the full size" in capsys.readouterr().err
    assert record.read_text() == text


@pytest.mark.parametrize("text", ["", '{"name": "figure3", "si', "[]", "{}", '{"name": "figure1", "size": "small"}'])
@pytest.mark.parametrize("options", [[], ["--draw"]])
@pytest.mark.usefixtures("unmeasured")
def test_a_damaged_record_is_named_and_kept(
    record: Path, text: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    record.write_text(text)
    assert main(["figure3", "--out", str(record.parent), *options]) == 1
    assert str(record) in capsys.readouterr().err
    assert record.read_text() == text


@pytest.mark.usefixtures("unmeasured")
def test_a_folder_that_cannot_be_made_is_found_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["figure1", "--out", str(tmp_path / "file")]) == 1
    assert "file" in capsys.readouterr().err


@pytest.mark.parametrize("names", [["figure1"], ["figure3", "figure1"]])
@pytest.mark.usefixtures("unmeasured")
def test_drawing_a_record_that_is_not_there_is_wrong_use(record: Path, names: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*names, "--draw", "--out", str(record.parent)])
    assert ended.value.code == 2


@pytest.mark.parametrize("words", [["figuer1"], ["figure1", "--draw", "--again"], ["all", "--draw"]])
def test_wrong_use_ends_with_code_2(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--out", str(tmp_path)])
    assert ended.value.code == 2
