"""Runs are compared image by image only if they are about the same classifier, data and norm."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_table, write_run

from berncert.runs.records import Run, read

DATA = {"name": "digits", "split": "test", "part": None, "shape": [1, 8, 8], "files": {"a": "1"}, "sha256": "2"}


def run_of(
    folder: Path,
    *,
    images: int = 3,
    norm: float = 2.0,
    data: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> Run:
    told = DATA | (data or {})
    made = write_run(folder, [], range(images), claim="PROVEN", norm=norm, data=told, settings=settings, more=more)
    return read(made)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"images": 2, "data": {"sha256": "3"}},
        {"settings": {"skip": 2}, "data": {"sha256": "3"}},
        {"images": 9, "data": {"files": {"a": "1", "b": "2"}, "sha256": "3"}},
        {"data": {"files": {}}},
    ],
)
def test_runs_over_images_of_the_same_data_can_be_compared_whichever_were_chosen(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    a, b = run_of(tmp_path / "a"), run_of(tmp_path / "b", **other)
    assert a.same_task(b)
    assert b.same_task(a)


@pytest.mark.parametrize(
    "other",
    [
        {"norm": math.inf},
        {"settings": {"degree": 3}},
        {"more": {"model": {"sha256": "cd" * 32}}},
        {"data": {"name": "moons"}},
        {"data": {"split": "train"}},
        {"data": {"part": "the first half"}},
        {"data": {"shape": [3, 8, 8]}},
        {"data": {"files": {"a": "2"}}},
        {"data": {"files": {"b": "1"}}},
        {"data": {"sha256": "3"}},
    ],
)
def test_runs_of_another_model_norm_or_data_cannot(tmp_path: Path, other: dict[str, Any]) -> None:
    a, b = run_of(tmp_path / "a"), run_of(tmp_path / "b", **other)
    assert not a.same_task(b)
    assert not b.same_task(a)


def test_parts_of_data_that_was_divided_are_the_same_data_unless_it_was_changed(tmp_path: Path) -> None:
    told = {"split": "test", "part": "one in 5", "files": {"mine/3 images": "1"}, "division": {"sha256": "d"}}
    whole = {"split": "all", "part": "all", "files": {"mine/9 images": "2"}, "sha256": "3"}
    a = run_of(tmp_path / "a", data=told)
    assert a.same_task(run_of(tmp_path / "b", images=9, data=told | whole))
    assert a.same_task(run_of(tmp_path / "c", data=told | {"name": "/home/me/digits"}))
    assert not a.same_task(run_of(tmp_path / "d", data=told | {"sha256": "3"}))
    assert not a.same_task(run_of(tmp_path / "e", images=9, data=told | whole | {"division": {"sha256": "e"}}))
    assert not a.same_task(run_of(tmp_path / "f", data={"split": "test"}))


def test_a_lone_table_does_not_tell_enough(tmp_path: Path) -> None:
    table = read(make_table(tmp_path / "lone.tsv", [0.5]))
    assert not table.same_task(table)
    assert not run_of(tmp_path / "a").same_task(table)
