"""The library's own layers do what they say."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from truth import jacobian, matrix_of

from berncert.extractor import GroupSort, Householder, MaxMin, Normalise, PotentialStep, UnitCube


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 6), (3, 6, 4), (3, 6, 2, 5)])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_group_sort_sorts_each_group_of_channels_downwards(shape: tuple[int, ...], size: int) -> None:
    x = values(*shape)
    y = GroupSort(size)(x)
    assert y.shape == x.shape
    for before, after in zip(x.split(size, dim=1), y.split(size, dim=1), strict=True):
        assert torch.equal(after, before.sort(dim=1, descending=True).values)


def test_max_min_is_group_sort_of_pairs() -> None:
    x = values(4, 8, 3, 3)
    assert torch.equal(MaxMin()(x), GroupSort(2)(x))
    assert torch.equal(MaxMin()(torch.tensor([[1.0, 1.0, -2.0, 5.0]])), torch.tensor([[1.0, 1.0, 5.0, -2.0]]))


@pytest.mark.parametrize("module", [MaxMin(), GroupSort(4), Householder(4)], ids=lambda m: type(m).__name__)
def test_channels_that_do_not_divide_are_explained(module: nn.Module) -> None:
    with pytest.raises(ValueError, match="channels"):
        module(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"channels|shape"):
        module(torch.zeros(4))


def test_wrong_arguments_are_explained() -> None:
    for make in (
        lambda: GroupSort(0),
        lambda: Householder(3),
        lambda: Householder(0),
        lambda: Normalise([0.5], [0.0]),
        lambda: Normalise([0.5], [0.1, 0.2]),
        lambda: Normalise([0.5], [math.nan]),
        lambda: UnitCube(0.0),
        lambda: UnitCube(math.inf),
        lambda: UnitCube(math.nan),
        lambda: PotentialStep(nn.Conv2d(1, 1, 3, padding="same")),
        lambda: PotentialStep(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")),
    ):
        with pytest.raises(ValueError, match="expected"):
            make()


def test_householder_keeps_lengths_and_leaves_one_side_of_the_line_alone() -> None:
    module = Householder(6).double()
    module.angle.data = torch.tensor([0.3, 2.0, -1.0], dtype=torch.float64)
    x = values(50, 6)
    y = module(x).detach()
    for i, angle in enumerate(module.angle.tolist()):
        a, b = x[:, 2 * i : 2 * i + 2], y[:, 2 * i : 2 * i + 2]
        torch.testing.assert_close(a.norm(dim=1), b.norm(dim=1))
        normal = torch.tensor([math.sin(angle / 2), -math.cos(angle / 2)], dtype=torch.float64)
        side = a @ normal
        assert torch.equal(a[side > 1e-12], b[side > 1e-12])
        torch.testing.assert_close(b @ normal, side.abs())  # afterwards all lie on one side
    moved = (x - y).abs().sum(dim=1) > 1e-9
    assert 0.3 < float(moved.double().mean()) <= 1.0


def test_householder_at_a_right_angle_sorts_pairs() -> None:
    x = values(20, 8)
    torch.testing.assert_close(Householder(8).double()(x).detach(), MaxMin()(x), atol=1e-6, rtol=0)


def test_householder_learns_its_angle() -> None:
    module = Householder(4)
    module(torch.randn(8, 4, generator=torch.Generator().manual_seed(0))).square()[:, 0].sum().backward()
    assert float(module.angle.grad.abs().sum()) > 0


def test_normalise_is_undone_by_times_std_plus_mean() -> None:
    module = Normalise([0.1, 0.2, 0.3], [0.5, 1.0, 2.0])
    for shape in [(2, 3), (2, 3, 4), (2, 3, 4, 5)]:
        x = values(*shape).float()
        view = (-1, *(1,) * (len(shape) - 2))
        torch.testing.assert_close(module(x) * module.std.view(view) + module.mean.view(view), x)
    assert "mean" in repr(module)
    assert set(module.state_dict()) == {"mean", "std"}


def test_unit_cube_scales_the_middle_and_clamps_the_rest() -> None:
    module = UnitCube(4.0)
    x = torch.tensor([[-9.0, -2.0, -1.0, 0.0, 1.0, 2.0, 9.0]])
    assert module(x).tolist() == [[0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]]


def test_a_potential_step_is_x_minus_twice_w_relu_of_its_transpose() -> None:
    for inner, shape in [
        (nn.Linear(4, 6), (4,)),
        (nn.Conv2d(2, 3, 3, padding=1), (2, 5, 4)),
        (nn.Conv2d(2, 4, 3, stride=2, padding=2, dilation=2, groups=2), (2, 7, 6)),
        (nn.Conv2d(2, 3, (2, 3), stride=(3, 2)), (2, 6, 5)),
    ]:
        step = PotentialStep(inner.double())
        w = matrix_of(inner, shape).T  # inputs x hidden
        x = values(3, *shape)
        hidden = torch.relu(inner(x).flatten(1))
        torch.testing.assert_close(step(x).flatten(1), x.flatten(1) - 2 * hidden @ w.T)


def test_the_derivative_of_a_potential_step_is_symmetric() -> None:
    step = PotentialStep(nn.Conv2d(2, 3, 3, stride=2, padding=1).double())
    slopes = jacobian(step, values(1, 2, 5, 5))
    torch.testing.assert_close(slopes, slopes.T)


def test_the_cube_keeps_what_bfloat16_would_round_away() -> None:
    near = torch.tensor([[0.01, -0.02]], dtype=torch.bfloat16)  # near 1/2, bfloat16 has steps of 1/256
    expected = (near.double() / 16 + 0.5)[0].tolist()
    assert UnitCube(16.0)(near)[0].tolist() == pytest.approx(expected, abs=1e-7)
