"""Settings: each is defined once, as a field with its default, what it means, and which values make sense.

Its flag on the command line, its entry in a record and its check all come from there.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, fields
from typing import Any, get_args, get_type_hints

from berncert.floor.reading import parsed_toml
from berncert.floor.rounding import number

LARGEST_FLOAT = sys.float_info.max
LARGEST = 2**31
"""No whole number is larger: a seed times a million still fits into 64 bits."""


def setting(
    default: Any,
    about: str,
    *,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    endless: bool = False,
) -> Any:
    """A setting: its default, what it means, and which values make sense; infinity only if it is `endless`."""
    limits = {"help": about, "choices": choices, "least": least, "above": above, "below": below, "endless": endless}
    return field(default=default, metadata=limits)


class Settings:
    """Settings that check themselves."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for entry in fields(self):  # type: ignore[arg-type]
            value = checked(entry.name, getattr(self, entry.name), hints[entry.name], entry.metadata)
            object.__setattr__(self, entry.name, value)


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """The types that a setting of this kind may have."""
    return get_args(kind) if isinstance(kind, types.UnionType) else (kind,)


def checked(name: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> Any:
    """The value, if it is of that kind and within the limits; whole numbers are taken where fractions are."""
    options = kinds_of(kind)
    if types.NoneType in options and (value is None or value == "none"):
        return None
    plain = next(option for option in options if option is not types.NoneType)
    if plain is float and type(value) is int:
        value = float(value) if abs(value) <= LARGEST else math.inf
    if plain == tuple[float, ...]:
        if not isinstance(value, (list, tuple)) or not value or not all(type(v) in (int, float) for v in value):
            raise ValueError(f"expected {name} to be a list of numbers, got {value!r}; write e.g. 0.1,0.5")
        if not all(abs(v) <= LARGEST for v in value):
            raise ValueError(f"expected {name} to be finite, got {value!r}")
        return tuple(float(v) for v in value)
    if plain in (int, float, bool, str) and type(value) is not plain:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise ValueError(f"expected {name} to be {words[plain]}, got {value!r}")
    if limits.get("choices") and value not in limits["choices"]:
        raise ValueError(f"expected {name} out of {', '.join(limits['choices'])}, got {value!r}")
    least, above = limits.get("least"), limits.get("above")
    greatest = math.inf if limits.get("endless") else LARGEST_FLOAT
    if least is not None and not least <= value <= greatest:
        finite = "" if plain is int or limits.get("endless") else "a finite "
        raise ValueError(f"expected {finite}{name} >= {least:g}, got {value!r}")
    if above is not None and not above < value <= greatest:
        raise ValueError(f"expected a finite {name} > {above:g}, got {value!r}")
    if limits.get("below") is not None and not value < limits["below"]:
        raise ValueError(f"expected {name} below {limits['below']:g}, got {value!r}")
    if plain is int and value > LARGEST:
        raise ValueError(f"expected {name} <= {LARGEST}, got {value!r}")
    return value


def parsed(text: str, kind: Any) -> Any:
    """What is typed for a setting of this kind, or of any, as in a TOML file; `none` is nothing.

    What cannot be read stays text, for the check to refuse.
    """
    kinds = kinds_of(kind)
    if text.lower() == "none" and (types.NoneType in kinds or kind is None):
        return None
    if str in kinds:
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    with suppress(ValueError):
        if tuple[float, ...] in kinds and not text.startswith("["):
            return tuple(number(part) for part in text.split(","))
        if float in kinds:
            return number(text)
        return parsed_toml(f"value = {text}")["value"]
    return text
