"""From a user's network to a frozen one: trace its forward, translate each step, compare the two."""

from berncert.extractor.freezing.freeze import freeze
from berncert.extractor.freezing.modules import register

__all__ = ["freeze", "register"]
