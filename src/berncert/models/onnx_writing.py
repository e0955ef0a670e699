"""`write_onnx`: a model as an ONNX file of standard operators, checked in onnxruntime."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from berncert.certification.classifier import Classifier
from berncert.extractor import FrozenNetwork, freeze
from berncert.extractor.onnx_files.graph import require_onnx
from berncert.extractor.onnx_files.running import runner
from berncert.extractor.onnx_files.writing import (
    IR_VERSION,
    ONLY_SINGLE,
    OPSET,
    GraphWriter,
    write_network,
    write_polynomial,
)
from berncert.foundation.folders import write_whole
from berncert.polynomial import PolynomialHead

KEY = "berncert"
"""The entry of the file's metadata from which the model is built again."""
IMAGES, FEATURES, LOGITS, OUTPUT = "images", "features", "logits", "output"
MOST_BYTES = 2**31 - 2**20
"""What protobuf can hold."""
TOLERANCES = {"float32": 1e-4, "float64": 1e-10}
REFERENCE = 1e-5
"""The tolerance beside the reference of the standard, which is slow, and whose error function is one of float32."""


def write_onnx(
    model: Classifier | FrozenNetwork | PolynomialHead,
    path: str | PathLike[str],
    *,
    dtype: str | torch.dtype = "float32",
    input_shape: tuple[int, ...] | None = None,
) -> None:
    """Write a model as an ONNX file of standard operators, for any number of images at once.

    The network is written in `dtype`, as in `certify`, and a smoothed head always in float64, in which it is certified:
    it takes `images` and gives `logits`, the tensor `features` is between them. float32 runs everywhere; in float64
    onnxruntime's CPU has no convolutions, average pools of large maps, or GELU, and a warning says so. The file is run
    once, and must agree with the model up to rounding; a certificate is about the model, so about the file in real
    arithmetic. `read_onnx` reads the same model again.

    A head that is not smoothed is written if it can be frozen. `input_shape` is the shape of one image, for a network
    that does not know it.

    Example:
        >>> import tempfile, torch, berncert
        >>> model = berncert.load("digits")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     berncert.write_onnx(model, f"{folder}/digits.onnx")
        ...     again = berncert.read_onnx(f"{folder}/digits.onnx")
        >>> images = berncert.data.load("digits", limit=5).images
        >>> bool((again(images) - model(images)).abs().max() < 1e-3)
        True
    """
    kind = str(dtype).removeprefix("torch.")
    if kind not in TOLERANCES:
        raise ValueError(f"expected dtype float32 or float64, got {kind}")
    if not isinstance(path, str | PathLike) or Path(path).is_dir():
        got = f"the folder {path}" if isinstance(path, str | PathLike) else type(path).__name__
        raise ValueError(f"expected the path of a file to write, got {got}; e.g. net.onnx")
    network, head = _parts(model, input_shape)
    file = model_of(network, head, kind)
    lacking = sorted({node.op_type for node in file.graph.node} & set(ONLY_SINGLE)) if kind == "float64" else []
    if lacking:
        warnings.warn(
            f"onnxruntime's CPU has no float64 kernel for {', '.join(lacking)}: it cannot run {path}; dtype='float32' "
            "can be run everywhere",
            stacklevel=2,
        )
    _check(file, network, head, kind, by_reference=bool(lacking))
    content = file.SerializeToString(deterministic=True)
    if len(content) > MOST_BYTES:
        raise ValueError(f"expected a model of at most 2 GiB, which an ONNX file can hold, got {len(content)} bytes")
    write_whole(Path(path), content)


Written = FrozenNetwork | PolynomialHead


def _parts(model: Any, input_shape: tuple[int, ...] | None) -> tuple[FrozenNetwork | None, Written | None]:
    """The network, and the head as something that can be written."""
    if isinstance(model, FrozenNetwork):
        return model, None
    if isinstance(model, PolynomialHead):
        return None, model.in_float64()
    if not isinstance(model, Classifier):
        raise TypeError(
            f"expected a Classifier, a FrozenNetwork or a smoothed head, got {type(model).__name__}; freeze a network "
            "first: berncert.freeze(network, input_shape)"
        )
    network = model.freeze(input_shape).extractor
    assert isinstance(network, FrozenNetwork)
    head: nn.Module = model.head
    if isinstance(head, PolynomialHead):
        return network, head.in_float64()
    return network, freeze(head, (network.dim,))


def model_of(network: FrozenNetwork | None, head: Written | None, dtype: str) -> Any:
    """The ONNX model of a network, a head on it, or a head alone; always the same for the same numbers."""
    onnx = require_onnx()
    w = GraphWriter(dtype if network is not None else "float64")
    first = _tensor(FEATURES if network is None else IMAGES, w, _input_shape(network, head))
    result = FEATURES
    if network is not None:
        w("Identity", write_network(w, network, IMAGES, "extractor."))
        result = w.name_last(OUTPUT if head is None else FEATURES)
    if isinstance(head, FrozenNetwork):
        w("Identity", write_network(w, head, result, "head."))
        result = w.name_last(LOGITS)
    elif head is not None:
        result = _write_head(w, head, result)  # in float64
    last = head.output_shape if isinstance(head, FrozenNetwork) else (head.classes,) if head else network.output_shape  # type: ignore[union-attr]
    graph = onnx.helper.make_graph(w.nodes, KEY, [first], [_tensor(result, w, last)], list(w.constants.values()))
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name=KEY)
    onnx.helper.set_model_props(model, {KEY: json.dumps(_description(network, head, dtype))})
    onnx.checker.check_model(model)
    return model


def _tensor(name: str, w: GraphWriter, shape: Sequence[int]) -> Any:
    """An input or output of the file, of any number of rows, in the type that is being written."""
    return w.onnx.helper.make_tensor_value_info(name, w.onnx.helper.np_dtype_to_tensor_dtype(w.dtype), ["N", *shape])


def _input_shape(network: FrozenNetwork | None, head: Written | None) -> tuple[int, ...]:
    if network is not None:
        return network.input_shape
    assert isinstance(head, PolynomialHead)
    return (head.dim,)


def _write_head(w: GraphWriter, head: PolynomialHead, features: str) -> str:
    """Logits in float64: the affine part, and each term."""
    if w.dtype != np.float64:
        features, w.dtype = w("Cast", features, to=w.onnx.TensorProto.DOUBLE), np.dtype(np.float64)
    names = {key: w.constant(tensor.detach().numpy(), f"head.{key}") for key, tensor in head.state_dict().items()}
    parts = [w("Gemm", features, names["weight"], names["bias"], transB=1)] if head.affine is not None else []
    keys = [key for key in names if key not in ("weight", "bias")]
    for key, (axes, coefficients) in zip(keys, head.terms, strict=True):
        parts.append(write_polynomial(w, names[key], list(coefficients.shape), features, axes))
    w("Sum", *parts)
    return w.name_last(LOGITS)


def _description(network: FrozenNetwork | None, head: Written | None, dtype: str) -> Mapping[str, Any]:
    """What the model is built again from, with the constants of the file: plain JSON."""
    written = head.as_data()[0] if isinstance(head, FrozenNetwork) else head and dict(head.description)
    return {"format": 1, "dtype": dtype, "extractor": network and network.as_data()[0], "head": written}


def _check(file: Any, network: FrozenNetwork | None, head: Written | None, dtype: str, *, by_reference: bool) -> None:
    """Raise a RuntimeError if the file, when it is run, computes something else than the model."""
    noise = torch.Generator().manual_seed(0)
    shape = _input_shape(network, head)
    inputs = torch.rand(1 if by_reference else 3, *shape, generator=noise, dtype=torch.float64).to(
        getattr(torch, dtype) if network else None
    )
    with torch.no_grad():
        features = inputs if network is None else network(inputs)
        wide = features.double() if isinstance(head, PolynomialHead) else features
        expected = (wide if head is None else head(wide)).double().numpy()
    graph = file.graph
    found = runner(file, graph.input[0].name, graph.output[0].name)(inputs.numpy())
    gap = float(np.abs(found - expected).max() / (np.abs(expected).max() + 1e-30))
    if found.shape != expected.shape or not gap <= (REFERENCE if by_reference else TOLERANCES[dtype]):
        raise RuntimeError(
            f"expected the file to compute what the model computes, got a difference of {gap:.2g} of its output, of "
            f"shape {found.shape} and {expected.shape}; please report this model"
        )
