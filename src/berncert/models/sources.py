"""What a model is named by: a checkpoint, an ONNX file, or a function of the user's own that builds a network.

Checkpoints and ONNX files cannot run code. A function `module:function` is run because the user names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from berncert.certification.classifier import Classifier
from berncert.extractor import FrozenNetwork, freeze
from berncert.models.checkpoint import Checkpoint, checkpoint_of, open_checkpoint
from berncert.models.heads import Head, NetworkHead
from berncert.models.onnx_reading import read_onnx
from berncert.models.own_functions import FUNCTION, build_network, refuse_misspelt
from berncert.models.source_settings import SourceSettings
from berncert.polynomial import PolynomialHead

PICKLES = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle")


def is_own(name: str | os.PathLike[str]) -> bool:
    """Whether this names an ONNX file or a function, and no checkpoint."""
    path = Path(name)
    return (path.suffix == ".onnx" and not path.is_dir()) or (
        not path.exists() and FUNCTION.fullmatch(str(name)) is not None
    )


def open_model(
    name: str | os.PathLike[str],
    own: SourceSettings | None = None,
    *,
    input_shape: Sequence[int] | None = None,
    images: Callable[[], Tensor] | None = None,
) -> Checkpoint:
    """The model of that name: a checkpoint, an .onnx file, or `module:function`, which is imported and called.

    `input_shape` is the shape of the images that are at hand, and `images` gives some training images, for a cube
    around their features; both are asked only where nothing else says it.
    """
    settings, text = own or SourceSettings(), str(name)
    path = Path(text)
    function = FUNCTION.fullmatch(text)
    if is_own(name) and path.suffix == ".onnx":
        return _onnx(path, settings, input_shape, images)
    if is_own(name) and function:
        _refuse(settings, text, "head_after", "end_at", "cube", "mean", "std")
        if function[1].endswith(".py"):
            refuse_misspelt(text)
        return _built(function[1], function[2], settings.input_shape or input_shape)
    _refuse(settings, text, *vars(settings))
    if path.suffix in PICKLES and path.is_file():
        raise ValueError(
            f"expected a model that cannot run code, got {text}, a PyTorch file, which can; write a function that "
            f"builds the network, loads its weights (torch.load({path.name!r}, weights_only=True)) and returns it, and "
            "name that, e.g. my_network:build for a file my_network.py in this folder; or export the network as ONNX"
        )
    if path.suffix == ".py":
        refuse_misspelt(text)
    try:
        return open_checkpoint(name)
    except FileNotFoundError:
        refuse_misspelt(text)
        raise


def _refuse(settings: SourceSettings, name: str, *options: str) -> None:
    for option in options:
        if option in settings.given():
            kinds = "ONNX files" if option != "input_shape" else "ONNX files and networks that a function builds"
            raise ValueError(f"expected {option} with {kinds} only, got {name}")


def _onnx(path: Path, own: SourceSettings, shape: Sequence[int] | None, images: Any) -> Checkpoint:
    if not path.is_file():
        raise FileNotFoundError(f"expected an ONNX file, got {path}, which is not there")
    options: dict[str, Any] = own.given() | {"input_shape": own.input_shape or shape}
    options["images"] = images if own.head_after is not None and own.cube is None else None
    try:
        model = read_onnx(path, **options)
    except ImportError as error:
        raise ValueError(str(error)) from error
    return _checkpoint(model, path, own.given() | {"kind": "ONNX"}, None)


def _built(module: str, function: str, shape: Sequence[int] | None) -> Checkpoint:
    return _checkpoint(build_network(module, function), Path(f"{module}:{function}"), {"kind": "function"}, shape)


def _checkpoint(model: Any, path: Path, source: Mapping[str, Any], shape: Sequence[int] | None) -> Checkpoint:
    """The model as the checkpoint that it would be saved as."""
    if isinstance(model, PolynomialHead):
        raise ValueError(f"expected a network, got {path}, which is a smoothed head alone")
    wanted = getattr(getattr(model, "extractor", model), "input_shape", shape)
    if wanted is None:
        raise ValueError(f"expected input_shape, e.g. 3,32,32, as {path} does not say which images it takes")
    try:
        if not isinstance(model, Classifier):
            model = Classifier.of_logits(model, wanted)
        frozen = model.freeze(wanted)
        assert isinstance(frozen.extractor, FrozenNetwork)
        head = frozen.head
        if not isinstance(head, PolynomialHead | Head):
            head = NetworkHead(freeze(head.double(), (frozen.extractor.dim,)))
    except TypeError as error:
        raise ValueError(f"expected a network with a proof, got {path}: {error}") from error
    except ValueError as error:
        raise ValueError(f"expected a network for images of shape {tuple(wanted)}, got {path}: {error}") from error
    return checkpoint_of(Classifier(frozen.extractor, head), path, source)
