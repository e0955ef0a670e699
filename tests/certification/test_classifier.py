"""From image to radius: no attack in pixel space inside the radius succeeds, and isometric extractors lose nothing."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from random_heads import random_head
from sklearn.datasets import load_digits
from torch import Tensor, nn

import berncert
from berncert.certification.prepared_model import PreparedModel
from berncert.extractor import (
    Householder,
    MaxMin,
    Normalise,
    PotentialStep,
    UnitCube,
    almost_orthogonal,
    lipschitz_bound,
    miyato,
    orthogonal,
    spectral,
)
from berncert.extractor.bounds.norm_gains import conversion

NORMS = [1.0, 2.0, math.inf]


def attacked(model: nn.Module, images: Tensor, labels: Tensor, radii: Tensor, norm: float, steps: int) -> Tensor:
    """Whether any of `steps` random or gradient-led images within the radii changed the class, for each image."""
    generator = torch.Generator().manual_seed(0)
    broken = torch.zeros(len(images), dtype=torch.bool)
    radii = radii.view(-1, 1)
    flat = images.flatten(1)
    offset = torch.randn(flat.shape, generator=generator, dtype=flat.dtype)
    for step in range(steps):
        if step % 5 == 4:  # a fresh start
            offset = torch.randn(flat.shape, generator=generator, dtype=flat.dtype)
        offset = offset / torch.linalg.vector_norm(offset, ord=norm, dim=1, keepdim=True) * radii * (1 - 1e-12)
        x = (flat + offset).requires_grad_()
        logits = model(x.view_as(images))
        broken |= logits.argmax(dim=1) != labels
        own = logits.gather(1, labels[:, None])
        rivals = logits.scatter(1, labels[:, None], -math.inf).max(dim=1, keepdim=True).values
        (slope,) = torch.autograd.grad((rivals - own).sum(), x)
        steepest = slope.sign() if norm == math.inf else slope
        if norm == 1.0:  # all on the pixels that matter most
            kept = slope.abs().topk(max(1, slope.shape[1] // 20), dim=1).indices
            steepest = torch.zeros_like(slope).scatter(1, kept, slope.gather(1, kept))
        length = torch.linalg.vector_norm(steepest, ord=norm, dim=1, keepdim=True).clamp_min(1e-300)
        offset = offset + steepest / length * radii
    return broken


def networks() -> dict[str, nn.Module]:
    """Extractors of 1x8x8 images, of many kinds, in evaluation mode."""
    torch.manual_seed(0)
    conv = nn.Conv2d
    made = {
        "isometric": nn.Sequential(nn.Flatten(), orthogonal(nn.Linear(64, 64)), nn.Linear(64, 4), UnitCube(3.0)),
        "spectral": nn.Sequential(
            Normalise([0.5], [0.25]), spectral(conv(1, 8, 3, padding=1)), MaxMin(), spectral(conv(8, 8, 3, stride=2)),
            nn.Flatten(), spectral(nn.Linear(72, 4)), UnitCube(2.0),
        ),
        "steps": nn.Sequential(
            orthogonal(conv(1, 4, 2, stride=2)), PotentialStep(almost_orthogonal(conv(4, 6, 3, padding=1))),
            Householder(4), nn.Flatten(), PotentialStep(spectral(nn.Linear(64, 64))),
            almost_orthogonal(nn.Linear(64, 4)), UnitCube(1.0),
        ),
        "elsewhere": nn.Sequential(
            conv(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.GELU(), nn.MaxPool2d(3, 2, 1), miyato(conv(6, 6, 3)),
            nn.Softplus(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 4), nn.Sigmoid(),
        ),
    }  # fmt: skip
    with torch.no_grad():
        made["elsewhere"](torch.rand(64, 1, 8, 8))  # statistics for the batch normalisation
    return {name: net.eval() for name, net in made.items()}


def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    return torch.tensor(data.images / 16, dtype=torch.float32)[:, None], torch.tensor(data.target)


@pytest.fixture(scope="module")
def trained() -> berncert.Classifier:
    """A small network that knows most digits, smoothed."""
    torch.manual_seed(1)
    images, labels = digits()
    extractor = nn.Sequential(
        spectral(nn.Conv2d(1, 16, 3, padding=1)), MaxMin(), orthogonal(nn.Conv2d(16, 16, 2, stride=2)), MaxMin(),
        nn.Flatten(), orthogonal(nn.Linear(256, 32)), MaxMin(), orthogonal(nn.Linear(32, 4)), UnitCube(1.5),
    )  # fmt: skip
    head = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 10))
    model = berncert.Classifier(extractor, head)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        batch = torch.randint(0, 1200, (128,))
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    return model.smooth(degree=3)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", networks())
def test_no_attack_inside_the_radius_changes_the_class_of_a_random_model(name: str, norm: float) -> None:
    rng = np.random.default_rng(0)
    model = berncert.Classifier(networks()[name], random_head(rng, 5, (2, 2, 2, 2)))
    images = torch.rand(100, 1, 8, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    c = berncert.certify(model, images, norm=norm)
    finite = np.minimum(c.radius, 50.0)
    assert (c.radius > 0).mean() > 0.8
    found = attacked(copy.deepcopy(model).double(), images, torch.tensor(c.predicted), torch.tensor(finite), norm, 25)
    assert not found.any()


@pytest.mark.parametrize("norm", NORMS)
def test_no_attack_inside_the_radius_changes_the_class_of_a_trained_model(
    trained: berncert.Classifier, norm: float
) -> None:
    images, labels = (part[1200:1500] for part in digits())
    c = berncert.certify(trained, images, norm=norm)
    assert (c.predicted == labels.numpy()).mean() > 0.7
    double = copy.deepcopy(trained).double()
    radii, predicted = torch.tensor(c.radius), torch.tensor(c.predicted)
    assert not attacked(double, images.double(), predicted, radii, norm, 40).any()
    # the attack is worth something: far outside it succeeds
    assert attacked(double, images.double(), predicted, 20 * radii, norm, 40).double().mean() > 0.5


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, 4.0, math.inf])
def test_a_route_of_another_norm_never_gives_less_than_the_plain_one(trained: berncert.Classifier, norm: float) -> None:
    images = digits()[0][1200:1230]
    c = berncert.certify(trained, images, norm=norm)
    plain = berncert.certify(trained.head, c.features, norm=norm).radius / lipschitz_bound(
        copy.deepcopy(trained.extractor).double(), (1, 8, 8), norm
    )
    assert (c.radius >= plain * (1 - 1e-6)).all()


@pytest.mark.parametrize("norm", [2.0])
def test_the_radius_of_an_isometric_extractor_is_the_distance_in_feature_space_times_the_side(norm: float) -> None:
    rng = np.random.default_rng(1)
    extractor = nn.Sequential(nn.Flatten(), orthogonal(nn.Linear(4, 4, bias=False)), UnitCube(8.0)).double().eval()
    model = berncert.Classifier(extractor, random_head(rng, 3, (1, 1, 1, 1)))
    images = torch.tensor(rng.normal(size=(50, 1, 2, 2)))
    c = berncert.certify(model, images, norm=norm)
    np.testing.assert_allclose(c.radius, c.feature_radius * 8.0, rtol=1e-5)
    # the witness is an image's: go back, and the class has changed
    reachable = np.isfinite(c.in_features.upper)
    beyond = c.features + (c.in_features.witness - c.features) * (1 + 1e-9)
    with torch.no_grad():
        turned = torch.linalg.solve(extractor[1].weight, torch.tensor(8.0 * (beyond[reachable] - 0.5)).T).T
        changed = model(turned.reshape(-1, 1, 2, 2)).argmax(dim=1).numpy() != c.predicted[reachable]
        distance = (turned - images[reachable].flatten(1)).norm(dim=1).numpy()
    assert reachable.any()
    assert changed.all()
    assert (distance >= c.radius[reachable]).all()
    assert (distance <= c.radius[reachable] * 1.002).all()


def test_pixels_in_other_units_scale_the_radius() -> None:
    rng = np.random.default_rng(2)
    net, head = networks()["steps"], random_head(rng, 3, (1, 1, 1, 1))
    images = torch.rand(20, 1, 8, 8, dtype=torch.float64)
    unit = berncert.certify(berncert.Classifier(net, head), images)
    scaled = nn.Sequential(Normalise([0.0], [255.0]), net).eval()
    bytes_ = berncert.certify(berncert.Classifier(scaled, head), images * 255)
    np.testing.assert_allclose(bytes_.radius, 255 * unit.radius, rtol=1e-3)


def test_float32_extraction_states_its_loss_and_proves_less(trained: berncert.Classifier) -> None:
    images = digits()[0][1200:1260]
    double, single = (berncert.certify(trained, images, dtype=dtype) for dtype in (torch.float64, torch.float32))
    assert (double.extraction_error < 1e-9).all()
    assert (single.extraction_error > double.extraction_error).all()
    with torch.no_grad():
        in_single = trained.freeze((1, 8, 8)).extractor(images).double().numpy()
    assert (np.linalg.norm(in_single - double.features, axis=1) <= single.extraction_error).all()
    assert (single.radius <= double.radius).all()
    assert (single.radius > 0).mean() > 0.5


def test_an_extraction_that_rounds_too_much_proves_nothing_and_says_why() -> None:
    deep = nn.Sequential(nn.Flatten(), *(nn.Linear(64, 64) for _ in range(12)), nn.Linear(64, 4), nn.Sigmoid()).eval()
    with torch.no_grad():
        for layer in deep[1:-1]:
            layer.weight.mul_(8)
    model = berncert.Classifier(deep, random_head(np.random.default_rng(0), 3, (1, 1, 1, 1)))
    c = berncert.certify(model, torch.rand(5, 1, 8, 8), dtype=torch.float32)
    assert (c.radius == 0).all()
    assert set(c.status) == {berncert.Status.EXTRACTION}


def test_the_batch_size_and_the_form_of_the_images_do_not_matter(trained: berncert.Classifier) -> None:
    images = digits()[0][:30]
    expected = berncert.certify(trained, images, batch_size=30)
    for other in (images.numpy(), images.tolist(), images.double()):
        got = berncert.certify(trained, other, batch_size=7, threads=1)
        np.testing.assert_allclose(got.radius, expected.radius, rtol=2e-3)  # what the search stops at
        assert (got.predicted == expected.predicted).all()


def test_the_class_is_that_of_the_smoothed_classifier(trained: berncert.Classifier) -> None:
    images = digits()[0][:50]
    c = berncert.certify(trained, images, routes="global")
    with torch.no_grad():
        logits = copy.deepcopy(trained).double()(images.double())
    assert (logits.argmax(dim=1).numpy() == c.predicted).all()
    row = c[3]
    assert row.radius == pytest.approx((row.feature_radius - 2 * row.extraction_error) / row.lipschitz_bound, rel=1e-6)
    assert (c.upper == math.inf).all()  # no limit is known in pixels unless one is looked for


@pytest.mark.parametrize("norm", [2, math.inf])
def test_the_rounding_of_both_images_is_subtracted_and_grows_with_the_distance(
    trained: berncert.Classifier, norm: float
) -> None:
    c = berncert.certify(trained, digits()[0][:20], norm=norm, dtype=torch.float32, routes="global")
    slope = PreparedModel(trained, (1, 8, 8), norm=norm, dtype=torch.float32).value.error[0]
    for row in c:
        to_features = conversion(2.0, float(row.feature_norm), trained.head.dim)
        growth = slope * to_features * conversion(norm, 2.0, 64)
        left = row.feature_radius - 2 * row.extraction_error
        assert row.radius <= left / (row.lipschitz_bound + growth)
        assert row.radius == pytest.approx(left / (row.lipschitz_bound + growth), rel=1e-11)
        assert growth > 1e-9 * row.lipschitz_bound


def test_features_that_may_leave_the_cube_are_proven_only_inside_it() -> None:
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).double().eval()
    with torch.no_grad():
        extractor[1].weight.copy_(torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]))
        extractor[1].bias.zero_()
    far = berncert.SmoothedHead(torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]], dtype=torch.float64))
    model = berncert.Classifier(extractor, far)
    c = berncert.certify(model, torch.tensor([[0.3, 0.6, 0, 0]], dtype=torch.float64).view(1, 1, 2, 2))
    assert c.radius[0] == pytest.approx(0.3, rel=1e-9)
    assert c.radius[0] <= 0.3
    assert c.status[0] is berncert.Status.LEAVES_CUBE
    ended = berncert.Classifier(nn.Sequential(extractor, nn.Hardtanh(0.0, 1.0)), far)
    assert berncert.certify(ended, torch.full((1, 1, 2, 2), 0.3)).radius[0] == math.inf


def test_features_outside_the_cube_are_refused_with_a_cure() -> None:
    model = berncert.Classifier(
        nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval(), random_head(np.random.default_rng(0), 2, (1, 1))
    )
    with pytest.raises(ValueError, match=r"every feature in \[0, 1\].*UnitCube"):
        berncert.certify(model, torch.full((3, 1, 2, 2), 1e3))


def test_a_model_in_training_is_refused(trained: berncert.Classifier) -> None:
    training = copy.deepcopy(trained).train()
    with pytest.raises(ValueError, match=r"evaluation mode.*\.eval\(\)"):
        berncert.certify(training, digits()[0][:2])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.full((2, 1, 8, 8), math.nan), "finite pixels"),
        (torch.zeros(8), "images of shape"),
        (torch.zeros(2, 3, 8, 8), r"images that the extractor takes, got shape \(N, 3, 8, 8\)"),
        (torch.zeros(1, 8, 8), r"got shape \(N, 8, 8\).*image\[None\]"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.complex64), "floating images"),
        ("images", "images"),
    ],
)
def test_images_that_do_not_fit_are_refused(trained: berncert.Classifier, images: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        berncert.certify(trained, images)


def test_other_mistakes_say_what_to_do(trained: berncert.Classifier) -> None:
    images = digits()[0][:2]
    rough = berncert.Classifier(trained.extractor, nn.Linear(4, 10))
    with pytest.raises(TypeError, match=r"Classifier with a Linear.*smooth\(degree\)"):
        berncert.certify(rough, images)
    with pytest.raises(TypeError, match="not smoothed yet"):
        trained.smooth(2)
    with pytest.raises(TypeError, match="module as the head"):
        berncert.Classifier(trained.extractor, lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected dtype out of float64, float32"):
        berncert.certify(trained, images, dtype=torch.float16)
    with pytest.raises(ValueError, match="pass smooth"):
        berncert.Classifier(trained.extractor, nn.Softmax(dim=1)).smooth(2)
    assert berncert.Classifier(trained.extractor, nn.Softmax(dim=1)).smooth(2, dim=4).head.dim == 4


def test_no_images_give_no_rows(trained: berncert.Classifier) -> None:
    assert len(berncert.certify(trained, torch.zeros(0, 1, 8, 8))) == 0


def test_a_network_without_any_bound_proves_nothing_rather_than_something() -> None:
    # each layer reads what the one before makes 0: no value overflows, but the product of their norms does
    steep = nn.Sequential(nn.Flatten(), *(nn.Linear(4, 4) for _ in range(3)), nn.Sigmoid()).double().eval()
    with torch.no_grad():
        for i, layer in enumerate(steep[1:-1]):
            layer.weight.zero_()
            layer.weight[i, i] = 1e150
            layer.bias.zero_()
    model = berncert.Classifier(steep, random_head(np.random.default_rng(0), 2, (1, 1, 1, 1)))
    images = torch.rand(5, 1, 2, 2, dtype=torch.float64)
    assert lipschitz_bound(steep, (1, 2, 2)) == math.inf
    for norm in NORMS:
        c = berncert.certify(model, images, norm=norm)
        assert (c.radius == 0).all()
        assert (c.features == 0.5).all()


def test_a_frozen_model_is_certified_as_what_it_was_frozen_from(trained: berncert.Classifier) -> None:
    images = digits()[0][:10]
    frozen = trained.freeze((1, 8, 8))
    assert isinstance(frozen.extractor, berncert.FrozenNetwork)
    assert frozen.head is trained.head
    assert frozen.freeze() is frozen
    a, b = berncert.certify(trained, images), berncert.certify(frozen, images)
    np.testing.assert_allclose(a.radius, b.radius, rtol=2e-3)
    assert (a.predicted == b.predicted).all()
    with pytest.raises(ValueError, match=r"images of shape \(N, 1, 8, 8\), got shape \(N, 1, 9, 9\)"):
        berncert.certify(frozen, torch.zeros(2, 1, 9, 9))
    with pytest.raises(ValueError, match="expected input_shape"):
        trained.freeze()


def test_an_image_so_large_that_extraction_may_overflow_is_proven_no_further() -> None:
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False), UnitCube(1.0)).double().eval()
    with torch.no_grad():
        extractor[1].weight.zero_()
    constant = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    model = berncert.Classifier(extractor, berncert.SmoothedHead(constant))
    images = torch.tensor([1.0, 1e30, 1e37], dtype=torch.float64).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    single = berncert.certify(model, images, dtype=torch.float32)
    largest = torch.finfo(torch.float32).max
    assert ((single.radius + 2 * images[:, 0, 0, 0].numpy())[:2] <= largest).all()
    assert single.radius[2] == 0
