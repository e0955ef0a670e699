"""Runs: a model, a data set and settings, to a folder of records. Killed at any moment, a run goes on to the same rows.

Images are taken in batches of a fixed size from the first on, so that a run in two parts computes what one in one part
does, bit for bit.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime, timedelta
from importlib import metadata, resources
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import torch

from berncert import data
from berncert.certification.classifier import Classifier
from berncert.certification.inputs import placement
from berncert.data import Dataset
from berncert.floor.folders import claimed
from berncert.floor.progress import Bar
from berncert.floor.rounding import norm_name
from berncert.hardware import chosen_device
from berncert.models.checkpoint import FILE, Checkpoint, open_checkpoint
from berncert.polynomial import SmoothedHead
from berncert.runs.methods import RunSettings
from berncert.runs.records import FIRST, FORMAT, Run, Table, open_table, read
from berncert.runs.training_images import seen_in_training
from berncert.runs.workers import worker

Settings = TypeVar("Settings", bound=RunSettings)
PACKAGES = ("berncert", "numba", "numpy", "scipy", "torch")


def perform(
    model: str | PathLike[str],
    settings: RunSettings,
    folder: str | PathLike[str],
    *,
    data_dir: str | PathLike[str] | None = None,
    device: str | None = None,
    command: str = "",
    progress: bool | None = None,
) -> Run:
    """Do what is not done yet of this run, and return all of it.

    model: what `berncert.load` takes. folder: a new one, or that of the same run; one with another run, or that another
    process is writing to, is refused. command: what was typed, for the record.
    """
    place, settings = Path(folder), with_data(model, settings)
    with claimed(place, "run"):
        checkpoint = open_checkpoint(model)
        classifier = checkpoint.smoothed(settings.degree).to(chosen_device(device))
        images = chosen_images(settings, data_dir=data_dir, progress=progress)
        check_fits(classifier, images.name, images.images.shape[1:], images.classes)
        about = {
            "format": FORMAT,
            "kind": settings.kind,
            "method": settings.method,
            "claim": settings.claim.name,
            "settings": asdict(settings) | {"device": _device_name(classifier), "threads": torch.get_num_threads()},
            "model": _model_facts(checkpoint),
            "data": data_facts(images, seen_in_training(checkpoint.about, images)),
            "versions": {name: metadata.version(name) for name in PACKAGES} | {"code": _code()},
            "origin": _origin(model, command),
        }

        def lipschitz() -> dict[str, Any]:
            return _lipschitz(classifier, images.images.shape[1:], settings.norm) if settings.has_bound else {}

        first = [settings.radius_column if name == "radius" else name for name in FIRST]
        columns = (*first, *settings.columns)
        table = open_table(
            place, about, columns, images.indices.numpy(),
            more=lipschitz, numbers_per_row=len(columns) + _in_vectors(settings, classifier),
        )  # fmt: skip
        _finish(table, settings, classifier, images, progress)
    return read(place)


def _in_vectors(settings: RunSettings, classifier: Classifier) -> int:
    """How many numbers of a row are in columns that hold several."""
    head = classifier.head
    assert isinstance(head, SmoothedHead)
    sizes = {"features": head.dim, "witness": head.dim, "counts": len(head.coefficients)}
    return sum(size for name, size in sizes.items() if name in settings.columns)


def with_data(model: str | PathLike[str], settings: Settings) -> Settings:
    """The settings with a data set: by default what the model was trained on."""
    name = trained_on(model) if settings.data is None else settings.data
    if not name:
        raise ValueError(f"expected the name of a data set: {model} does not tell what it was trained on; pass data")
    return replace(settings, data=name)


def loaded(model: str | PathLike[str], degree: int | None = None) -> Classifier:
    """The smoothed model of that checkpoint; with a degree, its base head smoothed again."""
    return open_checkpoint(model).smoothed(degree)


def chosen_images(
    settings: RunSettings, *, data_dir: str | PathLike[str] | None = None, progress: bool | None = None
) -> Dataset:
    """Those that the settings name."""
    assert settings.data is not None
    return data.load(
        settings.data, settings.split, data_dir=data_dir, limit=settings.limit, skip=settings.skip, progress=progress
    )


def trained_on(model: str | PathLike[str]) -> str | None:
    """The data set that a checkpoint names as its own, if it does."""
    told: Any = open_checkpoint(model).about
    for key in ("recipe", "data", "dataset"):
        told = told.get(key) if isinstance(told, Mapping) else None
    return told if isinstance(told, str) else None


def default_folder(model: str | PathLike[str], settings: RunSettings) -> Path:
    """runs/, and in it a name that tells what differs from the defaults."""
    path = Path(model)
    name = path.resolve().parent.name if path.name == FILE else path.resolve().name.removesuffix(".safetensors")
    told = [name, "attack" if settings.kind == "attack" else settings.method, norm_name(settings.norm)]
    if settings.data is not None and settings.data != trained_on(model):
        told.insert(1, Path(settings.data).stem)
    if settings.kind == "attack" and settings.method != "pgd":
        told.append(settings.method)
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        if entry.name not in ("norm", "data") and value != entry.default:
            told.append(f"{entry.name.replace('_', '')}{_short(value)}")
    return Path("runs") / "-".join(told)


def _short(value: Any) -> str:
    """As a part of a folder's name."""
    if not isinstance(value, tuple):
        return str(value)
    ends = [f"{part:.3g}" for part in (value if len(value) <= 4 else (value[0], value[-1]))]
    return "+".join(ends) if len(value) <= 4 else f"{ends[0]}to{ends[1]}({len(value)})"


def _finish(
    table: Table, settings: RunSettings, classifier: Classifier, images: Dataset, progress: bool | None
) -> None:
    """The rows that are missing, batch by batch; of a batch that was cut off only those that are."""
    count, size = len(images), settings.batch_size
    if table.done == count:
        return
    work = worker(settings, classifier, images.images.shape[1:])
    with Bar(settings.doing, total=count, progress=progress) as bar:
        for start in range(table.done // size * size, count, size):
            bar.update(start)
            rows = slice(start, min(start + size, count))
            labels, numbers = images.labels[rows], images.indices[rows].tolist()
            began = time.perf_counter()
            cells = work(images.images[rows], labels, numbers)
            each = timedelta(seconds=(time.perf_counter() - began) / len(cells))
            whole = [
                {"idx": number, "label": label, "correct": found["predict"] == label, "time": each} | found
                for number, label, found in zip(numbers, labels.tolist(), cells, strict=True)
            ]
            table.append(whole[table.done - start :])
            bar.update(table.done)


def check_fits(classifier: Classifier, name: str, shape: Sequence[int], classes: Sequence[str]) -> None:
    """Data of the shape that the network takes, and with no more classes than it has."""
    head, wanted = classifier.head, getattr(classifier.extractor, "input_shape", shape)
    if tuple(wanted) != tuple(shape):
        told = f"expected data of shape {tuple(wanted)}, got {name} of shape {tuple(shape)}"
        raise ValueError(f"{told}; choose other data")
    if isinstance(head, SmoothedHead) and head.classes < len(classes):
        raise ValueError(
            f"expected data with at most the {head.classes} classes of the model, got {name} with {len(classes)}; "
            "choose other data"
        )


def _model_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    parts = {name: part for name, part in checkpoint.description().items() if name != "about"}
    return {"sha256": checkpoint.sha256, **parts}


def data_facts(images: Dataset, seen: str = "") -> dict[str, Any]:
    """What tells these images from others; and, if there is something to say, how they were divided and seen before."""
    told = {"division": images.division, "seen_in_training": seen}
    return {
        "name": images.name,
        "split": images.split,
        "part": images.part,
        "files": dict(images.files),
        "images": len(images),
        "shape": list(images.images.shape[1:]),
        "sha256": digest(images),
        "classes": list(images.classes),
        **{key: value for key, value in told.items() if value},
    }


def digest(images: Dataset) -> str:
    """Of the pixels and the labels."""
    return hashlib.sha256(images.images.numpy().tobytes() + images.labels.numpy().tobytes()).hexdigest()


def _lipschitz(classifier: Classifier, shape: Sequence[int], norm: float) -> dict[str, Any]:
    table = classifier.lipschitz_table(shape, norm)
    return {"lipschitz": {"norm": norm, "bound": table.bound, "rows": [asdict(row) for row in table]}}


def _code() -> str:
    """A checksum of this package's own code, which may change in a checkout while its version does not."""
    package = Path(str(resources.files("berncert")))
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _origin(model: str | PathLike[str], command: str) -> dict[str, Any]:
    return {
        "model": str(model),
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
    }


def _device_name(classifier: Classifier) -> str:
    return placement(classifier).device.type
