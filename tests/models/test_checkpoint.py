"""Checkpoints: what comes out is what went in, to the last bit, or nothing at all."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import berncert
from berncert.certification.classifier import Classifier
from berncert.extractor import build
from berncert.extractor.freezing.registration import RULES
from berncert.models import checkpoint
from berncert.models.checkpoint import FORMAT, load, open_checkpoint, save, shipped_models
from berncert.models.heads import HEADS, build_head, smoothed
from berncert.models.tensor_file import write_tensors

DTYPES = [torch.float32, torch.float64]
BUILDS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "depth": 1, "width": 8, "side": 2, "mean": [0.5], "std": [0.25]},
    "resnet": {"name": "resnet", "depth": 8, "width": 2},
    "paper": {"name": "resnet", "depth": 8, "width": 2, "construction": "paper"},
    "patchnet": {"name": "patchnet", "depth": 1, "width": 4, "dense": 1, "hidden": 8},
}


def small(kind: str = "affine", of: str = "mlp", dtype: torch.dtype = torch.float32) -> Classifier:
    """A model that is not as it was built: every parameter and buffer has moved."""
    model = Classifier(build(input_shape=(1, 4, 4), dim=3, **BUILDS[of]), build_head(kind, 3, 3, scale=2.0, width=4))
    model.train()(torch.rand(6, 1, 4, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def smooth_model(model: Classifier) -> Classifier:
    return Classifier(model.extractor, smoothed(model.head)).eval()  # type: ignore[arg-type]


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(5, 1, 4, 4, dtype=dtype)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def assert_same_outputs(one: Classifier, other: Classifier, x: Tensor) -> None:
    """The same bits as the frozen model gives, and the same as the model itself up to rounding."""
    a, b = one.freeze()(x), other(x)
    assert a.dtype == b.dtype
    assert torch.equal(a, b)
    torch.testing.assert_close(b, one(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", HEADS)
def test_base_heads_come_back_with_the_same_outputs(kind: str, dtype: torch.dtype, path: Path) -> None:
    model = small(kind, dtype=dtype)
    save(model, path)
    loaded = load(path)
    assert not any(part.training for part in loaded.modules())
    assert_same_outputs(model, loaded, images(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", HEADS)
def test_smoothed_heads_come_back_with_the_same_outputs_and_their_base(
    kind: str, dtype: torch.dtype, path: Path
) -> None:
    model = small(kind, dtype=dtype)
    save(smooth_model(model), path, base=model.head)  # type: ignore[arg-type]
    assert_same_outputs(smooth_model(model), load(path), images(dtype))
    assert_same_outputs(model, load(path, base=True), images(dtype))


@pytest.mark.parametrize("of", BUILDS)
def test_extractors_of_every_kind_come_back_with_the_same_outputs(of: str, path: Path) -> None:
    model = small(of=of)
    save(model, path)
    assert_same_outputs(model, load(path), images())


def test_a_head_that_is_its_own_base_is_saved_too(path: Path) -> None:
    model = small()
    save(model, path, base=model.head)  # type: ignore[arg-type]
    assert_same_outputs(model, load(path, base=True), images())


def test_the_loaded_model_does_not_depend_on_the_file_any_more(path: Path) -> None:
    model = smooth_model(small())
    save(model, path)
    loaded, x = load(path), images()
    content = path.read_bytes()
    with path.open("r+b") as file:  # in place, as a careless copy would
        file.write(os.urandom(len(content)))
    assert_same_outputs(model, loaded, x)
    with path.open("wb"):
        pass
    assert_same_outputs(model, loaded, x)


@pytest.mark.parametrize("norm", [2.0, np.inf])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_certificates_of_the_loaded_model_are_the_same_to_the_last_bit(
    dtype: torch.dtype, norm: float, path: Path
) -> None:
    model, x = smooth_model(small("mlp")), images(torch.float64)
    expected = berncert.certify(model, x, norm=norm, dtype=dtype)
    save(model, path)
    for _ in range(2):
        got = berncert.certify(load(path), x, norm=norm, dtype=dtype)
        for name, column in expected.as_columns().items():
            np.testing.assert_array_equal(got.as_columns()[name], column, err_msg=name)


def test_loading_draws_no_random_numbers(path: Path) -> None:
    save(small(), path)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    load(path)
    assert torch.equal(torch.rand(4), expected)


def test_a_checkpoint_describes_itself(path: Path) -> None:
    model, about = small("mlp"), {"text": "ü\n", "numbers": [1, 0.1, None], "nested": {"a": True}}
    save(smooth_model(model), path, base=model.head, about=about)  # type: ignore[arg-type]
    described = open_checkpoint(path).description()
    assert described["about"] == about
    assert described["head"] == {"coefficients": [3, 2, 2, 2]}
    assert described["extractor"]["about"] == model.extractor.description
    assert described["base"] == model.head.description
    assert load_file(path).keys() >= {"head.coefficients", "base.layers.0.weight"}  # any safetensors reader shows it


def test_a_checkpoint_without_a_base_says_so(path: Path) -> None:
    save(small(), path)
    with pytest.raises(ValueError, match="expected a checkpoint with its base head"):
        load(path, base=True)


def _another_side(model: Classifier) -> None:
    model.extractor.layers[-1].side = 4.0


def _another_layer(model: Classifier) -> None:
    model.extractor.layers[3] = nn.ReLU()


def _another_class(model: Classifier) -> None:
    kind = type("Louder", (type(model.extractor),), {"forward": lambda self, x: self.layers(x) ** 2})
    model.extractor.__class__ = kind


def _a_hook(model: Classifier) -> None:
    model.extractor.register_forward_hook(lambda module, inputs, output: output**2)


def _another_head(model: Classifier) -> None:
    model.head.layers = nn.Sequential(model.head.layers, nn.Tanh())


CHANGES = [_another_side, _another_layer, _another_class, _a_hook, _another_head]


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_is_not_as_its_description_builds_it_is_refused_or_comes_back_as_it_is(
    change: Any, path: Path
) -> None:
    model, x = small(), images()
    before = model(x)
    change(model)
    assert not torch.equal(model(x), before)
    try:
        save(model, path)
    except (TypeError, ValueError):
        assert not path.exists()
    else:
        try:
            loaded = load(path)
        except ValueError:
            return
        assert_same_outputs(model, loaded, x)


def test_a_network_of_the_users_own_is_saved_and_certified_as_it_is(path: Path) -> None:
    torch.manual_seed(5)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3), nn.Sigmoid()
    ).eval()
    model, x = Classifier(network, smoothed(build_head("mlp", 3, 3, degree=2))), images()
    save(model, path, input_shape=(1, 4, 4))
    torch.testing.assert_close(load(path)(x), model(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(berncert.certify(load(path), x).radius, berncert.certify(model, x).radius)


def test_parts_alone_come_back_as_they_were(path: Path) -> None:
    model, x = smooth_model(small()).freeze(), images()
    save(model.extractor, path)
    assert torch.equal(load(path)(x), model.extractor(x))
    save(model.head, path)
    assert torch.equal(load(path)(model.extractor(x)), model(x))


class Own(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3] * 2


def test_what_a_file_cannot_hold_is_refused(path: Path) -> None:
    model = small()
    with pytest.raises(TypeError, match=r"expected a smoothed head, got Linear.* smooth it first"):
        save(Classifier(model.extractor, nn.Linear(3, 3)), path)
    with pytest.raises(ValueError, match="expected input_shape"):
        save(Classifier(Own(), model.head), path)
    with pytest.raises(TypeError, match="freeze a network first"):
        save(Own(), path)  # type: ignore[arg-type]
    berncert.register_bound(Own, lambda module, shape: 2.0)
    try:
        with pytest.raises(TypeError, match=r"of your own; write it with layers that berncert knows"):
            save(Classifier(Own(), model.head).eval(), path, input_shape=(1, 4, 4))
    finally:
        del RULES[Own]
    assert list(path.parent.iterdir()) == []


def refused(path: Path) -> bool:
    """Whether loading ends in one of the errors that it may end in; anything else comes through."""
    message = ""
    try:
        load(path)
    except ValueError as error:
        message = str(error)
    assert not message or ("expected" in message and str(path) in message)
    return bool(message)


@pytest.fixture
def content(path: Path) -> bytes:
    model = small("mlp")
    save(smooth_model(model), path, base=model.head, about={"a": [1, "x"]})  # type: ignore[arg-type]
    return path.read_bytes()


def test_a_file_cut_off_anywhere_is_refused(path: Path, content: bytes) -> None:
    ends = {*range(20), *range(20, len(content), 211), len(content) - 8, len(content) - 1}
    for end in sorted(ends):
        path.write_bytes(content[:end])
        assert refused(path), end


def test_a_file_with_something_added_is_refused(path: Path, content: bytes) -> None:
    for added in (b"\0", b"x" * 64):
        path.write_bytes(content + added)
        assert refused(path)


def altered(content: bytes, positions: Iterator[int] | range, masks: tuple[int, ...]) -> Iterator[tuple[int, bytes]]:
    for position in positions:
        for mask in masks:
            changed = bytearray(content)
            changed[position] ^= mask
            yield position, bytes(changed)


def test_a_file_with_any_byte_altered_is_refused_or_says_the_same(path: Path, content: bytes) -> None:
    """Header, description and tensors; a few bytes of the header are spaces, which may be others."""
    described, tensors = open_checkpoint(path).description(), load_file(path)
    size = 8 + int.from_bytes(content[:8], "little")
    header, rest = range(size), range(size, len(content))
    chance = random.Random(0)
    samples = [
        *((i, c) for n in range(300) for i, c in altered(content, iter([chance.choice(header)]), (1 << n % 8,))),
        *altered(content, iter(chance.sample(rest, 60)), (0x01, 0x80)),
        *altered(content, range(size, size + 8), (0xFF,)),
    ]
    for position, changed in samples:
        path.write_bytes(changed)
        if not refused(path):
            assert open_checkpoint(path).description() == described, position
            same = load_file(path)
            assert all(torch.equal(tensors[key], same[key]) for key in tensors), position


def test_swapped_tensors_and_another_description_are_refused(path: Path, content: bytes) -> None:
    for old, new in ((b"base.layers.0.bias", b"base.layers.0.bIas"), (b'\\"side\\": 2.0', b'\\"side\\": 1.0'),
                     (b"F32", b"I32"), (b"F64", b"I64")):  # fmt: skip
        assert old in content
        path.write_bytes(content.replace(old, new))
        assert refused(path)


def test_what_is_no_checkpoint_is_refused(path: Path, tmp_path: Path) -> None:
    for content in (
        b"",
        b"x",
        b"# notes\nsome text, quite long enough for a header\n" * 9,
        bytes(1000),
        b"PK\3\4" * 99,
    ):
        path.write_bytes(content)
        assert refused(path)
    save_file({"a": torch.zeros(3)}, path)
    assert refused(path)
    save_file({"a": torch.zeros(3)}, path, metadata={"format": FORMAT})
    assert refused(path)
    write_tensors(path, {"a": torch.zeros(3)}, "berncert training state 1", {})
    assert refused(path)
    torch.save({"a": torch.zeros(3)}, path)
    assert refused(path)
    with pytest.raises(ValueError, match=r"expected a checkpoint, or a folder with a model\.safetensors in it"):
        load(tmp_path.parent)
    for missing in (tmp_path / "none.safetensors", "no-such-name", ""):
        with pytest.raises((FileNotFoundError, ValueError), match="expected"):
            load(missing)


@pytest.mark.parametrize(
    "description",
    [
        {},
        [],
        {"extractor": {}, "head": {}, "base": None, "about": {}},
        {"extractor": None, "head": None, "base": None, "about": {}},
        {"extractor": {"input_shape": [4], "steps": []}, "head": {"coefficients": [2]}, "base": None, "about": {}},
        {"extractor": {"input_shape": [4], "steps": [{}]}, "head": None, "base": None, "about": {}},
        {"extractor": {"input_shape": [10**9, 10**9], "steps": []}, "head": None, "base": None, "about": {}},
        {"extractor": None, "head": {"kind": "mlp", "dim": 3, "classes": 2, "width": 20000}, "base": None, "about": {}},
        {
            "extractor": None,
            "head": {"kind": "polynomial", "dim": 60, "classes": 2, "degree": 9},
            "base": None,
            "about": {},
        },
        {"extractor": None, "head": 3, "base": None, "about": {}},
    ],
    ids=str,
)
def test_a_checkpoint_that_this_version_cannot_build_is_refused(description: Any, path: Path) -> None:
    write_tensors(path, {"a": torch.zeros(1)}, FORMAT, description)
    assert refused(path)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    failing: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small()
    save(model, path)

    def fail(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="no space left"):
        save(small("mlp"), path)
    monkeypatch.undo()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert_same_outputs(model, load(path), images())


def test_what_cannot_be_written_as_json_leaves_the_old_file(path: Path) -> None:
    model = small()
    save(model, path)
    with pytest.raises(TypeError):
        save(small("mlp"), path, about={"a": object()})
    assert_same_outputs(model, load(path), images())
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("name", shipped_models() or ["none is shipped"])
def test_every_shipped_checkpoint_loads(name: str) -> None:
    if name in shipped_models():
        assert isinstance(load(name), Classifier)
        assert open_checkpoint(name).about["data"]["classes"]


def test_the_checkpoints_of_the_package_have_a_place() -> None:
    assert str(checkpoint.SHIPPED).endswith("checkpoints")


def test_the_documentation_of_load_names_every_shipped_model() -> None:
    assert all(f'"{name}"' in str(load.__doc__) for name in shipped_models())
