"""Times that can be set side by side: jobs are warmed up, then measured in turn, round after round."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from berncert.foundation.progress import Bar

SHORTEST_SECONDS = 0.2  # a job that is done sooner is called again, until this has passed
PACKAGES = ("berncert", "torch", "numba", "numpy", "scipy")
Item = TypeVar("Item")


class Job(NamedTuple):
    call: Callable[[Tensor], Any]
    features: Tensor


class Timed(NamedTuple):
    rounds: list[float]
    """Milliseconds per sample, the mean of each round."""
    result: Any

    @property
    def ms(self) -> float:
        """The median round: others use the machine too."""
        return median(self.rounds)


def measure(jobs: dict[Any, Job], rounds: int, label: str) -> dict[Any, Timed]:
    """Warm every job up, then time each of them once in every round, so that disturbances hit all alike."""
    for job in shown("warming up", jobs.values()):
        job.call(job.features[:1])
    ms, results = defaultdict(list), {}
    for key in shown(label, list(jobs) * rounds):
        mean, results[key] = _mean_ms(jobs[key])
        ms[key].append(mean)
    return {key: Timed(ms[key], results[key]) for key in jobs}


def _mean_ms(job: Job) -> tuple[float, Any]:
    calls, start = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - start < SHORTEST_SECONDS:
        result = job.call(job.features)
        calls += 1
    return 1e3 * (time.perf_counter() - start) / (calls * len(job.features)), result


def shown(label: str, items: Iterable[Item]) -> Iterator[Item]:
    """The items, with a bar."""
    items = list(items)
    with Bar(label, total=len(items)) as bar:
        for done, item in enumerate(items):
            bar.update(done)
            yield item


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def origin(program: str) -> dict[str, Any]:
    """Where a record comes from: the command, when, and on what."""
    command = shlex.join(["python", "-m", program, *sys.argv[1:]])
    return {"command": command, "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}


def made_by(source: dict[str, Any], others: dict[str, str] | None = None) -> str:
    """The same in a sentence, with the versions of other packages too."""
    host = source["machine"]
    versions = ", ".join(map(" ".join, (host["versions"] | (others or {})).items()))
    return f"Made by `{source['command']}` on {source['date'][:10]}: {host['cpu']}, {host['cores']} cores; {versions}."


def machine() -> dict[str, Any]:
    """What the times were taken on; the load is that of the minute before."""
    return {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
