"""Whether the images of a run are among those that its model was trained on: then the run says nothing of new ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from berncert.data import ALL, HOLDOUT, Dataset

UNDIVIDED = "all of it, whatever the split"
"""How trainings began to say so that took data without splits whole, before such data was divided."""


def seen_in_training(about: Mapping[str, Any], images: Dataset) -> str:
    """What is to be said if some of these images may have been training images of the model; else nothing.

    `about` is what the model's checkpoint says of its training.
    """
    record = about.get("data")
    before: Mapping[str, Any] = record if isinstance(record, Mapping) else {}
    count, division = len(images), images.division
    if not before.get("name"):
        maybe = "these may be training images: the model does not say what it was trained on"
        return maybe if images.split in ("train", HOLDOUT, ALL) else ""
    if not _same_data(before, images):
        return ""
    if str(before.get("part")).startswith(UNDIVIDED):
        return f"the model was trained on all images of {images.name}, these {count} among them"
    held_out = _recipe_data(about, "holdout") is True
    if images.split == "train" or (images.split == HOLDOUT and not held_out):
        some = held_out or _recipe_data(about, "train_limit") is not None
        return f"{'some of ' if some else ''}these {count} images are training images of the model"
    if division is None:
        return ""
    old = before.get("division")
    if not isinstance(old, Mapping) or old.get("sha256") != division["sha256"]:
        return f"{images.name} was changed since the model was trained: some of these {count} may be training images"
    if images.split == ALL:
        trained = division["images"] - division["test_images"]
        return f"{trained} of the {division['images']} images of {images.name} are training images"
    return ""


def _recipe_data(about: Mapping[str, Any], name: str) -> Any:
    """A data setting of the model's recipe, or None."""
    entry: Any = about
    for key in ("recipe", "data", name):
        entry = entry.get(key) if isinstance(entry, Mapping) else None
    return entry


def _same_data(before: Mapping[str, Any], images: Dataset) -> bool:
    """By its name, else by what was read, as a path can be written in many ways."""
    if os.path.normpath(before["name"]) == os.path.normpath(images.name):
        return True
    old, new = before.get("division"), images.division
    if isinstance(old, Mapping) and new is not None:
        return bool(old.get("sha256") == new["sha256"])
    files = before.get("files")
    return isinstance(files, Mapping) and bool(files.items() & images.files.items())
