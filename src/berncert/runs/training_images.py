"""Whether the images of a run are among those that its model was trained on: then the run says nothing of new ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from berncert.data import ALL, Dataset

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
        return maybe if images.split in ("train", ALL) else ""
    if not _same_data(before, images):
        return ""
    if str(before.get("part")).startswith(UNDIVIDED):
        return f"the model was trained on all images of {images.name}, these {count} among them"
    if images.split == "train":
        return f"{'some of ' if _limited(about) else ''}these {count} images are training images of the model"
    if division is None:
        return ""
    old = before.get("division")
    if not isinstance(old, Mapping) or old.get("sha256") != division["sha256"]:
        return f"{images.name} was changed since the model was trained: some of these {count} may be training images"
    if images.split == ALL:
        trained = division["images"] - division["test_images"]
        return f"{trained} of the {division['images']} images of {images.name} are training images"
    return ""


def _limited(about: Mapping[str, Any]) -> bool:
    """Whether the model was trained on fewer images than there were."""
    entry: Any = about
    for key in ("recipe", "data", "train_limit"):
        entry = entry.get(key) if isinstance(entry, Mapping) else None
    return entry is not None


def _same_data(before: Mapping[str, Any], images: Dataset) -> bool:
    """By its name, else by what was read, as a path can be written in many ways."""
    if os.path.normpath(before["name"]) == os.path.normpath(images.name):
        return True
    old, new = before.get("division"), images.division
    if isinstance(old, Mapping) and new is not None:
        return bool(old.get("sha256") == new["sha256"])
    files = before.get("files")
    return isinstance(files, Mapping) and bool(files.items() & images.files.items())
