"""ONNX models as others compute them: onnxruntime, or the reference of the standard where it has no kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from berncert.extractor.onnx_files.graph import Array


def runner(model: Any, start: str, end: str) -> Callable[[Array], Array]:
    """A function from arrays to what the file makes of them; nothing in the file can be anything but an operator."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            _sorted(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return lambda rows: session.run([end], {start: rows})[0]
    except Exception:  # of many kinds, for operators that have no kernel in this type
        reference = ReferenceEvaluator(_sorted(model))
        return lambda rows: next(iter(reference.run([end], {start: rows})))


def _sorted(model: Any) -> Any:
    """A copy of the model with nodes in an order in which they can be run, as the standard asks for."""
    found = type(model)()
    found.CopyFrom(model)
    waiting = list(model.graph.node)
    known = {"", *(v.name for v in model.graph.input), *(t.name for t in model.graph.initializer)}
    del found.graph.node[:]
    while waiting:
        later = []
        for node in waiting:
            if known.issuperset(node.input):
                found.graph.node.append(node)
                known.update(node.output)
            else:
                later.append(node)
        if len(later) == len(waiting):  # they take what nothing makes: for whoever runs the model to say
            found.graph.node.extend(later)
            break
        waiting = later
    return found
