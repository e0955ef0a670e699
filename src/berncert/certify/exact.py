"""The proven certificate: the distance from each sample to the nearest point of the cube that gets another class."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from berncert.certify import search
from berncert.certify.arguments import checked_features, checked_norm
from berncert.certify.certificate import Certificates, Floats, Status
from berncert.certify.problem import allocate, pose
from berncert.polynomial import SmoothedHead

STATUS = np.array([Status.PROVEN, Status.WHOLE_CUBE, Status.TIE, Status.BUDGET, Status.ROUNDING], dtype=object)


def certify(
    smoothed: SmoothedHead,
    features: Any,
    *,
    norm: float = 2,
    tolerance: float = 1e-3,
    max_boxes: int = 1_000_000,
    threads: int | None = None,
    progress: bool | None = None,
) -> Certificates:
    x = checked_features(smoothed, features)
    problem = pose(smoothed.coefficients.detach().cpu().double().numpy(), norm=checked_norm(norm), tolerance=tolerance, max_boxes=max_boxes)
    memory = allocate(problem)
    count, dim = x.shape
    predicted, rival, boxes = (np.zeros(count, np.int64) for _ in range(3))
    status = np.zeros(count, np.int64)
    radius, upper = np.zeros(count), np.zeros(count)
    witness = np.full((count, dim), np.nan)
    stop = np.zeros(1, np.bool_)
    search.certify_rows(problem, memory, x, 0, count, stop, predicted, radius, upper, witness, rival, status, boxes)
    return Certificates(predicted, radius, upper, witness, rival, STATUS[status], boxes)
