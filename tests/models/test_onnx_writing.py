"""Models as ONNX files: they compute what the model computes, and are read as the model they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_networks as files
import pytest
import torch
from torch import nn

import berncert
from berncert.extractor import GroupSort, LinfDistance, MaxMin


def network() -> nn.Module:
    layers = [nn.Flatten(), nn.Linear(16, 12), MaxMin(), LinfDistance(12, 9), GroupSort(3), nn.Linear(9, 3)]
    return nn.Sequential(*layers, berncert.UnitCube(4.0)).eval()


def polynomial() -> berncert.SmoothedHead:
    coefficients = np.random.default_rng(0).standard_normal((4, 3, 2, 4))
    return berncert.SmoothedHead(torch.from_numpy(coefficients))


def total() -> berncert.SumHead:
    noise = np.random.default_rng(0).standard_normal
    terms = [((2,), torch.from_numpy(noise((4, 3)))), ((0, 1), torch.from_numpy(noise((4, 2, 4))))]
    return berncert.SumHead(torch.from_numpy(noise((4, 3))), torch.from_numpy(noise(4)), terms)


def images(count: int = 7) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((count, 1, 4, 4)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("head", [polynomial(), total()], ids=["smoothed", "sum"])
def test_a_written_classifier_gives_the_same_logits_in_onnxruntime(head: Any, dtype: str, tmp_path: Path) -> None:
    model = berncert.Classifier(berncert.freeze(network(), (1, 4, 4)), head)
    path = tmp_path / "model.onnx"
    berncert.write_onnx(model, path, dtype=dtype)
    for count in (1, 7):
        x = images(count)
        found = files.run(onnx.load(path), x.numpy().astype(dtype))
        assert found.dtype == np.float64  # a head is certified in float64 only
        np.testing.assert_allclose(found, model(x), atol=1e-11 if dtype == "float64" else 1e-4)
    again = berncert.read_onnx(path)
    assert type(again.head) is type(head)
    torch.testing.assert_close(again(images()), model(images()), rtol=0, atol=1e-11 if dtype == "float64" else 1e-4)
    if dtype == "float64":
        assert again.extractor.digest() == model.extractor.digest()
        assert all(map(torch.equal, again.head.tensors, head.tensors))


def test_parts_of_a_model_are_written_alone(tmp_path: Path) -> None:
    for part, x in ((berncert.freeze(network(), (1, 4, 4)), images()), (polynomial(), images()[:, 0, 0, :3])):
        berncert.write_onnx(part, tmp_path / "part.onnx", dtype="float64")
        again = berncert.read_onnx(tmp_path / "part.onnx")
        assert type(again) is type(part)
        torch.testing.assert_close(again(x), part(x), rtol=0, atol=1e-14)


def test_a_head_that_is_not_smoothed_is_written_too(tmp_path: Path) -> None:
    head = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
    model = berncert.Classifier(network(), head)
    berncert.write_onnx(model.double(), tmp_path / "base.onnx", dtype="float64", input_shape=(1, 4, 4))
    again = berncert.read_onnx(tmp_path / "base.onnx")
    torch.testing.assert_close(again(images()), model(images()), rtol=0, atol=1e-12)
    assert again.smooth(2).head.classes == 4


def test_numbers_that_were_changed_in_the_file_are_those_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "head.onnx"
    berncert.write_onnx(polynomial(), path)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name == "head.coefficients":
            tensor.raw_data = bytes(len(tensor.raw_data))
    path.write_bytes(model.SerializeToString())
    assert float(berncert.read_onnx(path).coefficients.abs().max()) == 0


def test_a_graph_that_was_changed_is_read_as_it_is_and_not_as_it_was_described(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    frozen = berncert.freeze(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), (3,))
    berncert.write_onnx(frozen, path)
    model = onnx.load(path)
    (node,) = (node for node in model.graph.node if node.op_type == "Relu")
    node.op_type = "Tanh"
    path.write_bytes(model.SerializeToString())
    again = berncert.read_onnx(path)
    assert [step.layer for step in again.steps] == ["Gemm", "Tanh"]


def test_float64_warns_of_what_onnxruntime_cannot_run(tmp_path: Path) -> None:
    frozen = berncert.freeze(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), (1, 4, 4))
    with pytest.warns(UserWarning, match="no float64 kernel for Conv"):
        berncert.write_onnx(frozen, tmp_path / "conv.onnx", dtype="float64")
    again = berncert.read_onnx(tmp_path / "conv.onnx")
    assert again.digest() == frozen.digest()


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="freeze a network first"):
        berncert.write_onnx(nn.Linear(2, 2), tmp_path / "x.onnx")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="float32 or float64"):
        berncert.write_onnx(polynomial(), tmp_path / "x.onnx", dtype="float16")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["digits", "mnist-linf"])
def test_a_shipped_model_goes_out_and_comes_back(name: str, tmp_path: Path) -> None:
    model = berncert.load(name)
    berncert.write_onnx(model, tmp_path / "model.onnx")
    again = berncert.read_onnx(tmp_path / "model.onnx")
    x = torch.rand(3, *model.extractor.input_shape, dtype=torch.float64)
    torch.testing.assert_close(again(x), model(x), rtol=0, atol=1e-3)
    bounds = [berncert.lipschitz_bound(m.extractor, m.extractor.input_shape) for m in (again, model)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)
