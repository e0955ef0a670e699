"""A box and weights for each row: brute force, known answers, and the law within the box."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from random_heads import random_head

import berncert
from berncert import Status, certify
from berncert.certification.forecast import LongWorkWarning

NORMS = [1, 1.5, 2, 3, math.inf]


def lengths(steps: np.ndarray, norm: float) -> np.ndarray:
    return np.linalg.norm(steps, ord=norm, axis=-1)


def classes(head: berncert.SmoothedHead, x: np.ndarray) -> np.ndarray:
    return head(torch.tensor(x)).argmax(dim=1).numpy()


def random_box(rng: np.random.Generator, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Around most coordinates, beside some, and fixed along others."""
    low, high = x - rng.uniform(0, 0.5, x.shape), x + rng.uniform(0, 0.5, x.shape)
    kind = rng.integers(0, 6, x.shape)
    low, high = np.where(kind == 0, x, low), np.where(kind == 0, x, high)
    low = np.where(kind == 1, x, low)
    high = np.where(kind == 2, x, high)
    aside = np.clip(x + 0.2, 0, 1)
    low, high = np.where(kind == 3, aside, low), np.where(kind == 3, 1.0, high)
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


@pytest.mark.parametrize("norm", NORMS)
def test_no_point_of_the_box_within_the_radius_changes_class_and_the_witness_does(norm: float) -> None:
    rng = np.random.default_rng(7)
    for classes_, degrees in [(2, (3, 2)), (3, (4, 3, 2)), (4, (2, 2, 2, 2))]:
        head = random_head(rng, classes_, degrees, bend=0.6)
        x = rng.uniform(size=(30, len(degrees)))
        weight = 10 ** rng.uniform(-2, 2, x.shape)
        low, high = random_box(rng, x)
        c = certify(head, x, norm=norm, weights=weight, lower=low, upper=high, threads=1)
        for i, row in enumerate(c):
            points = rng.uniform(low[i], high[i], size=(4000, len(degrees)))
            if math.isfinite(row.upper):
                near = row.witness + (rng.normal(size=points.shape) * 0.1) * np.abs(row.witness - x[i])
                points = np.concatenate([points, np.clip(near, low[i], high[i])])
                assert (row.witness >= low[i]).all()
                assert (row.witness <= high[i]).all()
                assert classes(head, row.witness[None])[0] != row.predicted
                np.testing.assert_allclose(lengths(weight[i] * (row.witness - x[i]), norm), row.upper, rtol=1e-12)
            far = lengths(weight[i] * (points - x[i]), norm)
            inside = far < row.radius * (1 - 1e-12)
            assert (classes(head, points[inside]) == row.predicted).all() if inside.any() else True
            others = classes(head, points) != row.predicted
            assert far[others].min(initial=math.inf) >= row.radius * (1 - 1e-12)
            assert row.status in (Status.PROVEN, Status.WHOLE_CUBE, Status.TIE)


@pytest.mark.parametrize("norm", [1, 2, 3])
def test_the_whole_cube_with_weights_of_one_gives_the_same_bits(norm: float) -> None:
    rng = np.random.default_rng(1)
    head, x = random_head(rng, 3, (3, 3, 3)), rng.uniform(size=(20, 3))
    plain = certify(head, x, norm=norm)
    asked = certify(head, x, norm=norm, weights=np.ones(3), lower=np.zeros(3), upper=np.ones(3))
    for name in ("predicted", "radius", "upper", "witness", "rival", "boxes", "status"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(asked, name))


def test_a_row_gets_the_same_bits_in_any_batch_and_any_number_of_threads() -> None:
    rng = np.random.default_rng(2)
    head, x = random_head(rng, 3, (3, 2, 3)), rng.uniform(size=(25, 3))
    low, high = random_box(rng, x)
    weight = rng.uniform(0.1, 9, x.shape)
    together = certify(head, x, weights=weight, lower=low, upper=high, threads=2)
    for i in range(len(x)):
        alone = certify(head, x[[i]], weights=weight[i], lower=low[i], upper=high[i], threads=1)
        for name in ("radius", "upper", "witness", "boxes"):
            np.testing.assert_array_equal(getattr(alone, name)[0], getattr(together, name)[i])


@pytest.mark.parametrize("norm", NORMS)
def test_weights_scale_an_affine_heads_answer(norm: float) -> None:
    slope, weight = np.array([1.0, -0.5, 0.25]), np.array([2.0, 1.0, 0.5])
    head = berncert.smooth(
        lambda f: torch.stack([(f - 0.5) @ torch.tensor(slope) + 0.01, torch.zeros(len(f)).double()], 1), 3, 2
    )
    dual = math.inf if norm == 1 else 1.0 if norm == math.inf else norm / (norm - 1)
    c = certify(head, [[0.5, 0.5, 0.5]], norm=norm, weights=weight)[0]
    truth = 0.01 / np.linalg.norm(slope / weight, ord=dual)
    assert c.radius <= truth * (1 + 1e-12)
    assert c.radius >= truth * 0.999 * (1 - 1e-12)


def test_a_fixed_axis_is_the_polynomial_without_it() -> None:
    rng = np.random.default_rng(3)
    head, x = random_head(rng, 3, (3, 2, 3), bend=0.5), rng.uniform(size=(20, 3))
    low, high = np.zeros_like(x), np.ones_like(x)
    low[:, 1] = high[:, 1] = x[:, 1]
    c = certify(head, x, lower=low, upper=high)
    for i in range(len(x)):
        held = berncert.polynomial.restrict(head.coefficients, [0, x[i, 1], 0], [1, x[i, 1], 1])[:, :, 0]
        small = certify(berncert.SmoothedHead(held.contiguous()), x[[i]][:, [0, 2]])[0]
        assert math.isclose(small.upper, c.upper[i], rel_tol=2e-3) or small.upper == c.upper[i]
        assert math.isclose(small.radius, c.radius[i], rel_tol=2e-3) or small.radius == c.radius[i]


def test_where_every_axis_is_fixed_there_is_one_point_to_look_at() -> None:
    head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double())
    c = certify(head, [[0.2], [0.2]], lower=[[0.2], [0.9]], upper=[[0.2], [0.9]])
    assert c.radius[0] == math.inf
    assert c.status[0] is Status.WHOLE_CUBE
    assert "constant where it was certified" in repr(c[:1]), "nothing is said of the rest of the cube"
    assert c.upper[1] == pytest.approx(0.7)
    assert c.radius[1] == pytest.approx(0.7)


def test_a_decision_at_one_radius_keeps_to_the_box() -> None:
    head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double())  # the boundary is at 0.5
    ends = [certify(head, [[0.3]], radius=0.25, lower=0 * np.ones(1), upper=np.array([u])).status[0] for u in (0.4, 1)]
    assert ends == [Status.HOLDS, Status.FALLS]


def test_a_rows_time_is_limited_and_its_radius_valid() -> None:
    rng = np.random.default_rng(5)
    head, x = random_head(rng, 2, (4,) * 6, bend=3.0), rng.uniform(size=(4, 6))
    certify(head, x[:1], max_boxes=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LongWorkWarning)
        c = certify(head, x, tolerance=1e-9, max_seconds=0.2, max_boxes=10**9, threads=1)
    assert Status.TIME in set(c.status)
    for i, row in enumerate(c):
        points = np.clip(x[i] + rng.uniform(-1, 1, (5000, 6)) * row.radius / math.sqrt(6), 0, 1)
        assert (classes(head, points) == row.predicted).all()


def test_long_work_is_forecast() -> None:
    rng = np.random.default_rng(5)
    head = random_head(rng, 2, (2,) * 12, bend=3.0)
    with pytest.warns(LongWorkWarning, match=r"2 rows may take up to .* a box of 531,441 coefficients takes"):
        certify(
            head, rng.uniform(size=(2, 12)), max_boxes=10**9, max_seconds=40.0, tolerance=0.9, radius=1e-9, threads=1
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1.0, 0.0]}, "expected weights between"),
        ({"weights": [1.0, math.nan]}, "expected weights between"),
        ({"weights": [1.0]}, r"weights of shape \(2,\)"),
        ({"lower": [0.5, 0.5], "upper": [0.4, 1]}, "expected lower <= upper"),
        ({"lower": [1.5, 0.5], "upper": [2.0, 1]}, "boxes that meet the cube"),
        ({"lower": [math.nan, 0.5]}, "expected lower <= upper"),
        ({"max_seconds": 0}, "max_seconds > 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    head = berncert.SmoothedHead(torch.rand(2, 2, 2).double())
    with pytest.raises(ValueError, match=message):
        certify(head, [[0.5, 0.5]], **options)
