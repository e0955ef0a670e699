"""The job of a sweep: a worker trains one model after the other, in the sweep's folder if it sees that."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from berncert.foundation.folders import FolderInUseError
from berncert.hardware import torch_threads
from berncert.runs.worker import Supplies, Work
from berncert.training.loop import train
from berncert.training.recipes import Recipe
from berncert.training.state import FILES, read_log

TICKET = "sweep.json"
"""The record of a sweep; a worker that reads the same content sees the same files."""
SECONDS_BETWEEN_TRIES = 1.0


class Trial(NamedTuple):
    """One training of a sweep."""

    name: str
    """That of its folder."""
    changes: Mapping[str, Any]
    """Setting -> its value here; the seed too."""
    recipe: Recipe

    def __str__(self) -> str:
        return self.name


class Trained(NamedTuple):
    """What came of it."""

    log: list[dict[str, float]]
    failure: str = ""
    """Why it ended before its last epoch."""
    files: Mapping[str, bytes] = {}
    """Of a worker that does not see the sweep's folder: name -> content."""


@dataclass(frozen=True, kw_only=True)
class SweepJob:
    """Where to train, and with what."""

    folder: str
    ticket_sha256: str
    data_dir: str | None
    device: str | None
    threads: int
    wait: bool
    """For a folder that is in use: a worker that can no longer be reached may still be at it."""
    versions: Mapping[str, str]

    @cached_property
    def key(self) -> str:
        """A checksum of all of it."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def prepare(self, supplies: Supplies) -> Work:
        """Nothing is kept between two trainings."""

        def work(trial: Trial, supplies: Supplies) -> Trained:
            if self._sees_folder():
                return self._trained(trial, Path(self.folder) / trial.name)
            with TemporaryDirectory(prefix="berncert-sweep-") as own:
                return self._trained(trial, Path(own) / trial.name, send=True)

        return work

    def supply(self, part: str, item: Trial) -> Any:
        """Workers ask for nothing."""
        raise ValueError(f"expected no part of a sweep to be asked for, got {part}")

    def _sees_folder(self) -> bool:
        with suppress(OSError):
            return hashlib.sha256((Path(self.folder) / TICKET).read_bytes()).hexdigest() == self.ticket_sha256
        return False

    def _trained(self, trial: Trial, folder: Path, *, send: bool = False) -> Trained:
        with torch_threads(self.threads):
            failure = self._train(trial, folder)
        files = [folder / name for name in FILES if send and (folder / name).exists()]
        return Trained(read_log(folder), failure, {path.name: path.read_bytes() for path in files})

    def _train(self, trial: Trial, folder: Path) -> str:
        """Train, or resume; why it came to nothing, if it diverged: that is a result, and others go on."""
        data_dir = self.data_dir if self.data_dir and Path(self.data_dir).is_dir() else None
        while True:
            try:
                train(trial.recipe, folder, data_dir=data_dir, device=self.device, progress=False)
                return ""
            except FloatingPointError as error:
                return str(error)
            except FolderInUseError:
                if not self.wait:
                    raise
                time.sleep(SECONDS_BETWEEN_TRIES)
