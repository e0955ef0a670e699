"""Networks from ONNX files: layouts, normalisation, a head after a node, features in the cube."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_networks as files
import pytest
import torch
from onnx import helper
from torch import nn

import berncert
from berncert.polynomial import SumHead


def noise(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def small(folder: Path, *, features: str = "Sigmoid", batch: Any = "N", shape: tuple[int, ...] = (1, 4, 4)) -> Path:
    """16 numbers to 3 features to 4 logits."""
    arrays = files.constants(
        w=noise(16, 3), v=noise(3, 5), u=noise(5, 4),
        c=noise(5),
    )  # fmt: skip
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["z"]),
        helper.make_node(features, ["z"], ["f"], name="features"),
        helper.make_node("MatMul", ["f", "v"], ["p"]), helper.make_node("Add", ["p", "c"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]), helper.make_node("MatMul", ["t", "u"], ["y"], name="last"),
        helper.make_node("Softmax", ["y"], ["s"], name="softmax"),
    ]  # fmt: skip
    return files.saved(files.graph(nodes, [batch, *shape], arrays, out="s"), folder)


def images(count: int = 6) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).random((count, 1, 4, 4)))


@pytest.mark.parametrize("batch", ["N", 1])
@pytest.mark.parametrize("node", ["features", "f"])
def test_a_file_is_cut_in_two_at_a_node(node: str, batch: Any, tmp_path: Path) -> None:
    path = small(tmp_path, batch=batch)
    whole = berncert.read_onnx(path, end_at="last")
    model = berncert.read_onnx(path, head_after=node, end_at="last")
    assert model.extractor.dim == 3
    assert model.extractor.steps[-1].layer == "Sigmoid"  # is in the cube: nothing is added
    torch.testing.assert_close(model(images()), whole(images()))
    c = berncert.certify(model.smooth(4, points=0), images())
    assert (c.radius > 0).all()


def test_features_beyond_the_cube_are_scaled_to_what_images_span(tmp_path: Path) -> None:
    path = small(tmp_path, features="LeakyRelu")
    with pytest.raises(ValueError, match="pass images"):
        berncert.read_onnx(path, head_after="f", end_at="y")
    model = berncert.read_onnx(path, head_after="f", end_at="y", images=images(20))
    whole = berncert.read_onnx(path, end_at="y")
    features = model.extractor(images(20))
    assert features.min() > 0.08
    assert features.max() < 0.92
    torch.testing.assert_close(model(images(20)), whole(images(20)))
    far = model.extractor(images(20) * 50 - 25)
    assert far.min() == 0  # clamped, as the model that is certified is
    assert far.max() == 1
    table = berncert.lipschitz_table(model.extractor, (1, 4, 4))
    assert table.value.limits == (0, 1)


def test_a_cube_can_be_given(tmp_path: Path) -> None:
    path = small(tmp_path, features="Tanh")
    model = berncert.read_onnx(path, head_after="f", end_at="y", cube=(-1, 1))
    torch.testing.assert_close(model(images()), berncert.read_onnx(path, end_at="y")(images()))
    for wrong in ((1, 1), (0, [1, 2, math.inf]), (0, 1, 2)):
        with pytest.raises(ValueError, match="cube"):
            berncert.read_onnx(path, head_after="f", end_at="y", cube=wrong)
    with pytest.raises(ValueError, match="with head_after"):
        berncert.read_onnx(path, cube=(-1, 1))


def test_an_affine_head_is_its_own_polynomial_in_any_number_of_features(tmp_path: Path) -> None:
    arrays = files.constants(w=noise(16, 20), v=noise(20, 3), b=noise(3))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Tanh", ["z"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "b"], ["y"]),
    ]  # fmt: skip
    path = files.saved(files.graph(nodes, ["N", 16], arrays), tmp_path)
    model = berncert.read_onnx(path, head_after="f", cube=(-1.0, 1.0)).smooth(1)
    assert isinstance(model.head, SumHead)
    x = torch.rand(5, 16, dtype=torch.float64)
    torch.testing.assert_close(model(x), berncert.read_onnx(path)(x))


def test_a_wrong_node_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"got 'nothing'; it makes flat \(Flatten\), z \(MatMul\)"):
        berncert.read_onnx(small(tmp_path), head_after="nothing")


def test_a_head_that_takes_the_image_too_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sigmoid", ["x"], ["f"]), helper.make_node("Add", ["x", "f"], ["y"])]
    with pytest.raises(ValueError, match="a part that takes the image itself"):
        berncert.read_onnx(files.saved(files.graph(nodes, ["N", 3], {}), tmp_path), head_after="f")


def test_channels_last_and_flat_files_take_images_with_channels_first(tmp_path: Path) -> None:
    x = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    arrays = files.constants(w=noise(60, 2))
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    w = torch.from_numpy(arrays["w"]).double()
    last = berncert.read_onnx(files.saved(files.graph(nodes, ["N", 4, 5, 3], arrays), tmp_path), input_shape=(3, 4, 5))
    torch.testing.assert_close(last(x), x.permute(0, 2, 3, 1).flatten(1) @ w)
    flat = berncert.read_onnx(files.saved(files.graph(nodes, [1, 60], arrays), tmp_path), input_shape=(3, 4, 5))
    torch.testing.assert_close(flat(x), x.flatten(1) @ w)
    with pytest.raises(ValueError, match="expected images that"):
        berncert.read_onnx(files.saved(files.graph(nodes, ["N", 60], arrays), tmp_path), input_shape=(3, 4, 6))


def test_open_sizes_need_an_input_shape(tmp_path: Path) -> None:
    node = helper.make_node("GlobalAveragePool", ["x"], ["y"])
    path = files.saved(files.graph([node], ["N", 3, "H", "W"], {}), tmp_path)
    with pytest.raises(ValueError, match="input_shape"):
        berncert.read_onnx(path)
    assert berncert.read_onnx(path, input_shape=(3, 5, 6)).input_shape == (3, 5, 6)


def test_a_file_for_several_images_is_read_with_the_shape_of_one(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    path = files.saved(files.graph([node], [4, 1, 5, 5], files.constants(w=np.ones((2, 1, 3, 3)))), tmp_path)
    with pytest.raises(ValueError, match="pass input_shape"):
        berncert.read_onnx(path)
    assert berncert.read_onnx(path, input_shape=(1, 5, 5)).output_shape == (2, 3, 3)


def test_normalisation_outside_of_the_file_becomes_part_of_the_network(tmp_path: Path) -> None:
    path = files.saved(files.graph([helper.make_node("Relu", ["x"], ["y"])], ["N", 3, 2, 2], {}), tmp_path)
    network = berncert.read_onnx(path, mean=(0.5, 0.4, 0.3), std=0.25)
    x = torch.rand(2, 3, 2, 2, dtype=torch.float64)
    mean = torch.tensor([0.5, 0.4, 0.3], dtype=torch.float64).view(3, 1, 1)
    torch.testing.assert_close(network(x), ((x - mean) / 0.25).relu())
    assert berncert.lipschitz_bound(network, (3, 2, 2)) == pytest.approx(4)
    for wrong in ({"mean": (1, 2)}, {"std": 0}, {"std": math.nan}):
        with pytest.raises(ValueError, match="for each of 3 channels"):
            berncert.read_onnx(path, **wrong)


def test_a_network_of_logits_is_certified_as_it_is(tmp_path: Path) -> None:
    network = berncert.read_onnx(small(tmp_path), end_at="y")
    model = berncert.Classifier.of_logits(network)
    torch.testing.assert_close(model(images()), network(images()), rtol=0, atol=1e-9)
    wide = images() * 3 - 1  # pixels between -1 and 2
    torch.testing.assert_close(model(wide), network(wide), rtol=0, atol=1e-9)
    for norm in (1, 2, math.inf):
        c = berncert.certify(model, images(), norm=norm)
        top = network(images()).topk(2, dim=1).values
        margin = (top[:, 0] - top[:, 1]).numpy()
        assert (c.radius > 0).all()
        assert (c.radius <= margin).all()  # a step of length 1 moves no logit by less than all of them together
        assert (c.predicted == network(images()).argmax(dim=1).numpy()).all()


def test_logits_of_several_axes_have_no_classifier() -> None:
    with pytest.raises(ValueError, match=r"\(N, K\) logits"):
        berncert.Classifier.of_logits(berncert.freeze(torch.nn.ReLU(), (2, 3)))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mnist/mnist2x10", (1, 28, 28)), ("mnist/mnist5x20_leaky_relu", (1, 28, 28)),
     ("mnist/mnist2x5_sigmoid", (1, 28, 28)),
     ("mnist/cnn_max_mninst2", (28, 28, 1)), ("mnist/conv_mp1", (3, 8, 8)), ("cifar10/cifar_base_kw", (3, 32, 32)),
     ("cifar10/cifar_base_kw_simp", (3, 32, 32)), ("cifar10/cifar_deep_kw", (3, 32, 32)),
     ("acasxu/ACASXU_experimental_v2a_1_1", (1, 1, 5)), ("acasxu/ACASXU_experimental_v2a_2_5", (1, 1, 5))],
)  # fmt: skip
def test_networks_of_others_compute_what_onnxruntime_says(name: str, shape: tuple[int, ...]) -> None:
    path = files.networks_of_others() / f"{name}.onnx"
    network = berncert.read_onnx(path)
    assert network.input_shape == shape
    x = np.random.default_rng(0).random((1, *shape)).astype(np.float32)
    expected = files.run(onnx.load(path), x)
    np.testing.assert_allclose(
        network(torch.from_numpy(x).double()).numpy().reshape(expected.shape), expected, atol=1e-3
    )


LAYERS = ("add", "batchnorm", "conv", "dropout", "flatten", "gemm", "identity", "leakyRelu", "matmul", "maxpool",
          "relu", "reshape", "sigmoid", "sub", "tanh", "transpose")  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_files_of_one_operator_by_others_are_read(name: str) -> None:
    network = berncert.read_onnx(files.networks_of_others() / "layers" / f"{name}.onnx")
    assert len(network.steps) <= 2


WRONG = {
    "no file": (lambda folder: berncert.read_onnx(folder / "no.onnx"), FileNotFoundError, "which is not there"),
    "a folder": (lambda folder: berncert.read_onnx(folder), FileNotFoundError, "which is a folder"),
    "no path": (lambda folder: berncert.read_onnx(None), TypeError, "expected the path of an ONNX file, got NoneType"),
    "a shape": (lambda folder: berncert.read_onnx(folder / "a b.\u00fc.onnx", input_shape="1,2"), ValueError, "like "),
    "a mean": (
        lambda folder: berncert.read_onnx(folder / "a b.\u00fc.onnx", mean="x"),
        ValueError,
        "mean as a number, or",
    ),
    "a std": (lambda folder: berncert.read_onnx(folder / "a b.\u00fc.onnx", std=0), ValueError, "std as a number > 0"),
    "a checkpoint": (lambda folder: berncert.load(folder / "a b.\u00fc.onnx"), ValueError, "berncert.read_onnx"),
    "to a folder": (lambda folder: berncert.write_onnx(berncert.load("digits"), folder), ValueError, "got the folder"),
    "to nothing": (lambda folder: berncert.write_onnx(berncert.load("digits"), None), ValueError, "got NoneType"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_paths_and_options_say_what_was_expected(name: str, tmp_path: Path) -> None:
    berncert.write_onnx(berncert.freeze(nn.Linear(4, 2), (4,)), tmp_path / "a b.\u00fc.onnx")
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call(tmp_path)
