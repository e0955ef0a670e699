"""`berncert curve`: certified accuracy over radii, as a table and as pictures."""

from __future__ import annotations

import argparse
import sys

from berncert.cli.flags import add_runs
from berncert.cli.output import console, print_json
from berncert.reporting.curves import (
    accuracy_table,
    common_norm,
    curves_of,
    default_radii,
    on_common_images,
    radii_of,
    summary,
    warnings_about,
)
from berncert.reporting.files import PICTURES, file_path, write_picture

EXAMPLES = """\
runs:
  a folder                  as certify and attack write it, finished or not
  a table                   with the columns idx label predict radius correct time, as the field's own code writes it;
                            it does not say what its radii claim, nor in which norm: they are taken as l2
  cohen2019, salman2019     published rows of randomized smoothing on CIFAR-10, for noise 0.12, 0.25, 0.50 and 1.00;
  cohen2019:0.25            one of them. They are looked for in published/ in --data-dir and in BERNCERT_DATA

examples:
  berncert curve runs/mnist-exact-l2
  berncert curve proven=runs/mnist-exact-l2 attacked=runs/mnist-attack-l2 --out curve.png --out curve.pdf
  berncert curve runs/cifar10-exact-l2 cohen2019 salman2019:0.25 --radii 0,36/255,72/255,1 --format latex
  berncert curve runs/mnist-exact-l2 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs, and what to make of them."""
    parser.description = (
        "Show the share of images that are correct and hold at each radius, for any runs in the same norm. Runs\n"
        "over the same data are compared on the images that all of them have. In pictures proven curves are solid,\n"
        "probable ones dashed, estimates dash-dotted, unknown claims dash-dot-dotted; attacks, which limit every\n"
        "proof, dotted."
    )
    add_runs(parser, "picture")
    parser.add_argument("--radii", metavar="LIST", help="the radii of the table, e.g. 0,36/255,0.5 (round radii)")
    parser.add_argument(
        "--out", action="append", default=[], metavar="FILE", help="a picture: .png, .svg or .pdf; may be repeated"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format", choices=("text", "markdown", "latex"), default="text", help="the format of the printed table (text)"
    )
    form.add_argument("--json", action="store_true", help="print the numbers in full precision as JSON")


def run(arguments: argparse.Namespace) -> None:
    """Read the runs, write the pictures, print the table."""
    pictures = [file_path(text, PICTURES) for text in arguments.out]
    radii = None if arguments.radii is None else radii_of(arguments.radii)
    curves = curves_of(arguments.runs, arguments.data_dir)
    common_norm(curves)
    curves, compared = (curves, []) if arguments.own_images else on_common_images(curves)
    radii = default_radii(curves) if radii is None else radii
    table = accuracy_table(curves, radii)
    if pictures:
        from berncert.reporting.curves.figure import curve_figure  # matplotlib is slow to import

        figure = curve_figure(curves, title=arguments.title)
        for path in pictures:
            write_picture(figure, path)
    if arguments.json:
        numbers = summary(curves, radii)
        print_json(numbers | {"notes": [*compared, *numbers["notes"]], "pictures": list(map(str, pictures))})
        return
    hinted = [f"{note}; --own-images keeps each run on all of its own" for note in compared]
    notes = [f"note: {note}" for note in (*hinted, *warnings_about(curves))]
    if arguments.format == "text":
        screen = console()
        screen.print(table)
        for line in (*notes, *(f"written: {path}" for path in pictures)):
            screen.print(line)
        return
    print({"markdown": table.markdown, "latex": table.latex}[arguments.format]())
    for note in notes:
        print(note, file=sys.stderr)
