"""Whole networks: frozen they compute the same; what is shared, hooked, parametrised, unknown or changing."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from networks import Block, Net, net, random_network, random_statistics
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from truth import INF, assert_linear_bounded, assert_smooth_bounded

from berncert.extractor import MaxMin, UnitCube, build, freeze, lipschitz_bound, lipschitz_table


@pytest.mark.parametrize("seed", range(3))
def test_a_residual_network_is_bounded_between_all_norms(seed: int) -> None:
    network = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), Block(2), nn.AvgPool2d(2), Block(2), nn.Flatten(), nn.Linear(8, 3), nn.Sigmoid()
    )
    assert_smooth_bounded(random_statistics(network, seed), (1, 4, 4), 3.0, seed=seed, points=3)


def test_a_chain_is_bounded_by_the_product_and_the_table_shows_it() -> None:
    a, b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    a.weight.data, b.weight.data = 2 * torch.eye(3), 5 * torch.eye(3)
    table = lipschitz_table(nn.Sequential(a, nn.ReLU(), b), (3,))
    assert [row.name for row in table] == ["0", "1", "2"]
    assert [row.running for row in table] == pytest.approx([2.0, 2.0, 10.0], rel=1e-9)
    assert [row.factor for row in table] == pytest.approx([2.0, 1.0, 5.0], rel=1e-9)


def test_a_layer_used_twice_counts_twice() -> None:
    layer = nn.Linear(3, 3, bias=False)
    layer.weight.data = 3 * torch.eye(3)
    assert lipschitz_bound(nn.Sequential(layer, nn.ReLU(), layer), (3,)) == pytest.approx(9.0, rel=1e-9)
    table = lipschitz_table(net(lambda s, x: s.l(x) + s.l(x), l=layer), (3,))
    assert table.bound == pytest.approx(6.0, rel=1e-9)
    assert [row.name for row in table] == ["l", "l", "add"]
    assert [row.factor for row in table][:2] == pytest.approx([3.0, 3.0], rel=1e-9)


@pytest.mark.parametrize("between", [nn.Identity(), nn.Dropout(), nn.Flatten()], ids=lambda m: type(m).__name__)
def test_each_call_of_a_layer_that_is_called_with_its_own_result_is_a_row(between: nn.Module) -> None:
    cube = UnitCube(0.5)  # three operations, which make one row
    table = lipschitz_table(net(lambda s, x: s.cube(s.cube(s.between(s.cube(x)))), cube=cube, between=between), (3,))
    assert [row.name for row in table] == ["cube", "cube (call 2)", "cube (call 3)"]
    assert [row.factor for row in table] == pytest.approx([2.0, 2.0, 2.0], rel=1e-9)
    assert [row.running for row in table] == pytest.approx([2.0, 4.0, 8.0], rel=1e-9)


def test_a_network_that_returns_its_input_or_an_early_value_is_bounded_as_that() -> None:
    assert lipschitz_bound(net(lambda s, x: x), (3,)) == 1.0
    assert lipschitz_bound(nn.Sequential(), (3,)) == 1.0

    def forward(s: Any, x: Tensor) -> Tensor:
        early = s.a(x)
        s.b(early)
        return early

    network = net(forward, a=nn.Linear(3, 3), b=nn.Linear(3, 3))
    assert lipschitz_bound(network, (3,)) == pytest.approx(lipschitz_bound(network.a, (3,)), rel=1e-9)
    assert [row.name for row in lipschitz_table(network, (3,))] == ["a"]  # what nothing uses is left out
    assert len(freeze(net(lambda s, x: x), (3,)).steps) == 0


def test_what_rounding_the_image_does_is_counted_even_if_nothing_else_happens() -> None:
    assert lipschitz_table(net(lambda s, x: x), (3,), unit=2.0**-24).value.error[0] >= 2.0**-24


# ---- what cannot be followed ----


def test_a_forward_that_looks_at_its_data_is_refused() -> None:
    for forward in [
        lambda s, x: x * 2 if x.sum() > 0 else x,
        lambda s, x: x * float(x.max()),
        lambda s, x: x * x.max().item(),
        lambda s, x: x[:, : int(x.sum())],
    ]:
        with pytest.raises(TypeError, match=r"cannot be followed|no Lipschitz bound"):
            lipschitz_bound(net(forward), (4,))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.LayerNorm(4), (4,)),
        (nn.LSTM(4, 4, batch_first=True), (3, 4)),
        (nn.Embedding(4, 4), (4,)),
        (nn.GroupNorm(2, 4), (4, 2, 2)),
        (nn.InstanceNorm2d(4), (4, 2, 2)),
        (nn.MultiheadAttention(4, 2), (3, 4)),
        (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (3, 4)),
        (nn.ConvTranspose2d(4, 4, 3), (4, 5, 5)),
        (nn.Conv1d(4, 4, 3), (4, 5)),
        (nn.Bilinear(4, 4, 4), (4,)),
        (nn.GLU(), (4,)),
        (nn.Upsample(scale_factor=2, mode="bilinear"), (4, 2, 2)),
        (nn.LocalResponseNorm(2), (4, 2, 2)),
        (nn.Softmin(dim=1), (4,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_layer_without_a_proof_is_a_type_error_that_names_it(module: nn.Module, shape: tuple[int, ...]) -> None:
    network = nn.Sequential(nn.Identity(), module).eval()
    with pytest.raises(TypeError, match=rf"{type(module).__name__}.*register"):
        lipschitz_bound(network, shape)


class Careful(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 10 * x if isinstance(x, Tensor) else x


class Lonely(nn.Module):
    """Treats a single image in another way."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x if isinstance(x, Tensor) and len(x) == 1 else x


class Bright(nn.Module):
    """Treats images of large numbers in another way."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x if isinstance(x, Tensor) and float(x.abs().max()) > 500 else x


class Narrow(nn.Module):
    """Computes something else in single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return (3 if next(self.parameters()).dtype == torch.float32 else 1) * x * self.weight


@pytest.mark.parametrize("kind", [Careful, Lonely, Bright, Narrow])
def test_a_network_that_computes_something_else_than_it_seems_to_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(TypeError, match=r"does not compute what its forward says.*difference|cannot be followed"):
        freeze(kind(), (4,))


def test_a_network_that_overflows_on_every_image_is_refused_for_what_it_is() -> None:
    network = nn.Sequential(*(nn.Linear(1, 1, bias=False, dtype=torch.float64) for _ in range(3)))
    for layer in network:
        layer.weight.data.fill_(1e150)
    with pytest.raises(TypeError, match="no finite numbers"):
        freeze(network, (1,))


def test_a_network_of_two_images_or_two_values_is_refused() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, 2 * x

    with pytest.raises(TypeError):
        lipschitz_bound(Two(), (4,))
    with pytest.raises(TypeError, match="one tensor"):
        lipschitz_bound(Pair(), (4,))


def test_a_wrong_input_shape_is_explained() -> None:
    for module, shape in [
        (nn.Linear(4, 3), (5,)),
        (nn.Conv2d(3, 4, 3), (1, 8, 8)),
        (nn.Conv2d(3, 4, 9), (3, 8, 8)),
        (nn.Conv2d(3, 3, 3), (8, 8)),
        (nn.MaxPool2d(2), (8, 8)),
        (nn.BatchNorm2d(3).eval(), (4, 8, 8)),
        (MaxMin(), (5,)),
    ]:
        with pytest.raises(ValueError, match=r"shape|input"):
            lipschitz_bound(module, shape)


# ---- hooks, parametrisations, subclasses ----


def test_hooks_that_change_what_a_layer_computes_are_refused_or_bounded() -> None:
    def louder(module: nn.Module, args: Any, out: Tensor | None = None) -> Any:
        return 10 * out if out is not None else (10 * args[0],)

    for register in ("register_forward_hook", "register_forward_pre_hook"):
        layer = nn.Linear(3, 3).double()
        getattr(layer, register)(louder)
        with pytest.raises(TypeError, match="hooks"):
            lipschitz_bound(layer, (3,))
        block = nn.Sequential(nn.Linear(3, 3)).double()  # of a container: they are traced
        getattr(block, register)(louder)
        assert_linear_bounded(block, (3,), 3.0)
        relu = nn.ReLU()
        getattr(relu, register)(louder)
        with pytest.raises(TypeError, match="hooks"):
            lipschitz_bound(nn.Sequential(relu), (3,))


def test_hooks_on_every_module_are_refused() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: 10 * out)
    try:
        with pytest.raises(TypeError, match="hook"):
            lipschitz_bound(nn.Linear(3, 3), (3,))
    finally:
        handle.remove()


@pytest.mark.parametrize(
    "make", [parametrizations.spectral_norm, parametrizations.weight_norm, parametrizations.orthogonal]
)
def test_torchs_parametrised_layers_are_bounded_by_the_weight_in_use(make: Any) -> None:
    layer = make(nn.Linear(4, 3).double()).eval()
    assert_linear_bounded(layer, (4,), 3.0)
    with pytest.raises(ValueError, match="evaluation"):
        lipschitz_bound(layer.train(), (4,))
    if make is not parametrizations.orthogonal:
        assert_linear_bounded(make(nn.Conv2d(2, 3, 3).double()).eval(), (2, 5, 5), 3.0)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("make", [nn.utils.spectral_norm, nn.utils.weight_norm])
def test_torchs_older_hooks_are_refused_or_bounded_by_the_weight_in_use(make: Any) -> None:
    for layer, shape in [(nn.Linear(4, 3), (4,)), (nn.Conv2d(2, 3, 3), (2, 5, 5))]:
        layer = make(layer.double()).eval()
        try:
            assert_linear_bounded(layer, shape, 3.0)
        except TypeError as error:
            assert "hooks" in str(error)  # noqa: PT017
            continue
        original = next(p for name, p in layer.named_parameters() if name in ("weight_orig", "weight_g"))
        original.data *= 7 if original.ndim < layer.weight.ndim or make is nn.utils.weight_norm else 1
        original.data[0] += 3.0  # the weight follows only when the layer is called
        assert_linear_bounded(layer, shape, 3.0)


def test_torchs_older_spectral_norm_in_training_is_refused() -> None:
    layer = nn.utils.spectral_norm(nn.Linear(4, 3))
    with pytest.raises(ValueError, match="evaluation"):
        lipschitz_bound(layer, (4,))


def test_a_subclass_with_a_forward_of_its_own_is_followed() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 4 * super().forward(x)

    class Strange(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 2 * x

    layer = Scaled(3, 3).double()
    assert assert_linear_bounded(layer, (3,), 3.0) <= 1 + 1e-9
    assert_linear_bounded(Strange(nn.Linear(3, 3), nn.Linear(3, 3)).double(), (3,), 3.0)


# ---- batch normalisation folded into the layer before it ----


@pytest.mark.parametrize("seed", range(12))
def test_a_layer_and_its_normalisation_have_never_more_than_their_product_and_never_less_than_their_norm(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    if seed % 2:
        conv = nn.Conv2d(2, 4, int(rng.integers(1, 4)), int(rng.integers(1, 3)), groups=int(rng.integers(1, 3)))
        network, shape = nn.Sequential(conv, nn.BatchNorm2d(4)), (2, 5, 5)
    else:
        network, shape = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)), (5,)
    random_statistics(network, seed)
    assert assert_linear_bounded(network, shape, float(rng.choice([1.5, 3.0]))) <= 1 + 1e-6
    apart = nn.Sequential(network[0], nn.ReLU(), network[1])  # the same factors, not foldable
    for p in (1, 2, INF):
        assert lipschitz_bound(network, shape, p) <= lipschitz_bound(apart, shape, p) * (1 + 1e-12)
    assert lipschitz_table(network, shape).rows[-1].layer.count("+") == 1


def test_a_normalisation_of_another_axis_is_not_folded() -> None:
    # on (tokens, features) BatchNorm1d scales tokens, and here there are as many as features
    network = random_statistics(nn.Sequential(nn.Linear(7, 4), nn.BatchNorm1d(4)), 0)
    network[1].running_var = torch.tensor([0.001, 10.0, 10.0, 10.0], dtype=torch.float64)
    network[1].weight.data.fill_(1.0)
    network[0].weight.data[0] *= 1e-3
    assert_linear_bounded(network, (4, 7), 3.0)
    assert_linear_bounded(random_statistics(nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(4)), 1), (4, 7), 3.0)


@pytest.mark.parametrize("between", [None, nn.Identity(), nn.Dropout(), nn.Flatten()], ids=lambda m: type(m).__name__)
def test_a_layer_whose_value_is_used_elsewhere_too_is_not_folded(between: nn.Module | None) -> None:
    def forward(s: Any, x: Tensor) -> Tensor:
        y = s.l(x)
        return torch.cat([s.n(y if s.between is None else s.between(y)), y], 1)

    network = random_statistics(Net(forward, l=nn.Linear(4, 4), n=nn.BatchNorm1d(4), between=between), 2)
    assert_linear_bounded(network, (4,), 3.0)
    assert [row.layer for row in lipschitz_table(network, (4,))] == ["Linear", "BatchNorm1d", "cat"]


def test_normalisations_in_a_row_are_folded_and_one_at_the_start_stands_alone() -> None:
    network = random_statistics(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4), *two_normalisations()), 5)
    assert assert_linear_bounded(network[1:], (4,), 3.0) <= 1 + 1e-9
    assert_linear_bounded(network, (4,), 3.0)
    layers = [row.layer for row in lipschitz_table(network, (4,))]
    assert layers == ["BatchNorm1d", "Linear+BatchNorm1d+BatchNorm1d"]


def two_normalisations() -> list[nn.Module]:
    return [nn.BatchNorm1d(4), nn.BatchNorm1d(4)]


def test_two_normalisations_after_one_shared_layer_are_folded_each_with_its_own() -> None:
    network = random_statistics(
        Net(lambda s, x: s.b(s.l(s.a(s.l(x)))), l=nn.Linear(4, 4), a=nn.BatchNorm1d(4), b=nn.BatchNorm1d(4)), 3
    )
    assert_linear_bounded(network, (4,), 3.0)


# ---- the frozen network ----


def assert_frozen(network: nn.Module, shape: tuple[int, ...], like: float = 1e-9) -> None:
    """The frozen network computes what the network does, image by image."""
    frozen = freeze(network, shape)
    for scale in (1.0, 1e-3, 100.0):
        x = scale * torch.randn(4, *shape, dtype=torch.float64)
        with torch.no_grad():
            expected = copy.deepcopy(network).double()(x)
            assert frozen(x).shape == expected.shape == (4, *frozen.output_shape)
            torch.testing.assert_close(frozen(x), expected, rtol=like, atol=like * float(expected.abs().max()))


def test_a_frozen_network_computes_what_it_was_frozen_from() -> None:
    rng = np.random.default_rng(1)
    for seed in range(6):
        torch.manual_seed(seed)
        assert_frozen(random_network(rng), (1, 5, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_network_in_less_than_double_precision_is_frozen_with_the_numbers_it_has(dtype: torch.dtype) -> None:
    network = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).to(dtype)
    assert_frozen(network, (6,))
    assert torch.equal(freeze(network, (6,)).steps[0].operation.weight, network[0].weight.detach().double())


def test_what_happens_to_the_network_afterwards_does_not_reach_the_frozen_one() -> None:
    network = random_statistics(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.PReLU(4), nn.Linear(4, 2)), 6)
    frozen, x = freeze(network, (4,)), torch.rand(3, 4, dtype=torch.float64)
    before, digest = frozen(x), frozen.digest()
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            tensor.fill_(7)
    torch.testing.assert_close(frozen(x), before, rtol=1e-12, atol=1e-12)
    assert frozen.digest() == digest
    assert not list(frozen.parameters())
    assert not any(t.requires_grad for step in frozen.steps for t in step.operation.tensors().values())


def test_a_frozen_network_is_frozen_already_and_for_one_shape() -> None:
    frozen = freeze(nn.Conv2d(1, 2, 3), (1, 5, 5))
    assert freeze(frozen, [1, 5, 5]) is frozen
    with pytest.raises(ValueError, match=r"frozen for, \(1, 5, 5\)"):
        freeze(frozen, (1, 6, 6))


def test_the_same_network_is_frozen_to_the_same_steps() -> None:
    network = random_network(np.random.default_rng(2))
    assert freeze(network, (1, 5, 5)).digest() == freeze(copy.deepcopy(network), (1, 5, 5)).digest()


def test_a_frozen_network_says_what_it_comes_from() -> None:
    assert freeze(nn.Linear(2, 2), (2,)).about == {"name": "Linear"}
    described = build("mlp", (1, 4, 4), 3, depth=1, width=8).eval()
    assert freeze(described, (1, 4, 4)).about == described.description


def test_a_network_that_cannot_be_copied_is_refused_with_the_reason() -> None:
    network = nn.Linear(2, 2)
    network.generator = (i for i in range(3))
    with pytest.raises(TypeError, match=r"expected a network that can be copied, got Linear"):
        freeze(network, (2,))


# ---- random networks ----


def test_random_networks_are_bounded_between_all_norms() -> None:
    rng = np.random.default_rng(0)
    for seed in range(8):
        torch.manual_seed(seed)
        assert_smooth_bounded(random_network(rng), (1, 4, 4), float(rng.choice([1.5, 3.0])), seed=seed, points=3)


def test_bounding_changes_neither_the_network_nor_the_random_state() -> None:
    network = random_statistics(nn.Sequential(nn.Conv2d(1, 2, 3), Block(2)), 4)
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    first = lipschitz_bound(network, (1, 5, 5))
    assert lipschitz_bound(network, (1, 5, 5)) == pytest.approx(first, rel=1e-9)
    assert torch.equal(torch.get_rng_state(), state)
    after = network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
