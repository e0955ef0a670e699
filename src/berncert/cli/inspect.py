"""`berncert inspect`: what a model is made of, and what is proven of it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from berncert.cli import output
from berncert.cli.flags import add_json
from berncert.numbers import down, norm_name, trimmed, up
from berncert.study.tables import Grid

if TYPE_CHECKING:
    from berncert.extractor import LipschitzTable
    from berncert.study.inspection import Inspection, StoredProof

MOST_CLASSES = 20  # whose coefficients are told on a terminal
EXAMPLES = """\
examples:
  berncert inspect digits
  berncert inspect runs/cifar10 --norm inf
  berncert inspect downloaded.safetensors --prove       nothing that the file claims is believed
  berncert inspect mnist --json

The bound is proven when you look, step by step, from the weights in the file; docs/layers.md tells how. A checkpoint
also stores what was proven when it was made. The commands believe that of the models that come along, as long as the
weights are the very same, and prove it anew of all others; in Python, berncert.load believes it unless proofs=False.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the norm, and what to believe."""
    parser.usage = "berncert inspect MODEL [--norm P] [--prove | --believe] [--json]"
    parser.description = "What a model is made of, where its Lipschitz bound comes from, and what its file claims."
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="digits or mnist, which come along; a checkpoint; a training")
    parser.add_argument("--norm", default="2", metavar="P", help="the p of the pixels' norm, 1 to inf (2)")
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument("--prove", action="store_true", help="prove all again that the file claims, in every norm")
    trust.add_argument("--believe", action="store_true", help="take the bound from the file: quick")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Inspect and print; a file that claims more than can be proven ends in an error."""
    from berncert.study.inspection import inspect  # --help needs no torch
    from berncert.study.settings import parsed

    norm = parsed(arguments.norm, float)
    if isinstance(norm, str) or not norm >= 1:
        raise ValueError(f"expected a norm p with 1 <= p <= inf, got {norm!r}; pass e.g. 1, 2 or inf")
    seen = inspect(arguments.model, norm=norm, believe=arguments.believe, prove=arguments.prove)
    if arguments.json:
        output.print_json(seen.as_json())
    else:
        _show(seen, arguments.model)
    if not all(proof.honest for proof in seen.stored):
        raise RuntimeError(
            f"{seen.path} claims more than can be proven: do not believe it; in Python, load it with proofs=False"
        )


def _show(seen: Inspection, name: str) -> None:
    from berncert.study.checkpoint import FORMAT

    console = output.console()
    console.print(f"{name}: a {FORMAT}", style="bold")
    console.print(_facts(_made_of(seen)))
    console.print()
    if seen.table is not None:
        console.print(_steps(seen.table))
        console.print()
    console.print(_facts(_proven(seen)))
    console.print()
    console.print(_stored(seen))
    classes = _classes(seen)
    if classes is not None:
        console.print()
        console.print(classes)


def _facts(rows: Mapping[str, str]) -> Text:
    """Names and what there is to say, side by side."""
    wide = max(map(len, rows))
    lines = [Text.assemble((f"{name.strip():<{wide}}  ", "dim"), text) for name, text in rows.items()]
    return Text("\n").join(lines)


def _made_of(seen: Inspection) -> dict[str, str]:
    told, about = seen.description["extractor"], seen.description["about"]
    first = ("name", "input_shape", "dim")
    options = {key: value for key, value in told.items() if key not in first and value is not None}
    rows = {
        "file": f"{seen.path} ({seen.size:,} bytes)",
        "sha256": seen.sha256,
        "trained": _trained(about),
        "extractor": f"{told['name']}, {', '.join(f'{key} {_plain(value)}' for key, value in options.items())}",
        "": f"{'x'.join(map(str, told['input_shape']))} -> {told['dim']} features, {seen.parameters:,} parameters",
    }
    head = seen.head
    if head is None:
        kind = seen.description["head"].get("kind", "unknown")
        return rows | {"head": f"{kind}, not smoothed: nothing can be certified before it is (--degree of certify)"}
    even, degrees = len(set(head.degree)) == 1, output.degree_text(head.degree)
    shape = f"{head.classes} x {head.degree[0] + 1}^{head.dim}" if even else "x".join(map(str, head.coefficients.shape))
    least, greatest = float(head.coefficients.min()), float(head.coefficients.max())
    return rows | {
        "head": f"Bernstein polynomial of degree {degrees} on each axis, {head.dim} features -> {head.classes} classes",
        " ": f"{shape} = {head.coefficients.numel():,} coefficients from {down(least, 4)} to {up(greatest, 4)}",
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
    told = seen.description["base"]
    if told is None:
        return "not in the file: it cannot be smoothed to another degree"
    same = "its values on the grid are the coefficients" + (f", to {up(seen.base_gap, 1)}" if seen.base_gap else "")
    return f"{told['kind']}, scale {told.get('scale', 1.0):g}: {same}"


def _steps(table: LipschitzTable) -> Grid:
    rows = []
    for row in table:
        factor = "" if math.isnan(row.factor) else up(trimmed(row.factor), 6)
        rows.append([row.name, row.layer, "x".join(map(str, row.shape)), factor, up(trimmed(row.running), 6)])
    title = f"proven Lipschitz bound, norm {table.norm:g}: {up(trimmed(table.bound), 6)}"
    return Grid(("step", "layer", "output", "factor", "running"), rows, title, left=2)


def _proven(seen: Inspection) -> dict[str, str]:
    p = norm_name(seen.norm)
    how = f"proven here, in {seen.seconds:.2f} s" if seen.table is not None else "believed, as the file says so"
    if seen.table is None and not any(proof.fits for proof in seen.stored):
        how = "proven here, as the file has no proof of these weights"
    routes = "; ".join(
        f"{norm_name(route.feature_norm)}: {up(trimmed(route.bound), 6)}{' (used)' if route.used else ''}"
        for route in seen.routes
    )
    cost = f": it costs a radius {up(seen.rounding_cost, 2)} at most" if seen.head is not None else ""
    cube = "proven to stay in the cube [0, 1]" if seen.stays_in_cube else "not proven to stay in the cube [0, 1]"
    several = sum(route.used for route in seen.routes) > 1
    return {
        "bound": f"from {p} of the pixels to norms of the features: {routes}",
        **({"": "of those that are used, each image takes the one that proves most"} if several else {}),
        "how": how,
        "features": cube,
        "rounding": f"features in float64 are off by at most {up(seen.rounding_bound, 2)} (l2) if pixels are in [0, 1]"
        + cost,
    }


def _stored(seen: Inspection) -> Grid:
    rows = [
        ["x".join(map(str, proof.shape)), proof.dtype, _claimed(proof), _verdict(proof)]
        for proof in seen.stored
    ]  # fmt: skip
    note = "" if rows else "none: the bound is proven when it is needed"
    if not all(proof.fits for proof in seen.stored):
        note = "other weights, versions or number of threads: their last bits decide"
    return Grid(
        ("images", "arithmetic", "bounds it claims,\nfrom pixels to features", "of these weights?"),
        rows,
        "proofs in the file",
        note,
        left=4,
    )


def _claimed(proof: StoredProof) -> str:
    bounds = zip(map(norm_name, proof.norms), proof.bounds, strict=True)
    return "; ".join(f"{name} to {name}: {up(trimmed(bound), 6)}" for name, bound in bounds)


def _verdict(proof: StoredProof) -> str:
    if not proof.fits:
        return "not bit for bit: it is proven anew when it is needed"
    if proof.excess is None:
        return "yes; --prove tries it"
    return "yes: proven again here" if proof.honest else f"FALSE: {proof.excess:.10g} times as much is proven here"


def _classes(seen: Inspection) -> Grid | None:
    head = seen.head
    if head is None or head.classes > MOST_CLASSES:
        return None
    facts = seen.head_facts
    if len({*zip(facts["least"].tolist(), facts["greatest"].tolist(), strict=True)}) == 1:
        return None  # told already
    names = _part(seen.description["about"], "data").get("classes") or seen.description["about"].get("classes")
    told = names if isinstance(names, list) and len(names) == head.classes else range(head.classes)
    ranges = zip(told, facts["least"].tolist(), facts["greatest"].tolist(), strict=True)
    rows = [[str(name), down(least, 5), up(greatest, 5)] for name, least, greatest in ranges]
    return Grid(("class", "least", "greatest"), rows, "coefficients, between which the logits lie")


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
