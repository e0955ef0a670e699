"""What every operation checks: that its fields can be, and that the value fits."""

from __future__ import annotations

import pytest
import torch

from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.operations import (
    Distance,
    Gather,
    GroupSort,
    Householder,
    Operation,
    Reshape,
    Softmax,
    SortedDistance,
)


@pytest.mark.parametrize(
    ("operation", "shape"),
    [
        (Reshape((2, 3)), (5,)),
        (Reshape((6,)), (2, 2)),
        (Gather(torch.tensor([0, 3])), (3,)),
        (GroupSort(2), (3,)),
        (GroupSort(2), ()),
        (Householder(torch.ones(2, 2, dtype=torch.float64)), (6,)),
        (Householder(torch.ones(2, 2, dtype=torch.float64)), (2, 4)),
        (Distance(torch.ones(2, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64)), (2,)),
        (Distance(torch.ones(2, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64)), (1, 3)),
        (Softmax(1), (3,)),
        (Softmax(0), ()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operation) else str(value),
)
def test_a_value_that_does_not_fit_is_refused(operation: Operation, shape: Shape) -> None:
    with pytest.raises(ValueError, match="expected"):
        operation.output_shape(shape)


@pytest.mark.parametrize(
    "operation",
    [
        Reshape((2, 0)),
        Reshape((-1,)),
        Reshape((2.0,)),
        Reshape(6),
        Reshape([2, 3]),
        Gather(torch.tensor([0, -2])),
        Gather(torch.tensor([0.0, 1.0])),
        Gather(torch.tensor([], dtype=torch.int64)),
        GroupSort(0),
        GroupSort(True),
        GroupSort((2,)),
        Householder(torch.ones(3, 2, dtype=torch.float64)),
        Householder(torch.ones(2, dtype=torch.float64)),
        Householder(torch.ones(2, 0, dtype=torch.float64)),
        Householder(torch.full((2, 1), torch.nan, dtype=torch.float64)),
        Householder(torch.ones(2, 1)),
        Distance(torch.ones(2, 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)),
        Distance(torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)),
        Distance(torch.ones(2, 0, dtype=torch.float64), torch.ones(2, dtype=torch.float64)),
        Distance(torch.ones(2, 3), torch.ones(2)),
        Distance(torch.ones(2, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64), 1),
        *(
            SortedDistance(torch.ones(2, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64), shares)
            for shares in (
                torch.tensor([], dtype=torch.float64),
                torch.tensor([[0.5]], dtype=torch.float64),
                torch.tensor([0.5, -0.1], dtype=torch.float64),
                torch.tensor([1.0, 2.0**-60], dtype=torch.float64),
                torch.tensor([0.5]),
            )
        ),
        Softmax(-1),
        Softmax((0,)),
    ],
    ids=lambda o: f"{type(o).__name__} {o.settings()}",
)
def test_settings_that_cannot_be_are_refused(operation: Operation) -> None:
    with pytest.raises(ValueError, match="expected"):
        operation.check()
