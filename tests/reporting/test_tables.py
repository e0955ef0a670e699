"""Tables of text: every cell arrives as it is, in the terminal, in Markdown and in LaTeX."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from berncert.reporting.tables import TextTable

NASTY = [
    "[red]x[/]",
    "a_b & c%",
    "=",
    "日本語 é",
    "100% \\LaTeX{} $x$ ~^#",
    "*a* _b_ `c`",
    "a|b",
    "<b>&amp;",
    "--x",
    "\\\\[2em]",
]
PLAIN = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), max_size=20)


def printed(grid: TextTable, *, width: int = 80, terminal: bool = False) -> str:
    console = Console(
        file=StringIO(), width=width, force_terminal=terminal, color_system=None, markup=True, soft_wrap=True
    )
    console.print(grid)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def cells_of(markdown: str) -> list[list[str]]:
    """As a reader of Markdown takes it: pipes that are not escaped end cells, and a backslash hides a sign."""
    lines = [re.split(r"(?<!\\)(?:\\\\)*\|", line) for line in markdown.splitlines()]
    return [[re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", cell.strip()) for cell in line[1:-1]] for line in lines]


@pytest.mark.parametrize("cell", NASTY)
def test_a_terminal_shows_cells_as_they_are(cell: str) -> None:
    lines = printed(TextTable(["name", "n"], [[cell, "1"]], title="[b]t", note="[i]n")).splitlines()
    assert lines[0] == "[b]t"
    assert lines[3].split("  ")[0].rstrip() == cell
    assert lines[4] == "[i]n"


def test_numbers_are_on_the_right_and_names_on_the_left() -> None:
    assert printed(TextTable(["run", "n"], [["a", "1.5"], ["long", "10.5"]])).splitlines() == [
        "run      n ",
        "───────────",
        "a      1.5 ",
        "long  10.5 ",
    ]


def test_a_narrow_terminal_folds_names_but_never_numbers() -> None:
    text = printed(TextTable(["run", *"abcdef"], [["name " * 8, *["98.765"] * 6]]), width=30, terminal=True)
    assert text.count("98.765") == 6
    assert "…" not in text
    assert len(text.splitlines()) > 4


def test_in_a_file_nothing_is_folded_but_very_long_names() -> None:
    assert len(printed(TextTable(["run", *"abcdef"], [["n" * 55, *["98.765"] * 6]])).splitlines()) == 3
    assert max(map(len, printed(TextTable(["run"], [["n" * 500]])).splitlines())) < 80


@given(rows=st.lists(st.lists(PLAIN, min_size=3, max_size=3), max_size=4))
def test_markdown_gives_every_cell_back(rows: list[list[str]]) -> None:
    heading, rule, *lines = cells_of(TextTable(["a|b", "c", "d"], rows).markdown())
    assert heading == ["a|b", "c", "d"]
    assert rule == [":---", "---:", "---:"]
    assert lines == [[" ".join(cell.split()) for cell in row] for row in rows]


def test_markdown_leaves_plain_names_alone() -> None:
    grid = TextTable(["run", "mean\nradius"], [["resnet110_noise_0.25", "0.5"], ["*a*|_b_", "-"]])
    assert grid.markdown().splitlines() == [
        "| run | mean radius |",
        "| :--- | ---: |",
        "| resnet110_noise_0.25 | 0.5 |",
        r"| \*a\*\|\_b\_ | - |",
    ]


def test_latex_is_a_booktabs_tabular() -> None:
    assert TextTable(["run", "claim", "at 1"], [["a-b", "proven", "98.5"]], left=2).latex().splitlines() == [
        r"\begin{tabular}{llr}",
        r"\toprule",
        r"run & claim & at 1 \\",
        r"\midrule",
        r"a-b & proven & 98.5 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_latex_escapes_all_that_is_a_command() -> None:
    (row,) = TextTable(["x"], [["a_b & c% $d$ #{e} ~^\\ <f> |g| --- [h] *i \u03c3"]]).latex().splitlines()[4:5]
    assert row == (
        r"a\_b \& c\% \$d\$ \#\{e\} \textasciitilde{}\textasciicircum{}\textbackslash{} \textless{}f\textgreater{} "
        r"\textbar{}g\textbar{} -{}-{}- {[}h{]} {*}i $\sigma$ \\"
    )


@given(rows=st.lists(st.lists(PLAIN, min_size=3, max_size=3), max_size=4))
def test_latex_rows_have_their_cells_and_balanced_braces(rows: list[list[str]]) -> None:
    lines = TextTable(["a", "b", "c"], rows).latex().splitlines()[4:-2]
    assert len(lines) == len(rows)
    for line in lines:
        bare = re.sub(r"\\[&%$#_{}]", "", line)
        assert bare.count("&") == 2
        assert not set(bare) & set("%#_$^~")
        assert bare.count("{") == bare.count("}")
        assert re.findall(r"\\\\", bare) == ["\\\\"]
        assert re.search(r"(?<!{)[\[*]", bare) is None  # \\ would take it for its own
