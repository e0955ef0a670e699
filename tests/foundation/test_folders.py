"""Folders that one process claims, files that are whole, and what tells two records apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from berncert.foundation.folders import claimed, differences, write_whole


def test_a_folder_is_claimed_by_one_process_at_a_time(tmp_path: Path) -> None:
    other = (
        "from pathlib import Path; from berncert.foundation.folders import claimed\nwith claimed(Path('here'), 'run'): pass"
    )
    command = [sys.executable, "-c", other]
    with claimed(tmp_path / "here", "run"):
        refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "expected a folder that no other run is writing to" in refused.stderr
    assert subprocess.run(command, cwd=tmp_path).returncode == 0


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="expected a folder that can be written to"), claimed(tmp_path / "file", "run"):
        pass


def test_a_write_that_fails_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"before")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device; what was there before is kept"):
        write_whole(path, b"after")
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, {}),
    ({}, {"a": {"b": 1}}),
    ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}),
    ({"a": None}, {}),
    ({"a": {"b": None}}, {"a": {}}),
]


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_differences_are_found_exactly_where_there_are_some(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert differences(a, a) == differences(b, b) == []
    assert len(differences(a, b)) == len(differences(b, a)) == 1


def test_only_a_folder_that_was_made_for_nothing_is_taken_away(tmp_path: Path) -> None:
    for folder, stays in ((tmp_path / "new", False), (tmp_path, True)):
        with pytest.raises(RuntimeError, match="nothing came of it"), claimed(folder, "run"):
            raise RuntimeError("nothing came of it")
        assert folder.exists() == stays
    with claimed(tmp_path / "new", "run"):
        (tmp_path / "new" / "something").write_text("")
    assert (tmp_path / "new" / "something").exists()
