"""Each operation as it is written, run by onnxruntime or the reference of the standard, and read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_networks as files
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from operation_examples import EXAMPLES, Example, names, network_of

import berncert
from berncert.extractor.onnx_files.writing import ONLY_SINGLE, RULES
from berncert.extractor.operations import OPERATIONS
from berncert.models.onnx_writing import model_of

UNREADABLE = {"hardswish", "gelu", "gelu_tanh", "softsign", "mish", "logsigmoid", "selu", "Celu", "Elu", "Softplus"}
"""Written as other operators, whose products and exponentials have no rule; the metadata says what they are."""


def test_every_operation_that_a_file_can_hold_has_a_rule() -> None:
    assert {kind.__name__ for kind in RULES} == set(OPERATIONS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("example", EXAMPLES, ids=names(EXAMPLES))
def test_a_written_operation_computes_what_it_computes(example: Example, dtype: str) -> None:
    network = network_of(example)
    if not network.output_shape:
        pytest.skip("one number for each image has no axis of its own")
    model = model_of(network, None, dtype)
    x = np.random.default_rng(0).standard_normal((3, *network.input_shape)).astype(dtype)
    operators = {node.op_type for node in model.graph.node}
    if dtype == "float64" and operators & set(ONLY_SINGLE):
        found = next(iter(ReferenceEvaluator(model).run(None, {"images": x})))
    else:
        found = files.run(model, x)
    tolerance = 3e-5 if dtype == "float32" else 1e-7 if "Erf" in operators else 1e-12  # the reference's own
    np.testing.assert_allclose(found, network(torch.from_numpy(x)).numpy(), rtol=tolerance, atol=tolerance)
    assert found.dtype == dtype


@pytest.mark.parametrize("example", EXAMPLES, ids=names(EXAMPLES))
def test_a_written_operation_is_read_again_bit_by_bit(example: Example, tmp_path: Path) -> None:
    network = network_of(example)
    if not network.output_shape:
        pytest.skip("one number for each image has no axis of its own")
    again = berncert.read_onnx(files.saved(model_of(network, None, "float64"), tmp_path))
    assert again.digest() == network.digest()


@pytest.mark.parametrize("example", EXAMPLES, ids=names(EXAMPLES))
def test_without_the_description_the_operators_themselves_are_read(example: Example, tmp_path: Path) -> None:
    network = network_of(example)
    operation = example.operation
    kind = getattr(operation, "function", type(operation).__name__)
    unknown = kind in UNREADABLE or (kind == "PotentialStep" and operation.tensors()["weight"].ndim == 4)
    unknown |= kind in ("Distance", "AdaptiveMaximum") or not network.output_shape
    model = model_of(network, None, "float64")
    del model.metadata_props[:]
    path = files.saved(model, tmp_path)
    if unknown:
        if network.output_shape:
            with pytest.raises(ValueError, match=r"no rule for|two values|one value and constants"):
                berncert.read_onnx(path)
        return
    x = torch.randn(3, *network.input_shape, dtype=torch.float64)
    torch.testing.assert_close(berncert.read_onnx(path)(x), network(x), rtol=1e-12, atol=1e-12)
