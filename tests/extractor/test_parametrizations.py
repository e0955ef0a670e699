"""Layers that are kept at a norm of at most 1: proven in evaluation, trained, exported, saved."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from truth import matrix_of

from berncert.extractor import MaxMin, almost_orthogonal, export, lipschitz_bound, miyato, orthogonal, spectral

Make = Callable[[], nn.Module]


def conv(*args: int, **options: object) -> nn.Conv2d:
    return nn.Conv2d(*args, **options, dtype=torch.float64)


def linear(*args: int) -> nn.Linear:
    return nn.Linear(*args, dtype=torch.float64)


LAYERS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "spectral linear": (lambda: spectral(linear(7, 5)), (7,)),
    "spectral wide": (lambda: spectral(linear(3, 40)), (3,)),
    "spectral large": (lambda: spectral(linear(500, 450)), (500,)),
    "spectral conv": (lambda: spectral(conv(3, 4, 3, padding=1)), (3, 8, 8)),
    "spectral strided": (lambda: spectral(conv(3, 4, 4, stride=2, padding=1)), (3, 9, 8)),
    "spectral groups": (lambda: spectral(conv(4, 6, 3, padding=1, groups=2)), (4, 7, 7)),
    "spectral dilated": (lambda: spectral(conv(2, 3, 3, padding=2, dilation=2)), (2, 9, 9)),
    "spectral circular": (lambda: spectral(conv(2, 3, 3, padding=1, padding_mode="circular")), (2, 6, 6)),
    "spectral same": (lambda: spectral(conv(2, 3, 5, padding="same")), (2, 6, 6)),
    "spectral sized": (lambda: spectral(conv(2, 3, 3, padding=1), (6, 6)), (2, 6, 6)),
    "spectral reflect": (lambda: spectral(conv(2, 3, 3, padding=1, padding_mode="reflect"), (6, 6)), (2, 6, 6)),
    "spectral wide kernel": (lambda: spectral(conv(1, 2, 3, padding=9, dilation=9)), (1, 20, 20)),
    "spectral reaching beyond its probe": (lambda: spectral(conv(1, 2, 3, dilation=9)), (1, 20, 20)),
    "orthogonal linear": (lambda: orthogonal(linear(7, 5)), (7,)),
    "orthogonal tall": (lambda: orthogonal(linear(5, 9)), (5,)),
    "orthogonal 1x1": (lambda: orthogonal(conv(4, 6, 1)), (4, 5, 5)),
    "orthogonal patches": (lambda: orthogonal(conv(3, 5, 2, stride=2)), (3, 6, 6)),
    "orthogonal strided 1x1": (lambda: orthogonal(conv(3, 5, 1, stride=3)), (3, 7, 6)),
    "almost linear": (lambda: almost_orthogonal(linear(7, 5)), (7,)),
    "almost tall": (lambda: almost_orthogonal(linear(5, 9)), (5,)),
    "almost conv": (lambda: almost_orthogonal(conv(3, 4, 3, padding=1)), (3, 8, 8)),
    "almost narrowing": (lambda: almost_orthogonal(conv(5, 2, 3, padding=1)), (5, 6, 6)),
    "almost strided": (lambda: almost_orthogonal(conv(3, 4, 3, stride=2, padding=1)), (3, 8, 8)),
    "almost groups": (lambda: almost_orthogonal(conv(4, 6, 3, padding=1, groups=2)), (4, 7, 7)),
    "almost dilated": (lambda: almost_orthogonal(conv(2, 3, 3, padding=2, dilation=2)), (2, 9, 9)),
    "almost asymmetric": (lambda: almost_orthogonal(conv(2, 3, (1, 4), padding=(0, 2))), (2, 6, 6)),
}
SMALL = [name for name in LAYERS if "large" not in name]
NEAR_PROBE = [name for name in SMALL if name.startswith("spectral") and "beyond" not in name]


def train(layer: nn.Module, shape: tuple[int, ...], steps: int, rate: float = 0.1) -> list[float]:
    """Towards more of what the layer lets through; the losses on the way."""
    x = torch.randn(8, *shape, dtype=torch.float64)
    optimiser = torch.optim.Adam(layer.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        loss = -layer.train()(x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", LAYERS)
def test_in_evaluation_the_proven_bound_is_at_most_1_from_the_start(name: str) -> None:
    make, shape = LAYERS[name]
    assert 0.2 < lipschitz_bound(make().eval(), shape) <= 1


@pytest.mark.parametrize("name", SMALL)
def test_in_evaluation_the_proven_bound_is_at_most_1_after_training_and_for_any_weights(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make()
    train(layer, shape, 10)
    assert lipschitz_bound(layer.eval(), shape) <= 1
    original = layer.parametrizations.weight.original
    for scale in (1e-3, 30.0):
        original.data = scale * torch.randn_like(original)
        assert lipschitz_bound(layer, shape) <= 1
    original.data = torch.randn_like(original[:1]).expand_as(original).clone()  # all alike: rank one
    assert lipschitz_bound(layer, shape) <= 1
    original.data = torch.zeros_like(original)
    assert lipschitz_bound(layer, shape) <= 1
    assert layer(torch.randn(2, *shape, dtype=torch.float64)).isfinite().all()


@pytest.mark.parametrize("name", SMALL)
def test_gradients_flow_and_training_reduces_a_loss(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make()
    losses = train(layer, shape, 25, 0.03)
    gradient = layer.parametrizations.weight.original.grad
    assert gradient.isfinite().all()
    assert float(gradient.abs().sum()) > 0
    assert min(losses[-5:]) < losses[0]


@pytest.mark.parametrize("name", NEAR_PROBE)
def test_a_spectral_layer_in_training_comes_close_to_1(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make().train()
    x = torch.randn(2, *shape, dtype=torch.float64)
    for _ in range(100):
        layer(x)
    size = layer.parametrizations.weight[0].vector.shape[1:]  # the map that power iteration looks at
    frozen = copy.deepcopy(layer)
    norm = float(torch.linalg.matrix_norm(matrix_of(lambda v: frozen_apply(frozen, v), size), 2))
    assert norm == pytest.approx(1.0, rel=0.02)


def frozen_apply(layer: nn.Module, x: Tensor) -> Tensor:
    """The layer in training with the weight of one call, not one for each."""
    weight = layer.weight.detach()
    plain = export(layer)
    plain.weight = nn.Parameter(weight)
    return plain(x)


@pytest.mark.parametrize("name", [name for name in SMALL if name.startswith("orthogonal")])
def test_an_orthogonal_layer_has_singular_values_close_to_1_only(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make()
    train(layer, shape, 10)
    matrix = layer.eval().weight.detach().flatten(1)
    values = torch.linalg.svdvals(matrix)
    assert float(values.max()) <= 1
    assert float(values.min()) >= 1 - 1e-3


@pytest.mark.parametrize(("rows", "columns"), [(9, 4), (4, 9), (5, 5)])
def test_the_derivative_of_an_orthogonal_weight_is_that_of_a_qr_factorisation(rows: int, columns: int) -> None:
    layer = orthogonal(linear(columns, rows))
    raw = layer.parametrizations.weight.original
    tall = raw if rows >= columns else raw.T
    factor, triangle = torch.linalg.qr(tall)
    expected = factor * triangle.diagonal().sign()
    expected = expected if rows >= columns else expected.T
    pull = torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted, got = (torch.autograd.grad(w, raw, pull)[0] for w in (expected, layer.weight))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_weight_that_is_singular_still_has_an_orthogonal_factor_with_a_derivative(dtype: torch.dtype) -> None:
    layer = orthogonal(nn.Linear(200, 200, dtype=dtype))
    raw = layer.parametrizations.weight.original
    with torch.no_grad():
        raw.copy_(
            30 * torch.outer(torch.randn(200), torch.randn(200))
        )  # rank 1: rounding alone decides its last minors
    layer.weight.square().sum().backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    assert float(torch.linalg.matrix_norm(layer.weight.detach().double(), 2)) <= 1 + 1e-5


def test_the_second_derivative_of_an_orthogonal_weight_is_refused() -> None:
    layer = orthogonal(linear(5, 5))
    raw = layer.parametrizations.weight.original
    (slope,) = torch.autograd.grad((layer.weight[0, 0]) ** 2, raw, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_orthogonal_weights_keep_their_precision_in_mixed_training() -> None:
    layer = orthogonal(nn.Linear(64, 64))
    raw = layer.parametrizations.weight.original
    with torch.no_grad():
        raw.mul_(torch.logspace(0.6, -1.6, 64))  # W* W, rounded to bfloat16, has no Cholesky factor
    plain = layer.weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = layer.weight
    assert mixed.dtype == torch.float32
    assert torch.equal(plain, mixed)


def test_orthogonal_weights_of_a_float32_layer_are_orthonormal_as_well() -> None:
    layer = orthogonal(nn.Linear(64, 32))
    weight = layer.weight.detach().double()
    torch.testing.assert_close(weight @ weight.T, torch.eye(32, dtype=torch.float64), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_export_gives_a_plain_layer_with_the_same_output_and_leaves_the_original_alone(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make().float().eval()
    x = torch.randn(4, *shape)
    before, exact = layer(x), copy.deepcopy(layer).double()(x.double())
    kind = type(layer)
    for _ in range(2):
        plain = export(layer)
        assert type(plain) in (nn.Linear, nn.Conv2d)
        torch.testing.assert_close(plain(x.double()), exact, rtol=1e-12, atol=1e-12)
        assert {key.split(".")[0] for key in plain.state_dict()} <= {"weight", "bias"}
    assert type(layer) is kind
    assert hasattr(layer, "parametrizations")
    torch.testing.assert_close(layer(x), before)
    plain.weight.data.zero_()
    torch.testing.assert_close(layer(x), before)


def test_export_reaches_every_layer_of_a_network_shared_ones_too() -> None:
    shared = spectral(nn.Linear(4, 4))
    network = nn.Sequential(shared, MaxMin(), shared, nn.Sequential(orthogonal(nn.Linear(4, 4)), nn.ReLU())).eval()
    x = torch.randn(3, 4)
    plain = export(network)
    exact = copy.deepcopy(network).double()(x.double())
    torch.testing.assert_close(plain(x.double()), exact, rtol=1e-12, atol=1e-12)
    assert plain[0] is plain[2]
    assert not any(hasattr(part, "parametrizations") for part in plain.modules())
    assert {type(part) for part in plain.modules()} == {nn.Sequential, nn.Linear, MaxMin, nn.ReLU}
    assert torch.equal(export(plain)[0].weight, plain[0].weight)  # which is not computed
    assert all(hasattr(part, "parametrizations") for part in (network[0], network[2], network[3][0]))


def test_export_is_for_evaluation_and_leaves_the_mode_of_the_original() -> None:
    network = nn.Sequential(spectral(nn.Linear(4, 4)), nn.Dropout(0.5)).train()
    plain = export(network)
    assert network.training
    assert network[0].training
    assert not any(part.training for part in plain.modules())


def test_export_carries_out_torchs_own_parametrisations() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 3, 3)).eval()
    x = torch.randn(2, 2, 5, 5)
    assert type(export(layer)) is nn.Conv2d
    assert export(layer).weight.dtype == torch.float64
    torch.testing.assert_close(export(layer)(x.double()).float(), layer(x))
    assert type(export(miyato(nn.Linear(3, 3)))) is nn.Linear


@pytest.mark.parametrize("name", SMALL)
def test_copies_and_saved_states_compute_the_same(name: str) -> None:
    make, shape = LAYERS[name]
    layer = make()
    train(layer, shape, 3)
    x = torch.randn(2, *shape, dtype=torch.float64)
    expected = layer.eval()(x)
    torch.testing.assert_close(copy.deepcopy(layer)(x), expected, rtol=1e-9, atol=1e-12)
    other = make().eval()
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(x), expected, rtol=1e-9, atol=1e-12)


def test_an_edit_of_the_original_weight_in_place_is_seen_in_evaluation() -> None:
    layer = spectral(nn.Linear(4, 4)).eval()
    layer.parametrizations.weight.original.data.copy_(torch.eye(4))
    torch.testing.assert_close(layer.weight.detach(), torch.eye(4))
    layer.parametrizations.weight.original.data[0, 0] = 4.0
    torch.testing.assert_close(layer.weight.detach(), torch.diag(torch.tensor([1.0, 0.25, 0.25, 0.25])))


def test_miyatos_normalisation_leaves_a_convolution_above_1_and_the_bound_says_so() -> None:
    layer = miyato(nn.Conv2d(8, 8, 3, padding=1))
    layer.parametrizations.weight.original.data.abs_()
    for _ in range(50):
        layer(torch.randn(1, 8, 8, 8))
    assert lipschitz_bound(layer.eval(), (8, 12, 12)) > 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: spectral(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")),
        lambda: orthogonal(nn.Conv2d(1, 1, 3)),
        lambda: orthogonal(nn.Conv2d(2, 2, 1, groups=2)),
        lambda: almost_orthogonal(nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")),
        lambda: spectral(spectral(nn.Linear(2, 2))),
        lambda: spectral(nn.Conv2d(1, 1, 1, padding=1, padding_mode="circular")),
    ],
)
def test_a_layer_that_cannot_be_kept_at_1_is_refused_with_a_reason(make: Make) -> None:
    with pytest.raises(ValueError, match="expected"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: orthogonal(conv(2, 8, 2, stride=2, dilation=2)),
        lambda: orthogonal(conv(2, 2, 1, padding=1, padding_mode="replicate")),
        lambda: orthogonal(conv(2, 2, 1, padding=1, padding_mode="circular")),
    ],
)
def test_an_orthogonal_convolution_is_refused_or_has_a_norm_of_at_most_1(make: Make) -> None:
    try:
        layer = make()
    except ValueError:
        return
    assert lipschitz_bound(layer.eval(), (2, 8, 8)) <= 1


def test_a_small_network_of_them_learns_to_tell_two_classes_apart() -> None:
    network = nn.Sequential(
        spectral(nn.Conv2d(1, 4, 3, padding=1)), MaxMin(), orthogonal(nn.Conv2d(4, 8, 2, stride=2)), MaxMin(),
        nn.Flatten(), almost_orthogonal(nn.Linear(128, 2)),
    )  # fmt: skip
    labels = torch.arange(64) % 2
    images = torch.rand(64, 1, 8, 8) * 0.2
    images[labels == 1, :, 2:6, 2:6] += 0.5
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(40):
        loss = F.cross_entropy(20 * network(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert (network.eval()(images).argmax(1) == labels).double().mean() > 0.9
    assert lipschitz_bound(network, (1, 8, 8)) <= 1 + 1e-5
    assert lipschitz_bound(copy.deepcopy(network).double(), (1, 8, 8)) <= 1
