"""What the steps of a traced network are called with: values of the network, and constants."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from berncert.extractor.freezing.step_list import Value
from berncert.extractor.freezing.tracing import IN_PLACE

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class BatchSize(int):
    """The number of images: fit to reshape a value, but not to compute with, as it differs from call to call."""


def target_name(target: Any) -> str:
    """The name of a function, or of a method, which is its name already."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def leaves(argument: Any) -> Iterator[Any]:
    """All that is inside dicts, tuples, lists and slices."""
    if isinstance(argument, dict):
        argument = tuple(argument.values())
    if isinstance(argument, tuple | list) and not isinstance(argument, torch.Size):
        for item in argument:
            yield from leaves(item)
    elif isinstance(argument, slice):
        yield argument
        yield from (argument.start, argument.stop, argument.step)
    else:
        yield argument


def only_value(args: Args, kwargs: Kwargs, layer: str) -> Value:
    """The first argument, which must be the only value of the network among them."""
    if not args or not isinstance(args[0], Value) or any(isinstance(v, Value) for v in leaves((args[1:], kwargs))):
        raise TypeError(f"expected {layer} of one value of the network, with constant arguments")
    return args[0]


def named(names: tuple[str, ...], args: Args, kwargs: Kwargs) -> Kwargs:
    """All arguments by name."""
    return dict(zip(names, args, strict=False)) | kwargs


def refuse_dtype(options: Kwargs) -> None:
    """Raise a TypeError if a step converts its argument; `dtype=None` is taken out."""
    if options.get("dtype") is not None:
        raise TypeError(f"expected a step in the dtype of its argument, got dtype={options['dtype']}")
    options.pop("dtype", None)


def attribute(root: nn.Module, target: str) -> Any:
    """A parameter, a buffer or another attribute of the network; gradients reach it, where they are taken."""
    value = operator.attrgetter(target)(root)
    if isinstance(value, Tensor) and not value.isfinite().all():
        name = target.removeprefix("0.")
        raise ValueError(f"expected a finite {name}, got NaN or infinity; nothing can be proven of such a layer")
    return value


def call(target: Any, args: Args, kwargs: Kwargs) -> Any:
    """The result of a function, or of a method by its name."""
    function: Callable[..., Any] = getattr(args[0], target).__call__ if isinstance(target, str) else target
    return function(*(args[1:] if isinstance(target, str) else args), **kwargs)


def call_with_constants(target: Any, args: Args, kwargs: Kwargs) -> Any:
    """The result of a step among constants, which must be the same each time, and change none of them."""
    if target in IN_PLACE or (isinstance(target, str) and target.endswith("_")):
        raise TypeError("a constant is changed in place, so that each call finds another; compute it without")
    value, again = (call(target, args, kwargs) for _ in range(2))
    if isinstance(value, Tensor) and not torch.equal(value, again):
        raise TypeError("a tensor made inside forward differs from call to call; register it as a buffer")
    return value
