"""The loop: batches of images, a loss, a step; after each epoch a look at test images, a line of log, a checkpoint."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from berncert.certification.classifier import Classifier
from berncert.data import Dataset
from berncert.extractor import export
from berncert.floor.progress import Bar
from berncert.models.checkpoint import open_checkpoint, save, versions
from berncert.models.hardware import chosen_device
from berncert.models.heads import Head
from berncert.polynomial import SmoothedHead
from berncert.training.images import augmented, described, load_images, notes_about
from berncert.training.model import build_model, smoothed_classifier, warm_start
from berncert.training.objectives import Outcome, head_of, outcome, proven_estimate, reach_of, stretch_of
from berncert.training.recipes import Recipe, load_recipe
from berncert.training.schedules import SCHEDULES, grown
from berncert.training.state import MODEL, STATE, Average, State, claim, keep_recipe, write_log, write_picture

LOOK_EVERY = 20  # steps between two looks at the certified accuracy, where the loss does not tell it
EVALUATION_BATCH = 500
MOST_GRID_POINTS = 2**18

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda parameters, settings: torch.optim.Adam(
        parameters, settings.lr, betas=(0.9, 0.99), weight_decay=settings.weight_decay
    ),
    "sgd": lambda parameters, settings: torch.optim.SGD(
        parameters, settings.lr, momentum=0.9, nesterov=True, weight_decay=settings.weight_decay
    ),
}


def train(
    recipe: Recipe | str,
    folder: str | PathLike[str],
    *,
    data_dir: str | PathLike[str] | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Classifier:
    """Train by the recipe, in that folder; where a run of the same recipe was cut off, go on from its last epoch.

    The result is the smoothed classifier, also in `model.safetensors` together with the base head (`berncert.load`);
    `log.tsv` has a line for each epoch, `log.png` is a picture of it. On the same machine, with the same number of
    threads, a run that was cut off ends in the same weights as one that was not. `on_epoch` is told each line,
    `on_note` what is to be known of the images before: how they were divided, and test images that are trained on.
    """
    recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
    folder, device = Path(folder), chosen_device(device)
    if recipe.training.precision == "bfloat16" and device.type != "cuda":
        raise ValueError("expected precision='float32' without a GPU, got 'bfloat16', which is slow or fails on CPUs")
    with claim(folder, recipe), torch.random.fork_rng():
        training, test = load_images(recipe, data_dir, progress)
        state = _start(recipe, training, device)
        if (folder / STATE).is_file():
            state.restore(folder / STATE, recipe)
        keep_recipe(folder, recipe)
        if on_note is not None:
            for note in notes_about(training, test):
                on_note(note)
        while state.epoch < recipe.training.epochs:
            row = _epoch(recipe, state, training, device, progress)
            kept = _kept(state)
            state.log.append(row | _look(recipe, kept, test, device))
            state.epoch += 1
            state.save(folder / STATE, recipe)
            _keep(kept, folder, recipe, state)
            if on_epoch is not None:
                on_epoch(state.log[-1])
        _keep(_kept(state).eval(), folder, recipe, state)  # the last one again: a run may have been killed before it
        write_picture(folder, state.log, f"{recipe.name}: {recipe.training.objective} training")
        return open_checkpoint(folder / MODEL).smoothed()


class Tally(NamedTuple):
    """Sums over the images seen in this epoch."""

    loss: float = 0.0
    right: int = 0
    seen: int = 0
    proven: int = 0
    looked: int = 0

    def plus(self, loss: float, right: Tensor, proven: Tensor | None) -> Tally:
        """One more batch; whether its images would be proven is looked at now and then."""
        count = len(right)
        looked = (0, 0) if proven is None else (int(proven.sum()), count)
        rest = (self.proven + looked[0], self.looked + looked[1])
        return Tally(self.loss + loss * count, self.right + int(right.sum()), self.seen + count, *rest)

    def rates(self) -> dict[str, float]:
        """Loss, accuracy, and the certified accuracy as estimated, on the training images as they were used."""
        return {
            "loss": self.loss / max(1, self.seen),
            "accuracy": self.right / max(1, self.seen),
            "certified_estimate": self.proven / self.looked if self.looked else math.nan,
        }


def _start(recipe: Recipe, training: Dataset, device: torch.device) -> State:
    """Before the first step."""
    _check_grid(recipe)
    model = build_model(recipe, tuple(training.images.shape[1:]), len(training.classes)).to(device)
    if recipe.training.objective == "certified":
        reach_of(model, 0.0)  # or an error before anything is done
    if recipe.training.start is not None:
        warm_start(model, recipe.training.start)
    if any(isinstance(part, nn.Conv2d) for part in model.modules()):
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    groups = _parameter_groups(model, recipe.training.head_lr)
    average = Average(model, recipe.training.ema) if recipe.training.ema else None
    return State(model, OPTIMIZERS[recipe.training.optimizer](groups, recipe.training), average, described(training))


def _parameter_groups(model: Classifier, head_lr: float) -> list[dict[str, Any]]:
    """What is trained, extractor and head, each with its multiple of the learning rate."""
    parts = ((model.extractor, 1.0), (model.head, head_lr))
    groups = [
        {"params": [parameter for parameter in part.parameters() if parameter.requires_grad], "multiple": multiple}
        for part, multiple in parts
    ]
    return [group for group in groups if group["params"]]


def _check_grid(recipe: Recipe) -> None:
    points = (recipe.model.degree + 1) ** recipe.model.dim
    if points > MOST_GRID_POINTS:
        raise ValueError(
            f"expected at most {MOST_GRID_POINTS} grid points (degree + 1)^dim, as each training step takes them all, "
            f"got {points:.3g} (degree {recipe.model.degree}, dim {recipe.model.dim}); lower one of the two"
        )


def _epoch(
    recipe: Recipe, state: State, training: Dataset, device: torch.device, progress: bool | None
) -> dict[str, float]:
    """One pass over the training images; all that is random in it follows from the seed and its number."""
    settings, model, began = recipe.training, state.model, time.perf_counter()
    chance = torch.Generator().manual_seed(settings.seed * 1_000_003 + state.epoch)
    torch.manual_seed(settings.seed * 1_000_003 + state.epoch)  # for layers that draw numbers of their own
    batches = math.ceil(len(training) / settings.batch_size)
    tally, radius, lr = Tally(), 0.0, 0.0
    model.train()
    label = f"epoch {state.epoch + 1} of {settings.epochs}"
    with Bar(label, total=len(training), progress=progress) as bar:
        for index, (images, labels) in enumerate(_batches(recipe, training, device, chance)):
            done = (state.epoch + index / batches) / settings.epochs
            radius = settings.radius * grown(done, settings.radius_warmup)
            lr = settings.lr * SCHEDULES[settings.schedule](done, settings.lr_warmup)
            try:
                result = outcome(settings, model, images, labels, radius, chance)
            except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
                # weights that are no numbers have no orthogonal factor
                raise _diverged(state, math.nan) from error
            loss = _descend(state, result.loss, lr)
            proven = _proven(recipe, model, result, labels) if index % LOOK_EVERY == 0 else None
            tally = tally.plus(loss, result.right, proven)
            bar.update(tally.seen, _note(tally, began))
    seconds = time.perf_counter() - began
    row = {"epoch": state.epoch + 1, **tally.rates(), "radius": radius, "lr": lr}
    return row | {"seconds": seconds, "images_per_second": tally.seen / seconds}


def _descend(state: State, loss: Tensor, lr: float) -> float:
    """One step down the gradient; the value of the loss."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise _diverged(state, value)
    for group in state.optimizer.param_groups:
        group["lr"] = lr * group["multiple"]
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    state.optimizer.step()
    if state.average is not None:
        state.average.update(state.model)
    return value


def _diverged(state: State, value: float) -> FloatingPointError:
    kept = f"; the checkpoint of epoch {state.epoch} is kept" if state.epoch else ""
    message = f"expected a finite loss, got {value} in epoch {state.epoch + 1}; lower lr or raise temperature{kept}"
    return FloatingPointError(message)


def _proven(recipe: Recipe, model: Classifier, result: Outcome, labels: Tensor) -> Tensor | None:
    """Whether each image of the batch would be proven at the recipe's radius, where that can be estimated."""
    if not isinstance(result.head, SmoothedHead) or stretch_of(model) is None:
        return None
    return proven_estimate(result.head, result.features, labels, reach_of(model, recipe.training.radius))


def _batches(
    recipe: Recipe, training: Dataset, device: torch.device, chance: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(training), generator=chance)
    for rows in torch.split(order, recipe.training.batch_size):
        images = augmented(training.images[rows], recipe.data.crop, recipe.data.flip, chance)
        if images.ndim == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        yield images.to(device), training.labels[rows].to(device)


def _note(tally: Tally, began: float) -> str:
    rates = tally.rates()
    speed = tally.seen / (time.perf_counter() - began)
    proven = "" if math.isnan(rates["certified_estimate"]) else f", certified ~{rates['certified_estimate']:.1%}"
    return f"loss {rates['loss']:.3f}, right {rates['accuracy']:.1%}{proven}, {speed:,.0f} images/s"


def _kept(state: State) -> Classifier:
    """The model as it would be kept now: with the mean of its weights, if one is taken."""
    if state.average is None:
        return state.model
    kept = copy.deepcopy(state.model)
    kept.load_state_dict(state.average.values)
    return kept


@torch.no_grad()
def _look(recipe: Recipe, model: Classifier, test: Dataset, device: torch.device) -> dict[str, float]:
    """Accuracy and estimated certified accuracy on test images: for the log, nothing is chosen by it."""
    model.eval()
    extractor, head = export(model.extractor).float(), head_of(model, "smoothed")
    right = proven = 0
    for rows in torch.split(torch.arange(len(test)), EVALUATION_BATCH):
        labels, features = test.labels[rows].to(device), extractor(test.images[rows].to(device))
        right += int((head(features).argmax(dim=1) == labels).sum())
        if stretch_of(model) is not None:
            proven += int(proven_estimate(head, features, labels, reach_of(model, recipe.training.radius)).sum())
    share = math.nan if stretch_of(model) is None else proven / len(test)
    return {"test_accuracy": right / len(test), "test_certified_estimate": share}


def _keep(model: Classifier, folder: Path, recipe: Recipe, state: State) -> None:
    """Write the model as it is now, and the log."""
    about = {
        "recipe": recipe.as_dict(),
        "data": state.data,
        "epochs": state.epoch,
        "versions": versions(),
        "threads": torch.get_num_threads(),
    }
    assert isinstance(model.head, Head)
    save(smoothed_classifier(model), folder / MODEL, base=model.head, about=about)
    write_log(folder, state.log)
