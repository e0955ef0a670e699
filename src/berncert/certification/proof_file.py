"""The bytes of a proof file: blocks in a row, as docs/proof-format.md describes them; begun, resumed, ended."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np

FORMAT, VERSION = "berncert-proof", 1
LARGEST_BLOCK = 2**27
"""Bytes; a checker reads no larger ones."""
HEADER, DIGEST = 12, 32


class Block(NamedTuple):
    """What a block is, and its content; its checksum depends on what is before it in a file."""

    kind: str
    content: bytes


def block(kind: str, fields: dict[str, Any], **arrays: np.ndarray) -> Block:
    """A block with these fields and arrays."""
    listed = [[name, values.dtype.str[1:], values.size] for name, values in arrays.items()]
    text = json.dumps(fields | {"arrays": listed}).encode()
    data = b"".join(np.ascontiguousarray(v, dtype=v.dtype.newbyteorder("<")).tobytes() for v in arrays.values())
    content = struct.pack("<I", len(text)) + text + data
    if len(content) > LARGEST_BLOCK:
        raise ValueError(
            f"expected blocks of up to {LARGEST_BLOCK:,} bytes in a proof file, got a {kind} of {len(content):,}; "
            "certify without proof, or a smaller model"
        )
    return Block(kind, content)


class ProofFile:
    """A proof file that is being written: blocks, each with a checksum over itself and all before it."""

    def __init__(self, file: BinaryIO, digest: bytes = bytes(DIGEST), rows: int = 0, ended: bool = False) -> None:
        self.file, self.digest, self.rows, self.ended = file, digest, rows, ended

    @classmethod
    def resumed(cls, path: Path, opening: Sequence[Block], most: int) -> Self:
        """The file at this path, cut after its first `most` rows or its last whole one; begun anew without its opening.

        Of the opening only the kinds count here: who resumes must know that it is about the same model.
        """
        path.touch()
        file = path.open("r+b")
        found, size = cls(file), path.stat().st_size
        end, kinds = 0, []
        while (read := _next(file, found.digest, size)) is not None:
            kind, digest = read
            if kind == "END" and found.rows <= most:
                found.ended = True
                end = file.tell()
                break
            if kind == "END" or (kind == "ROW" and found.rows == most):
                break
            kinds.append(kind)
            found.digest, end = digest, file.tell()
            found.rows += kind == "ROW"
        file.seek(end)
        file.truncate()
        if kinds[: len(opening)] != [part.kind for part in opening]:
            file.seek(0)
            file.truncate()
            found = cls(file)
            found.append(opening)
        return found

    def append(self, blocks: Sequence[Block]) -> None:
        """Append blocks; on the disk when this returns."""
        for kind, content in blocks:
            head = kind.encode().ljust(4) + struct.pack("<Q", len(content))
            self.digest = hashlib.sha256(self.digest + head + content).digest()
            self.file.write(head + content + self.digest)
            self.rows += kind == "ROW"
        self.file.flush()
        os.fsync(self.file.fileno())

    def end(self) -> None:
        """Append the last block, without which the file is refused."""
        if not self.ended:
            self.append([block("END", {"rows": self.rows})])
            self.ended = True


def _next(file: BinaryIO, digest: bytes, size: int) -> tuple[str, bytes] | None:
    """The kind and the checksum of the next block, if it is whole."""
    head = file.read(HEADER)
    length = int.from_bytes(head[4:], "little")
    if len(head) < HEADER or length > min(LARGEST_BLOCK, size):
        return None
    content = file.read(length)
    own = hashlib.sha256(digest + head + content).digest()
    return (head[:4].decode("ascii", "replace").strip(), own) if file.read(DIGEST) == own else None


@contextmanager
def proof_file(path: str | PathLike[str], opening: Sequence[Block]) -> Iterator[ProofFile]:
    """A new proof file that begins with these blocks; it is ended only if all went well."""
    with Path(path).open("wb") as raw:
        file = ProofFile(raw)
        file.append(opening)
        yield file
        file.end()
