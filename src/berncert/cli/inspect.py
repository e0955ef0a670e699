"""`berncert inspect`: the parts of a model, and what is proven about them."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from berncert.cli import output
from berncert.cli.flags import add_json, add_model, settings_of
from berncert.foundation.rounding import ceil_digits, floor_digits, norm_name, trimmed
from berncert.models.source_settings import SourceSettings
from berncert.reporting.tables import TextTable

if TYPE_CHECKING:
    from berncert.extractor import LipschitzTable
    from berncert.models.inspection import Inspection

MOST_CLASSES = 20  # with more, the range of each class is not printed
EXAMPLES = """\
examples:
  berncert inspect digits
  berncert inspect runs/cifar10 --norm inf
  berncert inspect mnist --json
  berncert inspect net.onnx
  berncert inspect my_network:build --input-shape 3,32,32

The bound is proven on the spot, step by step, from the numbers in the file; docs/layers.md says how. Nothing that a
file claims about itself is trusted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the model and the norm."""
    parser.description = "Show the parts of a model, and how its Lipschitz bound is proven."
    add_model(parser)
    parser.add_argument("--norm", default="2", metavar="P", help="the p of the norm of the pixels, 1 to inf (2)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Inspect the model and print the result."""
    from berncert.foundation.arguments import checked_norm
    from berncert.foundation.settings import parsed
    from berncert.models.inspection import inspect  # --help needs no torch
    from berncert.models.sources import open_model

    model = open_model(arguments.model, settings_of(SourceSettings, arguments))
    inspection = inspect(model, norm=checked_norm(parsed(arguments.norm, float)))
    if arguments.json:
        output.print_json(inspection.as_json())
    else:
        _show(inspection, arguments.model)


def _show(inspection: Inspection, name: str) -> None:
    from berncert.models.checkpoint import FORMAT

    console = output.console()
    made_of = {"ONNX": "an ONNX file", "function": "a network that a function builds"}
    kind = made_of.get(inspection.checkpoint.source.get("kind", ""), f"a {FORMAT}")
    console.print(f"{name}: {kind}", style="bold")
    texts = _columns(_parts(inspection)), _steps(inspection.table), _columns(_proven(inspection)), _classes(inspection)
    for part in texts:
        if part is not None:
            console.print(part)
            console.print()


def _columns(rows: Mapping[str, str]) -> Text:
    """Names in the left column, texts in the right one."""
    width = max(map(len, rows))
    lines = [Text.assemble((f"{name.strip():<{width}}  ", "dim"), text) for name, text in rows.items()]
    return Text("\n").join(lines)


def _parts(inspection: Inspection) -> dict[str, str]:
    """The file, the training, the extractor and the heads, each in a line or two."""
    file, network, head = inspection.checkpoint, inspection.extractor, inspection.head
    shown_elsewhere = ("name", "input_shape", "dim")
    options = {key: value for key, value in network.about.items() if key not in shown_elsewhere and value is not None}
    name = str(network.about.get("name", "a network"))
    rows = {
        "file": f"{file.path} ({file.size:,} bytes)",
        "sha256": file.sha256,
        "fingerprint": f"{inspection.fingerprint or 'none: no proof file can hold this model'}",
        "trained": _trained(file.about),
        "extractor": ", ".join([name, *(f"{key} {_plain(value)}" for key, value in options.items())]),
        "": f"{'x'.join(map(str, network.input_shape))} -> {network.dim} features, {network.numbers:,} numbers",
    }
    if head is None:
        kind = inspection.head_summary.get("kind", "none")
        return rows | {"head": f"{kind}, not smoothed: it must be, to be certified (--degree of certify)"}
    least, greatest = head.enclosed()
    ends = f"from {floor_digits(least.min(), 4)} to {ceil_digits(greatest.max(), 4)}"
    return rows | {
        "head": f"{head.kind}, {head.dim} features -> {head.classes} classes",
        " ": f"{head.layout} = {head.numbers:,} coefficients, logits {ends}",
        "base head": _base(inspection),
        **({"fidelity": f"{inspection.fidelity}"} if inspection.fidelity else {}),
    }


def _trained(about: Mapping[str, Any]) -> str:
    """The recipe, data, epochs and versions of the training, as far as the file names them."""
    recipe, data, versions = (_mapping(about, name) for name in ("recipe", "data", "versions"))
    images = data.get("images")
    parts = [
        f"recipe {recipe['name']}" if "name" in recipe else "",
        f"{data['name']} ({images:,} images)" if "name" in data and isinstance(images, int) else "",
        f"{about['epochs']} epochs" if "epochs" in about else "",
        *(f"{name} {version}" for name, version in versions.items()),
    ]
    return ", ".join(part for part in parts if part) or "the file does not say"


def _mapping(about: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The entry of that name, or an empty one if it is not a mapping: a file may contain anything there."""
    part = about.get(name)
    return part if isinstance(part, Mapping) else {}


def _base(inspection: Inspection) -> str:
    from berncert.models.heads import OWN_POLYNOMIALS, is_dense

    if inspection.checkpoint.base is None:
        return "not in the file: it cannot be smoothed to another degree"
    description = inspection.checkpoint.base.description
    gap = f", to {ceil_digits(inspection.base_gap, 1)}" if inspection.base_gap else ""
    dense = is_dense(description["kind"], description["dim"])
    trained = description["kind"] in OWN_POLYNOMIALS
    own = "trained coefficients" if trained else "values on the grid" if dense else "weights"
    return f"{description['kind']}, scale {description['scale']:g}: its {own} are the coefficients{gap}"


def _steps(table: LipschitzTable) -> TextTable:
    rows = []
    for row in table:
        factor = "" if math.isnan(row.factor) else ceil_digits(trimmed(row.factor), 6)
        rows.append([row.name, row.layer, "x".join(map(str, row.shape)), factor, ceil_digits(trimmed(row.running), 6)])
    title = f"proven Lipschitz bound, norm {table.norm:g}: {ceil_digits(trimmed(table.bound), 6)}"
    return TextTable(("step", "layer", "output", "factor", "running"), rows, title, left=2)


def _proven(inspection: Inspection) -> dict[str, str]:
    """The bounds that were proven, each in a line."""
    routes = "; ".join(
        f"{norm_name(route.feature_norm)}: {ceil_digits(trimmed(route.bound), 6)}{' (used)' if route.used else ''}"
        for route in inspection.routes
    )
    cost = f": it costs a radius {ceil_digits(inspection.rounding_cost, 2)} at most" if inspection.head else ""
    cube = "proven to stay in the cube [0, 1]" if inspection.stays_in_cube else "not proven to stay in the cube [0, 1]"
    error = ceil_digits(inspection.rounding_bound, 2)
    several = sum(route.used for route in inspection.routes) > 1
    return {
        "bound": f"from {norm_name(inspection.norm)} of the pixels to norms of the features: {routes}",
        **({"": "of those that are used, each image takes the one that proves most"} if several else {}),
        "how": f"proven here, in {inspection.seconds:.2f} s",
        "features": cube,
        "rounding": f"features in float64 are off by at most {error} (l2) if pixels are in [0, 1]{cost}",
    }


def _classes(inspection: Inspection) -> TextTable | None:
    """The range of each class's coefficients, unless the classes are too many or have the same range."""
    head = inspection.head
    if head is None or head.classes > MOST_CLASSES:
        return None
    ranges = [*zip(*(inspection.head_summary[end].tolist() for end in ("least", "greatest")), strict=True)]
    if len(set(ranges)) == 1:
        return None
    about = inspection.checkpoint.about
    given = _mapping(about, "data").get("classes") or about.get("classes")
    names = given if isinstance(given, list) and len(given) == head.classes else range(head.classes)
    rows = [
        [str(name), floor_digits(least, 5), ceil_digits(greatest, 5)]
        for name, (least, greatest) in zip(names, ranges, strict=True)
    ]
    return TextTable(("class", "least", "greatest"), rows, "coefficients, between which the logits lie")


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
