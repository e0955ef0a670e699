"""The picture says what the explanation says, whatever that is, in the same bytes each time."""

from __future__ import annotations

import dataclasses
import math
import re
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from explained_toys import JAGGED, PLACE, boxy, explained
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

import berncert
from berncert.certification.methods import Exact
from berncert.reporting import slices
from berncert.reporting.explanation import explain, read_sample
from berncert.reporting.explanation.figure import derivation, detail_of, explanation_figure, title_of
from berncert.reporting.explanation.surface import OTHER, STYLES, slice_of, styles_of
from berncert.runs.settings import RunSettings

CASES: dict[str, tuple[torch.Tensor, list[float], dict[str, Any], str]] = {
    "proven": (JAGGED, PLACE, {"label": 2}, "'c2' is proven up to 0.15; nearest rival: 'c0'"),
    "wrong": (boxy(2), [0.3, 0.4], {"label": 0}, "'c1' (wrong: it is 'c0') is proven up to 0.199; nearest rival: 'c0'"),
    "l1": (JAGGED, PLACE, {"label": 2, "norm": 1}, "'c2' is proven up to 0.194; nearest rival: 'c0'"),
    "l-inf": (JAGGED, PLACE, {"label": 2, "norm": math.inf}, "'c2' is proven up to 0.101; nearest rival: 'c0'"),
    "one feature": (boxy(1), [0.3], {"label": 1}, "'c1' is proven up to 0.199; nearest rival: 'c0'"),
    "tie": (boxy(3), [0.5] * 3, {}, "'c0' ties with 'c1': nothing is proven"),
    "tie everywhere": (torch.zeros(3, 2, 2), [0.5] * 2, {}, "'c0' ties with another class: nothing is proven"),
    "tie in a line": (boxy(1), [0.5], {}, "'c0' ties with 'c1': nothing is proven"),
    "never": (boxy(3) + torch.tensor([9.0, 0])[:, None, None, None], PLACE, {},
              "'c0' whatever the image: no other class ever leads"),
    "at a corner": (JAGGED, [0.0, 1.0, 0.0], {"label": 3}, "'c3' is proven up to 0.115"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def coarse_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Surfaces need not be fine here."""
    monkeypatch.setattr(slices, "FINEST", 81)


def rendered(figure: Figure) -> bytes:
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=40)
    return picture.getvalue()


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_certificate_has_its_picture_and_its_title(case: str) -> None:
    coefficients, place, options, title = CASES[case]
    e = explained(coefficients, place, **options)
    assert title_of(e).startswith(title)
    assert rendered(explanation_figure(e))
    assert all(derivation(e))


@pytest.mark.parametrize("norm", [1, 1.5, 2, math.inf])
def test_the_parts_of_the_radius_are_rounded_to_the_safe_side(norm: float) -> None:
    e = explained(JAGGED, PLACE, norm=norm, attack=False)
    c = e.certificate
    numbers = re.fullmatch(r"radius (\S+) = \((\S+) - (\S+)\) / (\S+)", derivation(e)[0])
    radius, distance, rounding, bound = map(float, numbers.groups())  # type: ignore[union-attr]
    assert 0.998 * c.radius <= radius <= c.radius
    assert 0.998 * c.feature_radius <= distance <= c.feature_radius
    assert 2 * c.extraction_error <= rounding <= 4 * c.extraction_error
    assert c.lipschitz_bound <= bound <= 1.002 * c.lipschitz_bound


def test_the_drawn_ball_is_the_proven_one() -> None:
    e = explained(JAGGED, PLACE, norm=1, attack=False)
    surface = explanation_figure(e).axes[0]
    balls = [patch for patch in surface.patches if isinstance(patch, Polygon) and len(patch.get_xy()) > 100]
    (ball,) = balls
    points = slice_of(e).points(ball.get_xy())
    assert np.abs(points - e.certificate.features).sum(axis=1) == pytest.approx(e.certificate.feature_radius)


def test_classes_are_named_in_their_regions_and_at_their_bars() -> None:
    e = explained(JAGGED, PLACE, norm=1)
    surface, bars = explanation_figure(e).axes
    assert {"c2", "c0", "c4"} <= {text.get_text() for text in surface.texts}
    assert [tick.get_text() for tick in bars.get_yticklabels()] == [e.name(rival.number) for rival in e.rivals]
    drawn = [bar.get_width() for bar in bars.patches]
    assert drawn == pytest.approx([rival.radius for rival in e.rivals])


def test_an_image_is_shown_beside_what_fools_it_and_the_change() -> None:
    sample = read_sample(RunSettings(data="digits"), 3)
    e = explain(berncert.load("digits"), sample, Exact())
    figure = explanation_figure(e)
    first, second, third, *_ = figure.axes
    assert np.array_equal(first.images[0].get_array(), sample.image[0])
    assert np.array_equal(second.images[0].get_array(), e.found.image[0])  # type: ignore[union-attr]
    assert len(third.images) == 1
    assert "digits, test image 3, labelled '8'" in detail_of(e)
    alone = dataclasses.replace(e, found=None)
    assert not explanation_figure(alone).axes[1].images


def test_colour_images_are_shown_in_colour() -> None:
    e = explained(JAGGED, PLACE)
    assert e.found is not None
    image = torch.rand(3, 4, 4)
    changed = type(e.found)(image.double() * 0.9, 0.1, 1)
    sample = type(e.sample)("own", "test", 0, image, 0, e.sample.classes)
    figure = explanation_figure(dataclasses.replace(e, sample=sample, found=changed))
    assert [axes.images[0].get_array().shape for axes in figure.axes[:3]] == [(4, 4, 3)] * 3
    assert rendered(figure)


def test_more_classes_than_colours_differ_by_name_only() -> None:
    e = explained(torch.randn(30, 2, 2, 2), PLACE, attack=False)
    styles = styles_of(e)
    assert set(styles) == set(range(30))
    assert len({*styles.values()} - {OTHER}) == sum(style != OTHER for style in styles.values()) == 9
    assert [styles[n] for n in (e.predicted, e.rivals[0].number)] == list(STYLES[:2])
    assert rendered(explanation_figure(e))


def test_the_same_explanation_gives_the_same_bytes() -> None:
    one, other = (rendered(explanation_figure(explained(JAGGED, PLACE))) for _ in range(2))
    assert one == other


def test_an_attack_far_beyond_is_mentioned_and_not_drawn() -> None:
    e = explained(JAGGED, PLACE)
    assert e.found is not None
    far = type(e.found)(e.found.image, 1e3, e.found.predicted)
    figure = explanation_figure(dataclasses.replace(e, found=far))
    bars = figure.axes[-1]
    assert bars.get_xlim()[1] < 10
    assert "an attack succeeded at 1e+03 →" in {text.get_text() for text in bars.texts}


def test_a_radius_of_the_local_route_is_not_derived_from_the_bound() -> None:
    e = explained(JAGGED, PLACE)
    local = dataclasses.replace(e, reached=(np.zeros(3), np.array([0.1, 0.25, 0.2])))
    lines = derivation(local)
    assert "by bounds near this point" in lines[0]
    assert "varies by more than 0.25" in lines[1]
    assert lines[2].startswith("global route alone: ")
    assert max(map(len, lines[:3])) < 70
    explanation_figure(local)
