"""Schedules are functions of the share that is done; augmentation is shifts and mirror images, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from berncert.study.training.schedules import FIRST, LAST, SCHEDULES, augmented, constant, cosine, grown, onecycle

shares = st.floats(0, 1)
warmups = st.floats(0, 0.99)


def images(count: int = 60, channels: int = 2, height: int = 5, width: int = 4) -> Tensor:
    """No two pixels of one image are alike, and none is grey."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, channels, height, width, generator=generator) * 0.4


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
    for schedule in (*SCHEDULES.values(), grown):
        assert 0 <= schedule(done, warmup) <= 1


@given(shares, warmups)
def test_the_radius_grows_in_proportion_and_then_stays(done: float, warmup: float) -> None:
    assert grown(done, warmup) == (1.0 if done >= warmup else pytest.approx(done / warmup))
    assert grown(0.0, warmup) == (0.0 if warmup > 0 else 1.0)


@pytest.mark.parametrize("crop", [1, 3, 6])
def test_every_crop_is_a_shift_with_grey_coming_in_and_all_shifts_come_up(crop: int) -> None:
    x = images(900 if crop == 1 else 60)
    got, found = augmented(x, crop, False, seeded()), set()
    assert got.shape == x.shape
    assert got.dtype == x.dtype
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (crop, crop), (crop, crop)), constant_values=0.5)
    for row, image in enumerate(got.numpy()):
        moves = [
            (down, right)
            for down in range(2 * crop + 1)
            for right in range(2 * crop + 1)
            if np.array_equal(image, padded[row, :, down : down + x.shape[2], right : right + x.shape[3]])
        ]
        assert moves
        found.update(moves[:1])
    if crop == 1:
        assert len(found) == 9


def test_half_of_the_images_are_mirrored_and_the_rest_untouched() -> None:
    x = images(4000)
    got = augmented(x, 0, True, seeded())
    same, mirrored = ((got == y).flatten(1).all(dim=1) for y in (x, x.flip(3)))
    assert (same ^ mirrored).all()
    assert 0.46 < mirrored.double().mean() < 0.54


def test_the_generator_alone_decides_and_the_images_are_left_as_they_are() -> None:
    x = images()
    before = x.clone()
    torch.manual_seed(1)
    a = augmented(x, 2, True, seeded(3))
    torch.manual_seed(2)
    assert torch.equal(a, augmented(x, 2, True, seeded(3)))
    assert not torch.equal(a, augmented(x, 2, True, seeded(4)))
    generator = seeded(3)
    assert torch.equal(a, augmented(x, 2, True, generator))
    assert not torch.equal(a, augmented(x, 2, True, generator))  # always others
    assert torch.equal(x, before)


def test_without_augmentation_and_for_points_nothing_happens() -> None:
    generator = seeded()
    x, points = images(), torch.rand(20, 2)
    assert torch.equal(augmented(x, 0, False, generator), x)
    assert torch.equal(augmented(points, 3, True, generator), points)
    assert torch.equal(torch.rand(3, generator=generator), torch.rand(3, generator=seeded()))
