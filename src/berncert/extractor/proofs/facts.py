"""What is proven of one layer, and the book of rules that prove it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from berncert.extractor.proofs.gains import INF, Known
from berncert.extractor.proofs.norms import UNIT

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """The proven facts of one layer f, for one shape of input."""

    known: Known
    """(s, t) -> a bound on norm_t(f(x) - f(y)) / norm_s(x - y), for as many pairs as are known."""
    offset: float = 0.0
    """At least norm_2(f(0))."""
    roundings: float = 0.0
    """The computed f(x) differs from the true one by at most this many units of (magnitude norm_2(x) + offset)."""
    magnitude: float | None = None
    """The 2-norm of the layer with absolute weights; by default that of the layer."""
    limits: tuple[float, float] = (-INF, INF)
    """Between which all entries of f(x) lie, for every x."""
    keeps_limits: bool = False
    """Whether every entry of f(x) lies between two entries of x."""
    deviation: float = 0.0
    """How far, in norm_2, the layer as torch defines it may be from the Lipschitz function f, rounding aside."""

    def __post_init__(self) -> None:
        for name in ("offset", "roundings", "magnitude", "deviation"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= 0):  # NaN is not
                raise ValueError(f"expected {name} of a Layer to be a number >= 0, got {value!r}")
        if not (isinstance(self.limits, tuple) and len(self.limits) == 2 and self.limits[0] <= self.limits[1]):
            raise ValueError(f"expected limits of a Layer as (least, greatest), got {self.limits!r}")


Rule = Callable[[Any, Shape], "Layer | Known | float"]
"""From a module and the shape of its input (without batch) to what is proven of it; a number is a bound in l2."""

RULES: dict[type[nn.Module], Rule] = {}
MAPS: set[Rule] = set()
"""Rules that hold for maps, (channels, height, width), only: torch would take the batch for the channels of less."""
R = TypeVar("R", bound=Rule)


def rule_for(*kinds: type[nn.Module], maps: bool = False) -> Callable[[R], R]:
    """Register a rule for these modules, of maps only or of anything."""

    def register(rule: R) -> R:
        RULES.update(dict.fromkeys(kinds, rule))
        if maps:
            MAPS.add(rule)
        return rule

    return register


HARMLESS = {"__init__", "__repr__", "extra_repr", "reset_parameters", "__getstate__", "__deepcopy__"}


def find_rule(module: nn.Module) -> Rule | None:
    """The rule for this module. A subclass inherits one only if it changes nothing that could be computed."""
    if "forward" in vars(module):
        return None
    for kind in type(module).__mro__:
        if kind in RULES:
            return RULES[kind]
        if any(callable(value) and name not in HARMLESS for name, value in vars(kind).items()):
            return None
    return None


def apply_rule(rule: Rule, module: nn.Module, shape: Shape, at_zero: float = 0.0) -> Layer:
    """What the rule says, in full; `at_zero` is norm_2(f(0)), for a rule that does not say."""
    if rule in MAPS and len(shape) != 3:
        raise ValueError(f"expected a map (channels, height, width), got shape {shape}; check input_shape")
    said = rule(module, shape)
    if isinstance(said, int | float) and not isinstance(said, bool):
        said = {(2.0, 2.0): float(said)}
    if not isinstance(said, Layer):
        said = Layer(said, offset=at_zero)  # type: ignore[arg-type]
    pairs = said.known if isinstance(said.known, Mapping) else (None,)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"expected a rule to give a number, {{(s, t): number}} or a Layer, got {said.known!r}")
    known = {(float(s), float(t)): float(factor) for (s, t), factor in said.known.items()}
    if not known or not all(factor >= 0 for factor in known.values()):  # NaN is not
        raise ValueError(f"expected bounds >= 0, got {dict(said.known)}; a bound that is not a number proves nothing")
    if not all(norm >= 1 for pair in known for norm in pair):
        raise ValueError(f"expected norms p with 1 <= p <= inf, got {list(said.known)}")
    return replace(said, known=known)


def absolute_norm(known: Known) -> float:
    """A bound on the 2-norm of a linear map with its entries made positive, from its l1 and l-inf norms (Schur)."""
    return math.sqrt(known[1.0, 1.0] * known[INF, INF]) * (1 + 4 * UNIT)


def length(values: Tensor | None, copies: int = 1) -> float:
    """The 2-norm of so many copies of the values, rounded up; 0 for None."""
    if values is None:
        return 0.0
    values = values.detach().cpu().double()
    return float(values.norm()) * math.sqrt(copies) * (1 + (values.numel() + 8) * UNIT)


def placement(module: nn.Module) -> Tensor:
    """A tensor of the dtype and on the device that the module computes in; float64 if it has none."""
    tensors = (t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point())
    return next(tensors, torch.zeros((), dtype=torch.float64))


def require_finite(**tensors: Tensor | None) -> None:
    """An error that names the first of these that holds NaN or infinity."""
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.isfinite().all():
            raise ValueError(f"expected a finite {name}, got NaN or infinity; nothing can be proven of such a layer")


def root_of(shape: Shape) -> float:
    """The 2-norm of a tensor of ones, rounded up."""
    return math.sqrt(math.prod(shape)) * (1 + 4 * UNIT)
