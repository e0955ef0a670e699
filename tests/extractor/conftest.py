"""Shared by the tests of the extractor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from berncert.extractor.freezing.registration import RULES


@pytest.fixture
def registry() -> Iterator[None]:
    """The rules that a test registers are forgotten afterwards."""
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)
