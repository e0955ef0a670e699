"""Operations whose results are their inputs in another order, some of them, or a few of them turned together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from truth import INF, PLAIN, assert_linear_bounded, assert_smooth_bounded, jacobian, matrix_of, norm_between, odd_norm

from berncert.extractor import GroupSort, Householder, MaxMin, freeze, lipschitz_bound, lipschitz_table
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.frozen import FrozenNetwork, Step
from berncert.extractor.operations import Gather, Operation, Reshape, Softmax
from berncert.extractor.operations import GroupSort as SortedGroups
from berncert.extractor.operations import Householder as Reflection

NORMS = [1, 1.5, 2, 3, INF]


def alone(operation: Operation, shape: Shape) -> FrozenNetwork:
    return FrozenNetwork(shape, [Step(operation, (0,), "layer", "Layer")])


# ---- reordering, selecting, copying, padding ----


def test_gathered_inputs_are_bounded_by_how_often_each_is_used() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        inputs, outputs = (int(n) for n in rng.integers(1, 9, size=2))
        index = torch.tensor(rng.integers(-1, inputs, size=outputs))
        network = alone(Gather(index), (inputs,))
        gains = lipschitz_table(network, (inputs,), odd_norm(rng)).value.gains
        matrix = matrix_of(network, (inputs,))
        assert torch.equal(matrix.sum(dim=1), (index >= 0).double())
        for s, t in itertools.product(gains.norms, gains.norms):
            truth = norm_between(matrix, s, t)
            assert gains.factor(s, t) >= truth * (1 - 1e-12)
            if s == t in PLAIN and truth > 0:
                assert gains.factor(s, t) <= truth * (1 + 1e-9)


def test_limits_are_kept_where_nothing_is_padded() -> None:
    sigmoid = freeze(nn.Sigmoid(), (3,)).steps
    for index, limits in [([2, 0, 0], (0.0, 1.0)), ([2, -1, 0], (-INF, INF))]:
        network = FrozenNetwork((3,), [*sigmoid, Step(Gather(torch.tensor(index)), (1,), "gather", "getitem")])
        assert lipschitz_table(network, (3,)).value.limits == limits
    network = FrozenNetwork((3,), [*sigmoid, Step(Reshape((1, 3)), (1,), "view", "view")])
    assert lipschitz_table(network, (3,)).value.limits == (0.0, 1.0)


def test_moving_numbers_costs_no_rounding() -> None:
    for operation in (Gather(torch.tensor([2, 0, 0, 1])), Reshape((2, 2)), SortedGroups(2)):
        value = lipschitz_table(alone(operation, (4,)), (4,), unit=2.0**-24).value
        x = torch.tensor([[1 / 3, 0.1, -0.7, 1e-3]])
        assert set(alone(operation, (4,))(x).flatten().tolist()) <= set(x.flatten().tolist())
        assert value.error[0] <= 2.0**-24 * value.size[0] * (1 + 1e-9)  # that of the image


@pytest.mark.parametrize(
    ("operation", "shape"),
    [
        (Reshape((2, 3)), (5,)),
        (Reshape((6,)), (2, 2)),
        (Gather(torch.tensor([0, 3])), (3,)),
        (SortedGroups(2), (3,)),
        (SortedGroups(2), ()),
        (Reflection(torch.ones(2, 2, dtype=torch.float64)), (6,)),
        (Reflection(torch.ones(2, 2, dtype=torch.float64)), (2, 4)),
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
        SortedGroups(0),
        SortedGroups(True),
        SortedGroups((2,)),
        Reflection(torch.ones(3, 2, dtype=torch.float64)),
        Reflection(torch.ones(2, dtype=torch.float64)),
        Reflection(torch.ones(2, 0, dtype=torch.float64)),
        Reflection(torch.full((2, 1), torch.nan, dtype=torch.float64)),
        Reflection(torch.ones(2, 1)),
        Softmax(-1),
        Softmax((0,)),
    ],
    ids=lambda o: f"{type(o).__name__} {o.settings()}",
)
def test_settings_that_cannot_be_are_refused(operation: Operation) -> None:
    with pytest.raises(ValueError, match="expected"):
        operation.check()


def test_a_reflection_by_a_normal_that_is_not_of_length_1_is_bounded_as_it_is() -> None:
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.3, 1.0, 1.2, 4.0):
        operation = Reflection(torch.tensor(scale * rng.normal(size=(2, 3))))
        network = alone(operation, (6,))
        gains = lipschitz_table(network, (6,), 3.0).value.gains
        matrices = [jacobian(network, torch.tensor(rng.normal(size=(1, 6)))) for _ in range(6)]
        for s, t in itertools.product(gains.norms, gains.norms):
            assert gains.factor(s, t) >= max(norm_between(m, s, t) for m in matrices) * (1 - 1e-12)


# ---- the modules that they stand for ----


@pytest.mark.parametrize("seed", range(10))
def test_pads_and_enlargements_are_bounded_between_all_norms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (2, 4, 5)
    pad = tuple(int(n) for n in rng.integers(0, 4, size=4))
    for module in [
        nn.ZeroPad2d(pad),
        nn.ZeroPad2d((-1, *pad[1:3], -2)),
        nn.ReflectionPad2d(pad),
        nn.ReplicationPad2d(pad),
        nn.CircularPad2d(pad),
        nn.UpsamplingNearest2d(scale_factor=int(rng.integers(1, 4))),
        nn.UpsamplingNearest2d(size=tuple(int(n) for n in rng.integers(1, 9, size=2))),
    ]:
        assert assert_linear_bounded(module, shape, odd_norm(rng)) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Identity(), (5,)),
        (nn.Flatten(), (2, 3, 2)),
        (nn.Flatten(2), (2, 3, 2)),
        (nn.Unflatten(1, (2, 3)), (6,)),
        (nn.PixelUnshuffle(2), (2, 4, 6)),
        (nn.PixelShuffle(2), (8, 2, 3)),
        (nn.ChannelShuffle(2), (6, 2, 2)),
        (nn.Dropout(0.9).eval(), (5,)),
        (nn.Dropout1d(0.9).eval(), (5, 2)),
        (nn.Dropout2d(0.9).eval(), (5, 2, 2)),
        (nn.AlphaDropout(0.9).eval(), (5,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_rearranging_keeps_every_norm(module: nn.Module, shape: tuple[int, ...]) -> None:
    assert assert_linear_bounded(module, shape, 3.0) <= 1 + 1e-12
    for p in NORMS:
        assert lipschitz_bound(module, shape, norm=p) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_sorting_layers_are_bounded_between_all_norms(seed: int) -> None:
    for module, shape in [(MaxMin(), (6,)), (MaxMin(), (4, 2, 2)), (GroupSort(3), (6,)), (GroupSort(4), (8, 1, 2))]:
        assert assert_smooth_bounded(module, shape, 1.5, seed=seed) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(20))
def test_reflections_are_bounded_between_all_norms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = Householder(6).double()
    module.angle.data = torch.tensor(rng.uniform(-10, 10, size=3))
    assert assert_smooth_bounded(module, (6,), odd_norm(rng), seed=seed, points=6) == pytest.approx(1.0)
    assert_smooth_bounded(module, (6, 1, 2), odd_norm(rng), seed=seed)


@pytest.mark.parametrize(("dim", "shape"), [(1, (5,)), (1, (3, 2)), (2, (3, 2)), (-1, (2, 2, 3)), (-2, (2, 2, 3))])
def test_softmax_over_any_axis_of_one_image_is_bounded(dim: int, shape: tuple[int, ...]) -> None:
    for seed, spread in enumerate([0.01, 0.3, 2.0]):
        assert_smooth_bounded(nn.Softmax(dim=dim), shape, 3.0, seed=seed, spread=spread)


def test_the_half_of_softmax_is_reached_at_two_equal_logits() -> None:
    slopes = jacobian(nn.Softmax(1), torch.zeros(1, 2, dtype=torch.float64))
    for p in NORMS:
        assert norm_between(slopes, p, p) == pytest.approx(lipschitz_bound(nn.Softmax(1), (2,), norm=p), rel=1e-9)


@pytest.mark.filterwarnings("ignore:Implicit dimension choice for softmax")
@pytest.mark.parametrize(("dim", "shape"), [(0, (4,)), (-2, (4,)), (-3, (2, 3)), (None, (2, 3))])
def test_softmax_over_the_batch_is_refused(dim: int | None, shape: tuple[int, ...]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"batch|dim"):
        lipschitz_bound(nn.Softmax(dim=dim), shape)
