"""What may change in a row, and how: fixed columns, one-sided ones, boxes, whole numbers, categories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypedDict

import numpy as np

from berncert.estimators.columns import column_numbers, side
from berncert.estimators.reduction import Reduction
from berncert.foundation.arrays import Floats


class ConstraintOptions(TypedDict, total=False):
    """Which rows are admissible: only they count, for the radius and for the counterfactual."""

    fixed: Any
    """Columns, by name or number, that keep their value."""
    increasing: Any
    """Columns that may only grow."""
    decreasing: Any
    """Columns that may only fall."""
    lower: Any
    """Least values: {column: limit}, a row, or a table with a row for each; NaN is no limit."""
    upper: Any
    """Greatest values, likewise."""
    whole: Any
    """Columns that hold whole numbers."""
    categories: Any
    """Groups of 0/1 columns of which exactly one is 1: a list of lists of columns."""


OPTIONS = tuple(ConstraintOptions.__annotations__)


@dataclass(frozen=True)
class Admissible:
    """The admissible rows around each row: a box in columns, columns of whole numbers, groups of categories."""

    low: Floats
    """(N, m)"""
    high: Floats
    whole: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]


def admissible(x: Floats, reduction: Reduction, names: Sequence[str] | None, options: ConstraintOptions) -> Admissible:
    """What the options say, checked against the table and the reduction."""
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise TypeError(f"expected constraints out of {', '.join(OPTIONS)}, got {', '.join(sorted(unknown))}")
    count = x.shape[1]
    columns = {
        option: column_numbers(options.get(option), names, count, option)
        for option in ("fixed", "increasing", "decreasing", "whole")
    }
    low = side(options.get("lower"), names, x.shape, -np.inf, "lower")
    high = side(options.get("upper"), names, x.shape, np.inf, "upper")
    for j in columns["increasing"]:
        low[:, j] = np.maximum(low[:, j], x[:, j])
    for j in columns["decreasing"]:
        high[:, j] = np.minimum(high[:, j], x[:, j])
    for j in columns["fixed"]:
        low[:, j], high[:, j] = np.maximum(low[:, j], x[:, j]), np.minimum(high[:, j], x[:, j])
    groups = _groups(options.get("categories"), names, count)
    _check_categories(x, groups)
    fixed = set(columns["fixed"])
    whole = tuple(j for j in dict.fromkeys(columns["whole"]) if j not in fixed)
    for j in whole:
        low[:, j], high[:, j] = np.ceil(low[:, j]), np.floor(high[:, j])
        if j not in reduction.kept and j not in reduction.mixed:  # it plays no part: the nearest whole number is best
            nearest = np.clip(np.round(x[:, j]), low[:, j], high[:, j])
            possible = low[:, j] <= high[:, j]
            low[possible, j] = high[possible, j] = nearest[possible]
    for group in groups:
        low[:, group], high[:, group] = np.maximum(low[:, group], 0.0), np.minimum(high[:, group], 1.0)
    if not (low <= high).all():
        row, column = (int(i) for i in np.argwhere(~(low <= high))[0])
        raise ValueError(
            f"expected an admissible value in every column, got none in row {row}, column "
            f"{names[column] if names is not None else column}: at least {low[row, column]}, at most "
            f"{high[row, column]}; loosen the constraints"
        )
    _check_possible(low, high, groups)
    _check_reduction(reduction, names, low, high, (*columns["whole"],), groups)
    return Admissible(low, high, whole, tuple(g for g in groups if not set(g) <= fixed))


def check_order(table: Any, options: ConstraintOptions) -> None:
    """Limits for each row that come with an index have the rows in the order of the table."""
    index = getattr(table, "index", None)
    if index is None or not hasattr(index, "equals"):
        return
    for option in ("lower", "upper"):
        given: Any = options.get(option)
        for part in given.values() if isinstance(given, Mapping) else [given]:
            rows: Any = getattr(part, "index", None)
            labelled = hasattr(rows, "equals") and (hasattr(part, "columns") or isinstance(given, Mapping))
            if labelled and len(rows) == len(index) > 1 and not rows.equals(index):
                raise ValueError(
                    f"expected the rows of {option} in the order of the table, got another index; use "
                    "limits.loc[table.index]"
                )


def _groups(given: Any, names: Sequence[str] | None, count: int) -> tuple[tuple[int, ...], ...]:
    """The groups of categories, as numbers of columns."""
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Iterable):
        given = [given]
    given = list(given)
    if any(isinstance(group, (str, Integral)) for group in given):
        raise ValueError(
            "expected categories as a list of lists, one list of 0/1 columns for each group, got "
            f"{given!r}; for one group write categories=[{given!r}]"
        )
    return tuple(tuple(column_numbers(group, names, count, "categories")) for group in given)


def _check_categories(x: Floats, groups: Sequence[Sequence[int]]) -> None:
    """Each row has exactly one 1 in each group, and no column is in two."""
    members = [j for group in groups for j in group]
    if len(set(members)) != len(members):
        raise ValueError(f"expected each column in one group of categories, got {list(groups)}")
    for group in groups:
        part = x[:, list(group)]
        if not (((part == 0) | (part == 1)).all() and (part.sum(axis=1) == 1).all()):
            row = int(np.flatnonzero(~(((part == 0) | (part == 1)).all(axis=1) & (part.sum(axis=1) == 1)))[0])
            raise ValueError(
                f"expected exactly one 1 among the columns {list(group)} of each row, got {part[row].tolist()} in row "
                f"{row}; categories are one-hot columns"
            )


def _check_possible(low: Floats, high: Floats, groups: Sequence[Sequence[int]]) -> None:
    """The limits leave each row a category in each group."""
    for group in groups:
        least, most = low[:, list(group)], high[:, list(group)]
        forced = (least > 0).sum(axis=1, keepdims=True) - (least > 0)  # how many of the others cannot be 0
        possible = ((most >= 1) & (forced == 0)).any(axis=1)
        if not possible.all():
            raise ValueError(
                f"expected limits that leave a category among the columns {list(group)}, got none in row "
                f"{int(np.flatnonzero(~possible)[0])}; loosen the constraints"
            )


def _check_reduction(
    reduction: Reduction,
    names: Sequence[str] | None,
    low: Floats,
    high: Floats,
    whole: Sequence[int],
    groups: Sequence[Sequence[int]],
) -> None:
    """Only columns with an axis of their own can be constrained."""
    limited = np.asarray(np.isfinite(low).any(axis=0) | np.isfinite(high).any(axis=0))
    limited[[*whole, *(j for group in groups for j in group)]] = True
    bad = [int(j) for j in reduction.mixed if limited[j]]
    if bad:
        shown = ", ".join(str(names[j]) if names is not None else str(j) for j in bad[:5])
        raise ValueError(
            f"expected constraints on columns that are not projected, got {shown}; fit with keep=[...] to give these "
            "columns axes of their own, or with dim=None to project none"
        )
