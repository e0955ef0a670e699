"""What commands print: text for people, in colour on a terminal only, or JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

MOST_AXES = 16  # whose degrees are printed one by one


class Screen(Console):
    """A console that leaves a reader who has seen enough to whoever called."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, quiet: bool = False) -> Console:
    """For standard output. Names are printed as they are, whatever they look like; `quiet` prints nothing."""
    return Screen(markup=False, highlight=False, soft_wrap=True, quiet=quiet)


def degree_text(degrees: Sequence[int]) -> str:
    """Of a head: one number if all axes have it, else all of them, or of many the greatest."""
    if len(degrees) > MOST_AXES and len(set(degrees)) > 1:
        return f"up to {max(degrees)}"
    return str(degrees[0]) if len(set(degrees)) == 1 else "x".join(map(str, degrees))


def print_json(value: Any) -> None:
    """Plain JSON, which has no words for what is not finite: infinity is "inf", what is no number null."""
    print(json.dumps(_plain(value), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):  # numpy and torch
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
