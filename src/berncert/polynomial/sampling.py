"""A head as it is sampled: in which mode, dtype and place it is evaluated, and what its outputs must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from berncert.foundation.arguments import checked_count
from berncert.hardware import chosen_device

Head = Callable[[Tensor], Tensor | npt.NDArray[Any]]
"""A function that takes (M, dim) features in [0,1]^dim and returns (M, K) logits; K = 1 is a regression."""


class Sampler:
    """A head, and how it is evaluated: on the grid and wherever it is compared with its polynomial.

    Without gradients and in evaluation mode, after which it is in the mode that it was in; with `differentiable` as it
    is, with gradients.
    """

    def __init__(
        self,
        head: Head,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        batch_size: int = 4096,
        differentiable: bool = False,
    ) -> None:
        if not callable(head):
            raise TypeError(f"expected a callable head (features -> logits), got {type(head).__name__}")
        self.head, self.differentiable = head, differentiable
        self.batch_size = checked_count("batch_size", batch_size)
        self.dtype, self.device = _placement(head, dtype, device)

    def placed(self, points: Tensor) -> Tensor:
        """The points in the dtype and on the device in which the head takes them."""
        return points.to(self.dtype).to(self.device)

    def outputs(self, points: Tensor) -> Tensor:
        """(M, K): what the head returns for these points, batch by batch."""
        return self.columns(torch.split(points, self.batch_size)).T

    def columns(self, batches: Iterable[Tensor], check: Callable[[Tensor], None] | None = None) -> Tensor:
        """(K, M): what the head returns for the points of all batches; `check` sees the first outputs at once."""
        found: list[Tensor] = []
        with ExitStack() as stack:
            if not self.differentiable:
                stack.enter_context(torch.no_grad())
            if isinstance(self.head, nn.Module) and not self.differentiable:
                stack.enter_context(evaluating(self.head))
            for batch in batches:
                points = self.placed(batch)
                logits = _checked_logits(self.head(points), points, self.differentiable)
                if check is not None and not found:
                    check(logits)
                if found and logits.shape[1] != len(found[0]):
                    raise ValueError(
                        f"expected {len(found[0])} classes as in the first batch, got {logits.shape[1]}; "
                        "the head must return as many logits for every point"
                    )
                found.append(logits.T)
            return torch.cat(found, dim=1)


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
        return dtype or torch.float64, chosen_device(device or "cpu")
    return dtype or own.dtype, own.device if device is None else chosen_device(device)


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
            f"got {tuple(logits.shape)}; one row for each point, one column for each class (a regression has one; of a "
            "score s of two classes make the columns -s and s)"
        )
    finite = logits.isfinite()
    if not finite.all():
        row, column = (int(i) for i in (~finite).nonzero()[0])
        raise ValueError(
            f"expected finite logits, got {logits[row, column].item()} for class {column} at the point "
            f"{tuple(points[row].tolist())}; the head must be defined on all of [0,1]^{points.shape[1]}"
        )
    return logits
