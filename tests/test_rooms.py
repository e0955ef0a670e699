"""The architecture: each room of the package imports only from those above it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import berncert

PACKAGE = Path(berncert.__file__).parent
ROOMS = [
    "arguments",
    "numbers",
    "progress",
    "polynomial",
    "extractor",
    "certification",
    "study",
    "estimators",
    "cli",
    "__main__",
]
MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name, so that rooms can be told"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "berncert"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_room_imports_only_from_those_above_it(path: Path) -> None:
    room = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if room == "__init__":
        return
    allowed = ROOMS[: ROOMS.index(room) + 1]
    below = {name for name in imports(path) if room_of(name) not in allowed}
    if room == "cli":
        below.discard("berncert")  # the package itself: its version
    assert not below, f"{room} may import from {allowed} only"


def test_no_room_is_nameless() -> None:
    nameless = {"utils", "util", "helpers", "common", "misc"}
    assert not [p for p in MODULES if nameless & set(p.with_suffix("").parts)]
