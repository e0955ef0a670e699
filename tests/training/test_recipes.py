"""Recipes: those that are shipped work, and what makes no sense is an error before anything is trained."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from berncert.extractor import ARCHITECTURES, CONSTRUCTIONS
from berncert.models.heads import HEADS
from berncert.training.loop import OPTIMIZERS
from berncert.training.model import build_model
from berncert.training.recipes import SECTION_OF, SECTIONS, Recipe, load_recipe, parse_change, parse_value, recipe_names
from berncert.training.recipes.settings import ModelSettings, TrainingSettings
from berncert.training.schedules import SCHEDULES

SHAPES = {"moons": ((2,), 2), "digits": ((1, 8, 8), 10), "mnist": ((1, 28, 28), 10), "cifar10": ((3, 32, 32), 10),
          "cifar100": ((3, 32, 32), 100), "svhn": ((3, 32, 32), 10)}  # fmt: skip


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_of_the_package_loads_and_its_model_takes_its_images(name: str) -> None:
    recipe = load_recipe(name)
    shape, classes = SHAPES[recipe.data.dataset]
    assert (recipe.name, bool(recipe.about)) == (name, True)
    model = build_model(recipe, shape, classes).eval()
    assert model(torch.rand(2, *shape)).shape == (2, classes)


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_survives_the_way_through_a_dictionary_and_json(name: str) -> None:
    recipe = load_recipe(name, mean=[0.25], epochs=7)
    assert Recipe.from_dict(recipe.as_dict()) == recipe
    assert Recipe.from_dict(json.loads(json.dumps(recipe.as_dict()))) == recipe
    assert Recipe.from_dict(recipe.as_dict()).as_dict() == recipe.as_dict()


def test_no_two_settings_have_the_same_name_and_each_is_explained() -> None:
    names = [entry.name for kind in SECTIONS.values() for entry in fields(kind)]
    assert len(names) == len(set(names)) == len(SECTION_OF)
    assert all(entry.metadata["help"] for kind in SECTIONS.values() for entry in fields(kind))


def test_every_choice_is_one_that_the_training_knows() -> None:
    choices = {entry.name: entry.metadata.get("choices") for entry in fields(TrainingSettings)}
    assert set(choices["schedule"]) == set(SCHEDULES)
    assert set(choices["optimizer"]) == set(OPTIMIZERS)


def test_settings_are_changed_wherever_they_belong() -> None:
    recipe = load_recipe("mnist", epochs=3, width=128, crop=2, dim=12, head="affine", side=2)
    assert recipe.training.epochs == 3
    assert recipe.model.options == {"depth": 4, "width": 128}
    assert (recipe.data.crop, recipe.model.dim, recipe.model.head) == (2, 12, "affine")
    assert (recipe.model.side, type(recipe.model.side)) == (2.0, float)
    assert load_recipe("mnist").training.epochs != 3


def test_changing_nothing_changes_nothing_and_changes_add_up() -> None:
    recipe = load_recipe("digits")
    assert recipe.change() == recipe
    assert recipe.change(lr=0.5).change(width=16) == recipe.change(lr=0.5, width=16)
    assert recipe.change(options={"depth": 1}).model.options == {"depth": 1}


def test_options_of_another_architecture_are_not_carried_over() -> None:
    recipe = load_recipe("mnist", architecture="resnet")  # a depth of 4 makes sense for an mlp only
    assert build_model(recipe, (1, 28, 28), 10)(torch.rand(1, 1, 28, 28)).shape == (1, 10)


def test_options_that_come_with_the_new_architecture_are_taken() -> None:
    assert load_recipe("mnist", architecture="patchnet", width=8, dense=1).model.options["dense"] == 1
    with pytest.raises(ValueError, match=r"expected a setting out of .*got 'depth'"):
        load_recipe("mnist", architecture="resnet110", depth=20)


UNKNOWN = [
    ({"epoch": 3}, "got 'epoch'; did you mean epochs?"),
    ({"widht": 3}, "got 'widht'; did you mean width?"),
    ({"growth": 3}, "got 'growth'"),
    ({"options": {"growth": 3}}, "expected a setting out of .*got 'growth'"),
    ({"options": {"dim": 3}}, "expected a setting out of .*got 'dim'"),
]


@pytest.mark.parametrize(("changes", "says"), UNKNOWN)
def test_unknown_settings_are_refused_with_a_guess(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match="expected a setting out of") as error:
        load_recipe("mnist", **changes)
    assert says.removeprefix("expected a setting out of .*") in str(error.value)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"epochs": "3"}, "expected epochs to be a whole number, got '3'"),
    ({"epochs": 3.0}, "expected epochs to be a whole number, got 3.0"),
    ({"epochs": True}, "expected epochs to be a whole number, got True"),
    ({"epochs": None}, "expected epochs to be a whole number, got None"),
    ({"epochs": 0}, "expected epochs >= 1, got 0"),
    ({"lr": "fast"}, "expected lr to be a number, got 'fast'"),
    ({"lr": 0}, "expected a finite lr > 0, got 0"),
    ({"lr": -1.0}, "expected a finite lr > 0, got -1.0"),
    ({"lr": math.nan}, "expected a finite lr > 0, got nan"),
    ({"lr": math.inf}, "expected a finite lr > 0, got inf"),
    ({"lr": 10**400}, "expected .*lr"),
    ({"flip": 1}, "expected flip to be true or false, got 1"),
    ({"dataset": 5}, "expected dataset to be text, got 5"),
    ({"radius": -0.1}, "expected a finite radius >= 0, got -0.1"),
    ({"ema": 1.0}, "expected ema below 1, got 1.0"),
    ({"lr_warmup": 1}, "expected lr_warmup below 1, got 1.0"),
    ({"radius_warmup": 2.0}, "expected radius_warmup below 1, got 2.0"),
    ({"optimizer": "adamw"}, "expected optimizer out of adam, sgd, got 'adamw'"),
    ({"objective": "hinge"}, "expected objective out of plain, adversarial, certified, gaussian, got 'hinge'"),
    ({"through": "base"}, "expected through='smoothed' with the certified objective, got 'base'"),
    (
        {"objective": "adversarial", "attack_steps": 0},
        "expected attack_steps >= 1 with the adversarial objective, got 0",
    ),
    ({"architecture": "resnet19"}, "expected .* out of mlp, .*got 'resnet19'"),
    ({"architecture": ["mlp"]}, r"expected .*got \['mlp'\]"),
    ({"construction": "best"}, "expected .* out of lipschitz, paper.* got 'best'"),
    ({"head": "linear"}, "expected head out of identity, affine, mlp, polynomial, groups, got 'linear'"),
    ({"mean": 0.5}, "expected mean to be a list of numbers, got 0.5"),
    ({"mean": []}, r"expected mean to be a list of numbers, got \[\]"),
    ({"mean": [True]}, "expected mean to be a list of numbers"),
    ({"mean": [math.nan]}, "expected .*mean.*nan"),
    ({"std": [math.inf]}, "expected .*std.*inf"),
    ({"side": 0}, "expected a finite side > 0, got 0"),
    ({"side": None, "construction": "paper", "depth": 2.5}, "expected depth to be a whole number, like 3, got 2.5"),
    ({"width": "wide"}, "expected width to be a whole number, like 256, got 'wide'"),
    ({"width": True}, "expected width to be a whole number, like 256, got True"),
    ({"options": 3}, "expected .*options"),
    ({"seed": -1}, "expected seed >= 0, got -1"),
    ({"seed": 2**64}, "expected .*seed"),
]


@pytest.mark.parametrize(("changes", "says"), WRONG, ids=lambda value: str(value)[:30])
def test_values_that_make_no_sense_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_recipe("mnist", **changes)


ENTRIES: list[tuple[dict[str, Any], str]] = [
    ({"trainings": {}}, "expected a setting out of .*got 'trainings'; did you mean training"),
    ({"training": {"epoch": 3}}, "got 'training.epoch'; did you mean training.epochs"),
    ({"training": {"width": 3}}, "expected a setting out of training.*got 'training.width'"),
    ({"training": 3}, r"expected \[training\] to be a table of settings, got 3"),
    ({"model": {"options": 3}}, "expected .*options"),
    ({"model": {"options": {"dept": 3}}}, "got 'dept'; did you mean depth"),
    ({"name": 3}, "expected name to be text, got 3"),
    ({"about": ["x"]}, "expected about to be text"),
]


@pytest.mark.parametrize(("entries", "says"), ENTRIES, ids=str)
def test_entries_that_make_no_sense_are_refused(entries: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Recipe.from_dict(entries)


def test_a_recipe_can_be_a_file_of_ones_own_and_extend_another(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('about = "x"\nextends = "mnist"\n[model]\noptions = { width = 8 }\n[training]\nlr = 1\n')
    recipe = load_recipe(path, epochs=2)
    assert (recipe.name, recipe.about, recipe.training.lr, recipe.training.epochs) == ("mine", "x", 1.0, 2)
    assert recipe.model.options == {"depth": 4, "width": 8}
    assert load_recipe(str(path)).data.dataset == "mnist"
    second = tmp_path / "second.toml"
    second.write_text(f"extends = {json.dumps(str(path))}\n[training]\nlr = 2\n")
    assert (load_recipe(second).training.lr, load_recipe(second).model.options["width"]) == (2.0, 8)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[training\n", "expected a TOML file, got .*mine.toml'"),
        ('extends = "mnits"', "expected one of the recipes .*did you mean mnist"),
        ("extends = 3", "expected .*3"),
        ("[training]\nepoch = 3", "did you mean training.epochs"),
    ],
)
def test_a_file_that_is_no_recipe_is_an_error(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ValueError, match=says):
        load_recipe(tmp_path / "mine.toml")


def test_a_file_that_extends_itself_or_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"extends = {json.dumps(str(path))}")
    with pytest.raises(ValueError, match="expected a recipe that does not extend itself"):
        load_recipe(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"expected .*mine\.toml"):
        load_recipe(path)
    for name in ("mnits", tmp_path, tmp_path / "none.toml"):
        with pytest.raises(ValueError, match="expected one of the recipes"):
            load_recipe(name)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("epochs=3", ("epochs", 3)),
        (" lr = 1e-3 ", ("lr", 1e-3)),
        ("flip=true", ("flip", True)),
        ("mean=[0.5, 1]", ("mean", [0.5, 1])),
        ("head=mlp", ("head", "mlp")),
        ("head='mlp'", ("head", "mlp")),
        ("dataset=/a/b=c.npz", ("dataset", "/a/b=c.npz")),
        ("side=none", ("side", None)),
        ("side=None", ("side", None)),
        ("dataset=", ("dataset", "")),
        ("dataset=C:\\data", ("dataset", "C:\\data")),
    ],
)
def test_a_change_is_read_as_in_a_toml_file_or_as_plain_text(text: str, change: tuple[str, Any]) -> None:
    assert parse_change(text) == change


@pytest.mark.parametrize("text", ["epochs", "=3", " = 3", ""])
def test_a_change_without_a_name_or_a_value_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expected a change like epochs=3"):
        parse_change(text)


def test_a_file_with_another_architecture_does_not_inherit_the_options_of_the_old(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "mnist"\n[model]\narchitecture = "resnet"\n')
    assert load_recipe(tmp_path / "mine.toml").model.options == {}


def test_a_recipe_extends_a_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "basis.toml").write_text('extends = "moons"\nabout = "old"\n[training]\nepochs = 7\n')
    (tmp_path / "sub" / "top.toml").write_text('extends = "basis.toml"\n[training]\nlr = 0.5\n')
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("sub/top.toml")
    assert (recipe.name, recipe.about, recipe.training.epochs, recipe.training.lr) == ("top", "", 7, 0.5)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("lr", ".01", 0.01), ("lr", "1.", 1.0), ("flip", "True", True), ("dataset", "2024", "2024"),
        ("train_limit", "none", None), ("epochs", "3", 3), ("epochs", "3.5", 3.5), ("mean", "[0.5, 1]", [0.5, 1]),
        ("dataset", "'my folder'", "my folder"), ("lr", "fast", "fast"), ("side", "None", None), ("width", "12", 12),
    ],
)  # fmt: skip
def test_what_is_typed_is_read_as_the_setting_wants_it(name: str, text: str, value: object) -> None:
    assert parse_value(name, text) == value


@pytest.mark.parametrize(
    "name",
    ["../escaped", "a/b", "", ".", "..", "...", "/etc", "C:\\x", "a\\b", "-rf", " ", "a ", "a.", "a\nb", "a\0b",
     "x" * 101, ".hidden", "a:b", "what?", "\x1b[31m"],
)  # fmt: skip
def test_a_name_that_no_folder_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a name that a folder can have"):
        Recipe(name=name)
    (tmp_path / "mine.toml").write_text(f"name = {json.dumps(name)}\n")
    with pytest.raises(ValueError, match=r"in the recipe .*mine\.toml': expected a name that a folder can have"):
        load_recipe(tmp_path / "mine.toml")


@pytest.mark.parametrize("name", ["mnist", "cifar10-small", "my recipe 2", "größe", "a.b_c+d", "x" * 100])
def test_ordinary_names_are_taken(name: str) -> None:
    assert Recipe(name=name).name == name


def test_a_recipe_nested_without_end_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f"a = {'[' * 5000}{']' * 5000}")
    with pytest.raises(ValueError, match=r"expected a TOML file, got .*mine\.toml', .* nested deeper"):
        load_recipe(tmp_path / "mine.toml")


def test_a_setting_outside_of_its_section_is_an_error_that_names_its_section(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("epochs = 1\n")
    with pytest.raises(ValueError, match=r"expected epochs in the section \[training\]"):
        load_recipe(tmp_path / "mine.toml")


def test_the_choices_of_a_model_are_those_that_there_are() -> None:
    choices = {entry.name: entry.metadata.get("choices") for entry in fields(ModelSettings)}
    assert choices["architecture"] == tuple(ARCHITECTURES)
    assert choices["construction"] == CONSTRUCTIONS
    assert choices["head"] == tuple(HEADS)


def test_the_hinge_is_refused_where_nothing_is_proven() -> None:
    with pytest.raises(ValueError, match="expected the certified objective without attack_steps with loss='hinge'"):
        TrainingSettings(loss="hinge", objective="plain")
