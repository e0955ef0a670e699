"""The settings of a run on a table, and the base models by name; nothing heavy is imported before it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from berncert.foundation.arguments import checked_dim
from berncert.foundation.settings import Settings, count_or, setting


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed)


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed)


def _neighbours(seed: int) -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier()


def _scaled(model: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def _svc(seed: int) -> Any:
    from sklearn.svm import SVC

    return _scaled(SVC())


def _logistic(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return _scaled(LogisticRegression(max_iter=5000))


def _boosted(depth: int) -> Callable[[int], Any]:
    """Boosted trees so shallow that they are a sum of terms in at most `depth` columns each."""

    def made(seed: int) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(max_depth=depth, random_state=seed)

    return made


def _naive_bayes(seed: int) -> Any:
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


MODELS: dict[str, Callable[[int], Any]] = {
    "random_forest": _forest,
    "gradient_boosting": _boosting,
    "neighbours": _neighbours,
    "svc": _svc,
    "logistic": _logistic,
    "naive_bayes": _naive_bayes,
    "boosted_stumps": _boosted(1),
    "boosted_pairs": _boosted(2),
}
"""Name -> the base model, unfitted, from a seed."""


def _names(value: Any) -> tuple[str, ...]:
    """Names of columns, from a list or separated by commas."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(str(part).strip() for part in parts if str(part).strip())


def _axes(value: Any) -> int | str:
    """A whole number, or columns that are selected."""
    found: int | str = int(value) if isinstance(value, str) and value.isdecimal() else value
    if found is None:
        raise ValueError("expected dim to be a whole number >= 1, select or e.g. select:8, got none")
    checked_dim(found)
    return found


@dataclass(frozen=True, kw_only=True)
class TableSettings(Settings):
    """What decides the result of a run on a table."""

    target: str = setting("", "the column to be predicted")
    model: str = setting("random_forest", "the base model", choices=tuple(MODELS))
    degree: int | str = setting("auto", "of the polynomials: a number, or auto", check=count_or("auto", "degree"))
    dim: int | str = setting(
        5, "axes: with more columns they are projected to so many; select or select:8 takes columns", check=_axes
    )
    terms: str = setting(
        "none",
        "auto: a base model that is a sum of terms in few columns keeps all; fit: others become one",
        choices=("none", "auto", "fit"),
    )
    fixed: tuple[str, ...] = setting((), "columns that keep their value, separated by commas", check=_names)
    increasing: tuple[str, ...] = setting((), "columns that may only grow", check=_names)
    decreasing: tuple[str, ...] = setting((), "columns that may only fall", check=_names)
    leave_out: tuple[str, ...] = setting((), "columns that are not used", check=_names)
    test: float = setting(0.3, "share of the rows that are held out and certified", above=0, below=1)
    limit: int | None = setting(None, "certify at most so many of them", least=1)
    seed: int = setting(0, "of the division and of the model", least=0)
    radius_of_ranges: float = setting(0.5, "of the proven ranges in the plots, in standard deviations", above=0)
    drop_missing: bool = setting(False, "leave rows with missing values out")
