"""Docstrings as Markdown: a griffe extension. A terminal shows them as they are; a page can show more."""

from __future__ import annotations

import inspect
import re
from operator import attrgetter
from typing import Any

import griffe

import berncert
import berncert.estimators

OPTION = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): ", re.MULTILINE)
"""What a parameter means: `name: text`, further lines indented."""
EXAMPLE = re.compile(r"^Example:\n((?:(?: {4}.*)?\n?)+)", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")
PATHS = [*berncert.__all__, *(f"estimators.{name}" for name in berncert.estimators.__all__)]
LINKS = {path.rpartition(".")[2]: f"berncert.{path}" for path in reversed(PATHS)}
"""A name in a docstring -> what it links to; `load` and `save` are those of berncert itself."""


class PlainDocstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value, but=obj.name)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """`norm: float = setting(2.0, "the p of the norm")` is an attribute with a default and a docstring."""
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) == "setting":
            default, about, *_rest = attr.value.arguments
            attr.value = default
            text = str(about)[1:-1]
            attr.docstring = griffe.Docstring(f"{text[0].upper()}{text[1:]}.", parent=attr)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """What is only known when the package runs: docstrings that are computed, and defaults of parameters."""
        for path in PATHS:
            found = pkg[path]
            obj = found.final_target if isinstance(found, griffe.Alias) else found
            complete(obj, attrgetter(path)(berncert))


def complete(obj: Any, running: Any) -> None:
    if isinstance(obj, griffe.Function):
        for name, parameter in inspect.signature(running).parameters.items():
            if isinstance(obj.parameters[name].default, griffe.Expr):  # such as Exact.tolerance
                obj.parameters[name].default = repr(parameter.default)
    if isinstance(obj, griffe.Class):
        if obj.members.pop("__doc__", None):
            obj.docstring = griffe.Docstring(inspect.getdoc(running) or "", parent=obj)
        for name, member in obj.members.items():
            if isinstance(member, griffe.Function) and not name.startswith("_") and hasattr(running, name):
                member.docstring = member.docstring or inherited(member, running)
                complete(member, getattr(running, name))


def inherited(member: griffe.Function, running: type) -> griffe.Docstring | None:
    """What a class of this package that it derives from says of a method."""
    homes = [home for home in running.__mro__ if home.__module__.startswith("berncert.")]
    texts = (vars(home)[member.name].__doc__ for home in homes if inspect.isfunction(vars(home).get(member.name)))
    text = next(filter(None, texts), None)
    return griffe.Docstring(inspect.cleandoc(text), parent=member) if text else None


def markdown(docstring: str, but: str = "") -> str:
    """Parameters become a list, an example code, and names of the package links, save one's own."""
    prose, *example = EXAMPLE.split(inspect.cleandoc(docstring), maxsplit=1)
    parts = [paragraph(part, but) for part in prose.rstrip().split("\n\n")]
    return "\n\n".join([*parts, fenced(example[0])] if example else parts)


def paragraph(text: str, but: str) -> str:
    if text.startswith("    "):  # code
        return text
    if OPTION.match(text):
        text = OPTION.sub(r"- **\1**: ", text)
    return NAME.sub(lambda its: f"[`{its[1]}`][{LINKS[its[1]]}]" if its[1] in LINKS.keys() - {but} else its[0], text)


def fenced(example: str) -> str:
    return "\n".join(["**Example**", "", "```pycon", inspect.cleandoc(example), "```"])
