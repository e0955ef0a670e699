"""The checker shares nothing with berncert, is short, and decides nothing by floating point."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import berncert_check

FILES = sorted(Path(berncert_check.__file__).parent.glob("*.py"))
ALLOWED = {
    "__future__", "argparse", "berncert_check", "collections", "dataclasses", "decimal", "fractions", "hashlib",
    "itertools", "json", "math", "operator", "pathlib", "re", "struct", "sys", "typing",
}  # fmt: skip
EXACT = {"isqrt", "lcm", "prod"}
"""Of the module math: what is about whole numbers."""


def nodes() -> list[ast.AST]:
    return [node for file in FILES for node in ast.walk(ast.parse(file.read_text()))]


def test_it_imports_nothing_but_the_standard_library_and_itself() -> None:
    assert len(FILES) >= 5
    for node in nodes():
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            assert {name.split(".")[0] for name in names} <= ALLOWED


def test_a_process_that_runs_it_has_loaded_neither_berncert_nor_numpy_nor_torch(tmp_path: Path) -> None:
    program = "import sys, berncert_check.__main__ as m; m.main([sys.argv[1]]); print(sorted(sys.modules))"
    place, file = Path(berncert_check.__file__).parents[1], tmp_path / "no.bin"
    file.write_bytes(b"HEAD")
    options = {"capture_output": True, "text": True, "check": True, "cwd": place}
    found = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(place)!r}); {program}",
                            str(file)], **options)  # type: ignore[call-overload]  # fmt: skip
    assert "berncert_check" in found.stdout
    for name in ("'berncert'", "'numpy'", "'torch'", "'scipy'"):
        assert name not in found.stdout


def test_nothing_in_it_computes_with_floats() -> None:
    """No float in its source, nothing but whole numbers from math, and `float` only to take a number exactly."""
    for node in nodes():
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
        if isinstance(node, ast.ImportFrom) and node.module == "math":
            assert {alias.name for alias in node.names} <= EXACT
    for tree in [ast.parse(file.read_text()) for file in FILES]:
        exact = {
            id(part)
            for node in ast.walk(tree)
            if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Fraction")
            or (isinstance(node, ast.Attribute) and node.attr == "as_integer_ratio")
            or isinstance(node, ast.arg | ast.AnnAssign)
            for part in ast.walk(node)
        }
        annotations = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.returns is not None
            for part in ast.walk(node.returns)
        }
        floats = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "float"]
        assert all(id(n) in exact | annotations for n in floats)


def test_it_has_fewer_than_800_lines_of_code() -> None:
    assert 400 < sum(code_lines(file.read_text()) for file in FILES) < 800


def code_lines(source: str) -> int:
    """The lines of a file that are neither blank nor part of a docstring, which holds the justification of a rule."""
    texts = [
        n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
    ]
    described = {line for text in texts for line in range(text.lineno, (text.end_lineno or 0) + 1)}
    return sum(bool(line.strip()) and i not in described for i, line in enumerate(source.splitlines(), 1))
