"""`berncert attack`: what no certificate can be better than, kept in a run's folder."""

from __future__ import annotations

import argparse
from dataclasses import fields

from berncert.cli.certify import perform_as_told, show
from berncert.cli.flags import add_data_dir, add_flag, add_hardware, add_json, settings_of
from berncert.study.runs.methods import Attacked

EXAMPLES = """\
examples:
  berncert attack digits
  berncert attack mnist --radii 0.3,1,1.58 --limit 1000 --restarts 5
  berncert attack runs/cifar10 --method fgsm --norm inf --radii 2/255,8/255 --skip 20

The run is a folder with run.json and attacks.tsv: for each image the least of the radii at which it fell, 0 if it was
wrong as it is, inf if it stood. The network is attacked as it is proven: in float64. Put beside a proof with
berncert curve RUN RUN.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, and a flag for each setting."""
    parser.usage = "berncert attack MODEL [--data NAME] [--norm 2|inf] [--radii R,R,...] [settings]"
    parser.description = (
        "Look, within each radius, for images that change the class: the accuracy that is left is an upper limit for "
        "what can be proven."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="digits or mnist, which come along; a checkpoint; a training")
    parser.add_argument("--out", metavar="DIR", help="folder of the run (runs/ and a name that tells the settings)")
    add_data_dir(parser)
    add_hardware(parser)
    add_json(parser)
    group = parser.add_argument_group("settings", "What is attacked, and how.")
    for entry in fields(Attacked):
        add_flag(group, entry, default=True)


def run(arguments: argparse.Namespace) -> None:
    """Attack, and say what is left standing."""
    from berncert.study.hardware import use_threads  # --help needs no torch

    use_threads(arguments.threads)
    settings = settings_of(Attacked, arguments)
    arguments.method = settings.method
    show(perform_as_told(arguments, settings), arguments.json)
