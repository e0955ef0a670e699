"""Attacks stay where they may, find what is there to be found, and never break what is proven."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from random_heads import random_head
from torch import Tensor, nn

import berncert
from berncert.attacks.gradient import LOSSES
from berncert.attacks.methods import Fgsm, Pgd
from berncert.extractor import MaxMin, UnitCube, orthogonal

NORMS = [2.0, math.inf]


def linear(weights: Tensor) -> nn.Module:
    """Two classes, told apart by weights . x > 0, of images of any shape."""
    layer = nn.Linear(weights.numel(), 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.stack([torch.zeros_like(weights), weights]))
    return nn.Sequential(nn.Flatten(), layer).eval()


@pytest.fixture
def problem() -> tuple[nn.Module, Tensor, Tensor]:
    """A plane, images around it and their classes; without limits on the pixels all distances are known."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(12, generator=generator, dtype=torch.float64)
    images = torch.randn(40, 3, 2, 2, generator=generator, dtype=torch.float64)
    model = linear(weights)
    return model, images, model(images).argmax(dim=1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("random_start", [True, False])
def test_a_plane_is_crossed_just_beyond_its_distance_and_never_before(
    problem: tuple[nn.Module, Tensor, Tensor], norm: float, loss: str, random_start: bool
) -> None:
    model, images, labels = problem
    weights = model[1].weight[1].detach()
    dual = weights.abs().sum() if norm == math.inf else weights.norm()
    distance = (images.flatten(1) @ weights).abs() / dual
    attack = Pgd(norm=norm, steps=40, step_size=0.5, loss=loss, random_start=random_start, pixels=(-math.inf, math.inf))
    for share, flipped in ((0.999, False), (1.01, True)):
        moved = attack(model, images, labels, share * distance)
        assert ((model(moved).argmax(dim=1) != labels) == flipped).all()


@pytest.mark.parametrize("norm", NORMS)
def test_attacks_stay_within_the_ball_and_the_pixels(problem: tuple[nn.Module, Tensor, Tensor], norm: float) -> None:
    model, _, _ = problem
    images = torch.rand(30, 3, 2, 2, dtype=torch.float64)
    labels = model(images).argmax(dim=1)
    radii = torch.linspace(0, 2, 30, dtype=torch.float64)
    for attack in (Pgd(norm=norm, steps=7, restarts=3), Fgsm(norm=norm)):
        moved = attack(model, images, labels, radii)
        lengths = torch.linalg.vector_norm((moved - images).flatten(1), ord=norm, dim=1)
        assert (lengths <= radii * (1 + 1e-12)).all()
        assert ((moved >= 0) & (moved <= 1)).all()


def test_fgsm_is_one_step_along_the_signs_of_the_gradient(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, _, _ = problem
    images = torch.full((1, 3, 2, 2), 0.5, dtype=torch.float64)
    labels = model(images).argmax(dim=1)
    towards = model[1].weight[1].detach().sign() * (1 - 2 * labels)
    expected = images + 0.1 * towards.view_as(images)
    torch.testing.assert_close(Fgsm(norm=math.inf)(model, images, labels, 0.1), expected)


@pytest.mark.parametrize("norm", NORMS)
def test_the_same_arguments_give_the_same_images_in_any_batch(norm: float) -> None:
    model = berncert.Classifier(
        nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Sigmoid()), nn.Linear(3, 4)
    ).double().eval()  # fmt: skip
    images, labels = torch.rand(20, 3, 2, 2, dtype=torch.float64), torch.arange(20) % 4
    attack = Pgd(norm=norm, steps=5, restarts=2, seed=3)
    one, many = (attack(model, images, labels, 0.2, batch_size=size) for size in (20, 3))
    torch.testing.assert_close(one, many, rtol=0, atol=1e-12)
    if norm == 2:  # in l-inf all starts end in the same corners
        assert not torch.equal(one, Pgd(norm=norm, steps=5, restarts=2, seed=4)(model, images, labels, 0.2))


@pytest.mark.parametrize("norm", NORMS)
def test_attacked_accuracy_never_falls_below_certified_accuracy(norm: float) -> None:
    torch.manual_seed(0)
    extractor = nn.Sequential(
        nn.Flatten(), orthogonal(nn.Linear(16, 8)), MaxMin(), orthogonal(nn.Linear(8, 4)), UnitCube(3.0)
    )
    model = berncert.Classifier(extractor, random_head(np.random.default_rng(0), 4, (2, 2, 2, 2))).double().eval()
    images = torch.rand(150, 1, 4, 4, dtype=torch.float64)
    c = berncert.certify(model, images, norm=norm)
    labels = torch.tensor(c.predicted)
    labels[::7] = (labels[::7] + 1) % 4  # some are wrong to begin with
    radii = [*np.quantile(c.radius, [0.0, 0.2, 0.5, 0.8]).tolist(), 0.0, 10.0]
    attacked = Pgd(norm=norm, steps=10, restarts=2).accuracy(model, images, labels, radii)
    right = c.predicted == labels.numpy()
    for radius, share in zip(radii, attacked, strict=True):
        assert share >= (right & (c.radius >= radius)).mean()
    assert attacked[4] == right.mean()
    assert attacked[5] < 0.2  # the attack is worth something
    order = np.argsort(radii)
    assert (np.diff(np.array(attacked)[order]) <= 0).all()


def test_the_model_comes_back_as_it_was() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    model[1].bias.requires_grad_(False)
    Pgd(steps=2)(model, torch.rand(3, 1, 2, 2), torch.zeros(3, dtype=torch.long), 0.1)
    assert [p.requires_grad for p in model.parameters()] == [True, False]
    assert all(p.grad is None for p in model.parameters())
    assert model.training


def test_images_and_labels_that_are_no_tensors_are_taken_and_none_give_none(
    problem: tuple[nn.Module, Tensor, Tensor],
) -> None:
    model, images, labels = problem
    attack = Pgd(steps=2, pixels=(-math.inf, math.inf))
    expected = attack(model, images, labels, 0.1)
    for given in (labels.int(), labels.numpy(), labels.tolist()):
        assert torch.equal(attack(model, images.numpy(), given, np.full(40, 0.1)), expected)
        assert attack.accuracy(model, images, given, [0.0]) == [1.0]
    assert attack(model, images[:0], labels[:0], 0.1).shape == (0, 3, 2, 2)


def test_attacks_need_no_gradients_from_the_caller_and_leave_none(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, images, labels = problem
    attack = Pgd(steps=2, pixels=(-math.inf, math.inf))
    expected = attack(model, images, labels, 0.1)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert torch.equal(attack(model, images, labels, 0.1), expected)
    assert not attack(model, images.clone().requires_grad_(), labels, 0.1).requires_grad


def test_layers_in_training_mode_are_refused_before_they_change() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 2))
    images, labels = torch.rand(3, 1, 2, 2), torch.zeros(3, dtype=torch.long)
    for attempt in (
        lambda: Pgd(steps=2)(model, images, labels, 0.1),
        lambda: Fgsm().accuracy(model, images, labels, [0.1]),
    ):
        with pytest.raises(ValueError, match=r"got BatchNorm1d in training mode.*call \.eval\(\)"):
            attempt()
    assert (model[1].running_mean == 0).all()
    Pgd(steps=2)(model.eval(), images, labels, 0.1)


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("norm", [1, True, "inf", None, math.nan, [2]]),
        ("steps", [0, -1, 2.5, True, "2", math.nan]),
        ("restarts", [0, 1.5, False, None]),
        ("step_size", [0, -0.1, math.nan, math.inf, "small"]),
        ("loss", ["hinge", None, ["margin"]]),
        ("pixels", [1, (0,), (1, 0), (0, math.nan), (0, 1, 2), "01"]),
        ("seed", [-1, 1.5, None, 2**32]),
    ],
)
def test_settings_that_make_no_sense_are_told(setting: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"expected .*{setting}.*got {re.escape(repr(value))}"):
            Pgd(**{setting: value})


IMAGES, LABELS = torch.full((3, 1, 2, 2), 0.5), torch.tensor([0, 1, 2])
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"labels": LABELS[:2]}, r"one label for each of 3 images, got shape \(2,\)"),
    ({"labels": LABELS[:1]}, r"one label for each of 3 images, got shape \(1,\)"),
    ({"labels": LABELS[:, None]}, r"one label for each of 3 images, got shape \(3, 1\)"),
    ({"labels": torch.eye(3)}, r"got shape \(3, 3\); write labels.argmax"),
    ({"labels": LABELS.float()}, "whole numbers >= 0, got .*labels.long"),
    ({"labels": LABELS > 0}, "whole numbers >= 0, got .*True"),
    ({"labels": LABELS - 100}, "whole numbers >= 0, got .*-100"),  # torch would leave these out of the loss
    ({"labels": LABELS + 2}, r"logits, .*got shape \(3, 4\) for 3 images with labels up to 4"),
    ({"images": (IMAGES * 255).byte()}, r"floating images .*got torch.uint8.*images.float\(\) / 255"),
    ({"images": IMAGES[:, 0, 0, 0]}, r"floating images of shape \(N, ...\), got torch.float32 of shape \(3,\)"),
    ({"images": 3 * IMAGES}, r"pixels in \[0, 1\], got 1.5 to 1.5; scale the images, or give"),
    ({"images": IMAGES - 1}, r"pixels in \[0, 1\], got -0.5 to -0.5"),
    ({"images": IMAGES * math.nan}, r"pixels in \[0, 1\], got nan"),
    ({"radius": math.nan}, "finite radii >= 0, .*got nan"),
    ({"radius": math.inf}, "finite radii >= 0, .*got inf"),
    ({"radius": -0.1}, "finite radii >= 0, .*got -0.1"),
    ({"batch_size": 0}, "whole number batch_size >= 1, got 0"),
    ({"model": nn.Conv2d(1, 3, 1)}, r"\(N, K\) logits, .*got shape \(3, 3, 2, 2\)"),
    ({"model": nn.Sequential(nn.Flatten(), nn.Linear(4, 1)), "labels": 0 * LABELS}, r"K >= 2, .*got shape \(3, 1\)"),
    ({"model": nn.Sequential(nn.Flatten(), nn.Threshold(1, math.nan))}, "logits that are numbers, got NaN"),
]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("change", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_what_cannot_be_attacked_is_told(change: dict[str, Any], words: str, loss: str) -> None:
    given = {"model": nn.Flatten(), "images": IMAGES, "labels": LABELS, "radius": 0.1, "batch_size": 8} | change
    model, images, labels, radius, batch_size = given.values()
    attack = Pgd(steps=2, loss=loss)
    with pytest.raises((ValueError, FloatingPointError), match=f"(?s)expected .*{words}"):
        attack(model, images, labels, radius, batch_size=batch_size)
    with pytest.raises((ValueError, FloatingPointError), match=f"(?s)expected .*{words}"):
        attack.accuracy(model, images, labels, [0.05, radius], batch_size=batch_size)


def test_radii_are_one_for_all_or_one_for_each_and_accuracies_are_of_some_images() -> None:
    for radii in ([0.1], torch.ones(2), torch.ones(3, 1)):
        with pytest.raises(ValueError, match="one for all 3 images or one for each, got"):
            Pgd()(nn.Flatten(), IMAGES, LABELS, radii)
    with pytest.raises(ValueError, match="at least one image, got none"):
        Pgd().accuracy(nn.Flatten(), IMAGES[:0], LABELS[:0], [0.1])
