"""A run on a table: train, smooth, certify the rows that were held out, and write one row for each, resumable."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from berncert.certification.methods import Exact
from berncert.certification.status import Claim
from berncert.data.table_files import TableFile, read_table
from berncert.estimators.classifier import BernsteinClassifier
from berncert.estimators.columns import column_numbers
from berncert.estimators.constraints import ConstraintOptions
from berncert.estimators.files import check_files, load, save
from berncert.estimators.partial import column_effects
from berncert.estimators.table_proof import table_opening
from berncert.foundation.arguments import guess
from berncert.foundation.arrays import Ints
from berncert.foundation.folders import claimed
from berncert.runs.dispatch import check_timeout, fill
from berncert.runs.engine import Pool, engine_of
from berncert.runs.records import FORMAT, Run, read
from berncert.runs.table import open_table
from berncert.runs.table_job import COLUMNS, Loaded, TableJob
from berncert.runs.table_settings import MODELS, TableSettings
from berncert.runs.versions import origin, versions_of

MODEL = "model.skops"
BATCH = 16
PACKAGES = ("berncert", "numpy", "scikit-learn", "numba")


def execute_table(
    path: str | PathLike[str],
    folder: str | PathLike[str],
    settings: TableSettings,
    method: Exact | None = None,
    *,
    command: str = "",
    threads: int | None = None,
    engine: str | Executor | Pool = "serial",
    timeout: float | None = None,
    progress: bool | None = None,
) -> Run:
    """Make the run, or resume it; the folder gets run.json, certificates.tsv and the model as model.skops.

    engine, timeout: as in `berncert.runs.execute.execute`; the rows are certified there, the model is made here.
    threads: of one batch; None is 1, or with "serial" all cores.
    """
    place, method, pool = Path(folder), method or Exact(), engine_of(engine)
    check_timeout(timeout)
    check_files()
    table = read_table(path, settings.target, leave_out=settings.leave_out, drop_missing=settings.drop_missing)
    _check_names(table, settings)
    train, test = _divided(table, settings)
    _warn_of_unseen(table, train)
    with claimed(place, "run"):
        model, versions = _model(place, table, train, settings), versions_of(PACKAGES)
        classes = [str(c) for c in model.classes_]
        about = {
            "format": FORMAT,
            "kind": "certify",
            "method": method.name,
            "claim": Claim.PROVEN.name,
            "settings": asdict(settings) | asdict(method),
            "model": _model_record(model),
            "data": {
                "kind": "table", "name": table.name, "split": "test", "images": len(test), "classes": classes,
                "columns": list(table.columns), "sha256": table.sha256, "shape": [len(table.columns)],
            },
            "versions": versions,
            "origin": origin(str(path), command, engine=pool.name, device="cpu", threads=threads),
        }  # fmt: skip
        limits = constraints_of(model, table, settings)
        if method.proof:  # what is left out is taken as continuous, which only lowers radii
            limits = ConstraintOptions(**{**limits, "whole": [], "categories": []})

        def more() -> Mapping[str, Any]:
            return {"table": _table_record(model, table, train, test, settings, limits, method.norm, threads)}

        rows = open_table(
            place, about, COLUMNS, table.numbers[test], more=more, numbers_per_row=12 + 2 * len(table.columns),
            opening=table_opening(model.head_, model.reduction_, method.norm) if method.proof else (),
        )  # fmt: skip
        job = TableJob(
            method=method, limits=limits, classes=tuple(classes), model=str((place / MODEL).resolve()),
            model_sha256=hashlib.sha256((place / MODEL).read_bytes()).hexdigest(),
            threads=threads if pool.here else threads or 1, versions=versions, loaded=Loaded(model, table, test),
        )  # fmt: skip
        fill(rows, pool, job, len(test), BATCH, doing="certifying", timeout=timeout, progress=progress)
    return read(place)


def _check_names(table: TableFile, settings: TableSettings) -> None:
    for option in ("fixed", "increasing", "decreasing"):
        column_numbers(_columns(table, getattr(settings, option)), table.columns, len(table.columns), option)
    kinds = sorted(set(table.target.tolist()))
    if len(kinds) < 2:
        raise ValueError(f"expected at least two classes in column {settings.target!r}, got one class only: {kinds}")
    if len(kinds) > max(20, len(table.target) // 10):
        raise ValueError(
            f"expected classes in column {settings.target!r}, got {len(kinds)} different values; for a number to be "
            "predicted use berncert.estimators.BernsteinRegressor"
        )


def _columns(table: TableFile, names: Sequence[str]) -> list[str]:
    """The columns that are meant: of a column of categories all of its 0/1 columns."""
    found: list[str] = []
    for name in names:
        members = [c for group in table.groups for c in group if c.startswith(f"{name}=")]
        if name not in table.columns and not members:
            raise ValueError(f"expected a column of {table.name}, got {name!r}{guess(name, table.columns)}")
        found += [name] if name in table.columns else members
    return found


def _divided(table: TableFile, settings: TableSettings) -> tuple[Ints, Ints]:
    """The rows to train on and those that are held out, in the file's order."""
    from sklearn.model_selection import train_test_split

    rows = np.arange(len(table.target))
    counts = np.unique(table.target, return_counts=True)[1]
    train, test = train_test_split(
        rows, test_size=settings.test, random_state=settings.seed, stratify=table.target if counts.min() > 1 else None
    )
    return np.sort(train), np.sort(test)[: settings.limit]


def _model(place: Path, table: TableFile, train: Ints, settings: TableSettings) -> Any:
    """The smoothed model: that of the folder if the run is resumed, else a new one, written there."""
    if (place / "run.json").exists() and (place / MODEL).exists():
        return load(place / MODEL)
    limited = _columns(table, (*settings.fixed, *settings.increasing, *settings.decreasing))
    keep = column_numbers(limited, table.columns, len(table.columns), "keep")
    terms = None if settings.terms == "none" else settings.terms
    model = BernsteinClassifier(
        MODELS[settings.model](settings.seed), degree=settings.degree, dim=settings.dim, terms=terms, keep=keep
    ).fit(table.values[train], table.target[train])
    save(model, place / MODEL)
    return model


def constraints_of(model: Any, table: TableFile, settings: TableSettings) -> ConstraintOptions:
    """What the settings ask for; whole numbers and categories where these columns are not projected."""
    mixed = {table.columns[int(j)] for j in model.reduction_.mixed}
    own = {table.columns[int(j)] for j in model.reduction_.kept}
    numbers = {name: j for j, name in enumerate(table.columns)}
    return ConstraintOptions(
        fixed=[numbers[c] for c in _columns(table, settings.fixed)],
        increasing=[numbers[c] for c in _columns(table, settings.increasing)],
        decreasing=[numbers[c] for c in _columns(table, settings.decreasing)],
        whole=[numbers[c] for c in table.whole if c in own],
        categories=[[numbers[c] for c in group] for group in table.groups if not set(group) & mixed],
    )


def unseen_categories(table: TableFile, train: Ints) -> list[str]:
    """The 0/1 columns of categories that no row of the training part has."""
    numbers = {name: j for j, name in enumerate(table.columns)}
    return [c for group in table.groups for c in group if not table.values[train, numbers[c]].any()]


def _warn_of_unseen(table: TableFile, train: Ints) -> None:
    unseen = unseen_categories(table, train)
    if unseen:
        warnings.warn(
            f"expected every category in the training part of {table.name}, got none of {', '.join(unseen[:5])}"
            f"{', ...' if len(unseen) > 5 else ''}; to the model a row of such a category has no category at all; "
            "merge rare categories, or change the seed",
            stacklevel=3,
        )


def _model_record(model: Any) -> dict[str, Any]:
    digest = hashlib.sha256()
    for tensor in model.head_.tensors:
        digest.update(tensor.numpy().tobytes())
    return {
        "sha256": digest.hexdigest(),
        "base": type(model.estimator).__name__,
        "axes": model.reduction_.dim,
        "form": model.form_,
        "degree": list(model.degree_),
        "agreement": model.agreement_,
    }


def _table_record(
    model: Any,
    table: TableFile,
    train: Ints,
    test: Ints,
    settings: TableSettings,
    limits: ConstraintOptions,
    norm: float,
    threads: int | None,
) -> dict[str, Any]:
    """What the report shows besides the rows: units, accuracy of the base, and the effect of each column."""
    base = model._base_labels(table.values[test])
    return {
        "scale": model.scale_.tolist(),
        "projected": [table.columns[int(j)] for j in model.reduction_.mixed],
        "constraints": {name: value for name, value in limits.items() if value},
        "base_accuracy": float((base == table.target[test]).mean()),
        "smoothed_accuracy": float(model.score(table.values[test], table.target[test])),
        "effects": column_effects(
            model, table.values[train], table.columns, radius=settings.radius_of_ranges, norm=norm, threads=threads
        ),
    }
