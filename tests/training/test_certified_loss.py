"""The certified loss, against closed forms, sampled points and a training loop of one's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from random_heads import random_head
from torch import Tensor, nn

import berncert
from berncert.extractor import build
from berncert.polynomial import SmoothedHead, SumHead, smooth
from berncert.polynomial.norms import row_norms
from berncert.training.certified_loss import attacked_features, enclosed_logits, raised_logits
from berncert.training.feature_box import FeatureBox


def affine_head(dim: int = 3, classes: int = 4, degree: int = 2) -> tuple[nn.Linear, SmoothedHead]:
    layer = nn.Linear(dim, classes).double()
    return layer, smooth(layer, dim, degree)


def problem(rows: int = 40, dim: int = 3, classes: int = 4) -> tuple[Tensor, Tensor]:
    return torch.rand(rows, dim, dtype=torch.float64) * 0.6 + 0.2, torch.arange(rows) % classes


def test_raised_logits_of_an_affine_head_are_each_rivals_worst_case() -> None:
    layer, head = affine_head()
    x, labels = problem()
    logits, raised = raised_logits(head, x, labels, 0.1)
    torch.testing.assert_close(logits, layer(x))
    rows = layer.weight[None] - layer.weight[labels][:, None]
    torch.testing.assert_close(raised - logits, 0.1 * rows.norm(dim=2))
    own = logits.gather(1, labels[:, None])
    steps = F.normalize(torch.randn(500, 1, 3, dtype=torch.float64), dim=2) * 0.1
    moved = layer(x + steps)
    gained = moved - moved.gather(2, labels.expand(500, -1)[..., None])
    assert (gained <= raised - own + 1e-12).all()
    towards = x[:, None] + 0.1 * F.normalize(rows, dim=2)  # where it is attained, for every rival
    attained = layer(towards)
    attained = attained - attained.gather(2, labels[:, None, None].expand(-1, 4, 1))
    torch.testing.assert_close(attained.diagonal(dim1=1, dim2=2), raised - own)


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_raised_logits_are_each_rivals_worst_case_in_any_norm(norm: float) -> None:
    layer, head = affine_head()
    x, labels = problem()
    logits, raised = raised_logits(head, x, labels, 0.1, norm)
    rows = layer.weight[None] - layer.weight[labels][:, None]
    dual = {1.0: math.inf, math.inf: 1.0}.get(norm) or norm / (norm - 1)
    torch.testing.assert_close(raised - logits, 0.1 * torch.linalg.vector_norm(rows, dual, dim=2))


@pytest.mark.parametrize("bend", [0.0, 1.0])
@pytest.mark.parametrize("radius", [0.0, 0.05, 0.3])
def test_enclosed_logits_are_no_less_than_any_rival_gains_in_the_box(bend: float, radius: float) -> None:
    head = random_head(np.random.default_rng(2), 4, (3, 2, 3), bend=bend)
    x, labels = problem()
    logits, worst = enclosed_logits(head, FeatureBox(x, x - radius, x + radius), labels)
    torch.testing.assert_close(logits, head(x))
    own = logits.gather(1, labels[:, None])
    for _ in range(100):
        moved = head((x + radius * (2 * torch.rand_like(x) - 1)).clamp(0, 1))
        assert (moved - moved.gather(1, labels[:, None]) <= worst - own + 1e-12).all()
    torch.testing.assert_close(worst.gather(1, labels[:, None]), own)
    if radius == 0:
        torch.testing.assert_close(worst, logits)


def test_enclosed_logits_of_an_affine_head_are_the_raised_ones_where_no_wall_is_near() -> None:
    _, head = affine_head()
    x, labels = problem()
    torch.testing.assert_close(
        enclosed_logits(head, FeatureBox(x, x - 0.1, x + 0.1), labels)[1],
        raised_logits(head, x, labels, 0.1, math.inf)[1],
    )


def test_raised_logits_at_radius_0_are_the_logits_and_never_fall_below_them() -> None:
    head = random_head(np.random.default_rng(0), 4, (3, 2, 3))
    x, labels = problem()
    logits, same = raised_logits(head, x, labels, 0.0)
    torch.testing.assert_close(logits, head(x))
    assert torch.equal(logits, same)
    raised = raised_logits(head, x, labels, 0.3)[1]
    assert (raised >= logits).all()
    assert torch.equal(raised.gather(1, labels[:, None]), logits.gather(1, labels[:, None]))


def test_raised_logits_ask_for_a_smoothed_head() -> None:
    with pytest.raises(TypeError, match="expected a smoothed head, got Linear; smooth it with"):
        raised_logits(nn.Linear(3, 4), *problem(), 0.1)


@pytest.mark.parametrize("radius", [0.0, 0.02, 0.2, 2.0])
@pytest.mark.parametrize("bend", [0.0, 1.0])
@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_attacked_features_stay_within_radius_and_cube_and_raise_the_loss(
    radius: float, bend: float, norm: float
) -> None:
    head = random_head(np.random.default_rng(1), 4, (3, 2, 3), bend=bend)
    x, labels = torch.rand(60, 3, dtype=torch.float64), torch.arange(60) % 4
    x[:10] = x[:10].round()  # on the rim
    moved = attacked_features(head, x, labels, radius, norm, 0.5, 10)
    assert ((moved - x).norm(norm, dim=1) <= radius * (1 + 1e-12) + 1e-15).all()
    assert ((moved >= 0) & (moved <= 1)).all()
    before, after = (F.cross_entropy(head(y), labels, reduction="none") for y in (x, moved))
    assert float(after.mean() - before.mean()) >= (1e-4 if radius else -1e-12)


@pytest.mark.parametrize("size", [0.001, 1.0, 16.0])
@pytest.mark.parametrize("norm", [1.0001, 1.01, 1.05, 40.0, 1e6])
def test_a_norm_near_1_or_a_large_one_has_its_radius_in_single_precision_too(norm: float, size: float) -> None:
    random = np.random.default_rng(2)
    head = SmoothedHead((size * random_head(random, 4, (2, 2, 2)).coefficients).float())
    weight = size * torch.from_numpy(random.normal(size=(4, 3))).float()
    x, labels = problem()
    for one in (head, SumHead(weight, torch.zeros(4))):
        for radius in (0.01, 0.05):
            gains = [
                raised - logits
                for logits, raised in (raised_logits(one, x.float(), labels, radius, p) for p in (1.0, norm, math.inf))
            ]  # balls of larger norms hold those of smaller ones
            assert (gains[1] >= gains[0] * (1 - 1e-4)).all()
            assert (gains[1] <= gains[2] * (1 + 1e-4)).all()
            features = x.float().requires_grad_()
            berncert.certified_loss(features, labels, one, radius, norm, attack_steps=3).backward()
            assert features.grad is not None
            assert features.grad.isfinite().all()
    moved = attacked_features(head, x.float(), labels, 0.05, norm, 0.5, 5) - x.float()
    assert (row_norms(moved, norm) <= 0.05 * (1 + 1e-4)).all()


def test_attacked_features_of_an_affine_head_with_two_classes_reach_the_worst_case() -> None:
    layer, head = affine_head(classes=2)
    x, labels = problem(classes=2)
    moved = attacked_features(head, x, labels, 0.05, 2.0, 1.0, 3)
    other = 1 - labels
    gained = layer(moved) - layer(x)
    margin = (gained.gather(1, other[:, None]) - gained.gather(1, labels[:, None])).squeeze(1)
    torch.testing.assert_close(margin, (0.05 * (layer.weight[0] - layer.weight[1]).norm()).expand(40))


def test_gradients_pass_attacked_features_as_if_the_step_were_constant() -> None:
    head = random_head(np.random.default_rng(1), 4, (2, 2, 2))
    x, labels = problem()
    x.requires_grad_()
    moved = attacked_features(head, x, labels, 0.1, 2.0, 1.0, 5)
    (slope,) = torch.autograd.grad(moved.sum(), x)
    assert torch.equal(slope, torch.ones_like(x))


@pytest.mark.parametrize("steps", [0, 7])
@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, math.inf])
def test_the_loss_at_radius_0_is_the_cross_entropy_and_grows_with_the_radius(norm: float, steps: int) -> None:
    head = random_head(np.random.default_rng(2), 4, (2, 3, 2))
    x, labels = problem()
    losses = [
        float(berncert.certified_loss(x, labels, head, radius, norm, attack_steps=steps)) for radius in (0, 0.01, 0.05)
    ]
    assert losses[0] == pytest.approx(float(F.cross_entropy(head(x), labels)), rel=1e-12)
    assert losses[0] < losses[1] < losses[2]


@pytest.mark.parametrize("norm", [2.0, math.inf])
def test_features_in_float32_meet_a_head_in_float64(norm: float) -> None:
    head = random_head(np.random.default_rng(2), 4, (2, 3, 2))
    x, labels = problem()
    expected, got = (float(berncert.certified_loss(y, labels, head, 0.05, norm)) for y in (x, x.float()))
    assert got == pytest.approx(expected, rel=1e-5)


def test_lists_are_no_features() -> None:
    with pytest.raises(TypeError, match="labels as torch tensors, got list and list"):
        berncert.certified_loss([[0.5]], [0], SmoothedHead(torch.randn(2, 2)), 0.1)  # type: ignore[arg-type]


def test_the_loss_reaches_the_network_and_the_coefficients() -> None:
    network = build("mlp", (1, 3, 3), 3, depth=1, width=8, side=3.0)
    head = SmoothedHead(nn.Parameter(torch.randn(4, 3, 3, 3)))
    loss = berncert.certified_loss(network(torch.rand(20, 1, 3, 3)), torch.arange(20) % 4, head, 0.05)
    loss.backward()
    gradients = [parameter.grad for parameter in [*network.parameters(), *head.parameters()]]
    assert all(g is not None and g.isfinite().all() and g.abs().max() > 0 for g in gradients)


def test_a_loop_of_ones_own_proves_more_with_it_than_with_cross_entropy() -> None:
    train, test = (berncert.data.load("moons", split) for split in ("train", "test"))
    proven = {}
    for radius in (0.0, 0.08):
        torch.manual_seed(0)
        network = build("mlp", (2,), 2, depth=2, width=32, side=2.0)
        head = SmoothedHead(nn.Parameter(2 * smooth(lambda x: x, 2, 3).coefficients.float()))  # starts as the identity
        optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], 0.01)
        for step in range(200):
            reach = network.lipschitz_estimate * radius * min(1, step / 100)
            loss = berncert.certified_loss(network(train.images), train.labels, head, reach, temperature=0.02)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model = berncert.Classifier(network.eval(), SmoothedHead(head.coefficients.detach().double()))
        c = berncert.certify(model, test.images, radius=0.08, routes="global")  # what the loss is about
        proven[radius] = float(c.certified_accuracy(test.labels.numpy(), [0.08])[0])
    assert proven[0.08] > proven[0.0] + 0.1


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "features of another width": ({"features": torch.rand(5, 4)}, r"expected features of shape \(N, 3\)"),
    "an empty batch": ({"features": torch.rand(0, 3)}, r"expected features of shape \(N, 3\) with N >= 1"),
    "features outside the cube": ({"features": torch.full((5, 3), 1.5)}, r"expected features in \[0, 1\]"),
    "features that are no numbers": ({"features": torch.full((5, 3), math.nan)}, r"expected features in \[0, 1\]"),
    "labels of another length": ({"labels": torch.zeros(4, dtype=torch.int64)}, "expected 5 labels"),
    "labels as fractions": ({"labels": torch.zeros(5)}, "expected 5 labels, torch.int64, got torch.float32"),
    "a label too many": ({"labels": torch.full((5,), 4)}, "labels from 0 to 3, as the head has 4 classes, got 4 to 4"),
    "a negative radius": ({"radius": -0.1}, "expected radius to be a finite number >= 0, got -0.1"),
    "an infinite radius": ({"radius": math.inf}, "expected radius to be a finite number"),
    "no temperature": ({"temperature": 0.0}, "expected temperature to be one > 0"),
    "a norm below 1": ({"norm": 0.5}, "expected a norm p"),
    "steps in parts": ({"attack_steps": 2.5}, "expected a whole number attack_steps"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_errors_that_say_what_was_expected(name: str) -> None:
    changes, message = MISTAKES[name]
    given = {"features": torch.rand(5, 3), "labels": torch.zeros(5, dtype=torch.int64), "radius": 0.1} | changes
    with pytest.raises(ValueError, match=message):
        berncert.certified_loss(head=SmoothedHead(torch.randn(4, 2, 2, 2)), **given)
