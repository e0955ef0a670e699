"""Recipes: all that decides a training, in one small TOML file.

A recipe has three sections, `data`, `model` and `training`, and may extend another. Settings have different names, so
that one can be changed without telling its section: `load_recipe("mnist", epochs=3, width=128)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any, Self, get_type_hints

from berncert.floor.reading import parsed_toml
from berncert.floor.settings import checked, parsed
from berncert.training.recipes.settings import DataSettings, ModelSettings, TrainingSettings

SECTIONS: dict[str, type[Any]] = {"data": DataSettings, "model": ModelSettings, "training": TrainingSettings}
OWNER = {entry.name: section for section, kind in SECTIONS.items() for entry in fields(kind)}
"""Setting -> its section."""
NAME = re.compile(r"(?![-. ])[^/\\:*?\"<>|]{1,100}(?<![. ])")
"""Of a recipe: what a folder can be called on every system, and what no command takes for a flag."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides a training."""

    name: str = "recipe"
    about: str = ""
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        for name in ("name", "about"):
            checked(name, getattr(self, name), str, {})
        if not NAME.fullmatch(self.name) or not self.name.isprintable():
            raise ValueError(
                f"expected a name that a folder can have, without / and \\, not beginning with . or -, got "
                f'{self.name!r}; write name = "..." into the recipe, or rename its file'
            )
        known = self._architecture_options()
        for key, value in self.model.options.items():
            if key not in known:
                raise _unknown(key, list(known))
            if type(value) is not type(known[key]):
                raise ValueError(f"expected {key} to be like {known[key]!r}, got {value!r}")

    def _architecture_options(self) -> dict[str, Any]:
        """What the architecture lets one choose beside the settings here, with its defaults."""
        from berncert.extractor import default_options  # takes torch, which --help need not wait for

        known = default_options(self.model.architecture, self.model.construction)
        return {key: value for key, value in known.items() if key not in OWNER}

    def change(self, **changes: Any) -> Self:
        """The recipe with some settings changed; those of the architecture too.

        With another architecture its own defaults are taken, not the options that the old one had.
        """
        own = {key: value for key, value in changes.items() if key in OWNER}
        others = {key: value for key, value in changes.items() if key not in OWNER}
        sections = {
            section: replace(getattr(self, section), **{k: v for k, v in own.items() if OWNER[k] == section})
            for section in SECTIONS
        }
        if any(getattr(sections["model"], k) != getattr(self.model, k) for k in ("architecture", "construction")):
            sections["model"] = replace(sections["model"], options=own.get("options", {}))
        changed = replace(self, **sections)
        for key in others:
            if key not in changed._architecture_options():
                raise _unknown(key, [*OWNER, *changed._architecture_options()])
        model = replace(changed.model, options={**changed.model.options, **others})
        return replace(changed, model=model)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON, every default spelt out."""
        told: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return told

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], name: str = "recipe") -> Self:
        """The recipe of these entries; what is not known is an error."""
        given = dict(entries)
        head = {key: given.pop(key) for key in ("name", "about") if key in given}
        sections = {}
        for section, kind in SECTIONS.items():
            table = given.pop(section, {})
            if not isinstance(table, Mapping):
                raise ValueError(f"expected [{section}] to be a table of settings, got {table!r}")
            known = [entry.name for entry in fields(kind)]
            for key in table:
                if key not in known:
                    raise _unknown(f"{section}.{key}", [f"{section}.{name}" for name in known])
            sections[section] = kind(**table)
        for key in given:
            if key in OWNER:
                raise ValueError(f"expected {key} in the section [{OWNER[key]}], got it outside of any")
            raise _unknown(key, ["extends", "name", "about", *SECTIONS])
        return cls(**{"name": name, **head}, **sections)


def recipe_names() -> tuple[str, ...]:
    """The recipes that come with the package."""
    files = resources.files(__package__).iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def about_recipe(name: str) -> str:
    """What a recipe that comes with the package is for."""
    return str(_entries(name, ()).get("about", ""))


def load_recipe(name: str | PathLike[str], **changes: Any) -> Recipe:
    """The recipe of that name (one of `recipe_names`), or in the TOML file at that path, with some settings changed.

    A file that says `extends = "mnist"` starts from that recipe.
    """
    entries = _entries(name, ())
    try:
        recipe = Recipe.from_dict(entries, Path(name).stem)
    except ValueError as error:  # of what is in the file, not of what was changed
        raise ValueError(f"in the recipe {str(name)!r}: {error}") from error
    return recipe.change(**changes)


def _entries(name: str | PathLike[str], above: tuple[str, ...]) -> dict[str, Any]:
    """What the file says, on top of what it extends."""
    path = Path(name)
    if str(name) in above:
        raise ValueError(f"expected a recipe that does not extend itself, got {' -> '.join((*above, str(name)))}")
    if str(name) in recipe_names():
        content = (resources.files(__package__) / f"{name}.toml").read_bytes()
    elif path.is_file():
        content = path.read_bytes()
    else:
        raise ValueError(
            f"expected one of the recipes {', '.join(recipe_names())}, or the path of a TOML file, got {str(name)!r}"
            f"{_guess(path.name, recipe_names())}"
        )
    try:
        entries = parsed_toml(content.decode("utf-8"))
    except ValueError as error:  # not TOML, or not even text
        raise ValueError(f"expected a TOML file, got {str(name)!r}, which is none: {error}") from error
    start = entries.pop("extends", None)
    if start is None:
        return entries
    if not isinstance(start, str):
        raise ValueError(f"expected extends to name a recipe, got {start!r}")
    basis = _entries(start if start in recipe_names() else path.parent / start, (*above, str(name)))
    basis.pop("about", None)  # of that one
    model = entries.get("model", {})
    if isinstance(model, dict) and {"architecture", "construction"} & model.keys():
        basis.get("model", {}).pop("options", None)  # of another architecture
    return _merged(basis, entries)


def _merged(start: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged, everything else is replaced."""
    both = {
        k: _merged(start[k], v) for k, v in changes.items() if isinstance(v, dict) and isinstance(start.get(k), dict)
    }
    return {**start, **changes, **both}


def parse_change(text: str) -> tuple[str, Any]:
    """'epochs=3' -> ("epochs", 3): the value as the setting wants it, or for others as in a TOML file."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"expected a change like epochs=3, got {text!r}")
    return key.strip(), parse_value(key.strip(), value.strip())


def parse_value(key: str, text: str) -> Any:
    """What is typed for a setting, or for an option of the architecture."""
    return parsed(text, get_type_hints(SECTIONS[OWNER[key]])[key] if key in OWNER else None)


def _unknown(key: str, known: list[str]) -> ValueError:
    return ValueError(f"expected a setting out of {', '.join(known)}; got {key!r}{_guess(key, known)}")


def _guess(word: str, known: list[str] | tuple[str, ...]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
