"""What every certifier is given: features of the cube, or images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from berncert.foundation.arrays import Floats
from berncert.polynomial.points import points_of_cube, real_array

LEAST_WEIGHT = 1e-60
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


class Sized(Protocol):
    """A head that says how many features it takes and how many classes it has."""

    @property
    def dim(self) -> int: ...
    @property
    def classes(self) -> int: ...


def checked_features(head: Sized, features: Any) -> Floats:
    """The features as float64 numbers, (N, d), every one of them in [0, 1]; anything else is a ValueError.

    So is a head with one output: whoever asks about features asks about their classes.
    """
    if head.classes == 1:
        raise ValueError(
            "expected a head with two classes or more, got one output, which has no class to hold; berncert.bounds "
            "proves the range of its values over a box"
        )
    return points_of_cube(features, "features", head.dim)


def checked_images(images: Any) -> Tensor:
    """The images as a floating tensor (N, ...), finite; anything else is a ValueError.

    Whole numbers are refused: bytes are most often meant as [0, 1], and nothing says so.
    """
    x = images.detach() if isinstance(images, Tensor) else torch.as_tensor(real_array(images, "images"))
    if not x.is_floating_point() or x.is_sparse or x.ndim < 2:
        raise ValueError(
            f"expected floating images of shape (N, ...), got {x.dtype} of shape {tuple(x.shape)}; write "
            "images.float() / 255 for bytes if the model takes [0, 1], images[None] for a single one"
        )
    if not x.isfinite().all():
        raise ValueError("expected finite pixels, got NaN or infinity; look for what made them so")
    return x


def checked_weights(weights: Any, shape: tuple[int, ...]) -> Floats:
    """One weight for each axis, (d,) or (N, d), as (N, d); finite and above 0."""
    w = _spread(real_array(weights, "weights"), "weights", shape)
    if not ((w >= LEAST_WEIGHT) & (w <= 1 / LEAST_WEIGHT)).all():
        raise ValueError(
            f"expected weights between {LEAST_WEIGHT:g} and {1 / LEAST_WEIGHT:g}, got {w.min()} to {w.max()}; an axis "
            "that must not move has lower = upper, not an infinite weight"
        )
    return w


def checked_box(lower: Any, upper: Any, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """The part of each row's box inside the cube, (N, d) each; None stands for the cube's own side."""
    low = np.zeros(shape) if lower is None else _spread(real_array(lower, "lower"), "lower", shape)
    high = np.ones(shape) if upper is None else _spread(real_array(upper, "upper"), "upper", shape)
    if not (low <= high).all():  # NaN is in no order
        row, axis = (int(i) for i in np.argwhere(~(low <= high))[0])
        got = f"{low[row, axis]} and {high[row, axis]} in row {row}, axis {axis}"
        raise ValueError(f"expected lower <= upper, got {got}; -inf and inf leave a side open")
    if (low > 1).any() or (high < 0).any():
        row, axis = (int(i) for i in np.argwhere((low > 1) | (high < 0))[0])
        raise ValueError(
            f"expected boxes that meet the cube [0, 1]^d, got [{low[row, axis]}, {high[row, axis]}] in row {row}, "
            f"axis {axis}; nothing is proven outside the cube"
        )
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def checked_points(given: Any, name: str, dim: int) -> Floats:
    """Numbers for each axis, (d,) or (N, d) or one for all, as (N, d) or (1, d) in float64."""
    x = real_array(given, name).astype(np.float64, copy=False)
    if x.ndim == 0:
        x = np.full(dim, float(x))
    if x.ndim not in (1, 2) or x.shape[-1] != dim:
        raise ValueError(f"expected {name} of shape ({dim},) or (N, {dim}), got {x.shape}; one number for each axis")
    return np.atleast_2d(x)


def _spread(given: npt.NDArray[Any], name: str, shape: tuple[int, ...]) -> Floats:
    """(d,) or (N, d) as (N, d), in float64."""
    if given.shape not in (shape[1:], shape):
        raise ValueError(f"expected {name} of shape {shape[1:]} (the same for all rows) or {shape}, got {given.shape}")
    return np.array(np.broadcast_to(given.astype(np.float64), shape), order="C")
