"""Proof files, read and written again, for tests that change them."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from berncert_check.checking import check_file
from berncert_check.proof_file import UnusableError

SIZES = {"f8": 8, "f4": 4, "u1": 1}


def blocks_of(path: Path) -> list[tuple[str, dict[str, Any], dict[str, np.ndarray]]]:
    """The blocks of a file: kind, fields, arrays; as docs/proof-format.md describes them."""
    raw, at, found = path.read_bytes(), 0, []
    while at < len(raw):
        kind, length = raw[at : at + 4].decode().strip(), struct.unpack("<Q", raw[at + 4 : at + 12])[0]
        content = raw[at + 12 : at + 12 + length]
        at += 12 + length + 32
        text = struct.unpack("<I", content[:4])[0]
        fields, start, arrays = json.loads(content[4 : 4 + text]), 4 + text, {}
        for name, code, count in fields.pop("arrays"):
            arrays[name] = np.frombuffer(content, f"<{code}", count, start).copy()
            start += SIZES[code] * count
        found.append((kind, fields, arrays))
    return found


def write(path: Path, blocks: list[tuple[str, dict[str, Any], dict[str, np.ndarray]]]) -> None:
    """The file of these blocks, with checksums that are right."""
    digest, parts = bytes(32), []
    for kind, fields, arrays in blocks:
        listed = [[name, values.dtype.str[1:], values.size] for name, values in arrays.items()]
        text = json.dumps(fields | {"arrays": listed}).encode()
        content = struct.pack("<I", len(text)) + text + b"".join(values.tobytes() for values in arrays.values())
        head = kind.encode().ljust(4) + struct.pack("<Q", len(content))
        digest = hashlib.sha256(digest + head + content).digest()
        parts.append(head + content + digest)
    path.write_bytes(b"".join(parts))


def verdict(path: Path) -> str:
    """That of a file with one row; UNUSABLE where the checker refuses the file."""
    try:
        (row,) = check_file(path)
    except UnusableError:
        return "UNUSABLE"
    return row.verdict
