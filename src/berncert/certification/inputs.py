"""What every certifier is given: features of the cube, or images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from berncert.foundation.arrays import Floats
from berncert.polynomial import SmoothedHead

ONE_EACH = "one entry of the first axis for each image; a single image is image[None]"


def placement(module: nn.Module) -> Tensor:
    """A tensor of the dtype and on the device that the module computes in; float64 if it has none."""
    tensors = (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point())
    return next(tensors, torch.zeros((), dtype=torch.float64))


def tried_on(module: nn.Module, word: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Any:
    """What the module gives for two black images of this shape; an error that says what to do if it takes no such."""
    try:
        with torch.no_grad():
            return module(torch.zeros(2, *shape, dtype=dtype, device=device))
    except (RuntimeError, ValueError, IndexError) as error:
        got = f"shape (N, {', '.join(map(str, shape))}) ({str(error).splitlines()[0]})"
        raise ValueError(f"expected images that the {word} takes, got {got}; {ONE_EACH}") from error


def checked_features(smoothed: SmoothedHead, features: Any) -> Floats:
    """The features as float64 numbers, (N, d), every one of them in [0, 1]; anything else is a ValueError."""
    x = _real(features, "features").astype(np.float64, copy=False)
    if x.ndim != 2 or x.shape[1] != smoothed.dim:
        hint = "write features[None] for a single sample" if x.shape == (smoothed.dim,) else "one row for each sample"
        raise ValueError(f"expected features of shape (N, {smoothed.dim}), got {x.shape}; {hint}")
    outside = ~((x >= 0) & (x <= 1))  # NaN is in no interval
    if outside.any():
        row, axis = (int(i) for i in np.argwhere(outside)[0])
        raise ValueError(
            f"expected every feature in [0, 1], got {x[row, axis]!s} in row {row}, axis {axis} "
            f"({outside.any(axis=1).sum()} of {len(x)} rows are affected); scale or clip the features, as the head is "
            "smoothed on the unit cube only (an extractor may end in berncert.extractor.UnitCube)"
        )
    return x


def checked_images(images: Any) -> Tensor:
    """The images as a floating tensor (N, ...), finite; anything else is a ValueError.

    Whole numbers are refused: bytes are most often meant as [0, 1], and nothing says so.
    """
    x = images.detach() if isinstance(images, Tensor) else torch.as_tensor(_real(images, "images"))
    if not x.is_floating_point() or x.is_sparse or x.ndim < 2:
        raise ValueError(
            f"expected floating images of shape (N, ...), got {x.dtype} of shape {tuple(x.shape)}; write "
            "images.float() / 255 for bytes if the model takes [0, 1], images[None] for a single one"
        )
    if not x.isfinite().all():
        raise ValueError("expected finite pixels, got NaN or infinity; look for what made them so")
    return x


def _real(features: Any, name: str) -> npt.NDArray[Any]:
    """Any real tensor, array or nested list as an array."""
    if isinstance(features, Tensor) and (features.is_complex() or features.is_sparse):
        kind, cure = ("complex", "real") if features.is_complex() else ("sparse", "to_dense()")
        raise ValueError(f"expected {name} that are real numbers, got a {kind} tensor; pass its .{cure}")
    try:
        x = features.detach().cpu().double().numpy() if isinstance(features, Tensor) else np.asarray(features)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected {name} as rows of equal length, got {error}") from error
    if x.dtype.kind not in "biuf":
        raise ValueError(f"expected {name} that are real numbers, got dtype {x.dtype}; convert them to float64 first")
    return x
