"""ONNX files to read, made here or by others, and what onnxruntime computes of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

VARIABLE = "BERNCERT_NETWORKS"
"""The environment variable that names a folder with networks of others."""
Array = npt.NDArray[Any]
KINDS = {"float32": onnx.TensorProto.FLOAT, "float64": onnx.TensorProto.DOUBLE}


def networks_of_others() -> Path:
    """The folder, or the test is skipped."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f"needs networks that others trained: {VARIABLE} names their folder")
    return Path(os.environ[VARIABLE])


def constants(**arrays: Any) -> dict[str, Array]:
    """Floating arrays in float32, whole numbers as they are."""
    found = {name: np.asarray(array) for name, array in arrays.items()}
    return {name: a.astype(np.float32) if a.dtype.kind == "f" else a.astype(np.int64) for name, a in found.items()}


def graph(
    nodes: Sequence[Any], shape: Sequence[Any], arrays: dict[str, Array], *, opset: int = 20, out: str = "y",
    kind: str = "float32",
) -> onnx.ModelProto:  # fmt: skip
    """A model from x, of this shape, to y."""
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", KINDS[kind], shape)],
        [helper.make_tensor_value_info(out, KINDS[kind], None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "network.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def run(model: onnx.ModelProto, x: Array) -> Array:
    """What onnxruntime computes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (name,) = (value.name for value in session.get_inputs())
    return np.asarray(session.run(None, {name: x})[0])
