"""Draw which room of the package imports from which, as docs/images/imports.svg: `python -m docs.draw_imports`."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "src" / "berncert"
PICTURE = DOCS / "images" / "imports.svg"
ROOMS = {
    "foundation": "array types, checks, rounding, progress, settings",
    "hardware": "device and threads",
    "polynomial": "Bernstein calculus, SmoothedHead, smooth",
    "extractor": "layers, networks by name, freeze, Lipschitz bounds",
    "certification": "methods, results, statuses, the exact search, estimates",
    "estimators": "scikit-learn models on tables, counterfactuals",
    "attacks": "Pgd, Fgsm",
    "data": "data sets, and your own images",
    "models": "heads, checkpoints, shipped models",
    "training": "recipes, objectives, the loop, its state",
    "runs": "a method applied to a data set, row by row",
    "reporting": "curves, tables, pictures, explanation, HTML report",
    "cli": "parse, call, print",
}
"""Room -> what it holds, in an order in which each imports only from those before it."""
WIDTH, HEIGHT, GAP, MARGIN, ARCS = 330, 44, 12, 16, 250


def modules() -> dict[str, Path]:
    """Full name -> file, of every module of the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def room_of(module: str) -> str:
    """The room that a module is in; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def imports(module: str, *, in_functions: bool = True) -> set[str]:
    """The modules of the package that this one imports, at its top and, if asked for, in its functions."""
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    later = {id(node) for function in functions for node in ast.walk(function)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in later and not in_functions:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: import by full name, so that rooms can be seen"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else str(node.module) for name in names}
    return found & MODULES.keys()


def room_imports() -> dict[str, set[str]]:
    """Room -> the other rooms that it imports from."""
    graph: dict[str, set[str]] = {room: set() for room in ROOMS}
    for module in MODULES:
        if room_of(module) in graph:
            graph[room_of(module)] |= {room_of(name) for name in imports(module)} & ROOMS.keys() - {room_of(module)}
    return graph


def drawing(graph: dict[str, set[str]]) -> str:
    """The rooms from top to bottom, and arcs to what each imports from; arcs that follow from others are left out."""
    beyond: dict[str, set[str]] = {}
    for room in TopologicalSorter(graph).static_order():
        beyond[room] = set().union(*(beyond[other] | graph[other] for other in graph[room]))
    top = {room: MARGIN + k * (HEIGHT + GAP) for k, room in enumerate(ROOMS)}
    right, width, height = MARGIN + WIDTH, 2 * MARGIN + WIDTH + ARCS, 2 * MARGIN + len(ROOMS) * (HEIGHT + GAP) - GAP
    arcs = []
    for room in ROOMS:
        for other in sorted(graph[room] - beyond[room], key=top.__getitem__):
            start, end = top[room] + HEIGHT // 3, top[other] + 2 * HEIGHT // 3
            far = right + (start - end) // 2
            arcs.append(f'<path d="M{right} {start}C{far} {start} {far} {end} {right} {end}" marker-end="url(#tip)"/>')
    boxes = [
        f'<rect x="{MARGIN}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#dbe5f1" stroke="#1d4f91"/>'
        f'<text x="{MARGIN + 12}" y="{y + 18}" font-weight="bold" font-size="14">{room}</text>'
        f'<text x="{MARGIN + 12}" y="{y + 35}" font-size="11.5">{escape(ROOMS[room])}</text>'
        for room, y in top.items()
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
        "<title>Which room of berncert imports from which: each only from those above it</title>",
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8" fill="#6e7781"/></marker>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<g fill="none" stroke="#6e7781" stroke-width="1.3">', *arcs, "</g>",
        '<g font-family="sans-serif" fill="#1f2328">', *boxes, "</g>", "</svg>", "",
    ])  # fmt: skip


if __name__ == "__main__":
    PICTURE.write_text(drawing(room_imports()), "utf-8")
    print(PICTURE)
