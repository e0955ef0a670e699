"""Text in pictures: the styles of messages and details, the symbol of a norm, letters that no font has."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from berncert.foundation.palette import GREY, INK, SMALL

MESSAGE: Mapping[str, Any] = {"fontsize": 11.5, "fontweight": "bold", "color": INK, "va": "baseline"}
DETAIL: Mapping[str, Any] = {"fontsize": SMALL, "color": GREY, "va": "baseline"}


def norm_symbol(norm: float) -> str:
    """The norm's symbol in mathematical type."""
    p = r"\infty" if math.isinf(norm) else f"{norm:g}"
    return rf"$\ell_{{{p}}}$"


@contextmanager
def missing_glyphs_as_boxes() -> Iterator[None]:
    """Within it, letters that the font does not have are shown as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        yield
