"""Rows that are defined once, by their columns, and rendered as JSON, as Markdown and on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table


class Column(NamedTuple):
    key: str
    """Its name in the JSON record."""
    title: str
    """Its heading; columns without one are in the record only."""
    value: Callable[[Any], Any]
    text: Callable[[Any], str] = str


class Section(NamedTuple):
    key: str
    title: str
    note: str
    columns: list[Column]
    rows: list[dict[str, Any]]
    """The values at full precision; only their text is rounded."""

    @classmethod
    def of(cls, key: str, title: str, note: str, columns: list[Column], things: Iterable[Any]) -> Section:
        rows = [{column.key: column.value(thing) for column in columns} for thing in things]
        return cls(key, title, " ".join(note.split()), columns, rows)

    @property
    def headings(self) -> list[str]:
        return [column.title for column in self.columns if column.title]

    @property
    def cells(self) -> list[list[str]]:
        shown = [column for column in self.columns if column.title]
        return [[column.text(row[column.key]) for column in shown] for row in self.rows]


def number(value: float | None) -> str:
    """Three digits, or all before the point; a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(title: str, intro: str, sections: list[Section]) -> str:
    parts = [f"# {title}", intro]
    for section in sections:
        table = [section.headings, ["---:"] * len(section.headings), *section.cells]
        parts += [f"## {section.title}", section.note, "\n".join(f"| {' | '.join(line)} |" for line in table)]
    return "\n\n".join(parts) + "\n"


def show(console: Console, section: Section) -> None:
    table = Table(title=section.title, caption=section.note, title_justify="left", caption_justify="left")
    for heading in section.headings:
        table.add_column(heading, justify="right")
    for cells in section.cells:
        table.add_row(*cells)
    console.print(table)
