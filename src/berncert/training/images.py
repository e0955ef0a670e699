"""The images of a training: their choice, their description, and their augmentation."""

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
    """Training images, drawn by the recipe's seed, and test images, evenly spread, as many as the recipe sets."""
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
        raise ValueError(
            f"expected crop and flip that fit images of shape {shape}, got crop = {settings.crop}, "
            f"flip = {settings.flip}; set them to 0 and false"
        )
    chance = torch.Generator().manual_seed(recipe.training.seed)
    drawn = torch.randperm(len(training), generator=chance)[: settings.train_limit].sort().values
    count = min(len(test), settings.test_limit or len(test))
    return _subset(training, drawn), _subset(test, torch.arange(count) * len(test) // count)


def describe_images(training: Dataset) -> dict[str, Any]:
    """A description that differs from that of any other images, as plain JSON."""
    return {
        "name": training.name,
        "part": training.part,
        "images": len(training),
        "shape": list(training.images.shape[1:]),
        "classes": list(training.classes),
        "files": dict(training.files),
        **({"division": training.division} if training.division else {}),
    }


def image_notes(training: Dataset, test: Dataset) -> list[str]:
    """Notes for the user before the training: how the images were divided, and how many are in both splits."""
    division, notes = training.division, []
    if division:
        count = f"{division['test_images']} of its {division['images']} images"
        notes.append(f"{training.name} came without splits: {count} are set aside for testing")
    seen = set(map(_checksum, training.images))
    both = sum(_checksum(image) in seen for image in test.images)
    if both:
        notes.append(
            f"TRAINING IMAGES: {both} of the {len(test)} test images are training images too; results on test images "
            "include them"
        )
    return notes


def _checksum(image: Tensor) -> bytes:
    return hashlib.blake2b(image.numpy().tobytes(), digest_size=16).digest()


def augment(images: Tensor, crop: int, flip: bool, generator: torch.Generator, edges: str = "grey") -> Tensor:
    """Images shifted at random by up to `crop` pixels; with `flip` half of them mirrored.

    At the edges a shift brings in grey, or copies of the nearest pixels.
    """
    count = len(images)
    if crop:
        height, width = images.shape[2:]
        sides = (crop,) * 4
        padded = F.pad(images, sides, value=0.5) if edges == "grey" else F.pad(images, sides, mode="replicate")
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)
        down, right = torch.randint(2 * crop + 1, (2, count), generator=generator)
        images = windows[torch.arange(count), :, down, right]
    if flip:
        mirrored = torch.rand(count, generator=generator) < 0.5
        images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(-1), images)
    return images


def _subset(whole: Dataset, rows: Tensor) -> Dataset:
    return replace(whole, images=whole.images[rows], labels=whole.labels[rows], indices=whole.indices[rows])
