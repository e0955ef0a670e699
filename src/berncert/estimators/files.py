"""Models of tables in skops files. A file may hold types that are on a list, and no others: none of them runs code."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from berncert.foundation.folders import write_whole
from berncert.foundation.safe_reading import check_unpacked

KERNELS = (
    "ConstantKernel", "DotProduct", "ExpSineSquared", "Exponentiation", "Matern", "Product", "RBF",
    "RationalQuadratic", "Sum", "WhiteKernel",
)  # fmt: skip
METRICS = ("Chebyshev", "Euclidean", "Manhattan", "Minkowski")
TRUSTED = frozenset(
    {
        "berncert.estimators.classifier.BernsteinClassifier",
        "berncert.estimators.reduction.Reduction",
        "berncert.estimators.regressor.BernsteinRegressor",
        "interpret.glassbox._ebm._ebm.ExplainableBoostingClassifier",
        "interpret.glassbox._ebm._ebm.ExplainableBoostingRegressor",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.tree._tree.Tree",
        *(f"sklearn.gaussian_process.kernels.{name}" for name in KERNELS),
        *(f"sklearn.metrics._dist_metrics.{name}Distance{bits}" for name in METRICS for bits in ("", 32, 64)),
    }
)
"""Types that a file may hold besides those that skops trusts itself: plain data, by full name.

A name is trusted however it is used: a file may have it called with any arguments, so no function may be added."""


def save(model: Any, path: Any) -> None:
    """Write a fitted model to a skops file.

    Example:
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> from berncert import estimators
        >>> x, y = load_iris(return_X_y=True)
        >>> model = estimators.BernsteinClassifier(KNeighborsClassifier(), degree=3).fit(x, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     estimators.save(model, f"{folder}/iris.skops")
        ...     again = estimators.load(f"{folder}/iris.skops")
        >>> bool((again.predict(x) == model.predict(x)).all())
        True
    """
    write_whole(Path(path), _skops().dumps(model))


def load(path: Any, *, trusted: Iterable[str] = ()) -> Any:
    """The model of a skops file that `save` wrote.

    trusted: full names of further types that the file may hold, such as those of a base model of your own. Whoever
    wrote the file decides how they are called, so name only what you know. scikit-learn does not check what it is told
    about trees: a file from someone else may crash it.

    Example:
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.neighbors import KNeighborsClassifier
        >>> from berncert import estimators
        >>> x, y = load_iris(return_X_y=True)
        >>> model = estimators.BernsteinClassifier(KNeighborsClassifier(), degree=3).fit(x, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/iris.skops")
        ...     again = estimators.load(f"{folder}/iris.skops")
        >>> bool((again.predict(x) == model.predict(x)).all())
        True
    """
    if isinstance(trusted, str):
        raise TypeError(f"expected a list of type names, got the text {trusted!r}; pass trusted=[{trusted!r}]")
    return parse(Path(path).read_bytes(), path, trusted=trusted)


def parse(content: bytes, path: Any, *, trusted: Iterable[str] = ()) -> Any:
    """The model of a skops file with this content, as `load` reads it; `path` is for messages."""
    skops = _skops()
    allowed = TRUSTED.union(trusted)
    if is_zipfile(BytesIO(content)):
        check_unpacked(path, sum(member.file_size for member in ZipFile(BytesIO(content)).infolist()))
    try:
        unknown = set(skops.get_untrusted_types(data=content)) - allowed
    except Exception as error:
        raise ValueError(f"expected a skops file with a model of a table, got {path} ({error})") from error
    if unknown:
        names = sorted(unknown)
        raise ValueError(
            f"expected a file with types that are known, got {', '.join(names)} in {path}; if you made the file "
            f"yourself and know these types, pass trusted={names!r}; from someone else's file they may run any code"
        )
    model = skops.loads(content, trusted=sorted(allowed))
    if type(model).__name__ not in ("BernsteinClassifier", "BernsteinRegressor"):
        raise ValueError(f"expected a BernsteinClassifier or BernsteinRegressor in {path}, got {type(model).__name__}")
    return model


def check_files() -> None:
    """Raise where models cannot be written or read: to be asked before the work that a model is made by."""
    _skops()


def _skops() -> Any:
    try:
        return import_module("skops.io")
    except ImportError as error:
        raise ImportError("expected skops for models of tables, got none; pip install 'berncert[tables]'") from error
