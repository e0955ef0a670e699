"""Folders and files that long work leaves behind: claimed by one process, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

LOCK = ".lock"
LONGEST = 100
"""Letters of a value in a message."""


class FolderInUseError(ValueError):
    """A folder that another process is writing to."""


@contextmanager
def claimed(folder: Path, work: str) -> Iterator[None]:
    """The folder, made if need be, for this process alone; one that was made and stays empty is taken away again.

    `work` is what is done in it, for the message.
    """
    try:
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        message = f"expected a folder that no other {work} is writing to, got {folder}; wait for that one"
        raise FolderInUseError(message) from None
    except OSError as error:
        message = f"expected a folder that can be written to, got {folder}: {error.strerror or error}"
        raise OSError(message) from error
    try:
        yield
    finally:
        with suppress(OSError):  # another may be at it already, and what went wrong before matters more
            if made and [path.name for path in folder.iterdir()] == [LOCK]:  # it came to nothing
                (folder / LOCK).unlink()
                folder.rmdir()
        lock.release()


def write_whole(path: Path, content: bytes) -> None:
    """At once or not at all: a file of that name stays as it is until all of the new one is on the disk."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        message = f"could not write {path}: {error.strerror or error}; what was there before is kept"
        raise OSError(error.errno, message) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The entries in which two records differ, with both values."""
    found: list[str] = []
    for key in sorted({*a, *b}):
        x, y = a.get(key, "nothing"), b.get(key, "nothing")
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            found += differences(x, y, f"{prefix}{key}.")
        elif x != y:
            found.append(f"{prefix}{key} ({_short(x)} there, {_short(y)} here)")
    return found


def _short(value: Any) -> str:
    """As it is written in Python, the middle of a long one left out."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
