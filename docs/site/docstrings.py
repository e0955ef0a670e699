"""Docstrings as Markdown: a griffe extension. What a terminal shows well is plain text, of which a page can show more."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

import berncert
import berncert.estimators

OPTION = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): ", re.MULTILINE)
"""What a parameter means: `name: text`, further lines indented."""
EXAMPLE = re.compile(r"^Example:\n((?:(?: {4}.*)?\n?)+)", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")
PUBLIC = {name: f"berncert.{name}" for name in berncert.__all__}
PUBLIC |= {name: f"berncert.estimators.{name}" for name in berncert.estimators.__all__ if name not in PUBLIC}


class PlainDocstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value, but=obj.name)


def markdown(docstring: str, but: str = "") -> str:
    """Parameters become a list, an example code, and names of the package links, save one's own."""
    prose, *example = EXAMPLE.split(inspect.cleandoc(docstring), maxsplit=1)
    parts = [paragraph(part, but) for part in prose.rstrip().split("\n\n")]
    return "\n\n".join(parts + [fenced(example[0])] if example else parts)


def paragraph(text: str, but: str) -> str:
    if text.startswith("    "):  # code
        return text
    if OPTION.match(text):
        text = OPTION.sub(r"- **\1**: ", text)
    return NAME.sub(lambda its: f"[`{its[1]}`][{PUBLIC[its[1]]}]" if its[1] in PUBLIC.keys() - {but} else its[0], text)


def fenced(example: str) -> str:
    return "\n".join(["**Example**", "", "```pycon", inspect.cleandoc(example), "```"])
