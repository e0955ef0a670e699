"""`berncert attack`: what no certificate can be better than, kept in a run's folder."""

from __future__ import annotations

import argparse

from berncert.cli.certify import add_run, execute_run, show

EXAMPLES = """\
examples:
  berncert attack digits
  berncert attack mnist --radii 0.3,1,1.58 --limit 1000 --restarts 5
  berncert attack runs/cifar10 --method fgsm --norm inf --radii 2/255,8/255 --skip 20
  berncert attack digits --degree base                          the head before smoothing, for comparison

The run is a folder with run.json and attacks.tsv: for each image the least of the radii at which it fell, 0 if it was
wrong as it is, inf if it stood. The network is attacked as it is proven: in float64. Put beside a proof with
berncert curve RUN RUN.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the method, and a flag for each setting."""
    parser.usage = "berncert attack MODEL [--data NAME] [--norm 2|inf] [--radii R,R,...] [--method NAME] [settings]"
    parser.description = (
        "Look, within each radius, for images that change the class: the accuracy that is left is an upper limit for\n"
        "what can be proven."
    )
    add_run(parser, "attack")


def run(arguments: argparse.Namespace) -> None:
    """Attack, and say what is left standing."""
    show(execute_run(arguments, "attack"), arguments.json)
