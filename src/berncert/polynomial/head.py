"""The smoothed head: a classifier's last stage, replaced by the Bernstein polynomial through its values on a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from berncert.foundation.arguments import checked_count
from berncert.polynomial import bernstein
from berncert.polynomial.grid import check_fits, degrees_per_axis, grid_batches

Head = Callable[[Tensor], Tensor | npt.NDArray[Any]]
"""A function that takes (M, dim) features in [0,1]^dim and returns (M, K) logits; K = 1 is a regression."""


class SmoothedHead(nn.Module):
    """features (N, d) in [0,1]^d -> logits (N, K), each a Bernstein polynomial with the given coefficients.

    `coefficients` is a (K, n_1+1, ..., n_d+1) tensor, kept as a buffer, or as a parameter if it is one. Logits lie
    between the least and the greatest coefficient of their class; at the cube's corners they are the corner
    coefficients. Features and coefficients of different dtype meet in the wider one.
    """

    coefficients: Tensor

    def __init__(self, coefficients: Tensor) -> None:
        super().__init__()
        _check_coefficients(coefficients)
        if isinstance(coefficients, nn.Parameter):
            self.coefficients = coefficients
        else:
            self.register_buffer("coefficients", coefficients)

    @property
    def classes(self) -> int:
        """The number of classes, K; 1 for a regression."""
        return self.coefficients.shape[0]

    @property
    def dim(self) -> int:
        """The number of features, d."""
        return self.coefficients.ndim - 1

    @property
    def degree(self) -> tuple[int, ...]:
        """The degree along each axis, (n_1, ..., n_d)."""
        return tuple(size - 1 for size in self.coefficients.shape[1:])

    def forward(self, features: Tensor) -> Tensor:
        """The logits (N, K); see `bernstein.evaluate` for the bound on their rounding error."""
        return bernstein.evaluate(self.coefficients, features)

    def gradient(self, features: Tensor) -> Tensor:
        """The derivative of every logit by every feature, (N, K, d), in closed form."""
        return bernstein.gradient(self.coefficients, features)

    def linearise(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (N, K) and derivatives (N, K, d) together, faster than one after the other."""
        return bernstein.linearise(self.coefficients, features)

    def extra_repr(self) -> str:
        degree = self.degree[0] if len(set(self.degree)) == 1 else self.degree
        return f"classes={self.classes}, dim={self.dim}, degree={degree}, dtype={self.coefficients.dtype}"


def smooth(
    head: Head,
    dim: int,
    degree: int | Sequence[int],
    *,
    differentiable: bool = False,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    batch_size: int = 4096,
) -> SmoothedHead:
    """The Bernstein polynomial whose coefficients are the head's logits on the grid k/n of [0,1]^dim.

    Affine heads are reproduced; others are approached as the degree (one for all axes, or one for each) grows. The
    grid is sent in batches, in the given dtype and on the given device, by default those of a module's parameters,
    else float64 on the CPU; the coefficients keep the dtype and device of the logits.

    A module is sampled in evaluation mode, without gradients, and then returned to the mode that it was in. With
    `differentiable=True` it is sampled in the mode it is in, and gradients of the smoothed head reach its parameters.
    """
    if not callable(head):
        raise TypeError(f"expected a callable head (features -> logits), got {type(head).__name__}")
    degrees = degrees_per_axis(dim, degree)
    batch_size = checked_count("batch_size", batch_size)
    dtype, device = _placement(head, dtype, device)
    check_fits(2, degrees, dtype, torch.device(device))  # as for two classes, before anything is done
    samples: list[Tensor] = []
    with ExitStack() as stack:
        if not differentiable:
            stack.enter_context(torch.no_grad())
        if isinstance(head, nn.Module) and not differentiable:
            stack.enter_context(evaluating(head))
        for grid in grid_batches(degrees, batch_size):
            points = grid.to(dtype).to(device)
            logits = _checked_logits(head(points), points, differentiable)
            if not samples:  # the number of classes is known from here on
                check_fits(logits.shape[1], degrees, logits.dtype, logits.device)
            elif logits.shape[1] != samples[0].shape[0]:
                raise ValueError(
                    f"expected {samples[0].shape[0]} classes as in the first batch, got {logits.shape[1]}; "
                    "the head must return as many logits for every point"
                )
            samples.append(logits.T)
        coefficients = torch.cat(samples, dim=1).reshape(-1, *(n + 1 for n in degrees))
    return SmoothedHead(coefficients)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Keep the module in evaluation mode; afterwards each submodule is in the mode that it was in."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in modes:
            part.training = False
        yield
    finally:
        for part, training in modes:
            part.training = training


def _placement(
    head: Head, dtype: torch.dtype | None, device: torch.device | str | None
) -> tuple[torch.dtype, torch.device]:
    if dtype is not None and not dtype.is_floating_point:
        raise TypeError(f"expected a floating dtype for the grid, got {dtype}; use torch.float64 or torch.float32")
    tensors = chain(head.parameters(), head.buffers()) if isinstance(head, nn.Module) else iter(())
    own = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    if own is None:
        return dtype or torch.float64, torch.device(device or "cpu")
    return dtype or own.dtype, torch.device(device or own.device)


def _checked_logits(logits: object, points: Tensor, differentiable: bool) -> Tensor:
    """The head's answer as a tensor, once it is known to be one finite logit for each point and class."""
    if isinstance(logits, np.ndarray):
        if differentiable:
            raise TypeError(
                "expected a torch tensor from the head, got a numpy array, which carries no gradient; "
                "return a tensor, or leave differentiable=False"
            )
        logits = torch.from_numpy(logits.copy())  # a copy: views and read-only arrays have no tensor
    if not isinstance(logits, Tensor):
        raise TypeError(f"expected the head to return a torch tensor or a numpy array, got {type(logits).__name__}")
    if not logits.is_floating_point():
        raise TypeError(f"expected floating logits, got {logits.dtype}; return scores, not class numbers")
    if logits.ndim != 2 or logits.shape[0] != points.shape[0] or logits.shape[1] < 1:
        raise ValueError(
            f"expected logits of shape ({points.shape[0]}, K) for points of shape {tuple(points.shape)}, "
            f"got {tuple(logits.shape)}; one row for each point, one column for each class (a regression has one)"
        )
    finite = logits.isfinite()
    if not finite.all():
        row, column = (int(i) for i in (~finite).nonzero()[0])
        raise ValueError(
            f"expected finite logits, got {logits[row, column].item()} for class {column} at the grid point "
            f"{tuple(points[row].tolist())}; the head must be defined on all of [0,1]^{points.shape[1]}"
        )
    return logits


def _check_coefficients(coefficients: Tensor) -> None:
    if not isinstance(coefficients, Tensor):
        raise TypeError(
            f"expected coefficients as a torch tensor, got {type(coefficients).__name__}; "
            "convert an array with torch.as_tensor, sample a callable with smooth(head, dim, degree)"
        )
    if not coefficients.is_floating_point():
        raise TypeError(f"expected floating coefficients, got {coefficients.dtype}; convert them with .double()")
    shape = tuple(coefficients.shape)
    if len(shape) < 2 or min(shape[1:]) < 2 or shape[0] < 1:
        raise ValueError(
            f"expected coefficients of shape (K, n_1+1, ..., n_d+1) with K >= 1 outputs, at least one axis and every "
            f"degree n_j >= 1, got {shape}; every size after the first must be 2 or more"
        )
    finite = coefficients.isfinite()
    if not finite.all():
        index = tuple((~finite).nonzero()[0].tolist())
        raise ValueError(
            f"expected finite coefficients, got {coefficients[index].item()} at {index}; "
            "look for an overflow in the head that was sampled"
        )
