"""What is said of a checkpoint is so."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from explained_toys import saved

import berncert
from berncert.extractor.bounds.norm_gains import conversion
from berncert.models.checkpoint import FORMAT, open_checkpoint, save, shipped_models
from berncert.models.inspection import inspect
from berncert.models.tensor_file import read_tensors, write_tensors

NORMS = [1, 1.5, 2, math.inf]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    saved(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def changed(path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> None:
    """Write the file again, with a checksum that fits."""
    tensors, description = read_tensors(path, FORMAT)
    change(description, tensors)
    write_tensors(path, tensors, FORMAT, description)


@pytest.mark.parametrize("norm", NORMS)
def test_the_bound_is_the_one_that_certify_divides_by(norm: float, path: Path) -> None:
    seen = inspect(path, norm=norm)
    c = berncert.certify(berncert.load(path), torch.rand(20, 1, 4, 4), norm=norm)
    used = {route.feature_norm: route.bound for route in seen.routes if route.used}
    assert set(c.feature_norm) <= set(used)
    assert all(row.lipschitz_bound == used[row.feature_norm] for row in c)
    assert seen.table.rows[-1].running == seen.table.bound
    assert seen.table.bound == {route.feature_norm: route.bound for route in seen.routes}[norm]


def test_no_image_with_pixels_between_0_and_1_has_a_larger_rounding_error(path: Path) -> None:
    seen = inspect(path)
    images = torch.cat([torch.rand(20, 1, 4, 4), torch.ones(1, 1, 4, 4)])
    c = berncert.certify(berncert.load(path), images)
    for row in c:
        assert row.extraction_error <= seen.rounding_bound * conversion(2.0, float(row.feature_norm), 3)
    assert 0 < seen.rounding_bound < 1e-10
    assert seen.stays_in_cube


@pytest.mark.parametrize("norm", NORMS)
def test_rounding_takes_no_more_from_any_radius_than_is_said(norm: float, path: Path) -> None:
    seen = inspect(path, norm=norm)
    images = torch.cat([torch.rand(50, 1, 4, 4), torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4)])
    c = berncert.certify(berncert.load(path), images, norm=norm)
    cost = c.feature_radius / c.lipschitz_bound - c.radius
    assert (c.radius > 0).any()
    assert (cost <= seen.rounding_cost).all()
    assert seen.rounding_cost < 1e-9


def test_of_several_routes_the_one_on_which_rounding_costs_most_counts(path: Path) -> None:
    seen = inspect(path, norm=math.inf)
    alone = [
        dataclasses.replace(seen, routes=(dataclasses.replace(route, used=True),)).rounding_cost
        for route in seen.routes
    ]
    together = dataclasses.replace(seen, routes=tuple(dataclasses.replace(route, used=True) for route in seen.routes))
    assert together.rounding_cost == max(alone) > min(alone)
    for bound in (0.0, math.inf):
        route = dataclasses.replace(seen.routes[0], bound=bound, used=True)
        assert dataclasses.replace(seen, routes=(route,)).rounding_cost == math.inf


def test_file_extractor_and_head_are_described(path: Path) -> None:
    seen = inspect(path)
    record = seen.as_json()
    assert record["file"]["bytes"] == path.stat().st_size
    assert len(record["file"]["sha256"]) == 64
    assert record["extractor"] == open_checkpoint(path).description()["extractor"]
    assert record["extractor"]["numbers"] == 8 * 16 + 8 + 3 * 8 + 3 + 2  # two layers, and the cube's side and middle
    assert (record["head"]["shape"], record["head"]["coefficients"], record["head"]["degree"]) == (
        [4, 3, 3, 3],
        108,
        (2,) * 3,
    )
    coefficients = berncert.load(path).head.coefficients
    assert torch.equal(record["head"]["greatest"], coefficients.flatten(1).max(dim=1).values)
    assert record["base"]["kind"] == "mlp"
    assert seen.base_gap == 0


def test_a_head_that_is_not_its_base_head_smoothed_is_noticed(path: Path) -> None:
    def bend(_: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        tensors["head.coefficients"][1, 0, 1, 2] += 0.25

    changed(path, bend)
    assert inspect(path).base_gap == pytest.approx(0.25)


def test_a_head_smoothed_to_another_degree_is_compared_at_that_degree(path: Path, tmp_path: Path) -> None:
    base = berncert.load(path, base=True)
    save(base.smooth(4), tmp_path / "other.safetensors", base=base.head)
    seen = inspect(tmp_path / "other.safetensors")
    assert seen.head is not None
    assert seen.head.degree == (4, 4, 4)
    assert seen.base_gap == 0


def test_a_model_that_is_not_smoothed_or_has_no_base_is_described_as_such(path: Path, tmp_path: Path) -> None:
    save(berncert.load(path, base=True), tmp_path / "base.safetensors")
    seen = inspect(tmp_path / "base.safetensors")
    assert seen.head is None
    assert seen.as_json()["head"]["smoothed"] is False
    assert not any(route.used for route in seen.routes)
    save(berncert.load(path), tmp_path / "alone.safetensors")
    assert inspect(tmp_path / "alone.safetensors").base_gap is None


def test_a_damaged_file_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="cut off"):
        inspect(path)


def test_all_of_it_is_plain_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from berncert.cli.output import print_json

    seen = inspect(path, norm=math.inf)
    print_json(seen.as_json())
    record = json.loads(capsys.readouterr().out)
    assert record["lipschitz"]["norm"] == "inf"
    assert record["lipschitz"]["steps"][-1]["running"] == seen.table.bound


@pytest.mark.parametrize("name", shipped_models())
def test_shipped_heads_are_their_base_heads_smoothed(name: str) -> None:
    assert inspect(name).base_gap == 0
