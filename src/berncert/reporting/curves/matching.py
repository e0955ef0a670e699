"""Curves are compared on the images that all of their runs have: those of few images say nothing of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from berncert.runs.records import Run

if TYPE_CHECKING:
    from berncert.reporting.curves.accuracy import Curve

ENOUGH = 10
"""Images whose labels agree: with them a table that does not say what it is of is taken to be of the same data."""


def on_common_images(curves: Sequence[Curve]) -> tuple[list[Curve], list[str]]:
    """The curves, of runs over the same data on the images that all of them have; and what to say of it.

    Images are the same by data set, idx and label. Runs of different data, or without any image in common, are left as
    they are, as `differences` says.
    """
    matched, notes = list(curves), []
    for group in same_data(curves):
        filled = [k for k in group if len(curves[k].run)]
        images = [images_of(curves[k].run) for k in filled]
        shared = set[tuple[int, int]]().union(*images).intersection(*images)
        if not shared or all(len(each) == len(shared) for each in images):
            continue
        for k, its in zip(filled, images, strict=True):
            if len(its) > len(shared):
                matched[k] = replace(curves[k], run=only(curves[k].run, shared), whole=curves[k].whole_run)
        counts = ", ".join(f"{curves[k].label} {len(curves[k].run)}" for k in filled)
        of = _of([curves[k] for k in filled])
        notes.append(f"compared on the {len(shared)} images{of} that are in all runs ({counts})")
    return matched, notes


def same_data(curves: Sequence[Curve]) -> list[list[int]]:
    """Which curves are of the same data, by their places; a table that does not say goes where its labels agree."""
    groups: list[list[int]] = []
    names = [curve.run.numbered_in for curve in curves]
    for k in sorted(range(len(curves)), key=lambda k: not names[k]):  # those that say first
        mine = (group for group in groups if _belongs(curves, names, k, group))
        group = next(mine, None)
        groups.append([k]) if group is None else group.append(k)
    return [sorted(group) for group in sorted(groups, key=min)]


def differences(curves: Sequence[Curve]) -> Iterator[str]:
    """Curves of other data, or of other images of the same data, say less about each other."""
    groups = [[curves[k] for k in group] for group in same_data(curves)]
    if len(groups) > 1:
        told = "; ".join(f"{_named(group) or 'not told'}: {_listed(group)}" for group in groups)
        yield f"not all on the same data set ({told})"
    for group in groups:
        images = [images_of(curve.run) for curve in group]
        shared = set.intersection(*images)
        if any(each != shared for each in images):
            told = ", ".join(f"{curve.label} {len(curve.run)}" for curve in group)
            yield f"not all on the same images{_of(group)} ({told}; {len(shared)} are in all)"
        silent = [curve for curve in group if not curve.run.numbered_in]
        if silent and len(silent) < len(group):
            yield f"{_listed(silent)} taken to be of {_named(group)}: it does not say so, but its labels agree"


def images_of(run: Run) -> set[tuple[int, int]]:
    """The number and the label of each image."""
    return set(zip(run.rows["idx"].tolist(), run.rows["label"].tolist(), strict=True))


def only(run: Run, images: set[tuple[int, int]]) -> Run:
    """The run with the rows of these images alone."""
    pairs = zip(run.rows["idx"].tolist(), run.rows["label"].tolist(), strict=True)
    kept = np.array([pair in images for pair in pairs], dtype=bool)
    return replace(run, rows={name: values[kept] for name, values in run.rows.items()})


def _belongs(curves: Sequence[Curve], names: Sequence[str], k: int, group: Sequence[int]) -> bool:
    if names[k]:
        return any(names[other] == names[k] for other in group)
    labels = dict(images_of(curves[k].run))
    others = [dict(images_of(curves[other].run)) for other in group]
    shared = [(labels[idx], label) for its in others for idx, label in its.items() if idx in labels]
    if len(shared) < ENOUGH or len(set(shared)) < 2:  # that can be chance
        return False
    return all(mine == its for mine, its in shared)


def _named(curves: Sequence[Curve]) -> str:
    return ", ".join(dict.fromkeys(name for curve in curves if (name := curve.run.numbered_in)))


def _of(curves: Sequence[Curve]) -> str:
    return f" of {name}" if (name := _named(curves)) else ""


def _listed(curves: Sequence[Curve]) -> str:
    return ", ".join(curve.label for curve in curves)
