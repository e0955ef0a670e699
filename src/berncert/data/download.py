"""Downloads that resume where they stopped, and are checked before they are used.

pooch checks and retries too, but starts from nothing each time, which is too slow for 170 MB from a university server.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from filelock import FileLock

from berncert.foundation.progress import Bar

ATTEMPTS = 20
TIMEOUT_SECONDS = 30.0
PAUSE_SECONDS = 1.0
BLOCK_BYTES = 1 << 18
MEGABYTE = 1_000_000


def checksum(data: bytes | Path, algorithm: str) -> str:
    """The checksum of some bytes or of a file, with the name of the algorithm in front: "md5:..."."""
    digest = hashlib.new(algorithm, usedforsecurity=False)  # md5 is what is published
    if isinstance(data, bytes):
        digest.update(data)
    else:
        with data.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    return f"{algorithm}:{digest.hexdigest()}"


def download(urls: Sequence[str], target: Path, expected: str, *, progress: bool | None = None) -> None:
    """Download a file with the expected checksum to `target`, from the first address that has it.

    A partial download is kept in target.part, also between runs; `target` appears whole or not at all. A
    ConnectionError says why each address failed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):  # two runs must not write into one .part
        if target.exists():
            return
        part = target.with_name(f"{target.name}.part")
        failures: list[str] = []
        for url in urls:
            try:
                _fetch(url, part, expected, progress)
            except (OSError, HTTPException, ValueError) as error:
                failures.append(f"{url}: {_reason(error)}")
            else:
                os.replace(part, target)
                return
        raise ConnectionError("; ".join(failures))


def _fetch(url: str, part: Path, expected: str, progress: bool | None) -> None:
    resumed = _size(part) > 0
    _transfer(url, part, progress)
    got = checksum(part, expected.partition(":")[0])
    if got == expected:
        return
    part.unlink()
    if not resumed:
        raise ValueError(f"expected {expected}, got {got}")
    _fetch(url, part, expected, progress)  # the beginning may have been another file's: start again, from nothing


def _transfer(url: str, part: Path, progress: bool | None) -> None:
    """Request the missing bytes until none are missing; an attempt that brings nothing is the last one."""
    for attempt in range(ATTEMPTS):
        before, failure = _size(part), "the connection ended early"
        try:
            if _append(url, part, progress):
                return
        except (OSError, HTTPException) as error:
            failure = _reason(error)
        if _size(part) <= before:
            raise ConnectionError(failure)
        time.sleep(PAUSE_SECONDS * min(attempt, 5))
    raise ConnectionError(f"interrupted {ATTEMPTS} times; what has arrived is kept, load again to resume")


def _append(url: str, part: Path, progress: bool | None) -> bool:
    """Write what the server sends to its place in the file; False if that is less than the server announced."""
    have = _size(part)
    request = Request(url, headers={"User-Agent": "berncert"} | ({"Range": f"bytes={have}-"} if have else {}))
    try:
        response: HTTPResponse = urlopen(request, timeout=TIMEOUT_SECONDS)
    except HTTPError as error:
        with error:
            if error.code == 416 and have:  # nothing is missing; the checksum decides
                return True
            raise ConnectionError(f"the server answered {error.code} {error.reason}") from None
    with response:
        start = _start(response)
        if start > have:
            raise ConnectionError(f"asked for what follows byte {have}, got what follows byte {start}")
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        with (
            part.open("r+b" if have else "wb") as file,
            Bar(f"downloading {url.rpartition('/')[2]}, MB", total=(total or 0) // MEGABYTE, progress=progress) as bar,
        ):
            file.seek(start)
            file.truncate()
            while block := response.read(BLOCK_BYTES):
                file.write(block)
                bar.update(file.tell() // MEGABYTE)
            return total is None or file.tell() >= total


def _start(response: HTTPResponse) -> int:
    """The first byte that the response contains: a server may ignore the requested range, or begin earlier."""
    if response.status != 206:
        return 0
    given = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if given is None:
        raise ConnectionError(f"expected a Content-Range, got {response.headers.get('Content-Range')!r}")
    return int(given[1])


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", error)) or type(error).__name__


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
