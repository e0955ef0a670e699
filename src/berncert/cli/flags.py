"""Flags: those that several commands take, and those that are made from settings where these are defined."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from berncert.foundation.settings import Settings, parsed
from berncert.models.source_settings import SourceSettings

Kind = TypeVar("Kind", bound=Settings)
LEADS = "expected(?: no| a finite| a whole number)?|lower|raise|set|pass|choose(?: other)?"
"""What comes before the name of a setting in an error; a name with an underscore is one anywhere."""

METAVARS: dict[Any, str] = {
    "int": "N",
    "int | None": "N",
    "int | str": "N",
    "int | str | None": "N",
    "tuple[str, ...]": "COLUMNS",
}
"""The type of a setting, as it is written -> what the help calls its value."""


def with_flags(message: str, parser: argparse.ArgumentParser) -> str:
    """The message of an error with the flags of this command where it names settings or parameters, as Python has them.

    What is said of a file, before any `expected`, is left as it is: there a setting is an entry, and has no dashes.
    """
    if not message.startswith("expected "):
        return message
    flags = {action.dest: action.option_strings[-1] for action in parser._actions if action.option_strings}
    names = "|".join(sorted(map(re.escape, flags), key=len, reverse=True))
    joined = "|".join(name for name in flags if "_" in name) or "(?!)"
    edge = r"(?![\w/.:-]*[\w/-])"  # not the beginning of a longer word or a path
    patterns = (
        rf"(?P<lead>\b(?:{LEADS}) )(?P<name>{names}){edge}(?P<equals>=)?",
        rf"(?P<lead>\b(?:settings|data|model|training)\.)(?P<name>{names}){edge}",
        rf"(?P<lead>(?<![\w./'\"-]))(?P<name>{joined}){edge}(?P<equals>=)?",
        rf"(?P<lead>(?<![\w./'\"-]))(?P<name>{names})(?P<equals>=)(?=')",
        rf"(?P<lead>--[\w-]+ (?:and|or) )(?P<name>{names}){edge}",
    )

    def named(found: re.Match[str]) -> str:
        parts = found.groupdict()
        lead = "" if parts["lead"].endswith(".") else parts["lead"]
        return f"{lead}{flags[parts['name']]}{' ' if parts.get('equals') else ''}"

    for pattern in patterns:
        message = re.sub(pattern, named, message)
    return message


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model that a command works on."""
    about = "a shipped one, e.g. mnist; a checkpoint; the folder of a training; an .onnx file; module:function"
    parser.add_argument("model", metavar="MODEL", help=about)
    about = "Options of ONNX files, and of networks that a function of yours builds: module:function."
    group = parser.add_argument_group("a network of your own", about)
    for entry in fields(SourceSettings):
        add_flag(group, entry)


def add_data_dir(parser: argparse.ArgumentParser, more: str = ", download)") -> None:
    """Where data sets are."""
    parser.add_argument("--data-dir", metavar="DIR", help=f"where data sets are (else BERNCERT_DATA, the cache{more}")


def add_runs(parser: argparse.ArgumentParser, made: str) -> None:
    """The runs that a table, picture or page is made of, where their images are, and its title."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help=f"a run, see below; LABEL=RUN names it in the {made}")
    about = "each run on all of its images, not only on those that are in all runs"
    parser.add_argument("--own-images", action="store_true", help=about)
    parser.add_argument("--title", metavar="TEXT", help=f"the title of the {made}")
    add_data_dir(parser, "); published rows in published/")


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """What it runs on."""
    parser.add_argument("--device", help="cpu, cuda, ... (a GPU if there is one)")
    parser.add_argument("--threads", type=int, metavar="N", help="on the CPU (torch's own choice)")


def add_engine(parser: argparse._ActionsContainer) -> None:
    """Who works on the batches."""
    about = "serial, processes:N, dask, dask:ADDRESS or dask:SCHEDULER.json: who does the work (serial)"
    parser.add_argument("--engine", default="serial", metavar="NAME", help=about)
    about = "give what is not done after so many seconds to another worker (wait)"
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help=about)


def add_json(parser: argparse.ArgumentParser) -> None:
    """For programs."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")


def add_flag(group: argparse._ActionsContainer, entry: Field[Any], *, default: bool = False) -> None:
    """The flag of one setting, with its help; `default` adds what it is without."""
    choices = entry.metadata["choices"]
    about = entry.metadata["help"] + (f": {', '.join(choices)}" if choices else "")
    if entry.type == "bool":
        flag = f"--{entry.name.replace('_', '-')}"
        group.add_argument(flag, nargs="?", const="true", metavar="true|false", help=about)
        return
    if default and entry.default is not None:
        default_text = ",".join(f"{v:g}" for v in entry.default) if isinstance(entry.default, tuple) else entry.default
        about += f" ({default_text})"
    flag = f"--{entry.name.replace('_', '-')}"
    group.add_argument(
        flag, dest=entry.name, metavar=METAVARS.get(entry.type, "VALUE"), default=None, help=about.replace("%", "%%")
    )


def settings_of(kind: type[Kind], arguments: argparse.Namespace, others: Iterable[type[Settings]] = ()) -> Kind:
    """The settings that the flags give; a flag that only others know is an error."""
    hints, own = get_type_hints(kind), {entry.name for entry in fields(kind)}  # type: ignore[arg-type]
    for other in others:
        for entry in fields(other):  # type: ignore[arg-type]
            if entry.name not in own and getattr(arguments, entry.name, None) is not None:
                flag, word = f"--{entry.name.replace('_', '-')}", f"--method {arguments.method}"
                names = ", ".join(f"--{entry.name.replace('_', '-')}" for entry in fields(kind))  # type: ignore[arg-type]
                raise ValueError(f"expected no {flag} with {word}; {names} are its settings")
    given = {name: getattr(arguments, name, None) for name in own}
    return kind(**{name: parsed(text, hints[name]) for name, text in given.items() if text is not None})


def chosen_folder(out: str | None, default: Path) -> Path:
    """Where to write."""
    if out == "":
        raise ValueError("expected a folder for --out, got nothing; . is the current one")
    return default if out is None else Path(out)
