"""The training loop: steps down the loss; after each epoch an evaluation, a line of the log, and a checkpoint."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from berncert.certification.classifier import Classifier
from berncert.data import Dataset
from berncert.extractor import export
from berncert.foundation.progress import Bar
from berncert.hardware import chosen_device, has_bfloat16
from berncert.models.checkpoint import open_checkpoint, save, versions
from berncert.models.heads import Head, is_dense
from berncert.polynomial import PolynomialHead
from berncert.training import objectives
from berncert.training.distance_layers import distance_layers, set_norm, settle_means
from berncert.training.feature_box import feature_box
from berncert.training.images import augment, describe_images, image_notes, load_images
from berncert.training.model import build_model, smoothed_classifier, warm_start
from berncert.training.recipes import Recipe, load_recipe
from berncert.training.schedules import SCHEDULES, radius_factor, rising_norm
from berncert.training.state import MODEL, STATE, Average, State, claim_folder, write_log, write_picture, write_recipe

ESTIMATE_EVERY = 20  # steps between two estimates of the certified accuracy on training images
EVALUATION_BATCH = 500
SETTLING_IMAGES = 4000
"""Training images from which the means of distance layers are taken before an evaluation."""
MOST_GRID_POINTS = 2**18

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda parameters, settings: torch.optim.Adam(
        parameters, settings.lr, betas=(0.9, 0.99), eps=settings.adam_epsilon, weight_decay=settings.weight_decay
    ),
    "sgd": lambda parameters, settings: torch.optim.SGD(
        parameters, settings.lr, momentum=0.9, nesterov=True, weight_decay=settings.weight_decay
    ),
}


def train(
    recipe: Recipe | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    data_dir: str | PathLike[str] | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Classifier:
    """Train a model by a recipe, and return the smoothed classifier, ready for `berncert.certify`.

        model = berncert.train("digits", "runs/digits")         # half a minute; or "moons", "mnist", "cifar10", ...
        model = berncert.load("runs/digits")                    # the same model, later

    A recipe is the name of one that is shipped, the path of a TOML file, or what `load_recipe("mnist", epochs=3)` of
    `berncert.training.recipes` returns. `berncert train --help` lists all recipes and settings. `data_dir` is the
    folder in which `berncert.data.load` searches first; `device` is a GPU if there is one, unless you name another.

    The folder then contains the model with its head before smoothing (`model.safetensors`), a line for each epoch
    (`log.tsv`) and a picture of that (`log.png`). A training that was interrupted resumes after its last epoch when it
    is called again with the same recipe and folder; on the same machine, with the same number of threads, it ends in
    the same weights as an uninterrupted one.

    `on_epoch` is called with each line of the log, as a dictionary; `on_note`, before the training, with sentences
    about the images: how they were divided, and whether test images are among the training images.

    Example:
        >>> import tempfile, berncert
        >>> from berncert.training.recipes import load_recipe
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model = berncert.train(load_recipe("digits", epochs=1), folder, progress=False)
        >>> type(model).__name__, type(model.head).__name__
        ('Classifier', 'SmoothedHead')
    """
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    folder, device = Path(folder), chosen_device(device)
    if recipe.training.precision == "bfloat16" and not has_bfloat16(device):
        raise ValueError(
            f"expected precision='float32' on this {device.type}, got 'bfloat16', for which it has no instructions"
        )
    with claim_folder(folder, recipe), torch.random.fork_rng():
        training, test = load_images(recipe, data_dir, progress)
        state = _initial_state(recipe, training, device)
        if (folder / STATE).is_file():
            state.restore(folder / STATE, recipe)
        write_recipe(folder, recipe)
        if on_note is not None:
            for note in image_notes(training, test):
                on_note(note)
        while state.epoch < recipe.training.epochs:
            row = _epoch(recipe, state, training, device, progress)
            model = _evaluated_model(state, training, device)
            state.log.append(row | _evaluate(recipe, model, test, device))
            state.epoch += 1
            state.save(folder / STATE, recipe)
            _save_model(model, folder, recipe, state)
            if on_epoch is not None:
                on_epoch(state.log[-1])
        model = _evaluated_model(state, training, device).eval()
        _save_model(model, folder, recipe, state)  # again: a run may have been killed before it
        write_picture(folder, state.log, f"{recipe.name}: {recipe.training.objective} training")
        return open_checkpoint(folder / MODEL).smoothed()


def check_recipe(recipe: Recipe, *, data_dir: str | PathLike[str] | None = None, progress: bool | None = None) -> None:
    """Raise what a training by this recipe would begin with, if its images, network and objective do not fit."""
    training, _ = load_images(recipe, data_dir, progress)
    _initial_state(recipe, training, torch.device("cpu"))


@dataclass
class Tally:
    """Sums over the training images of this epoch so far."""

    loss: float = 0.0
    correct: int = 0
    images: int = 0
    certified: int = 0
    estimated: int = 0
    """The number of images for which `certified` was estimated."""

    def add(self, loss: float, correct: Tensor, certified: Tensor | None) -> None:
        """Add a batch; whether its images would be certified is estimated for some batches only."""
        self.loss += loss * len(correct)
        self.correct += int(correct.sum())
        self.images += len(correct)
        if certified is not None:
            self.certified += int(certified.sum())
            self.estimated += len(certified)

    def rates(self) -> dict[str, float]:
        """The mean loss, the accuracy, and the estimated certified accuracy on the training images so far."""
        return {
            "loss": self.loss / max(1, self.images),
            "accuracy": self.correct / max(1, self.images),
            "certified_estimate": self.certified / self.estimated if self.estimated else math.nan,
        }


def _initial_state(recipe: Recipe, training: Dataset, device: torch.device) -> State:
    """The state before the first step."""
    _check_grid(recipe)
    model = build_model(recipe, tuple(training.images.shape[1:]), len(training.classes)).to(device)
    if recipe.training.objective == "certified":  # an error, before the training starts, if the network does not fit
        if recipe.training.route == "local":
            _check_intervals(recipe, model.extractor, training.images[:1].to(device))
        else:
            objectives.feature_radius(model, 0.0, recipe.training.norm)
    if recipe.training.start is not None:
        warm_start(model, recipe.training.start, holdout=recipe.data.holdout)
    if any(isinstance(part, nn.Conv2d) for part in model.modules()):
        # not the head: the coefficients of four features have five axes, too
        model.extractor.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    groups = _parameter_groups(model, recipe.training.head_lr)
    average = Average(model, recipe.training.ema) if recipe.training.ema else None
    optimizer = OPTIMIZERS[recipe.training.optimizer](groups, recipe.training)
    return State(model, optimizer, average, describe_images(training))


def _check_intervals(recipe: Recipe, extractor: nn.Module, image: Tensor) -> None:
    """Raise a ValueError unless intervals pass the network as it is while it is trained."""
    try:
        feature_box(copy.deepcopy(extractor).train(), torch.cat([image, image]), 0.0)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "expected a network that intervals pass while it is trained with route='local', got "
            f"{recipe.model.architecture} in the {recipe.model.construction} construction: {error}; set "
            "construction='ordinary', e.g. with architecture='cnn'"
        ) from error


def _parameter_groups(model: Classifier, head_lr: float) -> list[dict[str, Any]]:
    """The parameters of extractor and head, each part with its multiple of the learning rate."""
    parts = ((model.extractor, 1.0), (model.head, head_lr))
    groups = [
        {"params": [parameter for parameter in part.parameters() if parameter.requires_grad], "multiple": multiple}
        for part, multiple in parts
    ]
    return [group for group in groups if group["params"]]


def _check_grid(recipe: Recipe) -> None:
    points = (recipe.model.degree + 1) ** recipe.model.dim
    if points > MOST_GRID_POINTS and is_dense(recipe.model.head, recipe.model.dim):
        raise ValueError(
            f"expected at most {MOST_GRID_POINTS} grid points (degree + 1)^dim, as each training step needs them all, "
            f"got {points:.3g} (degree {recipe.model.degree}, dim {recipe.model.dim}); lower one of the two, or take "
            "an affine head, which needs no grid in so many features"
        )


def _epoch(
    recipe: Recipe, state: State, training: Dataset, device: torch.device, progress: bool | None
) -> dict[str, float]:
    """One pass over the training images; its randomness depends on the seed and the number of the epoch only."""
    settings, model, began = recipe.training, state.model, time.perf_counter()
    chance = torch.Generator().manual_seed(settings.seed * 1_000_003 + state.epoch)
    torch.manual_seed(settings.seed * 1_000_003 + state.epoch)  # for layers that draw random numbers
    batches = math.ceil(len(training) / settings.batch_size)
    tally, radius, lr = Tally(), 0.0, 0.0
    model.train()
    label = f"epoch {state.epoch + 1} of {settings.epochs}"
    with Bar(label, total=len(training), progress=progress) as bar:
        for index, (images, labels) in enumerate(_batches(recipe, training, device, chance)):
            done = (state.epoch + index / batches) / settings.epochs
            radius = settings.radius * radius_factor(done, settings.radius_warmup)
            lr = settings.lr * SCHEDULES[settings.schedule](done, settings.lr_warmup)
            p = rising_norm(done, settings.p_start, settings.p_end, settings.p_wait, settings.p_exact)
            set_norm(model, p)
            try:
                result = objectives.batch_loss(settings, model, images, labels, radius, chance, done=done)
            except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
                # weights that are NaN have no orthogonal factor
                raise _diverged(state, math.nan) from error
            loss = _descend(state, result.loss, lr)
            certified = _certified(recipe, model, result, labels) if index % ESTIMATE_EVERY == 0 else None
            tally.add(loss, result.correct, certified)
            bar.update(tally.images, _progress_note(tally, began))
    seconds = time.perf_counter() - began
    row = {"epoch": state.epoch + 1, **tally.rates(), "radius": radius, "lr": lr}
    return row | {"seconds": seconds, "images_per_second": tally.images / seconds}


def _descend(state: State, loss: Tensor, lr: float) -> float:
    """Take one step down the gradient, and return the value of the loss."""
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
    message = (
        f"expected the loss to stay finite, got {value} in epoch {state.epoch + 1}; lower lr or raise temperature{kept}"
    )
    return FloatingPointError(message)


def _certified(recipe: Recipe, model: Classifier, result: objectives.BatchLoss, labels: Tensor) -> Tensor | None:
    """Whether each image of the batch would be certified at the recipe's radius, if that can be estimated.

    By the local route it is at the radius so far, which the log has as well.
    """
    settings = recipe.training
    if result.proven is not None:
        return result.proven
    lipschitz = objectives.lipschitz_estimate(model, settings.norm)
    if lipschitz is None or not isinstance(result.head, PolynomialHead):
        return None
    reach = lipschitz * settings.radius
    return objectives.certified_estimate(result.head, result.features, labels, reach, settings.norm)


def _batches(
    recipe: Recipe, training: Dataset, device: torch.device, chance: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(training), generator=chance)
    for rows in torch.split(order, recipe.training.batch_size):
        images = augment(training.images[rows], recipe.data.crop, recipe.data.flip, chance)
        if images.ndim == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        yield images.to(device), training.labels[rows].to(device)


def _progress_note(tally: Tally, began: float) -> str:
    rates, speed = tally.rates(), tally.images / (time.perf_counter() - began)
    certified = "" if math.isnan(rates["certified_estimate"]) else f", certified ~{rates['certified_estimate']:.1%}"
    return f"loss {rates['loss']:.3f}, accuracy {rates['accuracy']:.1%}{certified}, {speed:,.0f} images/s"


def _evaluated_model(state: State, training: Dataset, device: torch.device) -> Classifier:
    """The model that is evaluated and saved.

    It has the running mean of the weights, if the recipe asks for that, and means of distance layers that fit.
    """
    if state.average is None and not distance_layers(state.model):
        return state.model
    model = copy.deepcopy(state.model)
    if state.average is not None:
        model.load_state_dict(state.average.values)
    images = training.images[:: max(1, len(training) // SETTLING_IMAGES)][:SETTLING_IMAGES]
    settle_means(model.extractor, (batch.to(device) for batch in torch.split(images, EVALUATION_BATCH)))
    return model


@torch.no_grad()
def _evaluate(recipe: Recipe, model: Classifier, test: Dataset, device: torch.device) -> dict[str, float]:
    """Accuracy and estimated certified accuracy on test or held-out images, for the log."""
    model.eval()
    extractor, head = export(model.extractor).float(), objectives.head_of(model, "smoothed")
    settings, correct, certified = recipe.training, 0, 0
    lipschitz = objectives.lipschitz_estimate(model, settings.norm)
    local = settings.objective == "certified" and settings.route == "local"
    for rows in torch.split(torch.arange(len(test)), EVALUATION_BATCH):
        images, labels = test.images[rows].to(device), test.labels[rows].to(device)
        if local:
            right, proven = objectives.local_estimate(model, extractor, images, labels, settings.radius)
            correct, certified = correct + int(right.sum()), certified + int(proven.sum())
            continue
        features = extractor(images)
        correct += int((head(features).argmax(dim=1) == labels).sum())
        if lipschitz is not None:
            reach = lipschitz * settings.radius
            certified += int(objectives.certified_estimate(head, features, labels, reach, settings.norm).sum())
    share = math.nan if lipschitz is None and not local else certified / len(test)
    return {f"{test.split}_accuracy": correct / len(test), f"{test.split}_certified_estimate": share}


def _save_model(model: Classifier, folder: Path, recipe: Recipe, state: State) -> None:
    """Write the smoothed model and the log."""
    about = {
        "recipe": recipe.as_dict(),
        "data": state.data,
        "epochs": state.epoch,
        "versions": versions(),
        "threads": torch.get_num_threads(),
    }
    assert isinstance(model.head, Head)
    try:
        classifier = smoothed_classifier(model)
    except TypeError as error:  # the networks of recipes can be frozen, unless their weights are ruined
        raise FloatingPointError(
            f"expected weights that make a network, got a training that diverged: {error}"
        ) from error
    save(classifier, folder / MODEL, base=model.head, about=about)
    write_log(folder, state.log)
