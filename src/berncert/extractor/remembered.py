"""What has been proven of an extractor, kept with a fingerprint of it: proven again only when it has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import nn

from berncert.extractor.architectures import Extractor
from berncert.extractor.bounds import lipschitz_table
from berncert.extractor.proofs.flow import Flow
from berncert.extractor.proofs.gains import Gains, norms_with

PLAIN = (bool, int, float, str, NoneType, tuple)
HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def flow_of(
    extractor: nn.Module, plain: nn.Module, shape: Sequence[int], norm: float, unit: float, progress: bool | None
) -> Flow:
    """What is proven of `plain`, the extractor as it is run; from memory if this very extractor was proven before."""
    mark = fingerprint(extractor) if type(extractor) is Extractor else None
    if mark is None:
        return lipschitz_table(plain, shape, norm, unit=unit, progress=progress).flow
    assert isinstance(extractor, Extractor)
    question = f"shape {tuple(shape)}, norms {norms_with(norm)}, unit {unit!r}"
    if extractor.proofs.get("fingerprint") != mark:
        extractor.proofs = {"fingerprint": mark, "answers": {}}
    answers = extractor.proofs["answers"]
    if question not in answers:
        flow = lipschitz_table(plain, shape, norm, unit=unit, progress=progress).flow
        answers[question] = _as_json(flow)
    return _from_json(answers[question])


def remember(extractor: nn.Module) -> dict[str, Any]:
    """What is proven of this extractor so far, as plain JSON; nothing if it has changed since."""
    proofs = getattr(extractor, "proofs", {})
    return proofs if proofs and proofs["fingerprint"] == fingerprint(extractor) else {}


def fingerprint(module: nn.Module) -> str | None:
    """Equal for modules that compute the same; None if that cannot be told from their weights and plain settings."""
    digest = hashlib.sha256(metadata.version("berncert").encode())
    for name, part in module.named_modules():
        facts = _facts(part)
        if facts is None:
            return None
        digest.update(f"{name} {type(part).__module__}.{type(part).__qualname__} {facts}\n".encode())
    for name, value in module.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _facts(part: nn.Module) -> str | None:
    """The settings of one module; None if it has others than plain ones, or hooks."""
    facts = {}
    for name, value in vars(part).items():
        if name in ("_parameters", "_buffers", "_modules", "proofs", "training"):
            continue
        if name.startswith("_") and isinstance(value, (Mapping, set)):
            if value and (name in HOOKS or "hook" in name):
                return None
        elif isinstance(value, PLAIN):
            facts[name] = value
        elif name == "description":
            facts[name] = tuple(sorted(map(repr, value.items())))
        elif isinstance(value, list) and all(isinstance(v, PLAIN) for v in value):
            facts[name] = tuple(value)
        else:
            return None
    return repr(sorted(facts.items()))


def _as_json(flow: Flow) -> dict[str, Any]:
    """Numbers as text: JSON has no infinity."""
    facts = {"norms": flow.gains.norms, "factors": flow.gains.factors.ravel(), "size": flow.size, "error": flow.error}
    numbers = {name: [repr(float(value)) for value in values] for name, values in facts.items()}
    return {"shape": list(flow.shape), **numbers, "limits": [repr(float(value)) for value in flow.limits]}


def _from_json(told: Mapping[str, Any]) -> Flow:
    facts = {name: np.array(told[name], dtype=float) for name in ("norms", "factors", "size", "error", "limits")}
    norms, (low, high) = tuple(facts["norms"].tolist()), facts["limits"].tolist()
    gains = Gains(norms, facts["factors"].reshape(len(norms), -1))
    return Flow(tuple(told["shape"]), gains, facts["size"], facts["error"], (low, high))
