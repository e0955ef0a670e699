"""Help: every command teaches by example, and none waits for torch."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

import berncert
from berncert.cli import COMMANDS, main

LISTING = "import sys; from berncert.cli import main\ntry: main({words})\nexcept SystemExit: pass\nprint(*sys.modules)"


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_teaches_by_example_and_imports_nothing_heavy(words: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LISTING.format(words=words)], capture_output=True, text=True, check=True
    )
    *text, modules = ran.stdout.splitlines()
    assert "examples:" in text
    assert f"  berncert {words[0].removeprefix('--help')}".rstrip() in ran.stdout
    assert not {"torch", "numba", "matplotlib", "sklearn"} & set(modules.split())


def test_the_version_is_told() -> None:
    ran = subprocess.run([sys.executable, "-m", "berncert", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"berncert {berncert.__version__}\n"


@pytest.mark.parametrize("chosen", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}], ids=["by itself", "as chosen"])
def test_threads_sleep_while_they_wait_unless_the_user_wants_them_awake(chosen: dict[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | chosen
    command = [sys.executable, "-m", "berncert", "inspect", "digits"]
    ran = subprocess.run(
        command, env=environment | {"OMP_DISPLAY_ENV": "true"}, capture_output=True, text=True, check=True
    )
    said = re.findall(r"OMP_WAIT_POLICY *= *'(\w+)'", ran.stderr)  # by OpenMP, when torch is loaded
    assert set(said) <= {chosen.get("OMP_WAIT_POLICY", "PASSIVE")}
    assert said or "OPENMP DISPLAY ENVIRONMENT" not in ran.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m berncert inspect digits | head -1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1] == "0"


def test_the_help_of_tables_says_what_kind_of_value_an_option_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["table", "--help"])
    text = capsys.readouterr().out
    assert "--fixed COLUMNS" in text
    assert "--dim N" in text
    assert "for one input" in text
