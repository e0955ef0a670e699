"""The proven certificate: known answers, brute force, and the law that nothing within the radius changes class."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_heads import points_around, random_head

import berncert
from berncert import SmoothedHead, Status, certify

NORMS = [1, 1.5, 2, 3, math.inf]


def dual(norm: float) -> float:
    return math.inf if norm == 1 else (1.0 if norm == math.inf else norm / (norm - 1))


def classes_of(head: SmoothedHead, points: np.ndarray) -> np.ndarray:
    return head(torch.tensor(points)).argmax(dim=1).numpy()


def distances(points: np.ndarray, centre: np.ndarray, norm: float) -> np.ndarray:
    steps = points - centre
    largest = np.abs(steps).max(axis=-1, keepdims=True, initial=1e-300)  # else powers underflow for a large norm
    return np.linalg.norm(steps / largest, ord=norm, axis=-1) * largest[..., 0]


def assert_consistent(
    head: SmoothedHead, x: np.ndarray, c: berncert.Certificates, norm: float, tolerance: float
) -> None:
    """What holds for every certificate, whatever the head."""
    assert (c.radius >= 0).all()
    assert (c.radius <= c.upper).all()
    seen = np.isfinite(c.upper)
    assert np.isnan(c.witness[~seen]).all()
    w = c.witness[seen]
    assert ((w >= 0) & (w <= 1)).all()
    np.testing.assert_allclose(distances(w, x[seen], norm), c.upper[seen], rtol=1e-13)
    assert (classes_of(head, w) != c.predicted[seen]).all()
    for row in c:
        if row.status is Status.PROVEN:
            assert row.upper - row.radius <= tolerance * row.upper < math.inf
        elif row.status in (Status.BUDGET, Status.ROUNDING):
            assert math.isinf(row.upper) or row.upper - row.radius > tolerance * row.upper


# ---- known answers ----


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("degrees", [(1,), (3,), (1, 1), (2, 5), (1, 2, 3), (1,) * 8])
def test_an_affine_head_has_margin_over_dual_norm(norm: float, degrees: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(degrees))
    for _ in range(5):
        slope = rng.normal(size=len(degrees))
        offset = 0.02 * np.abs(slope).sum() * rng.choice([-1, 1])
        head = berncert.smooth(
            lambda f, s=slope, o=offset: torch.stack(
                [(f - 0.5) @ torch.tensor(s) + o, torch.zeros(len(f)).double()], 1
            ),
            dim=len(degrees),
            degree=degrees,
        )
        c = certify(head, np.full((1, len(degrees)), 0.5), norm=norm)[0]
        distance = abs(offset) / np.linalg.norm(slope, ord=dual(norm))
        assert c.status is Status.PROVEN
        assert c.radius <= distance * (1 + 1e-12)
        assert c.upper >= distance * (1 - 1e-12)
        assert c.radius >= 0.999 * distance * (1 - 1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_a_coordinate_plane_is_as_far_as_the_coordinate(norm: float) -> None:
    head = berncert.smooth(lambda f: torch.stack([f[:, 1], 0.3 + 0 * f[:, 1]], 1), dim=3, degree=(1, 4, 2))
    x = np.array([[0.0, 0.9, 1.0], [0.5, 0.31, 0.2], [1.0, 0.0, 0.0], [0.7, 1.0, 0.7]])
    c = certify(head, x, norm=norm)
    true = np.abs(x[:, 1] - 0.3)
    assert (c.radius <= true + 1e-12).all()
    assert (c.upper >= true - 1e-12).all()
    assert (c.radius >= true * (1 - 1.001e-3)).all()


def test_the_boundary_can_be_hidden_behind_a_face_of_the_cube() -> None:
    # the plane x + 2 y = 3 touches the cube in (1, 1) only: along y, the short way, it lies outside
    head = berncert.smooth(lambda f: torch.stack([2.9 - f[:, 0] - 2 * f[:, 1], 0 * f[:, 0]], 1), dim=2, degree=1)
    c = certify(head, [[0.0, 1.0]], norm=2)[0]
    assert c.radius == pytest.approx(0.9, rel=1e-3)
    assert c.radius <= 0.9 <= c.upper


@pytest.mark.parametrize("norm", NORMS)
def test_classes_that_never_meet_hold_in_the_whole_cube(norm: float) -> None:
    coefficients = torch.tensor(np.random.default_rng(0).uniform(size=(3, 3, 2, 4)))
    coefficients[1] += 1.5
    c = certify(SmoothedHead(coefficients), np.random.default_rng(1).uniform(size=(5, 3)), norm=norm)
    assert set(c.status) == {Status.WHOLE_CUBE}
    assert (c.predicted == 1).all()
    assert np.isinf(c.radius).all()
    assert np.isinf(c.upper).all()
    assert (c.rival == -1).all()
    assert np.isnan(c.witness).all()
    assert (
        "5 rows: every radius is inf, as the classifier is constant where it was certified, class 1; 5 WHOLE_CUBE"
        in repr(c)
    )
    assert "so the classifier is constant" in c.status[0]


@pytest.mark.parametrize("norm", NORMS)
def test_ties_get_radius_zero(norm: float) -> None:
    slope = torch.tensor([[0.0, 1.0], [0.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    c = certify(SmoothedHead(slope), [[0.0], [0.3], [1.0]], norm=norm)
    assert set(c.status) == {Status.TIE}
    assert (c.radius == 0).all()
    crossing = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    c = certify(SmoothedHead(crossing), [[0.5]], norm=norm)[0]
    assert c.status is Status.TIE
    assert c.radius == 0
    assert c.upper < 1e-12


# ---- brute force ----


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("degrees", "classes"), [((1, 1), 2), ((3, 3), 5), ((7, 2), 3), ((16, 16), 2)])
def test_in_the_plane_the_distance_is_that_of_a_dense_scan(norm: float, degrees: tuple[int, int], classes: int) -> None:
    rng = np.random.default_rng(3)
    angles = np.linspace(0, 2 * math.pi, 720, endpoint=False)
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rays /= np.linalg.norm(rays, ord=norm, axis=1)[:, None]
    head = random_head(rng, classes, degrees, bend=0.7)
    x = rng.uniform(size=(4, 2))
    c = certify(head, x, norm=norm)
    assert_consistent(head, x, c, norm, 1e-3)
    for centre, row in zip(x, c, strict=True):
        steps = np.linspace(0, min(2.0, row.upper * 1.05), 200)[1:]
        points = centre + steps[:, None, None] * rays
        inside = ((points >= 0) & (points <= 1)).all(axis=-1)
        flips = inside & (classes_of(head, points.reshape(-1, 2).clip(0, 1)).reshape(inside.shape) != row.predicted)
        found = steps[flips.any(axis=1)]
        if found.size:
            assert row.radius <= found[0] + 1e-12
            assert row.upper <= found[0] * (1 + 1.01e-3)


@pytest.mark.parametrize("norm", NORMS)
def test_in_space_no_grid_point_within_the_radius_has_another_class(norm: float) -> None:
    rng = np.random.default_rng(4)
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 61)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    for degrees, classes in [((1, 1, 1), 2), ((2, 3, 1), 4), ((4, 4, 4), 10)]:
        head = random_head(rng, classes, degrees, bend=0.8)
        x = grid[rng.integers(len(grid), size=5)]
        c = certify(head, x, norm=norm)
        assert_consistent(head, x, c, norm, 1e-3)
        everywhere = classes_of(head, grid)
        for centre, row in zip(x, c, strict=True):
            other = distances(grid[everywhere != row.predicted], centre, norm)
            if other.size:
                assert row.radius <= other.min()
                assert row.upper <= other.min() * (1 + 1.01e-3)


# ---- the law ----


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dim", range(1, 9))
def test_every_sampled_point_within_the_radius_keeps_its_class(norm: float, dim: int) -> None:
    rng = np.random.default_rng(dim)
    tried = 0
    for classes, bend in [(2, 2.0), (10, 0.5), (100, 0.3)]:
        degrees = tuple(int(n) for n in rng.integers(1, 5 if dim <= 4 else 3, size=dim))
        head = random_head(rng, classes, degrees, bend=bend)
        x = rng.uniform(size=(4, dim))
        x[0] = np.round(x[0])  # a corner
        x[1, 0] = rng.integers(2)  # a face
        c = certify(head, x, norm=norm, tolerance=1e-2)
        assert_consistent(head, x, c, norm, 1e-2)
        for centre, row in zip(x, c, strict=True):
            reach = min(row.radius, 4.0)
            points = points_around(rng, centre, row.witness, reach, norm, 400)
            points = points[distances(points, centre, norm) < reach]
            assert (classes_of(head, points) == row.predicted).all()
            tried += len(points)
    assert tried > 2500  # times 5 norms and 8 dimensions: more than 100,000 points


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    degrees=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    norm=st.one_of(st.sampled_from(NORMS), st.floats(1, 200)),
    classes=st.integers(2, 12),
    bend=st.sampled_from([0.0, 1e-3, 0.3, 3.0]),
    exponent=st.integers(-300, 300),
    tolerance=st.sampled_from([1e-1, 1e-3, 1e-6]),
)
def test_the_law_holds_for_heads_of_any_shape_and_scale(
    seed: int, degrees: list[int], norm: float, classes: int, bend: float, exponent: int, tolerance: float
) -> None:
    rng = np.random.default_rng(seed)
    plain = random_head(rng, classes, tuple(degrees), bend=bend)
    head = SmoothedHead(plain.coefficients * 10.0**exponent)
    x = rng.uniform(size=(2, len(degrees)))
    c = certify(head, x, norm=norm, tolerance=tolerance, max_boxes=20_000)
    assert_consistent(head, x, c, norm, tolerance)
    for centre, row in zip(x, c, strict=True):
        reach = min(row.radius, 2.0)
        points = points_around(rng, centre, row.witness, reach, norm, 300)
        points = points[distances(points, centre, norm) < reach]
        assert (classes_of(head, points) == row.predicted).all()


def test_radii_do_not_depend_on_the_scale_of_the_logits() -> None:
    rng = np.random.default_rng(8)
    head = random_head(rng, 4, (2, 3))
    x = rng.uniform(size=(5, 2))
    reference = certify(head, x)
    for exponent in (-990, -500, 0, 500, 990):
        c = certify(SmoothedHead(torch.ldexp(head.coefficients, torch.tensor(exponent))), x)
        np.testing.assert_allclose(c.radius, reference.radius, rtol=1e-9)


def test_a_larger_norm_gives_a_smaller_radius() -> None:
    rng = np.random.default_rng(9)
    head = random_head(rng, 5, (2, 2, 2))
    x = rng.uniform(size=(10, 3))
    by_norm = [certify(head, x, norm=p, tolerance=1e-6) for p in NORMS]
    for smaller, larger in itertools.pairwise(by_norm):
        assert (larger.radius <= smaller.upper).all()


# ---- rounding ----


def exact_value(coefficients: np.ndarray, x: np.ndarray) -> Fraction:
    """One class's polynomial at x in exact rationals."""
    values = np.array([Fraction(float(v)) for v in coefficients.ravel()], dtype=object).reshape(coefficients.shape)
    for x_j in x:
        t, n = Fraction(float(x_j)), values.shape[0] - 1
        weights = [math.comb(n, k) * t**k * (1 - t) ** (n - k) for k in range(n + 1)]
        values = sum(w * v for w, v in zip(weights, values, strict=True))
    return values


@pytest.mark.parametrize("degrees", [(1,), (3,), (2, 2)])
def test_the_certificate_holds_where_float64_and_exact_arithmetic_disagree(degrees: tuple[int, ...]) -> None:
    # logits near 1 that differ by about 1e-14: close to the boundary, rounding decides which is greater
    rng = np.random.default_rng(5)
    disagreements = held = 0
    for scale in np.geomspace(2e-14, 2e-13, 8):
        base = 1 + rng.uniform(size=tuple(n + 1 for n in degrees))
        tilt = random_head(rng, 2, degrees, bend=0.1).coefficients[0].numpy()
        coefficients = np.stack([base, base + scale * len(degrees) * max(degrees) * (tilt - tilt.mean())])
        head = SmoothedHead(torch.tensor(coefficients))
        for centre in rng.uniform(size=(3, len(degrees))):
            row = certify(head, centre[None], max_boxes=20_000)[0]
            ours, theirs = coefficients[row.predicted], coefficients[1 - row.predicted]
            reach = min(row.radius, 2.0)
            around = points_around(rng, centre, row.witness, reach, 2, 60)
            for point in around[distances(around, centre, 2) < reach]:
                assert exact_value(ours, point) > exact_value(theirs, point)
                assert classes_of(head, point[None])[0] == row.predicted
                held += 1
            if math.isfinite(row.upper):
                for point in centre + np.linspace(0.3, 1, 300)[:, None] * (row.witness - centre):
                    exactly = exact_value(ours, point) > exact_value(theirs, point)
                    disagreements += exactly != (classes_of(head, point[None])[0] == row.predicted)
    assert disagreements > 0  # else this test would show nothing
    assert held > 100


def test_the_witness_is_of_another_class_in_exact_arithmetic() -> None:
    rng = np.random.default_rng(6)
    for degrees in [(1, 1), (4,), (2, 3, 1)]:
        head = random_head(rng, 3, degrees)
        x = rng.uniform(size=(5, len(degrees)))
        for centre, row in zip(x, certify(head, x, tolerance=1e-9), strict=True):
            if math.isfinite(row.upper):
                c = head.coefficients.numpy()
                assert exact_value(c[row.predicted], row.witness) < exact_value(c[row.rival], row.witness)
                squares = sum(
                    (Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(row.witness, centre, strict=True)
                )
                assert squares <= Fraction(row.upper) ** 2


def test_a_boundary_that_is_only_touched_ends_with_a_valid_radius() -> None:
    # the margin (x - 1/2)^2 is nowhere negative: no witness exists, yet rounding forbids a proof beyond the touch
    head = SmoothedHead(torch.tensor([[0.25, -0.25, 0.25], [0.0, 0.0, 0.0]], dtype=torch.float64))
    row = certify(head, [[0.1]])[0]
    assert row.status is Status.ROUNDING
    assert 0.399 < row.radius <= 0.4
    assert math.isinf(row.upper)
    assert row.boxes < 1000


@pytest.mark.parametrize("norm", [1.0005, 1.001, 1.02, 1.2, 1.5, 1.9])
def test_below_two_the_expansion_of_the_norm_is_sound(norm: float) -> None:
    # affine margins that meet the sample's ball away from its corners: an expansion with a wrong gradient overshoots
    rng = np.random.default_rng(14)
    head = SmoothedHead(torch.tensor([[[-1.0, 1.0], [-1.0, 1.0]], [[-1.0, -1.0], [1.0, 1.0]]], dtype=torch.float64))
    x = np.concatenate([[[1.0, 0.52480792]], rng.uniform(size=(50, 2))])
    for centre, row in zip(x, certify(head, x, norm=norm), strict=True):
        if row.status is not Status.TIE:  # the boundary is x = y
            along = np.linspace(0, 1, 4001)
            assert row.radius <= distances(np.stack([along, along], axis=1), centre, norm).min() * (1 + 1e-12)


def test_a_valley_that_almost_touches_is_proven_to_be_one() -> None:
    # the margin (x - y)^2 + 1e-6 is nowhere 0, but lower than what may be spent on lowering degrees
    square = np.array([[0.0, 0.0, 1.0], [0.0, -0.5, 0.0], [1.0, 0.0, 0.0]]) + 1e-6
    row = certify(SmoothedHead(torch.tensor(np.stack([square, 0 * square]))), [[0.2, 0.8]])[0]
    assert row.status is Status.WHOLE_CUBE


# ---- the search ----


def test_the_same_input_gives_the_same_bits_in_any_batch_with_any_threads() -> None:
    rng = np.random.default_rng(7)
    head = random_head(rng, 6, (3, 2, 3))
    x = rng.uniform(size=(40, 3))
    one = certify(head, x, threads=1)
    for other in (certify(head, x, threads=3), certify(head, x[::-1], threads=2)[::-1]):
        for name in ("predicted", "radius", "upper", "witness", "rival", "boxes"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for i in range(5):
        assert certify(head, x[i : i + 1]).radius[0] == one.radius[i]


def test_out_of_budget_the_radius_still_holds_and_says_so() -> None:
    rng = np.random.default_rng(10)
    head = random_head(rng, 3, (6, 6), bend=3.0)
    x = rng.uniform(size=(8, 2))
    reference = certify(head, x, tolerance=1e-9)
    previous = np.zeros(8)
    for budget in (1, 3, 30, 3000):
        c = certify(head, x, tolerance=1e-9, max_boxes=budget)
        assert (c.radius <= reference.upper).all()
        spent = np.array([s is Status.BUDGET for s in c.status])
        assert (c.boxes[spent] >= 0.6 * budget).all()  # the rest is kept for a coarser search
        assert (c.boxes <= budget + 300).all()  # no box is halved any more, but those on the path are looked at
        assert ((c.upper - c.radius <= 1e-9 * c.upper) | spent).all()
        assert (c.radius >= previous * (1 - 1e-9)).mean() > 0.5
        previous = c.radius
    assert not spent.any()


def test_a_tighter_tolerance_gives_a_tighter_gap() -> None:
    rng = np.random.default_rng(11)
    head = random_head(rng, 4, (3, 3))
    x = rng.uniform(size=(10, 2))
    for tolerance in (1e-1, 1e-3, 1e-6, 1e-9):
        c = certify(head, x, tolerance=tolerance)
        assert (c.upper - c.radius <= tolerance * c.upper).all()


def test_float32_coefficients_are_taken_as_the_exact_numbers_they_are() -> None:
    rng = np.random.default_rng(12)
    head = random_head(rng, 3, (2, 2))
    single = SmoothedHead(head.coefficients.float())
    x = rng.uniform(size=(5, 2))
    np.testing.assert_array_equal(
        certify(single, x).radius, certify(SmoothedHead(single.coefficients.double()), x).radius
    )


@pytest.mark.parametrize("kind", ["tensor", "list", "read-only", "fortran", "float32"])
def test_features_come_in_many_forms(kind: str) -> None:
    head = random_head(np.random.default_rng(13), 3, (2, 2))
    x = np.array([[0.25, 0.5], [0.75, 0.125]])
    forms = {"tensor": torch.tensor(x), "list": x.tolist(), "fortran": np.asfortranarray(x), "float32": x.astype("f4")}
    frozen = x.copy()
    frozen.flags.writeable = False
    forms["read-only"] = frozen
    np.testing.assert_array_equal(certify(head, forms[kind]).radius, certify(head, x).radius)


def test_no_samples_give_an_empty_result() -> None:
    c = certify(random_head(np.random.default_rng(0), 2, (1, 1)), np.empty((0, 2)))
    assert len(c) == 0
    assert c.witness.shape == (0, 2)
    assert list(c) == []


# ---- bad input ----


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([[0.5, math.nan]], r"expected every feature in \[0, 1\], got nan in row 0"),
        ([[0.5, 1.0000001]], r"expected every feature in \[0, 1\]"),
        ([[0.5, -0.1]], "scale or clip"),
        ([[0.5, 0.5, 0.5]], r"expected features of shape \(N, 2\), got \(1, 3\)"),
        ([0.5, 0.5], "features\\[None\\]"),
        ([["a", "b"]], "real numbers"),
        (torch.tensor([[0.5 + 1j, 0.5]]), r"got a complex tensor; pass its \.real"),
        (torch.tensor([[0.5, 0.5]]).to_sparse(), "got a sparse tensor"),
    ],
)
def test_bad_features_are_refused(features: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certify(random_head(np.random.default_rng(0), 2, (1, 1)), features)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": 0.5}, "expected a norm p with 1 <= p <= inf, got 0.5"),
        ({"norm": math.nan}, "expected a norm"),
        ({"norm": "inf"}, r"float\('inf'\)"),
        ({"tolerance": -1e-3}, r"expected a tolerance in \[0, 1\)"),
        ({"tolerance": 1.0}, r"expected a tolerance in \[0, 1\)"),
        ({"tolerance": math.nan}, r"expected a tolerance in \[0, 1\)"),
        ({"max_boxes": 0}, "expected a whole number max_boxes >= 1, got 0"),
        ({"max_boxes": 2**70}, r"from 1 to 2\^62"),
        ({"tolerance": 10**400}, "expected a tolerance"),
        ({"threads": 0}, "expected a whole number threads >= 1, got 0"),
        ({"threads": 1.5}, "expected a whole number threads"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certify(random_head(np.random.default_rng(0), 2, (1, 1)), [[0.5, 0.5]], **options)


def test_coefficients_that_would_overflow_are_refused() -> None:
    with pytest.raises(ValueError, match="divide the logits by a constant"):
        certify(SmoothedHead(torch.tensor([[1e308, 0.0], [0.0, 1e308]], dtype=torch.float64)), [[0.2]])


def test_a_plain_network_is_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"berncert\.smooth"):
        certify(torch.nn.Linear(2, 2), [[0.5, 0.5]])


# ---- deciding at one radius ----


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("degrees", [(2,), (3, 3), (1, 2, 2), (2, 2, 2, 2)])
def test_a_decision_at_one_radius_agrees_with_the_certificate(norm: float, degrees: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(degrees))
    head, x = random_head(rng, 4, degrees), rng.uniform(size=(12, len(degrees)))
    whole = certify(head, x, norm=norm)
    for share in (0.5, 0.99, 1.01, 2.0):
        for i, at in enumerate(share * whole.upper):
            (c,) = certify(head, x[i : i + 1], norm=norm, radius=float(at) if math.isfinite(at) else 0.7)
            assert c.predicted == whole.predicted[i]
            assert c.status is (Status.FALLS if share > 1 and math.isfinite(at) else Status.HOLDS)
            if c.status is Status.FALLS:
                assert c.upper < at
                assert distances(c.witness, x[i], norm) == pytest.approx(c.upper)
                assert classes_of(head, c.witness[None])[0] != c.predicted
            else:
                assert c.radius == (at if math.isfinite(at) else 0.7) <= whole.upper[i]


def test_a_decision_looks_at_no_more_boxes() -> None:
    rng = np.random.default_rng(0)
    head, x = random_head(rng, 5, (3, 3, 3)), rng.uniform(size=(60, 3))
    whole = certify(head, x)
    at = float(np.median(whole.radius))
    decided = certify(head, x, radius=at)
    assert (decided.boxes <= whole.boxes).all()
    assert decided.boxes.sum() < whole.boxes.sum() / 2
    assert {status.name for status in decided.status} == {"HOLDS", "FALLS"}
    labels = whole.predicted
    assert decided.certified_accuracy(labels, at) == whole.certified_accuracy(labels, at)


def test_the_tolerance_plays_no_part_in_a_decision() -> None:
    rng = np.random.default_rng(4)
    head, x = random_head(rng, 3, (3, 3, 3)), rng.uniform(size=(20, 3))
    whole = certify(head, x)
    for share, status in ((0.9, Status.HOLDS), (1.02, Status.FALLS)):
        for i in np.flatnonzero(np.isfinite(whole.upper)):
            decided = certify(head, x[i : i + 1], radius=share * float(whole.upper[i]), tolerance=0.5)
            assert decided.status[0] is status


def test_what_cannot_be_decided_is_unknown() -> None:
    tie = SmoothedHead(torch.tensor([[0.0, 1.0], [0.0, 1.0 + 2.0**-50]], dtype=torch.float64))
    assert certify(tie, [[0.5]], radius=0.2).status[0] in (Status.FALLS, Status.UNKNOWN)
    rng = np.random.default_rng(1)
    head, x = random_head(rng, 6, (3,) * 5), rng.uniform(size=(1, 5))
    radius = float(certify(head, x).radius[0])
    spent = certify(head, x, radius=0.999 * radius, max_boxes=1)
    assert spent.status[0] is Status.UNKNOWN
    assert spent.radius[0] <= radius


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, "0.3"])
def test_a_radius_to_decide_at_is_finite_and_positive(radius: object) -> None:
    with pytest.raises(ValueError, match=r"expected .*radius"):
        certify(berncert.SmoothedHead(torch.eye(2, dtype=torch.float64)), [[0.3]], radius=radius)  # type: ignore[call-overload]


@pytest.mark.parametrize("norm", [2, math.inf])
def test_images_hold_at_a_radius_exactly_if_their_certificate_says_so(norm: float) -> None:
    model, images = berncert.load("digits"), berncert.data.load("digits", limit=40).images
    whole = certify(model, images, norm=norm)
    at = float(np.median(whole.radius))
    decided = certify(model, images, norm=norm, radius=at)
    holds = np.array([status is Status.HOLDS for status in decided.status])
    np.testing.assert_array_equal(holds, decided.radius >= at)
    clear = np.abs(whole.radius - at) > 0.002 * at  # within the tolerance either may be said
    np.testing.assert_array_equal(holds[clear], (whole.radius >= at)[clear])
