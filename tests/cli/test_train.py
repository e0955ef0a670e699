"""`berncert train` as a user calls it: output, exit codes, mistakes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import berncert
from berncert.cli import main
from berncert.models.checkpoint import open_checkpoint
from berncert.training.recipes import SECTIONS, recipe_names

QUICK = ["moons", "--epochs", "2", "--option", "width=8", "--train-limit", "200"]


def test_a_training_ends_with_a_model_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *QUICK, "--out", str(tmp_path / "run")]) == 0
    output = capsys.readouterr().out
    assert "certified training of mlp on moons, 2 epochs" in output
    assert "berncert.load" in output
    model = berncert.load(tmp_path / "run" / "model.safetensors")
    assert model(torch.zeros(1, 2)).shape == (1, 2)
    settings = open_checkpoint(tmp_path / "run" / "model.safetensors").about["recipe"]
    assert settings["model"]["options"] == {"depth": 3, "width": 8}
    assert settings["data"]["train_limit"] == 200
    assert {p.name for p in (tmp_path / "run").iterdir()} >= {"log.tsv", "log.png", "recipe.json", "state.safetensors"}


def test_the_same_command_again_only_gives_the_model_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", *QUICK, "--out", str(tmp_path)]
    assert main(command) == 0
    before = (tmp_path / "model.safetensors").read_bytes()
    capsys.readouterr()
    assert main(command) == 0
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_every_setting_is_a_flag_and_every_recipe_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    text = capsys.readouterr().out
    for kind in SECTIONS.values():
        for entry in fields(kind):
            assert entry.name == "options" or f"--{entry.name.replace('_', '-')}" in text
    assert all(name in text for name in recipe_names())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mnits"], "did you mean mnist?"),
        (["moons", "--epochs", "x"], "expected --epochs to be a whole number, got 'x'"),
        (["moons", "--epochs", "0"], "expected --epochs >= 1, got 0"),
        (["moons", "--option", "wdith=3"], "did you mean width?"),
        (["moons", "--option", "width"], "expected a change like epochs=3, got 'width'"),
        (["moons", "--objective", "robust"], "expected --objective out of plain, adversarial, certified, gaussian"),
        (["moons", "--dim", "3"], "expected --dim = 2"),
        (["moons", "--dataset", "nowhere"], "expected one of moons, digits"),
        (["moons", "--device", "abacus"], "expected a device that torch knows"),
        (["moons", "--threads", "0"], "expected a whole number --threads >= 1"),
    ],
)
def test_mistakes_are_reported_in_one_line_and_end_with_2(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("berncert: ")
    assert "Traceback" not in error


@pytest.mark.parametrize("words", [[], ["trian"], ["train"], ["train", "moons", "--epoch", "3"]])
def test_wrong_use_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "usage: berncert" in capsys.readouterr().err


def test_the_module_runs_as_a_program() -> None:
    ran = subprocess.run([sys.executable, "-m", "berncert", "--help"], capture_output=True, text=True, check=True)
    assert "examples:" in ran.stdout
