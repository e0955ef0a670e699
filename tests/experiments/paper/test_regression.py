"""Figure 7 at toy size: bands hold, smoothing obeys its laws, choices do not see the test points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiments.paper.regression import measure_curves
from experiments.paper.regression.experiments import FIGURE7
from experiments.paper.regression.measure_curves import AMOUNTS, MOVE, Fitted, band, read_column, values
from experiments.paper.regression.measure_tables import tables
from experiments.paper.regression.models import Family, LeastSquares, SmoothingSpline, fitted, tree
from experiments.paper.regression.plot import LINES, SHOWN
from experiments.paper.regression.problem import draw, rmse, truth, variation
from experiments.paper.work import Work
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import berncert

T = np.linspace(0, 1, 501)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("figure7")
    return {**FIGURE7.record(Work("toy", out / "work"), out), "out": out}


def by_definition(head: berncert.SmoothedHead, t: np.ndarray) -> np.ndarray:
    """The polynomial as a sum of its terms, by another library."""
    degree = head.degree[0]
    weights = binom.pmf(np.arange(degree + 1), degree, t[:, None])
    return weights @ head.coefficients[0].numpy()


def fitted_tree(seed: int, count: int = 30) -> Fitted:
    return Fitted.of(Family("tree", tree(), {}), draw(count, np.random.default_rng(seed)))


@pytest.mark.parametrize("degree", [1, 8, 64])
def test_no_value_near_a_place_is_outside_its_proven_band(degree: int) -> None:
    head = fitted_tree(0).smoothed(degree)
    places = np.linspace(0, 1, 23)
    lower, upper = band(head, places)
    moves = np.random.default_rng(0).uniform(-MOVE, MOVE, (200, 1))
    inside = np.clip(places + np.vstack([moves, [[-MOVE]], [[MOVE]]]), 0, 1)
    found = by_definition(head, inside.ravel()).reshape(inside.shape)
    assert (found >= lower - 1e-12).all()
    assert (found <= upper + 1e-12).all()
    assert (upper - lower <= np.ptp(found, axis=0) + 0.02 * np.ptp(head.coefficients.numpy())).all()


def test_a_curve_that_bends_little_is_followed_as_closely_as_the_theorem_says() -> None:
    """|B_n f - f| <= max |f''| / (8 n)."""
    points = draw(30, np.random.default_rng(1))
    one = Fitted.of(Family("cubic", LeastSquares(3), {}), points)
    bend = np.abs(one.model.polynomial_.deriv(2)(T)).max()
    for degree in (8, 64, 256):
        assert np.abs(values(one.smoothed(degree), T) - one.raw(T)).max() <= 1.0001 * bend / (8 * degree)


def test_away_from_its_jumps_a_step_function_is_approached() -> None:
    head = berncert.smooth(lambda t: (t > 0.5).double(), dim=1, degree=256)
    away = np.abs(T - 0.5) > 0.15
    assert np.abs(values(head, T) - (T > 0.5))[away].max() < 1e-4


@settings(max_examples=25)
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=40))
def test_smoothing_never_adds_variation_and_keeps_both_ends(levels: list[float]) -> None:
    head = berncert.SmoothedHead(torch.tensor([levels], dtype=torch.float64))
    curve = values(head, T)
    assert variation(curve) <= variation(np.array(levels)) + 1e-9
    assert curve[[0, -1]] == pytest.approx([levels[0], levels[-1]])


def test_the_choice_of_degree_and_settings_does_not_see_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Family("tree", tree(), {"4 leaves": tree(4), "8 leaves": tree(8)})
    monkeypatch.setattr(measure_curves, "curve_families", lambda steps: [family])
    monkeypatch.setattr(measure_curves, "smoothers", list)
    known = measure_curves.measure_curves(AMOUNTS["toy"])["rows"][0]
    monkeypatch.setattr(measure_curves, "truth", lambda t: 5 - truth(t))
    unknown = measure_curves.measure_curves(AMOUNTS["toy"])["rows"][0]
    assert known["raw"] != unknown["raw"]
    assert known["chosen"] == unknown["chosen"]
    assert known["regularised"]["setting"] == unknown["regularised"]["setting"]
    assert known["average"]["width"] == unknown["average"]["width"]


def test_the_chosen_degree_has_the_least_error_on_the_validation_points(record: dict[str, Any]) -> None:
    degrees = list(record["curves"]["amounts"]["degrees"])
    for row in record["curves"]["rows"]:
        place = degrees.index(row["chosen"])
        assert row["validation"][place] == min(row["validation"])
        assert row["smoothed"] == row["by_degree"][place]


def test_no_sample_is_outside_a_proven_range_of_the_record(record: dict[str, Any]) -> None:
    bands = [row["band"] for row in record["curves"]["rows"]]
    assert all(one["outside"] == 0 and one["sampled"] > 0 for one in bands)
    assert all(0 <= one["largest_gap"] < 0.01 for one in bands)
    assert all(one["outside"] == 0 and 0 <= one["mean_gap"] < 0.5 for one in record["tables"]["ranges"])


def test_drawn_bands_enclose_drawn_curves(record: dict[str, Any]) -> None:
    for one in record["curves"]["drawn"]["curves"].values():
        smoothed, lower, upper = (read_column(one[key]) for key in ("smoothed", "lower", "upper"))
        assert (lower <= smoothed + 1e-4).all()
        assert (smoothed <= upper + 1e-4).all()


def test_tables_count_and_average_what_is_in_the_record(record: dict[str, Any]) -> None:
    curves, _, bands, real, _ = FIGURE7.sections(record)
    row = curves.rows[1]
    mine = [one for one in record["curves"]["rows"] if one["model"] == "decision tree"]
    assert row["better"] == f"{sum(one['smoothed'] < one['raw'] for one in mine)} of {len(mine)}"
    assert curves.cells[1][1].startswith(f"{np.mean([one['raw'] for one in mine]):.3f} ± ")
    assert bands.rows[1]["sampled"] == sum(one["band"]["sampled"] for one in mine)
    assert [cells[1] for cells in real.cells[:6]] == [
        "1 nearest neighbour", "decision tree", "boosting", "random forest", "neural network", "ridge regression",
    ]  # fmt: skip
    assert real.cells[5][2] == "-"


def test_a_finished_record_is_not_measured_twice_and_is_all_that_is_drawn(
    record: dict[str, Any], tmp_path: Path
) -> None:
    def never(work: Work) -> dict[str, Any]:
        raise AssertionError("measured twice")

    again = FIGURE7._replace(measure=never).record(Work("toy", tmp_path), record["out"])
    assert again == json.loads((record["out"] / "figure7.json").read_text())
    sections = FIGURE7.render(again, tmp_path)
    assert [one.cells for one in sections] == [one.cells for one in FIGURE7.sections(record)]
    assert (tmp_path / "figure7.png").stat().st_size > 1000


def test_the_models_that_are_drawn_are_among_those_measured(record: dict[str, Any]) -> None:
    assert {SHOWN, *LINES} <= {row["model"] for row in record["curves"]["rows"]}


def test_a_tenth_of_the_points_are_outliers_and_the_ends_are_covered() -> None:
    points = draw(60, np.random.default_rng(0))
    assert points.outlier.sum() == 6
    assert (points.t[0], points.t[-1]) == (0, 1)
    assert np.abs(points.y - truth(points.t))[points.outlier].min() > np.median(np.abs(points.y - truth(points.t)))


def test_rivals_fit_what_they_can_fit() -> None:
    t = np.linspace(0, 1, 40)
    assert rmse(fitted(LeastSquares(3), t[:, None], t**3 - t).predict(T[:, None]), T**3 - T) < 1e-10
    assert rmse(fitted(SmoothingSpline(1e-9), t[:, None], truth(t)).predict(T[:, None]), truth(T)) < 1e-3


def test_both_tables_are_numbers_without_gaps() -> None:
    found = tables()
    assert [(table.name, table.x.shape) for table in found] == [("diabetes", (442, 10)), ("wine", (178, 12))]
    assert all(np.isfinite(table.x).all() and len(table.x) == len(table.y) for table in found)
