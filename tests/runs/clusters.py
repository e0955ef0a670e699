"""A Dask cluster of separate processes, as its users start one: `dask scheduler` and `dask worker`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent


class Cluster:
    """The processes; `address` is the scheduler's, `file` names it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.start_scheduler()
        self.address = self.scheduler_address()

    def start(self, *words: str, path: str = "") -> subprocess.Popen[bytes]:
        places = [path, str(HERE), *sys.path]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(p for p in places if p), "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",  # Dask itself tries twice, not four times
        }  # fmt: skip
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words], env=environment, cwd=self.folder, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def start_scheduler(self, *, port: int = 0) -> subprocess.Popen[bytes]:
        self.file.unlink(missing_ok=True)
        options = ["--scheduler-file", str(self.file), "--no-dashboard", "--no-show"]
        return self.start("scheduler", "--host", "127.0.0.1", "--port", str(port), *options)

    def scheduler_address(self) -> str:
        while True:
            with suppress(FileNotFoundError, json.JSONDecodeError):  # not there yet, or not whole
                return str(json.loads(self.file.read_text())["address"])
            assert self.scheduler.poll() is None, self.logs()
            time.sleep(0.05)

    def add_worker(self, *options: str, path: str = "") -> subprocess.Popen[bytes]:
        usual = ["--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--local-directory", str(self.folder)]
        return self.start("worker", "--scheduler-file", str(self.file), *usual, *options, path=path)

    def restart_scheduler(self) -> None:
        """Kill it, and start another one at the same address; its workers end, as Dask has it."""
        self.scheduler.kill()
        self.scheduler.wait()
        self.scheduler = self.start_scheduler(port=int(self.address.rpartition(":")[2]))
        self.scheduler_address()

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """So many workers, each a process of one thread, watched over by a nanny."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Cluster(folder)
    try:
        for _ in range(workers):
            made.add_worker()
        yield made
    finally:
        made.close()
