"""A training's folder: the recipe, the log, the model so far, and the state that a killed run goes on from."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from berncert.certification.classifier import Classifier
from berncert.floor.folders import claimed, differences, write_whole
from berncert.floor.reading import parsed_json
from berncert.models.checkpoint import FILE, read, under, write
from berncert.training.picture import training_figure
from berncert.training.recipes import Recipe

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
        """One more step; buffers are as they are now, since the mean of e.g. two unit vectors is none."""
        self.steps += 1
        keep = min(self.decay, self.steps / (self.steps + 10))
        for key, value in model.state_dict().items():
            if key in self.trained:
                self.values[key].lerp_(value, 1 - keep)
            else:
                self.values[key].copy_(value)


@dataclass
class State:
    """All that the next step depends on, beside the recipe."""

    model: Classifier
    optimizer: torch.optim.Optimizer
    average: Average | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """What it is trained on, so that nothing else takes its place."""
    epoch: int = 0
    log: list[dict[str, float]] = field(default_factory=list)

    def save(self, path: Path, recipe: Recipe) -> None:
        """At once or not at all."""
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
        write(path, tensors, FORMAT, about)

    def restore(self, path: Path, recipe: Recipe) -> Self:
        """As it was when it was saved, by the same recipe and on the same images."""
        try:
            tensors, about = read(path, FORMAT)
        except ValueError as error:
            raise ValueError(f"{error}, or delete {path} to start again") from error
        _same(path.parent, about["recipe"], recipe)
        other = differences(about["data"], self.data)
        if other:
            raise ValueError(
                f"expected the data that the training in {path.parent} began with, got another: {', '.join(other)}; "
                "choose another folder, or delete that one to start again"
            )
        self.model.load_state_dict(under("model.", tensors))
        optimizer = self.optimizer.state_dict()
        for key, value in under("optimizer.", tensors).items():
            index, name = key.split(".", 1)
            optimizer["state"].setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict(optimizer)
        if self.average is not None:
            for key, value in under("average.", tensors).items():
                self.average.values[key].copy_(value)
            self.average.steps = about["average_steps"]
        self.epoch, self.log = about["epoch"], about["log"]
        return self


@contextmanager
def claim(folder: Path, recipe: Recipe) -> Iterator[None]:
    """The folder, for this recipe and this process alone; one that holds another training is refused."""
    with claimed(folder, "training"):
        if (folder / RECIPE).exists():
            _same(folder, _read_recipe(folder / RECIPE), recipe)
        for name in FILES:  # of a run that was killed while it wrote
            (folder / f".{name}.partial").unlink(missing_ok=True)
        yield


def keep_recipe(folder: Path, recipe: Recipe) -> None:
    """Say what this folder is of, once it is known that it can be trained."""
    write_whole(folder / RECIPE, (json.dumps(recipe.as_dict(), indent=2) + "\n").encode())


def _read_recipe(path: Path) -> dict[str, Any]:
    try:
        found = parsed_json(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"expected the recipe of a training in {path}, got something else: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"expected the recipe of a training in {path}, got {found!r}")
    return found


def _same(folder: Path, found: Mapping[str, Any], recipe: Recipe) -> None:
    with suppress(ValueError):  # settings that were not there yet are at their defaults
        found = Recipe.from_dict(found).as_dict()
    decides = {"data", "model", "training"}  # a name does not
    there, here = ({key: its[key] for key in its.keys() & decides} for its in (found, recipe.as_dict()))
    told = differences(there, here)
    if told:
        raise ValueError(
            f"expected a new folder or one of the same training, got {folder}, which differs in {', '.join(told)}; "
            "choose another folder, or delete that one to start again"
        )


def write_log(folder: Path, log: list[dict[str, float]]) -> None:
    """One line for each epoch, in full precision."""
    if log:
        rows = ["\t".join(log[0]), *("\t".join(repr(row[name]) for name in log[0]) for row in log)]
        write_whole(folder / LOG, ("\n".join(rows) + "\n").encode())


def write_picture(folder: Path, log: list[dict[str, float]], title: str) -> None:
    """The log as a picture."""
    picture = io.BytesIO()
    training_figure(log, title).savefig(picture, dpi=120)
    write_whole(folder / PICTURE, picture.getvalue())
