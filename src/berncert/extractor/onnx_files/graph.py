"""An ONNX file as a graph of standard operators: read without running anything, each claim of the file checked."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from berncert.extractor.frozen import MOST_STEPS
from berncert.extractor.operations.base import MOST_NUMBERS
from berncert.foundation.safe_reading import check_unpacked

if TYPE_CHECKING:
    import onnx

Array = npt.NDArray[Any]
OPSETS = (6, 26)
"""The versions of the standard operators that can be read: below, shapes and normalisations meant something else."""
STANDARD = ("", "ai.onnx")
INSTALL = "install them with pip install 'berncert[onnx]'"


def require_onnx() -> Any:
    """The package onnx, imported when it is needed; an error that says how to get it."""
    try:
        import onnx
        import onnx.reference
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise ImportError(f"expected the packages onnx and onnxruntime, got {error}; {INSTALL}") from error
    return onnx


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """The graph of a file: nodes by what they make, constants, and one input."""

    path: Path
    model: onnx.ModelProto
    """With all of its data, wherever that was."""
    sha256: str
    """Of the file, and of the files that its data are in."""
    opset: int
    nodes: tuple[onnx.NodeProto, ...]
    made_by: Mapping[str, int]
    """Tensor -> the number of the node that makes it."""
    uses: Mapping[str, int]
    """Tensor -> how many nodes, and outputs of the graph, use it."""
    constants: Mapping[str, Array]
    input: str
    dims: tuple[int | None, ...]
    """Of the input, as the file has it, None where it is left open."""
    output: str

    def label(self, number: int) -> str:
        """The node as messages name it."""
        node = self.nodes[number]
        return f"node {node.name or f'that makes {node.output[0]!r}'} ({node.op_type})"

    def tensor(self, name: str) -> str:
        """The tensor with this name, or the first that the node with this name makes; an error that lists both."""
        if name in self.made_by:
            return name
        for node in self.nodes:
            if node.name == name:
                return str(node.output[0])
        ends = [f"{node.output[0]} ({node.op_type})" for node in self.nodes if node.op_type != "Constant"]
        shown = ", ".join(ends if len(ends) <= 30 else [*ends[:5], "...", *ends[-20:]])
        raise ValueError(f"expected the name of a node or tensor of {self.path}, got {name!r}; it makes {shown}")


def read_graph(path: str | PathLike[str]) -> OnnxGraph:
    """The graph of an ONNX file, whose data may be in other files of its folder; a ValueError for what is not one."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"expected the path of an ONNX file, got {type(path).__name__}")
    onnx, place = require_onnx(), Path(path)
    if not place.is_file():
        what = "which is a folder" if place.is_dir() else "which is not there"
        raise FileNotFoundError(f"expected an ONNX file, got {place}, {what}")
    size = place.stat().st_size
    check_unpacked(place, size)
    content = place.read_bytes()
    digest = hashlib.sha256(content)
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # whatever protobuf raises in its versions
        raise ValueError(f"expected an ONNX file, got {place}, which is cut off or something else ({error})") from error
    graph = model.graph
    if not graph.node and not graph.output:
        raise ValueError(f"expected an ONNX file with a graph, got {place}, which has none; get it again")
    if len(graph.node) > MOST_STEPS or len(graph.initializer) > MOST_STEPS:
        raise ValueError(f"expected at most {MOST_STEPS} nodes and constants in {place}, got more")
    opset = _opset(model, place)
    if graph.sparse_initializer:
        raise ValueError(f"expected dense constants in {place}, got sparse ones; export the network without them")
    constants = _constants(graph, place.resolve().parent, digest)
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1 or not graph.output:
        names = ", ".join(value.name for value in inputs) or "none"
        raise ValueError(f"expected a network of one image with an output, got {place} with the inputs {names}")
    nodes = tuple(graph.node)
    made_by = _made_by(nodes, {*constants, inputs[0].name}, place)
    uses = Counter([name for node in nodes for name in node.input] + [value.name for value in graph.output])
    return OnnxGraph(
        place, model, digest.hexdigest(), opset, nodes, made_by, uses, constants, inputs[0].name,
        _dims(inputs[0], place), graph.output[0].name,
    )  # fmt: skip


def _opset(model: onnx.ModelProto, path: Path) -> int:
    versions = {entry.domain: int(entry.version) for entry in model.opset_import}
    found = next((versions[name] for name in STANDARD if name in versions), 1)
    if not OPSETS[0] <= found <= OPSETS[1]:
        raise ValueError(
            f"expected {path} with opset {OPSETS[0]} to {OPSETS[1]}, got {found}; convert it with "
            "onnx.version_converter.convert_version(model, 20), or export the network again"
        )
    return found


def _made_by(nodes: tuple[onnx.NodeProto, ...], given: set[str], path: Path) -> dict[str, int]:
    made_by: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in made_by or name in given:
                raise ValueError(f"expected each tensor of {path} to be made once, got {name!r} twice")
            made_by[name] = number
    return made_by


def _dims(value: onnx.ValueInfoProto, path: Path) -> tuple[int | None, ...]:
    kind = value.type.tensor_type
    numbers = (1, 10, 11, 16)  # FLOAT, FLOAT16, DOUBLE, BFLOAT16
    if not value.type.HasField("tensor_type") or kind.elem_type not in numbers or not kind.HasField("shape"):
        raise ValueError(f"expected {path} to take a floating tensor with a shape, got {value.name!r} of another kind")
    dims = tuple(int(d.dim_value) if d.HasField("dim_value") and d.dim_value > 0 else None for d in kind.shape.dim)
    if not dims:
        raise ValueError(f"expected {path} to take images, got {value.name!r} without axes")
    return dims


def _constants(graph: onnx.GraphProto, folder: Path, digest: Any) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for tensor in graph.initializer:
        if tensor.name in found:
            raise ValueError(f"expected each constant once, got {tensor.name!r} twice")
        if tensor.data_location == tensor.EXTERNAL:
            _embed(tensor, folder, digest)
        found[tensor.name] = array_of(tensor)
    return found


def array_of(tensor: onnx.TensorProto) -> Array:
    """The numbers of a constant; a ValueError that names it if its size or its data make no sense."""
    onnx = require_onnx()
    entries = math.prod(tensor.dims)
    if min(tensor.dims, default=1) < 0 or entries > MOST_NUMBERS * 8:
        raise ValueError(f"expected the constant {tensor.name!r} of a sensible size, got shape {tuple(tensor.dims)}")
    if tensor.data_location == tensor.EXTERNAL:
        raise ValueError(f"expected the constant {tensor.name!r} with its data, got a name of another file in a node")
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except Exception as error:  # types that are unknown, data that do not fit the shape
        raise ValueError(f"expected the constant {tensor.name!r} with its data, got something else: {error}") from error


def _embed(tensor: onnx.TensorProto, folder: Path, digest: Any) -> None:
    """Put data that are in another file of the folder into the tensor; paths that leave the folder are refused."""
    onnx = require_onnx()
    entries = {entry.key: entry.value for entry in tensor.external_data}
    name = entries.get("location", "")
    place = (folder / name).resolve()  # links are followed
    if not name or not place.is_relative_to(folder) or not place.is_file():
        got = "is not there" if place.is_relative_to(folder) else "leaves the folder"
        raise ValueError(
            f"expected the data of {tensor.name!r} in a file beside the ONNX file, got {name!r}, which {got}; put all "
            "files of the network in one folder"
        )
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", place.stat().st_size - offset))
        wanted = math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected where the data of {tensor.name!r} are in {name}, got {error}") from error
    if length != wanted or offset < 0 or not 0 <= offset + length <= place.stat().st_size:
        raise ValueError(f"expected {wanted} bytes of {tensor.name!r} in {name}, got {length} from byte {offset}")
    check_unpacked(place, length)
    with place.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    digest.update(data)
    tensor.raw_data = data
    del tensor.external_data[:]
    tensor.data_location = tensor.DEFAULT
