"""Text in pictures: the styles of messages and details, and the symbol of a norm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from berncert.foundation.palette import GREY, INK, SMALL

MESSAGE: Mapping[str, Any] = {"fontsize": 11.5, "fontweight": "bold", "color": INK, "va": "baseline"}
DETAIL: Mapping[str, Any] = {"fontsize": SMALL, "color": GREY, "va": "baseline"}


def norm_symbol(norm: float) -> str:
    """The norm's symbol in mathematical type."""
    p = r"\infty" if math.isinf(norm) else f"{norm:g}"
    return rf"$\ell_{{{p}}}$"
