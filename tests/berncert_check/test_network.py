"""Proofs about images: the steps of the network, their witnesses, and changed ones."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from berncert_check_files import blocks_of, verdict, write
from torch import nn

import berncert
from berncert.certification.network_proof import network_proof
from berncert.certification.prepared_model import frozen_for
from berncert_check.checking import ACCEPTED, REJECTED, UNSUPPORTED, check_file
from berncert_check.network import Network, network_of
from berncert_check.proof_file import Block


def small_model(*, convolution: bool = False, seed: int = 0) -> berncert.Classifier:
    """Images of 1 x 4 x 4 pixels, two features, three classes."""
    torch.manual_seed(seed)
    first = [nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 8)]
    layers = first if convolution else [nn.Flatten(), nn.Linear(16, 8)]
    extractor = nn.Sequential(*layers, nn.ReLU(), nn.Linear(8, 2), nn.Hardtanh(0, 1)).double()
    with torch.no_grad():
        extractor[-2].bias += 0.5
    head = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    return berncert.Classifier(extractor, berncert.smooth(head, dim=2, degree=3)).eval()


def images(count: int) -> torch.Tensor:
    return torch.rand(count, 1, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def checked_network(model: berncert.Classifier, norm: float, shape: tuple[int, ...] = (1, 4, 4)) -> Network:
    written = network_proof(frozen_for(model, shape), norm)
    arrays = {name: tuple(values.tolist()) for name, values in written.arrays.items()}
    found = network_of(Block("NET", written.fields, arrays), None if norm == math.inf else Fraction(norm))
    assert found.bound <= Fraction(written.bound)
    return found


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("convolution", [False, True])
def test_a_small_network_is_accepted_and_no_image_within_the_radius_changes_class(
    tmp_path: Path, convolution: bool, norm: float
) -> None:
    model, x = small_model(convolution=convolution), images(6)
    plain = berncert.certify(model, x, norm=norm)
    c = berncert.certify(model, x, norm=norm, proof=tmp_path / "proof.bin")
    verdicts = list(check_file(tmp_path / "proof.bin"))
    assert {v.verdict for v in verdicts} == {ACCEPTED}, [v.why for v in verdicts]
    assert [math.inf if v.radius is None else float(v.radius) for v in verdicts] == c.radius.tolist()
    assert (c.radius <= plain.radius * (1 + 1e-9)).all()
    assert (c.radius > 0).any()
    step = torch.randn(200, *x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    length = torch.linalg.vector_norm(step.flatten(2), norm, dim=2)
    reach = torch.from_numpy(np.minimum(c.radius, 9.0)) * 0.999 / length
    moved = (x + step * reach[..., None, None, None]).flatten(0, 1)
    assert (model(moved).argmax(1).reshape(200, -1) == torch.from_numpy(c.predicted)).all()


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
def test_the_bound_is_above_every_slope_and_the_value_is_that_of_the_network(norm: float) -> None:
    model, x = small_model(convolution=True), images(2)
    network = checked_network(model, norm)
    exact = [[float(f) for f in network.value([Fraction(x) for x in image.flatten().tolist()])] for image in x]
    np.testing.assert_allclose(exact, model.extractor(x).detach().numpy(), rtol=0, atol=1e-12)
    other = x + 1e-3 * torch.randn(50, *x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    apart = (model.extractor(other.flatten(0, 1)) - model.extractor(x).repeat(50, 1)).detach()
    slopes = torch.linalg.vector_norm(apart, norm, dim=1)
    slopes /= torch.linalg.vector_norm((other - x).flatten(0, 1).flatten(1), norm, dim=1)
    assert float(slopes.max()) <= float(network.bound)


@pytest.mark.parametrize("shape", [(5, 5), (3, 9), (9, 3), (1, 4), (40, 30)])
def test_the_bound_of_a_matrix_is_its_norm_and_never_below(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(shape[1], shape[0]).double()
    head = berncert.SmoothedHead(torch.rand(2, *(2,) * min(shape[0], 6), dtype=torch.float64))
    if shape[0] > 6:
        frozen = frozen_for(berncert.Classifier(nn.Sequential(layer, nn.Linear(shape[0], 6).double()), head), shape[1:])
        matrices = [layer.weight, frozen.steps[-1].operation.weight]
    else:
        frozen = frozen_for(berncert.Classifier(nn.Sequential(layer), head), shape[1:])
        matrices = [layer.weight]
    written = network_proof(frozen, 2.0)
    arrays = {name: tuple(values.tolist()) for name, values in written.arrays.items()}
    found = network_of(Block("NET", written.fields, arrays), Fraction(2))
    true = math.prod(float(torch.linalg.matrix_norm(m.detach(), 2)) for m in matrices)
    assert true * (1 - 1e-12) <= float(found.bound) <= true * (1 + 1e-5)
    worse = dict(arrays)
    worse["0.factor"] = tuple(0.5 * v for v in arrays["0.factor"])
    assert network_of(Block("NET", written.fields, worse), Fraction(2)).bound >= found.bound


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("proof") / "proof.bin"
    c = berncert.certify(small_model(), images(1), proof=path)
    assert 0 < c.radius[0] < math.inf
    return path


def test_changed_networks_images_and_radii_are_rejected(proof: Path, tmp_path: Path) -> None:
    """Weights, biases and pixels move the features or the bound; a changed factor only makes the bound worse."""
    chance, changed, counts = np.random.default_rng(0), tmp_path / "changed.bin", Counter()
    for _ in range(400):
        blocks = blocks_of(proof)
        name = str(chance.choice(["0.weight", "0.bias", "0.factor", "2.weight", "2.bias", "input"]))
        values = blocks[2 if name == "input" else 1][2][name]
        values[chance.integers(values.size)] += chance.choice([-1, 1]) * chance.choice([1e-2, 0.3, 10.0])
        write(changed, blocks)
        counts[name, verdict(changed)] += 1
    rejected = sum(n for (_, v), n in counts.items() if v == REJECTED)
    assert {v for _, v in counts} <= {ACCEPTED, REJECTED}
    assert rejected > 200, counts
    assert counts["0.weight", REJECTED] > 0
    assert counts["0.factor", REJECTED] > 0
    assert counts["input", REJECTED] > 0


@pytest.mark.parametrize("factor", [1 + 2.0**-18, 1.01, 3.0])
def test_a_larger_radius_of_the_image_is_rejected(proof: Path, tmp_path: Path, factor: float) -> None:
    blocks = blocks_of(proof)
    blocks[2][1]["input_radius"] = (float.fromhex(blocks[2][1]["input_radius"]) * factor).hex()
    write(tmp_path / "changed.bin", blocks)
    assert verdict(tmp_path / "changed.bin") == REJECTED


def test_a_changed_last_bit_a_missing_clamp_and_other_limits_are_rejected(proof: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.bin"
    for way in range(4):
        blocks = blocks_of(proof)
        if way == 0:
            blocks[2][1]["input_radius"] = "inf"
        elif way == 1:
            blocks[2][2]["limits"][:] = [0, 0, 0.9, 1]
        elif way == 2:
            blocks[2][2]["weight"][:] = 2
        else:
            blocks[1][1]["steps"][-1]["high"] = (2.0).hex()
            blocks[2][1]["input_radius"] = (5.0).hex()
        write(changed, blocks)
        assert verdict(changed) == REJECTED, way


def test_steps_that_are_not_known_are_unsupported_and_nonsense_is_unusable(proof: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.bin"
    blocks = blocks_of(proof)
    blocks[1][1]["steps"][1] = {"kind": "attention"}
    write(changed, blocks)
    assert verdict(changed) == UNSUPPORTED
    for steps in ([], [{"kind": "sort", "size": 3, "inner": 1}], [{"kind": "clamp"}], [{}], "steps", None):
        blocks = blocks_of(proof)
        blocks[1][1]["steps"] = steps
        write(changed, blocks)
        assert verdict(changed) == "UNUSABLE", steps


def test_the_shipped_digits_model_is_accepted_end_to_end(tmp_path: Path) -> None:
    test = berncert.data.load("digits", limit=4)
    c = berncert.certify(berncert.load("digits"), test.images, proof=tmp_path / "proof.bin")
    verdicts = list(check_file(tmp_path / "proof.bin"))
    assert [v.verdict for v in verdicts] == [ACCEPTED] * 4, [v.why for v in verdicts]
    assert [float(v.radius or 0) for v in verdicts] == c.radius.tolist()


def test_networks_that_a_file_cannot_hold_are_refused_with_what_to_do(tmp_path: Path) -> None:
    model = small_model()
    model.extractor[2] = nn.Tanh()
    with pytest.raises(ValueError, match="expected relu or relu6, got tanh"):
        berncert.certify(model, images(1), proof=tmp_path / "proof.bin")
    with pytest.raises(ValueError, match="expected the norm 1, 2 or inf"):
        berncert.certify(small_model(), images(1), norm=3, proof=tmp_path / "proof.bin")


def test_counterexamples_are_looked_for_beside_a_proof_too(tmp_path: Path) -> None:
    model, x = small_model(), images(4)
    plain = berncert.certify(model, x, routes="global", counterexamples=True)
    c = berncert.certify(model, x, proof=tmp_path / "proof.bin", counterexamples=True)
    assert {v.verdict for v in check_file(tmp_path / "proof.bin")} == {ACCEPTED}
    assert set(c.route) == {"global"}
    assert c.upper.tolist() == plain.upper.tolist()
    assert (c.radius <= plain.radius).all()
    assert np.isfinite(c.upper).any()
