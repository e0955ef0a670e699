"""A million certificates: the threads of one process beside one and two workers, and what an engine costs per batch.

    python -m benchmarks.engines              # a million rows; writes benchmarks/engines.json and engines.md
    python -m benchmarks.engines --rows 20000 --compared 5000 --out out/benchmarks

The model is an affine head on six features of handwritten digits, the cheapest real case: the less a row costs, the
more an engine matters. The rows are the test digits, again and again with other noise. Every measurement is a process
of its own, they take turns, and only ratios of times travel from one machine to another.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.memory import peak_bytes
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import made_by, origin, shown
from berncert.cli import WAITING
from berncert.runs.versions import versions_of
from berncert.runs.worker import Supplies, Work

HERE = Path(__file__).parent
SETUPS = {
    "1 thread of one process": ("serial", 1),
    "2 threads of one process": ("serial", 2),
    "processes:1": ("processes:1", 1),
    "processes:2": ("processes:2", 1),
    "dask, 1 worker": ("dask:1", 1),
    "dask, 2 workers": ("dask:2", 1),
}
FIRST = next(iter(SETUPS))
EMPTY_BATCHES = 1000
THREADS_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Each setup says its threads itself."""


@dataclass(frozen=True)
class Nothing:
    """A job without work: what is left is the engine."""

    key: str = "nothing"
    versions: dict[str, str] = field(default_factory=lambda: versions_of(["berncert"]))

    def prepare(self, supplies: Supplies) -> Work:
        return lambda item, supplies: ["x" * 500] * 256  # as much as comes back of a batch

    def supply(self, part: str, item: Any) -> Any:
        raise NotImplementedError


def make_model(folder: Path) -> None:
    import berncert
    from berncert.training.recipes import load_recipe

    berncert.train(load_recipe("digits", head="affine", dim=6, degree=1, epochs=5), folder, progress=False)


def make_rows(path: Path, rows: int) -> None:
    """Digits with noise, as bytes."""
    import berncert

    test, chance = berncert.data.load("digits", "test"), np.random.default_rng(0)
    chosen = np.arange(rows) % len(test)
    pixels = np.round(test.images.numpy() * 255).astype(np.uint8)[chosen]
    pixels = np.clip(pixels.astype(np.int16) + chance.integers(-20, 21, pixels.shape, np.int16), 0, 255)
    np.savez(path, x=pixels.astype(np.uint8), y=test.labels.numpy()[chosen])


@contextmanager
def workers(engine: str) -> Iterator[str | Executor]:
    """An engine; `dask:N` is a local cluster of N processes."""
    if not engine.startswith("dask:"):
        yield engine
        return
    from distributed import LocalCluster

    with LocalCluster(n_workers=int(engine[5:]), threads_per_worker=1, dashboard_address=None) as cluster:
        yield f"dask:{cluster.scheduler_address}"


def one_run(folder: Path, data: Path, engine: str, threads: int) -> dict[str, Any]:
    """Certify all rows; seconds to the first rows, from these to the last, and what the client needed for it."""
    import torch

    from berncert import Exact
    from berncert.runs.execute import execute
    from berncert.runs.settings import RunSettings
    from berncert.runs.table import Table

    torch.set_num_threads(threads)
    began, written, usual = time.perf_counter(), [], Table.append

    def timed(table: Table, lines: Any) -> None:
        usual(table, lines)
        written.append((time.perf_counter(), table.done, time.process_time(), peak_bytes()))

    Table.append = timed  # type: ignore[method-assign]
    with workers(engine) as chosen:
        run = execute(
            folder / "model", Exact(), folder / "run", RunSettings(data=str(data), split="all"), engine=chosen,
            threads=threads, progress=False,
        )  # fmt: skip
    (first, some, cpu, before), (last, all_rows, cpu_last, after) = written[0], written[-1]
    return {
        "first_seconds": first - began,
        "rows_per_second": (all_rows - some) / (last - first),
        "client_cpu_us_per_row": 1e6 * (cpu_last - cpu) / (all_rows - some),
        "client_mb_after_first_rows": before / 1e6,
        "client_mb_after_last_rows": after / 1e6,
        "client_mb_with_the_result": peak_bytes() / 1e6,
        "rows": len(run),
        "proven": int((run.rows["status"] == "PROVEN").sum()),
        "mean_radius": run.mean_radius,
    }


def empty_batches(engine: str) -> dict[str, Any]:
    """Batches without work: milliseconds from one to the next, and those of the client's processor."""
    from berncert.runs.dispatch import Dispatcher
    from berncert.runs.engine import engine_of

    with workers(engine) as chosen, engine_of(chosen) as pool:
        found = Dispatcher(pool, Nothing()).results(range(EMPTY_BATCHES + 20))
        counts, began, cpu = 0, 0.0, 0.0
        for group in found:
            counts += len(group)
            if not began and counts >= 20:  # workers have started
                began, cpu, start = time.perf_counter(), time.process_time(), counts
        done = counts - start
        return {
            "ms_per_batch": 1e3 * (time.perf_counter() - began) / done,
            "client_cpu_ms_per_batch": 1e3 * (time.process_time() - cpu) / done,
        }


def measured(*words: str) -> dict[str, Any]:
    """What a process of its own measures; its threads wait as those of the command line do."""
    own = {name: value for name, value in os.environ.items() if name not in THREADS_VARIABLES} | WAITING
    command = [sys.executable, "-m", "benchmarks.engines", "--one", *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=own)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="certificates of the long run (a million)")
    parser.add_argument("--compared", type=int, default=100_000, help="of each of those that are compared (100000)")
    parser.add_argument("--rounds", type=int, default=3, help="of the comparison (3)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where the record goes (here)")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if not chosen.one:
        write(chosen.out, *measure_all(chosen.rows, chosen.compared, chosen.rounds))
        return
    kind, *words = chosen.one
    with tempfile.TemporaryDirectory() as out:
        if kind == "run":
            (Path(out) / "model").symlink_to(words[0])
        found = (
            one_run(Path(out), Path(words[1]), words[2], int(words[3])) if kind == "run" else empty_batches(words[0])
        )
    print(json.dumps(found))


def measure_all(rows: int, compared: int, rounds: int) -> tuple[list[Any], list[Any], list[Any]]:
    """The runs that are compared, short and long runs of which the memory is, and batches without work."""
    with tempfile.TemporaryDirectory() as place:
        model, few, many = (str(Path(place) / name) for name in ("model", "few.npz", "many.npz"))
        make_model(Path(model))
        make_rows(Path(few), compared)
        make_rows(Path(many), rows)
        turns = shown("comparing", [setup for _ in range(rounds) for setup in SETUPS.items()])
        runs = [{"setup": setup, **measured("run", model, few, *map(str, how))} for setup, how in turns]
        long = [measured("run", model, data, "processes:2", "1") for data in shown("a long run", (few, many))]
    engines = ("serial", "processes:1", "processes:2", "dask:1", "dask:2")
    batches = [{"engine": name, **measured("batches", name)} for name in shown("batches without work", engines)]
    return runs, long, batches


def write(out: Path, runs: list[Any], long: list[Any], batches: list[Any]) -> None:
    """The record, as JSON and as a page."""
    rates = {name: median(run["rows_per_second"] for run in runs if run["setup"] == name) for name in SETUPS}
    rows = [{"setup": name, "rate": rate, "ratio": rate / rates[FIRST]} for name, rate in rates.items()]
    for row in rows:
        mine = [run for run in runs if run["setup"] == row["setup"]]
        row["first"] = median(run["first_seconds"] for run in mine)
        row["client"] = median(run["client_cpu_us_per_row"] for run in mine)
    sections = [
        Section.of(
            "compared", f"{runs[0]['rows']:,} rows, side by side", """Medians of the rounds; the first rows come after
            the imports, and with workers after theirs. Batches of 256 rows. The scheduler of a local Dask cluster is in
            the client's process.""",
            [
                Column("setup", "who works", lambda r: r["setup"]),
                Column("rows_per_second", "rows/s", lambda r: r["rate"], number),
                Column("ratio", "to one thread", lambda r: r["ratio"], number),
                Column("first_seconds", "seconds to the first rows", lambda r: r["first"], number),
                Column("client_cpu_us_per_row", "client's processor, us per row", lambda r: r["client"], number),
            ],
            rows,
        ),
        Section.of(
            "long", "Memory of the client", """With processes:2. The images themselves are 256 bytes a row,
            and are read before the first rows are written.""",
            [
                Column("rows", "rows", lambda r: r["rows"], lambda n: f"{n:,}"),
                Column("rows_per_second", "rows/s", lambda r: r["rows_per_second"], number),
                Column("first_mb", "peak MB after the first rows", lambda r: r["client_mb_after_first_rows"], number),
                Column("last_mb", "after the last rows", lambda r: r["client_mb_after_last_rows"], number),
                Column("result_mb", "with the result read", lambda r: r["client_mb_with_the_result"], number),
                Column("proven", "PROVEN", lambda r: r["proven"], lambda n: f"{n:,}"),
            ],
            long,
        ),
        Section.of(
            "batches", "Batches without work",
            f"{EMPTY_BATCHES} of them, each answered with as much text as 256 rows have.",
            [
                Column("engine", "engine", lambda r: r["engine"]),
                Column("ms_per_batch", "ms per batch", lambda r: r["ms_per_batch"], number),
                Column("client_ms", "client's processor, ms", lambda r: r["client_cpu_ms_per_batch"], number),
            ],
            batches,
        ),
    ]  # fmt: skip
    for section in sections:
        show(Console(), section)
    source = origin("benchmarks.engines")
    record = source | {section.key: section.rows for section in sections} | {"runs": runs}
    out.mkdir(parents=True, exist_ok=True)
    (out / "engines.json").write_text(json.dumps(record, indent=1) + "\n")
    about = f"An affine head on six features of digits. The load was {source['machine']['load']:.1f} on these cores."
    (out / "engines.md").write_text(markdown("Engines, measured", f"{about} {made_by(source)}", sections))


if __name__ == "__main__":
    main()
