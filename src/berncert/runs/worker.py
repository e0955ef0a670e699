"""What a worker does: it prepares a job once, keeps it, and answers item after item.

A worker may be this process, another one, or one on another machine. Nothing heavy is imported here, as the scheduler
of a Dask cluster reads this module too.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from berncert.foundation.folders import differences

Supplies = Mapping[str, Any]
"""Name -> a large part of a job, or of one item, that a worker asked for."""
Work = Callable[[Any, Supplies], Any]
"""A prepared job: an item and what comes with it, to the result."""
MODEL, ROWS = "model", "rows"
"""Parts: the model, which a worker wants once; the rows of an item, which it wants with every one if it has no data."""
MOST_KEPT = 4
"""Jobs that a worker keeps prepared."""


class Job(Protocol):
    """Work that can be sent: a small description, whose large parts are read where it arrives, or asked for."""

    @property
    def key(self) -> str:
        """A checksum of all that decides what the job does."""

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions that a worker must have."""

    def prepare(self, supplies: Supplies) -> Work:
        """Do once what can be done once; raises `MissingPartError` if a part is not here, nor among the supplies."""

    def supply(self, part: str, item: Any) -> Any:
        """On the client: the part that a worker asked for when it was given this item."""


class MissingPartError(Exception):
    """A worker has no such part: `MODEL` or `ROWS`. `where`, if it is known: the address to send it to."""

    def __init__(self, part: str, where: str = "") -> None:
        super().__init__(part, where)
        self.part, self.where = part, where


class RefusedWorkerError(RuntimeError):
    """A worker that would compute something else."""


_kept: OrderedDict[str, Work] = OrderedDict()
_lock = Lock()


def answer(job: Job, item: Any, supplies: Supplies) -> Any:
    """The result of an item; the job is prepared if it is new here."""
    with _lock:  # of the threads of a worker the first prepares it, the others wait
        if job.key not in _kept:
            _check_versions(job.versions)
            _kept[job.key] = job.prepare(supplies)
        _kept.move_to_end(job.key)
        work = _kept[job.key]
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    return work(item, supplies)


def model_content(path: str, sha256: str, supplies: Supplies) -> bytes:
    """The file of a model: what was sent, or what is at that path here, if it is the same; else `MissingPartError`."""
    if MODEL in supplies:
        return bytes(supplies[MODEL])
    with suppress(OSError):
        content = Path(path).read_bytes()
        if hashlib.sha256(content).hexdigest() == sha256:
            return content
    raise MissingPartError(MODEL)


def answer_packed(packed: bytes) -> Any:
    """The same on a Dask worker, of a pickle: what it holds is imported by workers only, not by who passes it on."""
    try:
        return answer(*pickle.loads(packed))
    except MissingPartError as missing:
        from distributed import get_worker

        raise MissingPartError(missing.part, get_worker().address) from None


def forget() -> None:
    """Let go of all jobs that are kept here."""
    with _lock:
        _kept.clear()


def _check_versions(wanted: Mapping[str, str]) -> None:
    from berncert.runs.versions import CODE, versions_of

    changes = differences(dict(wanted), versions_of(name for name in wanted if name != CODE))
    if changes:
        where = f"process {os.getpid()} of {platform.node() or 'a machine without a name'}"
        raise RefusedWorkerError(
            f"expected workers with the code and versions of this run, got {where}, which differs in "
            f"{', '.join(changes)} (there: where the run was begun); install the same on all of them, restart the "
            "workers, and repeat the command: the rows so far are kept"
        )
