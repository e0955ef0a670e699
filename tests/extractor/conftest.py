"""Shared by the tests of the extractor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from berncert.extractor.freezing.modules import VOUCHED


@pytest.fixture
def registry() -> Iterator[None]:
    """The layers that a test vouches for are forgotten afterwards."""
    before = dict(VOUCHED)
    yield
    VOUCHED.clear()
    VOUCHED.update(before)
