"""The model of a recipe: fresh, or with the weights of a checkpoint to go on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from berncert.certification.classifier import Classifier
from berncert.extractor import FrozenNetwork, build
from berncert.floor.folders import differences
from berncert.models.checkpoint import read, under
from berncert.models.heads import Head, build_head, smoothed
from berncert.polynomial import smooth
from berncert.training.recipes import Recipe
from berncert.training.state import FORMAT as STATE_FORMAT
from berncert.training.state import STATE


def build_model(recipe: Recipe, input_shape: tuple[int, ...], classes: int) -> Classifier:
    """The untrained model, from the recipe's seed."""
    settings = recipe.model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        extractor = build(
            settings.architecture, input_shape, settings.dim, construction=settings.construction, side=settings.side,
            mean=settings.mean, std=settings.std, **settings.options,
        )  # fmt: skip
        scale = 1 / (extractor.lipschitz_estimate or 1.0)
        head = build_head(
            settings.head, settings.dim, classes, scale=scale, width=settings.head_width, degree=settings.degree
        )
    return Classifier(extractor, head)


def smoothed_classifier(model: Classifier) -> Classifier:
    """What is certified: the extractor frozen, its numbers rounded to float32; the head replaced by its polynomial."""
    assert isinstance(model.head, Head)
    frozen = Classifier(model.extractor, smoothed(model.head)).eval().freeze()
    assert isinstance(frozen.extractor, FrozenNetwork)
    return Classifier(frozen.extractor.rounded(), frozen.head)


def warm_start(model: Classifier, path: str) -> None:
    """Take over the weights of another training; a polynomial head takes over what the head there computes."""
    start = trained_model(Path(path))
    for name in ("extractor", "head"):
        mine, its = getattr(model, name), getattr(start, name)
        there: dict[str, Any] = its.description
        wanted: dict[str, Any] = mine.description
        if there == wanted:
            mine.load_state_dict(its.state_dict())
        elif name == "head" and wanted["kind"] == "polynomial" and there["dim"] == wanted["dim"]:
            coefficients = smooth(its, wanted["dim"], wanted["degree"]).coefficients
            mine.load_state_dict({"layers.coefficients": coefficients})
        else:
            raise ValueError(
                f"expected a start with the {name} of the recipe, got {path}, which differs in "
                f"{', '.join(differences(there, wanted))}"
            )


def trained_model(folder: Path) -> Classifier:
    """The model of a training as it can be trained further, with the mean of its weights if one was taken."""
    file = folder / STATE if folder.is_dir() else folder
    if not file.is_file():
        raise FileNotFoundError(f"expected the folder of a training, with a {STATE} in it, got {str(folder)!r}")
    tensors, about = read(file, STATE_FORMAT)
    model = build_model(Recipe.from_dict(about["recipe"]), tuple(about["data"]["shape"]), len(about["data"]["classes"]))
    model.load_state_dict(under("average.", tensors) or under("model.", tensors))
    return model.eval()
