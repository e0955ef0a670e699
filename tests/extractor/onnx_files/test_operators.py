"""Each operator of the standard as it is read, beside onnxruntime."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_networks as files
import pytest
import torch
from onnx import helper

import berncert


class Case(NamedTuple):
    operator: str
    shape: tuple[int, ...]
    arrays: dict[str, Any] = {}  # noqa: RUF012
    attributes: dict[str, Any] = {}  # noqa: RUF012
    opset: int = 20
    outputs: int = 1


def noise(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


MAP, ROW = (4, 6, 7), (5,)
ENTRYWISE = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Softplus", "Softsign", "HardSwish", "Mish", "Gelu", "Elu",
             "Celu", "Selu", "LeakyRelu", "HardSigmoid", "Identity", "Softmax", "Dropout")  # fmt: skip
CASES = [
    *(Case(name, MAP) for name in ENTRYWISE),
    Case("Gelu", ROW, {}, {"approximate": "tanh"}),
    Case("Elu", ROW, {}, {"alpha": 0.3}), Case("Celu", ROW, {}, {"alpha": 1.7}),
    Case("LeakyRelu", ROW, {}, {"alpha": 0.2}), Case("PRelu", MAP, {"s": noise(4, 1, 1)}),
    Case("HardSigmoid", ROW, {}, {"alpha": 0.3, "beta": 0.4}),
    Case("Clip", ROW, {"a": -0.5, "b": 0.5}), Case("Clip", ROW, {"a": 0.0}),
    Case("Clip", ROW, {}, {"min": -0.2, "max": 0.9}, 9),
    Case("Softmax", MAP, {}, {"axis": 1}), Case("Softmax", MAP, {}, {"axis": 1}, 12), Case("Softmax", ROW, {}, {}, 11),
    Case("Conv", MAP, {"w": noise(6, 4, 3, 2), "b": noise(6)}),
    Case("Conv", MAP, {"w": noise(6, 2, 3, 2)},
         {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 2}),
    Case("Conv", MAP, {"w": noise(2, 4, 3, 4)}, {"strides": [2, 3], "auto_pad": "SAME_UPPER"}),
    Case("Conv", MAP, {"w": noise(2, 4, 2, 4)}, {"auto_pad": "SAME_LOWER"}),
    Case("Conv", MAP, {"w": noise(2, 4, 2, 4)}, {"auto_pad": "VALID"}),
    Case("Conv", (3, 9), {"w": noise(2, 3, 4), "b": noise(2)}, {"strides": [2], "pads": [1, 2]}),
    Case("Gemm", ROW, {"w": noise(3, 5), "b": noise(3)}, {"transB": 1}),
    Case("Gemm", ROW, {"w": noise(5, 3), "b": noise(1)}, {"alpha": 0.5, "beta": 2.0}),
    Case("Gemm", ROW, {"w": noise(5, 3)}),
    Case("MatMul", ROW, {"w": noise(5, 3)}), Case("MatMul", (2, 5), {"w": noise(5, 3)}),
    Case("MatMul", (2, 5), {"w": noise(1, 5, 3)}), Case("MatMul", (2, 5), {"w": noise(5)}),
    Case("BatchNormalization", MAP, {"g": noise(4), "b": noise(4), "m": noise(4), "v": noise(4) ** 2}),
    Case("MaxPool", MAP, {}, {"kernel_shape": [2, 3], "strides": [2, 1]}),
    Case("MaxPool", MAP, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    Case("MaxPool", MAP, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    Case("MaxPool", (1, 5, 5), {}, {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1]}),
    Case("MaxPool", MAP, {}, {"kernel_shape": [2, 2], "dilations": [2, 2]}),
    Case("AveragePool", MAP, {}, {"kernel_shape": [2, 3], "strides": [2, 1]}),
    Case("AveragePool", MAP, {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Case("AveragePool", MAP, {}, {"kernel_shape": [3, 3], "pads": [0, 1, 1, 0], "count_include_pad": 1}),
    Case("GlobalAveragePool", MAP), Case("GlobalMaxPool", MAP),
    Case("ReduceMean", MAP, {"a": np.array([2, 3])}, {"keepdims": 0}), Case("ReduceSum", MAP, {"a": np.array([1])}),
    Case("ReduceMean", MAP, {}, {"axes": [-1]}, 13),
    Case("Add", MAP, {"c": noise(4, 1, 1)}), Case("Add", (1, 5), {"c": noise(3, 1)}),
    Case("Sub", ROW, {"c": noise(1, 5)}),
    Case("Mul", MAP, {"c": noise(1, 4, 6, 7)}), Case("Div", ROW, {"c": 1 + noise(5) ** 2}),
    Case("Max", ROW, {"c": 0.1}), Case("Min", ROW, {"c": 0.1}), Case("Cast", ROW, {}, {"to": 1}),
    Case("TopK", (3, 4, 2), {"k": np.array([4])}, {"axis": 2}, outputs=2),
    Case("TopK", (3, 4, 2), {"k": np.array([2])}, {"axis": 1, "largest": 0}, outputs=2),
    Case("Flatten", MAP), Case("Flatten", MAP, {}, {"axis": -3}), Case("Reshape", MAP, {"s": np.array([0, -1, 7])}),
    Case("Transpose", MAP, {}, {"perm": [0, 2, 3, 1]}), Case("Squeeze", (1, 5), {"a": np.array([1])}),
    Case("Squeeze", (1, 5), {}, {"axes": [1]}, 11), Case("Unsqueeze", ROW, {"a": np.array([1, -1])}),
    Case("Unsqueeze", ROW, {}, {"axes": [2]}, 11),
    Case("Slice", MAP, {"s": np.array([1, -1]), "e": np.array([3, -9]), "a": np.array([1, 3]), "t": np.array([1, -2])}),
    Case("Slice", MAP, {}, {"starts": [1], "ends": [999], "axes": [2]}, 9),
    Case("Split", MAP, {"s": np.array([1, 3])}, {"axis": 1}, outputs=2),
    Case("Split", MAP, {}, {"axis": 2, "num_outputs": 2}, outputs=2),
    Case("Gather", MAP, {"i": np.array([[2, -1], [0, 0]])}, {"axis": 1}),
    Case("Pad", MAP, {"p": np.array([0, 0, 1, 2, 0, 1, 0, 1])}),
    Case("Pad", MAP, {"p": np.array([0, 0, 1, 2, 0, 0, 1, 0])}, {"mode": "reflect"}),
    Case("Pad", MAP, {"p": np.array([0, 0, 1, 2, 0, 0, 1, 0])}, {"mode": "edge"}),
    Case("Pad", MAP, {}, {"pads": [0, 0, 1, 1, 0, 0, 1, 1]}, 10), Case("Expand", (1, 5), {"s": np.array([3, 1])}),
    Case("Tile", MAP, {"r": np.array([1, 1, 2, 1])}), Case("DepthToSpace", MAP, {}, {"blocksize": 2}),
    Case("DepthToSpace", MAP, {}, {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", (2, 4, 6), {}, {"blocksize": 2}),
]  # fmt: skip


@pytest.mark.parametrize("batch", ["N", 1], ids=["any", "one"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.operator}-{case.opset}")
def test_an_operator_is_read_as_onnxruntime_runs_it(case: Case, batch: Any, tmp_path: Path) -> None:
    arrays = files.constants(**case.arrays)
    outputs = ["y", *(f"more{i}" for i in range(1, case.outputs))]
    node = helper.make_node(case.operator, ["x", *arrays], outputs, **case.attributes)
    model = files.graph([node], [batch, *case.shape], arrays, opset=case.opset)
    network = berncert.read_onnx(files.saved(model, tmp_path), input_shape=case.shape)
    x = noise(3, *case.shape).astype(np.float32)
    for rows in (x, x[:1]) if batch == "N" else (x[:1], x[1:2]):
        expected = files.run(model, rows)
        got = network(torch.from_numpy(rows).double()).numpy()
        np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("nodes", [
    [("Constant", [], "two", {"value_float": 2.0}), ("Mul", ["x", "two"], "y", {})],
    [("Sub", ["one", "x"], "y", {})], [("Neg", ["x"], "n", {}), ("Sub", ["x", "n"], "y", {})],
    [("Sigmoid", ["x"], "s", {}), ("Mul", ["x", "s"], "y", {})],
    [("Softplus", ["x"], "p", {}), ("Tanh", ["p"], "t", {}), ("Mul", ["t", "x"], "y", {})],
    [("Relu", ["x"], "r", {}), ("Sum", ["x", "r", "one", "x"], "y", {})],
    [("Relu", ["x"], "r", {}), ("Concat", ["x", "r"], "y", {"axis": 2})],
    [("Tanh", ["x"], "r", {}), ("Max", ["x", "r"], "y", {})], [("Tanh", ["x"], "r", {}), ("Min", ["r", "x"], "y", {})],
    [("ReduceMean", ["x", "last"], "m", {}), ("Sub", ["x", "m"], "y", {})],
    [("MatMul", ["matrix", "x"], "y", {})], [("MatMul", ["vector", "x"], "y", {})],
    [("Gemm", ["matrix", "row"], "y", {}), ("Reshape", ["x", "flat"], "row", {})],
    [("Shape", ["x"], "s", {}), ("Gather", ["s", "zero"], "n", {}), ("Concat", ["n", "minus"], "t", {"axis": 0}),
     ("Reshape", ["x", "t"], "y", {})],
])  # fmt: skip
@pytest.mark.parametrize("batch", ["N", 1], ids=["any", "one"])
def test_several_nodes_are_read_as_onnxruntime_runs_them(nodes: Any, batch: Any, tmp_path: Path) -> None:
    arrays = files.constants(
        one=np.ones(1), matrix=noise(3, 4), vector=noise(4), last=np.array([-1]), zero=np.array([0]),
        minus=np.array([-1]), flat=np.array([4, 5]),
    )  # fmt: skip
    made = [helper.make_node(name, inputs, [out], **more) for name, inputs, out, more in nodes]
    model = files.graph(made, [batch, 4, 5], arrays)
    if batch == "N" and any(out == "row" for _, _, out, _ in nodes):
        pytest.skip("an operator that is for one image only")
    network = berncert.read_onnx(files.saved(model, tmp_path))
    x = noise(1 if batch == 1 else 3, 4, 5).astype(np.float32)
    ordered = files.graph(
        sorted(made, key=lambda node: node.op_type != "Reshape" or "t" in node.input), [batch, 4, 5], arrays
    )
    expected = files.run(ordered if any(n[2] == "row" for n in nodes) else model, x)
    got = network(torch.from_numpy(x).double()).numpy()
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=2e-5, atol=2e-5)


def test_a_bias_and_a_normalisation_become_part_of_the_layer_before_them(tmp_path: Path) -> None:
    arrays = files.constants(
        w=noise(5, 3), b=noise(3), g=noise(3), s=noise(3), m=noise(3), v=noise(3) ** 2, k=noise(2, 3)
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["b", "p"], ["q"]),
        helper.make_node("BatchNormalization", ["q", "g", "s", "m", "v"], ["y"]),
    ]  # fmt: skip
    network = berncert.read_onnx(files.saved(files.graph(nodes, ["N", 5], arrays), tmp_path))
    assert [step.layer for step in network.steps] == ["MatMul+Add+BatchNormalization"]


def test_what_is_used_twice_is_not_folded(tmp_path: Path) -> None:
    arrays = files.constants(w=noise(5, 3), b=noise(3))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["y"]),
    ]  # fmt: skip
    model = files.graph(nodes, ["N", 5], arrays)
    network = berncert.read_onnx(files.saved(model, tmp_path))
    x = noise(2, 5).astype(np.float32)
    np.testing.assert_allclose(network(torch.from_numpy(x).double()), files.run(model, x), rtol=1e-5, atol=1e-5)


def test_pairs_that_are_sorted_by_maximum_and_minimum_have_gain_one(tmp_path: Path) -> None:
    """As the exporters of PyTorch write MaxMin."""
    arrays = files.constants(a=np.array([0]), b=np.array([4]), c=np.array([8]), axis=np.array([1]))
    nodes = [
        helper.make_node("Slice", ["x", "a", "b", "axis"], ["p"]),
        helper.make_node("Slice", ["x", "b", "c", "axis"], ["q"]),
        helper.make_node("Max", ["p", "q"], ["most"]), helper.make_node("Min", ["p", "q"], ["least"]),
        helper.make_node("Concat", ["most", "least"], ["y"], axis=1),
    ]  # fmt: skip
    network = berncert.read_onnx(files.saved(files.graph(nodes, ["N", 8], arrays), tmp_path))
    for norm in (1, 2, math.inf):
        assert 1 <= berncert.lipschitz_bound(network, (8,), norm) < 1 + 1e-9


@pytest.mark.parametrize(
    ("operator", "message"),
    [("Sin", "no rule for the operator Sin"), ("LogSoftmax", "changes no class"), ("Mul", "two values"),
     ("MatMul", "two values"), ("Unknown", "no rule for the operator Unknown")],
)  # fmt: skip
def test_an_operator_without_a_rule_is_named_with_its_node(operator: str, message: str, tmp_path: Path) -> None:
    inputs = ["x", "x"] if operator in ("Mul", "MatMul") else ["x"]
    node = helper.make_node(operator, inputs, ["y"], name="the culprit")
    with pytest.raises(ValueError, match=f"node the culprit \\({operator}\\): .*{message}"):
        berncert.read_onnx(files.saved(files.graph([node], ["N", 3, 3], {}), tmp_path))


@pytest.mark.parametrize("node", [
    helper.make_node("Softmax", ["x"], ["y"], axis=0), helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]),
    helper.make_node("ReduceMean", ["x"], ["y"]), helper.make_node("Concat", ["x", "x"], ["y"], axis=0),
    helper.make_node("Flatten", ["x"], ["y"], axis=0),
])  # fmt: skip
def test_what_mixes_the_images_of_a_batch_is_refused(node: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"keeps? the images of a batch apart"):
        berncert.read_onnx(files.saved(files.graph([node], ["N", 3], {}), tmp_path))
