"""Runs on engines: wherever the batches are worked on, a run has the rows that it has on one machine, times aside."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, cluster

import berncert
from berncert.attacks.methods import Pgd
from berncert.certification.methods import Exact
from berncert.runs import image_job
from berncert.runs.execute import execute
from berncert.runs.records import Run
from berncert.runs.settings import RunSettings
from berncert.runs.table_settings import TableSettings
from berncert.runs.tables import execute_table
from berncert.runs.worker import MODEL, ROWS

SETTINGS = RunSettings(limit=12, batch_size=4)
Executed = Callable[..., Run]


def certify(folder: Path, **options: Any) -> Run:
    return execute("digits", Exact(tolerance=1e-2), folder, SETTINGS, progress=False, **options)


def attack(folder: Path, **options: Any) -> Run:
    return execute("digits", Pgd(radii=(0.25, 1.0), steps=3), folder, SETTINGS, progress=False, **options)


def table(folder: Path, **options: Any) -> Run:
    settings = TableSettings(target="class", model="logistic", degree=4, dim=2, limit=20)
    return execute_table("iris", folder, settings, threads=1, progress=False, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=1) as started:
        yield started


def lines(run: Run) -> list[str]:
    (path,) = run.path.glob("*.tsv")
    rows = (line.split("\t") for line in path.read_text("utf-8").splitlines())
    return ["\t".join(cell for k, cell in enumerate(row) if k != 5) for row in rows]  # times differ


def cut(run: Run, folder: Path, rows: int) -> Path:
    """The folder of the same run, killed after so many rows and a part of the next."""
    shutil.copytree(run.path, folder)
    (path,) = folder.glob("*.tsv")
    whole = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(whole[: rows + 1]) + whole[rows + 1][:9], "utf-8")
    return folder


@pytest.mark.parametrize("run", [certify, attack, table])
def test_a_run_begun_here_goes_on_on_a_cluster_to_the_same_rows(tmp_path: Path, made: Cluster, run: Executed) -> None:
    here = run(tmp_path / "here")
    there = run(cut(here, tmp_path / "there", 5), engine=f"dask:{made.address}", timeout=120)
    assert lines(there) == lines(here)
    assert there.complete


def test_a_run_begun_on_a_cluster_goes_on_in_processes_and_here(tmp_path: Path, made: Cluster) -> None:
    first = certify(tmp_path / "a folder's name: ä, %s, $X", engine=f"dask:{made.file}")
    assert first.about["origin"]["engine"] == f"dask:{made.file}"
    second = certify(cut(first, tmp_path / "second", 6), engine="processes:1")
    assert lines(second) == lines(first) == lines(certify(cut(first, tmp_path / "third", 0)))


class Elsewhere(Executor):
    """As a machine that has none of the client's files: what is handed out is pickled, and reading fails."""

    num_workers = 1

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch, self.supplied = monkeypatch, list[str]()

    def submit(self, work: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        job, item, supplies = pickle.loads(pickle.dumps(arguments))
        self.supplied += supplies
        future: Future[Any] = Future()
        with self.monkeypatch.context() as patched:
            patched.setattr(Path, "read_bytes", missing)
            patched.setattr(image_job.data, "load", missing)
            try:
                future.set_result(work(job, item, supplies))
            except Exception as error:
                future.set_exception(error)
        return future


def missing(*_: Any, **__: Any) -> Any:
    raise FileNotFoundError("not on this machine")


def test_a_worker_without_the_files_is_sent_the_model_once_and_the_rows_of_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Elsewhere(monkeypatch)
    there = certify(tmp_path / "there", engine=executor, threads=1)
    assert lines(there) == lines(certify(tmp_path / "here"))
    assert executor.supplied.count(MODEL) == 1
    assert executor.supplied.count(ROWS) == 3  # twelve images, four at a time


def test_a_worker_of_another_version_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    source = Path(berncert.__file__).parent
    other = shutil.copytree(source, tmp_path / "other" / "berncert", ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "runs" / "settings.py").open("a") as file:
        file.write("# another one\n")
    with cluster(tmp_path / "cluster", workers=0) as started:
        started.add_worker(path=str(other.parent))
        with pytest.raises(RuntimeError, match=r"got process \d+ of .*, which differs in code \(.*install the same"):
            certify(tmp_path / "run", engine=f"dask:{started.address}")
    assert (tmp_path / "run" / "certificates.tsv").read_text().count("\n") == 1  # the names of the columns


def test_a_client_that_is_killed_takes_its_workers_along_and_loses_nothing(tmp_path: Path) -> None:
    words = ["certify", "digits", "--tolerance", "1e-2", "--batch-size", "4", "--engine", "processes:1"]
    client = subprocess.Popen(
        [sys.executable, "-m", "berncert", *words, "--out", str(tmp_path / "run")], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    rows = tmp_path / "run" / "certificates.tsv"
    while not rows.exists() or rows.read_bytes().count(b"\n") < 6:
        assert client.poll() is None
        time.sleep(0.01)
    workers = children(client.pid)
    os.kill(client.pid, signal.SIGKILL)
    client.wait()
    settings = RunSettings(batch_size=4)
    again = execute("digits", Exact(tolerance=1e-2), tmp_path / "run", settings, progress=False)
    whole = execute("digits", Exact(tolerance=1e-2), tmp_path / "whole", settings, progress=False)
    assert lines(again) == lines(whole)
    assert workers
    while any(map(is_running, workers)):  # without an end, should one go on
        time.sleep(0.05)


def is_running(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, and nobody has asked for its exit code


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
