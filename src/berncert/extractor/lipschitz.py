"""The Lipschitz bound of a whole network, proven step by step, and the table that shows where it comes from."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text
from torch import nn

from berncert.extractor.arithmetic import on_cpu
from berncert.extractor.bounds.norm_gains import NormGains, norms_with
from berncert.extractor.bounds.spectral_norm import UNIT
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.extractor.freezing.freeze import freeze
from berncert.extractor.frozen import Step, interpret
from berncert.foundation.arguments import checked_norm
from berncert.foundation.progress import Bar
from berncert.foundation.rounding import ceil_digits, trimmed


@dataclass(frozen=True)
class LipschitzRow:
    """One layer of the network, as its author wrote it."""

    name: str
    layer: str
    shape: tuple[int, ...]
    """The shape of its output."""
    factor: float
    """The bound of this layer alone; NaN for a step that joins several values."""
    running: float
    """The bound from the image to its output."""
    growth: float
    """How many times the largest of those of its inputs that is: a bound for a whole chain of layers may be better
    than the product of their own."""


@dataclass(frozen=True)
class LipschitzTable:
    """What the bound of a network is made of; prints as a table."""

    rows: tuple[LipschitzRow, ...]
    norm: float
    value: ValueBound
    """All that is proven of what the network returns."""

    @property
    def bound(self) -> float:
        """norm(f(x) - f(y)) <= bound * norm(x - y)."""
        return self.value.gains.factor(self.norm, self.norm)

    def __iter__(self) -> Iterator[LipschitzRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            title=f"proven Lipschitz bound, norm {self.norm:g}: {ceil_digits(trimmed(self.bound), 6)}",
            title_justify="left",
        )
        for column in ("step", "layer"):
            table.add_column(column, overflow="fold")
        for column in ("output", "factor", "running"):
            table.add_column(column, justify="right")
        for row in self.rows:
            factor = "" if math.isnan(row.factor) else ceil_digits(trimmed(row.factor), 6)
            running = ceil_digits(trimmed(row.running), 6)
            # plain text: a module's name may look like markup
            table.add_row(Text(row.name), Text(row.layer), "x".join(map(str, row.shape)), factor, running)
        yield table

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=120)
        console.print(self)
        return console.file.getvalue().rstrip()  # type: ignore[attr-defined, no-any-return]


def lipschitz_table(
    network: nn.Module,
    input_shape: Sequence[int],
    norm: float = 2,
    *,
    unit: float = UNIT,
    progress: bool | None = None,
) -> LipschitzTable:
    """The network layer by layer: output shape, the layer's own factor, and the bound from the image so far.

    `unit` is the rounding unit of the arithmetic that the network runs in, for what is proven of its rounding errors.

    Example:
        >>> import torch, berncert
        >>> print(berncert.lipschitz_table(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sigmoid()), (2,)))
        proven Lipschitz bound, norm 2: 0.25
        ┏━━━━━━┳━━━━━━━━━┳━━━━━━━━┳━━━━━━━━┳━━━━━━━━━┓
        ┃ step ┃ layer   ┃ output ┃ factor ┃ running ┃
        ┡━━━━━━╇━━━━━━━━━╇━━━━━━━━╇━━━━━━━━╇━━━━━━━━━┩
        │ 0    │ ReLU    │      2 │      1 │       1 │
        │ 1    │ Sigmoid │      2 │   0.25 │    0.25 │
        └──────┴─────────┴────────┴────────┴─────────┘
    """
    p = checked_norm(norm)
    frozen = freeze(network, input_shape)
    rows: list[LipschitzRow] = []
    last: tuple[str, NormGains | None] = ("", None)
    number, before = 0, 1.0

    def visit(step: Step, values: tuple[ValueBound, ...]) -> ValueBound:
        nonlocal last, number, before
        number += 1
        try:
            value, own = step.operation.bound(*values, unit=unit)
        except ValueError as error:
            raise ValueError(f"{step.name}: {error}") from error
        follows = step.inputs == (number - 1,)
        if rows and follows and last[0] == step.name and own is not None and last[1] is not None:
            own = last[1].then(own)  # a layer of several operations
            rows.pop()
        else:
            before = max(argument.gains.factor(p, p) for argument in values)
        running = value.gains.factor(p, p)
        growth = running / before if before > 0 else math.nan
        last = (step.name, own)
        factor = math.nan if own is None else own.factor(p, p)
        rows.append(LipschitzRow(step.name, step.layer, value.shape, factor, running, growth))
        bar.update(len(rows))
        return value

    normal = torch.inference_mode(False)  # column sums are taken as gradients
    with normal, torch.no_grad(), on_cpu(), Bar("bounding layers", total=None, progress=progress) as bar:
        start = ValueBound.image(frozen.input_shape, norms_with(p), unit)
        value = interpret(frozen.steps, start, visit)
    return LipschitzTable(tuple(rows), p, value)


def lipschitz_bound(
    network: nn.Module, input_shape: Sequence[int], norm: float = 2, *, progress: bool | None = None
) -> float:
    """Proven: norm(f(x) - f(y)) <= bound * norm(x - y) for all inputs of this shape (without the batch).

    f is the frozen network: see `freeze`. Every step must have a proof, and one that has none is a TypeError. `norm` is
    the p of the norm, 1 <= p <= inf. Evaluation mode only.

    A layer of your own gets its bound with `register_bound`.

    Example:
        >>> import torch, berncert
        >>> layer = torch.nn.Linear(2, 2, bias=False)
        >>> layer.weight.data = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
        >>> round(berncert.lipschitz_bound(torch.nn.Sequential(layer, torch.nn.Sigmoid()), (2,)), 6)  # 4 times 1/4
        1.0
    """
    return lipschitz_table(network, input_shape, norm, progress=progress).bound
