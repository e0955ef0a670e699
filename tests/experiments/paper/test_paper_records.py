"""The committed records: complete, without the names of anyone's folders, and the source of the tables beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.timing import made_by
from experiments.paper import EXPERIMENTS

FOLDER = Path(__file__).parents[3] / "experiments" / "paper" / "records"
RECORDS = pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json")), ids=lambda file: file.stem)


@RECORDS
def test_the_tables_of_a_record_are_those_beside_it(file: Path) -> None:
    record, page = json.loads(file.read_text()), file.with_suffix(".md").read_text()
    assert made_by(record) in page
    for section in EXPERIMENTS[file.stem].sections(record):
        assert section.note in page
        for cells in section.cells:
            assert f"| {' | '.join(cells)} |" in page


@RECORDS
def test_a_record_is_of_its_experiment_and_names_no_folder_of_the_machine(file: Path) -> None:
    text = file.read_text()
    assert json.loads(text)["name"] == file.stem
    assert json.loads(text)["size"] in ("small", "full")
    assert not any(start in text for start in ('"/', " /", "=/", "\\\\"))
