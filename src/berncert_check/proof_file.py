"""Reading a proof file: blocks, each with a checksum over itself and all before it."""

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

FORMAT, VERSION = "berncert-proof", 1
KINDS = {b"HEAD": "HEAD", b"NET ": "NET", b"ROW ": "ROW", b"END ": "END"}
TYPES = {"f8": ("d", 8), "f4": ("f", 4), "u1": ("B", 1)}
HEXADECIMAL = re.compile(r"(-?)0x([01])(?:\.([0-9a-f]{1,13}))?p([+-]?[0-9]{1,4})")
LARGEST_BLOCK, LONGEST_TEXT = 1 << 27, 1 << 24
"""Bytes; what a block says of itself is never believed before it is seen that the file has as much. A text takes twenty
times its length in memory."""


class UnusableError(Exception):
    """The file is not a whole proof file: cut off, changed, foreign, or of another version."""


class UnsupportedError(Exception):
    """The file speaks of something that this checker knows no rule for."""


def stop(wrong: object, error: Exception) -> None:
    """Raise the error if something is wrong."""
    if wrong:
        raise error


@dataclass(frozen=True)
class Block:
    """One block: what it is, plain JSON, and arrays of numbers by name."""

    kind: str
    fields: dict[str, Any]
    arrays: dict[str, Sequence[float]]

    def array(self, name: str, count: int | None = None) -> Sequence[float]:
        """An array that must be there, with so many numbers."""
        values = self.arrays.get(name)
        if values is None or (count is not None and len(values) != count):
            got = "none" if values is None else f"{len(values)} numbers"
            raise UnusableError(f"expected {count if count is not None else 'some'} numbers as {name!r}, got {got}")
        return values

    def exact(self, name: str, count: int) -> list[Fraction]:
        """The same as rationals: every finite float is one."""
        try:
            return [Fraction(value) for value in self.array(name, count)]
        except (ValueError, OverflowError) as error:
            raise UnusableError(f"expected finite numbers as {name!r}") from error

    def whole(self, name: str, least: int, most: int) -> int:
        """A field that must be a whole number within these limits."""
        return whole_number(self.fields.get(name), name, least, most)


def read_blocks(path: Path) -> Iterator[Block]:
    """The blocks of the file, one at a time; raises UnusableError at the first that is not as it was written.

    A block is a kind of 4 bytes, the length of its content as 8 bytes, the content, and the SHA-256 of the checksum of
    the block before (32 zero bytes for the first), the kind, the length and the content. The last block is of kind END
    and says how many rows there are.
    """
    digest, rows, left = bytes(32), 0, path.stat().st_size
    with path.open("rb") as file:
        while True:
            head = file.read(12)
            length = int.from_bytes(head[4:], "little")
            left -= 12 + length + 32
            whole = len(head) == 12 and left >= 0 and length <= LARGEST_BLOCK
            stop(not whole, UnusableError(f"the file is cut off, or has a block of more than {LARGEST_BLOCK} bytes"))
            content = file.read(length)
            digest = hashlib.sha256(digest + head + content).digest()
            stop(file.read(32) != digest, UnusableError(f"the checksum of a block of kind {head[:4]!r} is not its own"))
            block = _parsed(head[:4], content)
            rows += block.kind == "ROW"
            if block.kind == "END":
                other = block.whole("rows", 0, 1 << 62) != rows or left
                return stop(other, UnusableError(f"expected an end after as many rows as it says, got {rows} or more"))
            yield block


def _parsed(kind: bytes, content: bytes) -> Block:
    """Content: the length of a JSON text as 4 bytes, the text, and the arrays that it lists, [name, type, count]."""
    try:
        at = 4 + int.from_bytes(content[:4], "little")
        stop(at > 4 + LONGEST_TEXT, ValueError(f"a text of more than {LONGEST_TEXT} bytes"))
        fields = JSON.decode(content[4:at].decode())
        arrays: dict[str, Sequence[float]] = {}
        for name, code, count in fields.pop("arrays"):
            letter, size = TYPES[code]
            end = at + size * whole_number(count, "the length of an array", 0, LARGEST_BLOCK)
            stop(name in arrays or type(name) is not str or end > len(content), ValueError("an array twice or cut off"))
            arrays[name] = content[at:end] if code == "u1" else struct.unpack(f"<{count}{letter}", content[at:end])
            at = end
        stop(at != len(content), ValueError(f"expected {at} bytes, got {len(content)}"))
        return Block(KINDS[kind], fields, arrays)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableError(f"a block of kind {kind!r} cannot be read: {error}") from error


def _refused(text: str) -> None:
    raise ValueError(f"expected floats in hexadecimal, as text, got {text}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    stop(len(dict(pairs)) != len(pairs), ValueError("a name that is there twice"))
    return dict(pairs)


JSON = json.JSONDecoder(parse_float=_refused, parse_constant=_refused, object_pairs_hook=_unique)


def whole_number(value: Any, name: str, least: int, most: int) -> int:
    """The value, if it is a whole number within these limits."""
    if type(value) is not int or not least <= value <= most:
        raise UnusableError(f"expected a whole number from {least} to {most} as {name}")
    return value


def exact_number(text: Any) -> Fraction | None:
    """A number written in hexadecimal like 0x1.8p-1, as it is exactly; None for "inf"."""
    if text == "inf":
        return None
    parts = HEXADECIMAL.fullmatch(text) if isinstance(text, str) else None
    if parts is None or abs(int(parts[4])) > 1100:
        raise UnusableError("expected a number in hexadecimal, like 0x1.8p-1")
    digits = parts[3] or ""
    return int(parts[1] + parts[2] + digits, 16) * Fraction(2) ** (int(parts[4]) - 4 * len(digits))
