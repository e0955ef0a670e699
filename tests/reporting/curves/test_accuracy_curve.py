"""A curve's steps are those of the definition, and published runs have the published accuracies."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import run_in_memory

from berncert.certification.status import Claim
from berncert.reporting.curves import Curve, curves_of
from berncert.runs.records import read

RADII = st.sampled_from([0.0, 0.25, 0.5, 1.0, math.inf]) | st.floats(0, 3) | st.just(math.nan)
ROWS = st.lists(st.tuples(RADII, st.booleans()), min_size=1, max_size=30)


def at(curve: Curve, radius: float, end: float) -> float:
    """The share at the corners: at a drop the upper one for a certificate, the lower one for an attack."""
    radii, shares = curve.corners(end)
    if curve.claim is Claim.ATTACK:
        return float(shares[np.searchsorted(radii, radius, "right") - 1])
    return float(shares[np.searchsorted(radii, radius, "left")])


@given(rows=ROWS, claim=st.sampled_from(list(Claim)), end=st.floats(0.1, 4), part=st.floats(0, 1))
def test_the_corners_are_those_of_the_definition(
    rows: list[tuple[float, bool]], claim: Claim, end: float, part: float
) -> None:
    curve = Curve("run", run_in_memory(rows, claim))
    drops = [radius for radius, _ in rows if radius <= end]
    for radius in (0.0, part * end, end, *drops):
        holds = [correct and (r > radius if claim is Claim.ATTACK else r >= radius) for r, correct in rows]
        assert at(curve, radius, end) == sum(holds) / len(rows) == curve.run.standing(radius)[0]


@given(rows=ROWS, claim=st.sampled_from(list(Claim)), end=st.floats(0.1, 4))
def test_corners_go_right_and_never_up(rows: list[tuple[float, bool]], claim: Claim, end: float) -> None:
    radii, shares = Curve("run", run_in_memory(rows, claim)).corners(end)
    assert radii[0] == 0
    assert radii[-1] == end
    assert (np.diff(radii) >= 0).all()
    assert (np.diff(shares) <= 0).all()
    assert np.isfinite([radii, shares]).all()
    assert ((np.diff(radii) == 0) | (np.diff(shares) == 0)).all()  # steps: across or down


@given(rows=ROWS, share=st.floats(0, 0.99))
def test_more_than_the_share_hold_at_the_reach_and_no_more_beyond(rows: list[tuple[float, bool]], share: float) -> None:
    curve = Curve("run", run_in_memory(rows, Claim.PROVEN))
    reach = curve.reach(share)
    later = [radius for radius in curve.holding if reach < radius < math.inf]
    assert reach == 0 or curve.run.standing(reach)[0] > share - 1e-12
    assert all(curve.run.standing(radius)[0] <= share + 1e-12 for radius in later)


PUBLISHED = Path(os.environ.get("BERNCERT_DATA", ""), "published")
README = PUBLISHED / "README.md"
LINES = [line for line in README.read_text("utf-8").splitlines() if line.count("|") == 9] if README.is_file() else []


@pytest.mark.skipif(not LINES, reason="no published certificates in the folder that BERNCERT_DATA names")
def test_the_published_accuracies_are_found_again() -> None:
    published = {
        cells[1].strip(" `"): cells[2:-1]
        for line in LINES
        if (cells := line.split("|"))[1].strip(" `").endswith(".tsv")
    }
    assert len(published) == 15
    for name, (*shares, abstained, largest) in published.items():
        run = read(PUBLISHED / name)
        curve = Curve(name, run)
        assert [f"{share:.3f}" for share in run.standing([0, 0.25, 0.5, 0.75, 1])] == [x.strip() for x in shares]
        assert f"{run.abstained.sum()}/{len(run)}" == abstained.strip()
        assert run.radius.max() == pytest.approx(float(largest), rel=6e-3)
        assert curve.data == "cifar10 test"
        assert [f"{at(curve, r, 4.0):.3f}" for r in (0, 0.25, 0.5, 0.75, 1)] == [x.strip() for x in shares]


@pytest.mark.skipif(not LINES, reason="no published certificates in the folder that BERNCERT_DATA names")
def test_published_names_stand_for_their_files() -> None:
    curves = curves_of(["cohen2019", "cohen2019:.5", "new=salman2019:1"])
    labels = [f"Cohen 2019, sigma {noise}" for noise in ("0.12", "0.25", "0.50", "1.00", "0.50 (2)")]
    assert [curve.label for curve in curves] == [*labels, "new"]
    assert [f"{curve.run.standing(0.25)[0]:.3f}" for curve in curves] == [
        "0.586", "0.600", "0.546", "0.392", "0.546", "0.422",
    ]  # fmt: skip
