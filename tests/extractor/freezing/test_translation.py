"""Functions and operators inside a forward: each is bounded as the module it equals, or refused by name."""

from __future__ import annotations

import contextlib
import math
import operator
import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from networks import Forward, Net, net, seeded
from torch import Tensor, nn
from truth import INF, assert_linear_bounded, assert_smooth_bounded

from berncert.extractor import lipschitz_bound

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

# ---- what equals a module ----

SAME: list[tuple[Forward, nn.Module]] = [
    (lambda s, x: F.relu(x), nn.ReLU()),
    (lambda s, x: torch.relu(x), nn.ReLU()),
    (lambda s, x: x.relu(), nn.ReLU()),
    (lambda s, x: F.relu(x + 0, inplace=True), nn.ReLU()),
    (lambda s, x: F.relu6(x), nn.ReLU6()),
    (lambda s, x: F.leaky_relu(x, 3.0), nn.LeakyReLU(3.0)),
    (lambda s, x: F.leaky_relu(x, negative_slope=-2.0), nn.LeakyReLU(-2.0)),
    (lambda s, x: F.elu(x, 2.5), nn.ELU(2.5)),
    (lambda s, x: F.gelu(x), nn.GELU()),
    (lambda s, x: F.gelu(x, approximate="tanh"), nn.GELU("tanh")),
    (lambda s, x: F.silu(x), nn.SiLU()),
    (lambda s, x: F.mish(x), nn.Mish()),
    (lambda s, x: F.hardswish(x), nn.Hardswish()),
    (lambda s, x: F.hardtanh(x, -0.5, 2.0), nn.Hardtanh(-0.5, 2.0)),
    (lambda s, x: F.softplus(x, 2.0, 30.0), nn.Softplus(2.0, 30.0)),
    (lambda s, x: F.logsigmoid(x), nn.LogSigmoid()),
    (lambda s, x: torch.tanh(x), nn.Tanh()),
    (lambda s, x: x.tanh(), nn.Tanh()),
    (lambda s, x: torch.sigmoid(x), nn.Sigmoid()),
    (lambda s, x: x.sigmoid(), nn.Sigmoid()),
    (lambda s, x: F.max_pool2d(x, 3, 2, 1), nn.MaxPool2d(3, 2, 1)),
    (lambda s, x: F.max_pool2d(x, kernel_size=2, ceil_mode=True), nn.MaxPool2d(2, ceil_mode=True)),
    (lambda s, x: F.avg_pool2d(x, 3, 1, 1), nn.AvgPool2d(3, 1, 1)),
    (lambda s, x: F.avg_pool2d(x, 2, divisor_override=1), nn.AvgPool2d(2, divisor_override=1)),
    (lambda s, x: F.adaptive_avg_pool2d(x, 2), nn.AdaptiveAvgPool2d(2)),
    (lambda s, x: F.adaptive_avg_pool2d(x, (1, 3)), nn.AdaptiveAvgPool2d((1, 3))),
    (lambda s, x: F.adaptive_max_pool2d(x, 3), nn.AdaptiveMaxPool2d(3)),
    (lambda s, x: F.pixel_unshuffle(x, 2), nn.PixelUnshuffle(2)),
    (lambda s, x: F.pixel_shuffle(x, 2), nn.PixelShuffle(2)),
    (lambda s, x: F.dropout(x, training=False), nn.Dropout().eval()),
    (lambda s, x: F.dropout(x, 0.5, s.training), nn.Dropout().eval()),
    (lambda s, x: x.clamp(-0.5, 2.0), nn.Hardtanh(-0.5, 2.0)),
    (lambda s, x: torch.clamp(x, min=0), nn.ReLU()),
    (lambda s, x: torch.flatten(x, 1), nn.Flatten()),
    (lambda s, x: x.flatten(start_dim=1), nn.Flatten()),
    (lambda s, x: (x + 0).relu_(), nn.ReLU()),
    (lambda s, x: (x + 0).clamp_(-0.5, 2.0), nn.Hardtanh(-0.5, 2.0)),
    (lambda s, x: F.softmax(x, dim=1), nn.Softmax(1)),
    (lambda s, x: x.softmax(-1), nn.Softmax(-1)),
    (lambda s, x: F.celu(x, 2.0), nn.CELU(2.0)),
    (lambda s, x: F.selu(x), nn.SELU()),
    (lambda s, x: F.softsign(x), nn.Softsign()),
    (lambda s, x: F.hardsigmoid(x), nn.Hardsigmoid()),
    (lambda s, x: F.pad(x, (1, 0, 2, 1)), nn.ZeroPad2d((1, 0, 2, 1))),
]


@pytest.mark.parametrize("i", range(len(SAME)))
def test_a_function_is_bounded_as_the_module_it_equals(i: int) -> None:
    forward, module = SAME[i]
    network, shape = net(forward), (4, 4, 4)
    x = seeded(2, *shape)
    torch.testing.assert_close(network(x), module(x))
    for p in (1, 1.5, 2, INF):
        assert lipschitz_bound(network, shape, p) == pytest.approx(lipschitz_bound(module, shape, p), rel=1e-9)


# ---- linear algebra of values ----

torch.manual_seed(0)  # for the layers below

W, B, K = nn.Parameter(seeded(5, 4)), nn.Parameter(seeded(5)), nn.Parameter(seeded(6, 2, 3, 3))

LINEAR: dict[str, tuple[Net, tuple[int, ...]]] = {
    "F.linear": (net(lambda s, x: F.linear(x, s.w, s.b), w=W, b=B), (4,)),
    "F.linear by name": (net(lambda s, x: F.linear(x, weight=s.w, bias=None), w=W), (4,)),
    "F.linear of a computed weight": (net(lambda s, x: F.linear(x, s.w * 2 - 1), w=W), (4,)),
    "F.conv2d": (net(lambda s, x: F.conv2d(x, s.k, None, 2, 1), k=K), (2, 5, 5)),
    "F.conv2d same": (net(lambda s, x: F.conv2d(x, s.k, padding="same", dilation=2), k=K), (2, 5, 5)),
    "F.conv2d groups": (net(lambda s, x: F.conv2d(x, s.k, stride=(1, 2), groups=3), k=K), (6, 5, 4)),
    "times a number": (net(lambda s, x: 3.5 * x), (4,)),
    "times a buffer": (net(lambda s, x: x * s.c, c=seeded(4, 1)), (4, 2)),
    "buffer minus value": (net(lambda s, x: s.c - x, c=seeded(4)), (4,)),
    "over a buffer": (net(lambda s, x: x / s.c, c=torch.tensor([0.1, -4.0, 2.0])), (3,)),
    "negative": (net(lambda s, x: -x), (4,)),
    "plus a parameter": (net(lambda s, x: torch.add(x, s.w), w=nn.Parameter(seeded(4))), (4,)),
    "skip": (net(lambda s, x: x + s.l(x), l=nn.Linear(4, 4)), (4,)),
    "difference": (net(lambda s, x: s.l(x).sub(x), l=nn.Linear(4, 4)), (4,)),
    "added in place": (net(lambda s, x: operator.iadd(s.l(x), x), l=nn.Linear(4, 4)), (4,)),
    "concatenation": (net(lambda s, x: torch.cat([x, s.l(x), 2 * x], dim=1), l=nn.Linear(4, 3)), (4,)),
    "concatenation from behind": (net(lambda s, x: torch.cat((x, 3 * x), -1)), (2, 3)),
    "stack": (net(lambda s, x: torch.stack([x, x - s.l(x)], dim=2), l=nn.Linear(4, 4)), (4,)),
    "mean of maps": (net(lambda s, x: x.mean((2, 3))), (3, 4, 5)),
    "mean kept": (net(lambda s, x: torch.mean(x, dim=1, keepdim=True)), (3, 4, 5)),
    "view by size": (net(lambda s, x: s.l(x.view(x.size(0), -1)), l=nn.Linear(12, 3)), (3, 2, 2)),
    "reshape by shape": (net(lambda s, x: x.reshape(x.shape[0], x.shape[1] * x.shape[2], -1)), (3, 2, 2)),
    "permute": (net(lambda s, x: x.permute(0, 2, 3, 1).contiguous()), (3, 2, 2)),
    "transpose, movedim": (net(lambda s, x: x.transpose(1, 2).movedim(1, -1)), (3, 2, 4)),
    "squeeze, unsqueeze": (net(lambda s, x: x.unsqueeze(1).squeeze(1).unsqueeze(-1)), (3, 2)),
    "unflatten": (net(lambda s, x: x.unflatten(1, (2, 3)).clone()), (6,)),
    "slices": (net(lambda s, x: x[:, 1:, ::2]), (3, 5)),
    "one channel": (net(lambda s, x: x[:, 2]), (3, 5)),
    "a new axis": (net(lambda s, x: x[:, None, ..., None]), (3, 5)),
    "an index twice": (net(lambda s, x: x[:, [0, 1, 0, 0]]), (3, 2)),
    "an index twice, from a buffer": (net(lambda s, x: x[:, s.i], i=torch.tensor([2, 2, 1])), (3, 2)),
    "a mask": (net(lambda s, x: x[:, s.m], m=torch.tensor([True, False, True])), (3, 2)),
    "expand": (net(lambda s, x: x[:, :, None].expand(-1, -1, 4)), (3,)),
    "repeat": (net(lambda s, x: x.repeat(1, 3, 2)), (2, 2)),
    "a number made of a row": (net(lambda s, x: x[:, 0] - 2 * x[:, 1]), (3,)),
    "mean of everything of an image": (net(lambda s, x: x.mean(1)), (5,)),
    "a mean, expanded": (net(lambda s, x: x.mean(1)[:, None].expand(-1, 3) + x), (3,)),
    "padded": (net(lambda s, x: F.pad(x, (1, 2, 0, 1))), (2, 3, 2)),
    "padded by reflection": (net(lambda s, x: F.pad(x, (1, 1, 1, 1), mode="reflect")), (2, 3, 2)),
    "flipped": (net(lambda s, x: x.flip(2)), (2, 3)),
    "rolled": (net(lambda s, x: torch.roll(x, 1, 1)), (5,)),
    "narrow": (net(lambda s, x: x.narrow(1, 1, 2)), (4, 2)),
    "matrix on the right": (net(lambda s, x: x @ s.m, m=seeded(4, 3)), (4,)),
    "matrix on the right of rows": (net(lambda s, x: torch.matmul(x, s.m), m=seeded(4, 3)), (2, 4)),
    "method in place": (net(lambda s, x: s.l(x).add_(1).mul_(3).sub_(x), l=nn.Linear(4, 4)), (4,)),
    "a tensor made in forward": (net(lambda s, x: x * torch.arange(1.0, 5.0)), (4,)),
    "a constant computed in forward": (net(lambda s, x: x * torch.exp(s.c).sum(), c=seeded(4)), (4,)),
    "chunk": (net(lambda s, x: torch.sub(*halves(x))), (4, 2)),
    "chunk, one part": (net(lambda s, x: x.chunk(2, dim=1)[1]), (4, 2)),
    "split by sizes": (net(lambda s, x: torch.split(x, [1, 3], dim=1)[1] * 2), (4, 2)),
    "split and joined": (net(lambda s, x: torch.cat(x.split(2, 1), 1)), (4,)),
    "root of a size": (net(lambda s, x: x / math.sqrt(4) * x.shape[1] ** -0.5), (4,)),
}


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = torch.chunk(x, 2, dim=1)
    return first, second


@pytest.mark.parametrize("name", LINEAR)
def test_a_step_of_linear_algebra_is_bounded_between_all_norms(name: str) -> None:
    network, shape = LINEAR[name]
    for p in (1.5, 3.0):
        assert_linear_bounded(network, shape, p)


EXACT = {"F.linear", "F.conv2d", "times a number", "times a buffer", "over a buffer", "permute", "slices",
         "mean of maps", "an index twice", "expand", "repeat", "unflatten", "mean kept", "a mask"}  # fmt: skip


@pytest.mark.parametrize("name", sorted(EXACT))
def test_a_single_linear_step_is_bounded_by_its_very_norm(name: str) -> None:
    network, shape = LINEAR[name]
    assert assert_linear_bounded(network, shape, 1.5) <= 1 + 1e-9


def test_a_skip_adds_and_a_concatenation_takes_the_root_of_squares() -> None:
    layer = nn.Linear(3, 3, bias=False)
    layer.weight.data = 2 * torch.eye(3)
    assert lipschitz_bound(net(lambda s, x: x + s.l(x), l=layer), (3,)) == pytest.approx(3.0, rel=1e-9)
    joined = net(lambda s, x: torch.cat([x, s.l(x)], 1), l=layer)
    for p in (1, 1.5, 2, 3):
        assert lipschitz_bound(joined, (3,), p) == pytest.approx((1 + 2.0**p) ** (1 / p), rel=1e-9)
    assert lipschitz_bound(joined, (3,), INF) == pytest.approx(2.0, rel=1e-9)


def test_nonlinear_networks_of_functions_are_bounded() -> None:
    def forward(s: Any, x: Tensor) -> Tensor:
        y = F.elu(s.conv(x), 2.0)
        y = torch.cat([F.max_pool2d(y, 3, 2, 1), F.avg_pool2d(y, 2)], dim=1)
        z = torch.tanh(y.flatten(1)) * s.c
        return (z - z.mean(1, keepdim=True).expand(-1, 48)).clamp(-1, 1)

    network = net(forward, conv=nn.Conv2d(2, 6, 3, padding=1), c=seeded(48))
    assert_smooth_bounded(network, (2, 4, 4), 3.0, points=3)


# ---- what is refused ----

MIXING: dict[str, tuple[Net, tuple[int, ...]]] = {
    "transposed batch": (net(lambda s, x: x.transpose(0, 1)), (5,)),
    "transposed batch of 3": (net(lambda s, x: x.transpose(0, 1)), (3,)),
    "permuted batch": (net(lambda s, x: x.permute(1, 0, 2)), (5, 2)),
    "mean over the batch": (net(lambda s, x: x.mean(0)), (5,)),
    "mean over the batch, kept": (net(lambda s, x: x.mean(0, keepdim=True)), (5,)),
    "mean of everything": (net(lambda s, x: x.mean()), (5,)),
    "flattened batch": (net(lambda s, x: x.flatten()), (5, 2)),
    "flattened batch, module": (net(lambda s, x: s.f(x), f=nn.Flatten(0)), (5, 2)),
    "two rows in one": (net(lambda s, x: x.view(-1, 8)), (4,)),
    "joined along the batch": (net(lambda s, x: torch.cat([x, x])), (5,)),
    "joined along the batch, from behind": (net(lambda s, x: torch.cat([x, x], dim=-2)), (5,)),
    "stacked before the batch": (net(lambda s, x: torch.stack([x, x, x, x, x])), (5,)),
    "first image only": (net(lambda s, x: x[0]), (5,)),
    "first images only": (net(lambda s, x: x[:1]), (5,)),
    "images in another order": (net(lambda s, x: x.flip(0)), (5,)),
    "images moved on": (net(lambda s, x: x.roll(1, 0)), (5,)),
    "images moved on by as many as there are": (net(lambda s, x: x.roll(15, 0)), (5,)),
    "everything moved on": (net(lambda s, x: x.roll(1)), (5,)),
    "padded along the batch": (net(lambda s, x: F.pad(x, (0, 0, 0, 1))), (5,)),
    "narrow of the batch": (net(lambda s, x: x.narrow(0, 0, 1)), (5,)),
    "as many numbers as images": (net(lambda s, x: x[:, :1].transpose(0, 1)), (5,)),
    "first image, as many numbers as images": (net(lambda s, x: x[0]), (3,)),
    "split along the batch": (net(lambda s, x: x.split(1)[0]), (5,)),
    "batch repeated": (net(lambda s, x: x.repeat(2, 1)), (5,)),
    "unsqueezed in front": (net(lambda s, x: x.unsqueeze(0)), (5,)),
    "a constant for each image": (net(lambda s, x: x * s.c, c=seeded(5, 4)), (4,)),
}


@pytest.mark.parametrize("name", MIXING)
def test_a_step_that_mixes_the_batch_is_refused(name: str) -> None:
    network, shape = MIXING[name]
    with pytest.raises((TypeError, ValueError)):
        lipschitz_bound(network, shape)


UNKNOWN: dict[str, Net] = {
    "square": net(lambda s, x: x * x),
    "power": net(lambda s, x: x**2),
    "product of values": net(lambda s, x: x * s.l(x), l=nn.Linear(4, 4)),
    "quotient of values": net(lambda s, x: x / s.l(x), l=nn.Linear(4, 4)),
    "one over": net(lambda s, x: 1 / x),
    "exponential": net(lambda s, x: torch.exp(x)),
    "norm": net(lambda s, x: x / x.norm(dim=1, keepdim=True)),
    "matrix product": net(lambda s, x: x.unsqueeze(1) @ x.unsqueeze(2)),
    "matrix on the left": net(lambda s, x: s.m @ x, m=seeded(4, 4)),
    "numbers read as others": net(lambda s, x: x.view(torch.int64)),
    "a row padded with something": net(lambda s, x: F.pad(x, (1, 1), value=3.0)),
    "weights from the image": net(lambda s, x: F.linear(x, s.l(x)), l=nn.Linear(4, 4)),
    "sum scaled": net(lambda s, x: torch.add(x, x, alpha=9)),
    "rounded down": net(lambda s, x: torch.div(x, 2, rounding_mode="floor")),
    "floor": net(lambda s, x: x // 2),
    "remainder": net(lambda s, x: x % 2),
    "comparison": net(lambda s, x: x > 0),
    "where": net(lambda s, x: torch.where(x > 0, x, 1 + x)),
    "half": net(lambda s, x: x.half()),
    "to half": net(lambda s, x: x.to(torch.float16)),
    "double": net(lambda s, x: x.double()),
    "added in place to what is used again": net(lambda s, x: (lambda y: y.add_(x) + y)(s.l(x)), l=nn.Linear(4, 4)),
    "relu in place of the image, used again": net(lambda s, x: x.relu_() + x),
    "exponential in place": net(lambda s, x: s.l(x).exp_(), l=nn.Linear(4, 4)),
    "broadcast sum": net(lambda s, x: x[:, :1] + x),
    "broadcast constant": net(lambda s, x: x[:, :1] + s.c, c=seeded(4)),
    "noise": net(lambda s, x: x + torch.randn_like(x)),
    "noise like a weight": net(lambda s, x: x * torch.rand_like(s.w), w=nn.Parameter(seeded(4))),
    "a random tensor": net(lambda s, x: x * torch.rand(4)),
    "detached": net(lambda s, x: x.detach()),
    "gathered": net(lambda s, x: torch.gather(x, 1, s.i), i=torch.zeros(5, 4, dtype=torch.long)),
    "index from the image": net(lambda s, x: x[:, x.argmax(1)]),
    "dropout in training": net(lambda s, x: F.dropout(x)),
    "dropout in training, by position": net(lambda s, x: F.dropout(x, 0.5, True)),
    "clamp by tensors": net(lambda s, x: torch.clamp(x, s.c), c=seeded(4)),
    "a complex constant": net(lambda s, x: x * s.c, c=torch.tensor(1 + 5j)),
    "a constant that is not finite": net(lambda s, x: x * s.c, c=torch.tensor([1.0, math.inf, 1.0, 1.0])),
    "division by zero": net(lambda s, x: x / s.c, c=torch.tensor([1.0, 0.0, 1.0, 1.0])),
}


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", UNKNOWN)
def test_a_step_without_a_proof_is_refused(name: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        lipschitz_bound(UNKNOWN[name], (4,))


def test_the_error_names_the_function_and_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"exp.*no Lipschitz bound is known.*register"):
        lipschitz_bound(UNKNOWN["exponential"], (4,))


@pytest.mark.parametrize(
    "forward",
    [
        lambda s, x: torch.flatten(input=x, start_dim=1),
        lambda s, x: torch.cat(tensors=[x, x], dim=1),
        lambda s, x: F.relu(input=x),
        lambda s, x: torch.mean(input=x, dim=1, keepdim=True),
        lambda s, x: F.linear(input=x, weight=s.w),
    ],
)
def test_a_value_given_by_name_is_followed_or_refused_clearly(forward: Forward) -> None:
    network = net(forward, w=nn.Parameter(seeded(5, 4)))
    with contextlib.suppress(TypeError):
        assert_smooth_bounded(network, (4,), 3.0)


RANDOM: dict[str, Forward] = {
    "python": lambda s, x: x * random.random(),
    "torch": lambda s, x: x * float(torch.rand(())),
}


@pytest.mark.parametrize("name", RANDOM)
def test_a_random_number_in_forward_is_refused(name: str) -> None:
    with pytest.raises(TypeError):
        lipschitz_bound(net(RANDOM[name]), (4,))


def test_a_forward_whose_constants_depend_on_the_batch_size_is_refused() -> None:
    # x.size(0) is another number for another batch, so no single factor is a bound
    with pytest.raises((TypeError, ValueError)):
        lipschitz_bound(net(lambda s, x: x * x.size(0)), (4,))


def test_a_forward_that_counts_its_calls_is_refused() -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    with pytest.raises(TypeError):
        lipschitz_bound(Counting(), (4,))


def test_bounding_a_network_never_changes_its_parameters() -> None:
    network = net(lambda s, x: x * s.w.mul_(2), w=nn.Parameter(seeded(4), requires_grad=False))
    before = network.w.clone()
    with pytest.raises(TypeError):
        lipschitz_bound(network, (4,))
    assert torch.equal(network.w, before)


def test_arithmetic_in_lower_precision_inside_forward_is_refused() -> None:
    def forward(s: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return s.l(x)

    with pytest.raises(TypeError):
        lipschitz_bound(Net(forward, l=nn.Linear(4, 4)).eval(), (4,))
    with pytest.raises((TypeError, ValueError)):
        lipschitz_bound(net(lambda s, x: x.mean(1, keepdim=True, dtype=torch.float16)), (4,))
