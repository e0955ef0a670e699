"""The model of a recipe: fresh, or with the weights of a checkpoint to go on from."""

from __future__ import annotations

from typing import Any

import torch

from berncert.certification import Classifier
from berncert.extractor import build
from berncert.polynomial import smooth
from berncert.study.checkpoint import load
from berncert.study.folders import differences
from berncert.study.heads import Head, build_head, smoothed
from berncert.study.recipes import Recipe


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
    """What is certified: the same extractor, the head replaced by its polynomial."""
    assert isinstance(model.head, Head)
    return Classifier(model.extractor, smoothed(model.head)).eval()


def warm_start(model: Classifier, path: str) -> None:
    """Take over the weights of a checkpoint; a polynomial head takes over what the head there computes."""
    start = load(path, base=True)
    for name in ("extractor", "head"):
        mine, its = getattr(model, name), getattr(start, name)
        told: dict[str, Any] = its.description
        wanted: dict[str, Any] = mine.description
        if told == wanted:
            mine.load_state_dict(its.state_dict())
        elif name == "head" and wanted["kind"] == "polynomial" and told["dim"] == wanted["dim"]:
            coefficients = smooth(its, wanted["dim"], wanted["degree"]).coefficients
            mine.load_state_dict({"layers.coefficients": coefficients})
        else:
            raise ValueError(
                f"expected a start with the {name} of the recipe, got {path}, which differs in "
                f"{', '.join(differences(told, wanted))}"
            )
