"""The linear steps in front of a pipeline: what the model sees of the columns, as directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from berncert.foundation.arrays import Floats


def _diagonal(scale: Any, count: int) -> Floats:
    return np.eye(count) if scale is None else np.diag(np.asarray(scale, dtype=np.float64))


STEPS: dict[str, Callable[[Any, int], Floats | None]] = {
    "StandardScaler": lambda step, count: _diagonal(None if step.scale_ is None else 1 / step.scale_, count),
    "MinMaxScaler": lambda step, count: None if step.clip else _diagonal(step.scale_, count),
    "MaxAbsScaler": lambda step, count: _diagonal(1 / step.scale_, count),
    "RobustScaler": lambda step, count: _diagonal(None if step.scale_ is None else 1 / step.scale_, count),
    "PCA": lambda step, count: step.components_,
    "IncrementalPCA": lambda step, count: step.components_,
    "TruncatedSVD": lambda step, count: step.components_,
    "GaussianRandomProjection": lambda step, count: step.components_,
}
"""Fitted step -> its matrix; its constant does not matter here."""


def seen_directions(estimator: Any, scale: Floats) -> Floats | None:
    """Orthonormal rows, in scaled columns, that span all that the steps behind the linear ones see of the columns.

    None if they see all columns. A pipeline that sees a row only through these directions gives the same answer for
    every row with the same components along them.
    """
    if not isinstance(estimator, Pipeline):
        raise ValueError(
            f"expected a pipeline with fold=True, got {type(estimator).__name__}; folding is about linear steps in "
            "front of a model"
        )
    matrix = np.eye(len(scale))
    for _, step in estimator.steps[:-1]:
        if step in (None, "passthrough"):
            continue
        known = STEPS.get(type(step).__name__)
        part = None if known is None else known(step, len(matrix))
        if part is None:
            break
        matrix = np.asarray(part, dtype=np.float64) @ matrix
    if len(matrix) >= len(scale):
        return None
    _, values, rows = np.linalg.svd(matrix * scale, full_matrices=False)
    return np.ascontiguousarray(rows[values > 1e-10 * values[0]])
