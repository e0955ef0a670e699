"""Heads: each starts where it should, describes how it was built, and its polynomial takes its place."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from berncert.models.heads import HEADS, OWN_POLYNOMIALS, build_head, directions, feature_sets, head_size, smoothed
from berncert.polynomial import SmoothedHead, smooth


def points(dim: int, rows: int = 20) -> torch.Tensor:
    return torch.rand(rows, dim, dtype=torch.float64)


def test_the_identity_head_gives_the_features_themselves_and_has_nothing_to_train() -> None:
    head = build_head("identity", 4, 4, scale=3.0)
    x = points(4).float()
    torch.testing.assert_close(head(x), 3 * (x - 0.5))
    assert not [p for p in head.parameters() if p.requires_grad]


@pytest.mark.parametrize("kind", ["affine", "polynomial"])
def test_where_there_are_features_enough_trained_heads_start_as_the_identity(kind: str) -> None:
    head = build_head(kind, 4, 3, scale=2.0, degree=2)
    x = points(4).float()
    torch.testing.assert_close(head(x), 2 * (x - 0.5)[:, :3], rtol=1e-5, atol=1e-6)
    assert all(p.requires_grad for p in head.parameters())


@pytest.mark.parametrize("kind", ["affine", "polynomial"])
def test_with_fewer_features_than_classes_they_start_with_rows_as_long_as_the_scale(kind: str) -> None:
    slopes = smoothed(build_head(kind, 3, 10, scale=5.0, degree=1)).gradient(points(3, 1))[0]
    torch.testing.assert_close(slopes.norm(dim=1), torch.full((10,), 5.0, dtype=torch.float64), rtol=1e-5, atol=0)
    assert len({tuple(row) for row in slopes.tolist()}) == 10


@pytest.mark.parametrize("dim", range(5, 13))
def test_directions_of_ten_classes_are_at_right_angles_or_more_from_five_features_on(dim: int) -> None:
    rows = directions(10, dim)
    assert rows.shape == (10, dim)
    gram = rows @ rows.T
    torch.testing.assert_close(gram.diagonal(), torch.ones(10))
    assert (gram - torch.eye(10)).max() < 1e-5


@pytest.mark.parametrize(
    ("classes", "dim", "best"), [(5, 2, 72.0), (10, 2, 36.0), (12, 3, 63.43), (10, 3, 66.14), (10, 4, 80.40)]
)
def test_with_few_features_directions_are_spread_nearly_as_far_as_points_on_a_sphere_can_be(
    classes: int, dim: int, best: float
) -> None:
    rows = directions(classes, dim).double()
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(classes, dtype=torch.float64), rtol=0, atol=1e-6)
    nearest = (rows @ rows.T - 2 * torch.eye(classes)).max()
    assert best - 2 < math.degrees(math.acos(nearest)) < best + 0.1  # the best known least angle
    torch.manual_seed(7)
    assert torch.equal(directions(classes, dim), directions(classes, dim))
    assert directions(300, 2).shape == (300, 2)  # too many to repel each other


@pytest.mark.parametrize("kind", HEADS)
def test_the_description_builds_the_same_head_again(kind: str) -> None:
    head = build_head(kind, 3, 3, scale=0.5, width=7, degree=2)
    again = build_head(**json.loads(json.dumps(head.description)))
    assert repr(again) == repr(head)
    again.load_state_dict(head.state_dict())
    x = points(3).float()
    assert torch.equal(again(x), head(x))
    assert again.description == head.description


@pytest.mark.parametrize("kind", HEADS)
def test_the_smoothed_head_is_the_polynomial_through_the_heads_values_on_the_grid(kind: str) -> None:
    head = build_head(kind, 2, 2, width=5, degree=3)
    x, polynomial = points(2), smoothed(head)
    assert all(tensor.dtype == torch.float64 and not tensor.requires_grad for tensor in polynomial.tensors)
    assert polynomial.degree == (3, 3)
    if kind in OWN_POLYNOMIALS:
        torch.testing.assert_close(polynomial(x), head.double()(x), rtol=0, atol=0)
        return
    assert isinstance(polynomial, SmoothedHead)
    exact = smooth(head.double(), 2, 3)
    assert torch.equal(polynomial.coefficients, exact.coefficients)
    if kind != "mlp":
        torch.testing.assert_close(polynomial(x), head(x))


@pytest.mark.parametrize("kind", HEADS)
def test_smoothing_for_training_agrees_keeps_the_dtype_and_carries_gradients(kind: str) -> None:
    head = build_head(kind, 2, 2, width=5, degree=3)
    before = {key: value.clone() for key, value in head.state_dict().items()}
    trained = smoothed(head, differentiable=True)
    for mine, exact in zip(trained.tensors, smoothed(head).tensors, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-5, atol=1e-6)
        assert mine.dtype == torch.float32
    assert all(torch.equal(before[key], value) for key, value in head.state_dict().items())
    if kind != "identity":
        trained(points(2).float()).square().sum().backward()
        assert all(p.grad is not None for p in head.parameters())


def test_what_is_smoothed_does_not_change_with_the_head_afterwards() -> None:
    for kind in HEADS:
        for dtype in (torch.float32, torch.float64):
            head = build_head(kind, 2, 2, degree=2).to(dtype)
            polynomial = smoothed(head)
            before = [tensor.clone() for tensor in polynomial.tensors]
            with torch.no_grad():
                for parameter in head.parameters():
                    parameter.add_(1.0)
            assert all(map(torch.equal, polynomial.tensors, before)), (kind, dtype)


def test_groups_start_straight_bend_within_themselves_and_are_counted_before_they_are_built() -> None:
    head = build_head("groups", 40, 7, scale=3.0, degree=2, group=3)
    x = points(40).float()
    torch.testing.assert_close(head(x), build_head("affine", 40, 7, scale=3.0)(x))
    polynomial = smoothed(head)
    assert [term.axes for term in polynomial.terms][-2:] == [(36, 37, 38), (39,)]
    assert head_size(**head.description) == sum(p.numel() for p in head.parameters()) == polynomial.numbers
    with torch.no_grad():
        head.layers.term0.normal_()
    apart = smoothed(head).gradient(points(40)) - polynomial.gradient(points(40))
    assert (apart[:, :, :3] != 0).any()
    assert (apart[:, :, 3:] == 0).all()


@pytest.mark.parametrize(
    ("says", "call"),
    [
        ("expected a head out of identity, affine, mlp, polynomial, groups, got 'linear'", {"kind": "linear"}),
        ("expected dim = 3, as many features as classes, with the identity head, got 4", {"dim": 4}),
        ("expected classes >= 2, .* got classes=1, dim=1", {"classes": 1, "dim": 1}),
        ("expected .*dim, width, degree and group >= 1.* dim=0", {"dim": 0}),
        ("expected .*scale > 0", {"scale": 0.0}),
        ("expected .*scale > 0", {"scale": math.inf}),
        ("expected .*scale > 0", {"scale": math.nan}),
        ("expected .*width", {"kind": "mlp", "width": 0}),
        ("expected .*degree", {"kind": "polynomial", "degree": 0}),
        ("expected groups with at most 4,096 numbers", {"kind": "groups", "dim": 30, "group": 20}),
    ],
)
def test_errors_say_what_was_expected_and_what_came(says: str, call: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=says):
        build_head(**({"kind": "identity", "dim": 3, "classes": 3} | call))


@pytest.mark.parametrize(("dim", "size"), [(5, 2), (6, 2), (9, 2)])
def test_feature_sets_of_ten_classes_differ_and_use_the_features_evenly(dim: int, size: int) -> None:
    rows = -feature_sets(10, dim)
    assert rows.sum(dim=1).tolist() == [size] * 10
    assert len(set(map(tuple, rows.tolist()))) == 10
    assert rows.sum(dim=0).max() - rows.sum(dim=0).min() <= 1


def test_with_enough_features_each_class_has_one_of_its_own_in_linf_too() -> None:
    assert torch.equal(feature_sets(4, 5), torch.eye(4, 5))
    assert feature_sets(10, 2).shape == (10, 2)  # too few features for sets: as in l2
