"""Heads to certify, and points around them."""

from __future__ import annotations

import numpy as np
import torch

import berncert


def random_head(
    rng: np.random.Generator, classes: int, degrees: tuple[int, ...], *, bend: float = 1.0
) -> berncert.SmoothedHead:
    """Affine logits plus `bend` times noise on the coefficients: from planes to jagged boundaries."""
    grid = np.stack(np.meshgrid(*(np.linspace(0, 1, n + 1) for n in degrees), indexing="ij"), axis=-1)
    slopes = rng.normal(size=(classes, len(degrees)))
    affine = np.einsum("...d,kd->k...", grid - 0.5, slopes)
    return berncert.SmoothedHead(torch.tensor(affine + bend * rng.normal(size=affine.shape)))


def points_around(
    rng: np.random.Generator, centre: np.ndarray, witness: np.ndarray, radius: float, norm: float, count: int
) -> np.ndarray:
    """Points of the cube within the p-norm radius of the centre, half of them towards the witness, most at the rim."""
    steps = rng.normal(size=(count, centre.size))
    if np.isfinite(witness).all():
        steps[: count // 2] = (witness - centre) * (1 + 0.3 * steps[: count // 2])
    lengths = np.linalg.norm(steps, ord=norm, axis=1)
    shrink = radius * (1 - 1e-12) * rng.uniform(size=(count, 1)) ** (1 / 16)
    return np.clip(centre + steps / np.maximum(lengths, 1e-300)[:, None] * shrink, 0, 1)
