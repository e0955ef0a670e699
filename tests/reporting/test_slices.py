"""A plane through feature space shows what it is said to show."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path

import berncert
from berncert.reporting import slices
from berncert.reporting.slices import Slice, leads_of, logits_on, window_logits

NORMS = [1, 1.5, 2, 7, np.inf]
seeds = st.integers(0, 2**32 - 1)


def some_slice(seed: int, dim: int) -> tuple[Slice, np.ndarray]:
    origin, *targets = np.random.default_rng(seed).uniform(size=(3, dim))
    return Slice.through(origin, targets), np.array([origin, *targets])


@given(seed=seeds, dim=st.integers(3, 12))
def test_it_contains_the_origin_and_both_targets_the_first_to_the_right_the_second_above(seed: int, dim: int) -> None:
    cut, points = some_slice(seed, dim)
    assert cut.axes @ cut.axes.T == pytest.approx(np.eye(2), abs=1e-12)
    assert all(cut.contains(point) for point in points)
    start, first, second = cut.coordinates(points)
    assert start == pytest.approx([0, 0], abs=1e-12)
    assert first[0] > 0
    assert first[1] == pytest.approx(0, abs=1e-12)
    assert second[1] > 0
    assert cut.points(cut.coordinates(points)) == pytest.approx(points, abs=1e-12)


@given(seed=seeds)
def test_lengths_in_the_plane_are_those_among_the_features(seed: int) -> None:
    cut, _ = some_slice(seed, 5)
    a, b = np.random.default_rng(seed).normal(size=(2, 2))
    assert np.linalg.norm(cut.points(a) - cut.points(b)) == pytest.approx(np.linalg.norm(a - b))


def test_with_two_features_it_is_the_square_and_with_one_the_line() -> None:
    assert (Slice.through(np.array([0.2, 0.7]), [np.array([0.9, 0.1])]).axes == np.eye(2)).all()
    assert Slice.through(np.array([0.2]), []).axes.shape == (1, 1)


@pytest.mark.parametrize("targets", [[], [[0.2, 0.2, 0.2]], [[0.3, 0.3, 0.3], [0.9, 0.9, 0.9]]])
def test_without_two_directions_axes_of_the_cube_stand_in(targets: list[list[float]]) -> None:
    cut = Slice.through(np.full(3, 0.2), [np.array(target) for target in targets])
    assert cut.axes @ cut.axes.T == pytest.approx(np.eye(2), abs=1e-12)
    assert all(cut.contains(np.array(target)) for target in targets)


@pytest.mark.parametrize("norm", NORMS)
@given(seed=seeds)
def test_the_outline_of_the_ball_is_where_the_norm_is_the_radius(norm: float, seed: int) -> None:
    cut, (origin, *_) = some_slice(seed, 4)
    steps = cut.points(cut.ball_outline(norm, 0.3)) - origin
    assert np.linalg.norm(steps, ord=norm, axis=1) == pytest.approx(0.3)


@given(seed=seeds, dim=st.integers(2, 6))
def test_the_outline_of_the_cube_holds_just_the_points_of_the_cube(seed: int, dim: int) -> None:
    cut, _ = some_slice(seed, dim)
    low, high = np.array([-0.6, -0.5]), np.array([0.7, 0.8])
    outline = cut.cube_outline(low, high)
    tried = np.random.default_rng(seed).uniform(low, high, size=(300, 2))
    points = cut.points(tried)
    room = np.minimum(points, 1 - points).min(axis=1)
    clear = np.abs(room) > 1e-9
    assert (Path(outline).contains_points(tried)[clear] == (room > 0)[clear]).all()


def test_the_leads_are_positive_exactly_for_the_class_that_leads() -> None:
    logits = np.random.default_rng(0).normal(size=(4, 6, 5))
    assert ((leads_of(logits) > 0).sum(axis=0) == 1).all()
    assert (leads_of(logits).argmax(axis=0) == logits.argmax(axis=0)).all()


def test_the_grid_has_the_logits_of_its_points() -> None:
    head = berncert.SmoothedHead(torch.randn(3, 3, 3, 3, dtype=torch.float64))
    cut, (origin, *_) = some_slice(1, 3)
    x, y = np.array([-0.05, 0.0, 0.02]), np.array([0.0, 0.03])
    logits = logits_on(head, cut, x, y)
    assert logits.shape == (3, 2, 3)
    assert logits[:, 0, 1] == pytest.approx(head(torch.from_numpy(origin)[None])[0].numpy())
    there = cut.points(np.array([0.02, 0.03]))
    assert logits[:, 1, 2] == pytest.approx(head(torch.from_numpy(there)[None])[0].numpy())


def test_a_costly_head_is_asked_less_often_and_drawn_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    head = berncert.SmoothedHead(torch.randn(3, 4, 4, 4, dtype=torch.float64))
    origin = np.full(3, 0.5)
    cut = Slice.through(origin, [np.array([0.9, 0.3, 0.4]), np.array([0.2, 0.8, 0.3])])
    low, high = np.full(2, -0.25), np.full(2, 0.25)
    _, _, exact = window_logits(head, cut, low, high, 1)
    monkeypatch.setattr(slices, "MOST_PRODUCTS", 1.0)
    x, y, splined = window_logits(head, cut, low, high, 192)
    assert len(x) == len(y) == slices.FINEST
    assert splined == pytest.approx(exact, abs=1e-3)
