"""`register_bound` for layers of the user's own; and how each module is handled, by its exact type."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar, overload

import torch
from torch import Tensor, nn

from berncert.extractor.bounds.layer_bound import LayerBound, Shape, length
from berncert.extractor.bounds.norm_gains import Known
from berncert.extractor.evaluation import layer_name
from berncert.extractor.freezing.modules import CONTAINERS, IDLE, REARRANGING_MODULES, TRANSLATIONS
from berncert.extractor.operations import Layer

M = TypeVar("M", bound=nn.Module)
Rule = Callable[[M, Shape], LayerBound | Known | float]
"""From a module and the shape of its input (without batch) to its bound; a number is a bound in l2."""

RULES: dict[type[nn.Module], Rule[Any]] = {}
"""The rules that were registered, by the exact type of the layer."""


@overload
def register_bound(layer_type: type[M], rule: Rule[M]) -> Rule[M]: ...
@overload
def register_bound(layer_type: type[M]) -> Callable[[Rule[M]], Rule[M]]: ...
def register_bound(layer_type: Any, rule: Any = None) -> Any:
    """Give a layer type of your own a Lipschitz bound, so that networks that contain it can be bounded and certified.

    `rule(module, input_shape)` returns the layer's Lipschitz constant in l2 as a number, or {(s, t): bound from norm s
    to norm t}, or a `LayerBound`, which also describes rounding. Without `rule` this is a decorator:
    `@register_bound(MyLayer)`. A second rule for the same type replaces the first; a type that has a proof of its own
    is a ValueError.

    Nothing checks the bound: every certificate of such a network relies on it. The network cannot be saved.

    Example:
        >>> import torch, berncert
        >>> class Sine(torch.nn.Module):
        ...     def forward(self, x):
        ...         return torch.sin(x)
        >>> @berncert.register_bound(Sine)
        ... def sine(module, input_shape):
        ...     return 1.0  # in l2: no slope of a sine is steeper
        >>> round(berncert.lipschitz_bound(Sine(), (10,)), 6)
        1.0
    """
    if not (isinstance(layer_type, type) and issubclass(layer_type, nn.Module)):
        raise TypeError(f"expected a class of torch modules, got {layer_type!r}; register the type, not an instance")
    if _is_proven(layer_type):
        raise ValueError(
            f"expected a layer type of your own, got {layer_type.__name__}, which has a proven bound already; to use "
            "another bound, register a subclass of it"
        )
    if rule is None:
        return lambda given: register_bound(layer_type, given)
    if not callable(rule):
        raise TypeError(f"expected a rule(module, input_shape), got {rule!r}; e.g. lambda module, shape: 1.0")
    RULES[layer_type] = rule
    return rule


@dataclass(frozen=True, eq=False)
class Registered(Layer):
    """A module whose bound was given to `register_bound`. No file can hold it, because it runs the user's code."""

    in_files: ClassVar[bool] = False

    module: nn.Module
    given: LayerBound
    shapes: tuple[Shape, Shape]
    """The shapes of its input and of its output."""

    def evaluate(self, *values: Tensor) -> Tensor:
        (x,) = values
        result: Tensor = self.module(x.clone())  # it may work in place
        return result

    def output_shape(self, *shapes: Shape) -> Shape:
        if shapes != (self.shapes[0],):
            raise ValueError(
                f"expected an input of shape {self.shapes[0]}, for which the bound was given, got {shapes}"
            )
        return self.shapes[1]

    def layer_bound(self, shape: Shape) -> LayerBound:
        return self.given

    def to(self, dtype: torch.dtype, device: torch.device) -> Registered:
        return replace(self, module=copy.deepcopy(self.module).to(device, dtype))


def is_leaf(module: nn.Module) -> bool:
    """Whether tracing stops here: where the module is known by its exact type, or is torch's and cannot be opened.

    A subclass is no leaf, whatever it changes or inherits: its own forward is followed. Nor is a module one of whose
    methods was replaced.
    """
    layer_type = type(module)
    if layer_type in RULES:
        return True
    if any(callable(getattr(layer_type, name, None)) for name in vars(module)):
        return False
    opaque = layer_type.__module__.startswith("torch.nn") and layer_type not in CONTAINERS
    return opaque or _is_proven(layer_type)


def operations_of(module: nn.Module, shape: Shape) -> Sequence[Layer]:
    """The operations that do what the module does with inputs of this shape."""
    if type(module) in RULES:
        return [_registered(module, shape)]
    if type(module) not in TRANSLATIONS:
        raise TypeError(
            f"no Lipschitz bound is known for {layer_name(module)}; register one with berncert.register_bound, or "
            "replace the layer (docs/layers.md lists those with a proof)"
        )
    return TRANSLATIONS[type(module)](module, shape)


def _is_proven(layer_type: type[nn.Module]) -> bool:
    return layer_type in TRANSLATIONS or layer_type in REARRANGING_MODULES or layer_type in IDLE


def _registered(module: nn.Module, shape: Shape) -> Registered:
    """A copy of the module with the bound that its rule gives; what goes wrong in the rule is a TypeError."""
    module, name = copy.deepcopy(module), layer_name(module)
    try:
        with torch.no_grad():
            out = module(torch.zeros(2, *shape, dtype=torch.float64))
    except (RuntimeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{name} does not take an input of shape {shape} ({str(error).splitlines()[0]}); "
            "check input_shape: channels, height, width, without the batch"
        ) from error
    if not isinstance(out, Tensor) or len(out.shape) < 1 or len(out) != 2:
        raise TypeError(f"expected {name} to keep the batch apart and return one tensor")
    try:
        bound = _checked_bound(RULES[type(module)](module, shape), length(out[0]))
    except Exception as error:  # whatever a user's rule does
        raise TypeError(
            f"the rule that was registered for {name} gives no bound for input_shape {shape}: "
            f"{type(error).__name__}: {error}; correct it with berncert.register_bound"
        ) from error
    return Registered(module, bound, (shape, tuple(out.shape[1:])))


def _checked_bound(answer: LayerBound | Known | float, at_zero: float) -> LayerBound:
    """A rule's answer as a complete LayerBound; `at_zero` is norm_2(f(0)), for an answer that leaves it out."""
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = {(2.0, 2.0): float(answer)}
    if not isinstance(answer, LayerBound):
        answer = LayerBound(answer, offset=at_zero)  # type: ignore[arg-type]
    pairs = answer.known if isinstance(answer.known, Mapping) else (None,)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"expected a number, {{(s, t): number}} or a LayerBound, got {answer.known!r}")
    known = {(float(s), float(t)): float(factor) for (s, t), factor in answer.known.items()}
    if not known or not all(factor >= 0 for factor in known.values()):  # NaN is not
        raise ValueError(f"expected bounds >= 0, got {dict(answer.known)}; a bound that is not a number proves nothing")
    if not all(norm >= 1 for pair in known for norm in pair):
        raise ValueError(f"expected norms p with 1 <= p <= inf, got {list(answer.known)}")
    return replace(answer, known=known)
