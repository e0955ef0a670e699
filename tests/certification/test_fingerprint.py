"""The fingerprint of a model: the checker, which shares no code with it, finds the same in its proofs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from torch import nn

import berncert
from berncert.estimators import BernsteinClassifier
from berncert_check.checking import check_file


def printed(path: Path) -> str:
    (found,) = {verdict.subject.fingerprint for verdict in check_file(path)}
    return found


def bending(seed: int = 0) -> berncert.SmoothedHead:
    return berncert.SmoothedHead(torch.from_numpy(np.random.default_rng(seed).normal(size=(3, 3, 2))))


def affine() -> berncert.SumHead:
    generator = torch.Generator().manual_seed(0)
    weight, bias = (torch.randn(*size, dtype=torch.float64, generator=generator) for size in ((3, 20), (3,)))
    return berncert.SumHead(weight, bias)


def classifier() -> berncert.Classifier:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2), nn.Hardtanh(0, 1))
    return berncert.Classifier(nn.Sequential(*layers), bending()).eval().freeze((1, 4, 4))


def test_it_is_that_of_the_page() -> None:
    head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [0.5, 0.5]]).double())
    page = Path(__file__).parents[2] / "docs" / "proof-format.md"
    assert berncert.fingerprint(head) in page.read_text("utf-8")
    minus = berncert.SmoothedHead(torch.tensor([[-0.0, 1.0], [0.5, 0.5]]).double())
    assert berncert.fingerprint(minus) == berncert.fingerprint(head)


@pytest.mark.parametrize("norm", [2.0, float("inf")])
def test_the_checker_finds_the_same_in_proofs_in_any_norm(tmp_path: Path, norm: float) -> None:
    path = tmp_path / "proof.bin"
    for head in (bending(), affine()):
        berncert.certify(head, np.full((2, head.dim), 0.3), norm=norm, proof=path)
        assert printed(path) == berncert.fingerprint(head)
    model = classifier()
    berncert.certify(model, torch.full((1, 1, 4, 4), 0.5), norm=norm, proof=path)
    assert printed(path) == berncert.fingerprint(model) != berncert.fingerprint(model.head)
    x, y = load_iris(return_X_y=True)
    table = BernsteinClassifier(LogisticRegression(max_iter=5000), degree=2).fit(x, y)
    table.certify(x[:1], norm=norm, proof=path)
    assert printed(path) == table.fingerprint()


def test_every_number_of_the_model_counts_and_saving_it_changes_nothing(tmp_path: Path) -> None:
    model, seen = classifier(), set()
    berncert.save(model, tmp_path / "model.safetensors")
    assert berncert.fingerprint(berncert.load(tmp_path / "model.safetensors")) == berncert.fingerprint(model)
    for k in range(18):
        coefficients = bending().coefficients.clone()
        coefficients.view(-1)[k] = np.nextafter(float(coefficients.view(-1)[k]), 9)
        seen.add(berncert.fingerprint(berncert.SmoothedHead(coefficients)))
    assert len(seen | {berncert.fingerprint(bending())}) == 19


def test_models_that_no_proof_file_can_hold_have_none() -> None:
    with pytest.raises(TypeError, match="freeze it first"):
        berncert.fingerprint(berncert.Classifier(nn.Flatten(), bending()))
    with pytest.raises(TypeError, match="expected a SmoothedHead"):
        berncert.fingerprint(nn.Linear(2, 2))  # type: ignore[arg-type]
    smooth = nn.Sequential(nn.Flatten(), nn.Linear(16, 2), nn.Sigmoid())
    with pytest.raises(ValueError, match="expected"):
        berncert.fingerprint(berncert.Classifier(smooth, bending()).eval().freeze((1, 4, 4)))
