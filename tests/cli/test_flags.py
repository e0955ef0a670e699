"""On the command line errors name flags, wherever the settings are checked; what is no setting is left alone."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from berncert.cli import main
from berncert.cli.flags import with_flags


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("model")
    for flag in (
        "--max-boxes",
        "--limit",
        "--norm",
        "--data",
        "--data-dir",
        "--through",
        "--crop",
        "--flip",
        "--lr",
        "--n",
    ):
        made.add_argument(flag)
    return made


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("expected max_boxes >= 1, got 0", "expected --max-boxes >= 1, got 0"),
        ("expected limit >= 1, got 0", "expected --limit >= 1, got 0"),
        ("expected a finite norm > 0, got nan", "expected a finite --norm > 0, got nan"),
        ("expected a whole number limit >= 1", "expected a whole number --limit >= 1"),
        ("expected through='smoothed' with it, got 'base'", "expected --through 'smoothed' with it, got 'base'"),
        (
            "expected a test image, got 3; take it with through='all'",
            "expected a test image, got 3; take it with --through 'all'",
        ),
        ("expected crop and flip that fit", "expected --crop and --flip that fit"),
        ("expected a finite loss, got nan; lower lr or stop", "expected a finite loss, got nan; lower --lr or stop"),
        ("expected a folder, got x; data_dir names it", "expected a folder, got x; --data-dir names it"),
        ("expected the same, got one that differs in settings.limit (1 there)", None),
        ("expected data of shape 3; choose other data", "expected --data of shape 3; choose other --data"),
        ("expected the name of a data set; pass data", "expected the name of a data set; pass --data"),
    ],
)
def test_settings_are_named_as_flags(message: str, expected: str | None, parser: argparse.ArgumentParser) -> None:
    wanted = expected or "expected the same, got one that differs in --limit (1 there)"
    assert with_flags(message, parser) == wanted


@pytest.mark.parametrize(
    "message",
    [
        "in the recipe 'x.toml': expected max_boxes >= 1, got 0",
        "expected a model in the norm that the data has, got no limit at all",
        "expected a folder, got data/limit_1/norm, which is not there",
        "expected a folder, got 'max_boxes'; choose data/mine or lr-2",
        "expected limits, got normal numbers; no database",
        "could not write max_boxes",
    ],
)
def test_what_is_no_setting_stays_as_it_is(message: str, parser: argparse.ArgumentParser) -> None:
    assert with_flags(message, parser) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["certify", "digits", "--max-boxes", "0"], "expected a whole number --max-boxes >= 1, got 0"),
        (["certify", "digits", "--batch-size", "x"], "expected --batch-size to be a whole number, got 'x'"),
        (["certify", "digits", "--split", "x"], "expected --split out of train, test, holdout, all, got 'x'"),
        (["certify", "digits", "--split", "all"], "or 'holdout', got 'all'; only data"),
        (["certify", "digits", "--data-dir", "nowhere"], "expected --data-dir to name a folder, got 'nowhere'"),
        (["attack", "digits", "--radii", "0"], "expected --radii that are finite and > 0"),
        (["train", "moons", "--attack-steps", "-1"], "expected --attack-steps >= 0, got -1"),
        (["train", "moons", "--objective", "adversarial"], "expected --attack-steps >= 1 with the adversarial"),
        (["train", "moons", "--through", "base"], "expected --through 'smoothed' with the certified objective"),
        (["train", "moons", "--data-dir", "nowhere"], "expected --data-dir to name a folder, got 'nowhere'"),
        (["explain", "digits", "--index", "1", "--data-dir", "nowhere"], "expected --data-dir to name a folder"),
        (["explain", "digits", "--index", "-1"], "expected a whole number --index >= 0, got -1"),
        (["curve", "runs/x", "--data-dir", "nowhere"], "expected --data-dir to name a folder"),
        (["report", "runs/x", "--data-dir", "nowhere"], "expected --data-dir to name a folder"),
        (["report", "runs/x", "--examples", "0"], "expected a whole number --examples >= 1"),
    ],
)
def test_every_command_names_its_flags(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_setting_in_a_file_is_named_as_it_is_written_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text('extends = "moons"\n[training]\nbatch_size = 0\n')
    assert main(["train", str(tmp_path / "mine.toml"), "--out", str(tmp_path / "run")]) == 2
    assert "mine.toml': expected batch_size >= 1, got 0" in capsys.readouterr().err
