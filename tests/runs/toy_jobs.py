"""Jobs for tests of engines: cheap, imported without torch, and they misbehave when they are told to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berncert.runs.versions import versions_of
from berncert.runs.worker import MODEL, ROWS, MissingPartError, Supplies, Work


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop_worker() -> None:
    """As a machine that hangs: nothing in the process can notice."""
    os.kill(os.getpid(), signal.SIGSTOP)


def fail() -> None:
    raise ArithmeticError("the work itself is wrong")


MISCHIEF: dict[str, Callable[[], None]] = {"kill": kill_worker, "stop": stop_worker, "fail": fail}


@dataclass(frozen=True)
class Squares:
    """The square of each item; in `folder` a file says for each process what it was asked to do."""

    folder: Path
    mischief: str = ""
    at: int = -1
    """The item at which it happens."""
    times: int = 1
    wants: tuple[str, ...] = ()
    """Parts that workers do not have."""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=lambda: versions_of(["berncert"]))

    @property
    def key(self) -> str:
        return repr((self.folder, self.mischief, self.at, self.wants))

    def prepare(self, supplies: Supplies) -> Work:
        if MODEL in self.wants and MODEL not in supplies:
            raise MissingPartError(MODEL)
        self.note("prepared")

        def work(item: int, supplies: Supplies) -> int:
            if ROWS in self.wants and supplies.get(ROWS) != [item]:
                raise MissingPartError(ROWS)
            self.note(f"item {item}")
            time.sleep(self.seconds)
            if item == self.at and self.count(f"item {item}") <= self.times:
                MISCHIEF[self.mischief]()
            return item * item

        return work

    def supply(self, part: str, item: int) -> Any:
        self.note(f"supplied {part}")
        return [item] if part == ROWS else b"the model"

    def note(self, what: str) -> None:
        with (self.folder / f"{os.getpid()}.txt").open("a") as file:
            file.write(f"{what}\n")

    def count(self, what: str) -> int:
        """How often it was noted, by all processes."""
        return sum(path.read_text().splitlines().count(what) for path in self.folder.glob("*.txt"))
