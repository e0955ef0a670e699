"""The release: what the wheel holds and says of itself, and that it works where the repository is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

import berncert

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
MODELS = {path.stem: path.stat().st_size for path in (ROOT / "src" / "berncert" / "models").rglob("*.safetensors")}
LARGEST = 45e6
"""Bytes of a wheel that is still sensible to download: a fifth of what PyTorch takes."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    source = ROOT / "src"
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    there = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert names == {name for name in there if "__pycache__" not in name}
    assert {"berncert/py.typed", "berncert/models/checkpoints/digits.safetensors"} <= names


def test_the_wheel_is_of_a_sensible_size_and_the_docs_list_its_models(wheel: Path) -> None:
    assert wheel.stat().st_size < LARGEST
    page = (ROOT / "docs" / "models.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| `([\w-]+)` \|.*?\| ([\d.]+) MB \|", page, flags=re.MULTILINE))
    assert listed == {name: f"{size / 1e6:.1f}" for name, size in MODELS.items()}
    (whole,) = re.findall(r"the wheel has (\d+) MB", page)
    assert abs(int(whole) - wheel.stat().st_size / 1e6) < 1


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with ZipFile(wheel) as unpacked:
        (name,) = (name for name in unpacked.namelist() if name.endswith(".dist-info/METADATA"))
        said = Parser().parsestr(unpacked.read(name).decode())
    assert (said["Name"], said["Version"]) == ("berncert", berncert.__version__)
    assert said["License-Expression"] == "MIT"
    assert said["Requires-Python"] == ">=3.11"
    assert said.get_all("Project-URL")
    assert {"all", "dask", "docs", "tables"} <= set(said.get_all("Provides-Extra"))
    assert "# berncert" in said.get_payload()


def test_the_version_is_the_same_everywhere() -> None:
    citation = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text("utf-8"), flags=re.MULTILINE)
    changes = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    assert citation is not None
    assert changes is not None
    assert PROJECT["version"] == berncert.__version__ == citation[1] == changes[1].split()[0]


def requirements() -> Iterator[str]:
    for requirement in [*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)]:
        if not requirement.startswith("berncert["):
            yield requirement


def test_no_dependency_is_looser_than_what_was_tried() -> None:
    pins = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), flags=re.MULTILINE)
    tried = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}
    assert not [each for each in requirements() if each != f"{(name := each.split('>=')[0])}>={tried.get(name)}"]


def environment(folder: Path) -> Path:
    """The interpreter of a new environment, and none of the settings that would lead back to the repository."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


def ran(command: list[str | Path], folder: Path) -> str:
    """What a command prints in this folder, with a home of its own and without the repository on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BERNCERT", "NUMBA"))}
    own = {"BERNCERT_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=kept | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def where(python: Path, folder: Path) -> Path:
    return Path(ran([python, "-c", "import berncert; print(berncert.__file__)"], folder).strip())


def test_the_installed_package_knows_its_models_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "environment")
    ran([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], tmp_path)
    packages = next((tmp_path / "environment").glob("lib/python*/site-packages"))
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))  # torch and the rest, of this environment
    assert where(python, tmp_path).is_relative_to(packages)
    command = python.with_name("berncert")
    assert berncert.__version__ in ran([command, "--version"], tmp_path)
    assert "lipschitz" in ran([command, "inspect", "digits"], tmp_path).lower()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_in_an_empty_environment_runs_the_demo_and_a_table(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "environment")
    pip = [python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    ran([*pip, f"berncert[tables] @ {wheel.as_uri()}"], tmp_path)
    assert where(python, tmp_path).is_relative_to(tmp_path / "environment")
    command = python.with_name("berncert")
    ran([command, "demo"], tmp_path)
    assert (tmp_path / "out" / "demo" / "report.html").stat().st_size > 100_000
    ran([command, "table", "iris", "--target", "class", "--limit", "5", "--out", "iris"], tmp_path)
    assert {"certificates.tsv", "model.skops", "report.html"} <= {path.name for path in (tmp_path / "iris").iterdir()}
