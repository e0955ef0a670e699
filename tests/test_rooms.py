"""The architecture: rooms import only from those above them, and so do the modules inside each room."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import berncert

PACKAGE = Path(berncert.__file__).parent
ROOMS = [
    "floor",
    "polynomial",
    "extractor",
    "certification",
    "attacks",
    "data",
    "models",
    "training",
    "runs",
    "reporting",
    "cli",
    "__main__",
]
PATHS = sorted(PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in PATHS}


def imports(path: Path, *, in_functions: bool = True) -> set[str]:
    """The modules of the package that this one imports."""
    found, tree = set(), ast.parse(path.read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    later = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if id(node) in later and not in_functions:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name, so that rooms can be told"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else str(node.module))
    return {name for name in found if name in MODULES}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name)])
def test_each_room_imports_only_from_those_above_it(module: str) -> None:
    allowed = ROOMS[: ROOMS.index(room_of(module)) + 1]
    below = {name for name in imports(MODULES[module]) if room_of(name) not in allowed}
    if room_of(module) == "cli":
        below.discard("berncert")  # the package itself: its version
    assert not below, f"{module} may import from {allowed} only"


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_of_a_room_imports_one_that_imports_it(room: str) -> None:
    mine = {name for name in MODULES if room_of(name) == room}
    graph = {name: imports(MODULES[name], in_functions=False) & mine - {name} for name in mine}
    assert set(TopologicalSorter(graph).static_order()) == mine  # or a CycleError that names the circle


def test_no_module_of_the_floor_imports_anything_heavy() -> None:
    heavy = {"torch", "scipy", "numba", "matplotlib", "jinja2", "sklearn"}
    for name, path in MODULES.items():
        if room_of(name) == "floor":
            words = {
                node.names[0].name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import)
            }
            assert not heavy & words, name


def test_no_room_is_nameless() -> None:
    nameless = {"utils", "util", "helpers", "common", "misc", "study"}
    assert not [p for p in PATHS if nameless & set(p.with_suffix("").parts)]
