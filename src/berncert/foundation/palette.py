"""The colours and the size of small text that all pictures share."""

from __future__ import annotations

from typing import NamedTuple


class ClassStyle(NamedTuple):
    """How a class looks. Inks and tints differ in lightness as well as in hue, markers in shape."""

    ink: str
    tint: str
    marker: str


CLASS_STYLES = (
    ClassStyle("#1d4f91", "#dbe5f1", "o"),
    ClassStyle("#d9820b", "#fdf3e1", "^"),
    ClassStyle("#0f7b6c", "#dcefe9", "s"),
    ClassStyle("#b76a9b", "#f8e9f2", "D"),
)
INK, GREY, PALE = "#1f2328", "#6e7781", "#e3e6ea"
SMALL = 8.5
"""Points."""
