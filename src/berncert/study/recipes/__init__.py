"""Recipes: all that decides a training, in one small TOML file; each setting is defined once, here.

A recipe has three sections, `data`, `model` and `training`, and may extend another. Settings have different names, so
that one can be changed without telling its section: `load_recipe("mnist", epochs=3, width=128)`.
"""

from __future__ import annotations

import json
import math
import tomllib
import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any, Self, get_args, get_type_hints

from berncert.extractor import ARCHITECTURES, CONSTRUCTIONS, default_options
from berncert.study.heads import HEADS

LARGEST = 2**31
"""No whole number is larger: a seed times a million still fits into 64 bits."""


def setting(
    default: Any, about: str, *, choices: tuple[str, ...] = (), least: float | None = None, above: float | None = None
) -> Any:
    """A setting: its default, what it means, and which values make sense."""
    limits = {"help": about, "choices": choices, "least": least, "above": above}
    return field(default=default, metadata=limits) if default is not MISSING else field(metadata=limits)


class Section:
    """Settings that check themselves."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for entry in fields(self):  # type: ignore[arg-type]
            value = checked(entry.name, getattr(self, entry.name), hints[entry.name], entry.metadata)
            object.__setattr__(self, entry.name, value)


@dataclass(frozen=True, kw_only=True)
class DataSettings(Section):
    """What is learnt from."""

    dataset: str = setting("digits", "a data set's name, or the path of a folder of images or of an .npz file")
    train_limit: int | None = setting(None, "only so many training images, drawn by the seed", least=1)
    test_limit: int | None = setting(1000, "how many test images are looked at after each epoch, for the log", least=1)
    crop: int = setting(0, "augmentation: shift by up to so many pixels, what comes in is grey", least=0)
    flip: bool = setting(False, "augmentation: mirror half of the images")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Section):
    """What is trained."""

    architecture: str = setting("mlp", "the extractor", choices=tuple(ARCHITECTURES))
    construction: str = setting("lipschitz", "1-Lipschitz layers, or the paper's", choices=CONSTRUCTIONS)
    dim: int = setting(10, "the number of features", least=1)
    side: float | None = setting(None, "of the cube that the features lie in, in pixel units (lipschitz)", above=0)
    mean: tuple[float, ...] | None = setting(None, "of each channel, subtracted first")
    std: tuple[float, ...] | None = setting(None, "of each channel, divided by first")
    head: str = setting("identity", "from features to logits", choices=tuple(HEADS))
    head_width: int = setting(32, "hidden units of the mlp head", least=1)
    degree: int = setting(1, "of the Bernstein polynomial that takes the head's place", least=1)
    options: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "of the architecture, e.g. depth and width"}
    )

    def __post_init__(self) -> None:
        if not isinstance(self.options, Mapping):
            raise ValueError(f"expected options to be a table, e.g. {{ width = 128 }}, got {self.options!r}")
        super().__post_init__()
        if self.construction == "paper" and self.side is not None:
            raise ValueError(
                f"expected no side in the paper's construction, got {self.side}; features end in a sigmoid"
            )


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Section):
    """How it is trained."""

    objective: str = setting(
        "certified", "what is made small", choices=("plain", "adversarial", "certified", "gaussian")
    )
    through: str = setting("smoothed", "the head that the loss is taken of", choices=("base", "smoothed"))
    radius: float = setting(0.3, "l2, in pixel units: of the attack, or of what is to be proven", least=0)
    radius_warmup: float = setting(0.2, "the share of the training in which the radius grows from 0", least=0)
    attack_steps: int = setting(0, "gradient steps of the attack; certified: 0 takes the linearised margins", least=0)
    noise: float = setting(0.25, "standard deviation of the noise (gaussian)", least=0)
    temperature: float = setting(1.0, "logits are divided by it; a small one pushes few images hard", above=0)
    boundary_weight: float = setting(0.0, "of the paper's fine-tuning term, minus F-hat", least=0)
    epochs: int = setting(10, "passes over the training images", least=1)
    batch_size: int = setting(256, "images of one step", least=1)
    optimizer: str = setting("adam", "the rule of a step", choices=("adam", "sgd"))
    lr: float = setting(0.01, "the greatest learning rate", above=0)
    weight_decay: float = setting(0.0, "pull of the weights towards 0", least=0)
    schedule: str = setting("onecycle", "of the learning rate", choices=("onecycle", "cosine", "constant"))
    lr_warmup: float = setting(0.2, "the share of the training in which onecycle's learning rate rises", least=0)
    ema: float = setting(0.0, "decay of the running mean of the weights, which is then kept; 0 keeps the last", least=0)
    precision: str = setting("float32", "of the extractor; bfloat16 on a GPU only", choices=("float32", "bfloat16"))
    start: str | None = setting(None, "a checkpoint to go on from, for fine-tuning: a path, or a shipped one's name")
    seed: int = setting(0, "of weights, order, augmentation and noise", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("radius_warmup", "lr_warmup", "ema"):
            if getattr(self, name) >= 1:
                raise ValueError(f"expected {name} below 1, got {getattr(self, name)}; it is a share")
        if self.objective == "certified" and self.through != "smoothed":
            raise ValueError(
                f"expected through='smoothed' with the certified objective, got {self.through!r}; what is proven is "
                "proven of the smoothed head"
            )
        if self.objective == "adversarial" and not self.attack_steps:
            raise ValueError("expected attack_steps >= 1 with the adversarial objective, got 0; the paper took 20")


SECTIONS: dict[str, type[Any]] = {"data": DataSettings, "model": ModelSettings, "training": TrainingSettings}
OWNER = {entry.name: section for section, kind in SECTIONS.items() for entry in fields(kind)}
"""Setting -> its section."""


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
        if Path(self.name).name != self.name or not self.name:
            raise ValueError(f"expected a name that a folder can have, got {self.name!r}")
        known = self._architecture_options()
        for key, value in self.model.options.items():
            if key not in known:
                raise _unknown(key, list(known))
            if type(value) is not type(known[key]):
                raise ValueError(f"expected {key} to be like {known[key]!r}, got {value!r}")

    def _architecture_options(self) -> dict[str, Any]:
        """What the architecture lets one choose beside the settings here, with its defaults."""
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


def load_recipe(name: str | PathLike[str], **changes: Any) -> Recipe:
    """The recipe of that name (one of `recipe_names`), or in the TOML file at that path, with some settings changed.

    A file that says `extends = "mnist"` starts from that recipe.
    """
    return Recipe.from_dict(_entries(name, ()), Path(name).stem).change(**changes)


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
        entries = tomllib.loads(content.decode("utf-8"))
    except ValueError as error:  # not TOML, or not even text
        raise ValueError(f"expected a TOML file, got {str(name)!r}, which is none: {error}") from error
    start = entries.pop("extends", None)
    if start is None:
        return entries
    if not isinstance(start, str):
        raise ValueError(f"expected extends to name a recipe, got {start!r}")
    basis = _entries(start if start in recipe_names() else path.parent / start, (*above, str(name)))
    basis.pop("about", None)  # of that one
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
    """What is typed for a setting; `none` is nothing. What cannot be read stays text, for the check to refuse."""
    kind = get_type_hints(SECTIONS[OWNER[key]])[key] if key in OWNER else None
    kinds = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if text.lower() == "none" and (types.NoneType in kinds or kind is None):
        return None
    if str in kinds:
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    with suppress(ValueError):
        if float in kinds:
            return float(text)
        return tomllib.loads(f"value = {text}")["value"]
    return text


def checked(name: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> Any:
    """The value, if it is of that kind and within the limits; whole numbers are taken where fractions are."""
    options = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if types.NoneType in options and (value is None or value == "none"):
        return None
    plain = next(option for option in options if option is not types.NoneType)
    if plain is float and type(value) is int:
        value = float(value) if abs(value) <= LARGEST else math.inf
    if plain == tuple[float, ...]:
        if not isinstance(value, (list, tuple)) or not value or not all(type(v) in (int, float) for v in value):
            raise ValueError(f"expected {name} to be a list of numbers, one for each channel, got {value!r}")
        if not all(abs(v) <= LARGEST for v in value):
            raise ValueError(f"expected {name} to be finite, got {value!r}")
        return tuple(float(v) for v in value)
    if plain in (int, float, bool, str) and type(value) is not plain:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise ValueError(f"expected {name} to be {words[plain]}, got {value!r}")
    if limits.get("choices") and value not in limits["choices"]:
        raise ValueError(f"expected {name} out of {', '.join(limits['choices'])}, got {value!r}")
    least, above = limits.get("least"), limits.get("above")
    if least is not None and not least <= value < math.inf:
        raise ValueError(f"expected {'' if plain is int else 'a finite '}{name} >= {least:g}, got {value!r}")
    if above is not None and not above < value < math.inf:
        raise ValueError(f"expected a finite {name} > {above:g}, got {value!r}")
    if plain is int and value > LARGEST:
        raise ValueError(f"expected {name} <= {LARGEST}, got {value!r}")
    return value


def _unknown(key: str, known: list[str]) -> ValueError:
    return ValueError(f"expected a setting out of {', '.join(known)}; got {key!r}{_guess(key, known)}")


def _guess(word: str, known: list[str] | tuple[str, ...]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
