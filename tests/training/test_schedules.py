"""Schedules are functions of the share that is done."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berncert.training.schedules import FIRST, LAST, SCHEDULES, constant, cosine, onecycle, radius_factor, rising_norm

shares = st.floats(0, 1)
warmups = st.floats(0, 0.99)


@given(warmups)
def test_onecycle_starts_low_peaks_at_the_end_of_its_warm_up_and_ends_at_next_to_nothing(warmup: float) -> None:
    assert onecycle(0.0, warmup) == pytest.approx(FIRST if warmup > 0 else 1.0)
    assert onecycle(warmup, warmup) == pytest.approx(1.0)
    assert onecycle(1.0, warmup) == pytest.approx(LAST)


@given(shares, shares, warmups)
def test_onecycle_rises_in_its_warm_up_and_falls_after_it(a: float, b: float, warmup: float) -> None:
    a, b = min(a, b), max(a, b)
    if b <= warmup:
        assert onecycle(a, warmup) <= onecycle(b, warmup) + 1e-12
    if a >= warmup:
        assert onecycle(a, warmup) >= onecycle(b, warmup) - 1e-12


@given(shares, shares, warmups)
def test_cosine_falls_from_one_to_nothing_and_constant_stays(a: float, b: float, warmup: float) -> None:
    assert (cosine(0.0, warmup), cosine(0.5, warmup)) == (1.0, pytest.approx(0.5))
    assert cosine(1.0, warmup) == pytest.approx(0.0, abs=1e-15)
    assert cosine(min(a, b), warmup) >= cosine(max(a, b), warmup) - 1e-12
    assert constant(a, warmup) == 1.0


@given(shares, warmups)
def test_no_schedule_leaves_the_range_from_0_to_1(done: float, warmup: float) -> None:
    for schedule in (*SCHEDULES.values(), radius_factor):
        assert 0 <= schedule(done, warmup) <= 1


@given(shares, warmups)
def test_the_radius_grows_in_proportion_and_then_stays(done: float, warmup: float) -> None:
    assert radius_factor(done, warmup) == (1.0 if done >= warmup else pytest.approx(done / warmup))
    assert radius_factor(0.0, warmup) == (0.0 if warmup > 0 else 1.0)


def test_the_norm_of_distance_layers_waits_rises_and_ends_in_infinity() -> None:
    values = [rising_norm(done / 100, 8.0, 1000.0, 0.1, 0.2) for done in range(101)]
    assert values[:11] == [8.0] * 11
    assert all(a < b for a, b in pairwise(values[10:81]))
    assert values[45] == pytest.approx(math.sqrt(8.0 * 1000.0))  # in the middle of the rise
    assert values[81:] == [math.inf] * 20
