"""A layer of the user's own, with a bound that the user registered: it is run as it is, and its bound is trusted."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from berncert.extractor.bounds.layer_bound import LayerBound, Shape
from berncert.extractor.bounds.norm_gains import Known
from berncert.extractor.operations.base import Layer


@dataclass(frozen=True, eq=False)
class Registered(Layer):
    """A module whose bound was given to `register_bound`. No file can hold it, because it runs the user's code."""

    in_files: ClassVar[bool] = False

    module: nn.Module
    known: LayerBound
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
        return self.known

    def to(self, dtype: torch.dtype, device: torch.device) -> Registered:
        return replace(self, module=copy.deepcopy(self.module).to(device, dtype))


def checked_bound(answer: LayerBound | Known | float, at_zero: float) -> LayerBound:
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
