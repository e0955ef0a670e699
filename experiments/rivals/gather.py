"""The curves of a picture: runs that exist, models that are certified now, randomized smoothing of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from berncert.certification.methods import Exact, Method, Randomized
from berncert.models.checkpoint import FILE as MODEL_FILE
from berncert.models.checkpoint import Checkpoint, open_checkpoint, shipped_models
from berncert.runs.execute import execute
from berncert.runs.lookup import named_runs
from berncert.runs.records import Run
from berncert.runs.settings import RunSettings
from experiments.rivals.points import Picture

SAMPLES = 401
"""Radii at which a curve is kept in the record."""


def curves_of(word: str, picture: Picture, place: Path, data_dir: str | None) -> list[dict[str, Any]]:
    """The curves that `[LABEL=]RUN` or `[LABEL=]MODEL` names, as plain JSON; a model is certified, resumably."""
    label, _, target = word.rpartition("=")
    if not _is_model(target):
        return [described(name, run, picture) for name, run in named_runs([word], data_dir)]
    checkpoint = open_checkpoint(target)
    run = _run(checkpoint, Exact(norm=picture.norm), RunSettings(data=picture.dataset), place, data_dir)
    return [described(label or _name(checkpoint), run, picture)]


def randomized_curve(word: str, picture: Picture, place: Path, data_dir: str | None, votes: int) -> dict[str, Any]:
    """Randomized smoothing of the network itself, `[LABEL=]MODEL:SIGMA`, on every 20th test image."""
    label, _, target = word.rpartition("=")
    path, _, sigma = target.rpartition(":")
    checkpoint, method = open_checkpoint(path), Randomized(sigma=float(sigma), n=votes)
    run = _run(checkpoint, method, RunSettings(data=picture.dataset, skip=20), place, data_dir)
    name = label or f"noise {float(sigma):g} on {_name(checkpoint)}"
    return described(name, run, picture) | {"votes": votes}


def described(label: str, run: Run, picture: Picture) -> dict[str, Any]:
    """A curve as plain JSON: the shares at radii evenly spread over the picture, and at those of its table."""
    data = run.data.split(" ")[0]
    if run.norm != picture.norm or data not in ("", picture.dataset):
        raise ValueError(
            f"expected a run on {picture.dataset} in the norm {picture.norm:g}, got {run.path} on {data or 'unknown'} "
            f"in the norm {run.norm:g}"
        )
    radii = np.linspace(0, picture.end, SAMPLES)
    return {
        "label": label,
        "claim": run.claim.name,
        "images": len(run),
        "mean_radius": run.mean_radius,
        "abstained": int(run.abstained.sum()),
        "seconds_per_image": float(np.median(run.rows["time"])),
        "model_sha256": run.about["model"]["sha256"] if run.about else None,
        "settings": dict(run.about["settings"]) if run.about else None,
        "radii": list(picture.radii),
        "certified": run.standing(picture.radii).tolist(),
        "curve": run.standing(radii).tolist(),
    }


def _run(checkpoint: Checkpoint, method: Method, settings: RunSettings, place: Path, data_dir: str | None) -> Run:
    parts = [checkpoint.sha256[:12], method.name, f"l{method.norm:g}", str(settings.data)]
    if isinstance(method, Randomized):
        parts += [f"sigma{method.sigma:g}", f"n{method.n}"]
    return execute(checkpoint, method, place / "-".join(parts), settings, data_dir=data_dir)


def _is_model(target: str) -> bool:
    path = Path(target)
    return target in shipped_models() or path.suffix == ".safetensors" or (path / MODEL_FILE).is_file()


def _name(checkpoint: Checkpoint) -> str:
    path = checkpoint.path
    return path.resolve().parent.name if path.name == MODEL_FILE else path.stem
