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
    """One side of a box, (N, m): from an array, a row, a data frame or {column: limit}; NaN and None are no limit.

    What has names is matched by them, and columns that it does not name have no limit.
    """
    found = np.full(shape, missing)
    if given is None:
        return found
    named = named_values(given)
    if named is not None and names is not None and not isinstance(given, Mapping):
        _require_names([column for column, _ in named], option)
    if named is not None:
        numbers = [column_number(column, names, shape[1], option) for column, _ in named]
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"expected each column once in {option}, got {[column for column, _ in named]}")
        for number, (column, limit) in zip(numbers, named, strict=True):
            found[:, number] = _limits(limit, shape[0], option, column)
    else:
        try:
            values = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(_expected(option, shape, given)) from error
        if values.shape not in ((), (shape[1],), (1, shape[1]), shape):
            raise ValueError(_expected(option, shape, given))
        found[...] = values
    return np.where(np.isnan(found), missing, found)


def named_values(given: Any) -> list[tuple[Any, Any]] | None:
    """[(column, limits)] of what has names: a mapping, a data frame, a pandas series; None for anything else."""
    if isinstance(given, Mapping):
        return list(given.items())
    if frame_kind(given):
        return [(column, given[column].to_numpy()) for column in given.columns]
    if type(given).__module__.split(".")[0] == "pandas" and hasattr(given, "iloc"):
        return list(zip(given.index.tolist(), given.tolist(), strict=True))
    return None


def _require_names(columns: list[Any], option: str) -> None:
    """A series or a frame of limits says by name which columns it means: the labels of rows are no columns."""
    strange = [column for column in columns if not isinstance(column, str)]
    if strange:
        raise ValueError(
            f"expected the names of columns in {option}, as the table has, got labels like {strange[0]!r}; for a limit "
            "of each row write {column: limits}"
        )


def _limits(limit: Any, count: int, option: str, column: Any) -> Floats:
    """The limits of one column: one for all rows, or one for each."""
    try:
        values = np.asarray(limit, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected a number in {option} for column {column!r}, got {limit!r}") from error
    if values.shape not in ((), (1,), (count,)):
        raise ValueError(
            f"expected one number, or one for each of {count} rows, in {option} for column {column!r}, got shape "
            f"{values.shape}"
        )
    return values


def _expected(option: str, shape: tuple[int, int], given: Any) -> str:
    return (
        f"expected {option} as {{column: limit}}, a row of {shape[1]} or a table of shape {shape}, got "
        f"{getattr(given, 'shape', given)!r}"
    )
