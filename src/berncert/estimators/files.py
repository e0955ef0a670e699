"""Models of tables in skops files: nothing that is loaded can run code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from berncert.foundation.folders import write_whole

METRICS = ("Chebyshev", "Euclidean", "Manhattan", "Minkowski")
TRUSTED = frozenset(
    {
        "berncert.estimators.classifier.BernsteinClassifier",
        "berncert.estimators.reduction.Reduction",
        "berncert.estimators.regressor.BernsteinRegressor",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
        *(f"sklearn.metrics._dist_metrics.{name}Distance{bits}" for name in METRICS for bits in ("", 32, 64)),
    }
)
"""Types that a file may hold besides those that skops trusts itself: plain data, by full name."""


def save(model: Any, path: Any) -> None:
    """Write a fitted model to a skops file."""
    import skops.io

    write_whole(Path(path), skops.io.dumps(model))


def load(path: Any, *, trusted: tuple[str, ...] = ()) -> Any:
    """The model of a skops file that `save` wrote.

    trusted: names of further types that the file may hold, such as those of a base model of your own. No code of the
    file is run; but scikit-learn does not check what it is told about trees, so a file from someone else may crash it.
    """
    import skops.io

    content = Path(path).read_bytes()
    try:
        unknown = skops.io.get_untrusted_types(data=content)
    except Exception as error:
        raise ValueError(f"expected a skops file with a model of a table, got {path} ({error})") from error
    foreign = [name for name in unknown if name not in TRUSTED and name not in trusted]
    if foreign:
        raise ValueError(
            f"expected a file with types that are known, got {', '.join(foreign)} in {path}; if you trust them, pass "
            "trusted=(...) with their names"
        )
    model = skops.io.loads(content, trusted=unknown)
    if type(model).__name__ not in ("BernsteinClassifier", "BernsteinRegressor"):
        raise ValueError(f"expected a BernsteinClassifier or BernsteinRegressor in {path}, got {type(model).__name__}")
    return model
