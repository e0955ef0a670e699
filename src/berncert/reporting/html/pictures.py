"""Thumbnails of the images of a run, if they are at hand and are the ones that the run saw."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from berncert import data
from berncert.runs.execute import digest

LARGEST = 64
"""Pixels of a side; larger images are made smaller."""
POINT = 28
"""Pixels of a side of the picture that a point of the plane gets."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Gallery:
    """The images of a run; or none, and why."""

    images: npt.NDArray[np.float32] | None
    places: Mapping[int, int]
    """Number of an image in its data set -> its place in `images`."""
    missing: str = ""

    def png(self, index: int) -> bytes | None:
        """The picture of that image."""
        place = self.places.get(index)
        return None if self.images is None or place is None else thumbnail(self.images[place])


class Finder:
    """Finds the images of runs; those of runs over the same images once."""

    def __init__(self, data_dir: str | PathLike[str] | None) -> None:
        self._data_dir = data_dir
        self._found: dict[str, Gallery] = {}

    def gallery(self, about: Mapping[str, Any]) -> Gallery:
        """The images that run.json names. Nothing is downloaded for it; other images than the run's are not shown."""
        told = about["data"]
        wanted = {"limit": told["images"], "skip": about["settings"].get("skip") or 1}
        key = json.dumps([told, wanted], sort_keys=True)
        if key not in self._found:
            try:
                self._found[key] = self._load(told, wanted)
            except (OSError, RuntimeError, ValueError, TypeError, LookupError) as error:
                self._found[key] = Gallery(None, {}, f"The images of {told.get('name')} are not shown: {error}.")
        return self._found[key]

    def _load(self, told: Mapping[str, Any], wanted: Mapping[str, int]) -> Gallery:
        dataset = data.load(
            told["name"], told.get("split", "test"), data_dir=self._data_dir, download=False, progress=False, **wanted
        )
        if digest(dataset) != told.get("sha256"):
            raise ValueError("they were changed since the run")
        shape = tuple(dataset.images.shape[1:])
        if shape != (2,) and not (len(shape) == 3 and shape[0] in (1, 3)):
            raise ValueError(f"there is no picture of an input of shape {' x '.join(map(str, shape))}")
        return Gallery(dataset.images.numpy(), {int(index): place for place, index in enumerate(dataset.indices)})


def thumbnail(image: npt.NDArray[np.float32]) -> bytes:
    """A PNG of a (1 or 3, H, W) image in [0, 1]; of a point of the unit square, a dot where it is."""
    pixels = _dot(image) if image.ndim == 1 else np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    if max(picture.size) > LARGEST:
        picture.thumbnail((LARGEST, LARGEST))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def _dot(point: npt.NDArray[np.float32]) -> Bytes:
    """(1, side, side): light, dark within two pixels of the point; upwards is up."""
    centres = (np.arange(POINT) + 0.5) / POINT
    distance = np.hypot(centres[None, :] - point[0], centres[::-1, None] - point[1]) * POINT
    return np.where(distance <= 2.2, 30, 235).astype(np.uint8)[None]


class Album:
    """Each picture once: where it comes a second time, the page's script copies it from the first place."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def place(self, png: bytes) -> tuple[int, str]:
        """The picture's number, and its data URL if this is its first place."""
        first = png not in self._numbers
        number = self._numbers.setdefault(png, len(self._numbers) + 1)
        return number, f"data:image/png;base64,{base64.b64encode(png).decode()}" if first else ""
