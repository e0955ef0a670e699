"""Models of tables in skops files: nothing that is loaded can run code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from berncert.foundation.folders import write_whole

TRUSTED = (
    "berncert.estimators.classifier.BernsteinClassifier",
    "berncert.estimators.regressor.BernsteinRegressor",
    "berncert.estimators.reduction.Reduction",
)
SAFE_HOMES = ("sklearn.", "numpy.", "scipy.", "builtins.")
"""Types from here are trusted: what they can be told to do by a file is known; others are named in the error."""
DANGEROUS = ("builtins.eval", "builtins.exec", "builtins.compile", "builtins.open", "builtins.getattr", "numpy.load")


def save(model: Any, path: Any) -> None:
    """Write a fitted model to a skops file."""
    import skops.io

    write_whole(Path(path), skops.io.dumps(model))


def load(path: Any, *, trusted: tuple[str, ...] = ()) -> Any:
    """The model of a skops file that `save` wrote.

    trusted: names of further types that the file may hold, such as those of a base model of your own.
    """
    import skops.io

    content = Path(path).read_bytes()
    try:
        unknown = skops.io.get_untrusted_types(data=content)
    except Exception as error:
        raise ValueError(f"expected a skops file with a model of a table, got {path} ({error})") from error
    own = [name for name in unknown if name in TRUSTED or name in trusted]
    foreign = [name for name in unknown if name not in own and (not name.startswith(SAFE_HOMES) or name in DANGEROUS)]
    if foreign:
        raise ValueError(
            f"expected a file with types that are known, got {', '.join(foreign)} in {path}; if you trust them, pass "
            "trusted=(...) with their names"
        )
    model = skops.io.loads(content, trusted=unknown)
    if type(model).__name__ not in ("BernsteinClassifier", "BernsteinRegressor"):
        raise ValueError(f"expected a BernsteinClassifier or BernsteinRegressor in {path}, got {type(model).__name__}")
    return model
