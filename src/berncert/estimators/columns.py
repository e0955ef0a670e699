"""Columns of the user's tables: by name or number, from arrays or data frames and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from numbers import Integral
from typing import Any

import numpy as np

from berncert.foundation.arguments import guess
from berncert.foundation.arrays import Floats

FRAMES = ("pandas", "polars")
Column = str | int


def frame_kind(table: Any) -> str | None:
    """The library that a data frame comes from, if it is one."""
    home = type(table).__module__.split(".")[0]
    return home if home in FRAMES and hasattr(table, "columns") else None


def as_frame(kind: str | None, values: Any, names: Sequence[str] | None) -> Any:
    """The rows as a data frame of that library, with these names; as they are if there is neither."""
    if kind is None or names is None:
        return values
    library: Any = import_module(kind)
    if kind == "polars":
        return library.DataFrame(np.asarray(values), schema=list(names), orient="row")
    return library.DataFrame(values, columns=list(names))


def column_numbers(chosen: Any, names: Sequence[str] | None, count: int, option: str) -> list[int]:
    """The numbers of columns given by name or number."""
    if chosen is None:
        return []
    if isinstance(chosen, (str, Integral)):
        chosen = [chosen]
    if not isinstance(chosen, Iterable):
        raise ValueError(f"expected {option} as a list of column names or numbers, got {chosen!r}")
    return [column_number(column, names, count, option) for column in chosen]


def column_number(column: Any, names: Sequence[str] | None, count: int, option: str) -> int:
    """The number of one column."""
    if isinstance(column, str):
        if names is None:
            raise ValueError(
                f"expected column numbers in {option}, got {column!r}; the model was fitted on an array without names"
            )
        if column not in names:
            raise ValueError(f"expected a column of the table in {option}, got {column!r}{guess(column, names)}")
        return list(names).index(column)
    if isinstance(column, bool) or not isinstance(column, Integral) or not -count <= int(column) < count:
        raise ValueError(f"expected a column name, or a number below {count}, in {option}, got {column!r}")
    return int(column) % count


def side(given: Any, names: Sequence[str] | None, shape: tuple[int, int], missing: float, option: str) -> Floats:
    """One side of a box, (N, m): from an array, a row, a data frame or {column: limit}; NaN and None are no limit."""
    found = np.full(shape, missing)
    if given is None:
        return found
    if isinstance(given, Mapping):
        for column, limit in given.items():
            found[:, column_number(column, names, shape[1], option)] = limit
    else:
        if frame_kind(given) and names is not None and sorted(map(str, given.columns)) == sorted(names):
            given = given[list(names)]
        try:
            values = np.asarray(given, dtype=np.float64)
            found[...] = values
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"expected {option} as {{column: limit}}, a row of {shape[1]} or a table of shape {shape}, got "
                f"{getattr(given, 'shape', given)!r}"
            ) from error
    return np.where(np.isnan(found), missing, found)
