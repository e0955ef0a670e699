"""`berncert train`: train a model by a recipe, each setting of which is a flag."""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from berncert.cli import output
from berncert.cli.flags import add_data_dir, add_flag, add_hardware, chosen_folder
from berncert.training import recipes

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
EXAMPLES = """\
examples:
  berncert train digits
  berncert train mnist --data-dir ~/data --out runs/mnist
  berncert train mnist --radius 1.58 --temperature 0.25 --option width=512 --out runs/mnist-wide
  berncert train my-recipe.toml               a file that may say: extends = "mnist"

A training that was interrupted resumes when the same command is run again. "certified ~" is an estimate (exact for the
identity and affine heads, except for rounding); berncert certify proves what holds.
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
    for section, kind in recipes.SECTIONS.items():
        group = parser.add_argument_group(f"settings: {section}", (kind.__doc__ or "").strip())
        for entry in fields(kind):
            if entry.name == "options":
                about = f"an option {entry.metadata['help']}"
                group.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help=about)
            else:
                add_flag(group, entry)


def run(arguments: argparse.Namespace) -> None:
    """Train the model and print a line for each epoch."""
    from berncert.hardware import use_threads
    from berncert.models.checkpoint import FILE  # --help needs no torch
    from berncert.training.loop import train

    use_threads(arguments.threads)
    recipe = recipes.load_recipe(arguments.recipe, **_changes(arguments))
    folder = chosen_folder(arguments.out, Path("runs") / recipe.name)
    console = output.console()
    settings = recipe.training
    work = f"{settings.objective} training of {recipe.model.architecture} on {recipe.data.dataset}"
    console.print(f"{recipe.name}: {recipe.about}\n{work}, {settings.epochs} epochs, into {folder}")
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


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings and options that flags change."""
    given = {name: value for name in recipes.SECTION_OF if (value := getattr(arguments, name, None)) is not None}
    options = dict(map(recipes.parse_change, arguments.option))
    for key in options.keys() & recipes.SECTION_OF.keys():
        raise ValueError(
            f"expected an option of the architecture, got {key}; that is a setting: --{key.replace('_', '-')}"
        )
    return {key: recipes.parse_value(key, value) for key, value in given.items()} | options
