"""The paper's root finder: the system it solves, what it finds where the answer is known, and why that is no proof."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import berncert
from berncert.certification.rootfinding import (
    SOLVERS,
    BoundarySystem,
    RegularisedSystem,
    boundary_residuals,
    estimate,
)
from berncert.polynomial import SmoothedHead

ROOT_FINDERS = ["lm", "dogbox", "trf"]
NORMS = [1, 1.5, 2, 7, math.inf]


def affine(slopes, offsets, degree=1):
    """The head whose logits are slopes @ x + offsets: Bernstein polynomials reproduce affine functions."""
    slopes, offsets = np.asarray(slopes, dtype=np.float64), np.asarray(offsets, dtype=np.float64)
    axes = [np.arange(degree + 1) / degree] * slopes.shape[1]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    return SmoothedHead(torch.tensor(np.moveaxis(grid @ slopes.T + offsets, -1, 0)))


def random_head(classes, dim, degree, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return SmoothedHead(3 * torch.randn((classes, *[degree + 1] * dim), generator=generator, dtype=torch.float64))


def random_features(rows, dim, seed=1):
    return torch.rand((rows, dim), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def square_grid(steps):
    return np.array(list(itertools.product(np.linspace(0, 1, steps), repeat=2)))


def margin(head, points, a=0, b=1):
    logits = head(torch.as_tensor(points)).numpy()
    return logits[:, a] - logits[:, b]


# the system


def test_the_residuals_are_the_papers_equations_computed_by_hand():
    logits = np.log([4.0, 2.0, 1.0, 1.0])  # probabilities 1/2, 1/4, 1/8, 1/8
    np.testing.assert_allclose(boundary_residuals(logits, 0.0, dim=3), [math.log(2), 0, -1 / 4, 1 / 8], atol=1e-15)
    slack = math.log(3)  # demands 3/4 and 1/4
    expected = [math.log(2 / 3), -1 / 4, 0, 1 / 8, 1 / 8]
    np.testing.assert_allclose(boundary_residuals(logits, slack, dim=4), expected, atol=1e-15)


def test_equations_without_a_class_are_zeros_and_leave_the_sum_of_squares_alone():
    logits = np.log([3.0, 1.0])
    padded = boundary_residuals(logits, 0.0, dim=5)
    assert padded.shape == (6,)
    np.testing.assert_array_equal(padded[:3], boundary_residuals(logits, 0.0, dim=2))
    assert not padded[3:].any()


def test_ranks_are_fixed_at_x0_and_the_slack_is_the_margin_divided_by_the_conservatism():
    head = affine([[0], [4], [0]], [0, 1, 2])
    system = BoundarySystem(head, np.array([0.75]), conservatism=4)
    assert list(system.ranks) == [1, 2, 0]  # logits 0, 4, 2
    assert system.slack == pytest.approx(0.5)
    assert system.residuals(np.array([0.0]))[0] == pytest.approx(1 - 2 - 0.5)


@pytest.mark.parametrize("system", [BoundarySystem, RegularisedSystem])
@pytest.mark.parametrize(("classes", "dim"), [(2, 1), (10, 3), (3, 3), (2, 4)])
def test_the_exact_jacobian_agrees_with_finite_differences(system, classes, dim):
    head = random_head(classes, dim, degree=2)
    x0, x = random_features(2, dim).numpy()
    phi = system(head, x0, conservatism=3)
    steps = 1e-5 * np.eye(dim)
    differences = [(phi.residuals(x + step) - phi.residuals(x - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(phi.jacobian(x), np.transpose(differences), rtol=1e-7, atol=1e-7)


# known answers


@pytest.mark.parametrize("jacobian", ["2-point", "exact"])
@pytest.mark.parametrize("solver", ROOT_FINDERS)
@pytest.mark.parametrize("degree", [1, 3])
def test_two_affine_classes_on_a_line_give_margin_over_slope(degree, solver, jacobian):
    head = affine([[0], [2]], [1, 0], degree)  # they meet at 1/2
    found = estimate(head, [[0.1], [0.5], [0.8]], solver=solver, jacobian=jacobian)
    np.testing.assert_array_equal(found.predicted[[0, 2]], [0, 1])
    np.testing.assert_array_equal(found.runner_up[[0, 2]], [1, 0])
    np.testing.assert_allclose(found.boundary_point, 0.5, atol=1e-7)
    np.testing.assert_allclose(found.distance_estimate, [0.4, 0, 0.3], atol=1e-7)


@pytest.mark.parametrize("solver", ROOT_FINDERS)
def test_a_smaller_conservatism_moves_the_point_towards_x0(solver):
    head = affine([[0], [2]], [1, 0], degree=3)
    for conservatism in (1, 1.25, 2, 4, math.inf):
        found = estimate(head, [[0.1]], solver=solver, conservatism=conservatism)
        assert found.distance_estimate[0] == pytest.approx(0.4 * (1 - 1 / conservatism), abs=1e-7)


@pytest.mark.parametrize("jacobian", ["2-point", "exact"])
@pytest.mark.parametrize("solver", ROOT_FINDERS)
def test_two_affine_classes_in_the_plane_give_a_boundary_point_never_closer_than_the_closest(solver, jacobian):
    """The Jacobian has rank one everywhere: rounding decides which point of the line is found, so no more holds."""
    slope = np.array([3.0, 1.0])
    head = affine([[0, 0], slope], [1.6, 0])
    x0 = random_features(10, 2).numpy() * 0.5
    for norm, dual in ((1, math.inf), (2, 2), (math.inf, 1)):
        found = estimate(head, x0, solver=solver, jacobian=jacobian, norm=norm)
        assert (found.residual < 1e-12).all()
        inside = ((found.boundary_point > 0) & (found.boundary_point < 1)).all(axis=1)  # the projection moved nothing
        np.testing.assert_allclose(margin(head, found.boundary_point[inside]), 0, atol=1e-6)
        closest = np.abs(margin(head, x0)) / np.linalg.norm(slope, dual)
        assert (found.distance_estimate >= closest - 1e-6)[inside].all()


@pytest.mark.parametrize("jacobian", ["2-point", "exact"])
def test_the_regularised_solver_stops_short_of_an_affine_boundary_by_a_known_factor(jacobian):
    slope = np.array([3.0, 1.0])  # 1/2 (m + g.s)^2 + |s|^2 is least at s = -m g / (2 + |g|^2)
    head = affine([[0, 0], slope], [1.6, 0], degree=2)
    x0 = random_features(5, 2).numpy() * 0.3
    expected = x0 + margin(head, x0)[:, None] * slope / (2 + slope @ slope)
    found = estimate(head, x0, solver="regularised", jacobian=jacobian)
    np.testing.assert_allclose(found.boundary_point, expected, atol=1e-6)
    np.testing.assert_allclose(found.residual, 0.5 * margin(head, found.boundary_point) ** 2, atol=1e-6)


def test_the_regularised_solver_reaches_the_minimum_that_a_grid_search_finds():
    corner = torch.tensor([[[0.0, 1.0], [1.0, 3.0]], [[1.5, 1.0], [1.0, -1.0]]], dtype=torch.float64)
    head, x0 = SmoothedHead(corner), np.array([0.7, 0.8])
    points = square_grid(401)
    objective = 0.5 * margin(head, points) ** 2 + ((points - x0) ** 2).sum(axis=1)
    found = estimate(head, x0[None], solver="regularised")
    np.testing.assert_allclose(found.boundary_point[0], points[objective.argmin()], atol=1 / 400)
    at_found = found.residual[0] + found.distance_estimate[0] ** 2
    assert at_found <= objective.min() + 1e-9


def test_the_jacobian_changes_the_work_but_not_the_answer_where_the_problem_is_well_posed():
    head, x0 = random_head(10, 5, degree=1), random_features(5, 5)
    differences = estimate(head, x0, solver="regularised", jacobian="2-point")
    exact = estimate(head, x0, solver="regularised", jacobian="exact")
    np.testing.assert_allclose(differences.boundary_point, exact.boundary_point, atol=1e-5)
    assert (exact.evaluations < differences.evaluations).all()


# projection and norms


@pytest.mark.parametrize("solver", ROOT_FINDERS)
def test_a_boundary_beyond_the_cube_is_projected_onto_it(solver):
    found = estimate(affine([[0], [2]], [3, 0]), [[0.25]], solver=solver)  # the classes meet at 3/2
    assert found.boundary_point[0, 0] == 1
    assert found.distance_estimate[0] == 0.75
    assert found.residual[0] < 1e-12  # before the projection it was a solution


@pytest.mark.parametrize("norm", NORMS)
def test_the_norm_measures_the_same_point(norm):
    head, x0 = random_head(3, 3, degree=2), random_features(4, 3).numpy()
    found = estimate(head, x0, solver="regularised", norm=norm)
    np.testing.assert_array_equal(found.boundary_point, estimate(head, x0, solver="regularised").boundary_point)
    expected = [np.linalg.norm(difference, ord=norm) for difference in found.boundary_point - x0]
    np.testing.assert_allclose(found.distance_estimate, expected, rtol=1e-13)


def test_a_very_large_p_gives_the_maximum_norm_not_zero():
    head, x0 = random_head(3, 3, degree=2), random_features(4, 3)
    large, maximum = (estimate(head, x0, solver="regularised", norm=p).distance_estimate for p in (1e5, math.inf))
    assert (maximum > 0).all()
    np.testing.assert_allclose(large, maximum, rtol=1e-4)


# why it is not a radius


@pytest.mark.parametrize("solver", ROOT_FINDERS)
def test_the_estimate_exceeds_the_true_distance_when_the_runner_up_is_not_the_nearest_class(solver):
    head = affine([[0], [2], [-20]], [0, -1.8, 6])  # class 0 meets its runner-up at 0.9, and class 2 at 0.3
    found = estimate(head, [[0.4]], solver=solver)
    points = np.linspace(0, 1, 1001)[:, None]
    others = head(torch.as_tensor(points)).argmax(dim=1).numpy() != found.predicted[0]
    true_distance = np.abs(points[others] - 0.4).min()
    assert found.runner_up[0] == 1
    assert true_distance < 0.102
    assert found.distance_estimate[0] > 0.49


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_classes_that_never_meet_still_get_a_finite_estimate(solver):
    found = estimate(affine([[0, 0], [0, 0]], [1, 0]), [[0.25, 0.5]], solver=solver)
    assert np.isfinite(found.distance_estimate).all()  # the true distance is infinite


# the interface


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_no_samples_give_an_empty_estimate_of_the_right_shapes(solver):
    found = estimate(random_head(3, 2, degree=1), np.empty((0, 2)), solver=solver)
    assert len(found) == 0
    assert found.boundary_point.shape == (0, 2)
    rows = (found.predicted, found.runner_up, found.distance_estimate, found.residual, found.evaluations)
    assert [row.shape for row in rows] == [(0,)] * 5
    assert [row.dtype.kind for row in rows] == ["i", "i", "f", "f", "i"]


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_fewer_classes_than_features_are_accepted(solver):
    found = estimate(random_head(2, 5, degree=1), random_features(1, 5), solver=solver)
    assert found.boundary_point.shape == (1, 5)


def test_the_same_input_gives_the_same_bits_alone_or_in_a_batch():
    head, x0 = random_head(3, 2, degree=3), random_features(3, 2)
    together = estimate(head, x0)
    for i, row in enumerate(together):
        alone = estimate(head, x0[i : i + 1])[0]
        assert row.distance_estimate == alone.distance_estimate
        np.testing.assert_array_equal(row.boundary_point, alone.boundary_point)


def test_a_trained_float32_head_is_solved_in_float64_and_left_as_it_was():
    coefficients = random_head(3, 2, degree=2).coefficients.float()
    head = SmoothedHead(torch.nn.Parameter(coefficients))
    exact = estimate(SmoothedHead(coefficients.double()), [[0.25, 0.5]], solver="regularised")
    found = estimate(head, torch.tensor([[0.25, 0.5]], requires_grad=True), solver="regularised")
    assert found.distance_estimate[0] == exact.distance_estimate[0]
    assert head.coefficients.dtype == torch.float32
    assert head.coefficients.requires_grad


@pytest.mark.parametrize("features", [[[0, 1]], np.array([[0, 1]], dtype=np.uint8), torch.tensor([[0, 1]])])
def test_lists_arrays_tensors_and_integers_are_all_features(features):
    head = random_head(3, 2, degree=2)
    expected = estimate(head, np.array([[0.0, 1.0]]), solver="regularised")
    assert estimate(head, features, solver="regularised").distance_estimate == expected.distance_estimate


def test_the_bar_goes_to_stderr_and_only_when_asked_for(capsys):
    head = affine([[0], [2]], [1, 0])
    estimate(head, [[0.1]], progress=False)
    estimate(head, [[0.1]])
    assert capsys.readouterr() == ("", "")
    estimate(head, [[0.1]], progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "root finding" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "newton"}, "lm, dogbox, trf, regularised, got 'newton'"),
        ({"jacobian": "3-point"}, "2-point, exact, got '3-point'"),
        ({"norm": 0.5}, "1 <= p <= inf, got 0.5"),
        ({"norm": math.nan}, "1 <= p <= inf, got nan"),
        ({"norm": True}, "1 <= p <= inf, got True"),
        ({"norm": "inf"}, r"got 'inf'; write inf, in Python float\('inf'\)"),
        ({"norm": "2"}, "got '2'; pass"),
        ({"conservatism": 0}, "C > 0, got 0"),
        ({"conservatism": -1.0}, "C > 0, got -1.0"),
        ({"conservatism": math.nan}, "C > 0, got nan"),
        ({"conservatism": "2"}, "C > 0, got '2'"),
        ({"inputs": [0.5, 0.5]}, r"\(N, 2\), got \(2,\); write features\[None\]"),
        ({"inputs": [[0.5]]}, r"\(N, 2\), got \(1, 1\)"),
        ({"inputs": [[0.5, 0.5], [0.5]]}, "rows of equal length"),
        ({"inputs": [["a", "b"]]}, "real numbers"),
        ({"inputs": [[0.5, 1j]]}, "real numbers"),
        ({"inputs": [[0.5, 0.5], [0.5, math.nan]]}, "got nan in row 1, axis 1"),
        ({"inputs": [[0.5, 0.5], [1.5, 0.5], [2, 2]]}, r"got 1.5 in row 1, axis 0 \(2 of 3 rows"),
        ({"inputs": torch.tensor([[0.5, -0.25]])}, "got -0.25 in row 0, axis 1"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected_and_what_came(options, message):
    arguments = {"inputs": [[0.5, 0.5]]} | options
    with pytest.raises(ValueError, match=message):
        estimate(random_head(3, 2, degree=1), **arguments)


def test_a_head_that_is_not_smoothed_is_refused():
    with pytest.raises(
        TypeError,
        match=r"expected a SmoothedHead, or a Classifier with one, got Linear; make one with berncert\.smooth",
    ):
        estimate(torch.nn.Linear(2, 3), [[0.5, 0.5]])


@pytest.mark.parametrize("norm", [1, 2, 3.5, math.inf])
def test_of_images_it_is_that_of_their_features_over_the_proven_bound(norm):
    layers = [torch.nn.Flatten(), torch.nn.Linear(4, 2), torch.nn.Sigmoid()]
    model = berncert.Classifier(torch.nn.Sequential(*layers).double(), torch.nn.Linear(2, 3)).eval().smooth(degree=2)
    images = torch.rand(5, 1, 2, 2, dtype=torch.float64)
    found = estimate(model, images, norm=norm, solver="regularised")
    inner = estimate(model.head, model.extractor(images), norm=found.feature_norm[0], solver="regularised")
    assert len(set(found.feature_norm)) == 1
    np.testing.assert_allclose(found.feature_distance_estimate, inner.distance_estimate, rtol=1e-9)
    np.testing.assert_array_equal(found.distance_estimate, found.feature_distance_estimate / found.lipschitz_bound)
    np.testing.assert_array_equal(found.predicted, model(images).argmax(dim=1))
    value = berncert.lipschitz_table(model.extractor, (1, 2, 2), norm).value
    proven = value.gains.factor(norm, found.feature_norm[0])
    assert set(found.lipschitz_bound) == {proven}


@pytest.mark.parametrize("jacobian", ["2-point", "exact"])
def test_of_a_head_that_is_not_smoothed_it_is_that_of_the_polynomial_it_equals(jacobian):
    head = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(2, 3))
    plain = berncert.Classifier(torch.nn.Identity(), head)
    plain.extractor.eval()
    images = torch.rand(5, 2, dtype=torch.float64) * 0.5 + 0.25
    found = estimate(plain, images, solver="regularised", jacobian=jacobian)
    expected = estimate(plain.smooth(1), images, solver="regularised", jacobian=jacobian)
    np.testing.assert_array_equal(found.predicted, expected.predicted)
    np.testing.assert_allclose(found.distance_estimate, expected.distance_estimate, rtol=1e-5)
    assert head.training
    assert head[1].weight.dtype == torch.float32
