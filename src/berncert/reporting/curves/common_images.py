"""Curves are compared on the images that all of their runs have: results on some images say nothing of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from berncert.reporting.curves.curve import Curve
from berncert.runs.records import Run

AnyCurve = TypeVar("AnyCurve", bound=Curve)
ENOUGH = 10
"""With so many images whose labels agree, a table that does not name its data is taken to be of the same data."""


def on_common_images(curves: Sequence[AnyCurve]) -> tuple[list[AnyCurve], list[str]]:
    """The curves, those over the same data on the images that all of them have; and notes that say so.

    Images are the same by data set, idx and label. Runs of different data, or without any image in common, are left as
    they are, as `differences` says.
    """
    matched, notes = list(curves), []
    for group in same_data(curves):
        filled = [k for k in group if len(curves[k].run)]
        images = [set(image_keys(curves[k].run)) for k in filled]
        shared = set[tuple[int, int]]().union(*images).intersection(*images)
        if not shared or all(len(each) == len(shared) for each in images):
            continue
        for k, own in zip(filled, images, strict=True):
            if len(own) > len(shared):
                matched[k] = replace(curves[k], run=only(curves[k].run, shared), whole=curves[k].whole_run)
        members = [curves[k] for k in filled]
        notes.append(
            f"compared on the {len(shared)} images{_of_data(members)} that are in all runs ({_counted(members)})"
        )
    return matched, notes


def same_data(curves: Sequence[Curve]) -> list[list[int]]:
    """Which curves are of the same data, by their places; a table that does not name it goes where its labels agree."""
    groups: list[list[int]] = []
    names = [curve.run.numbered_in for curve in curves]
    for k in sorted(range(len(curves)), key=lambda k: not names[k]):  # those with a name first
        group = next((group for group in groups if _belongs(curves, names, k, group)), None)
        groups.append([k]) if group is None else group.append(k)
    return [sorted(group) for group in sorted(groups, key=min)]


def differences(curves: Sequence[Curve]) -> Iterator[str]:
    """Warnings about curves of different data, or of different images of the same data."""
    groups = [[curves[k] for k in group] for group in same_data(curves)]
    if len(groups) > 1:
        listed = "; ".join(f"{_data_names(group) or 'unknown'}: {_labels(group)}" for group in groups)
        yield f"not all on the same data set ({listed})"
    for group in groups:
        images = [set(image_keys(curve.run)) for curve in group]
        shared = set.intersection(*images)
        if any(each != shared for each in images):
            yield f"not all on the same images{_of_data(group)} ({_counted(group)}; {len(shared)} are in all)"
        nameless = [curve for curve in group if not curve.run.numbered_in]
        if nameless and len(nameless) < len(group):
            yield (f"{_labels(nameless)} taken to be of {_data_names(group)}: it does not say so, but its labels agree")


def only(run: Run, images: set[tuple[int, int]]) -> Run:
    """The run with the rows of these images alone."""
    kept = np.array([pair in images for pair in image_keys(run)], dtype=bool)
    return replace(run, rows={name: values[kept] for name, values in run.rows.items()})


def image_keys(run: Run) -> Iterator[tuple[int, int]]:
    """The number and the label of each image, in the order of the rows: with these an image is known again."""
    return zip(run.rows["idx"].tolist(), run.rows["label"].tolist(), strict=True)


def _belongs(curves: Sequence[Curve], names: Sequence[str], k: int, group: Sequence[int]) -> bool:
    if names[k]:
        return any(names[other] == names[k] for other in group)
    labels = dict(image_keys(curves[k].run))
    shared = [(labels[idx], label) for other in group for idx, label in image_keys(curves[other].run) if idx in labels]
    if len(shared) < ENOUGH or len(set(shared)) < 2:  # agreement can be chance
        return False
    return all(label == other_label for label, other_label in shared)


def _data_names(curves: Sequence[Curve]) -> str:
    return ", ".join(dict.fromkeys(name for curve in curves if (name := curve.run.numbered_in)))


def _of_data(curves: Sequence[Curve]) -> str:
    return f" of {names}" if (names := _data_names(curves)) else ""


def _labels(curves: Sequence[Curve]) -> str:
    return ", ".join(curve.label for curve in curves)


def _counted(curves: Sequence[Curve]) -> str:
    return ", ".join(f"{curve.label} {len(curve.run)}" for curve in curves)
