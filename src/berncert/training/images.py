"""The images of a training: which of them, what they are, and how they are changed from epoch to epoch."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from os import PathLike
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from berncert import data
from berncert.data import Dataset
from berncert.training.recipes import Recipe


def load_images(recipe: Recipe, data_dir: str | PathLike[str] | None, progress: bool | None) -> tuple[Dataset, Dataset]:
    """Training and test images, as many as the recipe takes: the former drawn by its seed, the latter evenly spread."""
    settings = recipe.data
    training, test = (
        data.load(settings.dataset, split, data_dir=data_dir, progress=progress) for split in ("train", "test")
    )
    shape, other = tuple(training.images.shape[1:]), tuple(test.images.shape[1:])
    if shape != other:
        raise ValueError(
            f"expected test images of the training images' shape {shape}, got {other} in {settings.dataset}"
        )
    if len(training.classes) < 2:
        raise ValueError(f"expected at least two classes, got one, {training.classes}, in {settings.dataset}")
    if (settings.crop or settings.flip) and (len(shape) < 3 or settings.crop >= min(shape[1:])):
        told = f"crop = {settings.crop}, flip = {settings.flip}"
        raise ValueError(
            f"expected crop and flip that fit images of shape {shape}, got {told}; set them to 0 and false"
        )
    chance = torch.Generator().manual_seed(recipe.training.seed)
    drawn = torch.randperm(len(training), generator=chance)[: settings.train_limit].sort().values
    spread = torch.arange(len(test)) if settings.test_limit is None else _spread(len(test), settings.test_limit)
    return _subset(training, drawn), _subset(test, spread)


def described(training: Dataset) -> dict[str, Any]:
    """What tells these images from others, as plain JSON."""
    return {
        "name": training.name,
        "part": training.part,
        "images": len(training),
        "shape": list(training.images.shape[1:]),
        "classes": list(training.classes),
        "files": dict(training.files),
        **({"division": training.division} if training.division else {}),
    }


def notes_about(training: Dataset, test: Dataset) -> list[str]:
    """What is to be said of these images before a model is trained: how they were divided, which are in both parts."""
    division, notes = training.division, []
    if division:
        whole, aside = division["images"], division["test_images"]
        notes.append(f"{training.name} came without splits: {aside} of its {whole} images are set aside for testing")
    seen = set(map(_checksum, training.images))
    both = sum(_checksum(image) in seen for image in test.images)
    if both:
        notes.append(
            f"TRAINING IMAGES: {both} of the {len(test)} test images are training images too; what is told of test "
            "images is told of them as well"
        )
    return notes


def _checksum(image: Tensor) -> bytes:
    return hashlib.blake2b(image.numpy().tobytes(), digest_size=16).digest()


def augmented(images: Tensor, crop: int, flip: bool, generator: torch.Generator) -> Tensor:
    """Images shifted by up to `crop` pixels, grey coming in, and half of them mirrored, drawn by the generator."""
    count = len(images)
    if crop:
        height, width = images.shape[2:]
        windows = F.pad(images, (crop,) * 4, value=0.5).unfold(2, height, 1).unfold(3, width, 1)
        down, right = torch.randint(2 * crop + 1, (2, count), generator=generator)
        images = windows[torch.arange(count), :, down, right]
    if flip:
        mirrored = torch.rand(count, generator=generator) < 0.5
        images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(-1), images)
    return images


def _spread(count: int, limit: int) -> Tensor:
    """At most `limit` of so many rows, from the first to the last."""
    return torch.arange(min(count, limit)) * count // min(count, limit)


def _subset(whole: Dataset, rows: Tensor) -> Dataset:
    return replace(whole, images=whole.images[rows], labels=whole.labels[rows], indices=whole.indices[rows])
