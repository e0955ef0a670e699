"""The model of a recipe: a new one, or one with the weights of another training."""

from __future__ import annotations

from pathlib import Path

import torch

from berncert.certification.classifier import Classifier
from berncert.extractor import FrozenNetwork, build
from berncert.foundation.folders import differences
from berncert.models.heads import Head, build_head, smoothed
from berncert.models.tensor_file import read_tensors, strip_prefix
from berncert.polynomial import smooth
from berncert.training.recipes import Recipe
from berncert.training.state import FORMAT as STATE_FORMAT
from berncert.training.state import STATE, load_weights


def build_model(recipe: Recipe, input_shape: tuple[int, ...], classes: int) -> Classifier:
    """The untrained model, with weights drawn by the recipe's seed."""
    settings = recipe.model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        extractor = build(
            settings.architecture, input_shape, settings.dim, construction=settings.construction, side=settings.side,
            mean=settings.mean, std=settings.std, **settings.options,
        )  # fmt: skip
        scale = 1 / (extractor.lipschitz_estimate or 1.0)
        head = build_head(
            settings.head, settings.dim, classes, scale=scale, width=settings.head_width, degree=settings.degree,
            group=settings.head_group, norm=recipe.training.norm,
        )  # fmt: skip
    return Classifier(extractor, head)


def smoothed_classifier(model: Classifier) -> Classifier:
    """The model to certify: its extractor is frozen and rounded to float32, its head replaced by its polynomial."""
    assert isinstance(model.head, Head)
    frozen = Classifier(model.extractor, smoothed(model.head)).eval().freeze()
    assert isinstance(frozen.extractor, FrozenNetwork)
    return Classifier(frozen.extractor.rounded(), frozen.head)


def warm_start(model: Classifier, path: str, *, holdout: bool = False) -> None:
    """Copy the weights of another training; a polynomial head becomes the polynomial of the other head.

    The affine part of a groups head becomes the other head, if that is affine; the polynomials start at 0.

    With `holdout` that training must have set the same images aside.
    """
    start, recipe = trained_model(Path(path))
    if holdout and not recipe.data.holdout:
        raise ValueError(
            f"expected a start that was trained with holdout too, got {path}, which was trained on the images that are "
            "to be set aside"
        )
    for name in ("extractor", "head"):
        part, source = getattr(model, name), getattr(start, name)
        expected, got = part.description, source.description
        if got == expected:
            part.load_state_dict(source.state_dict())
        elif name == "head" and expected["kind"] == "polynomial" and got["dim"] == expected["dim"]:
            coefficients = smooth(source, expected["dim"], expected["degree"], points=0).coefficients
            part.load_state_dict({"layers.coefficients": coefficients})
        elif name == "head" and expected["kind"] == "groups" and got["dim"] == expected["dim"] and source.affine_layer:
            straight = {f"layers.{key}": value for key, value in source.affine_layer.state_dict().items()}
            part.load_state_dict(part.state_dict() | straight)
        else:
            raise ValueError(
                f"expected a start with the {name} of the recipe, got {path}, which differs in "
                f"{', '.join(differences(got, expected))}"
            )


def trained_model(folder: Path) -> tuple[Classifier, Recipe]:
    """The model of a training, with the running mean of its weights if there is one, to be trained further."""
    file = folder / STATE if folder.is_dir() else folder
    if not file.is_file():
        raise FileNotFoundError(f"expected the folder of a training, with a {STATE} in it, got {str(folder)!r}")
    tensors, about = read_tensors(file, STATE_FORMAT)
    recipe = Recipe.from_dict(about["recipe"])
    model = build_model(recipe, tuple(about["data"]["shape"]), len(about["data"]["classes"]))
    load_weights(model, strip_prefix("average.", tensors) or strip_prefix("model.", tensors), file)
    return model.eval(), recipe
