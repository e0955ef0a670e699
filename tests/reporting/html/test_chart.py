"""Scales, curves, histograms and numbers: laws that hold whatever the runs are."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_runs import digits, make_run, random_rows

from berncert.reporting.html import formats
from berncert.reporting.html.chart import BOX, ENDS, FINE, common_scale, histogram, outline, own_scale, scale_to

sizes = st.floats(1e-6, 1e6)


@given(sizes)
def test_a_scale_holds_its_number_and_is_at_most_half_as_long_again(greatest: float) -> None:
    scale = scale_to(greatest)
    assert Decimal(repr(greatest)) <= scale.end
    assert float(scale.end) <= 1.51 * greatest
    assert scale.step * scale.last == scale.end
    assert len(scale.tick_texts()) == scale.ticks + 1 <= 7


@given(sizes, st.integers(0, FINE * 4))
def test_each_step_of_a_scale_is_the_number_that_is_written_there(greatest: float, step: int) -> None:
    scale = scale_to(greatest)
    assert float(scale.text(step)) == scale.radii()[step]
    assert float(f"{step * float(scale.step):.{scale.places}f}") == scale.radii()[step]  # as the page's script does it


@pytest.mark.parametrize("nothing", [0.0, math.nan, math.inf])
def test_a_scale_without_a_number_goes_to_one(nothing: float) -> None:
    assert scale_to(nothing).end == 1


def test_ticks_are_round() -> None:
    for end, ticks in ENDS.items():
        tick = (Decimal(end) / ticks).normalize()
        assert tick.as_tuple().digits in [(1,), (2,), (5,), (2, 5)]


def corners(path: str) -> list[tuple[float, float]]:
    """The points of a path of M, h, v and H."""
    x, y = map(int, re.match(r"M(\d+) (\d+)", path).groups())  # type: ignore[union-attr]
    found = [(x, y)]
    for command, value in re.findall(r"([hvH])(-?\d+)", path):
        x, y = {"h": (x + int(value), y), "v": (x, y + int(value)), "H": (int(value), y)}[command]
        found.append((x, y))
    return found


@pytest.mark.parametrize("claim", ["PROVEN", "ATTACK"])
def test_a_path_follows_the_accuracy_of_its_run(tmp_path: Path, claim: str) -> None:
    images = digits(70)
    run = make_run(tmp_path, random_rows(images), images=images, claim=claim)
    scale = scale_to(1.9)
    points = corners(outline(run, scale))
    assert points[0] == (0, pytest.approx((1 - run.standing(0)[0]) * BOX, abs=1))
    assert points[-1][0] == BOX
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(points))  # it never rises
    for (x, y), (right, _) in pairwise(points):
        if right - x > 2:  # between two drops
            share = run.standing((x + right) / 2 / BOX * float(scale.end))[0]
            assert y == pytest.approx((1 - share) * BOX, abs=1)


def test_a_path_that_reaches_the_bottom_ends_there(tmp_path: Path) -> None:
    images = digits(4)
    run = make_run(tmp_path, [(label, 0.5) for label in images.labels.tolist()], images=images)
    assert outline(run, scale_to(1)) == f"M0 0h{BOX // 2}v{BOX}"


def test_estimates_and_attacks_do_not_stretch_the_scale_of_what_is_certified(tmp_path: Path) -> None:
    images = digits(20)
    labels = images.labels.tolist()
    proven = make_run(tmp_path / "a", [(label, 0.9) for label in labels], images=images)
    estimate = make_run(tmp_path / "b", [(label, 400.0) for label in labels], images=images, claim="ESTIMATE")
    assert common_scale([proven, estimate]).end == 1
    assert common_scale([estimate]).end == 400


def test_one_radius_far_away_does_not_flatten_all_others(tmp_path: Path) -> None:
    images = digits(300)
    radii = [1.0] * 299 + [1000.0]
    run = make_run(tmp_path, list(zip(images.labels.tolist(), radii, strict=True)), images=images)
    scale = own_scale(run)
    assert scale.end < 2
    bars = histogram(run.radius, scale)
    assert (bars.total, bars.beyond, sum(bar.count for bar in bars.bars)) == (300, 1, 299)


@given(st.lists(st.floats(0, 1), max_size=50))
def test_each_value_is_in_one_bar(values: list[float]) -> None:
    bars = histogram(np.array([*values, math.inf]), scale_to(1))
    assert sum(bar.count for bar in bars.bars) == len(values) == bars.total
    for bar in bars.bars:
        inside = [v for v in values if float(bar.start) <= v < float(bar.stop) or v == 1 == float(bar.stop)]
        assert bar.count == len(inside)
    assert max((bar.height for bar in bars.bars), default=0) == (100 if values else 0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 µs"), (0.000159, "159 µs"), (0.0123, "12.3 ms"), (0.3, "300 ms"), (1.5, "1.50 s"), (119, "119 s"),
     (600, "10 min"), (9000, "2 h 30 min")],
)  # fmt: skip
def test_times_are_short_and_have_their_unit(seconds: float, text: str) -> None:
    assert formats.duration(seconds) == text


def test_norms_have_their_symbols() -> None:
    symbols = [formats.norm_name(p)[1:] for p in (1, 2, 2.5, 12, math.inf)]
    assert symbols == ["₁", "₂", "2.5", "₁₂", "∞"]


@given(st.floats(1e-9, 1e12))
def test_a_bound_is_never_rounded_down_and_seven_digits_of_it_are_right(value: float) -> None:
    exact, shown = Fraction(repr(value)), Fraction(formats.bound(value))
    assert exact <= shown <= exact + max(Fraction(1, 10**7), exact / 10**6)


def test_infinity_has_its_sign_and_no_number_is_nothing() -> None:
    assert [formats.with_signs(text) for text in ("inf", "nan", "0.25")] == ["∞", "", "0.25"]
    assert formats.bound("inf") == "∞"  # as records have it
