"""The toy size of the paper's models, trained once for all tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments.paper import plan
from experiments.paper.work import Work


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Work:
    folder: Path = tmp_path_factory.mktemp("paper")
    return Work("toy", folder, None, plan.models("toy"), lambda text: None)
