"""Diagnoses: the factors of the gap, the layers that make it, and what is said to help."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import berncert
from berncert.certification.status import Status
from berncert.cli import main
from berncert.extractor.lipschitz import LipschitzRow
from berncert.reporting.diagnosis import Diagnosis, small_radius


def diagnosis(**changes: Any) -> Diagnosis:
    numbers: dict[str, Any] = {
        "norm": 2.0, "radius": 0.01, "radius_by_bound": 0.01, "attacked_estimate": 1.0, "lipschitz_bound": 50.0,
        "allowed_slope": 50.0, "slope_estimate": 1.0, "layers": (LipschitzRow("one", "Linear", (3,), 9, 9, 9),),
        "routes": {"global": 3}, "status": Status.PROVEN,
    }  # fmt: skip
    return Diagnosis(images=3, **(numbers | changes))


def affine() -> berncert.Classifier:
    """Logits 3 x and -3 x of the first of four pixels: an attack needs as much as is proven, up to the norm."""
    layer = nn.Linear(4, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 0, 0, 0], [-3.0, 0, 0, 0]]))
        layer.bias.copy_(torch.tensor([-1.5, 1.5]))
    return berncert.Classifier.of_logits(nn.Sequential(nn.Flatten(), layer), (1, 2, 2))


@pytest.mark.parametrize("norm", [2.0, math.inf])
def test_an_affine_network_has_no_gap(norm: float) -> None:
    images = torch.tensor([0.9, 0.5, 0.5, 0.5]).view(1, 1, 2, 2)
    found = berncert.diagnose(affine(), images, norm=norm)
    assert found.radius == pytest.approx(0.4, rel=1e-3)
    assert found.attacked_estimate == pytest.approx(0.4, rel=1e-2)
    assert found.gap == pytest.approx(1, rel=2e-2)
    assert "nearly as good as it can be" in found.advice


def test_the_factors_multiply_to_the_gap() -> None:
    torch.manual_seed(0)
    sizes = [64, 40, 40, 40, 40, 40]
    layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
    layers = [nn.Flatten(), *layers, nn.Linear(40, 10)]
    with torch.no_grad():
        for layer in layers[1::2]:
            layer.weight *= 3
    model = berncert.Classifier.of_logits(nn.Sequential(*layers).eval(), (1, 8, 8))
    found = berncert.diagnose(model, berncert.data.load("digits", limit=3).images)
    assert found.gap == pytest.approx(found.bound_loss * found.head_loss)
    assert 0 < found.radius <= found.attacked_estimate
    assert found.slope_estimate <= found.allowed_slope <= found.lipschitz_bound * (1 + 1e-6)
    assert found.is_local
    assert found.radius_by_bound < found.radius
    assert "by bounds near the images" in str(found)
    assert sum(found.routes.values()) == found.images == 3
    assert len(str(found).splitlines()) == 2


def test_what_helps_is_what_is_to_blame() -> None:
    assert "the Lipschitz bound is to blame, which grows most at one: train it through" in diagnosis().advice
    assert "layers of norm 1" in diagnosis().advice
    assert "distance layers" in diagnosis(norm=math.inf).advice
    assert "no layer stretches" in diagnosis(layers=()).advice
    assert "the head is to blame" in diagnosis(slope_estimate=40.0).advice
    assert "the network itself falls" in diagnosis(attacked_estimate=0.1).advice
    assert "nearly as good" in diagnosis(radius=0.9).advice
    assert diagnosis(status=Status.LEAVES_CUBE).advice == str(Status.LEAVES_CUBE)
    assert diagnosis(attacked_estimate=math.inf, slope_estimate=0.0).bound_loss == math.inf
    assert "finds none" in str(diagnosis(attacked_estimate=math.inf))


def test_of_the_local_route_no_layer_is_to_blame() -> None:
    local = diagnosis(routes={"local": 3}, radius_by_bound=0.001)
    assert local.advice.startswith("the bounds near the images are to blame: train it through")
    assert "one" not in str(local).replace("alone", "")
    assert "alone it would be 0.001" in str(local)
    assert diagnosis(routes={"local": 2, "global": 1}).is_local


def test_layers_that_keep_distances_are_not_blamed() -> None:
    model, images = berncert.load("mnist"), torch.rand(2, 1, 28, 28)
    found = berncert.diagnose(model, images)
    assert found.layers == ()
    assert "no layer stretches" in str(found)
    steep = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), berncert.UnitCube(4.0)).double()
    with torch.no_grad():
        steep[1].weight.copy_(30 * torch.eye(3, 4))
    rows = [row.growth for row in berncert.lipschitz_table(steep, (1, 2, 2))]
    assert rows == pytest.approx([1, 30, 0.25], rel=1e-6)


def test_images_beyond_0_and_1_are_diagnosed_too() -> None:
    found = berncert.diagnose(affine(), torch.tensor([3.0, -2.0, 0.5, 0.5]).view(1, 1, 2, 2))
    assert found.attacked_estimate == pytest.approx(2.5, rel=1e-2)


def test_small_is_measured_in_the_norm() -> None:
    assert [small_radius(p) for p in (1, 2, math.inf)] == pytest.approx([1, 0.1, 0.01])


def test_certify_says_why_when_radii_are_small_and_is_silent_when_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steep = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10))
    berncert.write_onnx(berncert.freeze(steep, (1, 8, 8)), "steep.onnx")
    assert main(["certify", "steep.onnx", "--data", "digits", "--limit", "60", "--skip", "5"]) == 0
    assert "what helps: " in capsys.readouterr().out
    assert main(["certify", "digits", "--limit", "5"]) == 0
    assert "what helps: " not in capsys.readouterr().out


def test_no_images_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least one image"):
        berncert.diagnose(affine(), torch.zeros(0, 1, 2, 2))
