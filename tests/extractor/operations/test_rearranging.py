"""Operations whose every result is one of their inputs, or 0, and the modules that they stand for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from truth import INF, PLAIN, assert_linear_bounded, matrix_of, norm_between, odd_norm

from berncert.extractor import freeze, lipschitz_bound, lipschitz_table
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.frozen import FrozenNetwork, Step
from berncert.extractor.operations import Gather, GroupSort, Operation, Reshape

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
    for operation in (Gather(torch.tensor([2, 0, 0, 1])), Reshape((2, 2)), GroupSort(2)):
        value = lipschitz_table(alone(operation, (4,)), (4,), unit=2.0**-24).value
        x = torch.tensor([[1 / 3, 0.1, -0.7, 1e-3]])
        assert set(alone(operation, (4,))(x).flatten().tolist()) <= set(x.flatten().tolist())
        assert value.error[0] <= 2.0**-24 * value.size[0] * (1 + 1e-9)  # that of the image


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
