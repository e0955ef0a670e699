"""What a model is named by: a checkpoint, an ONNX file, a function; and the messages for anything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import berncert
from berncert.models.checkpoint import open_checkpoint, save
from berncert.models.heads import NetworkHead, affine_layer
from berncert.models.source_settings import SourceSettings
from berncert.models.sources import open_model
from berncert.polynomial import SumHead

CODE = """
import torch, berncert
from torch import nn

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def classifier():
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Sigmoid())
    return berncert.Classifier(extractor, nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 10)))

def smoothed():
    return classifier().smooth(2)

def unknown():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.LayerNorm(10))

def nothing():
    return 3

built = network()

class Shop:
    @staticmethod
    def network():
        return network()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_code.py").write_text(CODE, "utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    __import__("sys").modules.pop("own_code", None)


SHAPE = (1, 8, 8)


def images() -> torch.Tensor:
    return berncert.data.load("digits", limit=6).images.double()


@pytest.mark.parametrize("name", ["own_code:network", "own_code:Shop.network", "own_code:built"])
def test_a_network_of_a_function_is_a_classifier_of_its_logits(name: str, folder: Path) -> None:
    checkpoint = open_model(name, input_shape=SHAPE)
    model = checkpoint.smoothed()
    assert isinstance(model.head, SumHead)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()
    torch.testing.assert_close(model(images()), network(images()), rtol=0, atol=1e-5)
    assert checkpoint.sha256 == open_model(name, input_shape=SHAPE).sha256  # what a run is resumed by


def test_a_classifier_of_a_function_is_smoothed_to_any_degree(folder: Path) -> None:
    checkpoint = open_model("own_code:classifier", input_shape=SHAPE)
    assert isinstance(checkpoint.head, NetworkHead)
    with pytest.raises(ValueError, match="pass degree"):
        checkpoint.smoothed()
    from own_code import classifier  # type: ignore[import-not-found]

    own = classifier().eval().double()
    torch.testing.assert_close(checkpoint.with_base_head()(images()), own(images()), rtol=0, atol=1e-5)
    expected, got = own.smooth(3, points=0), checkpoint.smoothed(3)
    torch.testing.assert_close(got(images()), expected(images()), rtol=0, atol=1e-5)
    assert open_model("own_code:smoothed", input_shape=SHAPE).smoothed().head.degree == (2, 2, 2)


def test_a_network_head_is_saved_and_read_again(folder: Path) -> None:
    model = open_model("own_code:classifier", input_shape=SHAPE).with_base_head()
    save(model, "base.safetensors")
    again = open_checkpoint("base.safetensors")
    assert torch.equal(again.with_base_head()(images()), model(images()))
    assert again.description()["head"] == {"kind": "network", "dim": 3, "classes": 10, "steps": 3}


def test_an_affine_network_head_is_found_only_where_it_is_one() -> None:
    one = berncert.freeze(nn.Linear(3, 2).double(), (3,))
    layer = affine_layer(one)
    x = torch.rand(4, 3, dtype=torch.float64)
    assert layer is not None
    torch.testing.assert_close(layer(x), one(x))
    assert affine_layer(berncert.freeze(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), (3,))) is None
    dead = berncert.FrozenNetwork((3,), [one.steps[0], one.steps[0]])  # the first leads nowhere
    assert affine_layer(dead) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [("own_code:netwerk", "did you mean network|got .netwerk."), ("nowhere:build", "got 'nowhere'"),
     ("own_code:nothing", "got int"), ("own_code:unknown", "LayerNorm"), ("missing.onnx", "missing.onnx"),
     ("missing.safetensors", "which is neither")],
)  # fmt: skip
def test_what_is_no_model_gets_a_message(name: str, message: str, folder: Path) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_model(name, input_shape=SHAPE)


def test_a_head_that_is_smoothed_or_none_gets_no_degree_and_the_message_says_how(folder: Path) -> None:
    for name in ("own_code:network", "own_code:smoothed"):
        with pytest.raises(ValueError, match="whose head is not smoothed, or leave degree out"):
            open_model(name, input_shape=SHAPE).smoothed(3)


def test_a_shape_is_asked_for_where_nothing_says_it(folder: Path) -> None:
    with pytest.raises(ValueError, match="input_shape"):
        open_model("own_code:network")
    assert open_model("own_code:network", SourceSettings(input_shape=SHAPE)).extractor is not None
    with pytest.raises(ValueError, match="like 3,32,32"):
        SourceSettings(input_shape=("three",))  # type: ignore[arg-type]


BROKEN = {
    "import": (
        "import a_module_that_is_not_there",
        "broken_code cannot be imported: ModuleNotFoundError: .*py, line 1",
    ),
    "syntax": ("def build(:", "broken_code cannot be imported: SyntaxError: invalid syntax .*py, line 1"),
    "call": (
        "def build():\n    raise RuntimeError('no weights')",
        "build failed: RuntimeError: no weights .*py, line 2",
    ),
    "arguments": ("def build(size): pass", r"one that needs size; .* def build\(\): return build\(...\)"),
    "none": ("def build(): pass", "got None; does it end with return"),
    "state": ("def build(): return {'weight': 1}", "got dict; load such weights into a network"),
    "value": ("build = 3", "to be a function that builds a network, or a network, got int"),
    "shape": ("import torch\ndef build(): return torch.nn.Linear(3, 2)", r"a network for images of shape \(1, 8, 8\)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_error_in_the_users_own_code_says_what_and_where(name: str, folder: Path) -> None:
    code, message = BROKEN[name]
    own = f"broken_{name}"  # Python remembers modules by their name
    (folder / f"{own}.py").write_text(code + "\n", "utf-8")
    with pytest.raises(ValueError, match=message.replace("broken_code", own)):
        open_model(f"{own}:build", input_shape=SHAPE)


@pytest.mark.parametrize(
    ("name", "message"),
    [("own_code.py:network", "write own_code:network$"), ("./own_code.py:network", "write own_code:network$"),
     ("own_code.py", "write own_code:build"), ("own_code", "e.g. own_code:build"),
     ("own_code.network", "e.g. own_code:network"), ("own_code:", "write own_code:build"),
     (":build", "names as Python"), ("own-code:build", "names as Python"),
     ("own_cod:build", "no own_cod.py here; did you mean own_code?"),
     ("sub/own_code:build", "names as Python"), ("c:\\x.safetensors", "which is neither")],
)  # fmt: skip
def test_a_misspelt_function_is_answered_with_how_to_write_it(name: str, message: str, folder: Path) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_model(name, input_shape=SHAPE)


def test_a_shipped_model_is_found_beside_a_module_of_its_name(folder: Path) -> None:
    (folder / "digits.py").write_text("", "utf-8")
    assert open_model("digits").extractor is not None


def test_a_torch_file_is_never_unpickled_and_the_message_says_what_to_do(folder: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), "weights.pt")
    with pytest.raises(ValueError, match=r"which can; write a function .*weights_only=True.*my_network:build.*ONNX"):
        open_model("weights.pt")


def test_options_of_onnx_files_are_refused_elsewhere(folder: Path) -> None:
    with pytest.raises(ValueError, match="expected head_after with ONNX files only, got digits"):
        open_model("digits", SourceSettings(head_after="x"))
    with pytest.raises(ValueError, match="expected mean with ONNX files only"):
        open_model("own_code:network", SourceSettings(mean=(0.5,)), input_shape=SHAPE)


def test_an_onnx_file_is_opened_as_its_logits_or_cut_at_a_node(folder: Path) -> None:
    open_model("own_code:classifier", input_shape=SHAPE)
    from own_code import classifier

    own = classifier().eval()
    network = berncert.freeze(nn.Sequential(own.extractor, own.head), SHAPE)
    berncert.write_onnx(network, "whole.onnx")
    whole = open_model("whole.onnx", input_shape=SHAPE)
    assert whole.source == {"kind": "ONNX"}
    torch.testing.assert_close(whole.smoothed()(images()), network(images()), rtol=0, atol=1e-5)
    cut = open_model("whole.onnx", SourceSettings(head_after="value 1", cube=(-9.0, 9.0)), input_shape=SHAPE)
    torch.testing.assert_close(cut.with_base_head()(images()), network(images()), rtol=0, atol=1e-5)
    asked: list[int] = []

    def sample() -> torch.Tensor:
        asked.append(1)
        return images()

    spanned = open_model("whole.onnx", SourceSettings(head_after="value 1"), input_shape=SHAPE, images=sample)
    assert asked
    torch.testing.assert_close(spanned.with_base_head()(images()), network(images()), rtol=0, atol=1e-5)
    in_cube = open_model("whole.onnx", SourceSettings(head_after="value 2"), input_shape=SHAPE, images=sample)
    assert len(asked) == 1  # behind a sigmoid nobody needs images
    assert in_cube.smoothed(2).head.dim == 3
