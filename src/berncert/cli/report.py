"""`berncert report`: one HTML file about some runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from berncert.cli.flags import add_own_images
from berncert.cli.output import console, print_json
from berncert.floor.arguments import checked_count
from berncert.runs.lookup import named_runs
from berncert.runs.records import Run

EXAMPLES = """\
runs:
  a folder                  as certify and attack write it, finished or not
  a table, cohen2019:0.25   rows without a record, see berncert curve --help: in the summary and the curves only

examples:
  berncert report runs/mnist-exact-l2
  berncert report proven=runs/mnist-exact-l2 attacked=runs/mnist-attack-l2 --out mnist.html
  berncert report runs/mnist-exact-l2 --examples 1000 --title "MNIST, l2" --data-dir ~/data

The page works offline and asks for nothing: send it by mail, put it beside a paper. Thumbnails are there if the images
are at hand and are the very ones that the run saw.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs, and what the page shows of them."""
    parser.usage = (
        "berncert report [LABEL=]RUN... [--out FILE.html] [--examples N] [--own-images] [--title TEXT]\n"
        "                       [--data-dir DIR] [--json]"
    )
    parser.description = (
        "One HTML file with curves to hover, tables to sort, the least and the most robust images, histograms, options."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("runs", nargs="+", metavar="[LABEL=]RUN", help="a run, see below; LABEL is what it is called")
    parser.add_argument(
        "--out", metavar="FILE.html", help="the page (report.html in the run's folder; of several, runs/report.html)"
    )
    parser.add_argument(
        "--examples", type=int, default=200, metavar="N", help="images in the table of each run, at most (200)"
    )
    add_own_images(parser)
    parser.add_argument("--title", metavar="TEXT", help="of the page")
    parser.add_argument("--data-dir", metavar="DIR", help="where data sets are (else BERNCERT_DATA, the cache)")
    parser.add_argument("--json", action="store_true", help="print path and size, for programs")


def run(arguments: argparse.Namespace) -> None:
    """Write the page, and tell where it is."""
    from berncert.reporting.curves.accuracy import training_images
    from berncert.reporting.html import write_report  # --help needs no torch

    examples = checked_count("examples", arguments.examples)
    if arguments.out == "":
        raise ValueError("expected a file for --out, got nothing; report.html is one in the current folder")
    runs = named_runs(arguments.runs, arguments.data_dir)
    path = Path(arguments.out).expanduser() if arguments.out is not None else _place([its for _, its in runs])
    size = write_report(
        runs,
        path,
        title=arguments.title,
        examples=examples,
        data_dir=arguments.data_dir,
        own_images=arguments.own_images,
    )
    if arguments.json:
        print_json({"path": str(path), "bytes": size})
    else:
        for label, its in runs:
            if not len(its):
                console().print(f"note: {label} has no rows yet")
            if seen := training_images(its):
                console().print(f"note: TRAINING IMAGES: {label}: {seen}", style="bold")
        console().print(f"written: {path} ({size / 1e6:.2f} MB); open it in a browser")


def _place(runs: list[Run]) -> Path:
    """Where the page goes if nothing is said."""
    return (runs[0].path if len(runs) == 1 and runs[0].about else Path("runs")) / "report.html"
