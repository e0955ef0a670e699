"""The algebra of gains, against the norms of products, sums and stacks of real matrices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from truth import INF, PLAIN, norm_between

from berncert.extractor.bounds.norm_gains import (
    SMALLEST,
    NormGains,
    conversion,
    copying_gains,
    entrywise_gains,
    norms_with,
)

PAIRS = list(itertools.product(PLAIN, PLAIN))


def matrix(rng: np.random.Generator, rows: int, columns: int) -> Tensor:
    return torch.tensor(rng.normal(size=(rows, columns)) * (rng.uniform(size=(rows, columns)) < 0.7))


def known_of(a: Tensor, pairs: list[tuple[float, float]]) -> dict[tuple[float, float], float]:
    """The true norms of a small matrix: all of them can be computed."""
    return {(s, t): norm_between(a, s, t) * (1 + 1e-14) for s, t in pairs}


def gains_of(a: Tensor, norms: tuple[float, ...] = PLAIN, pairs: list[tuple[float, float]] | None = None) -> NormGains:
    return NormGains.of(known_of(a, pairs or [(p, p) for p in PLAIN]), norms, a.shape[1], a.shape[0])


def assert_bounds(gains: NormGains, a: Tensor) -> None:
    assert not np.isnan(gains.factors).any()
    for s, t in itertools.product(gains.norms, gains.norms):
        assert gains.factor(s, t) >= norm_between(a, s, t) * (1 - 1e-12), (s, t)


@pytest.mark.parametrize("p", [1, 1.2, 1.5, 2, 3, 7.0, INF])
def test_what_follows_from_a_few_norms_of_a_matrix_bounds_all_others(p: float) -> None:
    rng = np.random.default_rng(0)
    choices = [[(1.0, 1.0), (2.0, 2.0), (INF, INF)], [(2.0, 2.0)], [(1.0, INF), (2.0, 2.0)], [(1.0, 2.0)], PAIRS]
    choices += [[(INF, 1.0), (1.0, 1.0)], [(2.0, 1.0), (INF, 2.0)], [(INF, 1.0), (1.0, INF)]]
    for pairs in choices:
        for _ in range(6):
            a = matrix(rng, *rng.integers(1, 7, size=2))
            assert_bounds(gains_of(a, norms_with(p), pairs), a)


def test_interpolation_is_not_used_where_real_spaces_do_not_allow_it() -> None:
    # from inf to 1 and from 1 to 1: the midpoint is not bounded by the geometric mean for maps of real spaces
    rotation = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    gains = gains_of(rotation, (1.0, 2.0, INF), [(INF, 1.0), (1.0, INF)])
    assert_bounds(gains, rotation)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, INF])
def test_interpolation_gives_the_geometric_mean(p: float) -> None:
    gains = NormGains.of({(1.0, 1.0): 2.0, (INF, INF): 8.0}, norms_with(p), 1000, 1000)
    share = 1 if p == 1 else 1 / p
    assert gains.factor(p, p) == pytest.approx(2.0**share * 8.0 ** (1 - share), rel=1e-9)


def test_one_map_after_another_is_bounded_by_their_composition() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        k, m, n = rng.integers(1, 7, size=3)
        a, b = matrix(rng, m, k), matrix(rng, n, m)
        norms = norms_with(float(rng.choice([1.0, 1.5, 3.0])))
        assert_bounds(gains_of(a, norms).then(gains_of(b, norms)), b @ a)


def test_composition_takes_the_best_norm_in_between() -> None:
    # the row of ones reads the sum, the column of ones copies: through l1 it is 1 from l1 to l-inf
    row, column = torch.ones(1, 6, dtype=torch.float64), torch.ones(6, 1, dtype=torch.float64)
    both = gains_of(column, pairs=PAIRS).then(gains_of(row, pairs=PAIRS))
    assert both.factor(INF, INF) == pytest.approx(6.0)
    back = gains_of(row, pairs=PAIRS).then(gains_of(column, pairs=PAIRS))
    assert back.factor(1.0, INF) == pytest.approx(1.0)
    assert back.factor(2.0, 2.0) == pytest.approx(6.0)


def test_composition_is_associative_up_to_rounding_and_identity_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    for _ in range(30):
        dims = rng.integers(1, 7, size=4)
        a, b, c = (gains_of(matrix(rng, dims[i + 1], dims[i])) for i in range(3))
        np.testing.assert_allclose(
            a.then(b).then(c).factors, a.then(b.then(c)).factors, rtol=1e-13, atol=100 * SMALLEST
        )
        for same in (NormGains.identity(PLAIN, dims[0]).then(a), a.then(NormGains.identity(PLAIN, dims[1]))):
            np.testing.assert_allclose(same.factors, a.factors, rtol=1e-12, atol=100 * SMALLEST)
            assert (same.factors >= a.factors).all()


def test_the_identity_is_exactly_how_norms_compare() -> None:
    for dim in (1, 2, 5, 9):
        gains = NormGains.identity((1.0, 2.0, INF, 1.5), dim)
        assert_bounds(gains, torch.eye(dim, dtype=torch.float64))
        for s, t in itertools.product(gains.norms, gains.norms):
            reached = dim ** max(0.0, 1 / t - 1 / s)  # by a unit vector, or by ones
            assert reached <= gains.factor(s, t) <= reached * (1 + 1e-13)
            assert conversion(s, t, dim) == gains.factor(s, t)


def test_sums_and_stacks_of_maps_are_bounded() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        m, n, k = rng.integers(1, 6, size=3)
        a, b, c = matrix(rng, m, n), matrix(rng, m, n), matrix(rng, k, n)
        norms = norms_with(float(rng.choice([1.0, 1.5, 3.0])))
        assert_bounds(gains_of(a, norms).plus(gains_of(b, norms)), a + b)
        assert_bounds(gains_of(a, norms).beside(gains_of(c, norms)), torch.cat([a, c]))


def test_two_copies_side_by_side_are_the_norm_of_ones() -> None:
    one = NormGains.identity((1.0, 2.0, INF, 3.0), 4)
    both = one.beside(one)
    for p in one.norms:
        assert both.factor(p, p) == pytest.approx(2.0 ** (1 / p), rel=1e-12)


def test_infinity_and_zero_never_make_a_nan_and_infinity_stays() -> None:
    kinds = [0.0, 5e-324, 1.0, 1e200, 1e300, INF]
    for a, b in itertools.product(kinds, kinds):
        one, two = (NormGains(PLAIN, np.full((3, 3), value)) for value in (a, b))
        for result in (one.then(two), one.plus(two), one.beside(two)):
            assert not np.isnan(result.factors).any()
            assert (result.factors >= 0).all()
            if math.isinf(a) or math.isinf(b):
                assert np.isinf(result.factors).all()
        assert (one.plus(two).factors >= max(a, b)).all()
        assert (one.beside(two).factors >= max(a, b)).all()
        assert (one.then(two).factors >= (a * b if 0 < a * b < INF else 0)).all()
        for p in (1.5, 3.0):
            gains = NormGains.of({(1.0, 1.0): a, (2.0, 2.0): b, (INF, INF): a}, norms_with(p), 4, 4)
            assert not np.isnan(gains.factors).any()
            assert gains.factor(1.0, 1.0) >= min(a, 2 * b)


def test_what_is_not_known_is_infinite_from_every_norm() -> None:
    gains = NormGains.of({(2.0, 2.0): INF}, norms_with(3.0), 5, 5)
    assert np.isinf(gains.factors).all()


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, INF])
def test_a_diagonal_map_is_bounded_by_its_largest_entry_between_all_norms(p: float) -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        a = torch.diag(torch.tensor(rng.normal(size=int(rng.integers(1, 8)))))
        gains = NormGains.of(entrywise_gains(float(a.abs().max())), norms_with(p), len(a), len(a))
        assert_bounds(gains, a)
        assert gains.factor(p, p) <= float(a.abs().max()) * (1 + 1e-11)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, INF])
def test_a_map_that_copies_its_inputs_is_bounded_by_how_often(p: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        n = int(rng.integers(1, 7))
        sources = rng.integers(0, n, size=int(rng.integers(1, 9)))
        a = torch.eye(n, dtype=torch.float64)[sources]
        times = float(np.bincount(sources).max())
        gains = NormGains.of(copying_gains(times), norms_with(p), n, len(sources))
        assert_bounds(gains, a)
        assert gains.factor(p, p) <= times ** (1 / p) * (1 + 1e-11)


def test_a_norm_close_to_another_is_bounded_as_closely() -> None:
    rng = np.random.default_rng(6)
    a = matrix(rng, 5, 5)
    for p in (1 + 1e-12, 2 - 1e-12, 2 + 1e-9, 1e6, 1e17, 1e300):
        gains = gains_of(a, norms_with(p))
        near = min((1.0, 2.0, INF), key=lambda q: abs(1 / q - 1 / p))
        assert gains.factor(p, p) == pytest.approx(gains.factor(near, near), rel=1e-4)
        x = torch.tensor(rng.normal(size=(5, 50)))
        before, after = (torch.linalg.vector_norm(v, near, dim=0) for v in (x, a @ x))
        assert gains.factor(p, p) >= float((after / before).max())
