"""The folder of a training: its recipe, its log, the model so far, and the state from which it resumes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from berncert.certification.classifier import Classifier
from berncert.foundation.folders import claimed, differences, write_whole
from berncert.foundation.safe_reading import parsed_json
from berncert.models.checkpoint import FILE
from berncert.models.tensor_file import read_tensors, strip_prefix, write_tensors
from berncert.training.log_figure import training_figure
from berncert.training.recipes import SECTIONS, Recipe

FORMAT = "berncert training state 1"
STATE, MODEL, RECIPE = "state.safetensors", FILE, "recipe.json"
LOG, PICTURE = "log.tsv", "log.png"
FILES = (STATE, MODEL, RECIPE, LOG, PICTURE)


class Average:
    """The running mean of a model's weights, with a decay that grows to its final value."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.trained = {name for name, _ in model.named_parameters()}
        self.values = {key: value.detach().clone() for key, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Include the weights after a step; buffers are copied, as the mean of e.g. two unit vectors is not one."""
        self.steps += 1
        keep = min(self.decay, self.steps / (self.steps + 10))
        for key, value in model.state_dict().items():
            if key in self.trained:
                self.values[key].lerp_(value, 1 - keep)
            else:
                self.values[key].copy_(value)


@dataclass
class State:
    """Everything that the next step depends on, besides the recipe and the images."""

    model: Classifier
    optimizer: torch.optim.Optimizer
    average: Average | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """A description of the training images, so that a resumed training notices others."""
    epoch: int = 0
    log: list[dict[str, float]] = field(default_factory=list)

    def save(self, path: Path, recipe: Recipe) -> None:
        """Write the state and the recipe to a file, whole or not at all."""
        tensors = {f"model.{key}": value for key, value in self.model.state_dict().items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in values.items()}
        if self.average is not None:
            tensors |= {f"average.{key}": value for key, value in self.average.values.items()}
        steps = 0 if self.average is None else self.average.steps
        about = {
            "epoch": self.epoch,
            "average_steps": steps,
            "log": self.log,
            "recipe": recipe.as_dict(),
            "data": self.data,
        }
        write_tensors(path, tensors, FORMAT, about)

    def restore(self, path: Path, recipe: Recipe) -> Self:
        """Load the state that was saved; an error if the recipe or the images differ."""
        try:
            tensors, about = read_tensors(path, FORMAT)
        except ValueError as error:
            raise ValueError(f"{error}, or delete {path} to start again") from error
        _check_same_recipe(path.parent, about["recipe"], recipe)
        changed = differences(about["data"], self.data)
        if changed:
            raise ValueError(
                f"expected the data that the training in {path.parent} began with, got other data: "
                f"{', '.join(changed)}; choose another folder, or delete that one to start again"
            )
        load_weights(self.model, strip_prefix("model.", tensors), path)
        optimizer = self.optimizer.state_dict()
        for key, value in strip_prefix("optimizer.", tensors).items():
            index, name = key.split(".", 1)
            optimizer["state"].setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict(optimizer)
        if self.average is not None:
            for key, value in strip_prefix("average.", tensors).items():
                self.average.values[key].copy_(value)
            self.average.steps = about["average_steps"]
        self.epoch, self.log = about["epoch"], about["log"]
        return self


@contextmanager
def claim_folder(folder: Path, recipe: Recipe) -> Iterator[None]:
    """Reserve the folder for this recipe and this process; a folder with another training is refused."""
    with claimed(folder, "training"):
        check_folder(folder, recipe)
        for name in FILES:  # left by a run that was killed while it wrote
            (folder / f".{name}.partial").unlink(missing_ok=True)
        yield


def check_folder(folder: Path, recipe: Recipe) -> None:
    """Raise a ValueError if a training by another recipe is in this folder."""
    if (folder / RECIPE).exists():
        _check_same_recipe(folder, _read_recipe(folder / RECIPE), recipe)


def write_recipe(folder: Path, recipe: Recipe) -> None:
    """Write the recipe into the folder."""
    write_whole(folder / RECIPE, (json.dumps(recipe.as_dict(), indent=2) + "\n").encode())


def _read_recipe(path: Path) -> dict[str, Any]:
    try:
        found = parsed_json(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"expected the recipe of a training in {path}, got something else: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"expected the recipe of a training in {path}, got {found!r}")
    return found


def _check_same_recipe(folder: Path, found: Mapping[str, Any], wanted: Recipe) -> None:
    """Raise a ValueError if the recipe found in the folder has other settings; its name does not matter."""
    with suppress(ValueError):  # settings that did not exist yet have their defaults
        found = Recipe.from_dict(found).as_dict()
    old, new = ({key: recipe[key] for key in recipe.keys() & SECTIONS.keys()} for recipe in (found, wanted.as_dict()))
    changed = differences(old, new)
    if changed:
        raise ValueError(
            f"expected a new folder or one of the same training, got {folder}, which differs in {', '.join(changed)}; "
            "choose another folder, or delete that one to start again"
        )


def write_log(folder: Path, log: list[dict[str, float]]) -> None:
    """Write a line for each epoch, in full precision."""
    if log:
        rows = ["\t".join(log[0]), *("\t".join(repr(row[name]) for name in log[0]) for row in log)]
        write_whole(folder / LOG, ("\n".join(rows) + "\n").encode())


def load_weights(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    """Give the model the weights of this file, or raise an error that says they are those of another network."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(
            f"expected the weights of the recipe's network in {path}, got those of another one, as an earlier version "
            "of berncert may have built it; train again in another folder"
        ) from error


def read_log(folder: Path) -> list[dict[str, float]]:
    """The lines of the log in this folder; none if there is none."""
    try:
        names, *lines = (line.split("\t") for line in (folder / LOG).read_text("utf-8").splitlines())
        return [dict(zip(names, map(float, line), strict=True)) for line in lines]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise ValueError(f"expected the log of a training in {folder / LOG}, got something else: {error}") from error


def write_picture(folder: Path, log: list[dict[str, float]], title: str) -> None:
    """Draw the log and write the picture."""
    picture = io.BytesIO()
    training_figure(log, title).savefig(picture, dpi=120)
    write_whole(folder / PICTURE, picture.getvalue())
