"""The picture of curves: lines are the exact steps, styles differ by claim, labels cover nothing, files repeat."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import make_run, make_table
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from berncert.certification.status import Claim
from berncert.reporting.curves import Curve, curves_of
from berncert.reporting.curves.figure import COLOURS, MOST_BESIDE, STYLES, curve_figure
from berncert.reporting.files import rendered
from berncert.runs.records import Run

SUFFIXES = (".png", ".svg", ".pdf")
CLAIMS = ("PROVEN", "PROBABLE", "ESTIMATE", "ATTACK")
NASTY = ("[red]x[/]", "a_b & c% $x$ \\alpha", "$", "_hidden", "日本語 é", "very-long_" * 40, "", "%s {0} <b>")


def curve_of(radii: list[float], claim: Claim = Claim.PROVEN, label: str = "run", right: int = 1) -> Curve:
    about = {"claim": claim.name, "settings": {"norm": 2}, "data": {"name": "digits", "images": len(radii)}}
    name = "fallen_at" if claim is Claim.ATTACK else "radius"
    rows = {"idx": np.arange(len(radii)), name: np.array(radii), "correct": np.full(len(radii), right)}
    return Curve(label, Run(Path("run"), about, rows))


def lines_of(figure: Figure) -> list[Line2D]:
    """The curves, in their order, without markers and grid."""
    return [line for line in figure.axes[0].lines if line.get_linestyle() != "None"]


def legend_texts(figure: Figure) -> list[Text]:
    return [text for legend in figure.legends for text in legend.get_texts()]


def words_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in (*figure.texts, *legend_texts(figure), *figure.axes[0].texts)]


@pytest.fixture
def four(tmp_path: Path) -> list[Curve]:
    """One curve of each claim."""
    radii = np.linspace(0.1, 2, 40)
    scale = {"PROVEN": 1.0, "PROBABLE": 0.4, "ESTIMATE": 2.9, "ATTACK": 1.5}
    runs = [
        make_run(
            tmp_path / claim.lower(), (scale[claim] * radii).tolist(), claim=claim, settings={"radii": [0.5, 1, 9]}
        )
        for claim in CLAIMS
    ]
    return curves_of(map(str, runs))


def test_each_claim_has_its_own_line(four: list[Curve]) -> None:
    lines = lines_of(curve_figure(four))
    assert lines[0].get_linestyle() == "-"
    assert all(line.get_linestyle() == "--" for line in lines[1:])  # dashed in some way
    assert len({str(STYLES[claim]["linestyle"]) for claim in Claim}) == len(Claim)
    assert len({line.get_color() for line in lines}) == 4


def test_lines_are_the_exact_steps_until_zero(four: list[Curve]) -> None:
    figure = curve_figure(four)
    end = figure.axes[0].get_xlim()[1]
    for curve, line in zip(four, lines_of(figure), strict=True):
        x, y = np.asarray(line.get_data(), dtype=float)
        radii, shares = curve.corners(end)
        assert np.array_equal(x, radii[: len(x)])
        assert np.array_equal(y, 100 * shares[: len(x)])
        assert (shares[len(x) :] == 0).all()
        assert np.count_nonzero(y == 0) <= 1


def test_the_tried_radii_of_an_attack_are_marked(four: list[Curve]) -> None:
    (marks,) = [line for line in curve_figure(four).axes[0].lines if line.get_linestyle() == "None"]
    x, y = np.asarray(marks.get_data(), dtype=float)
    assert x.tolist() == [0.5, 1]  # 9 is beyond
    assert y == pytest.approx(100 * four[3].run.standing([0.5, 1]))


def test_the_axes_name_norm_and_unit_and_begin_at_zero(four: list[Curve], tmp_path: Path) -> None:
    axes = curve_figure(four).axes[0]
    assert axes.get_xlabel() == r"radius in the $\ell_{2}$ norm, pixel units"
    assert axes.get_ylabel() == "accuracy (% of the images)"  # one is an estimate, one an attack
    assert axes.get_ylim()[0] == axes.get_xlim()[0] == 0
    other = curve_figure(curves_of([str(make_run(tmp_path / "inf", [0.1], norm=math.inf))])).axes[0]
    assert r"\ell_{\infty}" in other.get_xlabel()
    assert other.get_ylabel() == "certified accuracy (% of the images)"
    assert curve_figure([four[0], four[3]]).axes[0].get_ylabel() == "accuracy (% of the images)"


def test_the_title_is_as_given_and_the_data_are_named(four: list[Curve]) -> None:
    assert "digits test; 40 images" in words_of(curve_figure(four))
    assert "My $title$ [b]" in words_of(curve_figure(four, title="My $title$ [b]"))


def test_runs_in_different_norms_are_refused(tmp_path: Path) -> None:
    runs = [str(make_run(tmp_path / "a", [1.0])), str(make_run(tmp_path / "b", [1.0], norm=1))]
    with pytest.raises(ValueError, match="expected runs in one norm"):
        curve_figure(curves_of(runs))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_curves_give_the_same_bytes(four: list[Curve], suffix: str) -> None:
    first, second = (rendered(curve_figure(four), suffix) for _ in range(2))
    assert first == second
    assert b"Date" not in first
    assert b"dc:date" not in first


def test_text_stays_text_in_vector_files(four: list[Curve]) -> None:
    picture = rendered(curve_figure(four), ".svg").decode()
    assert all(f">{curve.label}</text>" in picture for curve in four)
    assert b"/Type0" in rendered(curve_figure(four), ".pdf")  # fonts, not shapes


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("labels", [NASTY, NASTY[:4], NASTY[5:6]], ids=["legend", "beside", "long"])
def test_any_label_is_drawn_as_it_is(labels: tuple[str, ...], suffix: str) -> None:
    curves = [curve_of([0.2 + k, 1.0 + 2 * k], label=label) for k, label in enumerate(labels)]
    figure = curve_figure(curves, title="$ _ % \\frac{" * 20)
    words = words_of(figure)
    assert all(label in words for label in labels if len(label) < 30)
    assert rendered(figure, suffix)


@pytest.mark.parametrize("claim", [Claim.PROVEN, Claim.ATTACK])
@pytest.mark.parametrize(
    "radii",
    [[0.0], [1.0], [math.inf], [math.nan], [math.inf, 1.0, 0.0], [1e-320], [1e308], [-1.0], [1e-5, 1e5]],
    ids=str,
)
def test_any_radii_can_be_drawn(radii: list[float], claim: Claim) -> None:
    figure = curve_figure([curve_of(radii, claim), curve_of(radii, claim, label="all wrong", right=0)])
    assert np.isfinite(figure.axes[0].get_xlim()).all()
    assert rendered(figure, ".png")


def test_attacks_that_stand_for_ever_do_not_stretch_the_axis() -> None:
    curves = [curve_of([1.0, 2.0]), curve_of([math.inf, 50.0], Claim.ATTACK)]
    assert curve_figure(curves).axes[0].get_xlim()[1] == pytest.approx(2.06)
    assert curve_figure(curves[1:]).axes[0].get_xlim()[1] == pytest.approx(51.5)


def test_a_far_estimate_does_not_hide_what_is_proven() -> None:
    curves = [curve_of([1.0, 2.0]), curve_of([1.0, 900.0], Claim.ESTIMATE)]
    assert curve_figure(curves).axes[0].get_xlim()[1] <= 3 * 2 * 1.03


def test_ten_curves_have_ten_colours_and_a_legend_by_claim(tmp_path: Path) -> None:
    tables = [make_table(tmp_path / f"run-{k}.tsv", np.linspace(0.1, 1 + k, 20).tolist()) for k in range(8)]
    words = [str(make_run(tmp_path / "mine", [1.0])), *map(str, tables), str(make_run(tmp_path / "other", [2.0]))]
    figure = curve_figure(curves_of(words))
    assert len({line.get_color() for line in lines_of(figure)}) == len(COLOURS) == 10
    legend = [text.get_text() for text in legend_texts(figure)]
    assert legend == ["proven", "mine", "other", "unknown claim", *(f"run-{k}" for k in range(8))]


def test_a_legend_fits_into_the_picture_whatever_is_in_it() -> None:
    curves = [curve_of([1.0 + k], label=f"{k} " + "wide WORDS " * 30) for k in range(24)]
    figure = curve_figure(curves)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for text in (*figure.texts, *legend_texts(figure)):
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_a_few_curves_that_leave_room_are_labelled_beside_their_lines(four: list[Curve]) -> None:
    figure = curve_figure(four)
    beside = [text.get_text() for text in figure.axes[0].texts]
    assert beside[1::2] == [curve.label for curve in four]
    assert beside[::2] == ["proven", "probable", "estimate, not proven", "attack, upper limit"]


@settings(max_examples=25)
@given(data=st.data(), count=st.integers(1, MOST_BESIDE))
def test_labels_beside_lines_cover_no_line_and_no_label(data: st.DataObject, count: int) -> None:
    radii = st.lists(st.floats(0, 3) | st.just(math.inf), min_size=1, max_size=12)
    curves = [
        curve_of(data.draw(radii), data.draw(st.sampled_from(list(Claim))), label="w" * data.draw(st.integers(1, 30)))
        for _ in range(count)
    ]
    figure = curve_figure(curves)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].texts]
    assert len(boxes) in (0, 2 * count)
    for line in lines_of(figure):
        corners = figure.axes[0].transData.transform(
            np.column_stack([np.asarray(v, dtype=float) for v in line.get_data()])
        )
        steps = np.linspace(corners[:-1], corners[1:], 200).reshape(-1, 2)
        assert not any(box.contains(x, y) for box in boxes for x, y in steps[:: max(1, len(steps) // 2000)])
    names, claims = boxes[1::2], boxes[::2]
    assert not any(a.overlaps(b) for k, a in enumerate(names) for b in (*names[:k], *claims[:k], *claims[k + 1 :]))
