"""`berncert inspect`: what a model is made of, and what is proven of it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from berncert.cli import output
from berncert.cli.flags import add_json
from berncert.floor.rounding import ceil_digits, floor_digits, norm_name, trimmed
from berncert.reporting.tables import TextTable

if TYPE_CHECKING:
    from berncert.extractor import LipschitzTable
    from berncert.models.inspection import Inspection

MOST_CLASSES = 20  # whose coefficients are told on a terminal
EXAMPLES = """\
examples:
  berncert inspect digits
  berncert inspect runs/cifar10 --norm inf
  berncert inspect mnist --json

The bound is proven when you look, step by step, from the numbers in the file; docs/layers.md says how. Nothing that a
file says of itself is trusted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model and the norm."""
    parser.usage = "berncert inspect MODEL [--norm P] [--json]"
    parser.description = "What a model is made of, and where its Lipschitz bound comes from."
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="digits or mnist, which are shipped; a checkpoint; a training")
    parser.add_argument("--norm", default="2", metavar="P", help="the p of the pixels' norm, 1 to inf (2)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Inspect and print."""
    from berncert.floor.settings import parsed
    from berncert.models.inspection import inspect  # --help needs no torch

    norm = parsed(arguments.norm, float)
    if isinstance(norm, str) or not norm >= 1:
        raise ValueError(f"expected a norm p with 1 <= p <= inf, got {norm!r}; pass e.g. 1, 2 or inf")
    seen = inspect(arguments.model, norm=norm)
    if arguments.json:
        output.print_json(seen.as_json())
    else:
        _show(seen, arguments.model)


def _show(seen: Inspection, name: str) -> None:
    from berncert.models.checkpoint import FORMAT

    console = output.console()
    console.print(f"{name}: a {FORMAT}", style="bold")
    for part in (_facts(_made_of(seen)), _steps(seen.table), _facts(_proven(seen)), _classes(seen)):
        if part is not None:
            console.print(part)
            console.print()


def _facts(rows: Mapping[str, str]) -> Text:
    """Names and what there is to say, side by side."""
    wide = max(map(len, rows))
    lines = [Text.assemble((f"{name.strip():<{wide}}  ", "dim"), text) for name, text in rows.items()]
    return Text("\n").join(lines)


def _made_of(seen: Inspection) -> dict[str, str]:
    file, network = seen.checkpoint, seen.extractor
    first = ("name", "input_shape", "dim")
    options = {key: value for key, value in network.about.items() if key not in first and value is not None}
    name = str(network.about.get("name", "a network"))
    rows = {
        "file": f"{file.path} ({file.size:,} bytes)",
        "sha256": file.sha256,
        "trained": _trained(file.about),
        "extractor": ", ".join([name, *(f"{key} {_plain(value)}" for key, value in options.items())]),
        "": f"{'x'.join(map(str, network.input_shape))} -> {network.dim} features, {network.numbers:,} numbers",
    }
    head = seen.head
    if head is None:
        kind = seen.head_facts.get("kind", "none")
        return rows | {"head": f"{kind}, not smoothed: nothing can be certified before it is (--degree of certify)"}
    even, degrees = len(set(head.degree)) == 1, output.degree_text(head.degree)
    shape = f"{head.classes} x {head.degree[0] + 1}^{head.dim}" if even else "x".join(map(str, head.coefficients.shape))
    least, greatest = floor_digits(head.coefficients.min(), 4), ceil_digits(head.coefficients.max(), 4)
    return rows | {
        "head": f"Bernstein polynomial of degree {degrees} on each axis, {head.dim} features -> {head.classes} classes",
        " ": f"{shape} = {head.coefficients.numel():,} coefficients from {least} to {greatest}",
        "base head": _base(seen),
    }


def _trained(about: Mapping[str, Any]) -> str:
    """By which recipe, on what, how long, with which versions: as far as the file tells."""
    recipe, data, versions = (_part(about, name) for name in ("recipe", "data", "versions"))
    images = data.get("images")
    parts = [
        f"recipe {recipe['name']}" if "name" in recipe else "",
        f"{data['name']} ({images:,} images)" if "name" in data and isinstance(images, int) else "",
        f"{about['epochs']} epochs" if "epochs" in about else "",
        *(f"{name} {version}" for name, version in versions.items()),
    ]
    return ", ".join(part for part in parts if part) or "the file does not tell"


def _part(about: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Of what is told, nothing if it is told otherwise than training does: a file may say what it likes there."""
    part = about.get(name)
    return part if isinstance(part, Mapping) else {}


def _base(seen: Inspection) -> str:
    if seen.checkpoint.base is None:
        return "not in the file: it cannot be smoothed to another degree"
    described = seen.checkpoint.base.description
    same = "its values on the grid are the coefficients" + (
        f", to {ceil_digits(seen.base_gap, 1)}" if seen.base_gap else ""
    )
    return f"{described['kind']}, scale {described['scale']:g}: {same}"


def _steps(table: LipschitzTable) -> TextTable:
    rows = []
    for row in table:
        factor = "" if math.isnan(row.factor) else ceil_digits(trimmed(row.factor), 6)
        rows.append([row.name, row.layer, "x".join(map(str, row.shape)), factor, ceil_digits(trimmed(row.running), 6)])
    title = f"proven Lipschitz bound, norm {table.norm:g}: {ceil_digits(trimmed(table.bound), 6)}"
    return TextTable(("step", "layer", "output", "factor", "running"), rows, title, left=2)


def _proven(seen: Inspection) -> dict[str, str]:
    p = norm_name(seen.norm)
    how = f"proven here, in {seen.seconds:.2f} s"
    routes = "; ".join(
        f"{norm_name(route.feature_norm)}: {ceil_digits(trimmed(route.bound), 6)}{' (used)' if route.used else ''}"
        for route in seen.routes
    )
    cost = f": it costs a radius {ceil_digits(seen.rounding_cost, 2)} at most" if seen.head is not None else ""
    cube = "proven to stay in the cube [0, 1]" if seen.stays_in_cube else "not proven to stay in the cube [0, 1]"
    off = ceil_digits(seen.rounding_bound, 2)
    several = sum(route.used for route in seen.routes) > 1
    return {
        "bound": f"from {p} of the pixels to norms of the features: {routes}",
        **({"": "of those that are used, each image takes the one that proves most"} if several else {}),
        "how": how,
        "features": cube,
        "rounding": f"features in float64 are off by at most {off} (l2) if pixels are in [0, 1]{cost}",
    }


def _classes(seen: Inspection) -> TextTable | None:
    head = seen.head
    if head is None or head.classes > MOST_CLASSES:
        return None
    facts = seen.head_facts
    if len({*zip(facts["least"].tolist(), facts["greatest"].tolist(), strict=True)}) == 1:
        return None  # told already
    about = seen.checkpoint.about
    names = _part(about, "data").get("classes") or about.get("classes")
    told = names if isinstance(names, list) and len(names) == head.classes else range(head.classes)
    ranges = zip(told, facts["least"].tolist(), facts["greatest"].tolist(), strict=True)
    rows = [[str(name), floor_digits(least, 5), ceil_digits(greatest, 5)] for name, least, greatest in ranges]
    return TextTable(("class", "least", "greatest"), rows, "coefficients, between which the logits lie")


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
