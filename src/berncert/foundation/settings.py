"""Settings: each is defined once, as a field with its default, what it means, and which values make sense.

Its flag on the command line, its entry in a record and its check all come from there.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field, fields
from numbers import Integral
from typing import Any, get_args, get_type_hints

from berncert.foundation.arguments import as_float, is_real
from berncert.foundation.rounding import number
from berncert.foundation.safe_reading import parsed_toml

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
    check: Callable[[Any], Any] | None = None,
) -> Any:
    """A setting: its default, what it means, and which values make sense; infinity only if it is `endless`.

    `check` decides alone: it returns the value to take, or raises a ValueError.
    """
    limits = {"help": about, "choices": choices, "least": least, "above": above, "below": below}
    return field(default=default, metadata=limits | {"endless": endless, "check": check})


def count_or(word: str, name: str) -> Callable[[Any], int | str]:
    """The check of a setting of this name that is a whole number >= 1, as a number or as text, or this word."""

    def check(value: Any) -> int | str:
        if isinstance(value, str) and value == word:
            return word
        count = int(value) if isinstance(value, str) and value.isdecimal() else value
        if isinstance(count, bool) or not isinstance(count, Integral) or not 1 <= int(count) <= LARGEST:
            raise ValueError(f"expected {name} to be a whole number >= 1, or {word}, got {value!r}")
        return int(count)

    return check


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
    if types.NoneType in options and (value is None or (isinstance(value, str) and value == "none")):
        return None
    if limits.get("check"):
        return limits["check"](value)
    plain = next(option for option in options if option is not types.NoneType)
    hint = f"; {name}: {limits['help']}" if limits.get("help") else ""
    if plain == tuple[float, ...]:
        if not isinstance(value, (list, tuple)) or not value or not all(is_real(v) for v in value):
            raise ValueError(f"expected {name} to be a list of numbers, got {value!r}; write e.g. 0.1,0.5")
        if not all(abs(v) <= LARGEST for v in value):
            raise ValueError(f"expected {name} to be finite, got {value!r}{hint}")
        return tuple(float(v) for v in value)
    if plain is float and is_real(value):
        value = as_float(value)
    if plain is int and isinstance(value, Integral) and is_real(value):
        value = int(value)
    expected = _expected(name, value, plain, limits)
    if expected:
        raise ValueError(f"expected {expected}, got {value!r}{hint}")
    return value


def _expected(name: str, value: Any, plain: type, limits: Mapping[str, Any]) -> str:
    """What was expected instead of this value; nothing if it is fine."""
    least, above, below, endless = (limits.get(key) for key in ("least", "above", "below", "endless"))
    greatest, finite = (math.inf, "") if endless else (LARGEST_FLOAT, "" if plain is int else "a finite ")
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if plain in words and type(value) is not plain:
        return f"{name} to be {words[plain]}"
    if limits.get("choices") and value not in limits["choices"]:
        return f"{name} out of {', '.join(limits['choices'])}"
    if least is not None and not least <= value <= greatest:
        return f"{finite}{name} >= {least:g}"
    if above is not None and not above < value <= greatest:
        return f"{finite}{name} > {above:g}"
    if below is not None and not value < below:
        return f"{name} below {below:g}"
    return f"{name} <= {LARGEST}" if plain is int and value > LARGEST else ""


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
