"""The box of features that a ball of images reaches, against sampled images, the local route's bounds, differences."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import berncert
from berncert.extractor import PotentialStep, orthogonal
from berncert.extractor.layers import MaxMin
from berncert.extractor.reach import LocalReach
from berncert.models.heads import build_head
from berncert.training.feature_box import FeatureBox, feature_box


class Joined(nn.Module):
    """A residual sum, and values side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(128, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.first(x - 0.5), 0.1)
        x = x + F.relu(self.norm(self.second(x)))
        x = torch.cat([F.max_pool2d(x, 2), F.avg_pool2d(x, 2)], dim=1)
        return torch.sigmoid(self.last(x.flatten(1)))


class Functional(nn.Module):
    """Layers as functions of weights that the network holds itself: as they are, joined, scaled, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.bias = nn.Parameter(torch.randn(3, 2, 3, 3) / 4), nn.Parameter(torch.randn(3) / 4)
        self.first, self.second = nn.Parameter(torch.randn(6, 27) / 5), nn.Parameter(torch.randn(6) / 5)
        self.halves = nn.ParameterList([torch.randn(2, 6), torch.randn(1, 6)])
        self.scale, self.shift = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.last = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = F.softplus(F.conv2d(x, self.kernel, bias=self.bias, stride=3, padding=1)).flatten(1)
        x = F.softplus(F.linear(x, torch.tanh(self.first), self.second)) * self.scale.exp() + self.shift
        return torch.sigmoid((x @ torch.cat(list(self.halves)).t()) @ self.last)


def plain(kind: str) -> nn.Sequential:
    activations = {"relu": nn.ReLU(), "gelu": nn.GELU(), "pairs": MaxMin(), "softplus": nn.Softplus()}
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), activations[kind],
        nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), activations[kind], nn.Linear(6, 3), nn.Sigmoid(),
    )  # fmt: skip


NETWORKS = {
    "joined": Joined,
    "functional": Functional,
    **{kind: lambda kind=kind: plain(kind) for kind in ("relu", "gelu", "pairs", "softplus")},
}


def images(count: int = 20) -> Tensor:
    return torch.rand(count, 2, 8, 8)


@pytest.mark.parametrize("name", NETWORKS)
def test_features_of_images_in_the_ball_lie_in_the_box(name: str) -> None:
    network, x = NETWORKS[name](), images()
    network(images(50))  # running statistics other than 0 and 1
    network.eval()
    box = feature_box(network, x, 0.03)
    assert torch.equal(box.features, network(x))
    corners = torch.stack([x + 0.03 * torch.randn_like(x).sign() for _ in range(50)])
    for moved in (*corners, *(x + 0.06 * (torch.rand_like(x) - 0.5) for _ in range(50))):
        found = network(moved)
        assert (found >= box.lower - 1e-6).all()
        assert (found <= box.upper + 1e-6).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_local_route_proves_a_box_inside_of_it(name: str) -> None:
    network, x = NETWORKS[name]().double().eval(), images(3).double()
    box = feature_box(network, x, 0.02)
    reached = LocalReach(berncert.freeze(network, (2, 8, 8)), math.inf).around(x, torch.full((3,), 0.02)).features
    assert (reached.interval.lower >= box.lower - 1e-9).all()
    assert (reached.interval.upper <= box.upper + 1e-9).all()


def test_of_linear_layers_it_is_that_of_bound_propagation() -> None:
    peer = pytest.importorskip("bound_propagation")  # pip install --no-deps bound-propagation==0.4.7
    layers = (nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 3), nn.Sigmoid())
    network, x = nn.Sequential(*layers).double(), torch.rand(10, 12, dtype=torch.float64)
    box = feature_box(network, x, 0.1)
    theirs = peer.BoundModelFactory().build(network).ibp(peer.HyperRectangle.from_eps(x, 0.1))
    torch.testing.assert_close((box.lower, box.upper), (theirs.lower, theirs.upper))


@pytest.mark.parametrize(
    ("layer", "turn"),
    [(nn.ReLU(), None), (nn.Sigmoid(), None), (nn.Tanh(), None), (nn.LeakyReLU(0.2), None), (nn.Hardtanh(0, 1), None),
     (nn.ELU(), None), (nn.LeakyReLU(-0.5), 0.0), (nn.GELU(), -0.751791524694), (nn.SiLU(), -1.278464542761)],
)  # fmt: skip
def test_a_function_takes_a_box_to_its_values_at_the_ends_and_where_it_turns(
    layer: nn.Module, turn: float | None
) -> None:
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)[:, None]
    box = feature_box(layer, x, 0.2)
    ends = [layer(x - 0.2), layer(x + 0.2)]
    ends += [layer(x.clone().fill_(turn).clamp(x - 0.2, x + 0.2))] if turn is not None else []
    torch.testing.assert_close(box.lower, torch.stack(ends).amin(dim=0))
    torch.testing.assert_close(box.upper, torch.stack(ends).amax(dim=0))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [True, False])
def test_at_radius_0_it_is_the_features_of_the_network_in_its_mode(name: str, training: bool) -> None:
    network, x = NETWORKS[name]().train(training), images()
    box = feature_box(network, x, 0.0)
    assert torch.equal(box.features, network(x))
    for side in (box.lower, box.upper):
        torch.testing.assert_close(side, box.features, rtol=1e-4, atol=1e-5)


def test_running_statistics_are_updated_once_and_no_hook_stays() -> None:
    network, x = plain("relu"), images()
    twin = plain("relu")
    twin.load_state_dict(network.state_dict())
    feature_box(network, x, 0.1)
    twin(x)
    for own, other in zip(network.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(own, other)
    assert not any(part._forward_pre_hooks for part in network.modules())
    assert network.training


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["softplus", "functional"])
def test_gradients_reach_all_weights_and_are_those_of_differences(name: str, training: bool) -> None:
    network, x = NETWORKS[name]().double().train(training), images(6).double()

    def width() -> Tensor:
        box = feature_box(network, x, 0.02)
        return (box.upper - box.lower).sum()

    width().backward()
    for parameter in network.parameters():
        assert parameter.grad is not None
        step = 1e-6 * torch.randn_like(parameter)
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step
                values.append(float(width()))
                parameter -= sign * step
        assert (values[0] - values[1]) / 2 == pytest.approx(float((parameter.grad * step).sum()), rel=1e-3, abs=1e-12)


def test_no_gradient_flows_through_what_is_frozen() -> None:
    network = plain("relu").eval()
    for step in berncert.freeze(network, (2, 8, 8)).steps:
        assert not any(tensor.requires_grad for tensor in step.operation.tensors().values())


def test_the_loss_of_a_box_is_that_of_the_ball_that_it_is() -> None:
    head, x = build_head("polynomial", 3, 4, degree=2).layers, 0.3 + 0.4 * torch.rand(10, 3)
    labels = torch.arange(10) % 4
    ball = berncert.certified_loss(x, labels, head, 0.1, math.inf)
    assert torch.equal(berncert.certified_loss(FeatureBox(x, x - 0.1, x + 0.1), labels, head), ball)


def test_an_ordinary_network_that_is_trained_with_it_is_proven_at_the_radius() -> None:
    digits = berncert.data.load("digits", "train", limit=400)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 10))
    extractor.append(nn.Sigmoid())
    head = berncert.SumHead(10 * torch.eye(10), torch.zeros(10))
    optimiser = torch.optim.Adam(extractor.parameters(), lr=0.01)
    for step in range(120):
        optimiser.zero_grad()
        box = berncert.feature_box(extractor, digits.images, 0.05 * min(1, step / 60))
        berncert.certified_loss(box, digits.labels, head).backward()
        optimiser.step()
    c = berncert.certify(berncert.Classifier(extractor, head).eval(), digits.images[:60], norm=math.inf)
    assert c.certified_accuracy(digits.labels[:60], [0.04])[0] > 0.8


class Twice(nn.Module):
    """One batch normalisation for two values."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.norm(x)).flatten(1)


class Two(nn.Module):
    """Two results."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


REFUSED = {
    "two results": (Two(), TypeError, "returns one tensor, got tuple"),
    "other images": (nn.Conv2d(3, 2, 3), ValueError, r"torch.float32 of shape \(20, 2, 8, 8\) \(.*to have 3 channels"),
    "other numbers": (nn.Conv2d(2, 2, 3).double(), ValueError, "its weights are in torch.float64"),
    "frozen": (berncert.freeze(nn.Flatten(), (2, 8, 8)), TypeError, "a frozen network, which has no weights to train"),
    "a function": (torch.relu, TypeError, "expected a torch module that is trained"),
    "a classifier": (berncert.Classifier(nn.Flatten(), nn.ReLU()), TypeError, "pass model.extractor"),
    "random": (nn.Sequential(nn.Flatten(), nn.Dropout()), ValueError, "the same for every image, got Dropout"),
    "computed weights": (nn.Sequential(nn.Flatten(), orthogonal(nn.Linear(128, 3))), TypeError, "expected plain"),
    "twice": (Twice(), TypeError, "expected BatchNorm2d to be used once"),
    "no interval": (nn.Sequential(PotentialStep(nn.Conv2d(2, 2, 3, padding=1)), nn.Flatten()), TypeError, "0: no"),
    "a map": (nn.ReLU(), ValueError, r"expected a network that gives features \(N, d\)"),
    "no numbers": (nn.Sequential(nn.Flatten(), nn.LayerNorm(128)), TypeError, "LayerNorm"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_box_is_refused(name: str) -> None:
    network, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        feature_box(network, images(), 0.1)


@pytest.mark.parametrize("radius", [-1.0, math.nan, math.inf, "0.1", None])
def test_radii_that_are_none_are_refused(radius: object) -> None:
    with pytest.raises(ValueError, match="expected radius to be a finite number >= 0"):
        feature_box(plain("relu"), images(), radius)  # type: ignore[arg-type]


def test_images_that_are_none_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected images as a floating tensor .* got torch.uint8 of shape \(3,"):
        feature_box(plain("relu"), torch.zeros(3, 2, 8, 8, dtype=torch.uint8), 0.1)
    with pytest.raises(TypeError, match="got ndarray"):
        feature_box(plain("relu"), images().numpy(), 0.1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected finite pixels"):
        feature_box(plain("relu"), images() * math.nan, 0.1)


WRONG_BOXES = {
    "out of order": (lambda x: FeatureBox(x, x + 0.01, x - 0.01), "expected lower <= upper in the box, got .* row 0"),
    "no numbers": (lambda x: FeatureBox(x, x * math.nan, x), "got nan and .* diverged"),
    "another shape": (
        lambda x: FeatureBox(x, x, x[:2]),
        r"expected upper .* \(4, 3\), .* got torch.float32 of shape \(2,",
    ),
    "whole numbers": (lambda x: FeatureBox(x, x.int(), x), "expected lower of the box as a floating tensor"),
    "arrays": (lambda x: FeatureBox(x, x.numpy(), x), "got ndarray"),
    "elsewhere": (lambda x: FeatureBox(x, x + 1, x + 2), "expected the features between lower and upper"),
}


@pytest.mark.parametrize("name", WRONG_BOXES)
def test_boxes_that_are_none_are_refused(name: str) -> None:
    make, message = WRONG_BOXES[name]
    head = berncert.SumHead(torch.eye(3), torch.zeros(3))
    with pytest.raises(ValueError, match=message):
        berncert.certified_loss(make(torch.rand(4, 3)), torch.zeros(4, dtype=torch.int64), head)


def test_a_box_takes_no_radius_and_features_need_one() -> None:
    head, x = berncert.SumHead(torch.eye(3), torch.zeros(3)), torch.rand(4, 3)
    labels = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match="expected a box of features alone"):
        berncert.certified_loss(FeatureBox(x, x, x), labels, head, 0.1)
    with pytest.raises(TypeError, match=r"got a tuple; write berncert.FeatureBox\("):
        berncert.certified_loss((x, x, x), labels, head)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a radius of the features, or a box"):
        berncert.certified_loss(x, labels, head)
