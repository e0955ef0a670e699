"""Numbers told in a few digits never claim more than there is."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berncert.study.rounding import down, up


@given(value=st.floats(1e-300, 1e300), digits=st.integers(1, 15))
def test_the_value_lies_between_what_is_told_and_both_are_close(value: float, digits: int) -> None:
    below, above = Fraction(down(value, digits)), Fraction(up(value, digits))
    assert below <= Fraction(value) <= above
    assert above - below <= Fraction(value) / 10 ** (digits - 1)


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
    assert (down(value, 3), up(value, 3)) == (below, above)
