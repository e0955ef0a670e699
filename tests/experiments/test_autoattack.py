"""An attack counts where the class changes within the ball, in float64, and nowhere else; records grow by parts."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import pytest
import torch
from experiments.autoattack import __main__ as autoattack
from experiments.autoattack.peers import fallen, pgd

import berncert


@pytest.mark.parametrize("norm", [2.0, math.inf])
def test_found_images_are_pulled_back_into_the_ball_before_they_count(norm: float) -> None:
    head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64))  # x against 1 - x
    model = berncert.Classifier(torch.nn.Flatten(), head)
    images, labels = torch.full((3, 1, 1, 1), 0.7, dtype=torch.float64), torch.tensor([0, 0, 1])
    found = images + torch.tensor([-0.25, -0.9, 0.0]).view(3, 1, 1, 1)
    for radius, expected in ((0.3, [True, True, True]), (0.1, [False, False, True])):
        wrong, distance = fallen(model, images, labels, found, radius, norm)
        assert wrong.tolist() == expected
        assert (distance <= radius).all()


def test_a_record_goes_on_where_it_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoattack, "ATTACKS", {"pgd": pgd, "autoattack": pgd})
    monkeypatch.setattr(autoattack, "settings", lambda: {"pgd": "twice"})
    monkeypatch.setattr(autoattack, "PART", 8)
    rows = {}
    for folder, sizes in (("once", [16]), ("twice", [8, 16, 10])):
        for images in sizes:
            chosen = argparse.Namespace(norm=2.0, radii="0.8", images=images, data_dir=None, out=tmp_path / folder)
            autoattack.attack_model("digits", "digits", chosen)
        (row,) = json.loads((tmp_path / folder / "digits-l2.json").read_text())["rows"]
        rows[folder] = {key: row[key] for key in ("radius", "images", *autoattack.SHARES)}
    assert rows["once"] == rows["twice"]
    assert rows["once"]["images"] == 16
    assert 0 < rows["once"]["certified"] <= rows["once"]["attacked"] < 1


def test_what_is_proven_at_the_radius_counts_also_where_a_search_stops_short_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autoattack, "ATTACKS", {"pgd": pgd, "autoattack": pgd})
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10), torch.nn.Sigmoid()
    )
    model = berncert.Classifier(network, berncert.SumHead(torch.eye(10), torch.zeros(10))).freeze((1, 8, 8))
    images = berncert.data.load("digits", "test", limit=20).images
    c = berncert.certify(model, images, norm=math.inf)
    radius = float(c.radius[0]) * 1.02
    decided = berncert.certify(model, images, norm=math.inf, radius=radius).radius >= radius
    assert decided.mean() > (c.radius >= radius).mean()
    row = autoattack.attacked(model, images, torch.from_numpy(c.predicted), radius, math.inf)
    assert row["certified"] == decided.mean() <= row["attacked"]
