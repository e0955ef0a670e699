"""`berncert report`: one HTML file about some runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from berncert.cli.flags import add_json, add_runs
from berncert.cli.output import console, print_json
from berncert.foundation.arguments import checked_count
from berncert.reporting.files import PAGES, file_path
from berncert.runs.lookup import named_runs

EXAMPLES = """\
runs:
  a folder                  as certify and attack write it, finished or not
  a table, cohen2019:0.25   rows without a record, see berncert curve --help: in the summary and the curves only

examples:
  berncert report runs/mnist-exact-l2
  berncert report proven=runs/mnist-exact-l2 attacked=runs/mnist-attack-l2 --out mnist.html
  berncert report runs/mnist-exact-l2 --examples 1000 --title "MNIST, l2" --data-dir ~/data

The page works offline and loads nothing: send it by mail, put it beside a paper. It has thumbnails if the images are
found and have not changed since the run.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs, and what the page shows of them."""
    parser.description = (
        "Write one HTML file about some runs: curves to hover, tables to sort, the least and the most robust images,\n"
        "histograms, options."
    )
    add_runs(parser, "page")
    about = "the page (report.html in the folder of one run; runs/report.html of several)"
    parser.add_argument("--out", metavar="FILE.html", help=about)
    parser.add_argument(
        "--examples", type=int, default=200, metavar="N", help="images in the table of each run, at most (200)"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the page, and print its path."""
    from berncert.reporting.html import report, write_report  # --help needs no torch

    examples = checked_count("examples", arguments.examples)
    runs = named_runs(arguments.runs, arguments.data_dir)
    beside = len(runs) == 1 and runs[0][1].about  # the rows of a single run
    path = (runs[0][1].path if beside else Path("runs")) / "report.html"
    path = path if arguments.out is None else file_path(arguments.out, PAGES)
    content = report(
        runs, title=arguments.title, examples=examples, data_dir=arguments.data_dir, own_images=arguments.own_images
    )
    size = write_report(content, path)
    if arguments.json:
        print_json({"path": str(path), "bytes": size})
        return
    for entry in content.entries:
        if not len(entry.run):
            console().print(f"note: {entry.label} has no rows yet")
        if entry.training_images:
            console().print(f"note: TRAINING IMAGES: {entry.label}: {entry.training_images}", style="bold")
    console().print(f"written: {path} ({size / 1e6:.2f} MB); open it in a browser")
