"""A Dask cluster as an engine: one that runs, by its address or scheduler file, or one that is started here."""

from __future__ import annotations

import json
import logging
import pickle
import re
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from berncert.runs.engine import LostWorkerError, Pool, failed
from berncert.runs.worker import Job, Supplies, answer_packed

PATIENCE_SECONDS = 60.0
"""How long a cluster may be without a scheduler, or without workers, before the run gives up."""
ADDRESS = re.compile(r"((tcp|tls|ucx|ws|wss)://)?[^/\s]+:\d+|inproc://\S+|.+\.json")
"""Where a scheduler may be: as Dask writes it, or a scheduler file."""
SECONDS_BETWEEN_COUNTS = 1.0
SECONDS_OF_RESTART = 30.0


class Dask(Pool):
    """Tasks of a Dask client; workers, dashboards, TLS and what is retried are Dask's."""

    def __init__(self, address: str = "") -> None:
        if address and not ADDRESS.fullmatch(address):
            raise ValueError(
                f"expected engine dask:ADDRESS, e.g. dask:tcp://10.0.0.1:8786, or dask:SCHEDULER.json, got {address!r}"
            )
        self.address, self.name = address, f"dask:{address}" if address else "dask"
        self.client: Any = None
        self.cluster: Any = None
        self.tasks: dict[Future[Any], Any] = {}
        """Our future of an item that is out -> Dask's."""
        self._count, self._counted, self._seen = 0, 0.0, time.monotonic()

    def __enter__(self) -> Self:
        distributed = _distributed()
        if not self.address:
            self.cluster = _local_cluster(distributed)
        try:
            self._connect()
        except BaseException as error:  # nobody else closes what was opened so far
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for part in (self.client, self.cluster):
            if part is not None:
                with suppress(OSError):
                    part.close()

    def _connect(self) -> None:
        distributed, by_file = _distributed(), self.address.endswith(".json")
        end = time.monotonic() + PATIENCE_SECONDS
        while by_file and (trouble := _trouble_of_file(Path(self.address))):  # Dask's client would wait for ever
            if time.monotonic() > end:
                raise self._gone(trouble)
            time.sleep(0.1)
        place = {"scheduler_file": self.address} if by_file else {"address": self.cluster or self.address}
        try:
            self.client = distributed.Client(**place, timeout=PATIENCE_SECONDS, set_as_default=False)
            self.client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
        except (OSError, ValueError) as error:  # of an address, or of the time that is over
            raise self._gone(str(error)) from error
        self._seen = time.monotonic()

    def _gone(self, why: str) -> RuntimeError:
        where = f"at {self.address}" if self.address else "here"
        return RuntimeError(
            f"expected a Dask scheduler with workers {where}, got none ({why or 'no answer'}); start dask scheduler "
            "and dask worker, and repeat the command: what was written is kept"
        )

    def slots(self) -> int:
        now = time.monotonic()
        if now - self._counted > SECONDS_BETWEEN_COUNTS and self.client.status == "running":
            with suppress(OSError):
                self._count = sum(self.client.nthreads().values())
            self._counted = now
            self._seen = now if self._count else self._seen
        return self._count

    def check(self) -> None:
        if not self.slots() and time.monotonic() - self._seen > PATIENCE_SECONDS:
            raise self._gone(f"no worker for {PATIENCE_SECONDS:g} s")

    def submit(self, job: Job, item: Any, supplies: Supplies, at: str = "") -> Future[Any]:
        ours: Future[Any] = Future()
        place = {"workers": [at], "allow_other_workers": True} if at else {}  # others: should it be gone by then
        try:
            theirs = self.client.submit(answer_packed, pickle.dumps((job, item, supplies)), pure=False, **place)
        except (OSError, RuntimeError, ValueError) as error:  # a client that was closed
            if self.client.status == "running":
                raise
            return failed(LostWorkerError(str(error)))
        self.tasks[ours] = theirs
        ours.add_done_callback(self._dropped)
        theirs.add_done_callback(lambda task: _pass_on(task, ours))
        return ours

    def _dropped(self, ours: Future[Any]) -> None:
        theirs = self.tasks.pop(ours)
        if ours.cancelled():
            with suppress(OSError, RuntimeError):
                theirs.cancel()

    def restore(self, late: Sequence[Future[Any]]) -> None:
        self._reconnect()
        keys = {self.tasks[future].key for future in late if future in self.tasks}
        stuck = [worker for worker, tasks in self.client.processing().items() if keys & set(tasks)] if keys else []
        if not stuck:
            return
        try:
            self.client.restart_workers(stuck, timeout=SECONDS_OF_RESTART, raise_for_error=False)
        except ValueError as error:  # no nanny
            raise RuntimeError(
                f"expected an answer of the Dask worker {', '.join(stuck)} in time, got none, and nothing watches over "
                "it that could restart it; end it, and repeat the command: what was written is kept"
            ) from error

    def _reconnect(self) -> None:
        """Wait for the scheduler: Dask's client looks for it for a while, then a new one does."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self.client.status == "connecting" and time.monotonic() < end:
            time.sleep(0.1)
        if self.client.status != "running":
            with suppress(OSError):
                self.client.close()
            self._connect()
        self._counted = 0.0  # count the workers again


def _distributed() -> Any:
    try:
        return import_module("distributed")
    except ImportError as error:
        raise RuntimeError("expected dask and distributed, got none; pip install 'berncert[dask]'") from error


def _local_cluster(distributed: Any) -> Any:
    try:
        return distributed.LocalCluster(
            threads_per_worker=1,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # another may have the usual port
            silence_logs=logging.ERROR,
        )
    except (OSError, RuntimeError) as error:
        raise RuntimeError(
            f"expected a Dask cluster to start here, got none ({error}); see what its workers say (memory?, or a "
            'script without `if __name__ == "__main__":`)'
        ) from error


def _trouble_of_file(path: Path) -> str:
    """Why a scheduler file names no scheduler: it may not be there yet, or not be whole yet. Empty if it names one."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return "there is no such file"
    except (OSError, ValueError) as error:
        return f"it cannot be read: {error}"
    named = isinstance(content, dict) and isinstance(content.get("address"), str)
    return "" if named else 'it is no scheduler file: it has no "address"'


def _pass_on(task: Any, ours: Future[Any]) -> None:
    """What became of a task of Dask's, to our future."""
    distributed = _distributed()
    lost = (distributed.KilledWorker, distributed.client.FutureCancelledError, distributed.comm.CommClosedError)
    if not ours.set_running_or_notify_cancel():
        return
    try:
        ours.set_result(task.result())
    except lost as error:
        ours.set_exception(LostWorkerError(str(error)))
    except BaseException as error:
        ours.set_exception(error)
