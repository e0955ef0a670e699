"""The record of a network of one's own: its page says what it says, and nothing proven is above an attack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.own_network.__main__ import HERE, NORMS, text
from experiments.own_network.picture import draw


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / "record.json").read_text("utf-8"))
    return found


def test_the_page_is_made_of_the_record(record: dict[str, Any]) -> None:
    assert (HERE / "results.md").read_text("utf-8") == text(record)


def test_both_routes_prove_no_less_than_one_and_no_more_than_an_attack_leaves(record: dict[str, Any]) -> None:
    for row in record["rows"]:
        for norm in NORMS:
            radii, alone = (np.array(row[norm][key]) for key in ("radii", "global_radii"))
            assert (radii >= alone).all()
            for at, left in row[norm]["attacked"].items():
                assert (radii >= float(at)).mean() <= left + 1e-12


def test_the_median_lies_between_what_is_proven_and_what_was_found(record: dict[str, Any]) -> None:
    for row in record["rows"]:
        for norm in NORMS:
            r = row[norm]
            assert r["median"] <= r["upper"] < np.inf
            assert r["witnesses"] > record["images"] / 2


def test_the_curves_are_drawn(record: dict[str, Any], tmp_path: Path) -> None:
    draw(record, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000
