"""Which runs can be compared image by image."""

from __future__ import annotations

import os

from berncert.runs.records import Run

ALIKE = ("name", "split", "part", "shape")
"""What is told of the same data whatever images were chosen of it."""
FIELD_DATA = ("cifar10", "cifar100", "imagenet", "mnist", "svhn")
"""Lone tables do not say what they are of; folders of these names do."""


def data_of(run: Run) -> str:
    """The data set and its part, e.g. "mnist test"; empty if nothing says so."""
    if run.about:
        told = run.about["data"]
        return f"{told['name']} {told.get('split') or ''}".strip()
    folders = (part.lower() for part in reversed(run.path.resolve().parent.parts))
    name = next((part for part in folders if part in FIELD_DATA), None)
    return f"{name} test" if name else ""


def numbered_in(run: Run) -> str:
    """What the numbers of the images, idx, count in: a part of a data set, or all of one that was divided here."""
    if not run.about:
        return data_of(run)
    told = run.about["data"]
    split = "" if told.get("division") else told.get("split") or ""
    return f"{os.path.normpath(told['name'])} {split}".strip()


def same_task(a: Run, b: Run) -> bool:
    """Whether both are about the same classifier, on images of the same data, in the same norm.

    They may have chosen other images of it; a lone table does not tell enough.
    """
    if not (a.about and b.about) or a.norm != b.norm:
        return False
    models = [(run.about["model"].get("sha256"), run.about["settings"].get("degree")) for run in (a, b)]
    return models[0] == models[1] and _same_data(a, b)


def _same_data(a: Run, b: Run) -> bool:
    mine, its = a.about["data"], b.about["data"]
    divisions = [(told.get("division") or {}).get("sha256") for told in (mine, its)]
    if divisions[0] and divisions[0] == divisions[1]:  # whichever of its parts: their images have different numbers
        return _chosen(a) != _chosen(b) or mine.get("sha256") == its.get("sha256")
    if any(mine.get(key) != its.get(key) for key in ALIKE):
        return False
    files = [told.get("files", {}).items() for told in (mine, its)]
    if not (files[0] <= files[1] or files[1] <= files[0]):  # who needs few images reads the first files only
        return False
    return _chosen(a) != _chosen(b) or mine.get("sha256") == its.get("sha256")


def _chosen(run: Run) -> tuple[object, ...]:
    """What decides which images of the data a run is over."""
    return run.about["data"].get("split"), run.about["data"]["images"], run.about["settings"].get("skip")
