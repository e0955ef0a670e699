"""`berncert demo`: from nothing to pictures, on shipped data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from berncert.attacks.methods import Pgd
from berncert.certification.methods import Estimate, Exact, Method, Randomized
from berncert.cli import output
from berncert.cli.flags import add_json, chosen_folder
from berncert.runs.settings import RunSettings

if TYPE_CHECKING:
    from berncert.models.checkpoint import Checkpoint
    from berncert.reporting.curves import Curve

TITLE = "Handwritten digits: what is proven, and what an attack leaves"
RADII = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
RUNS: dict[str, tuple[str, Method, RunSettings]] = {
    "exact": ("prove a radius for each of the 355 test images", Exact(), RunSettings()),
    "pgd": ("look for images that change the class", Pgd(radii=RADII), RunSettings()),
    "randomized": (
        "randomized smoothing, every 10th image, 10,000 votes", Randomized(n=10_000), RunSettings(skip=10)
    ),
    "estimate": ("the paper's estimate, every 40th image", Estimate(), RunSettings(skip=40)),
}  # fmt: skip
"""Name -> what it does, how, and on which images."""
IN_PICTURES = ("exact", "pgd", "randomized")  # estimates are far off to the right
EXAMPLES = """\
examples:
  berncert demo
  berncert demo --train              train the model first, a minute or two, instead of taking the shipped one
  berncert demo --out somewhere

What it does, as commands: train digits; certify, attack; curve, report, explain. Each has a --help.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to write, and whether to train."""
    parser.description = (
        "The main job on scikit-learn's handwritten digits: a trained model with a smoothed head, a proven radius for\n"
        "each test image, an attack, two rivals, a table, a curve, a report and one image explained. A minute or so."
    )
    parser.add_argument("--out", metavar="DIR", help="where all of it goes (out/demo; out/demo-trained)")
    parser.add_argument("--train", action="store_true", help="train the model first")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """All the rest, in its order."""
    from berncert.hardware import use_threads
    from berncert.models.checkpoint import open_checkpoint
    from berncert.reporting.curves import accuracy_table, curves_of, default_radii, summary, warnings_about
    from berncert.runs.execute import execute
    from berncert.training.loop import train
    from berncert.training.recipes import load_recipe

    use_threads(1)  # on small networks more only wait for each other; and the same folder can be resumed anywhere
    folder = chosen_folder(arguments.out, Path("out") / ("demo-trained" if arguments.train else "demo"))
    console = output.console(quiet=arguments.json)
    model = "digits"
    if arguments.train:
        console.print(f"training: digits, {load_recipe('digits').training.epochs} epochs", style="bold")
        model = str(folder / "model")
        train("digits", model)
    checkpoint = open_checkpoint(model)
    for name, (about, method, settings) in RUNS.items():
        console.print(f"{name}: {about}", style="bold")
        execute(checkpoint, method, folder / name, settings, command="berncert demo")
    curves = curves_of([f"{name}={folder / name}" for name in RUNS])
    shown = [curve for curve in curves if curve.label in IN_PICTURES]
    radii = default_radii(shown)
    console.print(accuracy_table(curves, radii))
    for note in warnings_about(curves):
        console.print(f"note: {note}")
    console.print(f"note: the head bends, {_described(checkpoint)}")
    console.print("note: the pictures leave the estimate out, which is far beyond their scale")
    made = {"curve": folder / "curve.png", "report": folder / "report.html", "explained": folder / "explained.png"}
    _write(made, checkpoint, shown)
    if arguments.json:
        output.print_json(summary(curves, radii) | {"model": model} | {key: str(path) for key, path in made.items()})
    console.print(f"{made['curve']}: certified accuracy over radii")
    console.print(f"{made['report']}: all of it, to hover, sort and look at; open it in a browser")
    console.print(f"{made['explained']}: the correct image with the median radius, explained")


def _described(checkpoint: Checkpoint) -> str:
    """What the head of the model is, in words."""
    classes, *sizes = checkpoint.description()["head"]["coefficients"]
    return f"a polynomial of degree {sizes[0] - 1} along each of {len(sizes)} features, for {classes} classes"


def _write(made: dict[str, Path], checkpoint: Checkpoint, curves: Sequence[Curve]) -> None:
    """The picture, the page, and one image explained: of the correct ones that with the median radius."""
    from berncert.reporting.curves.figure import curve_figure
    from berncert.reporting.explanation import explain, read_sample
    from berncert.reporting.explanation.figure import explanation_figure
    from berncert.reporting.files import write_picture
    from berncert.reporting.html import report, write_report

    write_picture(curve_figure(curves, title=TITLE), made["curve"])
    runs = [(curve.label, curve.run) for curve in curves]
    write_report(report(runs, title=TITLE, own_images=True), made["report"])  # the slow rival is on few images
    proven = curves[0].run
    correct = np.flatnonzero(proven.correct)
    index = int(proven.rows["idx"][correct[proven.radius[correct].argsort()[len(correct) // 2]]])
    sample = read_sample(RunSettings(data="digits"), index)
    explained = explain(checkpoint.smoothed(), sample, Exact())
    write_picture(explanation_figure(explained), made["explained"])
