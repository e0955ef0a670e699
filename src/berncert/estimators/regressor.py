"""`BernsteinRegressor`: any scikit-learn regressor, smoothed, with proven ranges and monotonicity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from berncert.certification.methods import Exact
from berncert.estimators.base import BernsteinEstimator
from berncert.estimators.constraints import ConstraintOptions, check_order
from berncert.estimators.monotone import ColumnDirection
from berncert.estimators.reduction import LARGEST
from berncert.foundation.arguments import checked_index
from berncert.foundation.arrays import Floats


class BernsteinRegressor(RegressorMixin, BernsteinEstimator):  # type: ignore[misc]
    __doc__ = f"""{BernsteinEstimator.__doc__}
    Example:
        >>> import numpy as np
        >>> from sklearn.neighbors import KNeighborsRegressor
        >>> from berncert.estimators import BernsteinRegressor
        >>> x = np.linspace(0, 1, 50)[:, None]
        >>> model = BernsteinRegressor(KNeighborsRegressor(5), degree=8).fit(x, x[:, 0])
        >>> low, high = model.bounds(x[:1], radius=0.5)
        >>> bool(low[0] <= model.predict(x[:1])[0] <= high[0])
        True
        >>> print(model.monotonicity()[0])
        0: increasing, never falls where the column grows, proven
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit the base regressor, unless it is fitted already, and smooth it; y has one column or several."""
        x, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = check_array(y, ensure_2d=False, dtype=np.float64)
        largest = float(np.abs(y).max())
        if largest > LARGEST:
            raise ValueError(
                f"expected numbers of at most {LARGEST:g} in y, got {largest:g}: its range is too large to compute "
                "with; use a larger unit for y"
            )
        self._flat = y.ndim == 1
        return self._fit(X, x, y, sample_weight)

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """(N,) or (N, outputs): the values of the polynomials."""
        outputs = self._outputs(self._rows(X))
        return outputs[:, 0] if self._flat else outputs

    def bounds(
        self, X: Any, radius: float, *, norm: float = 2.0, tolerance: float = 1e-3, max_boxes: int = Exact.max_boxes,  # noqa: N803
        max_seconds: float | None = None, threads: int | None = None, progress: bool | None = None,
        **constraints: Unpack[ConstraintOptions],
    ) -> tuple[Floats, Floats]:  # fmt: skip
        """(low, high): proven, no admissible row within the radius of a row is given a value outside.

        Distances are p-norms of differences divided by `scale_`. (N,) each, or (N, outputs). Whole numbers and
        categories are taken as continuous here, which only widens the range.
        """
        check_order(X, constraints)
        found = self._ranges(
            self._rows(X), radius, norm, constraints, tolerance=tolerance, max_boxes=max_boxes,
            max_seconds=max_seconds, threads=threads, progress=progress,
        )  # fmt: skip
        return (found.lower[:, 0], found.upper[:, 0]) if self._flat else (found.lower, found.upper)

    def monotonicity(
        self, *, output: int = 0, lower: Any = None, upper: Any = None, tolerance: float = 1e-3,
        max_boxes: int = Exact.max_boxes, threads: int | None = None,
    ) -> list[ColumnDirection]:  # fmt: skip
        """Column by column, whether the value is proven to rise or to fall with it, over the domain or a part of it.

        It is about the polynomial in real arithmetic, at rows of the domain.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        if checked_index("output", output) >= (count := self.head_.classes):
            raise ValueError(f"expected an output below {count}, got {output}")
        return self._directions(output, lower, upper, tolerance=tolerance, max_boxes=max_boxes, threads=threads)

    def _base_outputs(self, estimator: Any, rows: Any) -> Floats:
        values = np.asarray(estimator.predict(rows), dtype=np.float64)
        return values[:, None] if values.ndim == 1 else values

    def _scores(self, estimator: Any) -> list[Callable[[Any], Floats]]:
        return [lambda rows: self._base_outputs(estimator, rows)]

    def _fitted_score(self, estimator: Any) -> Callable[[Any], Floats]:
        return lambda rows: self._base_outputs(estimator, rows)

    def _agreement(self, estimator: Any, rows: Any, outputs: Floats) -> float:
        """The coefficient of determination of the base model's values by the smoothed ones; 1 is the same."""
        base = self._base_outputs(estimator, rows)
        spread = ((base - base.mean(axis=0)) ** 2).sum()
        lost = ((base - outputs) ** 2).sum()
        return 1.0 if lost == 0 else float(1 - lost / spread) if spread > 0 else -np.inf

    def _held_out_score(self, outputs: Floats, y: Any) -> float:
        return float(r2_score(y, outputs[:, 0] if np.ndim(y) == 1 else outputs))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # the default reduces to five components, whatever they say of y
        return tags
