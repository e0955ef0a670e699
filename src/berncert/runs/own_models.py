"""Models of the user's own, opened for the data of a run: its images say their shape, and span the cube of features."""

from __future__ import annotations

from os import PathLike

from torch import Tensor

from berncert import data
from berncert.models.checkpoint import Checkpoint
from berncert.models.source_settings import SourceSettings
from berncert.models.sources import is_own, open_model
from berncert.runs.settings import RunSettings

SAMPLE = 1000
"""Training images whose features span the cube, if nothing else says what it is."""


def open_for_data(
    name: str, own: SourceSettings, settings: RunSettings, *, data_dir: str | PathLike[str] | None = None
) -> Checkpoint:
    """The model of that name, for images of the data that the settings name."""
    if not is_own(name):
        return open_model(name, own)
    chosen = settings.data
    if chosen is None:
        raise ValueError(f"expected the name of a data set: {name} does not say what it was trained on; pass data")
    first = data.load(chosen, settings.split, data_dir=data_dir, limit=1)

    def training_images() -> Tensor:
        return data.load(chosen, "train", data_dir=data_dir, limit=SAMPLE).images

    return open_model(name, own, input_shape=tuple(first.images.shape[1:]), images=training_images)
