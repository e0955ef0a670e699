"""The architectures: what each promises, whatever its weights, in both constructions."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from berncert.extractor.architectures import ARCHITECTURES, Extractor, build, default_options
from berncert.extractor.freezing.freeze import freeze
from berncert.extractor.layers import PotentialStep
from berncert.extractor.lipschitz import lipschitz_bound
from berncert.extractor.operations.entrywise import Clamp
from berncert.extractor.parametrizations import export
from berncert.training.feature_box import feature_box

CONSTRUCTIONS = ("lipschitz", "paper")  # the ordinary one is the latter with other weights: a test of its own
SHAPES = [(1, 28, 28), (3, 32, 32)]
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"depth": 2, "width": 32},
    "cnn": {"width": 8, "hidden": 32},
    "patchnet": {"depth": 1, "width": 8, "dense": 1, "hidden": 32},
    "lipconvnet": {"width": 8},
    "resnet": {"depth": 8, "width": 8},
    "resnet20": {"width": 8},
    "resnet110": {"width": 8},
    "wide_resnet": {"depth": 10, "widen": 1},
    "wide_resnet10_2": {},
    "wide_resnet28_10": {},
    "vgg": {"depth": 13, "width": 8},
    "vgg11": {"width": 8},
    "vgg19": {"width": 8},
    "densenet": {"depth": 10, "growth": 8},
}
HUGE = pytest.param("wide_resnet28_10", marks=[pytest.mark.slow, pytest.mark.timeout(3600)])
QUICK = [name for name in ARCHITECTURES if name not in ("wide_resnet28_10", "distnet")]  # distnet: tests of its own
NAMES = [*QUICK, HUGE]
FAMILIES = ["mlp", "lipconvnet", "resnet", "wide_resnet", "vgg", "densenet"]
NORMS = [1.0, 2.0, math.inf]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def small(name: str, shape: tuple[int, ...], dim: int, construction: str = "lipschitz", **options: Any) -> Extractor:
    return build(name, shape, dim, construction=construction, **(SMALL[name] | options)).eval()


def shaken(net: Extractor, by: float = 0.1) -> Extractor:
    """The network with other weights: what holds by construction does not depend on them."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return net


def stretch(net: Extractor, x: Tensor, steps: Tensor, norm: float) -> float:
    """The largest norm_p(f(x + step) - f(x)) / norm_p(step), for float64."""
    with torch.no_grad():
        moved = (net(x + steps) - net(x)).norm(p=norm, dim=1)
    return float((moved / steps.flatten(1).norm(p=norm, dim=1)).max())


def uphill(net: Extractor, x: Tensor, norm: float) -> Tensor:
    """For each image the step of norm 1 along which, to first order, a random feature grows most."""
    x = x.clone().requires_grad_()
    features = net(x)
    (gradient,) = torch.autograd.grad((features * torch.randn_like(features)).sum(), x)
    flat = gradient.flatten(1)
    if norm == 1:
        steps = nn.functional.one_hot(flat.abs().argmax(dim=1), flat.shape[1]) * flat.sign()
    else:
        steps = flat.sign() if norm == math.inf else flat
    return (steps / steps.norm(p=norm, dim=1, keepdim=True).clamp_min(1e-300)).reshape(x.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_maps_images_of_both_shapes_into_the_cube(
    name: str, construction: str, shape: tuple[int, ...]
) -> None:
    for dim in (1, 5):
        net = small(name, shape, dim, construction)
        features = net(torch.rand(2, *shape))
        assert (net.input_shape, net.dim) == (shape, dim)
        assert features.shape == (2, dim)
        assert ((features >= 0) & (features <= 1)).all()


@pytest.mark.parametrize(("shape", "by"), [(SHAPES[0], 0.0), (SHAPES[1], 0.1)], ids=["as built", "shaken"])
@pytest.mark.parametrize("name", NAMES)
def test_the_bound_of_a_lipschitz_network_is_at_most_one_over_its_side_whatever_its_weights(
    name: str, shape: tuple[int, ...], by: float
) -> None:
    net = shaken(small(name, shape, 5, side=0.5), by)
    assert lipschitz_bound(net, shape) <= 2 * (1 + 1e-6)


@pytest.mark.parametrize("name", [*FAMILIES, "resnet110", HUGE])
def test_the_bound_of_a_published_network_is_a_number(name: str) -> None:
    net = shaken(small(name, (3, 32, 32), 5, "paper"))
    assert lipschitz_bound(net, (3, 32, 32)) > 0  # infinite is a number, NaN is not


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("name", FAMILIES)
def test_no_pair_of_images_is_stretched_beyond_the_bound(name: str, construction: str) -> None:
    shape = (2, 12, 12)
    net = shaken(small(name, shape, 4, construction), 0.02).double()
    images = torch.rand(4, *shape, dtype=torch.float64)
    for norm in NORMS:
        bound = lipschitz_bound(net, shape, norm)
        for x in (images, 0.01 * images):
            for steps in (torch.rand_like(x) - x, 1e-4 * torch.randn_like(x), 1e-4 * uphill(net, x, norm)):
                assert stretch(net, x, steps, norm) <= bound * (1 + 1e-9)


def test_a_step_uphill_reaches_the_bound_of_an_orthogonal_mlp() -> None:
    net = small("mlp", (1, 28, 28), 4, side=100.0).double()
    x = torch.rand(4, 1, 28, 28, dtype=torch.float64)
    assert stretch(net, x, 1e-4 * uphill(net, x, 2.0), 2.0) >= 0.999 * lipschitz_bound(net, (1, 28, 28))


@pytest.mark.parametrize("name", QUICK)
def test_a_lipschitz_network_starts_alive(name: str) -> None:
    options = {} if name == "resnet110" else SMALL[name]
    net = build(name, (3, 32, 32), 4, side=100.0, **options).eval()
    x = torch.rand(4, 3, 32, 32)
    features = net(x)
    assert ((features > 0) & (features < 1)).all()
    assert stretch(net.double(), x.double(), 1e-3 * uphill(net, x.double(), 2.0), 2.0) > 0.02 / 100


@pytest.mark.parametrize("name", QUICK)
def test_a_black_image_starts_in_the_middle_of_the_cube(name: str) -> None:
    net, centred = small(name, (3, 32, 32), 4), small(name, (3, 32, 32), 4, mean=(0.25, 0.5, 0.75))
    torch.testing.assert_close(net(torch.zeros(1, 3, 32, 32)), torch.full((1, 4), 0.5))
    mean = torch.tensor([0.25, 0.5, 0.75]).view(1, 3, 1, 1).expand(1, 3, 32, 32)
    torch.testing.assert_close(centred(mean), torch.full((1, 4), 0.5))


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("name", QUICK)
def test_every_parameter_gets_a_finite_gradient_in_training(name: str, construction: str) -> None:
    net = small(name, (1, 28, 28), 4, construction).train()
    net(torch.rand(3, 1, 28, 28)).square().sum().backward()
    for key, parameter in net.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 9), (3, 13, 7)], ids=str)
@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("name", FAMILIES)
def test_other_shapes_and_odd_sizes_fit_too(name: str, construction: str, shape: tuple[int, ...]) -> None:
    net = small(name, shape, 3, construction)
    assert net(torch.rand(2, *shape)).shape == (2, 3)
    bound = lipschitz_bound(net, shape)
    assert bound <= 1 + 1e-6 or (construction == "paper" and bound > 1)


def test_no_pixel_of_an_odd_map_is_lost() -> None:
    image = torch.rand(1, 1, 7, 7, requires_grad=True)
    for name in ("lipconvnet", "resnet", "vgg11"):
        (gradient,) = torch.autograd.grad(small(name, (1, 7, 7), 16, side=100.0)(image).sum(), image)
        assert (gradient != 0).all()


def test_an_mlp_takes_rows_of_numbers() -> None:
    net = build("mlp", (20,), 3).eval()
    assert net(torch.rand(4, 20)).shape == (4, 3)
    assert lipschitz_bound(net, (20,)) <= 1 + 1e-6


@pytest.mark.parametrize("shape", [(20,), (1, 28, 28), (3, 8, 8)])
@pytest.mark.parametrize("by", [0.0, 1.0])
def test_the_bound_of_distnet_in_linf_is_one_over_its_side_whatever_its_weights(
    shape: tuple[int, ...], by: float
) -> None:
    net = shaken(build("distnet", shape, 4, side=2.0, depth=2, width=16), by).eval().double()
    assert net.norm == math.inf
    assert net.lipschitz_estimate == 0.5
    assert lipschitz_bound(net, shape, norm=math.inf) == pytest.approx(0.5, abs=1e-12)
    x, steps = torch.rand(50, *shape, dtype=torch.float64), torch.randn(50, *shape, dtype=torch.float64).sign()
    assert stretch(net, x, 0.1 * steps, math.inf) <= 0.5 * (1 + 1e-9)
    same = build(**net.description).eval().double()
    same.load_state_dict(net.state_dict())
    assert torch.equal(same(x), net(x))


@pytest.mark.parametrize("construction", ["paper", "ordinary"])
def test_distnet_has_one_construction_only(construction: str) -> None:
    with pytest.raises(ValueError, match="expected distnet in the lipschitz construction"):
        build("distnet", (1, 8, 8), 4, construction=construction)


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet", "vgg11", "densenet"])
def test_the_ordinary_construction_is_the_papers_with_plain_weights(name: str) -> None:
    paper = small(name, (1, 28, 28), 4, "paper")
    ordinary = small(name, (1, 28, 28), 4, "ordinary", clip=False)
    ours, theirs = ordinary.state_dict(), export(paper).state_dict()
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in theirs.items()}
    ordinary.load_state_dict(theirs)
    images = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(ordinary(images), paper(images))
    assert not any(is_parametrized(part) for part in ordinary.modules())


def test_clipping_is_frozen_as_a_clamp() -> None:
    net = small("cnn", (1, 28, 28), 10, "ordinary", clip=True)
    assert isinstance(freeze(net, (1, 28, 28)).steps[0].operation, Clamp)


def test_a_cnn_has_so_many_convolutions_in_each_stage_of_which_the_first_halves_the_map() -> None:
    net = small("cnn", (1, 28, 28), 10, "ordinary", depth=2, width=8, convolutions=3)
    shapes = [
        (part.in_channels, part.out_channels, part.stride[0]) for part in net.modules() if isinstance(part, nn.Conv2d)
    ]
    assert shapes == [(1, 8, 2), (8, 8, 1), (8, 8, 1), (8, 16, 2), (16, 16, 1), (16, 16, 1)]
    assert net(torch.rand(3, 1, 28, 28)).shape == (3, 10)


def test_clipping_changes_no_image_and_halves_boxes_around_black_pixels_whose_slopes_stay() -> None:
    clipping = small("cnn", (1, 28, 28), 10, "ordinary", clip=True)
    plain = clipping.layers[1:]
    images = torch.rand(5, 1, 28, 28)
    assert torch.equal(clipping(images), plain(images))
    assert torch.equal(clipping(images * 3 - 1), plain((images * 3 - 1).clamp(0, 1)))
    half, whole = (feature_box(net, torch.zeros(1, 1, 28, 28), 0.01) for net in (clipping, plain))
    edges = torch.tensor([0.0, 1.0]).repeat(392).view(1, 1, 28, 28).requires_grad_()
    slopes = [torch.autograd.grad(net(edges).sum(), edges)[0] for net in (clipping, plain)]
    assert torch.equal(*slopes)
    narrow, wide = (float((box.upper - box.lower).detach().mean()) for box in (half, whole))
    assert narrow < 0.6 * wide


def test_intervals_come_out_of_an_ordinary_network_about_as_wide_as_they_go_in() -> None:
    net = small("mlp", (1, 28, 28), 10, "ordinary", depth=4, width=200, batch_norm=False).layers[:-1]  # no sigmoid
    box = feature_box(net, torch.rand(20, 1, 28, 28), 0.01)
    assert 0.5 < float((box.upper - box.lower).detach().mean() / 0.02) < 4  # the last layer doubles, with nothing off


def test_normalisation_divides_the_bound_by_the_least_std_and_the_mean_is_free() -> None:
    shape = (3, 32, 32)
    assert lipschitz_bound(small("mlp", shape, 4, mean=(0.5, 0.4, 0.3)), shape) <= 1 + 1e-6
    bound = lipschitz_bound(small("mlp", shape, 4, mean=(0.5, 0.4, 0.3), std=(0.5, 0.25, 2.0)), shape)
    assert bound == pytest.approx(4, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "millions"),
    [("resnet20", 0.27), ("resnet110", 1.7), ("densenet", 0.176), ("vgg11", 9.2), ("vgg19", 20.0),
     pytest.param("wide_resnet28_10", 36.5, marks=pytest.mark.slow)],
)  # fmt: skip
def test_the_published_construction_has_as_many_parameters_as_published(name: str, millions: float) -> None:
    net = build(name, (3, 32, 32), 10, construction="paper")
    assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize("depth", [8, 20, 56])
def test_a_resnet_has_the_depth_it_is_given_in_both_constructions(depth: int) -> None:
    paper, lipschitz = (list(build("resnet", (3, 32, 32), 10, construction=c, depth=depth).modules())
                        for c in ("paper", "lipschitz"))  # fmt: skip
    convolutions = [m for m in paper if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == depth
    steps = [m for m in lipschitz if isinstance(m, PotentialStep)]
    assert 2 * len(steps) + 2 == depth


def test_batch_normalisation_can_be_left_out() -> None:
    for name in ("mlp", "resnet", "wide_resnet", "densenet"):
        net = small(name, (1, 28, 28), 4, "paper", batch_norm=False)
        assert not [m for m in net.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
        assert [
            m for m in small(name, (1, 28, 28), 4, "paper").modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)
        ]


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("name", QUICK)
def test_the_description_builds_the_same_network_again(name: str, construction: str) -> None:
    extra: dict[str, Any] = {"side": 2} if construction == "lipschitz" else {"batch_norm": False}
    net = shaken(small(name, (3, 32, 32), 4, construction, mean=(0.5, 0.4, 0.3), **extra))
    text = json.dumps(net.description)
    again = build(**json.loads(text)).eval()
    assert json.dumps(again.description) == text
    assert repr(again) == repr(net)
    again.load_state_dict(net.state_dict())
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(again(images), net(images))


def test_the_description_spells_out_every_default() -> None:
    description = build("resnet20", (1, 28, 28), 4).description
    assert description == {
        "name": "resnet20", "input_shape": [1, 28, 28], "dim": 4, "construction": "lipschitz", "side": 1.0,
        "mean": None, "std": None, "width": 16,
    }  # fmt: skip
    assert default_options("resnet", "paper") == {"batch_norm": True, "depth": 20, "width": 16}


@pytest.mark.parametrize(
    ("error", "says", "call"),
    [
        (ValueError, "expected a name out of mlp, .*resnet110.*; got 'resnet19'", {"name": "resnet19"}),
        (ValueError, "expected a construction out of lipschitz, paper, ordinary; got 'x'", {"construction": "x"}),
        (TypeError, "expected options of lipschitz resnet: .*side, depth, width; got batch_norm", {"batch_norm": True}),
        (TypeError, "expected options of paper resnet: .*batch_norm.*; got side", {"construction": "paper", "side": 1}),
        (TypeError, "got depth=20", {"name": "resnet110", "depth": 20}),
        (ValueError, r"expected a depth of 6n \+ 2, got 21", {"depth": 21}),
        (ValueError, r"expected a depth of 6n \+ 2, got 2", {"depth": 2}),
        (ValueError, "expected a depth out of 11, 13, 16, 19, got 12", {"name": "vgg", "depth": 12}),
        (ValueError, "expected an even number of channels for MaxMin, got 5", {"width": 5}),
        (ValueError, "expected width to be a whole number >= 1, got 0", {"width": 0}),
        (ValueError, "expected width to be a whole number >= 1, got 4.0", {"width": 4.0}),
        (ValueError, "expected batch_norm to be True or False, got 1", {"construction": "paper", "batch_norm": 1}),
        (ValueError, "expected dim to be a whole number >= 1, got 0", {"dim": 0}),
        (ValueError, "expected a finite side > 0, got -1", {"side": -1}),
        (ValueError, r"expected input_shape \(channels, height, width\), got \(784,\)", {"input_shape": (784,)}),
        (ValueError, r"expected input_shape .*; mlp and distnet take any", {"input_shape": (1, 0, 28)}),
        (ValueError, "expected a mean for each of the 1 channels", {"mean": (0.5, 0.5), "std": (1.0, 1.0)}),
        (ValueError, "expected one mean and one positive std", {"std": (0.0,)}),
    ],
)  # fmt: skip
def test_errors_say_what_was_expected_and_what_came(error: type[Exception], says: str, call: dict[str, Any]) -> None:
    with pytest.raises(error, match=says):
        build(**({"name": "resnet", "input_shape": (1, 28, 28), "dim": 4} | call))


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
@pytest.mark.parametrize("shape", [(1, 2, 2), (2, 6, 10), (3, 14, 4)], ids=str)
def test_a_patchnet_takes_any_even_map(shape: tuple[int, ...], construction: str) -> None:
    net = shaken(small("patchnet", shape, 3, construction), 0.05)
    features = net(torch.rand(2, *shape))
    assert features.shape == (2, 3)
    assert ((features >= 0) & (features <= 1)).all()
    bound = lipschitz_bound(net, shape)
    assert bound <= 1 + 1e-6 or (construction == "paper" and bound > 1)


@pytest.mark.parametrize("construction", CONSTRUCTIONS)
def test_no_pair_of_images_is_stretched_beyond_the_bound_of_a_patchnet(construction: str) -> None:
    shape = (2, 12, 12)
    net = shaken(small("patchnet", shape, 4, construction), 0.02).double()
    x = torch.rand(4, *shape, dtype=torch.float64)
    for norm in NORMS:
        bound = lipschitz_bound(net, shape, norm)
        for steps in (torch.rand_like(x) - x, 1e-4 * uphill(net, x, norm)):
            assert stretch(net, x, steps, norm) <= bound * (1 + 1e-9)


def test_no_pixel_is_lost_in_a_patchnet() -> None:
    image = torch.rand(1, 1, 12, 12, requires_grad=True)
    for construction in CONSTRUCTIONS:
        options = {"side": 100.0} if construction == "lipschitz" else {"batch_norm": False}
        net = small("patchnet", (1, 12, 12), 16, construction, **options)
        (gradient,) = torch.autograd.grad(net(image).sum(), image)
        assert (gradient != 0).all(), construction


def test_a_patchnet_has_the_blocks_and_layers_it_is_given() -> None:
    net = build("patchnet", (3, 32, 32), 10, depth=3, width=4, dense=4, hidden=6)
    steps = [m for m in net.modules() if isinstance(m, PotentialStep)]
    assert [m.inner.out_channels for m in steps] == [4] * 3 + [8] * 3 + [12] * 3
    assert [m.out_features for m in net.modules() if isinstance(m, nn.Linear)] == [6] * 4 + [10]
    assert default_options("patchnet") == {"side": 1.0, "depth": 2, "width": 48, "dense": 2, "hidden": 512}


@pytest.mark.parametrize("shape", [(1, 7, 8), (1, 8, 7), (1, 1, 1)], ids=str)
def test_a_patchnet_of_odd_maps_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected an even height and width for patchnet, got .*; pad or crop"):
        build("patchnet", shape, 3)


@pytest.mark.parametrize(
    ("options", "estimate"),
    [({}, 1.0), ({"side": 4}, 0.25), ({"std": [0.5, 0.25, 2.0]}, 4.0), ({"side": 8.0, "std": [0.5] * 3}, 0.25),
     ({"mean": [0.5] * 3}, 1.0)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ["mlp", "patchnet"])
def test_the_estimate_is_what_a_lipschitz_construction_is_proven_to_keep(
    name: str, options: dict[str, Any], estimate: float
) -> None:
    shape = (3, 8, 8)
    net = shaken(small(name, shape, 4, **options))
    assert net.lipschitz_estimate == pytest.approx(estimate)
    assert lipschitz_bound(net, shape) <= estimate * (1 + 1e-6)


def test_the_published_construction_aims_at_nothing() -> None:
    assert small("resnet", (3, 8, 8), 4, "paper").lipschitz_estimate is None
    assert small("mlp", (3, 8, 8), 4, "paper", std=[0.5] * 3).lipschitz_estimate is None
