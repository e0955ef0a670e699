"""Laws of the pictures: outlines lie on the unit sphere, balls have their certificates' radii, nothing warns."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from experiments.paper.boundary import plots
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

import berncert

NORMS = [1, 1.5, 2, 3, 100, np.inf]
POINTS = np.array([[0.2, 0.3], [0.4, 0.9], [0.85, 0.5], [0.95, 0.05]])
LABELS = np.array([0, 0, 1, 1])


def halves(features: torch.Tensor) -> torch.Tensor:
    """Class 1 right of x = 0.6, class 0 left of it."""
    return torch.stack([0.6 - features[:, 0], features[:, 0] - 0.6], dim=1)


def quarters(features: torch.Tensor) -> torch.Tensor:
    """The nearest of four centres."""
    centres = torch.tensor([[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]], dtype=torch.float64)
    return -torch.cdist(features, centres)


def length(vectors: np.ndarray, norm: float) -> np.ndarray:
    return np.linalg.norm(vectors, ord=norm, axis=-1)


def certificates(norm: float) -> berncert.Certificates:
    return berncert.certify(berncert.smooth(halves, dim=2, degree=1), POINTS, norm=norm)


def rendered(figure: Figure) -> bytes:
    """Drawing is when matplotlib finds most of what is wrong."""
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=50)
    return picture.getvalue()


@pytest.mark.parametrize("norm", NORMS)
def test_every_point_of_the_outline_has_norm_one(norm: float) -> None:
    assert length(plots.ball_outline(norm), norm) == pytest.approx(1, abs=1e-14)


@given(norm=st.floats(1, 1e6))
def test_the_outline_has_norm_one_and_goes_once_round_whatever_the_norm(norm: float) -> None:
    outline = plots.ball_outline(norm)
    assert length(outline, norm) == pytest.approx(1, abs=1e-12)
    turns = np.angle((outline @ [1, 1j]) / np.roll(outline @ [1, 1j], 1))
    assert (turns > 0).all()
    assert turns.sum() == pytest.approx(2 * np.pi)


@pytest.mark.parametrize(("norm", "corner"), [(1, [0, 1]), (np.inf, [1, -1])])
def test_the_outline_reaches_the_corners(norm: float, corner: list[float]) -> None:
    assert np.abs(plots.ball_outline(norm) - corner).max(axis=1).min() < 1e-12


@pytest.mark.parametrize("norm", NORMS)
def test_drawn_balls_have_the_radii_of_the_certificates_and_touch_the_boundary(norm: float) -> None:
    proven = certificates(norm)
    axes = Figure().subplots()
    balls = plots.draw_balls(axes, POINTS, proven.radius, norm, proven.predicted)
    outlines = [path.vertices for path in balls.get_paths()]
    assert len(outlines) == len(POINTS)
    for outline, centre, radius in zip(outlines, POINTS, proven.radius, strict=True):
        assert length(outline - centre, norm) == pytest.approx(radius)
        assert np.abs(outline[:, 0] - 0.6).min() <= 2e-3 * radius  # the tolerance of the proof, and the outline's


def test_balls_are_cut_off_at_the_unit_square() -> None:
    axes = Figure().subplots()
    axes.set(xlim=(-1, 2), ylim=(-1, 2))
    balls = plots.draw_balls(axes, POINTS, np.full(4, 0.5), 2, LABELS)
    corners = axes.transData.inverted().transform(balls.get_clip_box().get_points())
    assert corners.min(axis=0) == pytest.approx([0, 0], abs=1e-12)
    assert corners.max(axis=0) == pytest.approx([1, 1])


@pytest.mark.parametrize("head", [halves, quarters])
def test_the_lead_is_positive_exactly_where_the_class_is_predicted(head: plots.Head) -> None:
    leads = plots.sample_leads(head, resolution=20)  # even: no grid point on a boundary
    ticks = torch.linspace(0, 1, 20, dtype=torch.float64)
    for row, y in enumerate(ticks):
        predicted = head(torch.stack([ticks, y.expand(20)], dim=1)).argmax(dim=1)
        assert (leads[:, row].argmax(axis=0) == predicted.numpy()).all()
    assert ((leads > 0).sum(axis=0) == 1).all()


def test_where_two_classes_tie_no_lead_is_positive() -> None:
    leads = plots.sample_leads(lambda x: torch.stack([x[:, 0], x[:, 0], x[:, 0] - 1], dim=1), resolution=3)
    assert (leads[:2] == 0).all()
    assert (leads[2] == -1).all()


def test_the_drawn_boundary_is_where_the_classes_tie() -> None:
    axes = Figure().subplots()
    plots.draw_boundary(axes, plots.sample_leads(halves, resolution=31))
    (contour,) = axes.collections
    assert np.concatenate([p.vertices for p in contour.get_paths()])[:, 0] == pytest.approx(0.6)


def test_a_class_that_holds_the_whole_square_has_a_region_and_no_boundary() -> None:
    leads = plots.sample_leads(lambda x: torch.stack([x[:, 0] + 1, -x[:, 0]], dim=1), resolution=5)
    figure = Figure()
    axes = figure.subplots()
    plots.draw_regions(axes, leads)
    assert len(axes.collections) == 1
    plots.draw_boundary(axes, leads)
    assert len(axes.collections) == 1
    assert rendered(figure)


def test_a_certificate_without_a_witness_is_drawn_without_one() -> None:
    axes = Figure().subplots()
    plots.draw_witnesses(axes, POINTS, np.where(LABELS[:, None] == 0, np.nan, POINTS))
    lines, crosses = axes.collections
    assert len(lines.get_paths()) == len(crosses.get_offsets()) == 2


def test_more_classes_than_there_are_colours_are_an_error() -> None:
    with pytest.raises(ValueError, match="expected at most 4 classes, got 5"):
        plots.draw_points(Figure().subplots(), POINTS, [0, 1, 2, 4])


@pytest.mark.parametrize("norm", NORMS)
def test_the_figure_of_safe_zones_builds_and_holds_one_ball_for_each_certificate(norm: float) -> None:
    leads, proven = plots.sample_leads(halves, resolution=21), certificates(norm)
    figure = plots.safe_zones_figure(
        leads,
        leads,
        degree=1,
        data=(POINTS, LABELS),
        zones=plots.Zones(POINTS, proven.radius, proven.predicted, proven.witness),
        norm=norm,
    )
    assert rendered(figure)
    (balls,) = [c for c in figure.axes[1].collections if isinstance(c, PolyCollection)]
    assert len(balls.get_paths()) == len(POINTS)


def test_nothing_to_show_is_no_error() -> None:
    figure = Figure()
    axes = figure.subplots()
    none, nowhere = np.zeros(0), np.zeros((0, 2))
    plots.draw_points(axes, nowhere, none)
    plots.draw_balls(axes, nowhere, none, 2, none)
    plots.draw_witnesses(axes, nowhere, nowhere)
    assert rendered(figure)


@pytest.mark.parametrize("degrees", [(1, 2, 4, 8, 16, 32, 64), (1,), (1, 2, 3, 4, 5)])
def test_the_figure_of_degrees_names_each_of_them(degrees: tuple[int, ...]) -> None:
    leads = plots.sample_leads(quarters, resolution=21)
    figure = plots.degrees_figure(dict.fromkeys(degrees, leads), leads, (POINTS, LABELS))
    assert rendered(figure)
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert titles == [*(f"degree {n}" for n in degrees), "the network"]


def test_no_graphical_backend_is_touched() -> None:
    source = plots.__loader__.get_source(plots.__name__)
    assert "pyplot" not in source
