"""Ways in which a claim about a network could be false, each found once: none of them is possible any more."""

from __future__ import annotations

import contextlib
import math
import pickle
import threading
from collections.abc import Callable
from fractions import Fraction
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from networks import Net
from torch import Tensor, nn

import berncert
from berncert.extractor import FrozenNetwork, Normalise, UnitCube, build, freeze, lipschitz_bound
from berncert.extractor.freezing.registration import RULES
from berncert.extractor.frozen import Step
from berncert.extractor.lipschitz import lipschitz_table
from berncert.extractor.operations import Scale

HALVES = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)  # two classes that meet at 1/2


def classifier(extractor: nn.Module, coefficients: Tensor = HALVES) -> berncert.Classifier:
    return berncert.Classifier(extractor, berncert.SmoothedHead(coefficients)).eval()


def certified(extractor: nn.Module, image: float = 0.0, **options: Any) -> float:
    """The radius of one pixel, whose feature decides between two classes at 1/2."""
    return float(berncert.certify(classifier(extractor), [[image]], **options).radius[0])


# ---- numbers are what they are ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("number", [0.7, 0.1, 1 / 3, 1e-3])
def test_numbers_in_a_forward_are_not_rounded(number: float, dtype: torch.dtype) -> None:
    truth = {"times": Fraction(1, 2) / Fraction(number), "over": Fraction(1, 2) * Fraction(number)}
    nets = {
        "times": Net(lambda s, x: (x * number).clamp(0, 1), weight=torch.zeros(1)),
        "over": Net(lambda s, x: (x / number).clamp(0, 1), weight=torch.zeros(1)),
    }
    for name, net in nets.items():
        radius = certified(net.to(dtype))
        assert 0.999 * truth[name] <= Fraction(radius) <= truth[name]


def test_a_factor_that_float32_flushes_to_zero_is_bounded_as_it_is() -> None:
    net = Net(lambda s, x: ((x * 1e-46) * 1e46).clamp(0, 1), weight=torch.zeros(1)).double()
    assert 0.499 <= certified(net) <= 0.5
    with pytest.raises(ValueError, match=r"too large for torch\.float32"):
        certified(net, dtype=torch.float32)
    assert certified(Net(lambda s, x: (x * 1e-46).clamp(0, 1), weight=torch.zeros(1)), dtype=torch.float32) <= 0.5e46


def test_the_factors_of_a_densenet_are_frozen_as_they_were_computed() -> None:
    network = build("densenet", (1, 8, 8), 3, depth=10, growth=2).eval()
    wanted = {module.keep for module in network.modules() if hasattr(module, "keep")}
    frozen = {float(step.operation.by) for step in freeze(network, (1, 8, 8)).steps
              if isinstance(step.operation, Scale) and step.operation.by.ndim == 0}  # fmt: skip
    assert wanted <= frozen


def test_limits_of_a_clamp_are_those_that_were_written() -> None:
    net = Net(lambda s, x: x.clamp(0.1, 0.7), weight=torch.zeros(1))
    images = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    assert freeze(net, (1,))(images).flatten().tolist() == [0.1, 0.7]
    value = lipschitz_table(net, (1,), unit=2.0**-24).value
    single = freeze(net, (1,))(images.float()).double()
    gap = float((single - freeze(net, (1,))(images)).abs().max())
    assert gap <= value.error[0] * 1.0 + value.error[1]


# ---- files hold anything ----


@pytest.mark.parametrize("std", [-0.5, 0.0, math.nan, math.inf])
def test_a_normalisation_that_is_none_is_refused(std: float) -> None:
    layer = Normalise([0.5], [0.5])
    layer.std.fill_(std)
    with pytest.raises(ValueError, match="std"):
        freeze(nn.Sequential(layer, nn.Flatten(), nn.Linear(4, 2)), (1, 2, 2))


def test_a_negative_scale_in_a_file_is_bounded_by_its_size(tmp_path: Path) -> None:
    steps = [Step(Scale(torch.tensor([-0.01], dtype=torch.float64), divide=True), (0,), "std", "Normalise")]
    berncert.save(FrozenNetwork((1,), steps), tmp_path / "model")
    network = berncert.load(tmp_path / "model")
    assert lipschitz_bound(network, (1,)) >= 100


# ---- the caller's images and the caller's network stay as they are ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "first",
    [
        nn.ReLU(inplace=True),
        nn.LeakyReLU(0.5, inplace=True),
        Net(lambda s, x: x.div_(255)),
        Net(lambda s, x: F.relu(x, True)),
        Net(lambda s, x: F.leaky_relu(x, 0.5, inplace=1)),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_a_step_in_place_changes_nothing_of_the_callers(first: nn.Module, dtype: torch.dtype) -> None:
    model = classifier(nn.Sequential(first, nn.Flatten(), nn.Linear(4, 1), nn.Sigmoid()))
    images = torch.linspace(-30000, 30000, 8, dtype=dtype).reshape(2, 1, 2, 2)
    before = images.clone()
    berncert.certify(model, images, dtype=dtype)
    assert torch.equal(images, before)


def test_a_frozen_network_has_numbers_of_its_own() -> None:
    network = nn.Sequential(nn.Linear(2, 1), nn.Sigmoid()).double().eval()
    frozen = freeze(network, (2,))
    bound = lipschitz_bound(frozen, (2,))
    network[0].weight.data.mul_(100)
    assert lipschitz_bound(frozen, (2,)) == bound
    assert lipschitz_bound(network, (2,)) == pytest.approx(100 * bound)


def test_a_frozen_network_that_is_changed_is_run_and_bounded_as_changed() -> None:
    frozen = freeze(nn.Sequential(nn.Linear(2, 1)).eval(), (2,))
    image = torch.ones(1, 2)
    before, bound = frozen(image), lipschitz_bound(frozen, (2,))
    frozen.steps[0].operation.tensors()["weight"].mul_(2)
    frozen.steps[0].operation.tensors()["bias"].mul_(2)
    assert torch.allclose(frozen(image), 2 * before)
    assert lipschitz_bound(frozen, (2,)) == pytest.approx(2 * bound)


# ---- functions that jump ----


@pytest.mark.parametrize("threshold", [-1000.0, 0.0, 1.0, 19.0])
def test_a_softplus_that_jumps_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        lipschitz_bound(nn.Softplus(threshold=threshold), (3,))


def test_a_softplus_is_evaluated_without_its_jump() -> None:
    frozen = freeze(nn.Softplus(), (1,))
    x = 20 + torch.linspace(-1e-6, 1e-6, 101, dtype=torch.float64)[:, None]
    slopes = frozen(x).diff(dim=0) / x.diff(dim=0)
    assert float(slopes.abs().max()) <= 1 + 1e-6


# ---- a subclass is what its own code does ----


class ByClass(nn.Linear):
    @classmethod
    def forward(cls, x: Tensor) -> Tensor:  # type: ignore[override]
        return x * 100


class ByPart(nn.Linear):
    def times(self, factor: float, x: Tensor) -> Tensor:
        return x * factor

    forward = partialmethod(times, 100.0)  # type: ignore[assignment]


class ByProperty(nn.ReLU):
    @property
    def forward(self) -> Callable[[Tensor], Tensor]:  # type: ignore[override]
        return lambda x: x * 100


class ByCall(nn.Identity):
    def __call__(self, x: Tensor) -> Tensor:
        return x * 100


def own_conv_forward() -> nn.Module:
    layer = nn.Conv2d(1, 1, 1, bias=False)
    layer.weight.data.fill_(1.0)
    layer._conv_forward = lambda x, weight, bias: x * 100  # type: ignore[method-assign]
    return layer


def own_forward() -> nn.Module:
    layer = nn.ReLU()
    layer.forward = lambda x: x * 100  # type: ignore[method-assign, assignment]
    return layer


@pytest.mark.parametrize(
    "make", [lambda: ByClass(4, 4), lambda: ByPart(4, 4), ByProperty, ByCall, own_conv_forward, own_forward]
)
def test_code_that_replaces_a_layers_own_is_followed_or_refused(make: Callable[[], nn.Module]) -> None:
    layer = make().eval()
    try:
        bound = lipschitz_bound(nn.Sequential(layer, nn.Flatten()), (1, 4, 4))
    except TypeError:
        return
    assert bound >= 100


# ---- the batch ----


def test_a_constant_chosen_by_the_size_of_the_batch_is_refused() -> None:
    table = torch.cat([torch.ones(1), torch.full((99,), 25.0)])
    for net in (
        Net(lambda s, x: (x * s.t.narrow(0, x.shape[0], 1)).clamp(0, 1), t=table),
        Net(lambda s, x: (x * s.t[x.shape[0]]).clamp(0, 1), t=table),
        Net(lambda s, x: (x * s.t[: x.size(0)].sum()).clamp(0, 1), t=table),
        Net(lambda s, x: x * x.shape[0], t=table),
    ):
        with pytest.raises(TypeError, match=r"batch|cannot be followed"):
            certified(net)


@pytest.mark.parametrize("shift", [1, 2, 3, 5, 7, 15, 30, 210, 2 * 3 * 5 * 7 * 11 * 13])
def test_images_of_a_batch_that_change_places_are_refused(shift: int) -> None:
    for forward in (
        lambda s, x: torch.roll(x, shift, 0),
        lambda s, x: x.roll(shift, dims=0),
        lambda s, x: x.roll(shifts=(shift, 0), dims=(-2, 1)),
        lambda s, x: torch.roll(x, shift * 4),
    ):
        with pytest.raises(TypeError, match="apart"):
            freeze(Net(forward), (4,))


def test_a_view_as_another_dtype_is_no_rearrangement() -> None:
    for dtype in (torch.int64, torch.float32):
        with pytest.raises(TypeError, match="whole numbers"):
            freeze(Net(lambda s, x, dtype=dtype: x.view(dtype)), (4,))


@pytest.mark.parametrize("flag", [True, 1, 1.0, "yes"])
def test_a_value_that_is_changed_in_place_and_used_again_is_refused_whatever_the_flag(flag: Any) -> None:
    def forward(s: Any, x: Tensor) -> Tensor:
        z = x * 1
        return F.leaky_relu(z, 100.0, inplace=flag) + z

    with pytest.raises(TypeError):
        lipschitz_bound(Net(forward), (3,))


# ---- arithmetic ----


def test_no_radius_reaches_where_float32_overflows() -> None:
    # 1e30 x and back: true to the image in real arithmetic, infinite in float32 beyond 3.4e8
    net = Net(lambda s, x: ((x * 1e30) * 1e-30 / 1e10).clamp(0, 1), weight=torch.zeros(1))
    model = classifier(net)
    for dtype, most in ((torch.float32, 3.4e8), (torch.float64, 0.5e10)):
        c = berncert.certify(model, [[1.0]], dtype=dtype)
        assert c.radius[0] <= most
    assert c.radius[0] >= 0.49e10
    assert berncert.certify(model, [[1.0]], dtype=torch.float32).status[0] in (
        berncert.Status.OVERFLOW, berncert.Status.EXTRACTION,
    )  # fmt: skip


def test_overflow_within_the_ball_caps_the_radius() -> None:
    # features move with the first pixel only; the second is multiplied up and thrown away, but may overflow
    weight = torch.tensor([[1.0, 0.0], [0.0, 1e37]])
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False), UnitCube(2.0))
    net[0].weight.data, net[1].weight.data = weight, torch.tensor([[1.0, 0.0]])
    model = classifier(net)
    c = berncert.certify(model, [[-0.9, 0.0]], dtype=torch.float32)
    assert c.radius[0] <= 3.4e38 / 1e37
    assert c.status[0] in (berncert.Status.OVERFLOW, berncert.Status.EXTRACTION)


@pytest.mark.parametrize("variance", [-9.9e-6, -1e-9])
def test_a_variance_below_zero_is_refused(variance: float) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
    network[2].running_var.fill_(variance)
    with pytest.raises(ValueError, match="variance"):
        freeze(network, (1, 2, 2))


@pytest.mark.parametrize("batch", [1, 16, 33])
@pytest.mark.parametrize("mkldnn", [True, False])
def test_float32_convolutions_stay_within_their_allowed_error(mkldnn: bool, batch: int) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(64, 64, 3, padding=1)
    frozen = freeze(layer.eval(), (64, 16, 16))
    value = lipschitz_table(frozen, (64, 16, 16), unit=2.0**-24).value
    images = torch.randn(batch, 64, 16, 16, dtype=torch.float64)
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.set_flags(mkldnn, None, None, None)
    try:
        gap = (frozen(images.float()).double() - frozen(images)).flatten(1).norm(dim=1)
        direct = (frozen(images.float()).double() - frozen(images)).abs().max()
    finally:
        torch.backends.mkldnn.set_flags(before, None, None, None)
    assert bool((gap <= value.error[0] * images.flatten(1).norm(dim=1) + value.error[1]).all())
    assert float(direct) < 2e-5  # sums of products: a transform was 20 times as far off


def test_reduced_precision_that_a_user_chose_is_left_out_and_put_back() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        layer = nn.Linear(256, 8).eval()
        frozen, x = freeze(layer, (256,)), torch.randn(4, 256)
        assert torch.allclose(frozen(x).double(), frozen(x.double()), atol=1e-5)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


# ---- what is exported, saved and pickled is what is certified ----


def test_an_exported_network_is_the_certified_one_bit_for_bit() -> None:
    extractor = build("mlp", (1, 4, 4), 3, depth=2, width=16).eval()
    exported, frozen = berncert.extractor.export(extractor), freeze(extractor, (1, 4, 4))
    weights = [m.weight for m in exported.modules() if isinstance(m, nn.Linear)]
    kept = [s.operation.tensors()["weight"] for s in frozen.steps if "weight" in s.operation.tensors()]
    assert all(torch.equal(a, b) for a, b in zip(weights, kept, strict=True))


@pytest.mark.parametrize("of", ["mlp", "resnet"])
@pytest.mark.parametrize("construction", ["lipschitz", "paper"])
def test_models_and_functions_that_mention_the_package_can_be_pickled(of: str, construction: str) -> None:
    small = {"mlp": {"depth": 1, "width": 8}, "resnet": {"depth": 8, "width": 2}}[of]
    model = classifier(build(of, (1, 8, 8), 1, construction=construction, **small))
    images = torch.rand(2, 1, 8, 8)
    for again in (pickle.loads(pickle.dumps(model)), pickle.loads(pickle.dumps(model.freeze()))):
        assert torch.allclose(again(images), model(images), atol=1e-6)
        assert again.extractor(images).shape == (2, 1)
    cloudpickle = pytest.importorskip("cloudpickle")
    copied = pickle.loads(cloudpickle.dumps(lambda x: berncert.certify(model, x).radius))
    assert copied(images).tolist() == berncert.certify(model, images).radius.tolist()


# ---- what an independent attack found ----


def test_rounding_of_tiny_constants_is_counted() -> None:
    # in real arithmetic clamp(x, 0, 1); in float64 x is lost beside 1e20, though the squares of all constants are 0
    net = Net(lambda s, x: ((x * 1e-190 + 1e-170) * 1e190 - (x * 0.0 + 1e-170) * 1e190).clamp(0, 1))
    assert certified(net, 0.9) == 0
    assert float(lipschitz_table(net, (1,)).value.peak[1]) >= 1e20


def test_rounding_of_tiny_pixels_is_counted() -> None:
    def forward(s: Any, x: Tensor) -> Tensor:
        y = x * 1e190
        return (y[:, :1] + y[:, 1:2] - y[:, 2:]).clamp(0, 1)

    c = berncert.certify(classifier(Net(forward)), [[1e-170, 0.9e-190, 1e-170]])
    assert c.radius[0] == 0


@pytest.mark.parametrize("size", [1e-100, 1e-170, 1e-250])
def test_rounding_of_tiny_weights_is_counted(size: float) -> None:
    layer = nn.Linear(64, 1, bias=False).double()
    layer.weight.data.fill_(0.7 * size)
    value = lipschitz_table(nn.Sequential(layer, Net(lambda s, x: x / size)).eval(), (64,)).value
    assert value.error[0] >= 64 * 2.0**-53 * 0.7  # as of weights of size 1


def test_a_frozen_model_evaluates_its_head_in_float64() -> None:
    extractor = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()).eval()
    head = berncert.SmoothedHead((1000 + 0.001 * torch.randn(3, 4, 4)).float())
    model, x = berncert.Classifier(extractor, head).freeze((2,)), torch.rand(500, 2) * 4 - 2
    c = berncert.certify(model, x, dtype=torch.float32)
    differs = model(x).argmax(dim=1).numpy() != c.predicted
    assert not (differs & (c.radius > 0)).any()


def test_threads_share_plain_arithmetic_and_put_the_callers_back() -> None:
    setting: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, seen = setting.fp32_precision, set()

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.add(setting.fp32_precision)
            return x * 1

    berncert.register_bound(Spy, lambda module, shape: 1.0)
    try:
        frozen = freeze(nn.Sequential(Spy(), nn.Linear(8, 8)).eval(), (8,))
        setting.fp32_precision = "bf16"
        seen.clear()
        work = lambda: [frozen(torch.rand(4, 8)) for _ in range(50)]  # noqa: E731
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == {"ieee"}
        assert setting.fp32_precision == "bf16"
    finally:
        setting.fp32_precision = before
        del RULES[Spy]


@pytest.mark.parametrize(
    "forward",
    [
        lambda s, x: x[:5],
        lambda s, x: x[-64:],
        lambda s, x: x[..., :64, :],
        lambda s, x: x[: x.shape[1]],
        lambda s, x: x.split(8)[0],
        lambda s, x: torch.chunk(x, 1)[0],
        lambda s, x: x.narrow(0, 0, 5),
        lambda s, x: torch.roll(x, 120, dims=()),
        lambda s, x: x.flip(0),
    ],
)
def test_a_part_of_the_batch_is_refused_however_large(forward: Any) -> None:
    with pytest.raises(TypeError):
        freeze(Net(forward), (4,))


def test_parts_of_an_image_are_not_parts_of_the_batch() -> None:
    x = torch.rand(9, 4, 6)
    for forward in (
        lambda s, x: x[:, :2], lambda s, x: x[..., 1:], lambda s, x: x[..., 2, :], lambda s, x: x.split(2, dim=1)[1],
        lambda s, x: x.chunk(2, -1)[0], lambda s, x: x.flip(-1), lambda s, x: x.roll(3, 2), lambda s, x: x[:, None],
    ):  # fmt: skip
        assert torch.equal(freeze(Net(forward), (4, 6))(x), forward(None, x))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x)


def test_freezing_changes_neither_the_network_nor_the_generator() -> None:
    weight, network = torch.randn(3, 3).double(), Counting().eval()
    state = torch.get_rng_state()
    freeze(Net(lambda s, x: F.linear(x, s.w), w=weight), (3,))
    with contextlib.suppress(TypeError):
        freeze(network, (3,))
    assert torch.equal(torch.get_rng_state(), state)
    assert float(network.calls) == 0


class Louder(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 3 if self.training else x


class Once(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("used", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.used
        self.used.fill_(1.0)
        return y


class Other(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

    def __deepcopy__(self, memo: Any) -> nn.Module:
        return Other()


def test_a_network_whose_copy_or_mode_is_another_is_refused() -> None:
    for network in (Once().eval(), Other().eval()):
        with pytest.raises(TypeError):
            freeze(network, (3,))
    with pytest.raises(TypeError, match=r"call \.eval\(\)"):
        freeze(nn.Sequential(nn.Linear(3, 3), Louder()).double().train(), (3,))


def test_a_cast_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match="leave float out"):
        freeze(Net(lambda s, x: x.float() / 255), (3,))


def test_sizes_as_arguments_of_a_pool_are_followed() -> None:
    x = torch.rand(2, 3, 4, 4)
    for forward in (lambda s, x: F.avg_pool2d(x, x.size()[2:]), lambda s, x: F.avg_pool2d(x, x.shape[2:])):
        with contextlib.suppress(TypeError):  # or refused, but nothing else
            assert torch.allclose(freeze(Net(forward), (3, 4, 4))(x), F.avg_pool2d(x, 4))


@pytest.mark.parametrize(
    "forward",
    [
        lambda s, x: x / 1e4 if isinstance(x, Tensor) and x.abs().max() > 1e4 else x,
        lambda s, x: x * {7: 100.0}.get(x.shape[0], 1.0),
        lambda s, x: x * {torch.float32: 2.0}.get(x.dtype, 1.0),
        lambda s, x: x * ({x: 2.0}.get(x, 1.0)),
    ],
)
def test_what_an_image_or_its_batch_decides_is_refused(forward: Any) -> None:
    with pytest.raises(TypeError):
        freeze(Net(forward), (2,))


def test_a_step_in_place_is_watched_in_every_order_of_memory() -> None:
    def forward(s: Any, x: Tensor) -> Tensor:
        y = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)  # a view of images whose channels come last
        y = y.mul_(2)
        return y + x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)

    with pytest.raises(TypeError, match="changed in place"):
        freeze(Net(forward), (3, 4, 4))


def test_inherited_settings_stay_inherited() -> None:
    backends: Any = torch.backends
    before = backends.fp32_precision
    try:
        backends.fp32_precision = "tf32"
        freeze(nn.Linear(2, 2).eval(), (2,))
        backends.fp32_precision = "ieee"
        assert backends.mkldnn.matmul.fp32_precision == "ieee"
    finally:
        backends.fp32_precision = before


def test_numbers_changed_behind_torchs_back_are_run_and_bounded_as_changed() -> None:
    frozen, x = freeze(nn.Sequential(nn.Linear(2, 2, bias=False)).eval(), (2,)), torch.ones(1, 2)
    frozen(x)
    frozen.steps[0].operation.tensors()["weight"].numpy()[:] = [[3.0, 3.0], [-3.0, -3.0]]
    assert torch.equal(frozen(x).double(), frozen(x.double()))


@pytest.mark.parametrize("stride", [300, 2**20])
def test_a_large_stride_costs_nothing(stride: int) -> None:
    layer = nn.Conv2d(1, 1, 2, stride=stride).eval()
    assert lipschitz_bound(layer, (1, 4, 4)) == pytest.approx(float(layer.weight.detach().double().norm()))
