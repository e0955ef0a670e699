"""Operations that join several values."""

from __future__ import annotations

import itertools

import pytest
import torch
from operation_examples import EXAMPLES, network_of
from truth import INF, PLAIN, matrix_of, norm_between

from berncert.extractor import lipschitz_table
from berncert.extractor.frozen import FrozenNetwork, Step
from berncert.extractor.operations import Activation, Add, Concatenate, Linear, Operation, Scale

JOINING = [example for example in EXAMPLES if isinstance(example.operation, Add | Concatenate)]


@pytest.mark.parametrize("example", JOINING, ids=lambda e: type(e.operation).__name__)
@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_joined_values_are_bounded_between_all_norms(example: object, p: float) -> None:
    network = network_of(example)
    gains = lipschitz_table(network, network.input_shape, p).value.gains
    matrix = matrix_of(network, network.input_shape)
    for s, t in itertools.product(gains.norms, gains.norms):
        assert gains.factor(s, t) >= norm_between(matrix, s, t) * (1 - 1e-12)


def of_two(joining: Operation, a: torch.Tensor, b: torch.Tensor) -> FrozenNetwork:
    """Two linear maps of one image, joined."""
    steps = [Step(Linear(a), (0,), "a", "Linear"), Step(Linear(b), (0,), "b", "Linear")]
    return FrozenNetwork((a.shape[1],), [*steps, Step(joining, (1, 2), "joined", "joined")])


def test_a_sum_adds_and_values_side_by_side_are_the_norm_of_both() -> None:
    eye = torch.eye(3, dtype=torch.float64)
    for p in (*PLAIN, 1.5, 3.0):
        both = lipschitz_table(of_two(Add(), 2 * eye, 3 * eye), (3,), p).bound
        assert both == pytest.approx(5.0, rel=1e-9)
        beside = lipschitz_table(of_two(Concatenate(0), 2 * eye, 3 * eye), (3,), p).bound
        assert beside == pytest.approx(3.0 if p == INF else (2.0**p + 3.0**p) ** (1 / p), rel=1e-9)


def test_a_value_may_be_joined_with_itself() -> None:
    twice = FrozenNetwork((3,), [Step(Add(), (0, 0), "twice", "add"), Step(Concatenate(0), (1, 1, 0), "cat", "cat")])
    x = torch.rand(2, 3, dtype=torch.float64)
    torch.testing.assert_close(twice(x), torch.cat([2 * x, 2 * x, x], 1), rtol=0, atol=0)
    assert lipschitz_table(twice, (3,)).bound == pytest.approx(3.0, rel=1e-9)


def test_limits_of_joined_values_are_those_of_all_and_of_sums_are_unknown() -> None:
    steps = [
        Step(Activation("sigmoid"), (0,), "low", "Sigmoid"),
        Step(Activation("relu6"), (0,), "high", "ReLU6"),
    ]
    beside = FrozenNetwork((3,), [*steps, Step(Concatenate(0), (1, 2), "cat", "cat")])
    assert lipschitz_table(beside, (3,)).value.limits == (0.0, 6.0)
    added = FrozenNetwork((3,), [*steps, Step(Add(), (1, 2), "add", "add")])
    assert lipschitz_table(added, (3,)).value.limits == (-INF, INF)


def test_errors_of_both_values_and_of_the_sum_itself_are_counted() -> None:
    scale = Scale(torch.tensor(1 / 3, dtype=torch.float64))
    steps = [Step(scale, (0,), "third", "mul"), Step(Add(), (0, 1), "add", "add")]
    one, both = (lipschitz_table(FrozenNetwork((4,), steps[:n]), (4,), unit=2.0**-24).value for n in (1, 2))
    assert both.error[0] >= one.error[0] + 2.0**-24
    assert both.peak[0] >= 4 / 3


@pytest.mark.parametrize(
    ("operation", "shapes"),
    [
        (Add(), ((2, 3), (3, 2))),
        (Add(), ((2, 3), (1, 3))),
        (Add(), ((3,), ())),
        (Concatenate(0), ((2, 3), (2, 4))),
        (Concatenate(1), ((2, 3), (3, 3))),
        (Concatenate(2), ((2, 3), (2, 3))),
        (Concatenate(0), ((2, 3), (3,))),
        (Concatenate(0), ((), ())),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(operation: Operation, shapes: tuple[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="expected"):
        operation.output_shape(*shapes)
