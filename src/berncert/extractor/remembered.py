"""What has been proven of an extractor, kept with a fingerprint of it: proven again only when it has changed."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import nn

from berncert.extractor.architectures import Extractor
from berncert.extractor.bounds import lipschitz_table
from berncert.extractor.normalised import export
from berncert.extractor.proofs.facts import RULES
from berncert.extractor.proofs.flow import Flow
from berncert.extractor.proofs.gains import Gains, norms_with

PLAIN = (bool, int, float, str, NoneType, tuple)
OWN_FIELDS = frozenset(vars(nn.Module()))  # those of every module: its mode, its parts, and tables of hooks
PARTS = frozenset({"_parameters", "_buffers", "_modules"})
MOST_KEPT = 4  # fingerprints whose answers are kept: one for each dtype, and a little more


def plain_copy(extractor: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The extractor as it is run: in this dtype, with plain weights. What is bounded is what is run."""
    return export(copy.deepcopy(extractor).to(dtype))


def flow_of(
    extractor: nn.Module, plain: nn.Module, shape: Sequence[int], norm: float, unit: float, progress: bool | None
) -> Flow:
    """What is proven of `plain`, the extractor as it is run; from memory if the very same was proven before."""
    mark = fingerprint(plain) if type(extractor) is Extractor else None
    if mark is None:
        return lipschitz_table(plain, shape, norm, unit=unit, progress=progress).flow
    proofs: dict[str, Any] = extractor.proofs  # type: ignore[assignment]
    question = f"shape {tuple(shape)}, norms {norms_with(norm)}, unit {unit!r}"
    if question not in proofs.get(mark, {}):
        flow = lipschitz_table(plain, shape, norm, unit=unit, progress=progress).flow
        while len(proofs) >= MOST_KEPT and mark not in proofs:
            del proofs[next(iter(proofs))]  # the oldest
        proofs.setdefault(mark, {})[question] = _as_json(flow)
    return _from_json(proofs[mark][question])


def remember(extractor: nn.Module) -> dict[str, Any]:
    """What is proven so far of this extractor as it is now: {fingerprint: {question: answer}}, plain JSON."""
    proofs = getattr(extractor, "proofs", {})
    if not proofs:
        return {}
    current = {fingerprint(plain_copy(extractor, dtype)) for dtype in (torch.float64, torch.float32)}
    return {mark: answers for mark, answers in proofs.items() if mark in current}


def fingerprint(module: nn.Module) -> str | None:
    """Equal only for modules that compute the same; None if that cannot be told from their weights and settings.

    It can for layers of torch and of this package with plain settings, without hooks, under our own rules: code is not
    looked at, and code of theirs is known.
    """
    everywhere = nn.modules.module
    if everywhere._global_forward_hooks or everywhere._global_forward_pre_hooks or not _own_rules():
        return None
    digest = hashlib.sha256(f"{metadata.version('berncert')} {torch.__version__.split('+')[0]}".encode())
    for name, part in module.named_modules(remove_duplicate=False):
        facts = _facts(part)
        if facts is None:
            return None
        digest.update(f"{name} {type(part).__module__}.{type(part).__qualname__} {facts}\n".encode())
    values = chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    for name, value in values:
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _facts(part: nn.Module) -> str | None:
    """The settings of one module; None if it has others than plain ones, hooks, or code that is not known."""
    if not all(_known(kind.__module__) for kind in type(part).__mro__[:-1]):
        return None
    facts = {}
    for name, value in vars(part).items():
        if name in OWN_FIELDS:
            if value and name not in PARTS and not isinstance(value, bool):
                return None  # a hook
        elif name == "description" and isinstance(value, dict):
            facts[name] = repr(sorted(value.items()))
        elif isinstance(value, PLAIN) or (isinstance(value, list) and all(isinstance(v, PLAIN) for v in value)):
            facts[name] = repr(value)
        elif name != "proofs":
            return None
    return repr(sorted(facts.items()))


def _own_rules() -> bool:
    """Whether the layers that are known are under the rules that came with the package."""
    return all(_known(rule.__module__) for kind, rule in RULES.items() if _known(kind.__module__))


def _known(module: str) -> bool:
    return module.split(".")[0] in ("torch", "berncert")


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
