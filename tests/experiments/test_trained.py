"""The records of the shipped models, and the tables and docs that quote them."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from experiments.trained.__main__ import HERE, tables

from berncert.models.checkpoint import open_checkpoint, shipped_models

ROOT = HERE.parent.parent
PAGES = ROOT / "README.md", ROOT / "docs/models.md"


def record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", shipped_models())
def test_every_shipped_model_has_the_record_of_this_very_file(name: str) -> None:
    assert record(name)["checkpoint_sha256"] == open_checkpoint(name).sha256


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("name", [name for name in shipped_models() if name != "digits"])
def test_what_the_pages_quote_of_a_shipped_model_is_in_its_record(name: str, page: Path) -> None:
    r = record(name)
    (row,) = (line for line in page.read_text("utf-8").splitlines() if re.match(rf"\| `{name}`[ ,]", line))
    certified = {
        float(Fraction(radius)): float(percent) for percent, radius in re.findall(r"([\d.]+) % at ([\d./]+)", row)
    }
    (clean,) = re.findall(r"\| ([\d.]+) % \|", row)
    assert len(certified) >= 2
    for radius, percent in {0.0: float(clean), **certified}.items():
        (at,) = (i for i, known in enumerate(r["radii"]) if math.isclose(known, radius))
        assert percent == pytest.approx(100 * r["certified"][at], abs=0.005001)


def test_a_table_says_of_how_many_images_each_model_was_attacked() -> None:
    some, others = record("mnist"), record("mnist-large-radius") | {"attacked_images": 7}
    assert tables([some, some], "mnist", 2.0)[1].note.startswith("Percent of the first 1000: proven")
    note = tables([some, others], "mnist", 2.0)[1].note
    assert note.startswith("Percent of the first images, 1000 of mnist, 7 of mnist-large-radius: proven")
