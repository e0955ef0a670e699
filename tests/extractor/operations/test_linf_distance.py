"""The frozen distance layers, plain and sorted: their stretch in every norm, rounding, and the modules behind them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from networks import seeded
from torch import Tensor, nn
from truth import INF, assert_smooth_bounded

import berncert
from berncert.extractor import LinfDistance, SortedDistance, UnitCube, freeze, lipschitz_bound, lipschitz_table
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.frozen import FrozenNetwork, Step
from berncert.extractor.operations import Distance
from berncert.extractor.operations import SortedDistance as FrozenSorted


def layer(inputs: int = 6, outputs: int = 5, *, negative: bool = False) -> LinfDistance:
    module = LinfDistance(inputs, outputs, negative=negative).double().eval()
    module.weight.data = seeded(outputs, inputs)
    module.bias.data, module.mean = seeded(outputs), seeded(outputs + 1)[1:]
    return module


def sorted_layer(inputs: int = 6, outputs: int = 5, *, negative: bool = False, decay: float = 0.5) -> SortedDistance:
    module = SortedDistance(inputs, outputs, negative=negative, decay=decay).double().eval()
    module.load_state_dict(layer(inputs, outputs).state_dict() | {"shares": module.shares})
    return module


def network(depth: int = 3, width: int = 8) -> nn.Sequential:
    kinds = (layer, sorted_layer)
    hidden = [kinds[i % 2](6 if i == 0 else width, width, negative=i % 4 == 1) for i in range(depth)]
    return nn.Sequential(*hidden, layer(width, 3, negative=True), UnitCube(4.0)).eval()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("kind", [layer, sorted_layer])
def test_distances_are_bounded_between_all_norms(kind: Callable[..., LinfDistance], seed: int, negative: bool) -> None:
    assert_smooth_bounded(kind(negative=negative), (6,), 1.5, seed=seed, points=6)


@pytest.mark.parametrize("seed", range(10))
def test_no_pair_of_images_is_stretched_in_linf(seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    module = network()
    x = torch.randn(200, 6, dtype=torch.float64, generator=chance)
    for scale in (1e-6, 0.1, 3.0):
        signs = torch.randn(200, 6, dtype=torch.float64, generator=chance).sign()  # corners of the ball
        for y in (x + scale * signs, x + scale * torch.randn(200, 6, dtype=torch.float64, generator=chance)):
            moved = (module(x) - module(y)).abs().amax(dim=1)
            assert (moved <= (x - y).abs().amax(dim=1) / 4 * (1 + 1e-9) + 1e-15).all()


def test_the_bound_in_linf_is_1_and_is_reached() -> None:
    module = layer()
    assert lipschitz_bound(module, (6,), norm=INF) == pytest.approx(1, abs=1e-12)
    x = seeded(20, 6).requires_grad_()
    (slope,) = torch.autograd.grad(module(x)[:, 0].sum(), x)
    step = 1e-6 * slope.sign()
    moved = (module(x + step) - module(x)).abs().amax(dim=1) / step.abs().amax(dim=1)
    assert float(moved.max().detach()) == pytest.approx(1, rel=1e-6)


def test_the_bound_of_a_deep_network_does_not_grow_with_its_depth() -> None:
    assert lipschitz_bound(network(depth=5), (6,), norm=INF) == pytest.approx(0.25, abs=1e-12)
    assert lipschitz_bound(network(depth=5), (6,), norm=2) == pytest.approx(math.sqrt(3) / 4, abs=1e-12)


def test_a_frozen_distance_layer_computes_what_the_module_does() -> None:
    for module in (layer(), layer(negative=True), sorted_layer(), sorted_layer(negative=True), network()):
        frozen, x = freeze(module, (6,)), seeded(30, 6)
        torch.testing.assert_close(frozen(x), module(x), rtol=1e-12, atol=1e-12)


def test_the_means_are_part_of_the_frozen_bias() -> None:
    (step,) = freeze(layer(), (6,)).steps
    assert isinstance(step.operation, Distance)
    torch.testing.assert_close(step.operation.bias, layer().bias.detach() - layer().mean)


def test_a_layer_in_training_is_not_frozen() -> None:
    with pytest.raises(ValueError, match="evaluation mode"):
        freeze(layer().train(), (6,))


@pytest.mark.parametrize("decay", [0.01, 0.3, 0.5, 0.9, 0.99])
def test_shares_fall_geometrically_and_their_exact_sum_is_at_most_1(decay: float) -> None:
    shares = SortedDistance(2000, 1, decay=decay).shares.double()
    assert 0.998 < sum(map(Fraction, shares.tolist())) <= 1
    assert float(shares[0]) == pytest.approx(1 - decay, rel=1e-6)
    torch.testing.assert_close(shares[1:], decay * shares[:-1], rtol=1e-6, atol=0)


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, math.nan])
def test_a_decay_that_is_none_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="expected decay between 0 and 1"):
        SortedDistance(4, 3, decay=decay)


def exact(operation: Distance | FrozenSorted, row: Tensor) -> list[Fraction]:
    x = [Fraction(v) for v in row.tolist()]
    shares = [Fraction(s) for s in operation.shares.tolist()] if isinstance(operation, FrozenSorted) else [Fraction(1)]
    downwards = [
        sorted((abs(a - Fraction(w)) for a, w in zip(x, point, strict=True)), reverse=True)
        for point in operation.weight.tolist()
    ]
    found = [sum((s * d for s, d in zip(shares, row, strict=False)), Fraction(0)) for row in downwards]
    signed = [-d if operation.negative else d for d in found]
    return [d + Fraction(b) for d, b in zip(signed, operation.bias.tolist(), strict=True)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_the_computed_value_is_within_its_rounding_bound(dtype: torch.dtype, scale: float, is_sorted: bool) -> None:
    unit = UNIT if dtype == torch.float64 else 2.0**-24
    weight, bias, shares = scale * seeded(5, 6), seeded(5), 0.3 * 0.7 ** torch.arange(9, dtype=torch.float64)
    operation = FrozenSorted(weight, bias, shares, True) if is_sorted else Distance(weight, bias, negative=True)
    frozen = FrozenNetwork((6,), [Step(operation, (0,), "layer", "Layer")])
    error = lipschitz_table(frozen, (6,), INF, unit=unit).value.error
    for row in seeded(20, 6):
        computed = operation.to(dtype, torch.device("cpu")).evaluate(row[None].to(dtype))[0].tolist()
        off = math.sqrt(sum(float(a - Fraction(b)) ** 2 for a, b in zip(exact(operation, row), computed, strict=True)))
        assert off <= error[0] * float(row.norm()) + error[1]


def test_a_saved_network_is_the_network(tmp_path: object) -> None:
    head = nn.Linear(3, 4).double()
    model = berncert.Classifier(network(), head).eval().smooth(degree=1)
    path = f"{tmp_path}/model.safetensors"
    berncert.save(model, path, input_shape=(6,))
    x = seeded(8, 6)
    loaded = berncert.load(path)
    assert torch.equal(loaded(x), model.freeze(input_shape=(6,))(x))
    c = berncert.certify(loaded, x, norm=INF)
    assert (c.radius >= 0).all()
    assert c.lipschitz_bound[0] <= 0.25 * (1 + 1e-12)
