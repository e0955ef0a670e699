"""Sorted groups, reflected pairs and softmax, and the modules that they stand for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from truth import INF, assert_smooth_bounded, jacobian, norm_between, odd_norm

from berncert.extractor import GroupSort, Householder, MaxMin, lipschitz_bound, lipschitz_table
from berncert.extractor.frozen import FrozenNetwork, Step
from berncert.extractor.operations import Householder as Reflection

NORMS = [1, 1.5, 2, 3, INF]


def test_a_reflection_by_a_normal_that_is_not_of_length_1_is_bounded_as_it_is() -> None:
    rng = np.random.default_rng(1)
    for scale in (0.0, 0.3, 1.0, 1.2, 4.0):
        operation = Reflection(torch.tensor(scale * rng.normal(size=(2, 3))))
        network = FrozenNetwork((6,), [Step(operation, (0,), "layer", "Layer")])
        gains = lipschitz_table(network, (6,), 3.0).value.gains
        matrices = [jacobian(network, torch.tensor(rng.normal(size=(1, 6)))) for _ in range(6)]
        for s, t in itertools.product(gains.norms, gains.norms):
            assert gains.factor(s, t) >= max(norm_between(m, s, t) for m in matrices) * (1 - 1e-12)


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
