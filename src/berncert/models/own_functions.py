"""`module:function` of the user's own, which builds a network: found, called, and every way in which that goes wrong.

Such code is run because the user names it. What it raises is an error of one line that says where.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from berncert.foundation.arguments import guess

FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


def build_network(module: str, function: str) -> nn.Module:
    """What the function of that module returns, which must be a network; or the network with that name."""
    name = f"{module}:{function}"
    with _current_folder():
        found: Any = _imported(module, name)
        for part in function.split("."):
            if not hasattr(found, part):
                where = f"{module} ({found.__file__})" if getattr(found, "__file__", None) else name
                public = [word for word in dir(found) if not word.startswith("__")]
                raise ValueError(f"expected a function of {where}, got {part!r}{guess(part, public)}")
            found = getattr(found, part)
        model = found if isinstance(found, nn.Module) else _called(found, name)
    if isinstance(model, nn.Module):
        return model.eval()
    hint = ""
    if isinstance(model, Mapping):
        hint = "; load such weights into a network, network.load_state_dict(...), and return that"
    elif model is None:
        hint = "; does it end with return?"
    raise ValueError(f"expected {name} to return a network or a Classifier, got {_kind(model)}{hint}")


def refuse_misspelt(text: str) -> None:
    """Raise a ValueError if this looks like the name of a function of the user's own, and is none."""
    left, colon, right = text.partition(":")
    file = Path(left or ".")
    is_module = Path(f"{text.split('.')[0]}.py").is_file()
    if file.suffix == ".py" or (colon and Path(f"{file}.py").is_file() and FUNCTION.fullmatch(text) is None):
        folder = "" if file.parent == Path() else f", in the folder {file.parent}"
        raise ValueError(
            f"expected module:function, the names of a module and of a function in it that builds a network, got "
            f"{text!r}; write {file.stem}:{right if right.isidentifier() else 'build'}{folder}"
        )
    if not colon and is_module and not text.endswith((".safetensors", ".onnx")):
        module, _, function = text.partition(".")
        raise ValueError(
            f"expected module:function, got {text!r}; name the function of {module}.py that builds the network, "
            f"e.g. {module}:{function or 'build'}"
        )
    windows = len(left) == 1 and right.startswith(("\\", "/"))  # the letter of a drive
    if colon and not windows:
        raise ValueError(
            f"expected module:function with names as Python has them, e.g. my_network:build for the function build in "
            f"my_network.py in this folder, got {text!r}"
        )


def _imported(module: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _of_the_user(f"{module} cannot be imported", error) from error  # what the module itself imports
        own = sorted(path.stem for path in Path().glob("*.py"))
        raise ValueError(
            f"expected the name of a module in this folder or an installed one, got {module!r} in {name!r}; there is "
            f"no {module.replace('.', '/')}.py here{guess(module, own)}"
        ) from error
    except Exception as error:  # whatever the user's module does
        raise _of_the_user(f"{module} cannot be imported", error) from error


def _called(function: Any, name: str) -> Any:
    if not callable(function):
        raise ValueError(f"expected {name} to be a function that builds a network, or a network, got {_kind(function)}")
    try:
        needed = [
            p.name for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]  # fmt: skip
    except (TypeError, ValueError):  # e.g. of a function in C
        needed = []
    if needed:
        raise ValueError(
            f"expected {name} to be a function that is called without arguments, got one that needs "
            f"{', '.join(needed)}; write one that calls it, e.g. def build(): return {name.partition(':')[2]}(...)"
        )
    try:
        return function()
    except Exception as error:  # whatever the user's function does
        raise _of_the_user(f"{name} failed", error) from error


def _of_the_user(what: str, error: Exception) -> ValueError:
    """An error that says what the user's code raised, and where, as far as that is known."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    place = ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}, line {error.lineno})"
    elif frames:
        place = f" ({frames[0].filename}, line {frames[0].lineno})"
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return ValueError(f"{what}: {type(error).__name__}{f': {said}' if said else ''}{place}")


def _is_ours(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen") or Path(file) == Path(importlib.__file__)


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


@contextmanager
def _current_folder() -> Iterator[None]:
    """Modules of the current folder can be imported, as by python itself."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
