"""Points of the cube: those of the user, checked, and those that are drawn to compare a head with its polynomial."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from berncert.foundation.arrays import Floats

MOST_DRAWN = 10**7


def real_array(given: Any, name: str) -> npt.NDArray[Any]:
    """Any real tensor, array or nested list as an array."""
    if isinstance(given, Tensor) and (given.is_complex() or given.is_sparse):
        kind, cure = ("complex", "real") if given.is_complex() else ("sparse", "to_dense()")
        raise ValueError(f"expected {name} that are real numbers, got a {kind} tensor; pass its .{cure}")
    try:
        x = given.detach().cpu().double().numpy() if isinstance(given, Tensor) else np.asarray(given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected {name} as rows of equal length, got {error}") from error
    if x.dtype.kind not in "biuf":
        raise ValueError(f"expected {name} that are real numbers, got dtype {x.dtype}; convert them to float64 first")
    return x


def points_of_cube(given: Any, name: str, dim: int) -> Floats:
    """The points as float64 numbers, (N, dim), every one of them in [0, 1]; anything else is a ValueError."""
    x = real_array(given, name).astype(np.float64, copy=False)
    if x.ndim != 2 or x.shape[1] != dim:
        hint = f"write {name}[None] for a single sample" if x.shape == (dim,) else "one row for each sample"
        raise ValueError(f"expected {name} of shape (N, {dim}), got {x.shape}; {hint}")
    outside = ~((x >= 0) & (x <= 1))  # NaN is in no interval
    if outside.any():
        row, axis = (int(i) for i in np.argwhere(outside)[0])
        raise ValueError(
            f"expected every feature in [0, 1], got {x[row, axis]!s} in row {row}, axis {axis} "
            f"({outside.any(axis=1).sum()} of {len(x)} rows are affected); scale or clip the features, as the head is "
            "smoothed on the unit cube only (an extractor may end in berncert.extractor.UnitCube)"
        )
    return x


def drawn_points(count: int, dim: int) -> Tensor:
    """(count, dim) points of the cube in float64: always the same ones, and the first of them whatever the count."""
    if count > MOST_DRAWN:
        raise ValueError(f"expected at most {MOST_DRAWN:,} points to be drawn, got {count:,}; pass fewer")
    return torch.rand(count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
