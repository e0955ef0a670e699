"""What has been proven of frozen networks on this machine, kept by their content: proven again only when it differs.

Nothing that comes with a model is trusted. The cache is a folder of the user's own (`BERNCERT_CACHE`, or where the
system keeps caches), and an entry is found only under the checksum of the very network, question and code it is about.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import torch

from berncert.extractor.bounds.norm_gains import NormGains, norms_with
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.extractor.frozen import FrozenNetwork
from berncert.extractor.lipschitz import lipschitz_table

VARIABLE = "BERNCERT_CACHE"
_MEMORY: dict[str, ValueBound] = {}
MOST_REMEMBERED = 64
PAIRS = ("size", "error", "entry_size", "entry_error", "peak")
"""What a `ValueBound` says of sizes and errors: pairs of numbers."""


def proven(network: FrozenNetwork, norm: float, unit: float, progress: bool | None = None) -> ValueBound:
    """What is proven of the features of this network, for this norm of the pixels and this rounding unit."""
    if not all(step.operation.in_files for step in network.steps):  # what a user's layer computes has no checksum
        return lipschitz_table(network, network.input_shape, norm, unit=unit, progress=progress).value
    question = f"{network.digest()} {norms_with(norm)} {unit!r} {_code_checksum()}"
    key = hashlib.sha256(question.encode()).hexdigest()
    found = _MEMORY.get(key) or _read(key, network)
    if found is None:
        found = lipschitz_table(network, network.input_shape, norm, unit=unit, progress=progress).value
        _write(key, found)
    while len(_MEMORY) >= MOST_REMEMBERED:
        del _MEMORY[next(iter(_MEMORY))]
    _MEMORY[key] = found
    return found


def folder() -> Path:
    """The folder in which proofs are kept."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_path("berncert")) / "proofs"


@cache
def _code_checksum() -> str:
    """A checksum of the code that proves and of torch's version: after a change of either all is proven again."""
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(key: str, network: FrozenNetwork) -> ValueBound | None:
    try:
        entry = json.loads((folder() / f"{key}.json").read_text("utf-8"))
        found = _from_json(entry) if entry.get("key") == key else None
        return found if found is not None and _is_plausible(found, network) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # nothing there, or nothing that can be read: it is proven again


def _write(key: str, value: ValueBound) -> None:
    """Whole or not at all; a folder that cannot be written to costs the time of the next proof, nothing else."""
    with suppress(OSError):
        folder().mkdir(parents=True, exist_ok=True)
        partial = folder() / f".{key}.{os.getpid()}.partial"
        partial.write_text(json.dumps({"key": key, **_as_json(value)}), "utf-8")
        partial.replace(folder() / f"{key}.json")


def _is_plausible(found: ValueBound, network: FrozenNetwork) -> bool:
    """Whether these numbers can be bounds of a value of that shape."""
    numbers = (found.gains.factors, *(getattr(found, name) for name in PAIRS))
    whole = all(bool((part >= 0).all()) for part in numbers)  # NaN is not
    return found.shape == network.output_shape and whole and found.limits[0] <= found.limits[1]


def _as_json(value: ValueBound) -> dict[str, Any]:
    """Numbers as text: JSON has no infinity."""
    facts = {
        "norms": value.gains.norms, "factors": value.gains.factors.ravel(), "limits": value.limits,
        **{name: getattr(value, name) for name in PAIRS},
    }  # fmt: skip
    numbers = {name: [repr(float(number)) for number in numbers] for name, numbers in facts.items()}
    return {"shape": list(value.shape), **numbers}


def _from_json(entry: Mapping[str, Any]) -> ValueBound:
    names = ("norms", "factors", "limits", *PAIRS)
    facts = {name: np.array([float(number) for number in entry[name]]) for name in names}
    norms, (low, high) = tuple(facts["norms"].tolist()), facts["limits"].tolist()
    gains = NormGains(norms, facts["factors"].reshape(len(norms), len(norms)))
    return ValueBound(tuple(entry["shape"]), gains, limits=(low, high), **{name: facts[name] for name in PAIRS})
