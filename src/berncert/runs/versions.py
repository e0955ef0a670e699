"""Which code makes the rows of a run, and where: rows of different code are not mixed, whatever machines make them."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

CODE = "code"
"""The entry of a record with the checksum of this package's own code."""


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """The versions of these packages here, and the checksum of this package's code."""
    return {name: metadata.version(name) for name in packages} | {CODE: code_checksum()}


@cache
def code_checksum() -> str:
    """A checksum of this package's own code, which may change in a checkout while its version does not."""
    package = Path(str(resources.files("berncert")))
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def origin(model: str, command: str, *, engine: str, device: str | None, threads: int | None) -> dict[str, Any]:
    """Where a run comes from, which decides nothing: another machine or engine may resume it."""
    return {
        "model": model,
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        "engine": engine,
        "device": device,
        "threads": threads,
    }
