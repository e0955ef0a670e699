"""Radii are read and written as decimals and fractions; those chosen by default are round."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run, run_in_memory

from berncert.certification.status import Claim
from berncert.reporting.curves import Curve, curves_of, default_radii, radii_of
from berncert.reporting.curves.radii import radius_text


@pytest.mark.parametrize(
    ("radii", "expected"),
    [
        ([0.457], [0, 0.1, 0.2, 0.3, 0.4]),
        ([0.978], [0, 0.25, 0.5, 0.75]),
        ([3.45], [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        ([0.09, 0.01], [0, 0.025, 0.05, 0.075]),
        ([500.0], [0, 100, 200, 300, 400, 500]),
        ([0.0], [0]),
        ([math.inf], [0, 1]),
        ([math.inf, 0.5], [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ([math.nan], [0]),
        ([1.0] * 200 + [50.0], [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_default_radii_are_round_and_end_where_the_curve_is_about_zero(
    radii: list[float], expected: list[float]
) -> None:
    assert default_radii([Curve("run", run_in_memory([(radius, True) for radius in radii], Claim.PROVEN))]) == expected


@given(end=st.floats(1e-300, 1e308))
def test_default_radii_are_few_and_within_the_curve_whatever_its_size(end: float) -> None:
    radii = default_radii([Curve("run", run_in_memory([(end, True)], Claim.PROVEN))])
    assert radii[0] == 0
    assert 2 <= len(radii) <= 7
    assert radii[-1] <= end
    assert sorted(set(radii)) == radii


def test_default_radii_of_attacks_alone_are_the_radii_that_they_tried(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0.5, math.inf], claim="ATTACK", settings={"radii": [0.25, 0.5, 2]})
    assert default_radii(curves_of([str(run)])) == [0, 0.25, 0.5, 2]


def test_radii_are_read_as_decimals_and_fractions() -> None:
    assert radii_of("0, 36/255,0.5 ,1e-1,0.5,-0") == [0, 36 / 255, 0.5, 0.1]
    assert math.copysign(1, radii_of("-0")[0]) == 1


@pytest.mark.parametrize("word", ["", "-1", "nan", "inf", "x", "1/0", "1/2/3", "1e999", "-1/2", "1/", "/2", "1/inf/"])
def test_what_is_no_radius_is_an_error(word: str) -> None:
    for text in (word, f"0,{word}"):
        with pytest.raises(ValueError, match=r"expected radii >= 0, .* got ") as error:
            radii_of(text)
        assert repr(word) in str(error.value)


@given(part=st.floats(0, 3), bottom=st.sampled_from([3, 7, 85, 255]))
def test_a_fraction_is_written_as_one_that_has_its_value(part: float, bottom: int) -> None:
    top = round(part * bottom)
    text = radius_text(top / bottom)
    assert len(text) <= 7
    assert float(Fraction(text)) == top / bottom


def test_radii_are_written_shortly() -> None:
    assert [radius_text(x) for x in (0, 0.5, 36 / 255, 1 / 3, 0.1416, 1 / math.pi, 2.0)] == [
        "0", "0.5", "36/255", "1/3", "0.1416", "0.31831", "2",
    ]  # fmt: skip
