"""The models that the experiments train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def models(size: str) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Name -> recipe and what differs from it."""
    return {}
