"""What each method of a run does with a batch of images."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from berncert.attacks.gradient import Attack, fallen_at, fgsm
from berncert.certification.classifier import Classifier
from berncert.certification.images import ImageProver, frozen_for
from berncert.certification.inputs import placement
from berncert.certification.randomized import certify_randomized
from berncert.certification.rootfinding import ImageEstimator
from berncert.floor.claims import Status
from berncert.runs.methods import AttackSettings, Estimated, Exact, Fgsm, Pgd, Randomized, RunSettings

Rows = list[dict[str, Any]]
Work = Callable[[Tensor, Tensor, Sequence[int]], Rows]
"""(images, labels, their numbers) -> the cells of each image's row, without those that all rows have."""


@singledispatch
def worker(settings: RunSettings, model: Classifier, shape: Sequence[int]) -> Work:
    """What these settings do with images of this shape; all that can be done once is done here."""
    raise TypeError(f"expected the settings of a method, got {type(settings).__name__}")


@worker.register
def _exact(settings: Exact, model: Classifier, shape: Sequence[int]) -> Work:
    prove = ImageProver(
        model, shape, norm=settings.norm, tolerance=settings.tolerance, max_boxes=settings.max_boxes,
        dtype=getattr(torch, settings.dtype), batch_size=settings.batch_size, threads=torch.get_num_threads(),
    )  # fmt: skip
    prove.progress = False  # one bar, that of the run
    prove(torch.zeros(1, *shape))  # the compiled search is loaded before times are taken

    def rows(images: Tensor, labels: Tensor, numbers: Sequence[int]) -> Rows:
        return [
            {"predict": row.predicted, "radius": row.radius, "status": Status(str(row.status)).name}
            | {name: getattr(row, name) for name in settings.columns[1:]}
            for row in prove(images)
        ]

    return rows


@worker.register
def _estimated(settings: Estimated, model: Classifier, shape: Sequence[int]) -> Work:
    options = {"solver": settings.solver, "conservatism": settings.conservatism, "jacobian": settings.jacobian}
    estimate = ImageEstimator(model, shape, norm=settings.norm, progress=False, **options)

    def rows(images: Tensor, labels: Tensor, numbers: Sequence[int]) -> Rows:
        return [
            {"predict": row.predicted, "radius": row.distance_estimate, "status": "ESTIMATE"}
            | {name: getattr(row, name) for name in settings.columns[1:]}
            for row in estimate(images)
        ]

    return rows


@worker.register
def _randomized(settings: Randomized, model: Classifier, shape: Sequence[int]) -> Work:
    plain = _frozen(model, shape, torch.float32)
    options = {name: getattr(settings, name) for name in ("sigma", "n0", "n", "alpha", "seed")}

    def rows(images: Tensor, labels: Tensor, numbers: Sequence[int]) -> Rows:
        found = []
        for image, number in zip(images, numbers, strict=True):
            (row,) = certify_randomized(
                plain, image[None], batch_size=settings.vote_batch, first_index=number, progress=False, **options
            )
            status = "ABSTAINED" if row.predicted == -1 else "PROBABLE"
            cells = {name: getattr(row, name) for name in settings.columns[1:]}
            found.append({"predict": row.predicted, "radius": row.probable_radius, "status": status} | cells)
        return found

    return rows


@worker.register
def _pgd(settings: Pgd, model: Classifier, shape: Sequence[int]) -> Work:
    told = {name: getattr(settings, name) for name in ("steps", "restarts", "loss", "seed")}
    return _attacking(settings, model, shape, Attack(settings.norm, **told))


@worker.register
def _fgsm(settings: Fgsm, model: Classifier, shape: Sequence[int]) -> Work:
    return _attacking(settings, model, shape, replace(fgsm(settings.norm), loss=settings.loss))


def _attacking(settings: AttackSettings, model: Classifier, shape: Sequence[int], attack: Attack) -> Work:
    plain = _frozen(model, shape, torch.float64)  # what a proof is of
    like = placement(plain)
    words = {0.0: "WRONG", math.inf: "STANDS"}

    def rows(images: Tensor, labels: Tensor, numbers: Sequence[int]) -> Rows:
        images, labels = images.to(like), labels.to(like.device)
        with torch.no_grad():
            predicted = plain(images).argmax(dim=1).tolist()
        fallen = fallen_at(
            plain, images, labels, settings.radii, attack, numbers=numbers, batch_size=len(images), progress=False
        ).tolist()
        return [
            {"predict": seen, "fallen_at": at, "status": words.get(at, "BROKEN")}
            for seen, at in zip(predicted, fallen, strict=True)
        ]

    return rows


def _frozen(model: Classifier, shape: Sequence[int], dtype: torch.dtype) -> Classifier:
    """The frozen model, which is what is certified, with a head in this dtype."""
    return Classifier(frozen_for(model, shape), copy.deepcopy(model.head).to(dtype)).eval()
