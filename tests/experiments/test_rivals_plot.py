"""Labels of published points: moved apart, but no further than needed, and in their order."""

from __future__ import annotations

import itertools

import pytest
from experiments.rivals.plot import _apart, rivals_figure
from experiments.rivals.points import PICTURES
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.floats(0, 95), min_size=1, max_size=8))
def test_labels_are_a_gap_apart_in_order_and_stay_where_there_is_room(heights: list[float]) -> None:
    wanted = sorted(heights, reverse=True)
    placed = _apart(wanted, 4.0, 98.0)
    gaps = [a - b for a, b in itertools.pairwise(placed)]
    assert all(gap >= 4.0 - 1e-9 for gap in gaps)
    assert placed[0] <= 98.0 + 1e-9
    if all(a - b >= 4.0 for a, b in itertools.pairwise(wanted)):
        assert placed == pytest.approx(wanted)


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn_with_its_points_and_curves(name: str) -> None:
    picture = PICTURES[name]
    shares = [0.9 - 0.9 * k / 400 for k in range(401)]
    curves = [{"label": word, "claim": word, "images": 500, "curve": shares} for word in ("PROVEN", "PROBABLE")]
    figure = rivals_figure(picture, curves, "title", "detail")
    written = {text.get_text() for text in figure.axes[0].texts}
    assert {f"{point.label}  {point.certified:g}" for point in picture.points} == written
    assert all(0 < point.radius < picture.end for point in picture.points)
