"""Changes in place, found by running: what is changed and used again is refused, the rest accepted."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from networks import net
from torch import Tensor, nn
from truth import assert_linear_bounded, assert_smooth_bounded

from berncert.extractor import lipschitz_bound

STEEP = nn.ELU(10.0, inplace=True)  # an in-place step that is missed would be seen in the bound


def test_a_harmless_step_in_place_is_accepted() -> None:
    chain = nn.Sequential(nn.Linear(4, 4), nn.ELU(3.0, inplace=True), nn.Linear(4, 2)).double()
    assert_smooth_bounded(chain, (4,), 3.0)
    skip = net(lambda s, x: s.e(s.l(x)) + x, l=nn.Linear(4, 4), e=nn.ReLU(inplace=True))
    assert_smooth_bounded(skip, (4,), 3.0)
    view = net(lambda s, x: s.e(s.l(x).view(x.size(0), 2, 2)).flatten(1), l=nn.Linear(4, 4), e=nn.ReLU(inplace=True))
    assert_smooth_bounded(view, (4,), 3.0)


def aliased(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    s.e(s.same(y))
    return y


class Renamed(nn.Identity):
    pass


@pytest.mark.filterwarnings("ignore:dropout2d", "ignore:dropout3d")
@pytest.mark.parametrize(
    "same",
    [
        nn.Identity(), Renamed(), nn.Flatten(), nn.Unflatten(1, (2, 2)), nn.Dropout(), nn.Dropout1d(), nn.Dropout2d(),
        nn.Dropout3d(), nn.AlphaDropout(), nn.FeatureAlphaDropout(), nn.Sequential(), nn.Sequential(nn.Identity()),
    ],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_a_value_changed_in_place_through_another_name_is_refused_or_bounded(same: nn.Module) -> None:
    assert_refused_or_bounded(net(aliased, l=nn.Linear(4, 4), same=same, e=STEEP), (4,))


def assert_refused_or_bounded(network: nn.Module, shape: tuple[int, ...]) -> None:
    try:
        lipschitz_bound(network, shape)
    except TypeError as error:
        assert "in place" in str(error) or "no Lipschitz bound is known" in str(error)  # noqa: PT017
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_smooth_bounded(network, shape, 3.0)


def late_use(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    return s.e(y) + y


def on_the_image(s: Any, x: Tensor) -> Tensor:
    return s.e(x) + s.l(x)


def of_a_slice(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    s.e(y[:, :2])
    return y


def of_a_chunk(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    a, b = y.chunk(2, 1)
    s.e(a)
    return torch.cat([y, b], 1)


def of_the_base_of_a_view(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    z = y.view(-1, 2, 2)
    s.e(y)
    return z


def by_a_function(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    F.elu(y, 10.0, True)
    return y


def by_a_keyword(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    F.elu(y, alpha=10.0, inplace=True)
    return y


def through_dropout(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    s.e(F.dropout(y, training=False))
    return y


def times(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    z = y
    y *= 5
    return z


def plus(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    z = y
    y += 7 * x
    return z


def minus(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    z = y.flatten(1)
    y -= 7 * x
    return z


def over(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    z = y
    y /= 0.1
    return z


def skip_changed(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    identity = y
    y *= 3
    return y + identity


def part_of(s: Any, x: Tensor) -> Tensor:
    y = s.l(x)
    z = y[:, 0]
    z *= 50
    return y


SHARED = [part_of, late_use, on_the_image, of_a_slice, of_a_chunk, of_the_base_of_a_view, by_a_function, by_a_keyword,
          through_dropout, times, plus, minus, over, skip_changed]  # fmt: skip


@pytest.mark.parametrize("forward", SHARED, ids=lambda f: f.__name__)
def test_a_shared_value_that_is_changed_in_place_is_refused_or_bounded(forward: Any) -> None:
    assert_refused_or_bounded(net(forward, l=nn.Linear(4, 4), e=STEEP), (4,))


def test_a_relu_in_place_on_a_shared_value_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"^add: uses l, which another step has changed in place.*instead of x \+= y$"):
        lipschitz_bound(net(late_use, l=nn.Linear(4, 4), e=nn.ReLU(inplace=True)), (4,))


def test_adding_to_a_value_that_nobody_else_uses_is_accepted() -> None:
    def forward(s: Any, x: Tensor) -> Tensor:
        y = s.l(x)
        y += x
        y *= 2
        y -= 1
        return y

    assert_linear_bounded(net(forward, l=nn.Linear(4, 4)), (4,), 3.0)
