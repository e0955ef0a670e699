"""What is read from files that anyone may have made: where it is looked for, and how much of it there may be."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

DATA_VARIABLE = "BERNCERT_DATA"
"""The environment variable that names a folder of data sets."""
LIMIT_VARIABLE = "BERNCERT_MAX_GIB"
"""The environment variable that raises, or lowers, what may be unpacked."""
MOST_GIB = 2.0
"""What one file, or one folder of images, may unpack to, unless LIMIT_VARIABLE says otherwise."""
GIB = 2**30
DEEPEST = 100
"""Tables within tables: no record that this package writes comes near it."""

LONGEST_TOML = 2**15
"""Characters: recipes have a few hundred, and tomllib takes long over keys with thousands of dots."""


def data_folders(data_dir: str | PathLike[str] | None) -> list[Path]:
    """The folders in which a user keeps data sets, in the order in which they are searched; each is there.

    They are data_dir and what BERNCERT_DATA names. One that is given and missing is an error: whoever names a folder
    does not want data from somewhere else.
    """
    named = os.environ.get(DATA_VARIABLE)
    variable = f"the environment variable {DATA_VARIABLE}"
    return [*given_folder(data_dir), *([_existing(named, variable, "correct it, or unset it")] if named else [])]


def given_folder(data_dir: str | PathLike[str] | None) -> list[Path]:
    """data_dir, if one is given; an error if it is no folder."""
    advice = "make it first to download into it, or leave it out"
    return [] if data_dir is None else [_existing(data_dir, "data_dir", advice)]


def _existing(place: str | PathLike[str], name: str, advice: str) -> Path:
    folder = Path(place).expanduser()
    if not str(place) or not folder.is_dir():
        got = "a file" if folder.is_file() else "not there"
        raise FileNotFoundError(f"expected {name} to name a folder, got {str(place)!r}, which is {got}; {advice}")
    return folder


def most_bytes() -> int:
    """What may be unpacked at once: MOST_GIB, or what BERNCERT_MAX_GIB says."""
    text = os.environ.get(LIMIT_VARIABLE) or str(MOST_GIB)
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise ValueError(f"expected {LIMIT_VARIABLE} to be a number of GiB above 0, got {text!r}; correct or unset it")
    return int(limit * GIB)


def check_unpacked(what: object, size: int) -> None:
    """Refuse, before any memory is taken, what would unpack to more than `most_bytes`."""
    most = most_bytes()
    if size > most:
        raise ValueError(
            f"expected {what} to unpack to at most {most / GIB:.4g} GiB, got more ({size / GIB:.4g} GiB); if that is "
            f"meant, and there is the memory, set the environment variable {LIMIT_VARIABLE} to so many GiB"
        )


def parsed_json(text: str) -> Any:
    """What JSON says; a ValueError if it is none, or nested deeper than a record is."""
    return _shallow(json.loads, text)


def parsed_toml(text: str) -> dict[str, Any]:
    """What TOML says; a ValueError if it is none, or longer or nested deeper than a recipe is."""
    if len(text) > LONGEST_TOML:
        raise ValueError(f"expected at most {LONGEST_TOML} characters, got {len(text)}")
    found: dict[str, Any] = _shallow(tomllib.loads, text)
    return found


def _shallow(parse: Callable[[str], Any], text: str) -> Any:
    """Parsed, if whoever walks through it later comes to an end."""
    message = f"expected at most {DEEPEST} levels, got something that is nested deeper"
    try:
        found = parse(text)
    except RecursionError:
        raise ValueError(message) from None
    level = [found]
    for _ in range(DEEPEST):
        level = [part for value in level for part in _parts(value)]
        if not level:
            return found
    raise ValueError(message)


def _parts(value: Any) -> list[Any]:
    """The tables and lists in a table or a list."""
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [part for part in inside if isinstance(part, (Mapping, list))]
