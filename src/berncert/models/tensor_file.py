"""One safetensors file with tensors and a description in plain JSON, and a checksum of both.

Nothing in such a file can run code. Any safetensors reader shows its tensors and its header; the checksum detects a
file that was cut off or changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as deserialise
from safetensors.torch import save as serialise
from torch import Tensor

from berncert.foundation.folders import write_whole
from berncert.foundation.safe_reading import parsed_json

UNREADABLE = (SafetensorError, AssertionError, KeyError, RuntimeError, ValueError)
ADVICE = (
    "get it again, or, if it is a PyTorch file, which may run code, load it in Python and write it with "
    "berncert.save(model, path, input_shape=...)"
)


def write_tensors(
    path: str | PathLike[str], tensors: Mapping[str, Tensor], kind: str, description: Mapping[str, Any]
) -> None:
    """Write tensors and a description as one file of this kind, e.g. "berncert checkpoint 2"."""
    write_whole(Path(path), serialised(tensors, kind, description))


def serialised(tensors: Mapping[str, Tensor], kind: str, description: Mapping[str, Any]) -> bytes:
    """The content of such a file."""
    values = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    checksum = _checksum(values, kind, json.dumps(description))
    header = {kind: json.dumps({"sha256": checksum, "description": description})}
    return serialise(values, metadata=header)


def read_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description of a file that `write_tensors` wrote; see `parse_tensors`."""
    return parse_tensors(path.read_bytes(), path, kind)


def parse_tensors(content: bytes, path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description in the content of a file.

    A file that is cut off, changed, or of another kind is a ValueError that names its path.
    """
    try:
        # safetensors checks the header, which is its length and then JSON; the clones are aligned in memory
        tensors = {name: tensor.clone() for name, tensor in deserialise(content).items()}
        header = parsed_json(content[8 : 8 + int.from_bytes(content[:8], "little")].decode()).get("__metadata__") or {}
    except UNREADABLE as error:
        raise ValueError(
            f"expected a whole safetensors file, got {path}, which is cut off or something else ({error}); {ADVICE}"
        ) from error
    if kind not in header:
        formats = ", ".join(header) or "a safetensors file of something else"
        older = any(name.startswith("berncert checkpoint") for name in header)
        advice = "; it is of another version of berncert: train or save it again" if older else ""
        raise ValueError(f"expected a {kind}, got {path}: {formats}{advice}")
    try:
        entry = parsed_json(header[kind])
        unchanged = entry["sha256"] == _checksum(tensors, kind, json.dumps(entry["description"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        unchanged = False
    if not unchanged:
        raise ValueError(f"expected the content that was saved, got {path}, which was changed since; get it again")
    return tensors, entry["description"]


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, under the rest of their names."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _checksum(tensors: Mapping[str, Tensor], kind: str, text: str) -> str:
    digest = hashlib.sha256(f"{kind}\n{text}\n".encode())
    for key in sorted(tensors):
        value = tensors[key]
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
