"""Runs: a model, a data set and settings, to a folder of records. Killed at any moment, a run resumes to the same rows.

Images are taken in batches of a fixed size from the first on, so that a run in two parts computes what one in one part
does, bit for bit, and so does one whose batches are worked on by many processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from berncert import data
from berncert.certification.classifier import Classifier
from berncert.certification.exact import ImageProver
from berncert.certification.inputs import placement
from berncert.certification.methods import Exact, Method
from berncert.certification.proof_file import Block
from berncert.certification.status import Claim
from berncert.data import Dataset
from berncert.foundation.folders import claimed
from berncert.foundation.rounding import norm_name
from berncert.hardware import chosen_device
from berncert.models.checkpoint import Checkpoint
from berncert.models.heads import Head
from berncert.models.sources import open_model
from berncert.polynomial import PolynomialHead
from berncert.runs.dispatch import check_timeout, fill
from berncert.runs.engine import Pool, engine_of
from berncert.runs.image_job import ImageJob, Loaded, chosen_classifier, digest
from berncert.runs.records import FORMAT, Run, read
from berncert.runs.settings import BASE, RunSettings
from berncert.runs.table import columns_of, open_table
from berncert.runs.training_images import seen_in_training
from berncert.runs.versions import origin, versions_of

PACKAGES = ("berncert", "numba", "numpy", "scipy", "torch")


def execute(
    model: str | PathLike[str] | Checkpoint,
    method: Method,
    folder: str | PathLike[str],
    settings: RunSettings | None = None,
    *,
    data_dir: str | PathLike[str] | None = None,
    device: str | None = None,
    threads: int | None = None,
    engine: str | Executor | Pool = "serial",
    timeout: float | None = None,
    command: str = "",
    progress: bool | None = None,
) -> Run:
    """Do what is not done yet of this run, and return all of it.

    model: what `berncert.load` takes. folder: a new one, or that of the same run; one with another run, or that another
    process is writing to, is refused. command: what was typed, for the record.

    engine: who works on the batches: "serial" (this process), "processes:4", "dask" (a cluster started here),
    "dask:tcp://HOST:PORT", "dask:scheduler.json", or any `concurrent.futures` executor. It decides nothing: the rows
    are the same, and a run begun on one engine is resumed on another. threads: of one batch; None is 1, or with
    "serial" what torch uses. timeout: seconds after which a batch that was handed out is taken from its worker, and
    given to another; that includes the time it waits there, and what the first batch of a worker compiles and proves.
    """
    place, checkpoint, pool = Path(folder), as_checkpoint(model), engine_of(engine)
    check_timeout(timeout)
    settings = with_data(checkpoint, settings or RunSettings())
    settings = replace(settings, batch_size=settings.batch_size or method.batch_size)
    check_provable(method, settings)
    with claimed(place, "run"):
        classifier = chosen_classifier(checkpoint, settings)
        if pool.here:
            classifier = classifier.to(chosen_device(device))
        threads = threads or (torch.get_num_threads() if pool.here else 1)
        images = chosen_images(settings, data_dir=data_dir, progress=progress)
        check_fits(classifier, images.name, images.images.shape[1:], images.classes)
        seen, versions = seen_in_training(checkpoint.about, images), versions_of(PACKAGES)
        about: dict[str, Any] = {
            "format": FORMAT,
            "kind": method.kind,
            "method": method.name,
            "claim": method.claim.name,
            "settings": asdict(settings) | asdict(method),
            "model": _model_record(checkpoint),
            "data": data_record(images, seen),
            "versions": versions,
            "origin": origin(
                str(checkpoint.path if isinstance(model, Checkpoint) else model), command, engine=pool.name,
                device=placement(classifier).device.type if pool.here else device, threads=threads,
            ),
        }  # fmt: skip

        def lipschitz() -> dict[str, Any]:
            return _lipschitz(classifier, images.images.shape[1:], method.norm) if method.has_bound else {}

        predict, radius, *others = columns_of(method)
        columns = ("idx", "label", predict, radius, "correct", "time", *others)
        table = open_table(
            place, about, columns, images.indices.numpy(),
            more=lipschitz, numbers_per_row=len(columns) + _in_vectors(columns, classifier),
            opening=_opening(classifier, method, checkpoint, images),
        )  # fmt: skip
        job = ImageJob(
            method=method, settings=settings, columns=columns, model=str(checkpoint.path.resolve()),
            model_sha256=checkpoint.sha256, data_dir=None if data_dir is None else str(Path(data_dir).resolve()),
            data_sha256=about["data"]["sha256"], shape=tuple(images.images.shape[1:]), device=device, threads=threads,
            versions=versions, loaded=Loaded(checkpoint, classifier, images),
        )  # fmt: skip
        assert settings.batch_size is not None
        fill(table, pool, job, len(images), settings.batch_size, doing=method.doing, timeout=timeout, progress=progress)
    return read(place)


def _opening(classifier: Classifier, method: Method, checkpoint: Checkpoint, images: Dataset) -> list[Block]:
    """The first blocks of the proofs, if the run has some."""
    if not isinstance(method, Exact) or not method.proof:
        return []
    about = {"model_sha256": checkpoint.sha256}
    return ImageProver(method, classifier, images.images.shape[1:], progress=False).opening(about)


def as_checkpoint(model: str | PathLike[str] | Checkpoint) -> Checkpoint:
    """The model of that name, unless it is opened already."""
    return model if isinstance(model, Checkpoint) else open_model(model)


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
    parts = [checkpoint.name, "attack" if method.kind == "attack" else method.name, norm_name(method.norm)]
    if settings.data is not None and settings.data != checkpoint.trained_on:
        parts.insert(1, Path(settings.data).stem)
    if method.kind == "attack" and method.name != "pgd":
        parts.append(method.name)
    if settings.degree == BASE:
        parts.insert(1, BASE)
    parts += [f"{key.replace('_', '')}{_short(value)}" for key, value in checkpoint.source.items() if key != "kind"]
    for options in (settings, method):
        for entry in fields(options):
            value = getattr(options, entry.name)
            if entry.name not in ("norm", "data") and value not in (entry.default, BASE):
                parts.append(f"{entry.name.replace('_', '')}{'' if value is True else _short(value)}")
    return Path("runs") / "-".join(parts)


def _short(value: Any) -> str:
    """As a part of a folder's name."""
    if not isinstance(value, tuple):
        return str(value)
    ends = [f"{part:.3g}" for part in (value if len(value) <= 4 else (value[0], value[-1]))]
    return "+".join(ends) if len(value) <= 4 else f"{ends[0]}to{ends[1]}({len(value)})"


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


def _lipschitz(classifier: Classifier, shape: Sequence[int], norm: float) -> dict[str, Any]:
    table = classifier.lipschitz_table(shape, norm)
    return {"lipschitz": {"norm": norm, "bound": table.bound, "rows": [asdict(row) for row in table]}}
