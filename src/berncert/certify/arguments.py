"""What every certifier is given: features of the cube, and a norm."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from berncert.certify.certificate import Floats
from berncert.polynomial import SmoothedHead


def checked_features(smoothed: SmoothedHead, features: Any) -> Floats:
    """The features as float64 numbers, (N, d), every one of them in [0, 1]; anything else is a ValueError."""
    x = _numbers(features)
    if x.ndim != 2 or x.shape[1] != smoothed.dim:
        hint = "write features[None] for a single sample" if x.shape == (smoothed.dim,) else "one row for each sample"
        raise ValueError(f"expected features of shape (N, {smoothed.dim}), got {x.shape}; {hint}")
    outside = ~((x >= 0) & (x <= 1))  # NaN is in no interval
    if outside.any():
        row, axis = (int(i) for i in np.argwhere(outside)[0])
        raise ValueError(
            f"expected every feature in [0, 1], got {x[row, axis]!s} in row {row}, axis {axis} "
            f"({outside.any(axis=1).sum()} of {len(x)} rows are affected); scale or clip the features, as the head is "
            "smoothed on the unit cube only"
        )
    return x


def checked_norm(norm: Any) -> float:
    """The p of a p-norm, 1 <= p <= inf; anything else is a ValueError."""
    if isinstance(norm, (bool, np.bool_)) or not isinstance(norm, Real) or not float(norm) >= 1:
        hint = "write float('inf')" if isinstance(norm, str) and "inf" in norm.lower() else "pass e.g. 1, 2 or math.inf"
        raise ValueError(f"expected a norm p with 1 <= p <= inf, got {norm!r}; {hint}")
    return float(norm)


def checked_count(name: str, value: Any) -> int:
    """A whole number >= 1; anything else is a ValueError."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"expected {name} >= 1, got {value!r}; pass a whole number")
    return int(value)


def checked_tolerance(tolerance: Any) -> float:
    """A relative gap in [0, 1); anything else is a ValueError."""
    if isinstance(tolerance, (bool, np.bool_)) or not isinstance(tolerance, Real) or not 0 <= float(tolerance) < 1:
        raise ValueError(
            f"expected a tolerance in [0, 1), got {tolerance!r}; it is the relative gap between radius and upper at "
            "which a proof may stop, e.g. 1e-3"
        )
    return float(tolerance)


def _numbers(features: Any) -> Floats:
    """Any real tensor, array or nested list as a float64 array."""
    try:
        x = features.detach().cpu().double().numpy() if isinstance(features, Tensor) else np.asarray(features)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected features as rows of equal length, got {error}") from error
    if x.dtype.kind not in "biuf":
        raise ValueError(f"expected features that are real numbers, got dtype {x.dtype}; convert them to float64 first")
    return x.astype(np.float64, copy=False)
