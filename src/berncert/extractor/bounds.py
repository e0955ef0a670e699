"""The Lipschitz bound of a whole network, proven step by step, and the table that shows where it comes from."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text
from torch import nn

from berncert.arguments import checked_norm
from berncert.extractor.proofs.facts import RULES, Layer, Rule
from berncert.extractor.proofs.flow import Flow
from berncert.extractor.proofs.gains import norms_with
from berncert.extractor.proofs.norms import UNIT
from berncert.extractor.proofs.walk import walk
from berncert.numbers import trimmed, up
from berncert.progress import Bar


@dataclass(frozen=True)
class LipschitzRow:
    """One step of the network."""

    name: str
    layer: str
    shape: tuple[int, ...]
    """Of its output."""
    factor: float
    """Its own bound; NaN for a step that joins several values."""
    running: float
    """The bound from the image to its output."""


@dataclass(frozen=True)
class LipschitzTable:
    """What the bound of a network is made of; prints as a table."""

    rows: tuple[LipschitzRow, ...]
    norm: float
    flow: Flow
    """All that is proven of the network's value."""

    @property
    def bound(self) -> float:
        """norm(f(x) - f(y)) <= bound * norm(x - y)."""
        return self.flow.gains.factor(self.norm, self.norm)

    def __iter__(self) -> Iterator[LipschitzRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            title=f"proven Lipschitz bound, norm {self.norm:g}: {up(trimmed(self.bound), 6)}", title_justify="left"
        )
        for column in ("step", "layer"):
            table.add_column(column, overflow="fold")
        for column in ("output", "factor", "running"):
            table.add_column(column, justify="right")
        for row in self.rows:
            factor = "" if math.isnan(row.factor) else up(trimmed(row.factor), 6)
            running = up(trimmed(row.running), 6)
            # plain text: a module's name may look like markup
            table.add_row(Text(row.name), Text(row.layer), "x".join(map(str, row.shape)), factor, running)
        yield table

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=120)
        console.print(self)
        return console.file.getvalue().rstrip()  # type: ignore[attr-defined, no-any-return]


def lipschitz_table(
    module: nn.Module,
    input_shape: Sequence[int],
    norm: float = 2,
    *,
    unit: float = UNIT,
    progress: bool | None = None,
) -> LipschitzTable:
    """The network step by step: layer, output shape, its own factor, and the bound from the image so far.

    `unit` is the rounding unit of the arithmetic that the network runs in, for what is proven of its rounding errors.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"expected a torch module, got {type(module).__name__}")
    shape = _checked_shape(input_shape)
    p = checked_norm(norm)
    rows: list[LipschitzRow] = []
    flow = Flow.image(shape, norms_with(p), unit)
    normal = torch.inference_mode(False)  # column sums are taken as gradients
    with normal, torch.no_grad(), Bar("bounding layers", total=None, progress=progress) as bar:
        for step in walk(module, shape, norms_with(p), unit):
            factor = math.nan if step.own is None else step.own.factor(p, p)
            flow = step.flow
            rows.append(LipschitzRow(step.name, step.kind, flow.shape, factor, flow.gains.factor(p, p)))
            bar.update(len(rows))
    return LipschitzTable(tuple(rows), p, flow)


def lipschitz_bound(
    module: nn.Module, input_shape: Sequence[int], norm: float = 2, *, progress: bool | None = None
) -> float:
    """Proven: norm(f(x) - f(y)) <= bound * norm(x - y) for all inputs of this shape (without the batch).

    The network is traced, so its forward may add, concatenate and reshape; every step must have a proof, and one that
    has none is a TypeError. `norm` is the p of the norm, 1 <= p <= inf. Evaluation mode only.

    A layer of your own: `lipschitz_bound.register(MyLayer, rule)`, see there.
    """
    return lipschitz_table(module, input_shape, norm, progress=progress).bound


@overload
def register(kind: type[nn.Module], rule: Rule) -> Rule: ...
@overload
def register(kind: type[nn.Module]) -> Callable[[Rule], Rule]: ...
def register(kind: type[nn.Module], rule: Rule | None = None) -> Any:
    """Vouch for a layer of yours: from now on networks that contain it have a bound.

    `rule(module, input_shape)` returns its Lipschitz constant in l2 as a number, or {(s, t): bound from norm s to
    norm t}, or a `Layer` that also says what rounding can do. Also a decorator: `@lipschitz_bound.register(MyLayer)`.
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise TypeError(f"expected a class of torch modules, got {kind!r}; register the type, not an instance")
    if rule is None:
        return lambda given: register(kind, given)
    if not callable(rule):
        raise TypeError(f"expected a rule(module, input_shape), got {rule!r}; e.g. lambda module, shape: 1.0")
    RULES[kind] = rule
    return rule


lipschitz_bound.register = register  # type: ignore[attr-defined]


def _checked_shape(input_shape: Sequence[int]) -> tuple[int, ...]:
    try:
        shape = tuple(int(n) for n in input_shape)
    except (TypeError, ValueError):
        shape = ()
    if not shape or min(shape) < 1:
        raise ValueError(f"expected input_shape like (3, 32, 32), without the batch, got {input_shape!r}")
    return shape


__all__ = ["Layer", "LipschitzRow", "LipschitzTable", "lipschitz_bound", "lipschitz_table", "register"]
