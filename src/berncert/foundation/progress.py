"""One progress bar for all long work: on stderr, on a terminal, and only once two seconds have passed."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PATIENCE_SECONDS = 2.0


class Bar:
    """`with Bar("proving", total=n) as bar: ... bar.update(done)`; progress=True shows it at once, False never."""

    def __init__(self, label: str, *, total: int | None, progress: bool | None = None) -> None:
        console = Console(stderr=True)
        self._wanted = console.is_terminal if progress is None else progress
        self._due = time.monotonic() + (PATIENCE_SECONDS if progress is None else 0.0)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *([MofNCompleteColumn(), TimeRemainingColumn()] if total else []),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
        )
        self._task = self._bar.add_task(label, total=total, note="")
        self._shown = False

    def update(self, done: int, note: str = "") -> None:
        """Tell how much is done, and what there is to say; cheap enough to call often."""
        if self._wanted and not self._shown and time.monotonic() >= self._due:
            self._bar.start()
            self._shown = True
        if self._shown:
            self._bar.update(self._task, completed=done, note=note)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._bar.stop()
