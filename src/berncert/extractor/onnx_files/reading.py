"""From an ONNX file to frozen networks, which are compared with what onnxruntime makes of the file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from berncert.extractor import operations as ops
from berncert.extractor.arithmetic import on_cpu, plain_arithmetic
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.frozen import FrozenNetwork, Step
from berncert.extractor.onnx_files.graph import Array, OnnxGraph, require_onnx
from berncert.extractor.onnx_files.operators import OPERATORS
from berncert.extractor.onnx_files.running import runner
from berncert.extractor.onnx_files.translation import GraphTranslator

PROBES = (5, 3)
"""The sizes of the two batches that a file for any number of images is followed with."""
IMAGES = 4
TOLERANCES = {"float64": 1e-7, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.3}
"""How far onnxruntime may be from the frozen network, relative to the greatest output, by the type of the file."""


class FileInput:
    """How a file takes images: their shape in the file, whether it has a batch axis, and of which size."""

    def __init__(self, graph: OnnxGraph, image_shape: Sequence[int] | None) -> None:
        dims, wanted = graph.dims, None if image_shape is None else tuple(image_shape)
        self.batched = len(dims) > 1 and dims[0] in (None, 1)
        if wanted is not None and dims[0] is not None and len(dims) > 1 and _fits(dims[1:], wanted):
            self.batched = True  # exported for so many images
        self.fixed = dims[0] if self.batched else 1
        """The number of images that the file is for; None is any."""
        own = dims[1:] if self.batched else dims
        if None in own:
            if wanted is None or not _fits(own, wanted):
                raise ValueError(
                    f"expected input_shape, one image's shape, as {graph.path} leaves it open ({dims}), got {wanted}"
                )
            own = wanted
        self.shape: Shape = tuple(n for n in own if n is not None)
        self.image_shape: Shape = self.shape if wanted is None else wanted
        self.places = _places(self.image_shape, self.shape, graph)
        """Which pixel of an image stands where in the file's input; None if they are the same."""


def _fits(dims: Sequence[int | None], shape: Shape) -> bool:
    return len(dims) == len(shape) and all(n in (None, m) for n, m in zip(dims, shape, strict=True))


def _places(image: Shape, own: Shape, graph: OnnxGraph) -> torch.Tensor | None:
    """How images (channels, height, width) become what the file takes: as they are, flat, or with channels last."""
    if image == own:
        return None
    pixels = torch.arange(math.prod(image)).reshape(image)
    if len(image) == 3 and own == (*image[1:], image[0]):
        return pixels.permute(1, 2, 0).contiguous()
    ones = [tuple(n for n in shape if n != 1) for shape in (image, own)]
    if math.prod(image) == math.prod(own) and (ones[0] == ones[1] or len(ones[1]) == 1):
        return pixels.reshape(own)
    raise ValueError(
        f"expected images that {graph.path} takes, of shape {own} (or the same flat, or with channels first), got "
        f"shape {image}"
    )


class Followed(NamedTuple):
    """A part of a graph as a network, and whether the file has the batch as the first axis of what it gives."""

    network: FrozenNetwork
    batched: bool


def follow(graph: OnnxGraph, start: str, end: str, shape: Shape, *, fixed: int | None, batched: bool) -> Followed:
    """The part of the graph from one tensor to another, for values of this shape; see `FileInput` for the rest."""

    def followed(batch: int) -> Followed:
        translator = GraphTranslator(graph, OPERATORS, start, shape, batch=batch, batched=batched)
        signal = translator.translate(end)
        about = {"file": graph.path.name, "sha256": graph.sha256}
        return Followed(FrozenNetwork(shape, translator.leading_to(signal.value), about), signal.batched)

    with torch.inference_mode(False), torch.no_grad(), on_cpu():
        first, *others = map(followed, PROBES if fixed is None else (fixed,))
    for other in others:
        if first.network.digest() != other.network.digest():
            raise ValueError(f"expected a network that does the same to any number of images, got {graph.path}")
    return first


def network_of(graph: OnnxGraph, given: FileInput, end: str) -> Followed:
    """The network from the image, in the shape that the user has it, to this tensor of the graph."""
    found = follow(graph, graph.input, end, given.shape, fixed=given.fixed, batched=given.batched)
    if given.places is None:
        return found
    first = torch.equal(given.places.flatten(), torch.arange(given.places.numel()))
    operation = ops.Reshape(given.shape) if first else ops.Gather(given.places)
    layout = FrozenNetwork(given.image_shape, [Step(operation, (0,), "input", "layout")], found.network.about)
    return found._replace(network=layout.followed_by(found.network))


def compare(graph: OnnxGraph, given: FileInput, network: FrozenNetwork, end: str) -> None:
    """Raise a ValueError if onnxruntime computes something else of the file than the frozen network."""
    noise = np.random.default_rng(0)
    images = np.concatenate([noise.random((2, *given.image_shape)), noise.standard_normal((2, *given.image_shape))])
    with torch.no_grad(), plain_arithmetic():
        expected = network(torch.from_numpy(images)).numpy()
    own = images if given.places is None else images.reshape(IMAGES, -1)[:, given.places.numpy()]
    found, kind = run_file(graph, own, given, end)
    scale = np.abs(expected).max() + 1e-30
    if found.size != expected.size or not np.isfinite(expected).all():
        raise ValueError(f"expected {graph.path} to give shape {expected.shape} of finite numbers, got {found.shape}")
    gap = float(np.abs(found.reshape(expected.shape) - expected).max() / scale)
    if not gap <= TOLERANCES[kind]:
        raise ValueError(
            f"expected the frozen network to compute what onnxruntime makes of {graph.path}, got a difference of "
            f"{gap:.2g} of its output; please report the file"
        )


def run_file(graph: OnnxGraph, images: Array, given: FileInput, end: str) -> tuple[Array, str]:
    """What onnxruntime, or where it has no kernel the reference of the standard, computes of these images."""
    onnx = require_onnx()
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    kind = model.graph.input[[value.name for value in model.graph.input].index(graph.input)].type.tensor_type.elem_type
    if end not in {value.name for value in model.graph.output}:
        model.graph.output.append(onnx.helper.make_tensor_value_info(end, kind, None))
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
    run = runner(model, graph.input, end)
    rows = images.astype(dtype)
    if given.fixed is None:
        found = run(rows)
    elif not given.batched:
        found = np.stack([run(row) for row in rows])
    else:
        found = np.concatenate(
            [np.reshape(run(np.repeat(row[None], given.fixed, 0)), (given.fixed, -1))[:1] for row in rows]
        )
    return found.astype(np.float64), dtype.name
