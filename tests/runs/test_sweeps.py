"""Sweeps: every choice is trained once, in a folder of its own, on any engine, and a table says what came of it."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import berncert
from berncert.foundation.folders import claimed
from berncert.runs.sweep_job import SweepJob, Trial
from berncert.runs.sweeps import Sweep, execute_sweep, trials_of
from berncert.runs.versions import versions_of
from berncert.training.recipes import Recipe, load_recipe

QUICK = load_recipe("moons", epochs=2, width=8, train_limit=200)
OVER = {"radius": [0.1, 0.2]}


def swept(folder: Path, recipe: Recipe = QUICK, over: dict[str, list[Any]] = OVER, **options: Any) -> Sweep:
    return execute_sweep(recipe, folder, over, **{"threads": 1, "progress": False, **options})


def weights(sweep: Sweep) -> list[bytes]:
    return [(sweep.folder / row["folder"] / "model.safetensors").read_bytes() for row in sweep.rows]


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return swept(tmp_path_factory.mktemp("serial") / "sweep", seeds=2)


def test_every_choice_has_a_folder_with_what_train_writes_and_a_line(serial: Sweep, tmp_path: Path) -> None:
    names = ["radius0.1-seed0", "radius0.1-seed1", "radius0.2-seed0", "radius0.2-seed1"]
    assert [row["folder"] for row in serial.rows] == names
    assert {path.name for path in serial.folder.iterdir() if path.is_dir()} == set(names)
    alone = berncert.train(QUICK.change(radius=0.2, seed=1), tmp_path / "alone", progress=False)
    last = berncert.load(serial.folder / names[-1])
    assert all((a == b).all() for a, b in zip(last.parameters(), alone.parameters(), strict=True))
    header, *lines = (line.split("\t") for line in (serial.folder / "sweep.tsv").read_text().splitlines())
    written = [dict(zip(header, line, strict=True)) for line in lines]
    assert [(float(row["radius"]), int(row["seed"])) for row in written] == [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]
    assert [float(row["test_accuracy"]) for row in written] == [row["test_accuracy"] for row in serial.rows]


def test_averages_are_over_the_seeds_of_each_choice(serial: Sweep) -> None:
    first, second = serial.averages()
    a, b = (row["test_accuracy"] for row in serial.rows[:2])
    assert (first["radius"], first["seeds"], second["radius"]) == (0.1, 2, 0.2)
    assert first["test_accuracy"] == pytest.approx((a + b) / 2)
    assert first["test_accuracy_deviation"] == pytest.approx(abs(a - b) / math.sqrt(2))


def test_a_sweep_goes_on_on_another_engine_to_the_same_models_and_trains_nothing_twice(
    serial: Sweep, tmp_path: Path
) -> None:
    first = swept(tmp_path / "sweep", over={"radius": [0.2]}, seeds=2)
    before = {path: path.stat().st_mtime_ns for path in first.folder.glob("*/model.safetensors")}
    (first.folder / "radius0.2-seed1" / "log.tsv").unlink()  # as if it was killed before its last lines were written
    again = swept(tmp_path / "sweep", seeds=2, engine="processes:2")
    assert weights(again) == weights(serial)
    changed = {path.parent.name for path, time_ns in before.items() if path.stat().st_mtime_ns != time_ns}
    assert changed == {"radius0.2-seed1"}


def test_a_worker_that_does_not_see_the_folder_sends_its_files(serial: Sweep, tmp_path: Path) -> None:
    job = SweepJob(
        folder=str(tmp_path / "elsewhere"), ticket_sha256="", data_dir="/nowhere", device="cpu", threads=1, wait=True,
        versions=versions_of(["berncert"]),
    )  # fmt: skip
    (trial, *_) = trials_of(QUICK, OVER, 1)
    done = job.prepare({})(trial, {})
    assert done.files["model.safetensors"] == weights(serial)[0]
    assert done.log[-1]["test_accuracy"] == serial.rows[0]["test_accuracy"]
    assert not (tmp_path / "elsewhere").exists()


def test_files_that_were_sent_make_a_folder_that_is_complete(
    serial: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SweepJob, "_sees_folder", lambda job: False)
    sent = swept(tmp_path / "sweep", seeds=2)
    assert weights(sent) == weights(serial)
    monkeypatch.setattr(SweepJob, "prepare", None)  # whoever trains again fails
    assert weights(swept(tmp_path / "sweep", seeds=2)) == weights(serial)


def test_a_training_that_diverges_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    recipe = load_recipe("moons", epochs=1, width=8, train_limit=600, objective="plain", head="affine")
    sweep = swept(tmp_path / "sweep", recipe, {"lr": [1e38, 0.01]})
    assert list(sweep.failures) == ["lr1e+38-seed0"]
    assert "expected the loss to stay finite" in sweep.failures["lr1e+38-seed0"]
    diverged, ended = sweep.averages()
    assert (diverged["seeds"], diverged["failures"], ended["seeds"], ended["failures"]) == (0, 1, 1, 0)
    assert ended["test_accuracy"] > 0.4
    assert len((sweep.folder / "sweep.tsv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("over", "options", "message"),
    [
        ({"radius": [0.1, -1.0]}, {}, "radius >= 0, got -1"),
        ({"radus": [0.1]}, {}, "did you mean radius"),
        ({"radius": 0.1}, {}, "expected some values of radius to sweep over, got 0.1"),
        ({"radius": []}, {}, "expected some values of radius"),
        ({"optimizer": "adam"}, {}, "pass a list"),
        ({"radius": [1, 1]}, {}, "expected different values of radius"),
        ({"radius": [1, 1.0]}, {}, "folders have different names"),
        ({"dim": [2, 3]}, {}, r"expected dim = 2.*\(in dim3-seed0; nothing was trained\)"),
        ({"seed": [1, 2]}, {"seeds": 2}, "either seed to be swept over or a number of seeds"),
        ({}, {"seeds": 0}, "seeds >= 1, got 0"),
        (
            {"seed": list(range(101)), "epochs": list(range(1, 101))},
            {},
            "at most 10000 trainings in a sweep, got 10100",
        ),
        ({}, {"engine": "proceses:2"}, "did you mean processes"),
        ({}, {"timeout": 0}, "timeout > 0"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_trained(
    tmp_path: Path, over: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        execute_sweep(QUICK, tmp_path / "sweep", over, progress=False, **options)
    assert not (tmp_path / "sweep").exists()


def test_folders_of_other_trainings_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    swept(tmp_path / "sweep", QUICK.change(epochs=1), {"radius": [0.2]})
    with pytest.raises(ValueError, match=r"radius0.2-seed0, which differs in training.epochs \(1 there, 2 here\)"):
        swept(tmp_path / "sweep")
    assert not (tmp_path / "sweep" / "radius0.1-seed0").exists()


def test_a_folder_that_is_in_use_is_waited_for_by_workers_and_refused_here(tmp_path: Path) -> None:
    (trial, *_) = trials_of(QUICK, OVER, 1)
    with claimed(tmp_path / trial.name, "training"), pytest.raises(ValueError, match="no other training is writing to"):
        swept(tmp_path)
    hold = "import sys, time; from pathlib import Path; from berncert.foundation.folders import claimed\n"
    hold += "with claimed(Path(sys.argv[1]), 'training'): print(flush=True); time.sleep(4)"
    command = [sys.executable, "-c", hold, str(tmp_path / trial.name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder, ThreadPoolExecutor(1) as executor:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert len(swept(tmp_path, engine=executor).rows) == 2
        assert holder.wait() == 0


CLIENT = """
import sys
from pathlib import Path
from berncert.runs.sweeps import execute_sweep
from berncert.training.recipes import load_recipe
if __name__ == "__main__":
    recipe = load_recipe("moons", epochs=int(sys.argv[2]), width=8, train_limit=200)
    execute_sweep(recipe, sys.argv[1], {"radius": [0.1]}, engine=sys.argv[3], threads=1, progress=False)
"""


def test_a_client_that_is_killed_leaves_trainings_that_resume(tmp_path: Path) -> None:
    script, folder = tmp_path / "client.py", tmp_path / "awkward 'näme' & $HOME"
    script.write_text(CLIENT)
    client = subprocess.Popen([sys.executable, str(script), str(folder), "30", "processes:1"])
    log = folder / "radius0.1-seed0" / "log.tsv"
    while not log.exists() or len(log.read_text().splitlines()) < 4:
        assert client.poll() is None
        time.sleep(0.05)
    os.kill(client.pid, signal.SIGKILL)
    client.wait()
    trained = len(log.read_text().splitlines()) - 1
    recipe = QUICK.change(epochs=30)
    with ThreadPoolExecutor(1) as executor:  # it waits until the client's workers have noticed, and ended
        again = swept(folder, recipe, {"radius": [0.1]}, engine=executor)
    assert 3 <= trained < 30
    whole = swept(tmp_path / "whole", recipe, {"radius": [0.1]})
    assert weights(again) == weights(whole)


def test_trials_pickle_and_their_names_are_what_errors_call_them() -> None:
    trial = trials_of(QUICK, {"radius": [0.5], "width": [16], "dataset": ["my/own data"]}, 1)[0]
    assert isinstance(trial, Trial)
    assert str(trial) == "radius0.5-width16-datasetmy_own_data-seed0"
    assert trial.recipe.model.options["width"] == 16
