"""Thumbnails of the images of a run, if they are available and are the ones that the run was made on."""

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
from berncert.runs.image_job import digest

LARGEST = 64
"""Pixels of a side of a thumbnail, at most; larger images are made smaller."""
POINT = 28
"""Pixels of a side of the thumbnail of a point of the plane."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Gallery:
    """The images of a run; or none, and the reason."""

    images: Mapping[int, npt.NDArray[np.float32]]
    """Number of an image in its data set -> the image."""
    missing: str = ""

    def png(self, index: int) -> bytes | None:
        """The thumbnail of the image with that number."""
        return thumbnail(self.images[index]) if index in self.images else None


class ImageFinder:
    """Finds the images of runs; runs over the same images share them."""

    def __init__(self, data_dir: str | PathLike[str] | None) -> None:
        self._data_dir = data_dir
        self._found: dict[str, Gallery] = {}

    def gallery(self, about: Mapping[str, Any]) -> Gallery:
        """The images that run.json names. Nothing is downloaded; images that changed since the run are not shown."""
        recorded = about["data"]
        if recorded.get("kind") == "table":
            return Gallery({})
        wanted = {"limit": recorded["images"], "skip": about["settings"].get("skip") or 1}
        key = json.dumps([recorded, wanted], sort_keys=True)
        if key not in self._found:
            try:
                self._found[key] = self._load(recorded, wanted)
            except (OSError, RuntimeError, ValueError, TypeError, LookupError) as error:
                self._found[key] = Gallery({}, f"The images of {recorded.get('name')} are not shown: {error}.")
        return self._found[key]

    def _load(self, recorded: Mapping[str, Any], wanted: Mapping[str, int]) -> Gallery:
        dataset = data.load(
            recorded["name"], recorded.get("split", "test"), data_dir=self._data_dir, download=False, progress=False,
            **wanted,
        )  # fmt: skip
        if digest(dataset) != recorded.get("sha256"):
            raise ValueError("they have changed since the run")
        shape = tuple(dataset.images.shape[1:])
        if shape != (2,) and not (len(shape) == 3 and shape[0] in (1, 3)):
            raise ValueError(f"there is no picture of an input of shape {' x '.join(map(str, shape))}")
        return Gallery(dict(zip(dataset.indices.tolist(), dataset.images.numpy(), strict=True)))


def thumbnail(image: npt.NDArray[np.float32]) -> bytes:
    """A PNG of a (1 or 3, H, W) image in [0, 1]; a point of the unit square is drawn as a dot."""
    pixels = _dot(image) if image.ndim == 1 else np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    if max(picture.size) > LARGEST:
        picture.thumbnail((LARGEST, LARGEST))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def _dot(point: npt.NDArray[np.float32]) -> Bytes:
    """(1, side, side): light, and dark within two pixels of the point, whose second coordinate points up."""
    centres = (np.arange(POINT) + 0.5) / POINT
    distance = np.hypot(centres[None, :] - point[0], centres[::-1, None] - point[1]) * POINT
    return np.where(distance <= 2.2, 30, 235).astype(np.uint8)[None]


class Album:
    """Puts each picture into the page once; where it appears again, the page's script copies it from there."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def place(self, png: bytes) -> tuple[int, str]:
        """The picture's number, and its data URL if this is its first place."""
        first = png not in self._numbers
        number = self._numbers.setdefault(png, len(self._numbers) + 1)
        return number, f"data:image/png;base64,{base64.b64encode(png).decode()}" if first else ""
