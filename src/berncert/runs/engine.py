"""Engines: who works on the batches of a run: this process, processes beside it, a Dask cluster, any executor.

with engine_of("processes:4") as pool: ...
with engine_of("dask:tcp://10.0.0.1:8786") as pool: ...
with engine_of(MPIPoolExecutor()) as pool: ...
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from typing import Any, Self

from berncert.foundation.arguments import guess
from berncert.runs.worker import Job, Supplies, answer, forget

MOST_PROCESSES = 1024
"""On one machine; more is a slip of the keyboard."""


class LostWorkerError(Exception):
    """A worker ended, or can no longer be reached, before it answered."""


class Pool:
    """Workers, between `with` and its end."""

    name = ""
    """As it is recorded."""
    at_once = 2
    """Items handed out for each worker: while it works on one, the next is on its way."""
    lost: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError, LostWorkerError)
    """What an item ends in whose worker ended."""
    here = False
    """Whether the work is done by this process, with its threads and its device."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        pass

    def slots(self) -> int:
        """How many items can be worked on at a time."""
        raise NotImplementedError

    def submit(self, job: Job, item: Any, supplies: Supplies, at: str = "") -> Future[Any]:
        """Hand out one item; if that can be chosen, to the worker at that address."""
        raise NotImplementedError

    def restore(self, late: Sequence[Future[Any]]) -> None:
        """Make the pool work again after workers ended, and end those whose items are late.

        Items that are lost by this end in one of `lost`, or are cancelled, before it returns.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Raise an error if there is nobody left who could go on."""


class Serial(Pool):
    """This process."""

    name, at_once, here = "serial", 1, True

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        forget()

    def slots(self) -> int:
        return 1

    def submit(self, job: Job, item: Any, supplies: Supplies, at: str = "") -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(answer(job, item, supplies))
        except Exception as error:
            future.set_exception(error)
        return future


class Processes(Pool):
    """So many processes on this machine."""

    def __init__(self, count: int) -> None:
        self.count, self.name = count, f"processes:{count}"

    def __enter__(self) -> Self:
        # not forked: a copy of a process with threads may wait for ever for one that it has not
        context = multiprocessing.get_context("spawn")
        self.executor = ProcessPoolExecutor(self.count, context, initializer=_follow_parent)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._kill()
        self.executor.shutdown(wait=True, cancel_futures=True)

    def slots(self) -> int:
        return self.count

    def submit(self, job: Job, item: Any, supplies: Supplies, at: str = "") -> Future[Any]:
        try:
            return self.executor.submit(answer, job, item, supplies)
        except BrokenExecutor as error:  # found out between two looks
            return failed(error)

    def restore(self, late: Sequence[Future[Any]]) -> None:
        self.__exit__(BrokenExecutor)
        self.__enter__()

    def _kill(self) -> None:
        for process in list((self.executor._processes or {}).values()):
            process.kill()


def _follow_parent() -> None:
    """In a worker: end when the parent does, however it ends, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Given(Pool):
    """An executor of the user's: who made it ends and restarts it."""

    def __init__(self, executor: Executor) -> None:
        self.executor, self.name = executor, type(executor).__name__

    def slots(self) -> int:
        counts = (getattr(self.executor, name, None) for name in ("_max_workers", "num_workers"))
        return next((n for n in counts if isinstance(n, int) and n > 0), os.cpu_count() or 1)

    def submit(self, job: Job, item: Any, supplies: Supplies, at: str = "") -> Future[Any]:
        try:
            return self.executor.submit(answer, job, item, supplies)
        except BrokenExecutor as error:
            return failed(error)

    def restore(self, late: Sequence[Future[Any]]) -> None:
        what = "a batch is not done in time" if late else "workers ended"
        raise RuntimeError(
            f"expected {self.name} to go on, got none: {what}, and only who made it can restart it; make a new one and "
            "repeat the call: the rows so far are kept"
        )


def failed(error: BaseException) -> Future[Any]:
    """What an item has become that could not even be handed out."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def check_script() -> None:
    """Raise an error in a process that is about to be a worker, and reads the user's script again for that."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as Python itself finds it out
        raise RuntimeError(
            'expected a script that starts an engine below `if __name__ == "__main__":`, got one that does it wherever '
            "it is read: its workers read it too, and must not start workers of their own"
        )


def engine_of(engine: str | Executor | Pool) -> Pool:
    """The engine that is meant: by a text such as `processes:4`, or an executor; what makes no sense is a ValueError.

    Nothing is started before it is entered with `with`.
    """
    if isinstance(engine, Pool):
        return engine
    if isinstance(engine, Executor):
        return Given(engine)
    if not isinstance(engine, str):
        raise TypeError(f"expected an engine such as 'processes:4', or an executor, got {type(engine).__name__}")
    name, _, argument = engine.partition(":")
    if name not in ENGINES:
        raise ValueError(
            f"expected engine to be serial, processes:N, dask, dask:ADDRESS or dask:SCHEDULER.json, got {engine!r}"
            f"{guess(name, ENGINES)}"
        )
    return ENGINES[name](argument)


def _serial(argument: str) -> Pool:
    if argument:
        raise ValueError(f"expected engine serial, got serial:{argument}; processes:{argument} takes a number")
    return Serial()


def _processes(argument: str) -> Pool:
    if not argument.isdecimal() or not 1 <= int(argument) <= MOST_PROCESSES:
        raise ValueError(
            f"expected engine processes:N with a whole number N from 1 to {MOST_PROCESSES}, got {argument!r}; "
            "e.g. processes:4"
        )
    check_script()
    return Processes(int(argument))


def _dask(argument: str) -> Pool:
    from berncert.runs.dask_pool import Dask

    if not argument:
        check_script()
    return Dask(argument)


ENGINES: dict[str, Callable[[str], Pool]] = {"serial": _serial, "processes": _processes, "dask": _dask}
"""Name -> engine, from what is written after the colon."""
