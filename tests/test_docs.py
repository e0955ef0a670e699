"""What the README and the docs show runs as it is shown; what would take minutes, with less of it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LESS = {  # what a command begins with -> what is added, so that it does all that it does, on less
    "berncert train cifar10": "--epochs 1 --train-limit 64 --test-limit 16 --option width=16",
    "berncert train mnist": "--epochs 1 --train-limit 256 --test-limit 64",
    "berncert train digits": "--epochs 1",
    "berncert certify mnist": "--limit 20",
    "python -m experiments.": "--help",
    "python -m benchmarks.": "--help",
}
NEEDS_DATA = re.compile(r"\b(mnist|cifar10|cohen2019|salman2019)\b(?!=)")


def pages_with(fence: str) -> list[Path]:
    return [page for page in PAGES if f"```{fence}\n" in page.read_text()]


def blocks(page: Path, fence: str) -> list[str]:
    return re.findall(rf"```{fence}\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", pages_with("sh"), ids=lambda page: page.name)
def test_the_commands_of_a_page_run_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    shown = [line for block in blocks(page, "sh") for line in block.splitlines() if line and not line.startswith("#")]
    without = [line for line in shown if not ran(line, tmp_path)]
    if without:
        pytest.skip(f"no data for: {'; '.join(without)}")


def ran(line: str, folder: Path) -> bool:
    """Run a line in that folder; False if its data are not at hand. A line of a kind that is not known is an error."""
    words = shlex.split(line.removeprefix(".venv/bin/"), comments=True)
    if words[:1] == ["export"]:  # where the data are, which tests are told by the environment
        assert words[1].startswith("BERNCERT_DATA=")
        return True
    if words[0] == "make":
        listed = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True)
        assert listed.returncode == 0, listed.stderr
        return True
    command = " ".join(words)
    if NEEDS_DATA.search(command) and "BERNCERT_DATA" not in os.environ:
        return False
    del_dir = [word for i, word in enumerate(words) if word != "--data-dir" and words[i - 1] != "--data-dir"]
    less = next((added for start, added in LESS.items() if command.startswith(start)), "")
    program = {"berncert": [sys.executable, "-m", "berncert"], "python": [sys.executable]}[words[0]]
    asked = [*program, *del_dir[1:], *less.split()]
    place = ROOT if words[0] == "python" else folder
    done = subprocess.run(asked, cwd=place, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return True
