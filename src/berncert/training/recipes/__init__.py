"""Recipes: every setting of a training, in one small TOML file.

A recipe has the sections `data`, `model` and `training`, and may extend another recipe. No two settings have the same
name, so that one can be changed without naming its section: `load_recipe("mnist", epochs=3, width=128)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any, Self, get_type_hints

from berncert.foundation.arguments import guess
from berncert.foundation.safe_reading import parsed_toml
from berncert.foundation.settings import checked, kinds_of, parsed
from berncert.training.recipes.settings import DataSettings, ModelSettings, TrainingSettings

SECTIONS: dict[str, type[Any]] = {"data": DataSettings, "model": ModelSettings, "training": TrainingSettings}
SECTION_OF = {entry.name: section for section, kind in SECTIONS.items() for entry in fields(kind)}
"""The name of a setting -> the name of its section."""
NAME = re.compile(r"(?![-. ])[^/\\:*?\"<>|]{1,100}(?<![. ])")
"""The names of recipes: those that a folder can have on every system, and that no command takes for a flag."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every setting of a training."""

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
                raise ValueError(f"expected {key} to be {_kind(known[key])}, got {value!r}")

    def _architecture_options(self) -> dict[str, Any]:
        """The options that the architecture has besides the settings of a recipe, with their defaults."""
        from berncert.extractor import default_options  # it imports torch, which --help does not need

        known = default_options(self.model.architecture, self.model.construction)
        return {key: value for key, value in known.items() if key not in SECTION_OF}

    def change(self, **changes: Any) -> Self:
        """The recipe with some settings, or options of its architecture, changed.

        Another architecture starts with its own default options.
        """
        own = {key: value for key, value in changes.items() if key in SECTION_OF}
        others = {key: value for key, value in changes.items() if key not in SECTION_OF}
        sections = {
            section: replace(getattr(self, section), **{k: v for k, v in own.items() if SECTION_OF[k] == section})
            for section in SECTIONS
        }
        if any(getattr(sections["model"], k) != getattr(self.model, k) for k in ("architecture", "construction")):
            sections["model"] = replace(sections["model"], options=own.get("options", {}))
        changed = replace(self, **sections)
        for key in others:
            if key not in changed._architecture_options():
                raise _unknown(key, [*SECTION_OF, *changed._architecture_options()])
        model = replace(changed.model, options={**changed.model.options, **others})
        return replace(changed, model=model)

    def as_dict(self) -> dict[str, Any]:
        """The recipe as plain JSON, with every default written out but those of the options of its architecture."""
        entries: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return entries

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any], name: str = "recipe") -> Self:
        """The recipe with these entries; an unknown entry is an error."""
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
            if key in SECTION_OF:
                raise ValueError(f"expected {key} in the section [{SECTION_OF[key]}], got it outside of any")
            raise _unknown(key, ["extends", "name", "about", *SECTIONS])
        return cls(**{"name": name, **head}, **sections)


def recipe_names() -> tuple[str, ...]:
    """The names of the recipes that are shipped with the package."""
    files = resources.files(__package__).iterdir()
    return tuple(sorted(Path(file.name).stem for file in files if file.name.endswith(".toml")))


def describe_recipe(name: str) -> str:
    """What a shipped recipe is for, in a line."""
    return str(_entries(name, ()).get("about", ""))


def load_recipe(name: str | PathLike[str], **changes: Any) -> Recipe:
    """Load the shipped recipe of that name, or the TOML file with that path, with some settings changed.

    `recipe_names()` lists the shipped recipes. A file that says `extends = "mnist"` starts from that recipe.
    """
    entries = _entries(name, ())
    try:
        recipe = Recipe.from_dict(entries, Path(name).stem)
    except ValueError as error:  # the fault is in the file, not in the changes
        raise ValueError(f"in the recipe {str(name)!r}: {error}") from error
    return recipe.change(**changes)


def _entries(name: str | PathLike[str], above: tuple[str, ...]) -> dict[str, Any]:
    """The entries of the recipe, merged into those of the recipe that it extends; `above` are those that extend it."""
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
            f"{guess(path.name, recipe_names())}"
        )
    try:
        entries = parsed_toml(content.decode("utf-8"))
    except ValueError as error:  # not TOML, or not even text
        raise ValueError(f"expected a TOML file, got {str(name)!r}, which is not one: {error}") from error
    start = entries.pop("extends", None)
    if start is None:
        return entries
    if not isinstance(start, str):
        raise ValueError(f"expected extends to name a recipe, got {start!r}")
    base = _entries(start if start in recipe_names() else path.parent / start, (*above, str(name)))
    base.pop("about", None)  # it describes the other recipe
    model = entries.get("model", {})
    if isinstance(model, dict) and {"architecture", "construction"} & model.keys():
        base.get("model", {}).pop("options", None)  # they are those of another architecture
    return _merge(base, entries)


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of both, with those of `changes` instead of those of `base`; tables are merged."""
    tables = {k: v for k, v in changes.items() if isinstance(v, dict) and isinstance(base.get(k), dict)}
    return {**base, **changes, **{k: _merge(base[k], v) for k, v in tables.items()}}


def parse_change(text: str) -> tuple[str, Any]:
    """The name and the value of a change like 'epochs=3'."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"expected a change like epochs=3, got {text!r}")
    return key.strip(), parse_value(key.strip(), value.strip())


def parse_value(key: str, text: str) -> Any:
    """The value of a setting, read as its type requires, or of an option of the architecture, read as TOML."""
    return parsed(text, get_type_hints(SECTIONS[SECTION_OF[key]])[key] if key in SECTION_OF else None)


def parse_sweep(text: str) -> tuple[str, list[Any]]:
    """The name of a setting and the values to sweep over, of a text like 'radius=0.5,1'."""
    key, _, values = text.partition("=")
    key = key.strip().replace("-", "_")
    if not key or not values.strip():
        raise ValueError(f"expected a setting and its values, like radius=0.5,1, got {text!r}")
    if key in SECTION_OF and tuple[float, ...] in kinds_of(get_type_hints(SECTIONS[SECTION_OF[key]])[key]):
        raise ValueError(f"expected a setting with one value to sweep over, got {key}, a list; do it in Python")
    return key, [parse_value(key, value.strip()) for value in values.split(",")]


def _kind(example: Any) -> str:
    """What a value of the same type as this one is, in words."""
    kinds = {bool: "true or false", int: "a whole number", float: "a number with a point"}
    return f"{kinds.get(type(example), type(example).__name__)}, like {json.dumps(example)}"


def _unknown(key: str, known: list[str]) -> ValueError:
    return ValueError(f"expected a setting out of {', '.join(known)}; got {key!r}{guess(key, known)}")
