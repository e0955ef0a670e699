"""scikit-learn models on tables, smoothed: proven radii, nearest counterfactuals, ranges and monotonicity."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from berncert.estimators.classifier import BernsteinClassifier as BernsteinClassifier
    from berncert.estimators.files import load as load
    from berncert.estimators.files import save as save
    from berncert.estimators.monotone import Direction as Direction
    from berncert.estimators.regressor import BernsteinRegressor as BernsteinRegressor

_HOMES = {
    "BernsteinClassifier": "classifier", "BernsteinRegressor": "regressor", "Direction": "monotone", "load": "files",
    "save": "files",
}  # fmt: skip
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import scikit-learn and torch only when one of the names is used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'berncert.estimators' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f"berncert.estimators.{_HOMES[name]}"), name)
    return found
