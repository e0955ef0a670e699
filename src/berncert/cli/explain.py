"""`berncert explain`: one image, the parts of its certificate, and a picture."""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from berncert.certification.methods import Exact
from berncert.cli import output
from berncert.cli.certify import open_named
from berncert.cli.flags import add_data_dir, add_flag, add_json, add_model, settings_of
from berncert.foundation.rounding import ceil_digits, ceil_places, floor_digits, floor_places, norm_name
from berncert.reporting.files import PICTURES, file_path, try_to_write, write_picture
from berncert.reporting.tables import TextTable
from berncert.runs.settings import RunSettings

if TYPE_CHECKING:
    from berncert.foundation.arrays import Floats
    from berncert.reporting.explanation import Explanation, Rival

MOST_FEATURES = 10
"""Whose limits are printed."""
SETTINGS = ("data", "split", "norm", "degree", "tolerance", "max_boxes", "routes")
EXAMPLES = """\
examples:
  berncert explain digits --index 3
  berncert explain mnist --index 8 --norm inf --data-dir ~/data --out eight.pdf
  berncert explain digits --index 3 --degree 2          the head smoothed again, to this degree
  berncert explain runs/cifar10 --index 20 --json --no-picture

The radius is proven: no image within it has another class. An attack looks for the nearest one that has; the true
distance lies between the two. The picture shows the plane of feature space in which the nearest other classes lie.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the image, and where the picture goes."""
    parser.usage = "berncert explain MODEL --index I [--data NAME] [--norm P] [--degree N] [--out FILE] [settings]"
    parser.description = "Explain one image: its class, its radius, its rivals, and how the radius is computed."
    add_model(parser)
    about = "the image's number, as in a run's column idx, from 0"
    parser.add_argument("--index", type=int, required=True, metavar="I", help=about)
    parser.add_argument("--out", metavar="FILE", help="the picture: .png, .svg or .pdf (explain-DATA-I.png)")
    parser.add_argument("--no-picture", action="store_true", help="print without drawing")
    parser.add_argument("--no-attack", action="store_true", help="do not look for an image of another class: faster")
    add_data_dir(parser)
    add_json(parser)
    group = parser.add_argument_group("settings", "The settings of the proof, as for certify.")
    for entry in (*fields(RunSettings), *fields(Exact)):
        if entry.name in SETTINGS:
            add_flag(group, entry, default=True)


def run(arguments: argparse.Namespace) -> None:
    """Explain the image, print the explanation, draw the picture."""
    from berncert.polynomial import PolynomialHead
    from berncert.reporting.explanation import explain, read_sample  # --help needs no torch
    from berncert.runs.execute import check_provable, with_data
    from berncert.runs.image_job import chosen_classifier

    if arguments.no_picture and arguments.out is not None:
        raise ValueError("expected --out or --no-picture, got both")
    settings, method = settings_of(RunSettings, arguments), settings_of(Exact, arguments)
    picture = None if arguments.out is None else file_path(arguments.out, PICTURES)
    checkpoint = open_named(arguments, settings)
    check_provable(method, settings)
    model = chosen_classifier(checkpoint, settings)
    settings = with_data(checkpoint, settings)
    sample = read_sample(settings, arguments.index, data_dir=arguments.data_dir)
    if not arguments.no_picture:
        picture = picture or Path(f"explain-{Path(str(settings.data)).stem}-{arguments.index}.png")
        try_to_write(picture)
    explained = explain(model, sample, method, attack=not arguments.no_attack)
    if picture is not None:
        from berncert.reporting.explanation.figure import explanation_figure

        write_picture(explanation_figure(explained), picture)
    if arguments.json:
        output.print_json(explained.as_json() | {"picture": picture and str(picture)})
    else:
        _show(explained, picture)
        if isinstance(model.head, PolynomialHead) and model.head.fidelity:
            output.console().print(f"fidelity to the base head: {model.head.fidelity}")


def _show(explained: Explanation, picture: Path | None) -> None:
    console, sample, c = output.console(), explained.sample, explained.certificate
    verdict = f"classified as {explained.name(explained.predicted)!r}: {'correct' if explained.correct else 'wrong'}"
    place = f"{sample.name}, {sample.split} {sample.kind} {sample.index}"
    console.print(f"{place}: labelled {explained.name(sample.label)!r}, {verdict}", style="bold")
    for line in (*_between(explained), f"{explained.status.name}: {explained.status}", "", *_derivation(explained), ""):
        console.print(line)
    console.print(_rivals(explained))
    if explained.reached is not None:
        console.print()
        console.print(_limits(explained, *explained.reached))
    degree = output.degree_text(explained.head.degree)
    boxes = c.in_features.boxes
    console.print(f"{boxes} boxes searched, {explained.seconds:.2f} s for the certificate; degree {degree}")
    if picture is not None:
        console.print(f"the picture: {picture}")


def _between(explained: Explanation) -> list[str]:
    """What is proven, and what an attack found."""
    c, found, kind, norm = explained.certificate, explained.found, explained.sample.kind, explained.settings.norm
    if c.radius == math.inf:
        return [f"proven: every {kind} has this class"]
    radius = floor_digits(c.radius, 6)
    within = f"proven: no {kind} within {norm_name(norm)} distance {radius} has another class"
    lines = [within if c.radius > 0 else "nothing is proven"]
    if found is not None:
        name, far = explained.name(found.predicted), ceil_digits(found.distance, 6)
        lines.append(f"found by attack: one at {far} has class {name!r}; the nearest is {radius} to {far} away")
    return lines


def _derivation(explained: Explanation) -> list[str]:
    """How the radius is computed, line by line."""
    c, pixels = explained.certificate, norm_name(explained.settings.norm)
    if not 0 < c.radius < math.inf:
        return ["how the radius is computed: there is none, as the status says"]
    features, alone = norm_name(float(c.feature_norm)), explained.by_bound
    lines = {
        f"  {floor_digits(c.feature_radius, 6)}": f"proven distance, in {features}; {_witness(explained)}",
        f"- 2 x {ceil_digits(c.extraction_error, 2)}": "the effect of rounding on the features of both images",
        f"/ {ceil_digits(c.lipschitz_bound, 6)}": f"proven Lipschitz bound of the extractor, {pixels} to {features}",
        f"= {floor_digits(alone.radius, 6)}": "rounded down" if explained.is_local else "radius, rounded down",
    }
    wide = max(map(len, lines))
    by_bound = [f"{number:<{wide}}   {about}" for number, about in lines.items()]
    if not explained.is_local:
        return ["how the radius is computed: by the global route, a bound that holds everywhere", *by_bound]
    return [
        "how the radius is computed: by the local route, bounds that hold near this image",
        f"  {floor_digits(c.radius, 6)}   the largest radius that was proven: by bounds on what the features of images",
        "  within it can be together; what each can be by itself is listed at the end",
        "by the global route, one Lipschitz bound that holds everywhere, it would be",
        *by_bound,
    ]


def _witness(explained: Explanation) -> str:
    """The nearest known point of another class."""
    c = explained.certificate
    inner = c.in_features
    if inner.rival >= 0:
        return f"a point at {ceil_digits(inner.upper, 6)} has class {explained.name(int(inner.rival))!r} (checked)"
    if explained.holds_in_cube:
        return "no point of the cube has another class"
    return "no point of another class is known"


def _rivals(explained: Explanation) -> TextTable:
    logits, shares, own = explained.logits, explained.probabilities, explained.predicted
    rows = [[explained.name(own), f"{logits[own]:.4f}", f"{shares[own]:.1%}", "", "", "", ""]]
    for rival in explained.rivals:
        number = rival.number
        rows.append(
            [explained.name(number), f"{logits[number]:.4f}", f"{shares[number]:.1%}", f"{rival.margin:.4f}",
             _distance(rival.feature_radius), _overtakes(rival), _distance(rival.radius)]
        )  # fmt: skip
    left = len(logits) - len(rows)
    distances = ("features:\nproven to", "features:\novertakes at", "pixels:\nproven to")
    return TextTable(
        ("class", "logit", "softmax", "margin", *distances),
        rows,
        title="rivals, each by itself, the nearest first",
        note=f"{left} more classes look farther away" if left else "",
    )


def _limits(explained: Explanation, lower: Floats, upper: Floats) -> TextTable:
    """Where the features of all images within the radius are, those that reach farthest first."""
    own = explained.certificate.features
    widest = sorted(range(len(own)), key=lambda j: float(lower[j] - upper[j]))[:MOST_FEATURES]
    ends = [(floor_places(lower[j], 5), ceil_places(upper[j], 5), ceil_places(upper[j] - lower[j], 5)) for j in widest]
    rows = [[str(j), f"{own[j]:.5f}", *texts] for j, texts in zip(widest, ends, strict=True)]
    left = len(own) - len(rows)
    return TextTable(
        ("feature", "value", "least", "greatest", "width"),
        rows,
        title="what the features of images within the radius can be, the widest first",
        note=f"{left} more are narrower" if left else "",
    )


def _distance(proven: float) -> str:
    return "never" if proven == math.inf else floor_digits(proven, 5)


def _overtakes(rival: Rival) -> str:
    if rival.feature_upper < math.inf:
        return ceil_digits(rival.feature_upper, 5)
    return "never" if rival.feature_radius == math.inf else "unknown"
