"""The job of a run on images: what is sent of it, how a worker prepares it, and the lines that come back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch

from berncert import data
from berncert.certification.classifier import Classifier
from berncert.certification.methods import Batch, Exact, Method
from berncert.certification.results import Rows
from berncert.data import Dataset
from berncert.hardware import chosen_device, torch_threads
from berncert.models.checkpoint import Checkpoint, parse_checkpoint
from berncert.runs.settings import RunSettings
from berncert.runs.table import Line, columns_of, text_lines
from berncert.runs.worker import ROWS, MissingPartError, Supplies, Work, model_content


class Loaded(NamedTuple):
    """What is in the memory of the process that made the job."""

    checkpoint: Checkpoint
    classifier: Classifier
    images: Dataset


@dataclass(frozen=True, kw_only=True)
class ImageJob:
    """A method, a model and a data set, by their checksums."""

    method: Method
    settings: RunSettings
    """With the data set and the batch size."""
    columns: tuple[str, ...]
    """Of the table."""
    model: str
    """The path of the checkpoint, for workers that see the same files."""
    model_sha256: str
    data_dir: str | None
    data_sha256: str
    shape: tuple[int, ...]
    """Of one image."""
    device: str | None
    threads: int
    """Of a batch, in torch and in the search."""
    versions: Mapping[str, str]
    loaded: Loaded | None = field(default=None, compare=False, repr=False)
    """In the process that made the job; it does not travel."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "loaded": None}

    @cached_property
    def key(self) -> str:
        """A checksum of all the rest."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def prepare(self, supplies: Supplies) -> Work:
        """The model, ready, and the images, if they can be read here; the compiled search is loaded before any time."""
        classifier = self.loaded.classifier if self.loaded else self._read_classifier(supplies)
        images = self.loaded.images if self.loaded else self._read_images()
        size = self.settings.batch_size
        assert size is not None
        with torch_threads(self.threads):
            prove: Any = self.method.prepare(
                classifier, self.shape, threads=self.threads, batch_size=size, progress=False
            )  # fmt: skip
            if self.method.name == "exact":
                prove(Batch(torch.zeros(1, *self.shape)))

        def work(rows: slice, supplies: Supplies) -> list[Line]:
            batch = _batch(images, rows) if images is not None else supplies.get(ROWS)
            if batch is None:
                raise MissingPartError(ROWS)
            with torch_threads(self.threads):
                began = time.perf_counter()
                found, proofs = prove.with_proofs(batch) if writes_proofs(self.method) else (prove(batch), [])
                seconds = (time.perf_counter() - began) / len(found)
            return text_lines(self.columns, table_rows(self.method, batch, found, seconds), proofs)

        return work

    def supply(self, part: str, item: slice) -> Any:
        """The checkpoint's bytes, or the images of these rows."""
        assert self.loaded is not None
        if part == ROWS:
            return _batch(self.loaded.images, item)
        return self.loaded.checkpoint.content or model_content(self.model, self.model_sha256, {})

    def _read_classifier(self, supplies: Supplies) -> Classifier:
        content = model_content(self.model, self.model_sha256, supplies)
        checkpoint = parse_checkpoint(content, Path(self.model))
        return chosen_classifier(checkpoint, self.settings).to(chosen_device(self.device))

    def _read_images(self) -> Dataset | None:
        """The data set, if it is here and the same; never downloaded, as many workers would at once."""
        assert self.settings.data is not None
        place = self.data_dir if self.data_dir and Path(self.data_dir).is_dir() else None
        with suppress(OSError, ValueError):
            images = data.load(
                self.settings.data, self.settings.split, data_dir=place, limit=self.settings.limit,
                skip=self.settings.skip, download=False, progress=False,
            )  # fmt: skip
            if digest(images) == self.data_sha256:
                return images
        return None


def _batch(images: Dataset, rows: slice) -> Batch:
    return Batch(images.images[rows], images.labels[rows], images.indices[rows].tolist())


def writes_proofs(method: Method) -> bool:
    """Whether a run of this method has a file of proofs."""
    return isinstance(method, Exact) and method.proof


def chosen_classifier(checkpoint: Checkpoint, settings: RunSettings) -> Classifier:
    """The model with the head that the settings ask for: as it was saved, smoothed again, or not smoothed."""
    if isinstance(settings.degree, str):
        return checkpoint.with_base_head()
    return checkpoint.smoothed(settings.degree)


def digest(images: Dataset) -> str:
    """Of the pixels and the labels."""
    checksum = hashlib.sha256()
    for tensor in (images.images, images.labels):
        checksum.update(tensor.contiguous().numpy().data)  # not a copy: there may be gigabytes
    return checksum.hexdigest()


def table_rows(method: Method, batch: Batch, found: Rows, seconds: float) -> list[dict[str, Any]]:
    """The rows of the table for a batch: what the method found, and what all rows have."""
    assert batch.labels is not None
    columns = {name: attrgetter(field)(found) for name, field in columns_of(method).items()}
    columns |= {"idx": batch.numbers, "label": batch.labels.tolist()}
    columns["correct"] = columns["predict"] == batch.labels.numpy()
    columns["time"] = [timedelta(seconds=seconds)] * len(found)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
