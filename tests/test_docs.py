"""What the README, the docs and the docstrings show runs as it is shown; what would take minutes, with less of it."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import berncert
import berncert.estimators
from berncert.cli import main
from berncert.hardware import has_bfloat16

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
LESS = {  # what a command begins with -> what is added, so that it does all that it does, on less
    "berncert train cifar10": "--epochs 1 --train-limit 64 --test-limit 16 --option width=16",
    "berncert train svhn": "--epochs 1 --train-limit 64 --test-limit 16 --option width=16",
    "berncert train mnist": "--epochs 1 --train-limit 256 --test-limit 64",
    "berncert train digits": "--epochs 1",
    "berncert certify mnist": "--limit 20",
    "python -m experiments.": "--help",
    "python -m benchmarks.": "--help",
}
PUBLIC = [f"{home.__name__}.{name}" for home in (berncert, berncert.estimators) for name in home.__all__]
NEEDS_DATA = re.compile(r"\b(mnist|cifar10|svhn|cohen2019|salman2019)\b(?!=)")


def pages_with(fence: str) -> list[Path]:
    return [page for page in PAGES if f"```{fence}\n" in page.read_text("utf-8")]


def blocks(page: Path, fence: str) -> list[str]:
    return re.findall(rf"```{fence}\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)


def title(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_of_a_public_name_gives_what_it_shows(name: str) -> None:
    home, _, attribute = name.rpartition(".")
    docstring = inspect.getdoc(getattr(importlib.import_module(home), attribute)) or ""
    example = doctest.DocTestParser().get_doctest(docstring, {"__name__": "example"}, name, None, None)
    assert any(part.want for part in example.examples), "an example shows what comes out"
    printed: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=printed.append)
    assert not printed, "".join(printed)


@pytest.mark.parametrize("page", pages_with("python"), ids=title)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", pages_with("sh"), ids=title)
def test_the_commands_of_a_page_run_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = [line for block in blocks(page, "sh") for line in block.splitlines() if line and not line.startswith("#")]
    without = [line for line in shown if not ran(line)]
    if without:
        pytest.skip(f"no data for: {'; '.join(without)}")


def ran(line: str) -> bool:
    """Run a line here; False if its data are not at hand. A line of a kind that is not known is an error."""
    words = shlex.split(line.removeprefix(".venv/bin/"), comments=True)
    command = " ".join(words)
    if words[0] == "export":  # where the data are, which tests are told by the environment
        return words[1].startswith("BERNCERT_DATA=")
    if words[0] == "make":
        return subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, check=True).returncode == 0
    if NEEDS_DATA.search(command) and "BERNCERT_DATA" not in os.environ:
        return False
    words += next((added for start, added in LESS.items() if command.startswith(start)), "").split()
    if words[0] == "python":
        return subprocess.run([sys.executable, *words[1:]], cwd=ROOT, capture_output=True, check=True).returncode == 0
    assert words[0] == "berncert"
    elsewhere = () if has_bfloat16(torch.device("cpu")) else ("--precision",)  # "where the processor has it"
    for flag in ("--data-dir", *elsewhere):  # a place of the reader's
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    try:
        code = main(words[1:])
    except SystemExit as end:  # of --help
        code = end.code
    assert code == 0, line
    return True
