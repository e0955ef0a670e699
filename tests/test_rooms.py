"""The architecture: rooms import only from those above them, and so do the modules inside each room."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from importlib import import_module

import pytest
from docs.draw_imports import DOCS, MODULES, PICTURE, ROOMS, drawing, imports, room_imports, room_of

ORDER = [*ROOMS, "__main__"]


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name)])
def test_each_room_imports_only_from_those_above_it(module: str) -> None:
    allowed = ORDER[: ORDER.index(room_of(module)) + 1]
    below = {name for name in imports(module) if room_of(name) not in allowed}
    if room_of(module) == "cli":
        below.discard("berncert")  # the package itself: its version
    assert not below, f"{module} may import from {allowed} only"


@pytest.mark.parametrize("room", ORDER)
def test_no_module_of_a_room_imports_one_that_imports_it(room: str) -> None:
    mine = {name for name in MODULES if room_of(name) == room}
    graph = {name: imports(name, in_functions=False) & mine - {name} for name in mine}
    assert set(TopologicalSorter(graph).static_order()) == mine  # or a CycleError that names the circle


def test_no_module_of_the_foundation_imports_anything_heavy() -> None:
    heavy = {"torch", "scipy", "numba", "matplotlib", "jinja2", "sklearn"}
    for name, path in MODULES.items():
        if room_of(name) == "foundation":
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            words = {node.names[0].name for node in nodes if isinstance(node, ast.Import)}
            assert not heavy & words, name


def test_no_room_is_nameless() -> None:
    nameless = {"utils", "util", "helpers", "common", "misc", "study"}
    assert not [name for name in MODULES if nameless & set(name.split("."))]


def test_the_picture_of_the_imports_is_that_of_the_code() -> None:
    assert PICTURE.read_text("utf-8") == drawing(room_imports()), "run python -m docs.draw_imports"


def test_every_place_that_the_page_about_the_architecture_names_is_there() -> None:
    page = (DOCS / "architecture.md").read_text("utf-8")
    functions = re.findall(r"`(\w[\w/]*)\.py: (\w+)`", page)
    assert len(functions) >= 8
    for path, name in functions:
        assert hasattr(import_module(f"berncert.{path.replace('/', '.')}"), name), f"{path}.py: {name}"
    for path in re.findall(r"`((?:src/berncert|docs|tests|experiments|benchmarks)/[\w/.-]+)`", page):
        assert (DOCS.parent / path).exists(), path
