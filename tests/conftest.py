"""Shared by all tests: one torch thread, the search compiled once, a browser."""

from __future__ import annotations

import os
import tempfile

import pytest
import torch
from chromium import browser, open_page  # noqa: F401  (fixtures)
from hypothesis import settings

import berncert

settings.register_profile("no times", deadline=None)  # a shared machine is slow when it likes
settings.load_profile("no times")


def pytest_sessionstart(session: pytest.Session) -> None:
    torch.set_num_threads(1)
    os.environ["BERNCERT_CACHE"] = tempfile.mkdtemp(prefix="berncert-tests-")  # no proof of an earlier run
    if not hasattr(session.config, "workerinput"):  # before workers start, so that they find the compiled search
        berncert.certify(berncert.SmoothedHead(torch.eye(2, dtype=torch.float64)), [[0.2]])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The pages of the docs first: each is one long test, and nobody should wait for the last of them alone."""
    items.sort(key=lambda item: item.path.name != "test_docs.py")


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Weights and images that torch draws are the same in every run, in any order of the tests."""
    torch.manual_seed(0)
