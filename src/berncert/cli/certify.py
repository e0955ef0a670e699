"""`berncert certify`: a radius for each image of a data set, kept in a run's folder."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from berncert.certification.status import Claim
from berncert.cli import output
from berncert.cli.flags import (
    add_data_dir,
    add_engine,
    add_flag,
    add_hardware,
    add_json,
    add_model,
    chosen_folder,
    settings_of,
)
from berncert.foundation.rounding import ceil_digits
from berncert.models.source_settings import SourceSettings
from berncert.runs.records import PROOF, Run
from berncert.runs.settings import METHODS, RunSettings

if TYPE_CHECKING:
    from berncert.models.checkpoint import Checkpoint

EXAMPLES = """\
examples:
  berncert certify digits
  berncert certify mnist --norm inf --limit 1000 --data-dir ~/data
  berncert certify runs/cifar10 --skip 20 --out runs/cifar10-every-20th
  berncert certify mnist --radius 0.3                           decide at one radius: faster
  berncert certify mnist --counterexamples                      upper ends too: images of another class
  berncert certify digits --method estimate --limit 50          the paper's radius: not proven
  berncert certify mnist --method randomized --sigma 0.5 --skip 200
  berncert certify digits --proof                               then: berncert-check runs/digits-exact-l2-proof
  berncert certify mnist --engine processes:4                   four processes; a Dask cluster: dask:tcp://HOST:8786
  berncert certify digits --degree base --method randomized     the head before smoothing, for comparison
  berncert certify net.onnx --head-after features --degree 3 --data mnist      a network of yours
  berncert certify my_network:build --data mnist                what a function in my_network.py returns
  berncert certify runs/mine --data photos --split all          a folder that the model was not trained on, all of it

The run is a folder with run.json (all that decides the result) and certificates.tsv (a line for each image, beginning
with idx, label, predict, radius, correct, time). The same command resumes a run that was cut off.
See it with berncert curve, berncert report; one image of it with berncert explain.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the method, and a flag for each setting."""
    parser.usage = "berncert certify MODEL [--data NAME] [--norm P] [--degree N] [--method NAME] [settings]"
    parser.description = "Prove, for each image of a data set, a radius within which its class cannot change."
    add_run(parser, "certify")


def add_run(parser: argparse.ArgumentParser, kind: str) -> None:
    """What every run takes: a model, a folder, a method, and a flag for each setting."""
    methods = METHODS[kind]
    first = next(iter(methods))
    add_model(parser)
    parser.add_argument("--method", choices=methods, default=first, help=f"how ({first})")
    parser.add_argument("--out", metavar="DIR", help="folder of the run (runs/ and a name that says the settings)")
    add_data_dir(parser)
    add_hardware(parser)
    add_engine(parser)
    add_json(parser)
    group = parser.add_argument_group("settings of every method", "What is looked at, and in which norm.")
    shared = set.intersection(*({entry.name for entry in fields(method)} for method in methods.values()))
    for entry in (*fields(RunSettings), *(entry for entry in fields(methods[first]) if entry.name in shared)):
        add_flag(group, entry, default=True)
    for name, method in methods.items():
        group = parser.add_argument_group(f"settings: --method {name}", (method.__doc__ or "").split("\n\n")[0].strip())
        for entry in fields(method):
            if entry.name not in shared:
                add_flag(group, entry, default=True)


def run(arguments: argparse.Namespace) -> None:
    """Certify, and print the certified accuracy; where radii are small, why."""
    run = execute_run(arguments, "certify")
    show(run, arguments.json)
    if not arguments.json and run.claim is Claim.PROVEN:
        if line := _upper_ends(run):
            output.console().print(line)
        if run.decided_at is None:
            _diagnose(run, arguments)


def _upper_ends(run: Run) -> str:
    """What is known of the other side of the radii: images of another class; nothing where that is decided."""
    upper = run.rows.get("upper")
    known = [] if upper is None else sorted(far for far in upper.tolist() if far < math.inf)
    if known:
        middle = ceil_digits(known[len(known) // 2], 3)
        return f"images of another class: found for {len(known)} of {len(run)} images, in the median {middle} away"
    if run.decided_at is not None:
        return ""
    if run.about["settings"].get("counterexamples"):
        return "images of another class: none found"
    return "images of another class were not looked for: --counterexamples does, and bounds the radii from above"


def _diagnose(run: Run, arguments: argparse.Namespace) -> None:
    """Say why radii are small, if they are: from a few of the images that are correct."""
    from berncert.reporting.diagnosis import MOST_IMAGES, diagnose, small_radius
    from berncert.runs.execute import chosen_images, with_data
    from berncert.runs.image_job import chosen_classifier

    places = run.correct.nonzero()[0]
    radii = sorted(run.radius[places].tolist())
    if not radii or radii[len(radii) // 2] >= small_radius(run.norm):
        return
    settings = settings_of(RunSettings, arguments)
    checkpoint = open_named(arguments, settings)
    few = places[:MOST_IMAGES].tolist()
    wanted = replace(with_data(checkpoint, settings), limit=few[-1] + 1)
    images = chosen_images(wanted, data_dir=arguments.data_dir, progress=False).images[few]
    diagnosis = diagnose(chosen_classifier(checkpoint, settings), images, norm=run.norm, progress=False)
    output.console().print(str(diagnosis), soft_wrap=True, highlight=False, markup=False)


def execute_run(arguments: argparse.Namespace, kind: str) -> Run:
    """The run that the flags describe."""
    from berncert.hardware import use_threads
    from berncert.runs.execute import default_folder, execute  # --help needs no torch

    use_threads(arguments.threads)
    methods, settings = METHODS[kind], settings_of(RunSettings, arguments)
    method = settings_of(methods[arguments.method], arguments, methods.values())
    checkpoint = open_named(arguments, settings)
    return execute(
        checkpoint,
        method,
        chosen_folder(arguments.out, default_folder(checkpoint, method, settings)),
        settings,
        data_dir=arguments.data_dir,
        device=arguments.device,
        threads=arguments.threads,
        engine=arguments.engine,
        timeout=arguments.timeout,
        command=shlex.join(["berncert", *sys.argv[1:]]),
    )


def open_named(arguments: argparse.Namespace, settings: RunSettings) -> Checkpoint:
    """The model that is named, for the data that the settings name."""
    from berncert.runs.own_models import open_for_data  # --help needs no torch

    source = settings_of(SourceSettings, arguments)
    return open_for_data(arguments.model, source, settings, data_dir=arguments.data_dir)


def show(run: Run, as_json: bool) -> None:
    """The accuracy at some radii, how the rows ended, and where they are."""
    from berncert.reporting.curves import Curve, accuracy_table, default_radii, summary, warnings_about

    curve = Curve(run.label, run)
    radii = default_radii([curve])
    ends = dict(sorted(Counter(run.rows["status"].tolist()).items()))
    seconds = float(run.rows["time"].sum())
    if as_json:
        output.print_json(summary([curve], radii) | {"run": str(run.path), "status": ends, "seconds": seconds})
        return
    console = output.console()
    console.print(accuracy_table([curve], radii))
    for note in warnings_about([curve]):
        console.print(f"note: {note}", style="bold")
    if part := run.about["data"].get("part"):
        console.print(f"{curve.data}: {part}")
    statuses = ", ".join(f"{count} {name}" for name, count in ends.items())
    speed = f", {len(run) / seconds:,.4g} images/s" if seconds else ""
    console.print(f"{statuses}; {seconds:.1f} s{speed}")
    place = str(run.path) if not str(run.path).startswith("-") else f"./{run.path}"
    console.print(f"the run: {run.path}; see it with: berncert report {shlex.quote(place)}")
    if run.about["settings"].get("proof"):
        console.print(f"its proofs: {run.path / PROOF}; check them with: berncert-check {shlex.quote(place)}")
