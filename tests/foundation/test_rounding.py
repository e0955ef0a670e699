"""Numbers told in a few digits never claim more than there is."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berncert.foundation.rounding import (
    ceil_digits,
    ceil_places,
    floor_digits,
    floor_places,
    norm_name,
    number,
    percent,
    trimmed,
)


@given(value=st.floats(1e-300, 1e300), digits=st.integers(1, 15), sign=st.sampled_from([1, -1]))
def test_the_value_lies_between_what_is_told_and_both_are_close(value: float, digits: int, sign: int) -> None:
    below, above = Fraction(floor_digits(sign * value, digits)), Fraction(ceil_digits(sign * value, digits))
    assert below <= Fraction(repr(sign * value)) <= above
    assert above - below <= Fraction(repr(value)) / 10 ** (digits - 1)


@given(value=st.floats(-1e6, 1e6), places=st.integers(0, 8))
def test_decimals_too_are_told_on_the_safe_side(value: float, places: int) -> None:
    below, above = Fraction(floor_places(value, places)), Fraction(ceil_places(value, places))
    assert below <= Fraction(repr(value)) <= above
    assert above - below <= Fraction(1, 10**places)


@given(of=st.integers(1, 10**6), share=st.fractions(0, 1), places=st.integers(1, 3))
def test_percentages_are_the_nearest(of: int, share: Fraction, places: int) -> None:
    count = int(share * of)
    told = Fraction(percent(count, of, places))
    assert abs(told - Fraction(100 * count, of)) <= Fraction(1, 2 * 10**places)


def test_numbers_are_read_as_decimals_and_fractions() -> None:
    assert [number(text) for text in ("0.25", "36/255", "1e-3", " 2 ")] == [0.25, 36 / 255, 0.001, 2.0]
    for text in ("", "a", "1/0", "1/2/3", "/"):
        with pytest.raises(ValueError, match=r"number|float"):
            number(text)
    assert [norm_name(p) for p in (1, 2.0, 1.5, math.inf)] == ["l1", "l2", "l1.5", "linf"]


@pytest.mark.parametrize(
    ("value", "below", "above"),
    [
        (0.07996, "0.0799", "0.08"),
        (0.0, "0", "0"),
        (math.inf, "inf", "inf"),
        (0.5, "0.5", "0.5"),
        (1234.5, "1.23e+03", "1.24e+03"),
    ],
)
def test_known_values(value: float, below: str, above: str) -> None:
    assert (floor_digits(value, 3), ceil_digits(value, 3)) == (below, above)


@given(value=st.floats(1e-300, 1e300))
def test_trimming_leaves_twelve_digits(value: float) -> None:
    assert abs(trimmed(value) - value) <= 1e-11 * value
    assert trimmed(1.0000000000000002) == 1.0
