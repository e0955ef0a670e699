"""Training of distance layers: the p of their norm, the means that fit l-inf, and that it learns."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from networks import seeded
from torch import nn

import berncert
from berncert.extractor import LinfDistance, MaxMin, SortedDistance
from berncert.training import state
from berncert.training.distance_layers import distance_layers, set_norm, settle_means
from berncert.training.loop import train
from berncert.training.recipes import load_recipe


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(LinfDistance(6, 8), MaxMin(), SortedDistance(8, 8), LinfDistance(8, 3, negative=True)).double()


def test_the_norm_of_training_is_used_in_training_only() -> None:
    net, x = network(), seeded(20, 6)
    at_rest = net.eval()(x)
    set_norm(net, 17.0)
    assert [layer.norm_of_training for layer in distance_layers(net)] == [17.0] * 3
    assert torch.equal(net(x), at_rest)
    assert not torch.allclose(net.train()(x), at_rest)


def test_training_subtracts_the_mean_of_the_batch_and_keeps_a_running_one() -> None:
    layer = LinfDistance(6, 8).double()
    out = layer(seeded(50, 6))
    torch.testing.assert_close(out.mean(dim=0), torch.zeros(8, dtype=torch.float64))
    assert (layer.mean > 0).all()


def test_settled_means_are_those_of_the_network_in_linf() -> None:
    net, x = network().train(), seeded(60, 6)
    set_norm(net, 9.0)
    settle_means(net, x.split(60))
    assert net.training
    assert [layer.norm_of_training for layer in distance_layers(net)] == [9.0] * 3
    values = x
    net.eval()
    for part in net:
        values = part(values)
        if isinstance(part, LinfDistance):
            torch.testing.assert_close(values.mean(dim=0), torch.zeros_like(values[0]), atol=1e-12, rtol=0)


def test_dropping_inputs_estimates_the_sorted_distance_without_bias() -> None:
    torch.manual_seed(0)
    layer, x = SortedDistance(30, 5, decay=0.4).double(), seeded(4, 30)
    layer.norm_of_training = 1025.0
    drawn = torch.stack([layer.distance(x).detach() for _ in range(2000)])
    error = drawn.std(dim=0) / math.sqrt(len(drawn))
    off = (drawn.mean(dim=0) - layer.eval().distance(x).detach()).abs()
    assert (off <= 4 * error + 30 ** (1 / 1025) - 1 + 2e-3).all()  # chance, p in place of infinity, ranks left out


def test_with_p_infinite_the_sorted_distance_itself_is_trained() -> None:
    layer, x = SortedDistance(30, 5).double(), seeded(4, 30)
    layer.norm_of_training = math.inf
    assert torch.equal(layer.distance(x), layer.eval().distance(x))


def test_settling_leaves_other_networks_alone() -> None:
    net = nn.Sequential(nn.BatchNorm1d(4)).double()
    settle_means(net, seeded(10, 4).split(5))
    assert int(net[0].num_batches_tracked) == 0


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_short_training_in_linf_learns_and_its_certificates_are_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decay: float
) -> None:
    monkeypatch.setattr(state, "training_figure", lambda *args: Figure(figsize=(1, 1)))
    recipe = load_recipe("digits-linf", epochs=4, width=64, decay=decay)
    model = train(recipe, tmp_path, progress=False)
    test = berncert.data.load("digits", limit=100)
    c = berncert.certify(model, test.images, norm=math.inf)
    accuracy, certified = c.certified_accuracy(test.labels, [0.0, 0.05])
    assert accuracy > 0.6
    assert certified > 0.3
    assert (c.lipschitz_bound <= 1 / recipe.model.side * (1 + 1e-9)).all()
