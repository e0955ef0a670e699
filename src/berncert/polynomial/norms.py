"""Lengths of rows in any p-norm, with gradients for training."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def row_norms(rows: Tensor, p: float) -> Tensor:
    """The p-norm along the last axis, whatever p and the numbers' scale: no power overflows or vanishes.

    In float32 0.01^21 is zero, so that a norm near 1, whose dual is large, would have no slope, or a large one no ball.
    """
    if p in (1.0, 2.0, math.inf):
        plain: Tensor = torch.linalg.vector_norm(rows, p, dim=-1)
        return plain
    greatest = rows.detach().abs().amax(dim=-1, keepdim=True)
    scale = torch.where(greatest > 0, greatest, 1)
    scaled: Tensor = torch.linalg.vector_norm(rows / scale, p, dim=-1)
    return scaled * scale.squeeze(-1)
