"""`berncert train`: every setting of a recipe is a flag, made from where it is defined."""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console

from berncert.cli import output
from berncert.cli.flags import add_data_dir, add_flag, add_hardware, chosen_folder
from berncert.training.recipes import (
    OWNER,
    SECTIONS,
    Recipe,
    about_recipe,
    load_recipe,
    parse_change,
    parse_value,
    recipe_names,
)  # fmt: skip

COLUMNS = {  # of the log -> heading, form
    "epoch": ("epoch", "{:.0f}"),
    "loss": ("   loss", "{:.4f}"),
    "accuracy": (" right", "{:.1%}"),
    "certified_estimate": ("certified ~", "{:.1%}"),
    "test_accuracy": ("test: right", "{:.1%}"),
    "test_certified_estimate": ("certified ~", "{:.1%}"),
    "seconds": ("seconds", "{:.1f}"),
    "images_per_second": ("images/s", "{:,.0f}"),
}
EXAMPLES = """\
examples:
  berncert train digits
  berncert train mnist --data-dir ~/data --out runs/mnist
  berncert train mnist --radius 1.58 --temperature 0.25 --option width=512 --out runs/mnist-wide
  berncert train my-recipe.toml               a file that may say: extends = "mnist"

A training that was cut off goes on when the same command is run again. certified ~ is an estimate on the fly (exact for
the identity and affine heads, but for rounding); what holds is proven by certify.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The recipe, where to write, and a flag for each setting."""
    parser.usage = "berncert train RECIPE [--out DIR] [--data-dir DIR] [settings]"
    parser.description = "Train a model by a recipe. Each setting has a flag; without it the recipe's value is taken."
    recipes = "\n".join(f"  {name:<20} {about_recipe(name)}" for name in recipe_names())
    parser.epilog = f"recipes:\n{recipes}\n\n{EXAMPLES}"
    parser.add_argument("recipe", metavar="RECIPE", help="one of those below, or a TOML file")
    parser.add_argument("--out", metavar="DIR", help="folder of the training (runs/RECIPE)")
    add_data_dir(parser)
    add_hardware(parser)
    for section, kind in SECTIONS.items():
        group = parser.add_argument_group(f"settings: {section}", (kind.__doc__ or "").strip())
        for entry in fields(kind):
            if entry.name == "options":
                group.add_argument(
                    "--option", action="append", default=[], metavar="KEY=VALUE", help="of the architecture: width=128"
                )
                continue
            add_flag(group, entry)


def run(arguments: argparse.Namespace) -> None:
    """Train, a line for each epoch."""
    from berncert.models.checkpoint import FILE  # --help needs no torch
    from berncert.models.hardware import use_threads
    from berncert.training.loop import train

    use_threads(arguments.threads)
    recipe = load_recipe(arguments.recipe, **_changes(arguments))
    folder = chosen_folder(arguments.out, Path("runs") / recipe.name)
    console = output.console()
    _announce(console, recipe, folder)
    done = False

    def line(row: dict[str, float]) -> None:
        nonlocal done
        if not done:
            console.print("  ".join(heading for heading, _ in COLUMNS.values()), style="bold")
        done = True
        cells = (
            ("" if math.isnan(row[name]) else form.format(row[name])).rjust(len(heading))
            for name, (heading, form) in COLUMNS.items()
        )
        console.print("  ".join(cells))

    train(
        recipe, folder, data_dir=arguments.data_dir, device=arguments.device, on_epoch=line,
        on_note=lambda note: console.print(f"note: {note}", style="bold"),
    )  # fmt: skip
    path = folder / FILE
    if not done:
        console.print("all epochs were done before")
    console.print(f"the model: {path}; in Python: berncert.load({str(path)!r})")


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings given as flags, read as in a TOML file."""
    given = {name: value for name in OWNER if (value := getattr(arguments, name, None)) is not None}
    options = dict(map(parse_change, arguments.option))
    for key in options.keys() & OWNER.keys():
        raise ValueError(
            f"expected an option of the architecture, got {key}; that is a setting: --{key.replace('_', '-')}"
        )
    return {key: parse_value(key, value) for key, value in given.items()} | options


def _announce(console: Console, recipe: Recipe, folder: Path) -> None:
    told = recipe.training
    work = f"{told.objective} training of {recipe.model.architecture} on {recipe.data.dataset}, {told.epochs} epochs"
    console.print(f"{recipe.name}: {recipe.about}\n{work}, into {folder}")
