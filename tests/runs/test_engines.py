"""Engines: every result once, in order, whatever happens to workers; and an end that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, cluster
from joblib.externals.loky import get_reusable_executor
from toy_jobs import Squares

from berncert.runs import dask_pool
from berncert.runs.dispatch import Dispatcher
from berncert.runs.engine import Pool, engine_of
from berncert.runs.worker import MODEL, MissingPartError

ITEMS = range(12)
SQUARES = [item * item for item in ITEMS]


@pytest.fixture(scope="module")
def dask_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as made:
        yield made


def engine_named(name: str, made: Cluster) -> Pool:
    return engine_of(f"dask:{made.address}" if name == "dask" else name)


def squares(pool: Pool, job: Squares, **options: Any) -> list[int]:
    with pool:
        return [result for group in Dispatcher(pool, job, **options).results(ITEMS) for result in group]


@pytest.mark.parametrize("name", ["serial", "processes:2", "dask"])
def test_every_result_comes_once_and_in_order(tmp_path: Path, dask_cluster: Cluster, name: str) -> None:
    job = Squares(tmp_path)
    assert squares(engine_named(name, dask_cluster), job) == SQUARES
    assert all(job.count(f"item {item}") == 1 for item in ITEMS)
    for worker in tmp_path.glob("*.txt"):
        assert worker.read_text().splitlines().count("prepared") == 1  # once per worker, then kept
    assert len(list(tmp_path.glob("*.txt"))) <= 2


@pytest.mark.parametrize("kind", ["threads", "loky"])
def test_any_executor_is_an_engine(tmp_path: Path, kind: str) -> None:
    executor: Executor = ThreadPoolExecutor(2) if kind == "threads" else get_reusable_executor(2)
    with executor:
        assert squares(engine_of(executor), Squares(tmp_path)) == SQUARES


@pytest.mark.parametrize("name", ["processes:2", "dask"])
@pytest.mark.parametrize("mischief", ["kill", "stop"])
def test_a_worker_that_is_killed_or_hangs_loses_nothing(
    tmp_path: Path, dask_cluster: Cluster, name: str, mischief: str
) -> None:
    job = Squares(tmp_path, mischief, at=5)
    timeout = 6.0 if mischief == "stop" else None
    assert squares(engine_named(name, dask_cluster), job, timeout=timeout) == SQUARES
    assert job.count("item 5") >= 2


@pytest.mark.parametrize("name", ["processes:2", "dask"])
def test_a_batch_that_ends_every_worker_ends_the_run_with_a_sentence_that_names_it(
    tmp_path: Path, dask_cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berncert.runs.dispatch.MOST_LOSSES", 1)
    job = Squares(tmp_path, "kill", at=2, times=99)
    with pytest.raises(
        RuntimeError, match=r"expected a worker to finish 2, got none: it ended with its worker, 2 times; .*memory"
    ):
        squares(engine_named(name, dask_cluster), job)
    assert squares(engine_named(name, dask_cluster), Squares(tmp_path)) == SQUARES  # the cluster is as good as before


@pytest.mark.parametrize("name", ["serial", "processes:1", "dask"])
def test_an_error_of_the_work_is_raised_as_it_is(tmp_path: Path, dask_cluster: Cluster, name: str) -> None:
    job = Squares(tmp_path, "fail", at=3, times=99)
    with pytest.raises(ArithmeticError, match="the work itself is wrong"):
        squares(engine_named(name, dask_cluster), job)
    assert job.count("item 3") == 1


def test_parts_that_workers_lack_are_sent(tmp_path: Path, dask_cluster: Cluster) -> None:
    job = Squares(tmp_path, wants=("model", "rows"))
    assert squares(engine_named("dask", dask_cluster), job) == SQUARES
    assert job.count("supplied model") == job.count("prepared") <= 2  # once for each worker
    assert job.count("supplied rows") >= len(ITEMS)


class Late(Pool):
    """One worker, which says that it lacks the model for item 1 while item 0 brings it; both are heard of at once."""

    def __init__(self) -> None:
        self.late: Future[Any] = Future()

    def slots(self) -> int:
        return 2

    def submit(self, job: Any, item: Any, supplies: Any, at: str = "") -> Future[Any]:
        if item == 1 and not at:
            return self.late
        future: Future[Any] = Future()
        if item == 0 and MODEL not in supplies:
            future.set_exception(MissingPartError(MODEL, "a worker"))
            return future
        future.set_result(item * item)
        if item == 0:
            self.late.set_exception(MissingPartError(MODEL, "a worker"))
        return future


def test_a_model_that_has_just_arrived_is_not_sent_again(tmp_path: Path) -> None:
    job = Squares(tmp_path)
    assert squares(Late(), job) == SQUARES
    assert job.count("supplied model") == 1


@pytest.mark.parametrize("name", ["serial", "processes:1", "dask"])
def test_a_worker_of_other_code_is_refused(tmp_path: Path, dask_cluster: Cluster, name: str) -> None:
    job = Squares(tmp_path, versions={"berncert": "0.0.7", "code": "other"})
    with pytest.raises(
        RuntimeError, match=r"expected workers with the code and versions of this run, got process \d+ of"
    ):
        squares(engine_named(name, dask_cluster), job)
    assert job.count("prepared") == 0


class Counting(Pool):
    """Threads that note how many items are out at most."""

    def __init__(self) -> None:
        self.executor, self.out, self.most = ThreadPoolExecutor(2), 0, 0

    def slots(self) -> int:
        return 2

    def submit(self, job: Any, item: Any, supplies: Any, at: str = "") -> Future[Any]:
        self.out += 1
        self.most = max(self.most, self.out)
        return self.executor.submit(job.prepare({}), item, supplies)


def test_no_more_is_handed_out_than_a_few_items_per_worker(tmp_path: Path) -> None:
    pool, job = Counting(), Squares(tmp_path)
    taken = 0
    for group in Dispatcher(pool, job).results(iter(range(500))):
        taken += len(group)
        pool.out -= len(group)
    pool.executor.shutdown()
    assert taken == 500
    assert pool.most <= 16  # eight per worker, finished ones that wait for their turn among them


def test_an_executor_that_broke_is_for_its_owner_to_mend(tmp_path: Path) -> None:
    message = "workers ended, and only who made it can restart it; make a new one"
    with ProcessPoolExecutor(1, get_context("spawn")) as executor, pytest.raises(RuntimeError, match=message):
        squares(engine_of(executor), Squares(tmp_path, "kill", at=4))


def test_a_restarted_scheduler_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    job = Squares(tmp_path / "notes", seconds=0.2)
    with cluster(tmp_path / "cluster", workers=1) as made, engine_of(f"dask:{made.file}") as pool:
        found = []
        for group in Dispatcher(pool, job).results(range(10)):
            found += group
            if len(found) >= 3 and made.scheduler is made.processes[0]:
                made.restart_scheduler()
                made.add_worker()
    assert found == [item * item for item in range(10)]


def test_a_cluster_that_is_gone_ends_the_run_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_pool, "PATIENCE_SECONDS", 1.0)
    (tmp_path / "notes").mkdir()
    job, pool = Squares(tmp_path / "notes", seconds=0.1), engine_of("dask:tcp://127.0.0.1:9")
    with pytest.raises(RuntimeError, match=r"expected a Dask scheduler with workers at tcp://127\.0\.0\.1:9, got none"):
        squares(pool, job)
    with pytest.raises(RuntimeError, match=r"missing\.json, got none \(there is no such file\)"):
        squares(engine_of(f"dask:{tmp_path / 'missing.json'}"), job)
    wrong = {
        '{"address': "it cannot be read",
        '{"address": 3}': "it is no scheduler file",
        "[]": "it is no scheduler file",
    }
    for content, trouble in wrong.items():
        (tmp_path / "wrong.json").write_text(content)
        with pytest.raises(RuntimeError, match=rf"wrong\.json, got none \({trouble}"):
            squares(engine_of(f"dask:{tmp_path / 'wrong.json'}"), job)
    message = "start dask scheduler and dask worker, and repeat the command"
    with cluster(tmp_path / "cluster", workers=0) as made, pytest.raises(RuntimeError, match=message):
        squares(engine_of(f"dask:{made.address}"), job)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("proceses:4", "did you mean processes"),
        ("processes", "expected engine processes:N with a whole number N from 1 to 1024, got ''"),
        ("processes:0", "N from 1 to 1024, got '0'"),
        ("processes:1000000000000", "from 1 to 1024, got '1000000000000'"),
        ("processes:-1", "N from 1 to 1024, got '-1'"),
        ("serial:4", "expected engine serial, got serial:4"),
        ("", "expected engine to be serial, processes:N, dask"),
        (
            "dask:nonsense",
            "expected engine dask:ADDRESS, e.g. dask:tcp://10.0.0.1:8786, or dask:SCHEDULER.json, got 'nons",
        ),
        ("dask:tcp://", "got 'tcp://'"),
        ("dask:http://host:1", "got 'http://host:1'"),
    ],
)
def test_what_is_no_engine_is_an_error_that_says_so(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine_of(text)


@pytest.mark.parametrize("name", ["processes:1", "dask"])
def test_a_script_that_starts_an_engine_wherever_it_is_read_is_told_so(tmp_path: Path, name: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from berncert.runs import dispatch\n"
        "from berncert.runs.engine import engine_of\n"
        "from toy_jobs import Squares\n"
        "dispatch.MOST_LOSSES = 1\n"
        f"with engine_of({name!r}) as pool:\n"
        "    list(dispatch.Dispatcher(pool, Squares(Path('.'))).results(range(3)))\n"
    )
    places = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=os.environ | {"PYTHONPATH": places}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "expected a script that starts an engine below `if __name__ ==" in done.stderr  # a worker says it
    assert "or a script without `if __name__ ==" in done.stderr  # and so does this process


def test_what_is_neither_text_nor_executor_is_an_error() -> None:
    with pytest.raises(TypeError, match="expected an engine such as 'processes:4', or an executor, got int"):
        engine_of(4)  # type: ignore[arg-type]
