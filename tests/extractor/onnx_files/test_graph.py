"""Files that are broken, malicious or of another kind: an error that says what is wrong, and nothing else happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_networks as files
import pytest
import torch
from onnx import helper

import berncert


def linear(**changes: Any) -> onnx.ModelProto:
    arrays = files.constants(w=np.arange(6.0).reshape(2, 3), b=np.ones(3))
    return files.graph([helper.make_node("Gemm", ["x", "w", "b"], ["y"])], ["N", 2], arrays, **changes)


def with_external_data(folder: Path, location: str, **more: str) -> Path:
    model = linear()
    weight = model.graph.initializer[0]
    data = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **more}.items():
        weight.external_data.add(key=key, value=value)
    (folder / "inside").mkdir()
    (folder / "inside" / "weights.bin").write_bytes(b"some" + data)
    (folder / "outside.bin").write_bytes(data)
    return files.saved(model, folder / "inside")


def test_data_in_another_file_of_the_folder_are_read(tmp_path: Path) -> None:
    path = with_external_data(tmp_path, "weights.bin", offset="4", length="24")
    found = berncert.read_onnx(path)(torch.tensor([[1.0, 1.0]], dtype=torch.float64))
    assert found.tolist() == [[4.0, 6.0, 8.0]]


@pytest.mark.parametrize("location", ["../outside.bin", "/etc/passwd", "link.bin", "missing.bin", ""])
def test_data_outside_of_the_folder_are_refused(location: str, tmp_path: Path) -> None:
    path = with_external_data(tmp_path, location)
    (tmp_path / "inside" / "link.bin").symlink_to(tmp_path / "outside.bin")
    with pytest.raises(ValueError, match=r"expected the data of 'w' in a file beside .*which (leaves|is)"):
        berncert.read_onnx(path)


@pytest.mark.parametrize("more", [
    {"length": "9999999999999"}, {"offset": "-4", "length": "24"}, {"offset": "many"}, {"offset": "99"},
])  # fmt: skip
def test_data_of_another_size_than_the_constant_are_refused(more: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'w'"):
        berncert.read_onnx(with_external_data(tmp_path, "weights.bin", **more))


@pytest.mark.parametrize("content", [b"", b"no onnx at all", b"\x08\x09" * 50, b"PK\x03\x04", bytes(range(256))])
def test_a_file_that_is_no_onnx_is_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="expected"):
        berncert.read_onnx(path)


def test_every_part_of_a_file_that_is_cut_off_is_an_error_or_another_network(tmp_path: Path) -> None:
    whole = linear().SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="expected"):
            berncert.read_onnx(path)


def test_every_changed_byte_gives_an_error_or_a_network_that_agrees_with_onnxruntime(tmp_path: Path) -> None:
    whole = bytearray(linear().SerializeToString())
    path = tmp_path / "changed.onnx"
    read = 0
    for place in range(0, len(whole), 3):
        changed = whole.copy()
        changed[place] ^= 0x15
        path.write_bytes(changed)
        try:
            berncert.read_onnx(path)
        except ValueError:
            continue
        read += 1
    assert read  # changed numbers are another network


def huge(shape: list[int]) -> onnx.ModelProto:
    model = linear()
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend(shape)
    return model


@pytest.mark.parametrize("shape", [[2**40, 2**20], [-1, 3], [2**31, 0], [5, 5]])
def test_a_constant_that_claims_another_size_is_refused(shape: list[int], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="w"):
        berncert.read_onnx(files.saved(huge(shape), tmp_path))


@pytest.mark.parametrize("nodes", [
    [helper.make_node("ConstantOfShape", ["large"], ["y"])], [helper.make_node("Expand", ["x", "larger"], ["y"])],
    [helper.make_node("Tile", ["x", "large"], ["y"])], [helper.make_node("Range", ["zero", "many", "one"], ["y"])],
    [helper.make_node("Pad", ["x", "pads"], ["y"])],
    [helper.make_node("Unsqueeze", ["long", "one1"], ["a"]), helper.make_node("Add", ["a", "long"], ["y"])],
])  # fmt: skip
def test_a_file_cannot_ask_for_more_memory_than_a_value_may_have(nodes: Any, tmp_path: Path) -> None:
    arrays = files.constants(
        large=np.array([2**20, 2**20]), larger=np.array([2**20, 2**20, 1, 1]),
        zero=np.array(0), many=np.array(2**50), one=np.array(1),
        pads=np.array([0, 2**40, 0, 0]), long=np.zeros(2**14), one1=np.array([1]),
    )  # fmt: skip
    nodes = [*nodes, helper.make_node("Add", ["x", "y"], ["z"])]
    with pytest.raises(ValueError, match="expected at most 33554432 numbers"):
        berncert.read_onnx(files.saved(files.graph(nodes, ["N", 2], arrays, out="z"), tmp_path))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(value: float, tmp_path: Path) -> None:
    arrays = files.constants(w=np.full((2, 3), value))
    model = files.graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")], ["N", 2], arrays)
    with pytest.raises(ValueError, match=r"node layer \(MatMul\): expected a finite"):
        berncert.read_onnx(files.saved(model, tmp_path))


def test_a_cycle_a_missing_tensor_and_a_tensor_made_twice_are_errors(tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    wrong = {
        "without cycles": [helper.make_node("Add", ["x", "b"], ["y"]), helper.make_node("Relu", ["y"], ["b"])],
        "not whole": [helper.make_node("Add", ["x", "nowhere"], ["y"])],
        "twice": [relu, relu],
    }
    for message, nodes in wrong.items():
        with pytest.raises(ValueError, match=message):
            berncert.read_onnx(files.saved(files.graph(nodes, ["N", 2], {}), tmp_path))


def test_other_opsets_domains_inputs_and_sparse_constants_are_errors(tmp_path: Path) -> None:
    custom = files.graph([helper.make_node("Relu", ["x"], ["y"], domain="my.own")], ["N", 2], {})
    two = linear()
    two.graph.input.append(helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, ["N", 2]))
    whole = files.graph([helper.make_node("Relu", ["x"], ["y"])], ["N", 2], {})
    whole.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    sparse = linear()
    sparse.graph.sparse_initializer.add()
    wrong = {"opset": linear(opset=3), "my.own": custom, "x, mask": two, "floating": whole, "dense": sparse}
    for message, model in wrong.items():
        with pytest.raises(ValueError, match=message):
            berncert.read_onnx(files.saved(model, tmp_path))


def test_a_body_that_is_run_in_a_loop_is_refused(tmp_path: Path) -> None:
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "body", [], [
        helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)])  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], name="branch", then_branch=body, else_branch=body)
    arrays = {"c": np.array(True)}
    with pytest.raises(ValueError, match=r"node branch \(If\): .*no rule for the operator If"):
        berncert.read_onnx(files.saved(files.graph([node], ["N", 2], arrays), tmp_path))


def test_missing_packages_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = files.saved(linear(), tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install 'berncert\[onnx\]'"):
        berncert.read_onnx(path)
