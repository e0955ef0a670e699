"""Steps that rearrange, select, repeat or pad with 0: each is run once, on numbers that name the entries."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor

from berncert.extractor.freezing.arguments import Args, Kwargs, call, leaves, only_value, target_name
from berncert.extractor.operations.base import MOST_NUMBERS

_FUNCTIONS_AND_METHODS = (
    "flatten", "reshape", "permute", "transpose", "unflatten", "movedim", "squeeze", "unsqueeze", "clone", "chunk",
    "split", "narrow", "flip", "roll",
)  # fmt: skip
REARRANGING = {
    operator.getitem, "view", "contiguous", "expand", "repeat", *_FUNCTIONS_AND_METHODS,
    *(getattr(torch, name) for name in _FUNCTIONS_AND_METHODS),
}  # fmt: skip
"""Every entry of the result is an entry of the argument, or 0. Functions, and methods by name."""
_AXES = {
    "roll": (2, "dims", None), "flip": (1, "dims", None), "split": (2, "dim", 0), "chunk": (2, "dim", 0),
    "narrow": (1, "dim", None),
}  # fmt: skip
AXES: dict[Any, tuple[int, str, int | None]] = _AXES | {getattr(torch, name): axes for name, axes in _AXES.items()}
"""The place, name and default of the argument that says along which axes a step works."""


def entry_numbers(target: Any, args: Args, kwargs: Kwargs, batch: int, layer: str) -> Tensor | tuple[Tensor, ...]:
    """Which entry of the value stands at each place of the result, -1 for 0; one tensor for each result.

    The step is run on `batch` images, whose entries have different numbers: none may end up with another's.
    """
    value = only_value(args, kwargs, layer)
    _require_places((args[1:], kwargs))
    _refuse_moving_batch(target, args, kwargs)
    entries = math.prod(value.shape)
    numbers = torch.arange(1, entries + 1, dtype=torch.float64) + torch.arange(batch).view(-1, 1) * entries
    out = call(target, (numbers.reshape(batch, *value.shape), *args[1:]), kwargs)
    if not isinstance(out, tuple | list):
        return entries_of_one_image(out, batch, entries, layer)
    return tuple(entries_of_one_image(part, batch, entries, layer) for part in out)


def entries_of_one_image(out: Any, batch: int, entries: int, layer: str) -> Tensor:
    """Which entry of each image the numbers 1, 2, ... in the result name, -1 for 0; a TypeError if images are mixed."""
    if not isinstance(out, Tensor) or out.ndim < 1 or len(out) != batch or not out.numel():
        got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise TypeError(f"expected a step that keeps the images of a batch apart, got {got}")
    if out.numel() > batch * MOST_NUMBERS:
        raise ValueError(f"expected at most {MOST_NUMBERS} numbers in one value, got {out.numel() // batch}")
    zero = out == 0
    index = out.long() - 1 - torch.arange(batch).view(-1, *(1,) * (out.ndim - 1)) * entries
    own = (index == index[0]) & (index >= 0) & (index < entries)
    if not ((own | zero) & (zero == zero[0])).all():
        raise TypeError(f"expected a step that keeps the images of a batch apart, got {layer} that mixes them")
    return torch.where(zero[0], -1, index[0])


def _require_places(options: Any) -> None:
    """Arguments of a rearrangement say where, and nothing else: x.view(torch.int64) reads other numbers."""
    allowed = (int, slice, type(None), type(...), str)
    for leaf in leaves(options):
        if isinstance(leaf, Tensor) and not leaf.is_floating_point() and not leaf.is_complex():
            continue
        if not isinstance(leaf, allowed) and not (isinstance(leaf, float) and leaf == 0):
            raise TypeError(f"expected a rearrangement by whole numbers, got {leaf!r}")


def _refuse_moving_batch(target: Any, args: Args, kwargs: Kwargs) -> None:
    """A part of the batch, or the batch in another order, can look like all of it as long as the batch is small.

    So a step along the first axis is refused by its arguments, whatever it does to a few images.
    """
    rank = len(args[0].shape) + 1
    if target is operator.getitem:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        taken = sum(item is not None and item is not ... for item in index)
        apart = index[:1] == (slice(None),) or (index[:1] == (...,) and taken < rank)
    elif target in AXES:
        place, name, default = AXES[target]
        dims = kwargs.get(name, args[place] if len(args) > place else default)
        dims = dims if isinstance(dims, tuple | list) else (dims,)
        apart = bool(dims) and all(type(dim) is int and dim % rank for dim in dims)
    else:
        return
    if not apart:
        raise TypeError(
            f"expected a step that keeps the images of a batch apart, got {target_name(target)} along the batch"
        )
