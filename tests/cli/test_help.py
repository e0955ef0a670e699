"""Help: every command teaches by example, and none waits for torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from berncert.cli import COMMANDS

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
