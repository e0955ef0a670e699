"""The losses of training, against closed forms, sampled points, scipy's minimiser and finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from random_heads import random_head
from scipy.optimize import minimize
from torch import Tensor, nn

import berncert
from berncert.certification.classifier import Classifier
from berncert.extractor import build
from berncert.models.heads import build_head
from berncert.polynomial import SmoothedHead, smooth
from berncert.training.objectives import (
    attacked_images,
    batch_loss,
    boundary_term,
    certified_estimate,
    clipped_hinge,
    feature_radius,
    head_of,
)
from berncert.training.recipes.settings import TrainingSettings


def affine_head(dim: int = 3, classes: int = 4, degree: int = 2) -> tuple[nn.Linear, SmoothedHead]:
    layer = nn.Linear(dim, classes).double()
    return layer, smooth(layer, dim, degree)


def problem(rows: int = 40, dim: int = 3, classes: int = 4) -> tuple[Tensor, Tensor]:
    return torch.rand(rows, dim, dtype=torch.float64) * 0.6 + 0.2, torch.arange(rows) % classes


def images_model(kind: str = "affine", **options: Any) -> Classifier:
    extractor = build("mlp", (1, 3, 3), 3, depth=1, width=8, **({"side": 3.0} | options))
    return Classifier(extractor, build_head(kind, 3, 4, scale=3.0, width=8, degree=2))


def settings(**changes: Any) -> TrainingSettings:
    return TrainingSettings(**({"objective": "adversarial", "attack_steps": 5} | changes))


def test_what_is_estimated_to_be_certified_in_linf_is_certified() -> None:
    head = random_head(np.random.default_rng(3), 4, (2, 2, 3))
    x = torch.rand(60, 3, dtype=torch.float64)
    labels = head(x).argmax(dim=1)
    c = berncert.certify(head, x, norm=math.inf)
    for radius in (0.01, 0.05, 0.1):
        estimate = certified_estimate(head, x, labels, radius, math.inf).numpy()
        assert (c.upper[estimate] >= radius - 1e-9).all()
        assert estimate.any()


@pytest.mark.parametrize("norm", [2.0, math.inf])
@pytest.mark.parametrize("radius", [0.0, 0.01, 0.1, 0.3])
def test_the_estimate_agrees_with_the_certificate_of_an_affine_head(radius: float, norm: float) -> None:
    _, head = affine_head()
    x, labels = problem()
    labels[::2] = head(x).argmax(dim=1)[::2]
    c = berncert.certify(head, x, norm=norm, tolerance=1e-9)
    clear = (np.abs(c.radius - radius) > 1e-6) & (c.radius < x.minimum(1 - x).amin(dim=1).numpy())  # walls not in play
    proven = (c.predicted == labels.numpy()) & (c.radius >= radius)
    estimate = certified_estimate(head, x, labels, radius, norm).numpy()
    assert clear.sum() > 10
    assert (estimate == proven)[clear].all()
    assert (estimate <= proven)[np.abs(c.radius - radius) > 1e-6].all()  # walls can only help


def energy_of(head: nn.Module, start: np.ndarray, first: int, second: int) -> Any:
    """x -> phi(x)^2 / 2 + |start - x|^2 and its slope."""

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.tensor(x)[None].requires_grad_()
        logits = head(point)[0]
        energy = (logits[first] - logits[second]) ** 2 / 2 + ((torch.tensor(start) - point) ** 2).sum()
        (slope,) = torch.autograd.grad(energy, point)
        return float(energy.detach()), slope[0].numpy()

    return value


def least_energy(head: nn.Module, start: Tensor) -> float:
    """F-hat of one row over the cube, from several starting points."""
    first, second = head(start[None])[0].topk(2).indices.tolist()
    value = energy_of(head, start.numpy(), first, second)
    rng = np.random.default_rng(0)
    starts = [start.numpy(), *(np.clip(start.numpy() + rng.normal(0, 0.2, (2, len(start))), 0, 1))]
    bounds = [(0, 1)] * len(start)
    options = {"ftol": 1e-15, "gtol": 1e-10}
    return min(minimize(value, x, jac=True, bounds=bounds, method="L-BFGS-B", options=options).fun for x in starts)


@pytest.mark.parametrize(("bend", "slope"), [(0.0, 1.0), (0.0, 10.0), (0.2, 1.0), (0.5, 1.0), (1.0, 1.0)])
def test_the_boundary_term_is_the_least_energy_inside_the_cube(bend: float, slope: float) -> None:
    head = random_head(np.random.default_rng(2), 3, (2, 3, 2), bend=bend)
    head.coefficients.mul_(slope)
    x = torch.rand(6, 3, dtype=torch.float64) * 0.3 + 0.35
    labels = head(x).argmax(dim=1)
    for row in range(6):
        got = float(boundary_term(head, x[row : row + 1], labels[row : row + 1]))
        assert got == pytest.approx(least_energy(head, x[row]), rel=1e-3, abs=1e-9)


def test_the_boundary_term_is_the_least_energy_at_the_walls_too() -> None:
    layer, head = affine_head(classes=2, degree=1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
        layer.bias.zero_()
    head = smooth(layer, 3, 1)
    x = torch.tensor([[0.05, 0.9, 0.5]], dtype=torch.float64)  # towards the boundary the first axis ends at once
    got = float(boundary_term(head, x, torch.tensor([0])))
    assert got == pytest.approx(least_energy(head, x[0]), rel=1e-3)


def test_the_boundary_term_of_an_affine_head_is_known() -> None:
    layer, head = affine_head(classes=2)
    x, _ = problem(classes=2)
    logits = layer(x)
    lead = (logits[:, 0] - logits[:, 1]).abs()
    slope = (layer.weight[0] - layer.weight[1]).square().sum()
    expected = lead.square() / (2 + slope)  # the least of (lead - slope s)^2 / 2 + slope s^2
    torch.testing.assert_close(boundary_term(head, x, logits.argmax(dim=1)), expected.mean())


def test_the_boundary_term_counts_correct_rows_only() -> None:
    head = random_head(np.random.default_rng(2), 3, (2, 2, 2), bend=0.2)
    x, _ = problem(classes=3)
    right = head(x).argmax(dim=1)
    labels = torch.where(torch.arange(40) < 10, right, (right + 1) % 3)
    torch.testing.assert_close(boundary_term(head, x, labels), boundary_term(head, x[:10], right[:10]))
    assert float(boundary_term(head, x[10:], labels[10:])) == 0.0


def test_the_slope_of_the_boundary_term_is_that_of_the_least_energy() -> None:
    base = build_head("mlp", 2, 3, width=6, degree=3).double()
    x = (torch.rand(6, 2, dtype=torch.float64) * 0.3 + 0.35).requires_grad_()

    def term() -> Tensor:
        head = head_of(Classifier(nn.Identity(), base), "smoothed")
        return boundary_term(head, x, labels)

    with torch.no_grad():
        labels = head_of(Classifier(nn.Identity(), base), "smoothed")(x).argmax(dim=1)
    inputs = [x, *base.parameters()]
    slopes = torch.autograd.grad(term(), inputs, allow_unused=True)
    for tensor, slope in zip(inputs, slopes, strict=True):
        assert slope is not None
        flat = tensor.detach().view(-1)
        for i in range(0, flat.numel(), 3):
            middle = float(flat[i])
            ends = []
            for step in (1e-5, -1e-5):
                flat[i] = middle + step
                ends.append(float(term().detach()))
            flat[i] = middle
            assert float(slope.detach().reshape(-1)[i]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("through", ["base", "smoothed"])
@pytest.mark.parametrize("kind", ["identity", "affine", "mlp", "polynomial", "groups"])
def test_attacked_images_stay_in_the_ball_and_the_pixels_and_raise_the_loss(kind: str, through: str) -> None:
    model = images_model(kind) if kind != "identity" else Classifier(
        build("mlp", (1, 3, 3), 4, depth=1, width=8, side=3.0), build_head("identity", 4, 4)
    )  # fmt: skip
    images, labels = torch.rand(30, 1, 3, 3), torch.arange(30) % 4
    images[:5] = images[:5].round()
    generator = torch.Generator().manual_seed(0)
    moved = attacked_images(settings(through=through), model, images, labels, 0.3, generator)
    assert ((moved - images).flatten(1).norm(dim=1) <= 0.3 * (1 + 1e-5)).all()
    assert ((moved >= 0) & (moved <= 1)).all()
    assert not moved.requires_grad
    with torch.no_grad():
        before, after = (F.cross_entropy(model.eval()(y), labels) for y in (images, moved))
    assert after > before


def test_an_attack_leaves_modes_gradients_and_buffers_as_they_were() -> None:
    model = images_model("mlp", construction="paper", side=None)
    model.train()
    model.extractor.layers[2].eval()  # a batch normalisation that is kept fixed
    model.head.layers[0].bias.requires_grad_(False)
    modes = [part.training for part in model.modules()]
    wanted = [parameter.requires_grad for parameter in model.parameters()]
    values = {key: value.clone() for key, value in model.state_dict().items()}
    images, labels = torch.rand(8, 1, 3, 3), torch.arange(8) % 4
    attacked_images(settings(), model, images, labels, 0.3, torch.Generator().manual_seed(0))
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(values[key], value) for key, value in model.state_dict().items())
    assert [part.training for part in model.modules()] == modes


def test_an_attack_that_fails_puts_the_mode_back() -> None:
    model = images_model().train()
    with pytest.raises((RuntimeError, ValueError)):
        attacked_images(
            settings(), model, torch.rand(2, 1, 5, 5), torch.zeros(2, dtype=torch.long), 0.3, torch.Generator()
        )
    assert all(part.training for part in model.modules())


def test_attacked_images_follow_from_the_generator() -> None:
    model, images, labels = images_model(), torch.rand(8, 1, 3, 3), torch.arange(8) % 4
    a, b, c = (
        attacked_images(settings(attack_steps=1), model, images, labels, 0.3, torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_the_feature_radius_is_the_radius_times_what_the_construction_aims_at() -> None:
    assert feature_radius(images_model(), 0.6) == pytest.approx(0.2)
    assert feature_radius(images_model(std=[0.5]), 0.6) == pytest.approx(0.4)
    with pytest.raises(ValueError, match="expected an extractor in the lipschitz construction"):
        feature_radius(images_model(construction="paper", side=None), 0.6)


@pytest.mark.parametrize("through", ["base", "smoothed"])
@pytest.mark.parametrize("kind", ["affine", "mlp", "polynomial", "groups"])
@pytest.mark.parametrize(
    "changes",
    [{"objective": "plain"}, {}, {"objective": "gaussian", "noise": 0.1}, {"objective": "certified", "attack_steps": 0},
     {"objective": "certified"}, {"objective": "plain", "boundary_weight": 0.5}],
    ids=str,
)  # fmt: skip
def test_gradients_reach_every_parameter(changes: dict[str, Any], kind: str, through: str) -> None:
    if changes.get("objective") == "certified" and through == "base":
        with pytest.raises(ValueError, match="expected through='smoothed' with the certified objective"):
            settings(through=through, **changes)
        return
    model = images_model(kind).train()
    result = batch_loss(
        settings(through=through, **changes), model, torch.rand(16, 1, 3, 3), torch.arange(16) % 4, 0.3,
        torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert result.correct.shape == (16,)
    result.loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


def test_a_radius_of_nothing_makes_every_objective_the_plain_one() -> None:
    model, images, labels = images_model().train(), torch.rand(16, 1, 3, 3), torch.arange(16) % 4
    losses = [
        batch_loss(settings(**changes), model, images, labels, 0.0, torch.Generator().manual_seed(0)).loss.item()
        for changes in ({"objective": "plain"}, {}, {"objective": "gaussian", "noise": 0.0},
                        {"objective": "certified"}, {"objective": "certified", "attack_steps": 0})
    ]  # fmt: skip
    assert losses == pytest.approx([losses[0]] * 5, rel=1e-5)


def test_the_temperature_rescales_the_logits_and_the_loss() -> None:
    model, images, labels = images_model(), torch.rand(16, 1, 3, 3), torch.arange(16) % 4
    result = batch_loss(
        settings(objective="plain", through="base", temperature=0.1), model, images, labels, 0.0, torch.Generator()
    )
    torch.testing.assert_close(result.loss, 0.1 * F.cross_entropy(model(images) / 0.1, labels))


def test_an_extractor_is_trained_in_the_norm_that_it_was_built_for() -> None:
    l2, linf = images_model(), images_model()
    linf.extractor = build("distnet", (1, 3, 3), 3, side=2.0, depth=1, width=8)
    assert feature_radius(l2, 0.6) == pytest.approx(0.2)
    assert feature_radius(linf, 0.6, math.inf) == pytest.approx(0.3)
    with pytest.raises(ValueError, match=r"norm of the training, inf, got .* for norm 2; set norm = 2, or .* distnet"):
        feature_radius(l2, 0.6, math.inf)
    with pytest.raises(ValueError, match=r"norm of the training, 2, got .* for norm inf; set norm = inf"):
        feature_radius(linf, 0.6)


def test_the_clipped_hinge_is_the_share_of_the_radius_that_is_not_proven() -> None:
    clean = torch.tensor([[3.0, 0.0, 1.0], [3.0, 0.0, 1.0], [0.0, 2.0, 1.0]])
    labels = torch.tensor([0, 0, 2])
    raised = clean + torch.tensor([[0.0, 4.0, 4.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]])  # leads of 2, 2 and -1
    assert float(clipped_hinge(clean[:1], raised[:1], labels[:1])) == pytest.approx(1 - 2 / 4)
    assert float(clipped_hinge(clean[1:2], raised[1:2], labels[1:2])) == 0  # proven, with room to spare
    assert float(clipped_hinge(clean[2:], raised[2:], labels[2:])) == 1  # the class is wrong


def test_the_clipped_hinge_pulls_only_at_images_that_are_right_and_not_yet_proven() -> None:
    clean = torch.tensor([[3.0, 0.0, 1.0], [3.0, 0.0, 1.0], [0.0, 2.0, 1.0]], requires_grad=True)
    gains = torch.tensor([[0.0, 4.0, 4.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    clipped_hinge(clean, clean + gains, torch.tensor([0, 0, 2])).backward()
    assert clean.grad is not None
    assert [bool(row.any()) for row in clean.grad] == [True, False, False]
    assert clean.grad[0].tolist() == pytest.approx([-1 / 12, 0, 1 / 12])
