"""What the classifier and the regressor share: from a table to a smoothed model, its ranges and its monotonicity."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, has_fit_parameter, validate_data

from berncert.certification.bounds import Ranges, ranges
from berncert.certification.box_search import Questions
from berncert.certification.methods import Exact
from berncert.estimators import degrees
from berncert.estimators.columns import as_frame, column_numbers, frame_kind, side
from berncert.estimators.constraints import ConstraintOptions, admissible
from berncert.estimators.folding import seen_directions
from berncert.estimators.monotone import (
    ColumnDirection,
    Direction,
    direction_along,
    directions_of_columns,
    pairs_along,
)
from berncert.estimators.reduction import DOWN, UP, Reduction, check_sizes, fit_reduction
from berncert.foundation.arguments import checked_count, checked_norm, is_real
from berncert.foundation.arrays import Floats
from berncert.polynomial import SmoothedHead, smooth

GRID_BATCH = 2**15
"""Points of the grid at which the base model is asked at once."""


class BernsteinEstimator(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A base model, smoothed: its outputs on a grid of the domain are the coefficients of Bernstein polynomials.

    estimator: any scikit-learn estimator or pipeline.
    degree: of the polynomials, one for all axes or one for each; "auto" chooses by agreement with the base model and
        score on rows that are held out. The grid has (degree + 1)^axes points.
    dim: with more columns than this, they are reduced to so many axes by an orthonormal projection (the principal
        components of the scaled columns), on which the base model is fitted. None: an axis for each column.
    keep: columns, by name or number, that keep an axis of their own when others are projected: those that are to be
        constrained.
    scale: the unit of distance in each column: a row, a data frame row or {column: unit}; by default, and in columns
        that it does not name, the standard deviation.
    domain: (lower, upper), each a row or {column: limit}: the box on which the model is smoothed; by default that of
        the training rows. Outside the model is constant: a row is moved to the nearest one inside first.
    prefit: the estimator is fitted already, on all columns; `fit` only smooths it.
    fold: the linear steps in front of a pipeline (scalers, PCA) are the projection, instead of `dim`.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        degree: Any = 8,
        dim: int | None = 5,
        keep: Any = None,
        scale: Any = None,
        domain: Any = None,
        prefit: bool = False,
        fold: bool = False,
    ) -> None:
        self.estimator = estimator
        self.degree = degree
        self.dim = dim
        self.keep = keep
        self.scale = scale
        self.domain = domain
        self.prefit = prefit
        self.fold = fold

    # ---- what the two kinds say of themselves ----

    def _base_outputs(self, estimator: Any, rows: Any) -> Floats:
        """(N, K): what is smoothed."""
        raise NotImplementedError

    def _agreement(self, rows: Floats, estimator: Any, reduction: Reduction, head: SmoothedHead) -> float:
        raise NotImplementedError

    def _held_out_score(self, outputs: Floats, y: Any) -> float:
        raise NotImplementedError

    # ---- fitting ----

    def _fit(self, table: Any, x: Floats, y: Any, sample_weight: Any) -> Self:
        """Fit the base model unless it is, then smooth it."""
        self._frame_kind = frame_kind(table)
        weight = np.ones(len(x)) if sample_weight is None else _check_sample_weight(sample_weight, x, dtype=np.float64)
        if not (weight > 0).any():
            raise ValueError("expected some rows with a positive weight, got none")
        fitted = self.estimator if self.prefit else None
        reduction, estimator = self._prepared(x, y, sample_weight, weight, fitted)
        degree = self.degree
        if isinstance(degree, str):
            if degree != "auto":
                raise ValueError(f"expected a degree as a whole number, a list of such, or 'auto', got {degree!r}")
            degree = self._chosen_degree(x, y, sample_weight, weight, fitted)
        if isinstance(degree, np.ndarray):
            degree = degree.tolist()
        head = self._smoothed(estimator, reduction, degree)
        self.estimator_, self.reduction_ = estimator, reduction
        self.coefficients_ = head.coefficients.numpy()
        self.degree_ = head.degree
        self.scale_ = reduction.scale
        self.agreement_ = self._agreement(x, estimator, reduction, head)
        return self

    def _prepared(self, x: Floats, y: Any, sample_weight: Any, weight: Floats, fitted: Any) -> tuple[Reduction, Any]:
        """The reduction of these rows, and the base model, fitted on what it sees of them if it is not yet."""
        names = self._names()
        count = x.shape[1]
        scale = None
        if self.scale is not None:
            scale = side(self.scale, names, (1, count), math.nan, "scale")[0]
            if not (np.isnan(scale) | (scale > 0) & (scale < math.inf)).all():
                raise ValueError(f"expected a scale above 0 for every column, got {scale.tolist()}")
        domain = None
        if self.domain is not None:
            low, high = (
                side(limit, names, (1, count), math.nan, "domain")[0] for limit in self._two_sides(self.domain)
            )
            low = np.where(np.isnan(low), x.min(axis=0), low)
            high = np.where(np.isnan(high), x.max(axis=0), high)
            if not ((low <= high) & np.isfinite(low) & np.isfinite(high)).all():
                raise ValueError("expected a domain with lower <= upper, finite, for every column")
            domain = (low, high)
        check_sizes(x.min(axis=0), x.max(axis=0), names)
        if domain is not None:
            check_sizes(*domain, names)
        dim = None if self.dim is None else checked_count("dim", self.dim)
        keep = column_numbers(self.keep, names, count, "keep")
        if dim is not None and len(set(keep)) >= dim and count > dim:
            raise ValueError(f"expected fewer kept columns than dim = {dim}, got {len(set(keep))}; raise dim")
        if self.fold:
            estimator = self._fit_base(x, y, sample_weight) if fitted is None else fitted
            plain = fit_reduction(x, weight, dim=None, keep=[], scale=scale, domain=domain)
            directions = seen_directions(estimator, plain.scale)
            if directions is None:
                return plain, estimator
            return fit_reduction(
                x, weight, dim=None, keep=[], scale=scale, domain=domain, directions=directions
            ), estimator
        reduction = fit_reduction(x, weight, dim=dim, keep=keep, scale=scale, domain=domain)
        if fitted is not None:
            return reduction, fitted
        seen = self._seen(reduction, x)
        return reduction, self._fit_base(seen, y, sample_weight)

    @staticmethod
    def _two_sides(domain: Any) -> tuple[Any, Any]:
        if not isinstance(domain, (tuple, list)) or len(domain) != 2:
            raise ValueError("expected domain=(lower, upper), a row or {column: limit} each")
        return domain[0], domain[1]

    def _seen(self, reduction: Reduction, x: Floats) -> Any:
        """What the base model is given: axes where it was fitted on them, else the columns, as they came."""
        if len(reduction.mixed) and not self.prefit and not self.fold:
            return np.concatenate([x[:, reduction.kept], reduction.components(x)], axis=1)
        kind, names = self._frame_kind, self._names()
        if self.prefit and kind is None and hasattr(self.estimator, "feature_names_in_"):
            kind, names = "pandas", list(self.estimator.feature_names_in_)
        return as_frame(kind, x, names)

    def _fit_base(self, rows: Any, y: Any, sample_weight: Any) -> Any:
        base = clone(self.estimator)
        if sample_weight is None:
            return base.fit(rows, y)
        last = base.steps[-1] if isinstance(base, Pipeline) else ("", base)
        if not has_fit_parameter(last[1], "sample_weight"):
            raise ValueError(f"expected a base model that takes sample weights, got {type(last[1]).__name__}")
        option = f"{last[0]}__sample_weight" if last[0] else "sample_weight"
        return base.fit(rows, y, **{option: sample_weight})

    def _smoothed(self, estimator: Any, reduction: Reduction, degree: Any) -> SmoothedHead:
        on_axes = len(reduction.mixed) and not self.prefit and not self.fold

        def head(features: torch.Tensor) -> torch.Tensor:
            u = features.numpy()
            rows = reduction.low + u * reduction.width if on_axes else self._seen(reduction, reduction.rows(u))
            return torch.from_numpy(np.array(self._base_outputs(estimator, rows), dtype=np.float64))

        try:
            return smooth(head, reduction.dim, degree, points=0, batch_size=GRID_BATCH)  # compared on rows, later
        except MemoryError as error:
            raise MemoryError(
                f"{error}; the number of axes is set by dim=, here {self.dim}: pass e.g. dim=5"
            ) from error

    def _chosen_degree(self, x: Floats, y: Any, sample_weight: Any, weight: Floats, fitted: Any) -> int:
        """By agreement on all rows and score on a fifth of them, which the base model did not see unless prefit."""
        labels = np.asarray(y) if hasattr(self, "classes_") else None
        train, test = degrees.held_out(len(x), labels, weight)
        part = None if sample_weight is None else np.asarray(sample_weight)[train]
        reduction, estimator = self._prepared(x[train], np.asarray(y)[train], part, weight[train], fitted)

        def tried(degree: int) -> tuple[float, float]:
            head = self._smoothed(estimator, reduction, degree)
            outputs = head(torch.from_numpy(reduction.features(x[test]))).numpy()
            agreement = self._agreement(x, estimator, reduction, head)
            return agreement, self._held_out_score(outputs, np.asarray(y)[test])

        return degrees.choose(reduction.dim, tried)

    # ---- predicting ----

    @property
    def head_(self) -> SmoothedHead:
        """The polynomials, as a `SmoothedHead` on the features."""
        check_is_fitted(self)
        return SmoothedHead(torch.from_numpy(self.coefficients_))

    def features(self, X: Any) -> Floats:  # noqa: N803
        """(N, axes): where the rows are in the cube on which the model is smoothed; outside the domain, on its rim."""
        return self.reduction_.features(self._rows(X))

    def in_domain(self, X: Any) -> Any:  # noqa: N803
        """Whether each row lies in the domain. Outside the smoothed model is constant."""
        raw = self.reduction_.unclipped(self._rows(X))
        return ((raw >= 0) & (raw <= 1)).all(axis=1)

    def _rows(self, X: Any) -> Floats:  # noqa: N803
        check_is_fitted(self)
        found: Floats = validate_data(self, X, reset=False, dtype=np.float64)
        return found

    def _outputs(self, x: Floats) -> Floats:
        """(N, K): the polynomials."""
        found: Floats = self.head_(torch.from_numpy(self.reduction_.features(x))).numpy()
        return found

    def _names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def _as_given(self, X: Any, rows: Floats) -> Any:  # noqa: N803
        """Rows of numbers in the form in which the user's came."""
        kind = frame_kind(X)
        if kind == "pandas":
            return type(X)(rows, columns=list(X.columns), index=X.index)
        return as_frame(kind, rows, self._names())

    # ---- proven ----

    def _ranges(self, x: Floats, radius: float, norm: float, constraints: ConstraintOptions, **options: Any) -> Ranges:
        """Ranges of all outputs within the radius of each row; of several routes, the tightest of each end."""
        if not is_real(radius) or not 0 <= radius < math.inf:
            raise ValueError(f"expected a radius >= 0, finite, got {radius!r}")
        execution = {key: options.pop(key) for key in ("threads", "progress") if key in options}
        allowed = admissible(x, self.reduction_, self._names(), constraints)
        best: Ranges | None = None
        for route in self.reduction_.routes(checked_norm(norm)):
            q, weight, _ = route
            target = self.reduction_.feature_radius(x, float(radius), route)
            origin = self.reduction_.features(x)
            reach = target[:, None] / weight * UP + 2.0**-50  # the sums below round, too
            low, high = np.maximum(0.0, origin - reach), np.minimum(1.0, origin + reach)
            for axis, column in enumerate(self.reduction_.kept):
                sides = (allowed.low[:, column], allowed.high[:, column])
                lo, hi = (np.clip((v - self.reduction_.low[axis]) / self.reduction_.width[axis], 0, 1) for v in sides)
                low[:, axis], high[:, axis] = np.maximum(low[:, axis], lo), np.minimum(high[:, axis], hi)
            high = np.maximum(low, high)
            around = Questions.plain(origin, np.where(math.isinf(q), math.inf, target))
            around = around._replace(low=low, high=high, weight=np.tile(weight, (len(x), 1)))
            found = ranges(self.head_, around, Exact(norm=q, **options), **execution)
            best = found if best is None else _tighter(best, found)
        assert best is not None
        return best

    def _direction(
        self, output: int, column: int, low: Floats, high: Floats, tolerance: float, max_boxes: int, threads: int | None
    ) -> ColumnDirection:
        names, along = self._names(), directions_of_columns(self.reduction_, column)
        direction, least, greatest, at_least, at_greatest = direction_along(
            self.coefficients_[output], along, low, high, tolerance=tolerance, max_boxes=max_boxes, threads=threads
        )
        rising = falling = None
        head, box = self.head_, (low, high)
        if direction in (Direction.UNKNOWN, Direction.INCREASING):
            rising = pairs_along(head, self.reduction_, output, column, at_greatest, True, box)
        if direction in (Direction.UNKNOWN, Direction.DECREASING):
            falling = pairs_along(head, self.reduction_, output, column, at_least, False, box)
        if direction is Direction.UNKNOWN and rising is not None and falling is not None:
            direction = Direction.NEITHER
        name = names[column] if names is not None else column
        return ColumnDirection(name, direction, least, greatest, rising, falling)

    def _directions(
        self, output: int, lower: Any, upper: Any, tolerance: float, max_boxes: int, threads: int | None
    ) -> list[ColumnDirection]:
        """Column by column, over the domain or the part of it between two rows."""
        count, names = self.n_features_in_, self._names()
        low, high = np.zeros(self.reduction_.dim), np.ones(self.reduction_.dim)
        for limits, missing, ends in ((lower, -math.inf, low), (upper, math.inf, high)):
            values = side(limits, names, (1, count), missing, "lower" if ends is low else "upper")[0]
            if np.isfinite(values[self.reduction_.mixed]).any():
                raise ValueError("expected limits on columns that are not projected; fit with keep=[...] or dim=None")
            for axis, column in enumerate(self.reduction_.kept):
                if np.isfinite(values[column]):
                    way = DOWN if ends is low else UP  # outwards: a wider box proves more
                    place = (values[column] - self.reduction_.low[axis]) / self.reduction_.width[axis]
                    ends[axis] = min(1.0, max(0.0, place * (way if place > 0 else 2 - way)))
        if not (low <= high).all():
            raise ValueError("expected lower <= upper in every column, inside the domain")
        return [self._direction(output, column, low, high, tolerance, max_boxes, threads) for column in range(count)]

    def save(self, path: Any) -> None:
        """Write the model to a skops file, which `berncert.estimators.load` reads without running any code of it."""
        from berncert.estimators.files import save

        save(self, path)


def _tighter(a: Ranges, b: Ranges) -> Ranges:
    """Both hold, so the higher lower end and the lower upper end do."""
    low, high = b.lower > a.lower, b.upper < a.upper
    return Ranges(
        np.where(low, b.lower, a.lower),
        np.where(high, b.upper, a.upper),
        np.where(low[..., None], b.argmin, a.argmin),
        np.where(high[..., None], b.argmax, a.argmax),
        np.where(low, b.least_found, a.least_found),
        np.where(high, b.greatest_found, a.greatest_found),
        np.where(low & high, b.status, a.status),
        a.boxes + b.boxes,
    )
