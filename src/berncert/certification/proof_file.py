"""The bytes of a proof file: blocks in a row, as docs/proof-format.md describes them; begun, resumed, ended."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np

FORMAT, VERSION = "berncert-proof", 1
LARGEST_BLOCK = 2**27
"""Bytes; a checker reads no larger ones."""
HEADER, DIGEST = 12, 32
LITTLE: dict[str, np.dtype[Any]] = {"d": np.dtype("<f8"), "f": np.dtype("<f4"), "B": np.dtype("u1")}
"""The types of arrays, with their bytes in the order that files have."""


class Block(NamedTuple):
    """What a block is, and its content; its checksum depends on what is before it in a file."""

    kind: str
    content: bytes


def block(kind: str, fields: dict[str, Any], **arrays: np.ndarray) -> Block:
    """A block with these fields and arrays."""
    plain = {name: values.astype(LITTLE[values.dtype.char], copy=False) for name, values in arrays.items()}
    listed = [[name, values.dtype.str[1:], values.size] for name, values in plain.items()]
    text = json.dumps(fields | {"arrays": listed}).encode()
    content = b"".join([struct.pack("<I", len(text)), text, *(values.tobytes() for values in plain.values())])
    if len(content) > LARGEST_BLOCK:
        raise ValueError(
            f"expected blocks of up to {LARGEST_BLOCK:,} bytes in a proof file, got a {kind} of {len(content):,}; "
            "certify without proof, or a smaller model"
        )
    return Block(kind, content)


class ProofFile:
    """A proof file that is being written: blocks, each with a checksum over itself and all before it."""

    def __init__(self, path: Path) -> None:
        self.path, self.digest = path, bytes(DIGEST)
        self.rows = 0

    @classmethod
    def new(cls, path: Path, opening: Sequence[Block]) -> Self:
        """A new file that begins with these blocks."""
        path.write_bytes(b"")
        file = cls(path)
        file.append(opening)
        return file

    @classmethod
    def resumed(cls, path: Path, opening: Sequence[Block], most: int) -> Self:
        """The file at this path, cut after its first `most` rows or its last whole one; a new one if it has no opening.

        Its end is cut off, too. Of the opening only the kinds count here: who resumes must know that it is about the
        same model.
        """
        file, kinds, end = cls(path), [], 0
        with path.open("r+b") if path.exists() else path.open("w+b") as raw:
            while (read := _next(raw, file.digest)) is not None:
                kind, digest = read
                if kind == "END" or (kind == "ROW" and file.rows == most):
                    break
                file.digest, end = digest, raw.tell()
                file.rows += kind == "ROW"
                kinds.append(kind)
            raw.truncate(end)
        return file if kinds[: len(opening)] == [part.kind for part in opening] else cls.new(path, opening)

    def append(self, blocks: Sequence[Block]) -> None:
        """Append blocks; on the disk when this returns."""
        with self.path.open("ab") as raw:
            for part in blocks:
                raw.write(self._sealed(part))
            raw.flush()
            os.fsync(raw.fileno())

    def _sealed(self, part: Block) -> bytes:
        """The bytes of the next block, with its checksum."""
        head = part.kind.encode().ljust(4) + struct.pack("<Q", len(part.content))
        self.digest = hashlib.sha256(self.digest + head + part.content).digest()
        self.rows += part.kind == "ROW"
        return head + part.content + self.digest

    def end(self) -> None:
        """Append the last block, without which the file is refused."""
        self.append([block("END", {"rows": self.rows})])


def _next(file: BinaryIO, digest: bytes) -> tuple[str, bytes] | None:
    """The kind and the checksum of the next block, if it is whole."""
    head = file.read(HEADER)
    length = int.from_bytes(head[4:], "little")
    if len(head) < HEADER or length > LARGEST_BLOCK:
        return None
    content = file.read(length)
    own = hashlib.sha256(digest + head + content).digest()
    return (head[:4].decode("ascii", "replace").strip(), own) if file.read(DIGEST) == own else None


def checked_place(path: str | PathLike[str]) -> None:
    """Raise a ValueError, before any work, if no file can be written at this path."""
    if not os.fspath(path) or Path(path).is_dir() or not Path(path).parent.is_dir():
        raise ValueError(
            f"expected a file in a folder that exists as proof, got {os.fspath(path)!r}; make its folder, or name a "
            "file, such as proof.bin"
        )


def write_proofs(path: str | PathLike[str], blocks: Sequence[Block]) -> None:
    """A whole file of these blocks."""
    file, rows = ProofFile(Path(path)), sum(part.kind == "ROW" for part in blocks)
    file.path.write_bytes(b"".join(file._sealed(part) for part in (*blocks, block("END", {"rows": rows}))))
