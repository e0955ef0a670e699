"""Training: whatever cuts it off, it ends in the same bits; what cannot work is refused before anything is done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

import berncert
from berncert import data
from berncert.certification.classifier import Classifier
from berncert.extractor import FrozenNetwork
from berncert.hardware import has_bfloat16
from berncert.models.checkpoint import load, open_checkpoint
from berncert.models.tensor_file import read_tensors
from berncert.training import state
from berncert.training.loop import train
from berncert.training.model import build_model
from berncert.training.recipes import Recipe, load_recipe
from berncert.training.state import FORMAT, STATE

TIMES = {"seconds", "images_per_second"}
PAPER = {"construction": "paper", "side": None, "objective": "plain", "head": "affine"}
VARIANTS: dict[str, dict[str, Any]] = {
    "adam": {},
    "adam, mean of the weights": {"ema": 0.9, "head": "polynomial", "degree": 2},
    "sgd": {"optimizer": "sgd", "head": "affine"},
    "sgd, mean of the weights": {"optimizer": "sgd", "lr": 0.1, "ema": 0.9, "head": "mlp", "degree": 2},
    "miyato": PAPER,
    "miyato, mean of the weights": {**PAPER, "ema": 0.9, "optimizer": "sgd"},
    "adversarial": {"objective": "adversarial", "attack_steps": 2},
    "gaussian": {"objective": "gaussian", "noise": 0.05, "schedule": "cosine"},
    "distances": {
        "architecture": "distnet", "norm": float("inf"), "options": {"depth": 1, "width": 8}, "side": 3.0, "ema": 0.5,
    },
    "local": {
        "dataset": "digits", "architecture": "cnn", "construction": "ordinary", "side": None, "dim": 10,
        "options": {"width": 4, "hidden": 8}, "norm": float("inf"), "route": "local", "train_limit": 60,
        "batch_size": 30, "ema": 0.5,
    },
    "affine in many features": {"dataset": "digits", "dim": 20, "head": "affine", "train_limit": 60, "side": 8.0},
    "convolutions": {
        "dataset": "digits", "architecture": "resnet", "options": {"depth": 8, "width": 4}, "dim": 10,
        "crop": 1, "flip": True, "train_limit": 60, "batch_size": 30, "side": 8.0,
    },
    "convolutions, coefficients with five axes": {
        "dataset": "digits", "architecture": "resnet", "options": {"depth": 8, "width": 4}, "dim": 4,
        "head": "polynomial", "degree": 1, "train_limit": 60, "batch_size": 30, "side": 8.0,
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """To draw the log takes longer than all the rest; tests/training/test_state.py has it drawn."""
    monkeypatch.setattr(state, "training_figure", lambda *args: Figure(figsize=(1, 1)))


def recipe(**changes: Any) -> Recipe:
    """Two moons, a narrow network, three epochs of three steps."""
    small = {"epochs": 3, "train_limit": 300, "test_limit": 100}
    start = load_recipe("moons", width=8, depth=1)
    return start.change(**{**small, **changes})


def weights(model: Classifier) -> dict[str, Tensor]:
    """All the numbers of a model, frozen or not."""
    frozen = model.extractor.as_data()[1] if isinstance(model.extractor, FrozenNetwork) else {}
    return {key: value.clone() for key, value in {**model.state_dict(), **frozen}.items()}


def log_of(folder: Path) -> list[dict[str, float]]:
    """The rows of log.tsv by column, times left out."""
    header, *rows = [line.split("\t") for line in (folder / "log.tsv").read_text("utf-8").splitlines()]
    assert {len(row) for row in rows} == {len(header)}
    return [{k: float(v) for k, v in zip(header, row, strict=True) if k not in TIMES} for row in rows]


def assert_same_training(one: Path, other: Path) -> None:
    """The same log, the same last state and the same model, to the last bit; times aside."""
    (a, about_a), (b, about_b) = (read_tensors(folder / STATE, FORMAT) for folder in (one, other))
    assert about_a["epoch"] == about_b["epoch"]
    assert_same_tensors(a, b)
    for base in (False, True):
        assert_same_tensors(*(weights(load(folder / "model.safetensors", base=base)) for folder in (one, other)))
    np.testing.assert_equal(log_of(one), log_of(other))


def assert_same_tensors(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [key for key in a if not torch.equal(a[key], b[key])]
    assert not different


def run(settings: Recipe, folder: Path, **options: Any) -> Classifier:
    return train(settings, folder, progress=False, **options)


def interrupt_after(epochs: int, error: type[BaseException]) -> Callable[[dict[str, float]], None]:
    """A function for on_epoch that raises after so many epochs."""

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == epochs:
            raise error("cut off")

    return stop


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_that_was_interrupted_ends_in_the_same_bits(name: str, tmp_path: Path) -> None:
    settings = recipe(**VARIANTS[name])
    whole = run(settings, tmp_path / "whole")
    for epochs, error in ((1, KeyboardInterrupt), (2, RuntimeError)):
        with pytest.raises(error, match="cut off"):
            run(settings, tmp_path / "cut", on_epoch=interrupt_after(epochs, error))
    resumed = run(settings, tmp_path / "cut")
    assert_same_tensors(weights(whole), weights(resumed))
    assert_same_training(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("after", [False, True], ids=["before the file is there", "after it is there"])
def test_a_run_cut_off_at_any_file_it_writes_ends_in_the_same_bits(
    after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, replace, writes = recipe(epochs=2), os.replace, []
    monkeypatch.setattr(os, "replace", lambda *names: (writes.append(names), replace(*names)))
    run(settings, tmp_path / "whole")
    for fatal in range(len(writes)):
        folder, left = tmp_path / f"cut{fatal}", iter(range(len(writes)))

        def cut_off(*names: Any, fatal: int = fatal, left: Any = left) -> None:
            if next(left, None) == fatal:
                if after:
                    replace(*names)
                raise KeyboardInterrupt
            replace(*names)

        monkeypatch.setattr(os, "replace", cut_off)
        with pytest.raises(KeyboardInterrupt):
            run(settings, folder)
        monkeypatch.setattr(os, "replace", replace)
        run(settings, folder)
        assert_same_training(tmp_path / "whole", folder)


KILLED = """
import json, sys, torch
from berncert.training.recipes import Recipe
from berncert.training.loop import train
torch.set_num_threads(1)
def print_epoch(row):
    print(int(row["epoch"]), flush=True)
train(Recipe.from_dict(json.loads(sys.argv[1])), sys.argv[2], progress=False, on_epoch=print_epoch)
"""


def start(settings: Recipe, folder: Path) -> subprocess.Popen[str]:
    """The training in a process of its own, which prints the number of each epoch that is done."""
    command = [sys.executable, "-c", KILLED, json.dumps(settings.as_dict()), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_run_killed_at_a_random_moment_ends_in_the_same_bits_and_meanwhile_nobody_else_may_write(
    tmp_path: Path,
) -> None:
    settings = recipe(epochs=10, ema=0.9, train_limit=None)
    child = start(settings, tmp_path / "killed")
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
        with pytest.raises(ValueError, match="expected a folder that no other training is writing to"):
            run(settings, tmp_path / "killed")
        time.sleep(float(np.random.default_rng().uniform(0.0, 0.06)))
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert read_tensors(tmp_path / "killed" / STATE, FORMAT)[1]["epoch"] >= 1
    run(settings, tmp_path / "killed")
    run(settings, tmp_path / "whole")
    assert_same_training(tmp_path / "whole", tmp_path / "killed")


def test_a_finished_run_is_not_trained_again_and_a_lost_model_comes_back_from_the_state(tmp_path: Path) -> None:
    first = run(recipe(ema=0.5), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    again = run(recipe(ema=0.5), tmp_path, on_epoch=interrupt_after(1, RuntimeError))
    assert_same_tensors(weights(first), weights(again))


def test_training_takes_no_random_numbers_from_its_caller(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    a = run(recipe(), tmp_path / "a")
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(6)
    assert_same_tensors(weights(a), weights(run(recipe(), tmp_path / "b")))
    assert a.extractor.digest() != run(recipe(seed=1), tmp_path / "c").extractor.digest()


OBJECTIVES: dict[str, dict[str, Any]] = {
    "plain, base": {"objective": "plain", "through": "base", "head": "affine"},
    "plain, smoothed": {"objective": "plain"},
    "adversarial, base": {"objective": "adversarial", "through": "base", "attack_steps": 2},
    "adversarial, smoothed": {"objective": "adversarial", "attack_steps": 2, "head": "polynomial", "degree": 2},
    "certified, linearised": {},
    "certified, linearised, bent": {"head": "mlp", "degree": 3, "boundary_weight": 0.1, "lr": 0.02},
    "certified, attacked": {"attack_steps": 3},
    "gaussian, base": {"objective": "gaussian", "through": "base", "noise": 0.03},
    "gaussian, smoothed": {"objective": "gaussian", "noise": 0.03, "head": "polynomial", "degree": 2},
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_learns_the_moons(name: str, tmp_path: Path) -> None:
    settings = load_recipe("moons", width=32, depth=2, epochs=8, test_limit=None).change(**OBJECTIVES[name])
    model = run(settings, tmp_path)
    test = data.load("moons", "test")
    accuracy = float((model(test.images).argmax(dim=1) == test.labels).double().mean())
    assert accuracy >= 0.84
    last = log_of(tmp_path)[-1]
    assert last["test_accuracy"] == pytest.approx(accuracy, abs=0.005)
    assert last["test_certified_estimate"] <= last["test_accuracy"]


def test_an_ordinary_network_learns_to_be_proven_by_the_local_route(tmp_path: Path) -> None:
    settings = recipe(**VARIANTS["local"] | {"architecture": "mlp", "options": {"depth": 1, "width": 40}}).change(
        train_limit=None, epochs=8, radius=0.05, temperature=0.1, ema=0.0
    )
    model = run(settings, tmp_path)
    test, last = data.load("digits", "test", limit=100), log_of(tmp_path)[-1]
    proven = berncert.certify(model, test.images, norm=np.inf, radius=0.05).certified_accuracy(test.labels, [0.05])
    assert 0.6 < last["test_certified_estimate"] <= proven[0]


def test_the_estimate_in_the_log_is_what_is_then_proven(tmp_path: Path) -> None:
    model = run(recipe(test_limit=None, epochs=6), tmp_path)
    test = data.load("moons", "test")
    c = berncert.certify(model, test.images)
    proven = ((c.predicted == test.labels.numpy()) & (c.radius >= 0.05)).mean()
    assert log_of(tmp_path)[-1]["test_certified_estimate"] == pytest.approx(proven, abs=0.011)


def test_the_checkpoint_says_how_it_was_made(tmp_path: Path) -> None:
    settings = recipe()
    run(settings, tmp_path)
    about = open_checkpoint(tmp_path / "model.safetensors").about
    assert Recipe.from_dict(about["recipe"]) == settings
    assert (about["data"]["classes"], about["data"]["images"], about["epochs"]) == (["upper", "lower"], 300, 3)


def test_the_seed_alone_decides_how_a_model_starts() -> None:
    models = [build_model(recipe(seed=seed, head="mlp"), (2,), 2) for seed in (0, 0, 1)]
    assert_same_tensors(weights(models[0]), weights(models[1]))
    assert not torch.equal(models[0].head.layers[0].weight, models[2].head.layers[0].weight)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "certified with the paper's construction": (
        {"construction": "paper", "side": None}, "expected an extractor in the lipschitz construction"),
    "identity head": ({"dim": 3}, "expected dim = 2, as many features as classes, with the identity head, got 3"),
    "odd width": ({"width": 5}, "expected an even number of channels"),
    "no such data": ({"dataset": "moonz"}, "expected one of moons, "),
    "local in l2": ({"route": "local"}, "expected norm = inf, no attack_steps and float32 with route='local'"),
    "local of weights at a norm": (
        {"route": "local", "norm": float("inf")}, "expected a network that intervals pass .*lipschitz construction"),
    "local of distances": (
        {"route": "local", "norm": float("inf"), "architecture": "distnet"}, "expected a network that intervals pass"),
    "side of no cube": ({"construction": "paper", "objective": "plain"}, "expected .*side"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused(name: str, tmp_path: Path) -> None:
    changes, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        run(recipe(**changes), tmp_path, device="cpu")


def test_half_precision_is_refused_where_the_processor_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berncert.training.loop.has_bfloat16", lambda device: False)
    with pytest.raises(ValueError, match="expected precision='float32' on this cpu, got 'bfloat16'"):
        run(recipe(precision="bfloat16"), tmp_path, device="cpu")


@pytest.mark.skipif(not has_bfloat16(torch.device("cpu")), reason="this processor has no bfloat16")
def test_half_precision_trains_on_a_processor_that_has_it(tmp_path: Path) -> None:
    run(recipe(precision="bfloat16"), tmp_path, device="cpu")
    assert open_checkpoint(tmp_path / "model.safetensors").about["recipe"]["training"]["precision"] == "bfloat16"


@pytest.mark.parametrize("name", ["certified with the paper's construction", "identity head", "no such data"])
def test_a_recipe_that_was_refused_does_not_occupy_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected"):
        run(recipe(**REFUSED[name][0]), tmp_path)
    run(recipe(epochs=1), tmp_path)


def test_a_loss_that_is_no_number_is_an_error_and_the_last_checkpoint_is_kept(tmp_path: Path) -> None:
    settings = recipe(**PAPER, schedule="constant", optimizer="sgd")
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path, on_epoch=interrupt_after(1, KeyboardInterrupt))
    before = {name: (tmp_path / name).read_bytes() for name in (STATE, "model.safetensors", "log.tsv")}
    poisoned = data.load("moons", "train", limit=300)
    poisoned.images[7] = torch.nan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "load", lambda *args, **kwargs: poisoned)
        with pytest.raises(FloatingPointError, match="expected the loss to stay finite, got nan in epoch 2"):
            run(settings, tmp_path)
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    run(settings, tmp_path)


@pytest.mark.parametrize("changes", [{}, {"head": "affine"}, PAPER], ids=["identity", "affine", "paper"])
def test_steps_that_are_far_too_large_are_an_error_that_says_so(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match=r"expected the loss to stay finite.*lower lr"):
        run(recipe(**{**changes, "optimizer": "sgd", "lr": 1e30, "schedule": "constant"}), tmp_path)


def test_the_head_has_a_learning_rate_of_its_own(tmp_path: Path) -> None:
    settings = recipe(head="affine", head_lr=1e-9)
    start = build_model(settings, (2,), 2).head.state_dict()
    run(settings, tmp_path)
    end = load(tmp_path, base=True).head.state_dict()
    assert all(torch.allclose(start[name], end[name], atol=1e-6) for name in start)
    run(recipe(head="affine"), tmp_path / "usual")
    moved = load(tmp_path / "usual", base=True).head.state_dict()
    assert not all(torch.allclose(start[name], moved[name], atol=1e-3) for name in start)


def test_the_log_of_a_training_with_holdout_is_of_held_out_images_and_its_weights_can_be_tuned_further(
    tmp_path: Path,
) -> None:
    model = run(recipe(holdout=True, test_limit=None), tmp_path / "first")
    last, held = log_of(tmp_path / "first")[-1], data.load("moons", "holdout")
    assert not {name for name in last if name.startswith("test")}
    accuracy = float((berncert.certify(model, held.images).predicted == held.labels.numpy()).mean())
    assert last["holdout_accuracy"] == pytest.approx(accuracy, abs=0.011)
    run(recipe(holdout=True, start=str(tmp_path / "first")), tmp_path / "second")
    run(recipe(), tmp_path / "all")
    with pytest.raises(ValueError, match="expected a start that was trained with holdout too"):
        run(recipe(holdout=True, start=str(tmp_path / "all")), tmp_path / "third")
