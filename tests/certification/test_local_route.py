"""The local route: what it proves holds, what falls comes with an image, and each row says how it was proven."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import berncert
from berncert.certification.local_route import ROUNDS, WORTHWHILE, LocalRoute, _Trail
from berncert.certification.methods import Batch
from berncert.extractor.proof_cache import proven

NORMS = (1.0, 1.5, 2.0, math.inf)


def network(*, features: int = 3, gain: float = 3.0) -> nn.Sequential:
    """An ordinary network: its layers stretch much more than it does near any one image."""
    torch.manual_seed(3)
    layers = nn.Sequential(
        nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(72, features),
    ).double()  # fmt: skip
    with torch.no_grad():
        layers[-1].weight.mul_(gain)
    return layers.eval()


def smoothed() -> berncert.Classifier:
    head = berncert.SmoothedHead(torch.randn(4, 4, 4, 4, generator=torch.Generator().manual_seed(4)).double())
    return berncert.Classifier(nn.Sequential(network(gain=6.0), nn.Sigmoid()), head).freeze((1, 6, 6))


def images(count: int = 6) -> Tensor:
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def attacked(model: berncert.Classifier, x: Tensor, radius: Tensor, norm: float, tries: int) -> Tensor:
    """(tries, N, ...): images within the radii, at random and down the gradients of random combinations of logits."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for number in range(tries):
        y = x.clone().requires_grad_()
        weights = torch.randn(model.head.classes, generator=generator, dtype=torch.float64)
        (slope,) = torch.autograd.grad((model(y) @ weights).sum(), y)
        offset = slope if number % 2 else torch.randn(x.shape, generator=generator, dtype=torch.float64)
        if norm == math.inf or number % 4 == 0:
            offset = offset.sign()
        length = torch.linalg.vector_norm(offset.flatten(1), norm, dim=1).clamp_min(1e-300)
        found.append(x + offset * (radius / length * (1 - 1e-12)).view(-1, 1, 1, 1))
    return torch.stack(found).detach()


@pytest.mark.parametrize("norm", NORMS)
def test_no_image_within_a_local_radius_changes_its_class(norm: float) -> None:
    model, x = smoothed(), images()
    c = berncert.certify(model, x, norm=norm)
    assert "local" in c.route
    for moved in attacked(model, x, torch.as_tensor(c.radius), norm, 60):
        assert model(moved).argmax(dim=1).tolist() == c.predicted.tolist()


@pytest.mark.parametrize("norm", NORMS)
def test_each_row_takes_the_route_that_proves_more_and_says_which(norm: float) -> None:
    model, x = smoothed(), images()
    both, alone = berncert.certify(model, x, norm=norm), berncert.certify(model, x, norm=norm, routes="global")
    assert (both.radius >= alone.radius).all()
    assert ((both.route == "local") == (both.radius > alone.radius)).all()
    assert (both.status[both.route == "local"] == berncert.Status.LOCAL).all()
    assert set(alone.route) == {"global"}
    assert (alone.upper == math.inf).all()


@pytest.mark.parametrize("norm", NORMS)
def test_an_affine_model_is_certified_to_the_closed_form(norm: float) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(36, 4).double()
    model = berncert.Classifier.of_logits(nn.Sequential(nn.Flatten(), layer), (1, 6, 6))
    x = images()
    logits = layer(x.flatten(1)).detach()
    a = logits.argmax(dim=1)
    dual = math.inf if norm == 1 else 1.0 if norm == math.inf else norm / (norm - 1)
    rise = torch.linalg.vector_norm(layer.weight[a][:, None] - layer.weight, dual, dim=2).detach()
    exact = ((logits.gather(1, a[:, None]) - logits) / rise).nan_to_num(math.inf, posinf=math.inf).amin(dim=1).numpy()
    route = LocalRoute(model.extractor, proven(model.extractor, norm, 2.0**-53), model.head, norm)
    found, *_ = route._proven(x, a.numpy(), 2 * exact)
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    assert (found <= exact * (1 + 1e-12)).all()


def test_a_model_that_the_global_route_does_justice_to_is_not_proven_twice() -> None:
    model, test = berncert.load("digits"), berncert.data.load("digits", limit=4)
    route = LocalRoute(model.extractor, proven(model.extractor, 2.0, 2.0**-53), model.head, 2.0)
    alone = berncert.certify(model, test.images, routes="global")
    linear, _ = route.linear(test.images, alone.predicted)
    assert (alone.radius >= WORTHWHILE * linear).all()
    assert (berncert.certify(model, test.images).radius == alone.radius).all()


@pytest.mark.parametrize("norm", NORMS)
def test_what_holds_is_proven_what_falls_has_its_image_and_the_rest_is_unknown(norm: float) -> None:
    model, x = smoothed(), images()
    c = berncert.certify(model, x, norm=norm, counterexamples=True)
    assert (c.radius <= c.upper).all()
    known = np.isfinite(c.upper)
    assert known.any()
    other = model(torch.as_tensor(c.witness[known])).argmax(dim=1).numpy()
    assert (other != c.predicted[known]).all()
    far = np.linalg.norm((c.witness - x.numpy()).reshape(len(x), -1)[known], ord=norm, axis=1)
    np.testing.assert_allclose(far, c.upper[known], rtol=1e-9)
    least = berncert.verify(model, x, float(c.radius.min()) * 0.9, norm)
    assert least.holds.all()
    assert np.isnan(least.witness).all()
    most = berncert.verify(model, x, float(c.upper[known].max()) * 1.5, norm)
    assert most.falls[known].all()
    for i in np.flatnonzero(most.falls):
        moved = torch.as_tensor(most.witness[i])
        assert int(model(moved[None]).argmax()) != most.predicted[i]
        assert np.linalg.norm((moved - x[i]).flatten(), ord=norm) < float(c.upper[known].max()) * 1.5
    assert set(most.status) <= {berncert.Status.HOLDS, berncert.Status.FALLS, berncert.Status.UNKNOWN}


@pytest.mark.parametrize("norm", NORMS)
def test_deciding_takes_bounds_forwards_where_they_are_enough_and_holds_where_all_bounds_do(norm: float) -> None:
    model, x = smoothed(), images(20)
    route = LocalRoute(model.extractor, proven(model.extractor, norm, 2.0**-53), model.head, norm)
    predicted = model(x).argmax(dim=1).numpy()
    ways = set()
    for radius in (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 1.0):
        at = np.full(len(x), radius)
        forwards, all_bounds = (way(x, predicted, at)[0] >= radius for way in (route._proven_forwards, route._proven))
        holds = route.holds(x, predicted, radius)
        assert (all_bounds >= forwards).all()
        np.testing.assert_array_equal(holds, all_bounds)
        ways.update(zip(forwards.tolist(), all_bounds.tolist(), strict=True))
        for moved in attacked(model, x, torch.as_tensor(at), norm, 20):
            assert (model(moved).argmax(dim=1).numpy() == predicted)[holds].all()
    assert ways == {(True, True), (False, True), (False, False)}


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_radii_that_are_tried_close_in_on_the_largest_that_is_proven(power: float) -> None:
    largest = np.geomspace(0.03, 6, 20)
    trail = _Trail(np.full(20, 0.3))
    for tries in range(ROUNDS):
        rows = trail.unfinished(tries)
        tried = trail.radius[rows]
        trail.add(rows, np.where(tried <= largest[rows], tried, 0.0), 1 - (tried / largest[rows]) ** power)
    assert (trail.proven <= largest).all()
    assert (trail.proven >= 0.6 * largest).all()
    assert np.median(trail.proven / largest) > 0.8


def test_features_that_may_leave_the_cube_prove_nothing_by_a_bent_head() -> None:
    torch.manual_seed(4)
    head = berncert.SmoothedHead(torch.rand(3, 3, 3, 3, dtype=torch.float64))
    extractor = nn.Sequential(network(gain=1e-3), berncert.UnitCube(1.0)).double()
    shifted = berncert.Classifier(extractor, head).freeze((1, 6, 6))
    open_ended = berncert.Classifier(berncert.freeze(network(gain=1e-3), (1, 6, 6)), head)
    assert (berncert.certify(shifted, images()).radius > 0).any()
    route = LocalRoute(open_ended.extractor, proven(open_ended.extractor, 2.0, 2.0**-53), head, 2.0)
    assert (route._proven(images(), np.zeros(6, np.int64), np.full(6, 1e3))[0] == 0).all()


def test_radii_are_smaller_in_float32_and_hold_there() -> None:
    model, x = smoothed(), images().float()
    double, single = berncert.certify(model, x), berncert.certify(model, x, dtype="float32")
    local = single.route == "local"
    assert (single.radius[local] <= double.radius[local] * 1.11).all()
    for moved in attacked(model, x.double(), torch.as_tensor(single.radius) * 0.999, 2.0, 20):
        assert model(moved.float()).argmax(dim=1).tolist() == single.predicted.tolist()


def test_the_radius_of_an_image_is_the_same_in_a_batch_and_alone() -> None:
    torch.manual_seed(5)
    extractor = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 12), nn.Sigmoid(),
        nn.Linear(12, 3), nn.Sigmoid(),
    ).double()  # fmt: skip
    model = berncert.Classifier(extractor, smoothed().head).freeze((1, 6, 6))
    x = images(8)
    x[0] = 0.0
    for norm in (2.0, math.inf):
        together = berncert.certify(model, x, norm=norm)
        assert "local" in together.route
        alone = [berncert.certify(model, x[i : i + 1], norm=norm).radius[0] for i in range(len(x))]
        np.testing.assert_allclose(together.radius, alone, rtol=1e-9)


def test_a_prepared_method_with_its_local_route_pickles() -> None:
    prove = berncert.Exact(norm=math.inf).prepare(smoothed(), (1, 6, 6))
    first = prove(Batch(images()))
    second = pickle.loads(pickle.dumps(prove))(Batch(images()))
    np.testing.assert_array_equal(first.radius, second.radius)
