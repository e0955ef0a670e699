"""How far a smoothed head agrees with its head: known answers, and what measuring must leave alone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import berncert
from berncert.polynomial import SmoothedHead, SmoothingWarning, smooth

POINTS = [[0.1], [0.2], [0.5], [0.58], [0.9]]


def hump(x: Tensor) -> Tensor:
    """Class 0 in the middle, which degree n sees as (1 - 1/n) x (1 - x) and loses up to 6; class 1 elsewhere."""
    first = x[:, :1]
    return torch.cat([first * (1 - first), torch.full_like(first, 0.21)], dim=1)


class Counted:
    """A head that counts its points."""

    def __init__(self, head: Callable[[Tensor], Any] = lambda x: torch.cat([x, 1 - x], dim=1)) -> None:
        self.head, self.points = head, 0

    def __call__(self, x: Tensor) -> Any:
        self.points += len(x)
        return self.head(x)


@pytest.mark.parametrize(("degree", "same"), [(1, 3), (6, 3), (7, 4), (8, 5), (30, 5)])
@pytest.mark.filterwarnings("ignore:smoothing to degree")
def test_the_agreement_is_the_share_of_points_with_the_same_class(degree: int, same: int) -> None:
    fidelity = smooth(hump, 1, degree, points=POINTS).fidelity
    assert fidelity is not None
    assert (fidelity.points, fidelity.drawn) == (5, False)
    assert fidelity.agreement == same / 5
    assert fidelity.constant == (same == 3)


@pytest.mark.parametrize("degree", [2, 5, 9])
def test_the_largest_difference_of_a_square_is_what_bernstein_says(degree: int) -> None:
    fidelity = smooth(lambda x: x**2, 1, degree, points=[[0.1], [0.5], [0.8]]).fidelity
    assert fidelity is not None
    assert fidelity.largest_difference == pytest.approx(0.25 / degree)  # x (1 - x) / n
    assert fidelity.agreement is None


@pytest.mark.parametrize("classes", [2, 3, 100])
@pytest.mark.parametrize(("dim", "degree"), [(1, 1), (3, 4), (5, 2), (12, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_affine_heads_agree_everywhere(classes: int, dim: int, degree: int, dtype: torch.dtype) -> None:
    head = nn.Sequential(nn.Dropout(0.5), nn.Linear(dim, classes), nn.BatchNorm1d(classes)).to(dtype)
    fidelity = smooth(head, dim, degree).fidelity
    assert fidelity is not None
    assert fidelity.drawn
    assert 100 <= fidelity.points <= 1000
    assert fidelity.agreement is not None
    assert fidelity.agreement >= 0.99  # in float32 a point may be too close to a boundary
    assert fidelity.largest_difference < (1e-12 if dtype == torch.float64 else 1e-5)
    assert head.training
    assert head[0].training


def test_a_head_of_arrays_is_compared_as_one_of_tensors_is() -> None:
    arrays = smooth(lambda x: np.asarray(hump(x)), 1, 12).fidelity
    assert arrays == smooth(hump, 1, 12).fidelity


@pytest.mark.parametrize(("degree", "points"), [(3, 1000), (15, 2 * 10**7 // (6 * 16**3)), (39, 100)])
def test_very_many_coefficients_are_compared_at_fewer_points(degree: int, points: int) -> None:
    head = Counted()  # six classes of three features
    fidelity = smooth(head, 3, degree).fidelity
    assert fidelity is not None
    assert fidelity.points == points
    assert head.points == (degree + 1) ** 3 + points


def test_a_head_that_writes_into_its_points_is_compared_where_it_was_evaluated() -> None:
    def doubled(x: Tensor) -> Tensor:
        return torch.cat([x.mul_(2), 2 - x], dim=1)

    fidelity = smooth(doubled, 1, 3).fidelity
    assert fidelity is not None
    assert fidelity.largest_difference < 1e-12


def test_a_constant_polynomial_of_a_head_that_is_not_is_reported() -> None:
    said = r"smoothing to degree 3 .* the same class at 60\.0 % of 5 given points.* gives all of them one class; raise"
    with pytest.warns(SmoothingWarning, match=said):
        smooth(hump, 1, 3, points=POINTS)


def test_a_rare_class_that_is_lost_is_reported_and_one_that_hardly_exists_is_not() -> None:
    few, fewer = ([[0.1]] * others + [[0.5]] for others in (49, 199))
    with pytest.warns(SmoothingWarning, match=r"98\.0 %"):
        smooth(hump, 1, 3, points=few)
    fidelity = smooth(hump, 1, 3, points=fewer).fidelity
    assert fidelity is not None
    assert fidelity.constant


def test_other_classes_on_most_points_are_reported() -> None:
    def stripes(x: Tensor) -> Tensor:
        wave = torch.sin(40 * x[:, :1]) + 0.1 * (x[:, :1] - 0.5)
        return torch.cat([wave, -wave], dim=1)

    with pytest.warns(SmoothingWarning, match="points of the cube"):
        fidelity = smooth(stripes, 1, 8).fidelity
    assert fidelity is not None
    assert fidelity.agreement is not None
    assert fidelity.agreement < 0.75


def test_a_head_that_is_constant_itself_is_not_ruined() -> None:
    fidelity = smooth(lambda x: torch.tensor([[2.0, 1.0]]).expand(len(x), 2), 2, 3).fidelity
    assert fidelity is not None
    assert (fidelity.agreement, fidelity.constant) == (1.0, True)
    assert fidelity.largest_difference < 1e-6


def test_nothing_is_measured_where_it_is_not_asked_for() -> None:
    head = Counted()
    assert smooth(head, 2, 3, points=0).fidelity is None
    assert head.points == 16
    assert smooth(head, 2, 3, points=7).fidelity is not None
    assert head.points == 2 * 16 + 7
    assert SmoothedHead(torch.eye(2)).fidelity is None


def test_training_through_the_smoothed_head_is_not_disturbed() -> None:
    layer = nn.Linear(2, 3).double()
    head = Counted(layer)
    smoothed = smooth(head, 2, 2, differentiable=True, points=POINTS)
    assert smoothed.fidelity is None
    assert head.points == 9
    smoothed(torch.rand(4, 2)).sum().backward()
    assert layer.weight.grad is not None


def test_no_generator_of_the_user_moves_and_the_points_are_always_the_same() -> None:
    head = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    before, arrays = torch.get_rng_state(), pickle.dumps(np.random.get_state())  # noqa: NPY002
    first = smooth(head, 3, 2).fidelity
    assert torch.equal(torch.get_rng_state(), before)
    assert pickle.dumps(np.random.get_state()) == arrays  # noqa: NPY002
    torch.manual_seed(99)
    assert smooth(head, 3, 2).fidelity == first


def test_the_fidelity_comes_along_with_copies_and_is_no_part_of_the_state() -> None:
    smoothed = smooth(hump, 1, 8, points=POINTS)
    fidelity = smoothed.fidelity
    assert list(smoothed.state_dict()) == ["coefficients"]
    for same in (copy.copy(smoothed), copy.deepcopy(smoothed), pickle.loads(pickle.dumps(smoothed))):
        assert same.fidelity == fidelity
        assert torch.equal(same.coefficients, smoothed.coefficients)
    assert smoothed.float().double().to("cpu").fidelity == fidelity
    other = SmoothedHead(torch.zeros_like(smoothed.coefficients))
    other.load_state_dict(smoothed.state_dict())
    assert other.fidelity is None


def test_it_says_what_it_is() -> None:
    assert repr(smooth(hump, 1, 8, points=POINTS).fidelity) == (
        "Fidelity(the same class at 100.0 % of 5 given points; outputs differ by at most 0.0313)"
    )
    assert str(smooth(lambda x: x**2, 1, 4, points=[[0.5]]).fidelity) == (
        "at 1 given point outputs differ by at most 0.0625"
    )


@pytest.mark.parametrize(
    ("points", "error"),
    [
        ([[float("nan"), 0.5]], "expected every feature in"),
        ([[0.5, 1.5]], r"got 1\.5 in row 0, axis 1"),
        ([[0.5, 0.5, 0.5]], r"expected points of shape \(N, 2\), got \(1, 3\)"),
        ([0.5, 0.5], r"write points\[None\]"),
        ("five", "expected points that are real numbers"),
        ([["a", "b"]], "expected points that are real numbers"),
        ([[0.5], [0.5, 0.5]], "rows of equal length"),
        (np.zeros((0, 2)), "expected at least one point"),
        (torch.zeros(3, 2, dtype=torch.complex64), "complex"),
        (-1, "expected a whole number points >= 0"),
        (2.5, "expected a whole number points >= 0"),
        (True, r"expected points of shape"),
        (10**12, "expected at most 10,000,000 points"),
    ],
)
def test_points_that_make_no_sense_are_refused_before_the_head_is_asked(points: Any, error: str) -> None:
    head = Counted()
    for call in (lambda: smooth(head, 2, 3, points=points), lambda: berncert.choose_degree(head, 2, points)):
        with pytest.raises(ValueError, match=error):
            call()
    assert head.points == 0


def test_outputs_off_the_grid_are_checked_as_those_on_it_are() -> None:
    with pytest.raises(ValueError, match=r"got inf for class 0 at the point \(0\.3,\)"):
        smooth(lambda x: torch.cat([1 / (x - 0.3), x], dim=1), 1, 2, points=[[0.3]])
    with pytest.raises(ValueError, match="expected 2 classes as on the grid, got 3"):
        smooth(lambda x: torch.zeros(len(x), 3 if len(x) == 1 else 2), 1, 2, points=[[0.3]])


def test_a_smoothed_classifier_has_the_fidelity_of_its_head() -> None:
    head = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
    model = berncert.Classifier(nn.Identity(), head)
    smoothed = model.smooth(4, points=torch.rand(50, 2))
    assert isinstance(smoothed.head, SmoothedHead)
    assert smoothed.head.fidelity is not None
    assert smoothed.head.fidelity.points == 50
    assert smoothed.head.fidelity.largest_difference < 1


class Hump(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return hump(x)


def test_the_warning_names_the_line_of_the_caller() -> None:
    extractor = berncert.build("mlp", (1, 8, 8), dim=1, depth=2, width=8).double()
    classifier = berncert.Classifier(extractor, Hump())
    for call in (lambda: smooth(hump, 1, 2), lambda: classifier.smooth(2)):
        with pytest.warns(SmoothingWarning) as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]
