"""Our attacks against foolbox's, on the same networks: step by step the same, and no proof falls to its strongest."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import berncert
from berncert import data
from berncert.attacks.gradient import cross_entropy
from berncert.attacks.methods import Fgsm, Pgd
from berncert.training.loop import train
from berncert.training.recipes import load_recipe

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Please import `gaussian_filter`", DeprecationWarning)  # until SciPy 2.0
    import foolbox
    from foolbox import attacks as peers

RADII = {2: [0.2, 0.4, 0.6], math.inf: [0.05, 0.08, 0.12]}
CASES = [(norm, radius) for norm, radii in RADII.items() for radius in radii]
PEER_FGSM = {2: peers.L2FastGradientAttack, math.inf: peers.LinfFastGradientAttack}
PEER_PGD = {2: peers.L2ProjectedGradientDescentAttack, math.inf: peers.LinfProjectedGradientDescentAttack}
STEPS, STEP_SIZE = 20, 0.125

Problem = tuple[nn.Module, Tensor, Tensor]


@pytest.fixture(scope="module")
def problem() -> Problem:
    """A smooth network in float64, where both sides' rounding is far below what decides, and the test digits."""
    torch.manual_seed(0)
    digits = data.load("digits", "train")
    layers = [nn.Linear(64, 64), nn.Softplus(10), nn.Linear(64, 64), nn.Softplus(10), nn.Linear(64, 10)]
    model = nn.Sequential(nn.Flatten(), *layers).double()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(digits.images.double()), digits.labels).backward()
        optimizer.step()
    test = data.load("digits", "test")
    assert (model(test.images.double()).argmax(dim=1) == test.labels).double().mean() > 0.95
    return model.eval(), test.images.double(), test.labels


def by_peer(attack: Any, problem: Problem, radius: float | None) -> Tensor:
    model, images, labels = problem
    moved: Tensor = attack(foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu"), images, labels, epsilons=radius)[1]
    return moved


@torch.no_grad()
def judged(problem: Problem, images: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each is right, and its loss."""
    model, _, labels = problem
    logits = model(images)
    return logits.argmax(dim=1) == labels, cross_entropy(logits, labels)


@pytest.mark.parametrize(("norm", "radius"), CASES)
def test_fgsm_moves_every_image_to_where_foolbox_moves_it(problem: Problem, norm: float, radius: float) -> None:
    ours, peer = Fgsm(norm=norm, loss="cross_entropy")(*problem, radius), by_peer(PEER_FGSM[norm](), problem, radius)
    torch.testing.assert_close(ours, peer, rtol=0, atol=1e-12)
    assert torch.equal(judged(problem, ours)[0], judged(problem, peer)[0])
    assert judged(problem, ours)[0].double().mean() < 0.95


@pytest.mark.parametrize(("norm", "radius"), CASES)
def test_pgd_from_the_image_itself_keeps_the_best_of_all_the_points_that_foolbox_passes(
    problem: Problem, norm: float, radius: float
) -> None:
    ours = Pgd(norm=norm, steps=STEPS, step_size=STEP_SIZE, loss="cross_entropy", random_start=False)(*problem, radius)
    right, loss = judged(problem, ours)
    passed = [problem[1]]
    for steps in range(1, STEPS + 1):
        attack = PEER_PGD[norm](rel_stepsize=STEP_SIZE, steps=steps, random_start=False)
        passed.append(by_peer(attack, problem, radius))
    peer_right, peer_loss = (torch.stack(each) for each in zip(*(judged(problem, x) for x in passed), strict=True))
    assert torch.equal(right, peer_right.all(dim=0))
    torch.testing.assert_close(loss[right], peer_loss.amax(dim=0)[right], rtol=0, atol=1e-9)
    assert not torch.equal(
        right, judged(problem, Fgsm(norm=norm, loss="cross_entropy")(*problem, radius))[0]
    )  # the steps are worth something


@pytest.mark.parametrize(
    ("norm", "radius", "restarts"),
    [(*case, 1) for case in CASES] + [(norm, radii[-1], 3) for norm, radii in RADII.items()],
)
def test_pgd_from_random_starts_is_as_strong_as_foolbox(
    problem: Problem, norm: float, radius: float, restarts: int
) -> None:
    """If an attack breaks image i with probability p_i, then of two equal ones, each run s times with other starts, the
    mean numbers of images left differ by 0 on average, with variance 2/s sum p_i (1 - p_i). We allow four deviations,
    p_i estimated from all runs: at most 5.5 of 355 images here.
    """
    runs = 8
    ours = [
        Pgd(norm=norm, steps=STEPS, step_size=STEP_SIZE, loss="cross_entropy", restarts=restarts, seed=seed)
        for seed in range(runs)
    ]
    peer = PEER_PGD[norm](rel_stepsize=STEP_SIZE, steps=STEPS).repeat(restarts)
    left = torch.stack([judged(problem, attack(*problem, radius))[0] for attack in ours]).double()
    peer_left = torch.stack([judged(problem, by_peer(peer, problem, radius))[0] for _ in ours]).double()
    chance = torch.cat([left, peer_left]).mean(dim=0)
    deviation = (2 / runs * (chance * (1 - chance)).sum()).sqrt()
    assert (left.mean(dim=0) - peer_left.mean(dim=0)).sum().abs() <= 4 * deviation
    assert 4 * deviation < 6


@pytest.fixture(scope="module")
def certifiable(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A network trained to be certified, and test digits."""
    recipe = load_recipe("digits", epochs=6, width=64, depth=2)
    model = train(recipe, tmp_path_factory.mktemp("digits"), progress=False).double().eval()
    test = data.load("digits", "test", limit=150)
    return model, test.images.double(), test.labels


def nearest_errors(problem: Problem, norm: float) -> Tensor:
    """How far off the nearest image is that foolbox finds wrong, by DeepFool: its strongest here."""
    attack = {2: peers.L2DeepFoolAttack, math.inf: peers.LinfDeepFoolAttack}[norm](steps=50, overshoot=1e-4)
    found = by_peer(attack, problem, None)
    assert not judged(problem, found)[0].any()
    distance: Tensor = torch.linalg.vector_norm((found - problem[1]).flatten(1), ord=norm, dim=1)
    return distance


@pytest.mark.parametrize(
    ("norm", "radii", "closest"), [(2, [0.1, 0.3, 0.6, 1.0], 1.1), (math.inf, [0.02, 0.05, 0.1], 2.0)]
)
def test_the_nearest_error_that_foolbox_finds_is_beyond_the_certified_radius(
    certifiable: Problem, norm: float, radii: list[float], closest: float
) -> None:
    model, images, labels = certifiable
    proven = berncert.certify(model, images, norm=norm, threads=1)
    right, distance = proven.predicted == labels.numpy(), nearest_errors(certifiable, norm).numpy()
    assert (distance[right] > proven.radius[right]).all()
    assert np.median(distance[right] / proven.radius[right]) < closest  # l2: within a tenth, so that a slip would show
    ours = Pgd(norm=norm, loss="margin").accuracy(*certifiable, radii)
    for radius, attacked in zip(radii, ours, strict=True):
        certified = (right & (proven.radius >= radius)).mean()
        assert certified <= min(attacked, (right & (distance > radius)).mean())


def test_on_networks_with_small_logits_the_margin_is_the_loss_to_attack(certifiable: Problem) -> None:
    """Cross-entropy pulls towards all rivals at once there; with the margin PGD comes close to the nearest errors."""
    right, _ = judged(certifiable, certifiable[1])
    nearest = float((right & (nearest_errors(certifiable, 2) > 0.6)).double().mean())
    margin, entropy = (Pgd(loss=loss).accuracy(*certifiable, [0.6])[0] for loss in ("margin", "cross_entropy"))
    assert abs(margin - nearest) < 0.04
    assert entropy > margin + 0.05
