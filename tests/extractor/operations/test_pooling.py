"""The bounds of layers that select and copy, against their matrices, between all norms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from truth import INF, assert_linear_bounded, assert_smooth_bounded, matrix_of, odd_norm

from berncert.extractor import (
    lipschitz_bound,
)
from berncert.extractor.operations import pooling

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

NORMS = [1, 1.5, 2, 3, INF]


def random_pools(rng: np.random.Generator) -> list[nn.Module]:
    kernel = tuple(int(k) for k in rng.integers(1, 5, size=2))
    options = {
        "kernel_size": kernel,
        "stride": tuple(int(s) for s in rng.integers(1, 4, size=2)),
        "padding": tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel),
        "ceil_mode": bool(rng.integers(2)),
    }
    divisor = None if rng.uniform() < 0.6 else int(rng.integers(1, 9))
    outputs = [None if rng.uniform() < 0.2 else int(n) for n in rng.integers(1, 9, size=2)]
    return [
        nn.AvgPool2d(**options, count_include_pad=bool(rng.integers(2)), divisor_override=divisor),
        nn.AdaptiveAvgPool2d(tuple(outputs)),
        nn.MaxPool2d(**options, dilation=tuple(int(d) for d in rng.choice([1, 1, 2], size=2))),
        nn.AdaptiveMaxPool2d(tuple(outputs)),
    ]


@pytest.mark.parametrize("route", ["sums", "matrix"])
def test_average_pools_are_bounded_between_all_norms(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if route == "sums":
        monkeypatch.setattr(pooling, "LARGEST_EXPLICIT", 0)
    rng = np.random.default_rng(4)
    done = 0
    while done < 40:
        shape = (int(rng.integers(1, 3)), *(int(n) for n in rng.integers(1, 8, size=2)))
        for pool in random_pools(rng)[:2]:
            if not fits(pool, shape):
                continue
            ratio = assert_linear_bounded(pool, shape, odd_norm(rng))
            assert route == "sums" or ratio <= 1 + 1e-6
            done += 1


def test_maximum_pools_are_bounded_between_all_norms() -> None:
    rng = np.random.default_rng(5)
    done = 0
    while done < 40:
        shape = (int(rng.integers(1, 3)), *(int(n) for n in rng.integers(1, 7, size=2)))
        for pool in random_pools(rng)[2:]:
            if fits(pool, shape):
                assert_smooth_bounded(pool, shape, odd_norm(rng), seed=done, points=3)
                done += 1


def fits(module: nn.Module, shape: tuple[int, ...]) -> bool:
    try:
        return bool(module(torch.zeros(1, *shape, dtype=torch.float64)).isfinite().all())
    except RuntimeError:
        return False


def test_a_maximum_pool_without_overlap_keeps_every_norm_and_overlap_costs_its_root() -> None:
    for p in NORMS:
        assert lipschitz_bound(nn.MaxPool2d(2), (3, 8, 8), norm=p) == pytest.approx(1.0, rel=1e-9)
        overlapping = lipschitz_bound(nn.MaxPool2d(3, 2, 1), (3, 8, 8), norm=p)
        assert overlapping == pytest.approx(4 ** (1 / p), rel=1e-9)


def test_the_factor_of_an_overlapping_maximum_pool_is_reached() -> None:
    # one pixel that is the greatest of all four windows it lies in
    pool = nn.MaxPool2d(3, 2, 1)
    low, high = torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 8, 8)
    low[0, 0, 3, 3], high[0, 0, 3, 3] = 1.0, 2.0
    assert float((pool(high) - pool(low)).norm()) == pytest.approx(lipschitz_bound(pool, (1, 8, 8)), rel=1e-6)


def test_a_maximum_over_nothing_but_padding_is_not_bounded() -> None:
    pool = nn.MaxPool2d(2, 1, padding=1, dilation=5)
    assert math.isinf(float(pool(torch.zeros(1, 1, 4, 4)).min()))
    with pytest.raises((TypeError, ValueError)):
        lipschitz_bound(pool, (1, 4, 4))


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d(3, 1, 1),
        nn.AdaptiveAvgPool2d(2),
        nn.MaxPool2d(3, 1, 1),
        nn.AdaptiveMaxPool2d(3),
        nn.ReplicationPad2d(2),
        nn.CircularPad2d(1),
        nn.ReflectionPad2d(1),
    ],
    ids=str,
)
@pytest.mark.parametrize("p", [1, 2, INF])
def test_a_map_without_channels_is_refused_or_bounded(pool: nn.Module, p: float) -> None:
    # torch takes (N, H, W) for one image of N channels
    try:
        bound = lipschitz_bound(pool, (8, 8), norm=p)
    except (TypeError, ValueError):
        return
    matrix = matrix_of(pool, (8, 8)) if not isinstance(pool, nn.MaxPool2d | nn.AdaptiveMaxPool2d) else torch.eye(1)
    assert bound >= float(torch.linalg.matrix_norm(matrix.double(), p)) * (1 - 1e-12)
