"""Reading a proof file: blocks, each with a checksum over itself and all before it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

FORMAT, VERSION = "berncert-proof", 1
CODES = {"f8": ("d", 8), "f4": ("f", 4), "u1": ("B", 1)}
LARGEST_BLOCK = 1 << 31


class UnusableError(Exception):
    """The file is not a whole proof file: cut off, changed, foreign, or of another version."""


@dataclass(frozen=True)
class Block:
    """One block: what it is, plain JSON, and arrays of numbers by name."""

    kind: str
    fields: dict[str, Any]
    arrays: dict[str, tuple[float, ...]]

    def array(self, name: str, count: int | None = None) -> tuple[float, ...]:
        """An array that must be there, with so many numbers."""
        values = self.arrays.get(name)
        if values is None or (count is not None and len(values) != count):
            got = "none" if values is None else f"{len(values)} numbers"
            raise UnusableError(f"expected {count if count is not None else 'some'} numbers as {name!r}, got {got}")
        return values

    def exact(self, name: str, count: int) -> list[Fraction]:
        """The same as rationals."""
        try:
            return [Fraction(value) for value in self.array(name, count)]
        except (ValueError, OverflowError) as error:
            raise UnusableError(f"expected finite numbers as {name!r}") from error


def read_blocks(path: Path) -> Iterator[Block]:
    """The blocks of the file, one at a time; raises UnusableError at the first that is not as it was written.

    A block is a kind of 4 bytes, the length of its content as 8 bytes, the content, and the SHA-256 of the checksum of
    the block before (32 zero bytes for the first), the kind, the length and the content. The last block is of kind END
    and says how many rows there are.
    """
    digest, rows = bytes(32), 0
    with path.open("rb") as file:
        while True:
            head = file.read(12)
            if len(head) < 12:
                raise UnusableError("the file is cut off: its last block is missing")
            length = struct.unpack("<Q", head[4:])[0]
            content = file.read(length) if length <= LARGEST_BLOCK else b""
            digest = hashlib.sha256(digest + head + content).digest()
            if len(content) < length or file.read(32) != digest:
                raise UnusableError(f"the checksum of a block of kind {head[:4]!r} is not that of its bytes")
            block = _parsed(head[:4], content)
            rows += block.kind == "ROW"
            if block.kind == "END":
                if block.fields.get("rows") != rows or file.read(1):
                    raise UnusableError(
                        f"expected an end after {block.fields.get('rows')} rows, got {rows} rows or more"
                    )
                return
            yield block


def _parsed(kind: bytes, content: bytes) -> Block:
    """Content: the length of a JSON text as 4 bytes, the text, and the arrays that it lists, [name, type, count]."""
    try:
        (length,) = struct.unpack_from("<I", content)
        fields = json.loads(content[4 : 4 + length])
        arrays, at = {}, 4 + length
        for name, code, count in fields.pop("arrays", []):
            letter, size = CODES[code]
            arrays[name] = struct.unpack_from(f"<{count}{letter}", content, at)
            at += size * count
        if at != len(content):
            raise UnusableError(f"expected {at} bytes in a block, got {len(content)}")
        return Block(kind.decode().strip(), fields, arrays)
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableError(f"a block of kind {kind!r} cannot be read: {error}") from error


def exact_number(text: Any) -> Fraction | None:
    """A float written in hexadecimal, as it is exactly; None for "inf"."""
    if not isinstance(text, str):
        raise UnusableError(f"expected a float in hexadecimal, got {text!r}")
    if text == "inf":
        return None
    try:
        return Fraction(float.fromhex(text))
    except (ValueError, OverflowError) as error:
        raise UnusableError(f"expected a float in hexadecimal, got {text!r}") from error
