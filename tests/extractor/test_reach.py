"""Laws of local bounds: they hold for every image of the ball, for every operation, norm and order of summation."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import seeded
from operation_examples import EXAMPLES, Example, names, network_of
from torch import Tensor, nn

import berncert
from berncert.extractor.bounds.local import (
    TURN,
    AffineBounds,
    Interval,
    Lines,
    LocalValue,
    Pulled,
    curve_lines,
    curve_range,
    kinked_lines,
    through_maxima,
)
from berncert.extractor.frozen import FrozenNetwork, interpret
from berncert.extractor.operations.entrywise import CURVES
from berncert.extractor.reach import LocalReach, Reached

NORMS = (1.0, 1.5, 2.0, math.inf)


def in_ball(images: Tensor, radius: float, norm: float, count: int, seed: int) -> Tensor:
    """(count, N, ...): images on the rim of the ball, in corners, along axes, and inside."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.randn(count, *images.shape, generator=generator, dtype=torch.float64)
    offsets[::3] = offsets[::3].sign()
    flat = offsets[1::3].flatten(2)
    offsets[1::3] = (flat * (flat.abs() == flat.abs().amax(dim=2, keepdim=True))).view_as(offsets[1::3])
    length = torch.linalg.vector_norm(offsets.flatten(2), norm, dim=2)
    scale = radius / length * torch.rand(length.shape, generator=generator, dtype=torch.float64).add(0.5).clamp(max=1)
    return images + offsets * scale.view(*scale.shape, *(1,) * (images.ndim - 1)) * (1 - 1e-12)


def all_values(network: FrozenNetwork, x: Tensor) -> list[Tensor]:
    values = [x]

    def visit(step: object, arguments: tuple[Tensor, ...]) -> Tensor:
        values.append(step.operation.evaluate(*arguments))  # type: ignore[attr-defined]
        return values[-1]

    interpret(network.steps, x, visit)
    return values


def assert_encloses(reached: Reached, network: FrozenNetwork, x: Tensor, radius: float, seed: int) -> None:
    """Values, balls and affine bounds hold at images of the ball, but for the rounding of this very evaluation."""
    rows = seeded(len(x), 4, network.dim)
    bounds = reached.lower_bounds(rows.view(len(x), 4, *network.output_shape), torch.zeros(len(x), 4))
    least = bounds.within(torch.full((len(x),), radius, dtype=torch.float64))
    for moved in in_ball(x, radius, reached.reach.norm, 12, seed):
        for value, found in zip(reached.values, all_values(network, moved), strict=True):
            slack = 1e-12 * (1 + found.abs().max())
            assert (found >= value.interval.lower - slack).all()
            assert (found <= value.interval.upper + slack).all()
            for t, ball in zip(value.norms, value.balls.T, strict=True):
                far = torch.linalg.vector_norm((found - value.centre).reshape(len(x), -1), t, dim=1)
                assert (far <= ball + 1e-10).all()
        exact = torch.einsum("nrk,nk->nr", rows, network(moved).reshape(len(x), -1))
        assert (exact >= least - 1e-11 * (1 + exact.abs())).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("example", EXAMPLES, ids=names(EXAMPLES))
def test_bounds_of_every_operation_hold_in_the_whole_ball(example: Example, norm: float) -> None:
    network = network_of(example)
    x = seeded(3, *network.input_shape)
    for radius in (0.01, 0.5):
        reached = LocalReach(network, norm).around(x, torch.full((3,), radius, dtype=torch.float64))
        assert_encloses(reached, network, x, radius, seed=7)


class Residual(nn.Module):
    """A value that is used twice, and joined with others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.pool, self.last = nn.MaxPool2d(2), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = self.pool(torch.tanh(x + self.inner(x)))
        return torch.sigmoid(self.last(torch.cat([x, -x], dim=1).flatten(1)))


def frozen(module: nn.Module, shape: tuple[int, ...]) -> FrozenNetwork:
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return berncert.freeze(module.double().eval(), shape)


NETWORKS = {
    "residual": (Residual(), (1, 4, 4)),
    "leaky": (nn.Sequential(nn.Linear(6, 9), nn.LeakyReLU(0.1), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3)), (6,)),
    "gelu": (nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 7), nn.Softplus(), nn.Linear(7, 3)), (6,)),
    "pooled": (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 2)),
               (1, 6, 6)),
}  # fmt: skip


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_of_whole_networks_hold_in_the_whole_ball(name: str, norm: float) -> None:
    network = frozen(*NETWORKS[name])
    x = seeded(4, *network.input_shape)
    for radius in (1e-3, 0.3):
        assert_encloses(
            LocalReach(network, norm).around(x, torch.full((4,), radius, dtype=torch.float64)),
            network,
            x,
            radius,
            seed=3,
        )


class Patched(nn.Module):
    """Convolutions of all kinds, each entry of which depends on few pixels, and a sum of two ways."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=2, padding=1, padding_mode=mode)
        self.second = nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2, padding_mode=mode)
        self.third, self.norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = nn.functional.leaky_relu(x + 0.5 * self.norm(self.second(x)), 0.2)
        x = nn.functional.relu6(nn.functional.avg_pool2d(self.third(x), 2))
        return torch.sigmoid(self.last(x.mean(dim=[2, 3])))


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect", "replicate"])
@pytest.mark.parametrize("norm", NORMS)
def test_bounds_along_patches_hold_in_the_whole_ball(norm: float, mode: str) -> None:
    network = frozen(Patched(mode), (2, 24, 24))
    reach, x = LocalReach(network, norm), seeded(2, *network.input_shape)
    assert len(reach.patches.groups) >= 2
    for radius in (1e-3, 0.3):
        reached = reach.around(x, torch.full((2,), radius, dtype=torch.float64))
        assert_encloses(reached, network, x, radius, seed=5)


class PatchedMaxima(nn.Module):
    """Maxima of what is affine in the image, and of what was bent before; windows overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3)
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.first(x), 2)
        x = nn.functional.max_pool2d(torch.relu(self.second(x)), 3, stride=2, padding=1)
        x = nn.functional.leaky_relu(self.third(x), 0.1)
        return self.last(x.mean(dim=[2, 3]))


def test_what_a_maximum_takes_is_bounded_everywhere_not_only_where_it_bends() -> None:
    network = frozen(PatchedMaxima(), (1, 34, 34))
    names = [type(step.operation).__name__ for step in network.steps]
    assert names[:4] == ["Convolution", "MaximumPool", "Convolution", "Activation"]
    tightened = LocalReach(network, math.inf).tightened
    assert tightened[3] is None  # a ReLU takes it, but a maximum takes the result
    assert 4 not in tightened


@pytest.mark.parametrize("norm", NORMS)
def test_bounds_along_patches_go_through_maxima(norm: float) -> None:
    network = frozen(PatchedMaxima(), (1, 34, 34))
    reach, x = LocalReach(network, norm), seeded(2, *network.input_shape)
    assert len(reach.patches.groups) >= 2
    for radius in (1e-3, 0.3):
        reached = reach.around(x, torch.full((2,), radius, dtype=torch.float64))
        assert_encloses(reached, network, x, radius, seed=5)


@pytest.mark.parametrize("module", [Patched("zeros"), PatchedMaxima()], ids=["affine", "maxima"])
def test_bounds_along_patches_are_those_along_everything(module: nn.Module) -> None:
    network = frozen(module, (module.first.in_channels, 24, 24))  # type: ignore[union-attr]
    reach, x = LocalReach(network, math.inf), seeded(2, *network.input_shape)
    reached = reach.around(x, torch.full((2,), 0.02, dtype=torch.float64))
    for number in reach.patches.groups:
        wide = replace(reached.values[number], interval=Interval(*(torch.full_like(reached.values[number].centre, side)
                                                                   for side in (-1e6, 1e6))))  # fmt: skip
        every = torch.ones_like(wide.centre, dtype=torch.bool)
        nothing = torch.zeros(2, 2, math.prod(wide.shape), dtype=torch.float64)
        bounds = reach.patches.bounds(number, [*reached.values[:number], wide], every, AffineBounds(nothing, nothing))
        lower, upper = (side.view_as(wide.centre) for side in bounds.within(reached.ball.radius).unbind(1))
        along = Interval(lower, -upper)
        whole = reached._along_all(number, replace(wide, interval=along))
        for one, other in zip(along, whole, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("norm", NORMS)
def test_what_is_known_within_a_larger_radius_holds_in_a_smaller_one(norm: float) -> None:
    network = frozen(Patched("zeros"), (2, 24, 24))
    reach, x = LocalReach(network, norm), seeded(3, *network.input_shape)
    radii = torch.tensor([0.1, 0.02, 0.1], dtype=torch.float64)
    smaller = torch.tensor([0.08, 0.03, 0.01], dtype=torch.float64)  # only the first is little less
    larger = reach.around(x, radii)
    fresh, again = reach.around(x, smaller), reach.around(x, smaller, larger.known)
    for radius, image in zip(smaller.tolist(), range(3), strict=True):
        one = reach.around(x[[image]], smaller[[image]], larger.known.rows(torch.tensor([image])))
        assert_encloses(one, network, x[[image]], radius, seed=5)
    for number in reach.patches.groups:
        new, old = fresh.along_patches[number], again.along_patches[number]
        for some in (fresh.values[number].interval, again.values[number].interval):
            assert (some.lower <= some.upper).all()
        torch.testing.assert_close(old.start[1:], new.start[1:])
        torch.testing.assert_close(old.start[0], larger.along_patches[number].start[0])


@given(st.integers(0, 10_000), st.sampled_from([1e-9, 1e-2, 0.3]), st.sampled_from([1.0, 1e-8, 1e8]))
@settings(max_examples=15, deadline=None)
def test_bounds_along_patches_hold_in_exact_arithmetic(seed: int, radius: float, scale: float) -> None:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.LeakyReLU(0.25), nn.Linear(8, 2)).double()
    with torch.no_grad():
        for layer in module[:4:2]:  # entries depend on one other each
            layer.weight *= scale * torch.block_diag(*torch.ones(4, 2, 2))
            layer.bias *= scale
    network = berncert.freeze(module, (8,))
    x = torch.rand(1, 8, dtype=torch.float64)
    reach = LocalReach(network, math.inf)
    assert list(reach.patches.groups) == [3]
    low, high = reach.around(x, torch.tensor([radius], dtype=torch.float64)).values[3].interval
    cut = berncert.FrozenNetwork((8,), network.steps[:3])
    for _ in range(16):
        signs = torch.randint(0, 2, (8,)).mul(2).sub(1).tolist()
        point = [Fraction(v) + sign * Fraction(radius) for v, sign in zip(x[0].tolist(), signs, strict=True)]
        for value, least, most in zip(exactly(cut, point), low[0].tolist(), high[0].tolist(), strict=True):
            assert Fraction(least) <= value <= Fraction(most)


@pytest.mark.parametrize("norm", NORMS)
def test_a_larger_ball_never_has_narrower_bounds(norm: float) -> None:
    network = frozen(*NETWORKS["leaky"])
    x = seeded(3, 6)
    widths = []
    for radius in (0.01, 0.02, 0.1, 0.5):
        low, high = LocalReach(network, norm).around(x, torch.full((3,), radius, dtype=torch.float64)).features.interval
        widths.append((high - low).sum())
    assert widths == sorted(widths)


@pytest.mark.parametrize("norm", NORMS)
def test_of_an_affine_network_the_bounds_are_exact(norm: float) -> None:
    network = frozen(nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Linear(5, 2)), (1, 2, 2))
    weight = network.steps[2].operation.weight @ network.steps[1].operation.weight  # type: ignore[attr-defined]
    x = seeded(3, 1, 2, 2)
    rows = torch.eye(2, dtype=torch.float64).expand(3, 2, 2)
    bounds = (
        LocalReach(network, norm)
        .around(x, torch.full((3,), 0.7, dtype=torch.float64))
        .lower_bounds(rows, torch.zeros(3, 2))
    )
    dual = math.inf if norm == 1 else 1.0 if norm == math.inf else norm / (norm - 1)
    torch.testing.assert_close(bounds.start, network(x))
    torch.testing.assert_close(bounds.rate, torch.linalg.vector_norm(weight, dual, dim=1).expand(3, 2))


@given(st.integers(0, 10_000), st.sampled_from([1e-9, 1e-3, 0.2]), st.sampled_from([1.0, 1e-8, 1e8]))
@settings(max_examples=40, deadline=None)
def test_bounds_hold_in_exact_arithmetic_at_corners_of_the_ball(seed: int, radius: float, scale: float) -> None:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.LeakyReLU(0.25), nn.Linear(4, 2)).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
    network = berncert.freeze(module, (3,))
    x = torch.rand(1, 3, dtype=torch.float64)
    reached = LocalReach(network, math.inf).around(x, torch.tensor([radius], dtype=torch.float64))
    rows = torch.eye(2, dtype=torch.float64).repeat(2, 1)
    rows[2:] *= -1
    bounds = reached.lower_bounds(rows[None], torch.zeros(1, 4))
    least = [Fraction(v) for v in bounds.within(torch.tensor([radius], dtype=torch.float64))[0].tolist()]
    low, high = ([Fraction(v) for v in side[0].tolist()] for side in reached.features.interval)
    for corner in range(8):
        signs = [1 if corner >> i & 1 else -1 for i in range(3)]
        point = [Fraction(v) + sign * Fraction(radius) for v, sign in zip(x[0].tolist(), signs, strict=True)]
        a, b = exactly(network, point)
        assert low[0] <= a <= high[0]
        assert low[1] <= b <= high[1]
        assert all(bound <= value for bound, value in zip(least, (a, b, -a, -b), strict=True))


def exactly(network: FrozenNetwork, x: list[Fraction]) -> list[Fraction]:
    """The features in rational arithmetic."""
    for step in network.steps:
        tensors = step.operation.tensors()
        if "weight" in tensors:
            weight, bias = tensors["weight"].tolist(), tensors["bias"].tolist()
            x = [
                sum((Fraction(w) * v for w, v in zip(row, x, strict=True)), Fraction(b))
                for row, b in zip(weight, bias, strict=True)
            ]
        else:
            below = Fraction(float(tensors["by"].flatten()[0])) if "by" in tensors else Fraction(0)
            x = [v if v > 0 else below * v for v in x]
    return x


def intervals() -> tuple[torch.Tensor, torch.Tensor]:
    """Wide ones and narrow ones, (1, 400)."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.rand(400, 2, generator=generator, dtype=torch.float64).mul(16).sub(8)
    ends[:100, 1] = ends[:100, 0] + 1e-3
    low, high = ends.amin(dim=1)[None], ends.amax(dim=1)[None]
    return low, high


@pytest.mark.parametrize("name", CURVES)
def test_lines_stay_below_and_above_their_curve_and_not_far(name: str) -> None:
    curve = CURVES[name]
    low, high = intervals()
    lines = curve_lines(curve.function, Interval(low, high), curve.shape, torch.zeros(()))
    shares = torch.linspace(0, 1, 1001, dtype=torch.float64)[:, None]
    points = (low + (high - low) * shares).clamp(low, high)
    values = curve.function(points)
    below, above = (slope * points + at for slope, at in (lines[:2], lines[2:]))
    assert (below <= values + 1e-12).all()
    assert (above >= values - 1e-12).all()
    sag = curve.shape.bend * (high - low)[0].square() / 8
    kinked = torch.stack([((low < kink) & (high > kink))[0] for kink in curve.shape.kinks] or [torch.zeros(400) > 0])
    gaps = torch.stack([(values - below).amin(dim=0), (above - values).amin(dim=0)])
    smooth = ~kinked.any(dim=0)
    assert (gaps[:, smooth] <= sag[smooth] / 64 * 1.1 + 1e-9).all()  # each touches its curve, but for what is proven


@pytest.mark.parametrize("name", CURVES)
def test_no_slope_between_kinks_changes_faster_than_is_said(name: str) -> None:
    shape = CURVES[name].shape
    x = torch.linspace(-12, 12, 480_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(CURVES[name].function(x).sum(), x)
    width = 24 / 480_000
    faster = (slope.diff().abs() > (shape.bend + 1e-6) * width * 1.001 + 1e-9).nonzero().flatten()
    kinks = x.detach().new_tensor(shape.kinks)
    for i in faster.tolist():
        assert kinks.numel()
        assert float((kinks - x[i].detach()).abs().min()) <= 2 * width
    turn = -math.inf if shape.turn is None else shape.turn
    away = (x - turn).abs() > TURN
    assert (slope[away & (x < turn)] <= 1e-12).all()
    assert (slope[away & (x > turn)] >= -1e-12).all()


@pytest.mark.parametrize("name", CURVES)
def test_the_range_of_a_curve_is_what_it_takes_and_no_more(name: str) -> None:
    curve = CURVES[name]
    low, high = intervals()
    found = curve_range(curve.function, Interval(low, high), curve.shape, torch.full((), 1e-15, dtype=torch.float64))
    values = curve.function(low + (high - low) * torch.linspace(0, 1, 10_001, dtype=torch.float64)[:, None])
    assert (found.lower <= values.amin(dim=0)).all()
    assert (found.upper >= values.amax(dim=0)).all()
    between = 1e-6 if curve.shape.bend else 1e-4 * (high - low)[0]  # what can lie between the points that are tried
    assert (values.amin(dim=0) - found.lower <= between).all()
    assert (found.upper - values.amax(dim=0) <= 1e-12).all()


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu", "mish"])
def test_a_curve_turns_where_it_is_said_to(name: str) -> None:
    curve = CURVES[name]
    assert curve.shape.turn is not None
    around = torch.tensor([curve.shape.turn - TURN, curve.shape.turn + TURN], dtype=torch.float64, requires_grad=True)
    before, after = torch.autograd.grad(curve.function(around).sum(), around)[0].tolist()
    assert before < -1e-10
    assert after > 1e-10


def shaken(value: Tensor, seed: int) -> Tensor:
    """The same but for last bits, as sums in another order leave them."""
    noise = torch.randint(-4, 5, value.shape, generator=torch.Generator().manual_seed(seed))
    return value * (1 + noise * 2.0**-52)


def spans(count: int) -> tuple[Tensor, Tensor]:
    """Intervals, of which every fourth has 0 in its middle, and every other fourth is thin."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.rand(count, 2, generator=generator, dtype=torch.float64).mul(8).sub(4)
    ends[::4, 1] = -ends[::4, 0]
    ends[1::4, 1] = ends[1::4, 0] + 1e-2
    return ends.amin(dim=1)[None], ends.amax(dim=1)[None]


@pytest.mark.parametrize("name", ["leaky", *CURVES])
def test_last_bits_of_an_interval_do_not_choose_another_line(name: str) -> None:
    low, high = spans(400)

    def lines(interval: Interval) -> Lines:
        if name in ("leaky", "relu"):
            return kinked_lines(interval, 0.1 if name == "leaky" else 0.0)
        return curve_lines(CURVES[name].function, interval, CURVES[name].shape, torch.zeros(()))

    first = lines(Interval(low, high))
    for seed in range(4):
        for one, other in zip(first, lines(Interval(shaken(low, seed), shaken(high, seed + 10))), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_last_bits_do_not_choose_another_entry_of_a_window() -> None:
    low, high = spans(40)
    index = torch.arange(40).view(-1, 4)
    low, high = (torch.where(torch.arange(40) < 20, side[:, :1], side) for side in (low, high))  # equal ones
    rows = seeded(1, 6, 10)

    def pulled(interval: Interval) -> Pulled:
        return through_maxima(
            rows, index, LocalValue(interval.lower, interval, 2.0, (1.0, 2.0, math.inf), seeded(1, 3))
        )

    first = pulled(Interval(low, high))
    for seed in range(4):
        again = pulled(Interval(shaken(low, seed), shaken(high, seed + 10)))
        torch.testing.assert_close(first.rows[0], again.rows[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(first.constant, again.constant, rtol=1e-6, atol=1e-6)


def test_what_overflows_bounds_nothing() -> None:
    network = frozen(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), (2,))
    reached = LocalReach(network, math.inf).around(torch.rand(1, 2), torch.tensor([1e308]))
    low, high = reached.features.interval
    assert not (low > -1e300).any()
    assert not (high < 1e300).any()


def test_values_of_some_images_are_those_of_all() -> None:
    value = LocalValue(seeded(4, 3), Interval(seeded(4, 3), seeded(4, 3)), 2.0, (1.0, 2.0, math.inf), seeded(4, 3))
    some = value.rows(torch.tensor([2, 0]))
    assert torch.equal(some.centre, value.centre[[2, 0]])
    assert torch.equal(some.balls, value.balls[[2, 0]])


@pytest.mark.parametrize("norm", [1.001, 1.01, 20.0, 300.0])
def test_powers_of_small_numbers_do_not_vanish_from_bounds(norm: float) -> None:
    """Weights and radii far below 1, in norms whose powers, or those of the dual norm, are below the least float."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(16, 4), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x.flatten(1))
            return self.last(torch.cat([y.relu(), (-y).relu()], dim=1))

    torch.manual_seed(0)
    network = Joined().double()
    with torch.no_grad():
        network.first.weight.mul_(1e-9)
        network.last.weight.mul_(1e9)
    images = torch.rand(4, 1, 4, 4, dtype=torch.float64)
    reached = LocalReach(berncert.freeze(network, (1, 4, 4)), norm).around(
        images, torch.full((4,), 0.1, dtype=torch.float64)
    )
    low, high = reached.features.interval
    balls = reached.features.balls[:, -1]
    for _ in range(20):
        step = torch.randn_like(images).sign()
        step = 0.1 * step / (step.abs() ** norm).flatten(1).sum(dim=1).pow(1 / norm).view(-1, 1, 1, 1)
        y = network(images + 0.999 * step).detach()
        assert ((low <= y) & (y <= high)).all()
        moved = (y - reached.features.centre).abs()
        assert (moved.amax(dim=1) <= balls).all()
