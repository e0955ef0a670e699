"""`read_onnx`: an ONNX file as a frozen network, or, cut in two at a node, as a classifier with a head to smooth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from berncert.certification.classifier import Classifier
from berncert.extractor import FrozenNetwork
from berncert.extractor import operations as ops
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.freezing.freeze import checked_shape
from berncert.extractor.onnx_files.graph import OnnxGraph, read_graph
from berncert.extractor.onnx_files.reading import FileInput, compare, follow, network_of
from berncert.extractor.proof_cache import proven
from berncert.foundation.safe_reading import parsed_json
from berncert.models.heads import affine_layer
from berncert.models.onnx_writing import KEY, model_of
from berncert.polynomial import PolynomialHead
from berncert.polynomial.sum_head import head_from_data

MARGIN = 0.1
"""The cube around the features of some images is wider than they are by this share of it, on both sides."""


def read_onnx(
    path: str | PathLike[str],
    *,
    head_after: str | None = None,
    end_at: str | None = None,
    input_shape: Sequence[int] | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    cube: tuple[Any, Any] | None = None,
    images: Tensor | Callable[[], Tensor] | None = None,
) -> Any:
    """Read an ONNX file as a `FrozenNetwork`; with `head_after` as a `Classifier`, whose head can be smoothed.

    Nothing in a file can run code. Its numbers are taken as they are, widened to float64, and what is read is run
    beside onnxruntime, with which it must agree up to rounding. An operator without a rule is an error that names it.
    A file that `write_onnx` wrote gives the model that was written.

    head_after: the node, or the tensor, that gives the features. What comes after it, which must depend on nothing
        else, is the head: smooth it with `model.smooth(degree)`. Features that are not proven to lie in [0, 1], as
        after a sigmoid, are scaled to the cube and clamped there, which is then part of the model:
    cube: (low, high), numbers or one for each feature, that become 0 and 1; or
    images: some training images, or a function that gives them if they are needed: the cube is what their features
        span, and a tenth of that on either side.
    end_at: the node, or the tensor, that gives the logits, if the file goes on after it: with a LogSoftmax, say.
    input_shape: the shape of one image, where the file leaves it open or where yours have another: (1, 28, 28) for a
        file that takes 784 numbers, or (3, 32, 32) for one that takes (32, 32, 3), channels last.
    mean, std: (x - mean) / std is put before the network, a number each or one for each channel (the first axis), for
        networks whose images are normalised outside of the file: radii are then in units of the pixels.

    The classifier of a whole network without such a node: `Classifier.of_logits(read_onnx(path))`.

    Example:
        >>> import tempfile, torch, berncert
        >>> network = berncert.freeze(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Sigmoid()), (4,))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     berncert.write_onnx(network, f"{folder}/small.onnx")
        ...     berncert.read_onnx(f"{folder}/small.onnx")
        FrozenNetwork((4,) -> (2,), 2 steps, 10 numbers)
    """
    graph = read_graph(path)
    if head_after is None and (cube is not None or images is not None):
        raise ValueError("expected cube and images with head_after, which says what the features are, got them alone")
    model = _as_written(graph) if head_after is None and end_at is None else None
    given = FileInput(graph, None if input_shape is None else checked_shape(input_shape))
    if model is None:
        end = graph.output if end_at is None else graph.tensor(end_at)
        model = network_of(graph, given, end).network
        compare(graph, given, model, end)
    if head_after is not None:
        model = _cut(graph, given, head_after, end)
    if isinstance(model, PolynomialHead):
        return model
    before = _normalisation(given.image_shape, mean, std)
    if isinstance(model, Classifier):
        assert isinstance(model.extractor, FrozenNetwork)
        extractor = before.followed_by(model.extractor) if before.steps else model.extractor
        model = Classifier(extractor, model.head).eval()
        return model if head_after is None else _in_cube(model, cube, images)
    return before.followed_by(model) if before.steps else model


def _cut(graph: OnnxGraph, given: FileInput, node: str, end: str) -> Classifier:
    """The network up to this node, and what comes after it as a head on its features, which are flat."""
    name = graph.tensor(node)
    extractor, batched = network_of(graph, given, name)
    compare(graph, given, extractor, name)
    shape = extractor.output_shape
    rest = follow(graph, name, end, shape, fixed=given.fixed, batched=batched).network
    features = math.prod(shape)
    if len(rest.output_shape) != 1:
        raise ValueError(f"expected {graph.path} to give (N, K) logits, got shape (N, *{rest.output_shape})")
    if len(shape) != 1:
        extractor = extractor.followed_by(ops.Reshape((features,)))
        rest = FrozenNetwork((features,), []).followed_by(ops.Reshape(shape), rest)
    return Classifier(extractor, rest)


def _in_cube(model: Classifier, cube: tuple[Any, Any] | None, images: Any) -> Classifier:
    """The model with features in [0, 1]: as they are if that is proven, else scaled and clamped."""
    network, rest = model.extractor, model.head
    assert isinstance(network, FrozenNetwork)
    assert isinstance(rest, FrozenNetwork)
    low, high = proven(network, 2.0, UNIT).limits
    if cube is None and low >= 0 and high <= 1:
        return Classifier(network, _head(rest)).eval()
    if cube is None and images is None:
        raise ValueError(
            "expected features that are proven to lie in [0, 1], as after a sigmoid, got others; pass images, some "
            "training images whose features span the cube, or cube=(low, high)"
        )
    low_end, width = _ends(network, cube, images)
    scaled = network.followed_by(ops.Shift(-low_end), ops.Scale(width, divide=True), ops.Clamp(0.0, 1.0))
    back = FrozenNetwork((network.dim,), []).followed_by(ops.Scale(width), ops.Shift(low_end), rest)
    return Classifier(scaled, _head(back)).eval()


def _ends(network: FrozenNetwork, cube: tuple[Any, Any] | None, images: Any) -> tuple[Tensor, Tensor]:
    if cube is not None:
        if len(cube) != 2:
            raise ValueError(f"expected cube=(low, high), got {cube!r}")
        low, high = (torch.as_tensor(end, dtype=torch.float64).expand(network.dim).clone() for end in cube)
    else:
        sample = torch.as_tensor(images() if callable(images) else images)
        with torch.no_grad():
            found = torch.cat([network(part.double()) for part in torch.split(sample, 256)])
        least, greatest = found.amin(dim=0), found.amax(dim=0)
        spread = (greatest - least).clamp_min(1e-6 * (1 + greatest.abs()))  # a feature that never changes
        low, high = least - MARGIN * spread, greatest + MARGIN * spread
    if not bool((high > low).all()) or not bool((high - low).isfinite().all()):
        raise ValueError("expected a cube with low < high for each feature, got another")
    return low, high - low


def _head(network: FrozenNetwork) -> nn.Module:
    """The head; as a linear layer if it is affine, which needs no smoothing, in any number of features."""
    return affine_layer(network) or network


def _normalisation(shape: Sequence[int], mean: Any, std: Any) -> FrozenNetwork:
    """(x - mean) / std, as steps; none if neither is given."""
    found = FrozenNetwork(tuple(shape), [])
    for name, given in (("mean", mean), ("std", std)):
        if given is None:
            continue
        least = "" if name == "mean" else " > 0"
        wanted = f"expected {name} as a number{least}, or one for each of {shape[0]} channels, got {given!r}"
        try:
            values = torch.as_tensor(given, dtype=torch.float64).flatten()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{wanted}; write e.g. 0.5 or (0.49, 0.48, 0.45)") from error
        if (
            len(values) not in (1, shape[0])
            or not bool(values.isfinite().all())
            or (name == "std" and not (values > 0).all())
        ):
            raise ValueError(wanted)
        by = values.reshape(()) if len(values) == 1 else values.reshape(-1, *(1,) * (len(shape) - 1))
        found = found.followed_by(ops.Shift(-by) if name == "mean" else ops.Scale(by, divide=True))
    return found


def _as_written(graph: OnnxGraph) -> Any:
    """The model that `write_onnx` wrote to this file; None if the file is not, or not any more, what it writes.

    What the file says of the model is not trusted: the model that it describes is written again, and must give the very
    graph that is in the file.
    """
    text = next((entry.value for entry in graph.model.metadata_props if entry.key == KEY), None)
    if text is None:
        return None
    try:
        about = parsed_json(text)
        network = about["extractor"] and FrozenNetwork.from_data(about["extractor"], _tensors(graph, "extractor."))
        head = about["head"] and _written_head(about["head"], _tensors(graph, "head."))
        again = model_of(network or None, head or None, about["dtype"])
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, OverflowError):
        return None
    if again.graph.SerializeToString(deterministic=True) != graph.model.graph.SerializeToString(deterministic=True):
        return None
    return network if not head else head if not network else Classifier(network, head).eval()


def _tensors(graph: OnnxGraph, prefix: str) -> dict[str, Tensor]:
    found = {name: value for name, value in graph.constants.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): torch.from_numpy(np.array(value)) for name, value in found.items()}


def _written_head(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    if "steps" in description:
        return FrozenNetwork.from_data(description, tensors)
    return head_from_data(description, tensors)
