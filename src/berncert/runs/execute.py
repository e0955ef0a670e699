"""Runs: a model, a data set and settings, to a folder of records. Killed at any moment, a run resumes to the same rows.

Images are taken in batches of a fixed size from the first on, so that a run in two parts computes what one in one part
does, bit for bit.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime, timedelta
from importlib import metadata, resources
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from berncert import data
from berncert.certification.classifier import Classifier
from berncert.certification.inputs import placement
from berncert.certification.methods import Batch, Method
from berncert.certification.results import Rows
from berncert.certification.status import Claim
from berncert.data import Dataset
from berncert.foundation.folders import claimed
from berncert.foundation.progress import Bar
from berncert.foundation.rounding import norm_name
from berncert.hardware import chosen_device
from berncert.models.checkpoint import FILE, Checkpoint, open_checkpoint
from berncert.models.heads import Head
from berncert.polynomial import PolynomialHead
from berncert.runs.records import FORMAT, Run, read
from berncert.runs.settings import BASE, RunSettings
from berncert.runs.table import Table, columns_of, open_table
from berncert.runs.training_images import seen_in_training

PACKAGES = ("berncert", "numba", "numpy", "scipy", "torch")


def execute(
    model: str | PathLike[str] | Checkpoint,
    method: Method,
    folder: str | PathLike[str],
    settings: RunSettings | None = None,
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
    place, checkpoint = Path(folder), as_checkpoint(model)
    settings = with_data(checkpoint, settings or RunSettings())
    settings = replace(settings, batch_size=settings.batch_size or method.batch_size)
    check_provable(method, settings)
    with claimed(place, "run"):
        classifier = chosen_classifier(checkpoint, settings).to(chosen_device(device))
        images = chosen_images(settings, data_dir=data_dir, progress=progress)
        check_fits(classifier, images.name, images.images.shape[1:], images.classes)
        hardware = {"device": placement(classifier).device.type, "threads": torch.get_num_threads()}
        about = {
            "format": FORMAT,
            "kind": method.kind,
            "method": method.name,
            "claim": method.claim.name,
            "settings": asdict(settings) | asdict(method) | hardware,
            "model": _model_record(checkpoint),
            "data": data_record(images, seen_in_training(checkpoint.about, images)),
            "versions": {name: metadata.version(name) for name in PACKAGES} | {"code": code_checksum()},
            "origin": _origin(model, command),
        }

        def lipschitz() -> dict[str, Any]:
            return _lipschitz(classifier, images.images.shape[1:], method.norm) if method.has_bound else {}

        columns = columns_of(method)
        predict, radius, *others = columns
        table = open_table(
            place, about, ("idx", "label", predict, radius, "correct", "time", *others), images.indices.numpy(),
            more=lipschitz, numbers_per_row=len(columns) + 4 + _in_vectors(columns, classifier),
        )  # fmt: skip
        assert settings.batch_size is not None
        _finish(table, method, settings.batch_size, classifier, images, progress)
    return read(place)


def as_checkpoint(model: str | PathLike[str] | Checkpoint) -> Checkpoint:
    """The checkpoint at that path or of that name, unless it is one already."""
    return model if isinstance(model, Checkpoint) else open_checkpoint(model)


def chosen_classifier(checkpoint: Checkpoint, settings: RunSettings) -> Classifier:
    """The model with the head that the settings ask for: as it was saved, smoothed again, or not smoothed."""
    if isinstance(settings.degree, str):
        return checkpoint.with_base_head()
    return checkpoint.smoothed(settings.degree)


def check_provable(method: Method, settings: RunSettings) -> None:
    """Raise a ValueError if a proof is asked for about a head that has none."""
    if settings.degree == BASE and method.claim is Claim.PROVEN:
        raise ValueError(
            f"expected degree to be a whole number with method {method.name}, got {BASE}: only a smoothed head has a "
            "proof; choose a degree, or method randomized or estimate, or attack it"
        )


def _in_vectors(columns: Iterable[str], classifier: Classifier) -> int:
    """How many numbers of a row are in columns that hold several."""
    head = classifier.head
    assert isinstance(head, PolynomialHead | Head)
    sizes = {"features": head.dim, "witness": head.dim, "counts": head.classes}
    return sum(size for name, size in sizes.items() if name in columns)


def with_data(checkpoint: Checkpoint, settings: RunSettings) -> RunSettings:
    """The settings with a data set: by default what the model was trained on."""
    name = checkpoint.trained_on if settings.data is None else settings.data
    if not name:
        raise ValueError(
            f"expected the name of a data set: {checkpoint.path} does not say what it was trained on; pass data"
        )
    return replace(settings, data=name)


def chosen_images(
    settings: RunSettings, *, data_dir: str | PathLike[str] | None = None, progress: bool | None = None
) -> Dataset:
    """Those that the settings name."""
    assert settings.data is not None
    return data.load(
        settings.data, settings.split, data_dir=data_dir, limit=settings.limit, skip=settings.skip, progress=progress
    )


def default_folder(
    model: str | PathLike[str] | Checkpoint, method: Method, settings: RunSettings | None = None
) -> Path:
    """runs/, and in it a name that says what differs from the defaults."""
    settings, checkpoint = settings or RunSettings(), as_checkpoint(model)
    path = checkpoint.path.resolve()
    name = path.parent.name if path.name == FILE else path.name.removesuffix(".safetensors")
    parts = [name, "attack" if method.kind == "attack" else method.name, norm_name(method.norm)]
    if settings.data is not None and settings.data != checkpoint.trained_on:
        parts.insert(1, Path(settings.data).stem)
    if method.kind == "attack" and method.name != "pgd":
        parts.append(method.name)
    if settings.degree == BASE:
        parts.insert(1, BASE)
    for options in (settings, method):
        for entry in fields(options):
            value = getattr(options, entry.name)
            if entry.name not in ("norm", "data") and value not in (entry.default, BASE):
                parts.append(f"{entry.name.replace('_', '')}{_short(value)}")
    return Path("runs") / "-".join(parts)


def _short(value: Any) -> str:
    """As a part of a folder's name."""
    if not isinstance(value, tuple):
        return str(value)
    ends = [f"{part:.3g}" for part in (value if len(value) <= 4 else (value[0], value[-1]))]
    return "+".join(ends) if len(value) <= 4 else f"{ends[0]}to{ends[1]}({len(value)})"


def _finish(
    table: Table, method: Method, size: int, classifier: Classifier, images: Dataset, progress: bool | None
) -> None:
    """Append the rows that are missing, batch by batch; of a batch that was cut off, only those that are."""
    count = len(images)
    if table.done == count:
        return
    threads = torch.get_num_threads()
    work = method.prepare(classifier, images.images.shape[1:], threads=threads, batch_size=size, progress=False)
    if method.name == "exact":
        work(Batch(torch.zeros(1, *images.images.shape[1:])))  # the compiled search is loaded before times are taken
    with Bar(method.doing, total=count, progress=progress) as bar:
        for start in range(table.done // size * size, count, size):
            bar.update(start)
            rows = slice(start, min(start + size, count))
            batch = Batch(images.images[rows], images.labels[rows], images.indices[rows].tolist())
            began = time.perf_counter()
            found = work(batch)
            seconds = (time.perf_counter() - began) / len(found)
            table.append(table_rows(method, batch, found, seconds)[table.done - start :])
            bar.update(table.done)


def table_rows(method: Method, batch: Batch, found: Rows, seconds: float) -> list[dict[str, Any]]:
    """The rows of the table for a batch: what the method found, and what all rows have."""
    assert batch.labels is not None
    columns = {name: attrgetter(field)(found) for name, field in columns_of(method).items()}
    columns |= {"idx": batch.numbers, "label": batch.labels.tolist()}
    columns["correct"] = columns["predict"] == batch.labels.numpy()
    columns["time"] = [timedelta(seconds=seconds)] * len(found)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def check_fits(classifier: Classifier, name: str, shape: Sequence[int], classes: Sequence[str]) -> None:
    """Data of the shape that the network takes, and with no more classes than it has."""
    head, wanted = classifier.head, getattr(classifier.extractor, "input_shape", shape)
    if tuple(wanted) != tuple(shape):
        raise ValueError(
            f"expected data of shape {tuple(wanted)}, got {name} of shape {tuple(shape)}; choose other data"
        )
    if isinstance(head, PolynomialHead | Head) and head.classes < len(classes):
        raise ValueError(
            f"expected data with at most the {head.classes} classes of the model, got {name} with {len(classes)}; "
            "choose other data"
        )


def _model_record(checkpoint: Checkpoint) -> dict[str, Any]:
    parts = {name: part for name, part in checkpoint.description().items() if name != "about"}
    return {"sha256": checkpoint.sha256, **parts}


def data_record(images: Dataset, seen: str = "") -> dict[str, Any]:
    """What these images are; and, if there is something to say, how they were divided and whether they were seen."""
    more = {"division": images.division, "seen_in_training": seen}
    return {
        "name": images.name,
        "split": images.split,
        "part": images.part,
        "files": dict(images.files),
        "images": len(images),
        "shape": list(images.images.shape[1:]),
        "sha256": digest(images),
        "classes": list(images.classes),
        **{key: value for key, value in more.items() if value},
    }


def digest(images: Dataset) -> str:
    """Of the pixels and the labels."""
    return hashlib.sha256(images.images.numpy().tobytes() + images.labels.numpy().tobytes()).hexdigest()


def _lipschitz(classifier: Classifier, shape: Sequence[int], norm: float) -> dict[str, Any]:
    table = classifier.lipschitz_table(shape, norm)
    return {"lipschitz": {"norm": norm, "bound": table.bound, "rows": [asdict(row) for row in table]}}


def code_checksum() -> str:
    """A checksum of this package's own code, which may change in a checkout while its version does not."""
    package = Path(str(resources.files("berncert")))
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _origin(model: str | PathLike[str] | Checkpoint, command: str) -> dict[str, Any]:
    return {
        "model": str(model.path if isinstance(model, Checkpoint) else model),
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
    }
