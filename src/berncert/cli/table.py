"""`berncert table`: train a model on a table, smooth it, certify the rows that were held out, and show the result."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berncert.certification.methods import Exact
from berncert.cli.flags import add_engine, add_flag, add_json, chosen_folder, settings_of
from berncert.cli.output import console, print_json
from berncert.foundation.rounding import floor_digits, norm_name, percent
from berncert.runs.table_settings import TableSettings

if TYPE_CHECKING:
    from berncert.runs.records import Run

EXAMPLES = """\
examples:
  berncert table wine --target class          a table that is shipped; breast_cancer and iris are, too
  berncert table loans.csv --target approved --model gradient_boosting --fixed age --increasing income
  berncert table loans.parquet --target approved --dim 6 --norm inf --out runs/loans
  berncert table breast_cancer --target class --model boosted_stumps --terms auto     all 30 columns, none projected

A CSV file has the names of its columns in the first line; columns of words are categories. Distances are in standard
deviations of each column. The folder gets run.json, certificates.tsv (a row and its counterfactual in each line),
model.skops, and report.html. Whole numbers stay whole and categories stay categories where their columns are not
projected: with at most --dim columns, with --dim select, if they are among those named in a constraint, or with
--terms auto for models that are sums of terms in one or two columns (logistic, naive_bayes, boosted_stumps, ...).
"""
METHOD_FLAGS = ("norm", "tolerance", "max_boxes", "max_seconds", "proof")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The table, and how it is worked on."""
    parser.description = "Train a model on a table, smooth it, and prove for each row how far it is from another class."
    parser.add_argument("table", metavar="TABLE", help="a .csv or .parquet file; wine, iris or breast_cancer")
    for entry in fields(TableSettings):
        if entry.name == "target":
            parser.add_argument("--target", required=True, metavar="COLUMN", help=entry.metadata["help"])
        else:
            add_flag(parser, entry, default=entry.default != ())
    for entry in fields(Exact):
        if entry.name in METHOD_FLAGS:
            add_flag(parser, entry, default=True)
    parser.add_argument(
        "--threads", type=int, metavar="N", help="of the search (all cores; 1 with another engine than serial)"
    )
    add_engine(parser)
    parser.add_argument("--out", metavar="DIR", help="the folder of the run (runs/TABLE-MODEL-NORM)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Make the run, write its report, and print what came of it."""
    from berncert.reporting.html import report, write_report
    from berncert.runs.tables import execute_table

    settings = settings_of(TableSettings, arguments)
    method = settings_of(Exact, argparse.Namespace(**{n: getattr(arguments, n) for n in METHOD_FLAGS}))
    name = f"{Path(arguments.table).stem}-{settings.model}-{norm_name(method.norm)}"
    folder = chosen_folder(arguments.out, Path("runs") / name)
    command = shlex.join(["berncert", *sys.argv[1:]])
    found = execute_table(
        arguments.table, folder, settings, method, command=command, threads=arguments.threads, engine=arguments.engine,
        timeout=arguments.timeout,
    )  # fmt: skip
    page = folder / "report.html"
    write_report(report([(folder.name, found)]), page)
    if arguments.json:
        print_json(summary(found) | {"folder": str(folder), "report": str(page)})
        return
    _print(found, folder, page)


def summary(found: Run) -> dict[str, object]:
    """The main numbers of a run on a table."""
    table, model = found.about["table"], found.about["model"]
    return {
        "rows": len(found),
        "base_accuracy": table["base_accuracy"],
        "smoothed_accuracy": table["smoothed_accuracy"],
        "agreement": model["agreement"],
        "degree": model["degree"],
        "axes": model["axes"],
        "form": form_of(model),
        "certified": {str(radius): float(found.standing(radius)[0]) for radius in (0.1, 0.25, 0.5, 1.0)},
    }


def form_of(model: Mapping[str, Any]) -> str:
    """What was certified; records of earlier versions do not say it, and had one form only."""
    return str(model.get("form", "one polynomial"))


def _print(found: Run, folder: Path, page: Path) -> None:
    from berncert.reporting.curves import constant_note
    from berncert.runs.records import PROOF

    table, model, out = found.about["table"], found.about["model"], console()
    out.print(
        f"{found.about['data']['name']}: {len(found)} rows held out; {model['base']} {table['base_accuracy']:.1%} -> "
        f"smoothed {table['smoothed_accuracy']:.1%} correct ({form_of(model)}, degree {max(model['degree'])}, "
        f"{model['axes']} axes, agrees on {model['agreement']:.1%} of the training rows)"
    )
    for radius in (0.1, 0.25, 0.5, 1.0):
        certain = int((found.correct & (found.radius >= radius)).sum())
        share = percent(certain, len(found), 1)
        out.print(f"  proven correct within {radius:g} standard deviations ({norm_name(found.norm)}): {share} %")
    _print_example(found)
    if note := constant_note(found):
        out.print(f"note: {note}", style="bold")
    out.print(f"written: {folder}; open {page} in a browser")
    if found.about["settings"].get("proof"):
        place = str(folder) if not str(folder).startswith("-") else f"./{folder}"
        out.print(f"its proofs: {folder / PROOF}; check them with: berncert-check {shlex.quote(place)}")


def _print_example(found: Run) -> None:
    """The row nearest to another class, and what would have to change."""
    from berncert.reporting.html.table_rows import changes_of

    known = [i for i in range(len(found)) if found.correct[i] and found.rows["upper"][i] < float("inf")]
    if not known:
        return
    row = min(known, key=lambda i: float(found.rows["upper"][i]))
    classes = found.about["data"]["classes"]
    changes = ", ".join(f"{c.column} {c.before} -> {c.after}" for c in changes_of(found, row)[:4])
    console().print(
        f"nearest to another class: row {found.rows['idx'][row]}, {classes[found.rows['predict'][row]]}, proven up to "
        f"{floor_digits(found.radius[row], 3)}; {classes[found.rows['rival'][row]]} with {changes}"
    )
