"""Which runs can be compared image by image."""

from __future__ import annotations

from berncert.study.runs.records import Run

ALIKE = ("name", "split", "part", "shape")
"""What is told of the same data whatever images were chosen of it."""


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
    if any(mine.get(key) != its.get(key) for key in ALIKE):
        return False
    files = [told.get("files", {}).items() for told in (mine, its)]
    if not (files[0] <= files[1] or files[1] <= files[0]):  # who needs few images reads the first files only
        return False
    chosen = [(run.about["data"]["images"], run.about["settings"].get("skip")) for run in (a, b)]
    return chosen[0] != chosen[1] or mine.get("sha256") == its.get("sha256")
