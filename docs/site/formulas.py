"""Formulas of the pages as MathML, which browsers typeset by themselves: a Markdown extension.

`$x_0$` is a formula in a line, and a fence of the kind `math` one of its own, as code hosts have them.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

DISPLAYED = re.compile(r"^( *)```math\n(.*?)\n *```$", re.DOTALL | re.MULTILINE)
INLINE = r"(?<![\\$\w])\$(?! )([^$\n]+?)(?<! )\$(?![\w$])"

BARS = re.compile(r"<mo>(&#x02016;|&#x0007C;)</mo>")
"""Of norms and absolute values: a browser would stretch one that has an index, and lower it below the line."""


class Formulas(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  (the name that Markdown calls)
        md.preprocessors.register(Displayed(md), "displayed formulas", 27)  # before fences of code, at 25
        md.inlinePatterns.register(Inline(INLINE, md), "formulas in lines", 185)  # after code in lines, at 190


class Displayed(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        def stored(found: re.Match[str]) -> str:
            html = f'<div class="formula">{mathml(found[2], "block")}</div>'
            return f"\n{found[1]}{self.md.htmlStash.store(html)}\n"

        return DISPLAYED.sub(stored, "\n".join(lines)).split("\n")


class Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element | str, int, int]:  # type: ignore[override]  # noqa: N802
        return self.md.htmlStash.store(mathml(m[1], "inline")), m.start(0), m.end(0)


def mathml(latex: str, display: str) -> str:
    """The formula; a command that is not known is an error, where LaTeX would stop too."""
    html = convert(latex, display=display)
    unknown = re.search(r"\\[a-zA-Z]+", html)
    if unknown:
        raise ValueError(f"no MathML for {unknown[0]} in the formula {latex}")
    return BARS.sub(r'<mo stretchy="false">\1</mo>', html)


def makeExtension(**settings: Any) -> Formulas:  # noqa: N802
    return Formulas(**settings)
