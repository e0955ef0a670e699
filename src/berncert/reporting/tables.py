"""A table of text, for the terminal, for Markdown and for LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

GREEK = (
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "", "pi", "rho", "", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
)  # fmt: skip
"""From U+03B1 on; LaTeX has no omicron and no final sigma."""
LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {c: f"{{{c}}}" for c in "[]*'`"}  # what a row begins with may look like an option of the command before
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {chr(0x3B1 + k): rf"$\{name}$" for k, name in enumerate(GREEK) if name}
    | {"≤": r"$\le$", "≥": r"$\ge$", "∞": r"$\infty$", "\u2113": r"$\ell$"}
)
MARKDOWN = re.compile(r"[\\`*<>\[\]|~&$#]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown may take for a command; an underscore within a word is not."""

FOLDED, LONGEST, GAP = 16, 60, 2
"""The least and the most width of names before they are folded, and what is between columns."""


@dataclass(frozen=True)
class TextTable:
    """Headings and rows of text; the first `left` columns are aligned to the left, the others, numbers, to the right.

    A line break in a heading saves room on a terminal.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""
    left: int = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Names are folded where a terminal is narrow, and very long ones in any place; numbers never are."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        for column, heading in enumerate(self.headings):
            justify: JustifyMethod = "left" if column < self.left else "right"
            table.add_column(Text(heading), justify=justify, no_wrap=column > 0, overflow="fold", vertical="bottom")
        for row in self.rows:
            table.add_row(*map(Text, row))  # plain text: a name may look like markup
        width = max(options.max_width, self._width(FOLDED)) if console.is_terminal else self._width(LONGEST)
        if self.title:
            yield Text(self.title, style="italic")
        yield from console.render(table, options.update_width(width))
        if self.note:
            yield Text(self.note, style="dim")

    def _width(self, fold: int) -> int:
        """In characters, with names folded to so many."""
        columns = zip(self.headings, *self.rows, strict=True)
        first, *others = (max(cell_len(line) for cell in column for line in cell.split("\n")) for column in columns)
        return sum(others) + min(first, fold) + GAP * len(self.headings)

    def markdown(self) -> str:
        """A pipe table; what Markdown takes for a command is escaped."""
        rule = [":---" if column < self.left else "---:" for column in range(len(self.headings))]
        lines = [map(_markdown, self.headings), rule, *(map(_markdown, row) for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def latex(self) -> str:
        """A booktabs tabular; what LaTeX takes for a command is escaped. Letters beyond Latin may need LuaLaTeX."""
        columns = "l" * self.left + "r" * (len(self.headings) - self.left)
        body = [*map(_latex_row, self.rows)]
        return "\n".join(
            [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _latex_row(self.headings), r"\midrule", *body,
             r"\bottomrule", r"\end{tabular}"]
        )  # fmt: skip


def _one_line(cell: str) -> str:
    return " ".join(cell.split())


def _markdown(cell: str) -> str:
    return MARKDOWN.sub(r"\\\g<0>", _one_line(cell))


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"


def _latex(cell: str) -> str:
    return re.sub("-(?=-)", "-{}", _one_line(cell).translate(LATEX))  # two hyphens would be a dash
