"""A training's folder belongs to one recipe and one process, and what is in it is whole or refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from berncert.extractor import miyato
from berncert.training.loop import train
from berncert.training.recipes import Recipe, load_recipe
from berncert.training.state import LOG, RECIPE, STATE, Average, claim_folder, load_weights, write_log, write_recipe


@pytest.fixture
def settings() -> Recipe:
    return load_recipe("moons", width=4, depth=1, epochs=1, train_limit=100, test_limit=50)


def test_another_recipe_in_the_same_folder_is_refused_naming_what_differs(settings: Recipe, tmp_path: Path) -> None:
    with claim_folder(tmp_path, settings):
        write_recipe(tmp_path, settings)
    other = settings.change(lr=0.5, width=6, mean=[0.5, 0.5])
    with pytest.raises(ValueError, match="expected a new folder or one of the same training") as error:
        train(other, tmp_path, progress=False)
    for words in (
        "training.lr (0.01 there, 0.5 here)",
        "model.options.width (4 there, 6 here)",
        "model.mean (None there, [0.5, 0.5] here)",
    ):
        assert words in str(error.value)
    train(settings, tmp_path, progress=False)


def test_a_folder_from_before_a_setting_was_invented_resumes(settings: Recipe, tmp_path: Path) -> None:
    train(settings, tmp_path, progress=False)
    entries = json.loads((tmp_path / RECIPE).read_text("utf-8"))
    del entries["training"]["start"]
    (tmp_path / RECIPE).write_text(json.dumps(entries))
    train(settings, tmp_path, progress=False)


def test_a_state_of_another_recipe_is_refused_even_without_its_recipe_file(settings: Recipe, tmp_path: Path) -> None:
    train(settings, tmp_path, progress=False)
    (tmp_path / RECIPE).unlink()
    with pytest.raises(ValueError, match=r"training\.lr"):
        train(settings.change(lr=0.5, epochs=2), tmp_path, progress=False)


def test_a_folder_in_use_is_refused_and_free_again_afterwards(settings: Recipe, tmp_path: Path) -> None:
    with (
        claim_folder(tmp_path, settings),
        pytest.raises(ValueError, match="expected a folder that no other training is writing to"),
    ):
        train(settings, tmp_path, progress=False)
    train(settings, tmp_path, progress=False)


def test_a_training_that_failed_frees_the_folder_at_once(settings: Recipe, tmp_path: Path) -> None:
    def fail(row: dict[str, float]) -> None:
        raise RuntimeError("cut off")

    with pytest.raises(RuntimeError, match="cut off") as kept:  # its traceback too, as a notebook does
        train(settings, tmp_path, progress=False, on_epoch=fail)
    with claim_folder(tmp_path, settings):
        assert kept.value.__traceback__ is not None


@pytest.mark.parametrize("way", ["a file", "below a file"])
def test_a_file_in_the_way_is_an_error(way: str, settings: Recipe, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    folder = tmp_path / "file" if way == "a file" else tmp_path / "file" / "run"
    with pytest.raises(OSError, match=f"expected a folder that can be written to, got {folder}"):
        train(settings, folder, progress=False)
    assert (tmp_path / "file").read_text("utf-8") == "mine"


def test_a_read_only_folder_is_an_error(settings: Recipe, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)  # so that others come this far
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # the superuser may write everywhere
        with pytest.raises(OSError, match=r"expected a folder that can be written to, got .*locked"):
            train(settings, folder, progress=False)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"'])
def test_a_recipe_file_that_is_not_one_is_an_error(content: str, settings: Recipe, tmp_path: Path) -> None:
    (tmp_path / RECIPE).write_text(content)
    with pytest.raises(ValueError, match=r"expected .*recipe\.json"):
        train(settings, tmp_path, progress=False)


@pytest.mark.parametrize("size", [0, 7, 300, -1])
def test_a_state_that_was_cut_off_is_refused(size: int, settings: Recipe, tmp_path: Path) -> None:
    train(settings, tmp_path, progress=False)
    path = tmp_path / STATE
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"expected .*state\.safetensors"):
        train(settings, tmp_path, progress=False)


def test_weights_of_another_network_are_refused_in_a_sentence_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / STATE
    with pytest.raises(
        ValueError, match=f"expected the weights of the recipe's network in {file}, got those of another"
    ):
        load_weights(nn.Linear(2, 3), nn.Linear(3, 3).state_dict(), file)


def test_a_training_leaves_no_other_files(settings: Recipe, tmp_path: Path) -> None:
    train(settings, tmp_path, progress=False)
    train(settings, tmp_path, progress=False)
    found = {path.name for path in tmp_path.iterdir()} - {".lock"}
    assert found == {"log.png", "log.tsv", "model.safetensors", "recipe.json", "state.safetensors"}
    assert json.loads((tmp_path / RECIPE).read_text("utf-8")) == json.loads(json.dumps(settings.as_dict()))


def test_the_log_keeps_every_digit_and_each_value_under_its_name(tmp_path: Path) -> None:
    rows = [{"epoch": 1, "loss": 0.1 + 0.2, "share": float("nan")}, {"share": 1 / 3, "loss": 5e-324, "epoch": 2}]
    write_log(tmp_path, rows)
    header, *lines = [line.split("\t") for line in (tmp_path / LOG).read_text("utf-8").splitlines()]
    found = [dict(zip(header, map(float, line), strict=True)) for line in lines]
    assert found[1] == rows[1]
    assert found[0]["loss"] == 0.1 + 0.2


def test_the_running_mean_follows_its_recursion_and_copies_what_only_counts() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = Average(model, decay=0.25)
    expected = model[0].weight.detach().double().clone()
    for step in range(1, 6):
        with torch.no_grad():
            model[0].weight.add_(torch.randn(2, 2))
            model[1].num_batches_tracked.add_(1)
        average.update(model)
        keep = min(0.25, step / (step + 10))
        expected = keep * expected + (1 - keep) * model[0].weight.detach().double()
    torch.testing.assert_close(average.values["0.weight"].double(), expected, rtol=1e-5, atol=1e-6)
    assert average.values["1.num_batches_tracked"] == 5


def test_the_mean_of_a_normalised_layer_is_normalised_too() -> None:
    layer = miyato(nn.Linear(20, 20))
    average = Average(layer, decay=0.9)
    for _ in range(60):
        with torch.no_grad():
            layer.parametrizations.weight.original.add_(0.1 * torch.randn(20, 20))
            layer(torch.zeros(1, 20))  # a step of its power iteration
        average.update(layer)
    layer.load_state_dict(average.values)
    assert float(torch.linalg.matrix_norm(layer.eval().weight.detach(), 2)) <= 1.03


def test_a_recipe_nested_without_end_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text('{"a":' * 100_000 + "0" + "}" * 100_000)
    with pytest.raises(ValueError, match=r"expected the recipe of a training in .*recipe\.json, got .* nested deeper"):
        train("moons", tmp_path, progress=False)
