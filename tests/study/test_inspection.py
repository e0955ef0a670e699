"""What is told of a checkpoint is so, and what it claims without proof is noticed."""

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
from berncert.extractor.bounds.gains import conversion
from berncert.extractor.proofs.walk import walk
from berncert.study.checkpoint import FORMAT, describe, read, save, write
from berncert.study.inspection import inspect

NORMS = [1, 1.5, 2, math.inf]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    saved(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def changed(path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> None:
    """Write the file anew, with a checksum that fits."""
    tensors, description = read(path, FORMAT)
    change(description, tensors)
    write(path, tensors, FORMAT, description)


def scale_claims(by: float) -> Callable[[dict[str, Any], dict[str, torch.Tensor]], None]:
    """Bounds that are better than what was proven."""

    def change(description: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        for answers in description["proofs"].values():
            for answer in answers.values():
                answer["factors"] = [repr(float(factor) * by) for factor in answer["factors"]]

    return change


@pytest.mark.parametrize("norm", NORMS)
def test_the_bound_is_the_one_that_certify_divides_by(norm: float, path: Path) -> None:
    seen = inspect(path, norm=norm)
    c = berncert.certify(berncert.load(path, proofs=False), torch.rand(20, 1, 4, 4), norm=norm)
    used = {route.feature_norm: route.bound for route in seen.routes if route.used}
    assert set(c.feature_norm) <= set(used)
    assert all(row.lipschitz_bound == used[row.feature_norm] for row in c)
    assert seen.table is not None
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


def test_the_bound_is_proven_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(berncert.load(path, proofs=False), path)
    proofs: list[Any] = []

    def counted(*inputs: Any) -> Any:
        proofs.append(inputs)
        return walk(*inputs)

    monkeypatch.setattr("berncert.extractor.bounds.walk", counted)
    inspect(path)
    assert len(proofs) == 1


def test_file_extractor_and_head_are_told(path: Path) -> None:
    seen = inspect(path)
    told = seen.as_json()
    assert told["file"]["bytes"] == path.stat().st_size
    assert len(told["file"]["sha256"]) == 64
    assert told["extractor"] | describe(path)["extractor"] == told["extractor"]
    assert told["extractor"]["parameters"] == sum(p.numel() for p in berncert.load(path).extractor.parameters())
    assert (told["head"]["shape"], told["head"]["coefficients"], told["head"]["degree"]) == (
        [4, 3, 3, 3],
        108,
        (2,) * 3,
    )
    coefficients = berncert.load(path).head.coefficients
    assert torch.equal(told["head"]["greatest"], coefficients.flatten(1).max(dim=1).values)
    assert told["base"]["kind"] == "mlp"
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


def test_a_model_that_is_not_smoothed_or_has_no_base_is_told_as_such(path: Path, tmp_path: Path) -> None:
    save(berncert.load(path, base=True), tmp_path / "base.safetensors")
    seen = inspect(tmp_path / "base.safetensors")
    assert seen.head is None
    assert seen.as_json()["head"]["smoothed"] is False
    assert not any(route.used for route in seen.routes)
    save(berncert.load(path), tmp_path / "alone.safetensors")
    assert inspect(tmp_path / "alone.safetensors").base_gap is None


def test_a_stored_proof_of_these_weights_fits_and_is_proven_again(path: Path) -> None:
    (proof,) = inspect(path).stored
    assert (proof.shape, proof.norms, proof.dtype) == ((1, 4, 4), (1.0, 2.0, math.inf), "float64")
    assert proof.fits
    assert proof.excess == pytest.approx(1)
    assert proof.honest


def test_proofs_of_other_questions_are_proven_again_when_asked_for(path: Path) -> None:
    model = berncert.load(path)
    berncert.certify(model, torch.rand(1, 1, 4, 4), norm=3, dtype=torch.float32)
    save(model, path)
    quick, thorough = inspect(path), inspect(path, prove=True)
    assert [(proof.dtype, proof.norms[-1]) for proof in quick.stored] == [("float64", math.inf), ("float32", 3.0)]
    assert [proof.excess for proof in quick.stored] == [pytest.approx(1), None]
    assert [proof.excess for proof in thorough.stored] == [pytest.approx(1)] * 2
    assert all(proof.fits and proof.honest for proof in (*quick.stored, *thorough.stored))


@pytest.mark.parametrize("share", [0.5, 0.9995, 1 - 1e-8])
@pytest.mark.parametrize("options", [{}, {"norm": 1.5, "prove": True}])
def test_a_file_that_claims_more_than_can_be_proven_is_found_out(
    options: dict[str, Any], share: float, path: Path
) -> None:
    changed(path, scale_claims(share))
    (proof,) = inspect(path, **options).stored
    assert proof.fits
    assert proof.excess == pytest.approx(1 / share, rel=1e-10)
    assert not proof.honest


@pytest.mark.parametrize(("name", "values"), [("error", ["0.0", "0.0"]), ("limits", ["0.25", "0.75"])])
def test_rounding_and_limits_that_are_not_proven_are_found_out(name: str, values: list[str], path: Path) -> None:
    def change(description: dict[str, Any], _: dict[str, torch.Tensor]) -> None:
        for answers in description["proofs"].values():
            for answer in answers.values():
                answer[name] = values

    changed(path, change)
    assert not inspect(path).stored[0].honest


def test_a_claim_that_is_weaker_than_what_can_be_proven_is_honest(path: Path) -> None:
    changed(path, scale_claims(3.0))
    assert inspect(path).stored[0].honest


def test_a_proof_of_other_weights_fits_nothing(path: Path) -> None:
    def move(_: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        name = next(key for key in tensors if key.startswith("extractor.") and key.endswith("bias"))
        tensors[name] += 0.01

    changed(path, move)
    (proof,) = inspect(path).stored
    assert not proof.fits
    assert proof.honest  # nobody believes it


def test_believing_takes_the_numbers_of_the_file(path: Path) -> None:
    changed(path, scale_claims(0.5))
    believed, proven = inspect(path, believe=True), inspect(path)
    assert believed.table is None
    assert [route.bound for route in believed.routes] == pytest.approx([route.bound / 2 for route in proven.routes])
    assert believed.as_json()["lipschitz"]["proven"] == "believed, from the file"


@pytest.mark.parametrize(
    "proofs", [{"mark": {"why": {}}}, {"mark": 3}, {"m": {"shape (1, 4, 4), norms (2.0), unit 1e-16": {}}}]
)
def test_stored_proofs_that_cannot_be_read_are_refused(proofs: Any, path: Path) -> None:
    changed(path, lambda description, _: description.update(proofs=proofs))
    with pytest.raises(ValueError, match="expected stored proofs that can be read"):
        inspect(path)


def test_a_damaged_file_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="cut off"):
        inspect(path)


def test_all_of_it_is_plain_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from berncert.cli.output import print_json

    seen = inspect(path, norm=math.inf)
    print_json(seen.as_json())
    told = json.loads(capsys.readouterr().out)
    assert told["lipschitz"]["norm"] == "inf"
    assert told["lipschitz"]["steps"][-1]["running"] == seen.table.bound  # type: ignore[union-attr]
    assert told["stored_proofs"][0]["honest"] is True


def test_shipped_models_claim_nothing_that_is_not_proven_here() -> None:
    for name in ("digits", "mnist"):
        seen = inspect(name, prove=True)
        assert all(proof.honest for proof in seen.stored)
        assert seen.base_gap == 0
