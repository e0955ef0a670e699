"""`berncert demo`, on fewer images: everything that it promises is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from berncert.cli import demo, main
from berncert.study.runs.records import Claim, read


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (about, settings) in demo.RUNS.items():
        monkeypatch.setitem(demo.RUNS, name, (about, replace(settings, skip=60, limit=4)))


def test_it_certifies_attacks_compares_draws_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "all")]) == 0
    output = capsys.readouterr().out
    for name, claim in zip(demo.RUNS, ("PROVEN", "ATTACK", "PROBABLE", "ESTIMATE"), strict=True):
        run = read(tmp_path / "all" / name)
        assert run.complete
        assert run.claim is Claim[claim]
        assert claim.lower() in output
    for name, start in {"curve.png": b"\x89PNG", "explained.png": b"\x89PNG", "report.html": b"<!"}.items():
        assert (tmp_path / "all" / name).read_bytes().startswith(start)
        assert name in output


def test_a_second_time_it_only_tells_what_is_there_and_json_is_one_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["demo", "--out", str(tmp_path / "all"), "--json"]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert {curve["label"] for curve in first["curves"]} == set(demo.RUNS)
    assert Path(first["report"]).exists()
