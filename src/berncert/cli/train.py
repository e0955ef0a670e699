"""`berncert train`: train a model by a recipe, each setting of which is a flag."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berncert.cli import output
from berncert.cli.flags import add_data_dir, add_engine, add_flag, add_hardware, chosen_folder
from berncert.training import recipes

if TYPE_CHECKING:
    from berncert.reporting.tables import TextTable
    from berncert.runs.sweeps import Sweep

COLUMNS = {  # column of the log -> heading, format
    "epoch": ("epoch", "{:.0f}"),
    "loss": ("   loss", "{:.4f}"),
    "accuracy": ("accuracy", "{:.1%}"),
    "certified_estimate": ("certified ~", "{:.1%}"),
    "test_accuracy": ("test: accuracy", "{:.1%}"),
    "test_certified_estimate": ("certified ~", "{:.1%}"),
    "holdout_accuracy": ("held out: accuracy", "{:.1%}"),
    "holdout_certified_estimate": ("certified ~", "{:.1%}"),
    "seconds": ("seconds", "{:.1f}"),
    "images_per_second": ("images/s", "{:,.0f}"),
}
IN_TRAINING = ("loss", "accuracy", "certified_estimate")
"""Columns that are about training images: a table of trainings leaves them out."""
EXAMPLES = """\
examples:
  berncert train digits
  berncert train mnist --data-dir ~/data --out runs/mnist
  berncert train mnist --radius 1.58 --temperature 0.25 --option width=512 --out runs/mnist-wide
  berncert train my-recipe.toml               a file that may say: extends = "mnist"
  berncert train digits --sweep radius=0.3,0.5,1 --sweep degree=1,2 --seeds 3 --engine processes:2

A training that was interrupted resumes when the same command is run again. "certified ~" is an estimate (exact for the
identity and affine heads, except for rounding); berncert certify proves what holds.

--sweep trains every choice of the values, with --seeds each of them several times, in a folder for each training, and
ends with a table. Trainings are given to the workers of --engine; the same command resumes.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the recipe, the folder, and a flag for each setting."""
    parser.usage = "berncert train RECIPE [--out DIR] [--data-dir DIR] [settings]"
    parser.description = "Train a model by a recipe. Each setting has a flag; without the flag, the recipe decides."
    listing = "\n".join(f"  {name:<20} {recipes.describe_recipe(name)}" for name in recipes.recipe_names())
    parser.epilog = f"recipes:\n{listing}\n\n{EXAMPLES}"
    parser.add_argument("recipe", metavar="RECIPE", help="one of the recipes below, or a TOML file")
    parser.add_argument("--out", metavar="DIR", help="the folder of the training (runs/RECIPE)")
    add_data_dir(parser)
    add_hardware(parser)
    group = parser.add_argument_group("several trainings", "One folder for each, and a table.")
    about = "train with each of these values; may be given for several settings, or options of the architecture"
    group.add_argument("--sweep", action="append", default=[], metavar="SETTING=VALUE,VALUE,...", help=about)
    group.add_argument("--seeds", metavar="N", help="train with so many seeds, from the recipe's on (1)")
    add_engine(group)
    for section, kind in recipes.SECTIONS.items():
        group = parser.add_argument_group(f"settings: {section}", (kind.__doc__ or "").strip())
        for entry in fields(kind):
            if entry.name == "options":
                about = f"an option {entry.metadata['help']}"
                group.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help=about)
            else:
                add_flag(group, entry)


def run(arguments: argparse.Namespace) -> None:
    """Train one model, or several."""
    from berncert.hardware import use_threads  # --help needs no torch

    use_threads(arguments.threads)
    recipe = recipes.load_recipe(arguments.recipe, **_changes(arguments))
    if arguments.sweep or arguments.seeds is not None:
        run_sweep(arguments, recipe)
    elif arguments.engine != "serial" or arguments.timeout is not None:
        raise ValueError("expected --sweep or --seeds with --engine and --timeout, got one training; it runs here")
    else:
        run_one(arguments, recipe)


def run_one(arguments: argparse.Namespace, recipe: recipes.Recipe) -> None:
    """Train the model and print a line for each epoch."""
    from berncert.models.checkpoint import FILE
    from berncert.training.loop import train

    folder = chosen_folder(arguments.out, Path("runs") / recipe.name)
    console = output.console()
    settings = recipe.training
    work = f"{settings.objective} training of {recipe.model.architecture} on {recipe.data.dataset}"
    console.print(f"{recipe.name}: {recipe.about}\n{work}, {_epochs(settings.epochs)}, into {folder}")
    rows: list[dict[str, float]] = []

    def print_epoch(row: dict[str, float]) -> None:
        columns = {name: column for name, column in COLUMNS.items() if name in row}
        if not rows:
            console.print("  ".join(heading for heading, _ in columns.values()), style="bold")
        rows.append(row)
        cells = (
            ("" if math.isnan(row[name]) else form.format(row[name])).rjust(len(heading))
            for name, (heading, form) in columns.items()
        )
        console.print("  ".join(cells))

    train(
        recipe, folder, data_dir=arguments.data_dir, device=arguments.device, on_epoch=print_epoch,
        on_note=lambda note: console.print(f"note: {note}", style="bold"),
    )  # fmt: skip
    if not rows:
        console.print("all epochs were trained before")
    path = folder / FILE
    console.print(f"the model: {path}; in Python: berncert.load({str(path)!r})")


def _epochs(count: int) -> str:
    return f"{count} epoch{'s' * (count != 1)}"


def run_sweep(arguments: argparse.Namespace, recipe: recipes.Recipe) -> None:
    """Train with every choice of the settings, print a line for each training, and a table."""
    from berncert.foundation.settings import parsed
    from berncert.runs.sweeps import TABLE, execute_sweep

    over, console = _swept(arguments), output.console()
    folder = chosen_folder(arguments.out, Path("runs") / f"{recipe.name}-sweep")
    console.print(f"{recipe.name}: {recipe.about}\n{_epochs(recipe.training.epochs)} each, into {folder}")
    sweep = execute_sweep(
        recipe, folder, over, seeds=1 if arguments.seeds is None else parsed(arguments.seeds, int),
        data_dir=arguments.data_dir, device=arguments.device, threads=arguments.threads, engine=arguments.engine,
        timeout=arguments.timeout, command=shlex.join(["berncert", *sys.argv[1:]]),
        on_trained=lambda row: console.print(_line(row)),
    )  # fmt: skip
    console.print(_table(sweep))
    console.print(f"written: {folder / TABLE}; a model: berncert certify {shlex.quote(str(folder / 'NAME'))}")
    if sweep.failures:
        raise RuntimeError(
            f"{len(sweep.failures)} of {len(sweep.rows)} trainings diverged: {', '.join(sweep.failures)}"
        )


def _swept(arguments: argparse.Namespace) -> dict[str, list[Any]]:
    """Setting -> values, of all --sweep."""
    over: dict[str, list[Any]] = {}
    changed = _changes(arguments)
    for name, values in map(recipes.parse_sweep, arguments.sweep):
        if name in over or name in changed:
            raise ValueError(f"expected {name} once, got it twice; say all of its values in one --sweep")
        over[name] = values
    return over


def _line(row: Mapping[str, Any]) -> str:
    """A training of a sweep, in a line."""
    if row["failure"]:
        return f"{row['folder']}: {row['failure']}"
    shown = (COLUMNS[name] + (row[name],) for name in _evaluated(row) if not math.isnan(row[name]))
    return f"{row['folder']}: " + ", ".join(f"{heading} {form.format(value)}" for heading, form, value in shown)


def _evaluated(row: Mapping[str, Any]) -> list[str]:
    """Columns of the log that compare trainings."""
    return [name for name in COLUMNS if name in row and name not in IN_TRAINING]


def _table(sweep: Sweep) -> TextTable:
    """The means over the seeds; after ± the standard deviation."""
    from berncert.reporting.tables import TextTable

    rows = sweep.averages()
    measures = _evaluated(dict.fromkeys(name for row in rows for name in row))
    headings = [*sweep.settings, "seeds", *(COLUMNS[name][0].strip() for name in measures)]
    return TextTable(
        headings,
        [
            [*(str(row[name]) for name in sweep.settings), _seeds(row), *(_cell(row, name) for name in measures)]
            for row in rows
        ],
        left=len(sweep.settings),
    )


def _seeds(row: Mapping[str, Any]) -> str:
    return f"{row['seeds']}, {row['failures']} diverged" if row["failures"] else str(row["seeds"])


def _cell(row: Mapping[str, Any], name: str) -> str:
    value, deviation = row.get(name, math.nan), row.get(f"{name}_deviation", math.nan)
    if math.isnan(value):
        return "-"
    form = COLUMNS[name][1]
    return form.format(value) + ("" if math.isnan(deviation) else f" ± {form.format(deviation)}")


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings and options that flags change."""
    given = {name: value for name in recipes.SECTION_OF if (value := getattr(arguments, name, None)) is not None}
    options = dict(map(recipes.parse_change, arguments.option))
    for key in options.keys() & recipes.SECTION_OF.keys():
        raise ValueError(
            f"expected an option of the architecture, got {key}; that is a setting: --{key.replace('_', '-')}"
        )
    return {key: recipes.parse_value(key, value) for key, value in given.items()} | options
