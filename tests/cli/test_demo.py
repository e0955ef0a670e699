"""`berncert demo`, on fewer images: everything that it promises is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from berncert.cli import demo, main
from berncert.certification.status import Claim
from berncert.runs.records import read


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (about, method, settings) in demo.RUNS.items():
        monkeypatch.setitem(demo.RUNS, name, (about, method, replace(settings, skip=60, limit=4)))


def test_it_certifies_attacks_compares_draws_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "all"
    assert main(["demo", "--out", str(folder)]) == 0
    output = capsys.readouterr().out
    for name, claim in zip(demo.RUNS, ("PROVEN", "ATTACK", "PROBABLE", "ESTIMATE"), strict=True):
        run = read(folder / name)
        assert run.complete
        assert run.claim is Claim[claim]
        assert claim.lower() in output
    made = {"curve.png": b"\x89PNG", "explained.png": b"\x89PNG", "report.html": b"<!"}
    for name, start in made.items():
        assert (folder / name).read_bytes().startswith(start)
        assert name in output
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main(["demo", "--out", str(folder), "--json"]) == 0  # a second time it only tells what is there
    told = json.loads(capsys.readouterr().out)
    assert {curve["label"] for curve in told["curves"]} == set(demo.RUNS)
    assert Path(told["report"]).exists()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
