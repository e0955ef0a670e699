"""What the classifier and the regressor share: from a table to a smoothed model, its ranges and its monotonicity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, has_fit_parameter, validate_data

from berncert.certification.bounds import Ranges
from berncert.estimators import degrees
from berncert.estimators.columns import as_frame, column_numbers, frame_kind, side
from berncert.estimators.constraints import ConstraintOptions, admissible
from berncert.estimators.directions import directions
from berncert.estimators.fitted_sum import fitted_sum
from berncert.estimators.folding import seen_directions
from berncert.estimators.monotone import ColumnDirection
from berncert.estimators.reduction import Reduction, check_sizes, fit_reduction
from berncert.estimators.row_ranges import row_ranges
from berncert.estimators.selection import most_important
from berncert.estimators.term_smoothing import smoothed_sum
from berncert.estimators.terms import Score, Sum, find_sum
from berncert.foundation.arguments import checked_dim
from berncert.foundation.arrays import Floats
from berncert.polynomial import PolynomialHead, smooth
from berncert.polynomial.sum_head import head_from_data

GRID_BATCH = 2**15
"""Points of the grid at which the base model is asked at once."""
ONE, OWN, FITTED = "one polynomial", "the base model's own terms", "terms fitted to the base model"
"""What `form_` says."""


@dataclass(frozen=True)
class Prepared:
    """A base model that is fitted, and how it becomes a polynomial."""

    estimator: Any
    reduction: Reduction
    on_axes: bool
    """Whether it was fitted on the axes, and is given these, instead of all columns."""
    form: str
    size: int
    """The axes of its largest term: what a degree costs."""
    smoothed: Callable[[Any], PolynomialHead]
    """Of a degree."""
    score: Score | None = None
    """Of a sum: what it is a sum of."""


class BernsteinEstimator(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A base model, smoothed: its outputs on a grid of the domain are the coefficients of Bernstein polynomials.

    estimator: any scikit-learn estimator or pipeline.
    degree: of the polynomials, one for all axes or one for each; "auto" chooses by agreement with the base model and
        score on rows that are held out. The grid has (degree + 1)^axes points.
    dim: with more columns than this, they are reduced to so many axes by an orthonormal projection (the principal
        components of the scaled columns), on which the base model is fitted. "select" (or "select:8") takes the five
        (or so many) columns that matter most instead. None: an axis for each column.
    terms: None: one polynomial in all axes. "auto": if the base model is a sum of terms in one or two columns each, as
        linear models, naive Bayes, splines and shallow boosted trees are, each term is smoothed by itself, and every
        column has an axis, whatever `dim` says; else as None. "fit": else a sum is fitted to its outputs. `form_` says
        what was done, and `agreement_` how far the result agrees with the base model on the training rows.
    keep: columns, by name or number, that keep an axis of their own when others are projected or left out: those that
        are to be constrained.
    scale: the unit of distance in each column: a row, a data frame row or {column: unit}; by default, and in columns
        that it does not name, the standard deviation.
    domain: (lower, upper), each a row or {column: limit}: the box on which the model is smoothed; by default that of
        the training rows. Outside the model is constant: a row is moved to the nearest one inside first.
    prefit: the estimator is fitted already, on all columns; `fit` only smooths it.
    fold: the linear steps in front of a pipeline (scalers, PCA) are the projection, instead of `dim` and `terms`.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        degree: Any = 8,
        dim: int | str | None = 5,
        terms: str | None = None,
        keep: Any = None,
        scale: Any = None,
        domain: Any = None,
        prefit: bool = False,
        fold: bool = False,
    ) -> None:
        self.estimator = estimator
        self.degree = degree
        self.dim = dim
        self.terms = terms
        self.keep = keep
        self.scale = scale
        self.domain = domain
        self.prefit = prefit
        self.fold = fold

    # ---- what the two kinds say of themselves ----

    def _base_outputs(self, estimator: Any, rows: Any) -> Floats:
        """(N, K): what is smoothed as one polynomial."""
        raise NotImplementedError

    def _scores(self, estimator: Any) -> list[Callable[[Any], Floats]]:
        """Rows -> (N, K): outputs that may be sums of terms, the most natural one first; any of them will do."""
        raise NotImplementedError

    def _fitted_score(self, estimator: Any) -> Callable[[Any], Floats]:
        """Rows -> (N, K): outputs to which a sum is fitted."""
        raise NotImplementedError

    def _decides(self, estimator: Any, rows: Any, scores: Floats) -> bool:
        """Whether scores say all that the base model says."""
        return True

    def _link(self, prepared: Prepared, x: Floats) -> tuple[str, float] | None:
        """How scores become probabilities, if they do."""
        return None

    def _agreement(self, estimator: Any, rows: Any, outputs: Floats) -> float:
        """How far outputs agree with the base model's, of rows as it sees them."""
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
        prepared = self._prepared(x, y, sample_weight, weight, fitted)
        degree = self.degree
        if isinstance(degree, str):
            if degree != "auto":
                raise ValueError(f"expected a degree as a whole number, a list of such, or 'auto', got {degree!r}")
            degree = self._chosen_degree(x, y, sample_weight, weight, fitted)
        if isinstance(degree, np.ndarray):
            degree = degree.tolist()
        head = prepared.smoothed(degree)
        self.estimator_, self.reduction_, self.on_axes_ = prepared.estimator, prepared.reduction, prepared.on_axes
        self.form_, self.link_ = prepared.form, self._link(prepared, x)
        self.tensors_ = {name: tensor.numpy() for name, tensor in head.state_dict().items()}
        self._description = head.description
        self.degree_ = head.degree
        self.scale_ = prepared.reduction.scale
        self.agreement_ = self._agreement(self.estimator_, self._seen(x), self._outputs(x))
        return self

    def _prepared(self, x: Floats, y: Any, sample_weight: Any, weight: Floats, fitted: Any) -> Prepared:
        """The base model, fitted on what it sees of these rows if it is not yet, and how it is smoothed."""
        units = self._units(x)
        count, select = checked_dim(self.dim)
        keep = column_numbers(self.keep, self._names(), x.shape[1], "keep")
        plain = fit_reduction(x, weight, dim=None, keep=[], **units)

        def on_all_columns() -> Any:
            return self._fit_base(self._as_table(x), y, sample_weight) if fitted is None else fitted

        if self.fold and self.terms is not None:
            raise ValueError(
                f"expected fold=True or terms, got fold=True and terms={self.terms!r}: terms are in the columns "
                "themselves, without a projection; leave one of them out"
            )
        if self.fold:
            estimator = on_all_columns()
            directions = seen_directions(estimator, plain.scale)
            if directions is not None:
                plain = fit_reduction(x, weight, dim=None, keep=[], directions=directions, **units)
            return self._dense(estimator, plain, False)
        estimator = None
        if self.terms is not None:
            estimator = on_all_columns()
            found = self._as_sum(estimator, plain, x[weight > 0])
            if found is not None:
                return found
        if count is None or len(plain.kept) <= count:
            return self._dense(on_all_columns() if estimator is None else estimator, plain, False)
        if len(set(keep)) > (count if select else count - 1):
            raise ValueError(f"expected fewer kept columns than dim = {count}, got {len(set(keep))}; raise dim")
        if select:
            estimator = on_all_columns() if estimator is None else estimator
            reduction = plain.only(self._selected(estimator, x[weight > 0], plain, count, keep))
        else:
            reduction = fit_reduction(x, weight, dim=count, keep=keep, **units)
        if fitted is not None:
            return self._dense(fitted, reduction, False)
        seen = self._as_seen(reduction, True, x)
        return self._dense(self._fit_base(seen, y, sample_weight), reduction, True)

    def _units(self, x: Floats) -> dict[str, Any]:
        """The scale and the domain that the user wants, checked against the table."""
        names, count = self._names(), x.shape[1]
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
        return {"scale": scale, "domain": domain}

    @staticmethod
    def _two_sides(domain: Any) -> tuple[Any, Any]:
        if not isinstance(domain, (tuple, list)) or len(domain) != 2:
            raise ValueError("expected domain=(lower, upper), a row or {column: limit} each")
        return domain[0], domain[1]

    def _as_table(self, values: Floats) -> Any:
        """All columns, in the form in which they came."""
        kind, names = self._frame_kind, self._names()
        if self.prefit and kind is None and hasattr(self.estimator, "feature_names_in_"):
            kind, names = "pandas", list(self.estimator.feature_names_in_)
        return as_frame(kind, values, names)

    def _as_seen(self, reduction: Reduction, on_axes: bool, x: Floats) -> Any:
        """Rows as the base model is given them: axes where it was fitted on them, else the columns, as they came."""
        return self._on_axes(reduction, reduction.axes(x)) if on_axes else self._as_table(x)

    def _on_axes(self, reduction: Reduction, values: Floats) -> Any:
        """Values along the axes; where these are columns, in the form in which they came."""
        return as_frame(self._frame_kind, values, reduction.names(self._names()))

    def _fit_base(self, rows: Any, y: Any, sample_weight: Any) -> Any:
        base = clone(self.estimator)
        if sample_weight is None:
            return base.fit(rows, y)
        last = base.steps[-1] if isinstance(base, Pipeline) else ("", base)
        if not has_fit_parameter(last[1], "sample_weight"):
            raise ValueError(f"expected a base model that takes sample weights, got {type(last[1]).__name__}")
        option = f"{last[0]}__sample_weight" if last[0] else "sample_weight"
        return base.fit(rows, y, **{option: sample_weight})

    def _selected(self, estimator: Any, x: Floats, plain: Reduction, count: int, keep: Sequence[int]) -> list[int]:
        """The columns that matter most to a model of all of them."""

        def outputs(rows: Floats) -> Floats:
            return self._base_outputs(estimator, self._as_table(rows))

        return most_important(outputs, x, plain.kept.tolist(), count, keep)

    # ---- the ways to a polynomial ----

    def _dense(self, estimator: Any, reduction: Reduction, on_axes: bool) -> Prepared:
        """One polynomial in all axes."""

        def head(features: torch.Tensor) -> torch.Tensor:
            u = features.numpy()
            values = reduction.low + u * reduction.width
            seen = self._on_axes(reduction, values) if on_axes else self._as_table(reduction.rows(u))
            return torch.from_numpy(np.array(self._base_outputs(estimator, seen), dtype=np.float64))

        def smoothed(degree: Any) -> PolynomialHead:
            try:
                return smooth(head, reduction.dim, degree, points=0, batch_size=GRID_BATCH)  # compared on rows, later
            except MemoryError as error:
                raise MemoryError(
                    f"{error}; the number of axes is set by dim=, here {self.dim}: pass e.g. dim=5"
                ) from error

        return Prepared(estimator, reduction, on_axes, ONE, reduction.dim, smoothed)

    def _as_sum(self, estimator: Any, plain: Reduction, x: Floats) -> Prepared | None:
        """The base model's own terms, or if it has none and this is wanted, terms fitted to it."""
        if self.terms not in ("auto", "fit"):
            raise ValueError(f"expected terms as None, 'auto' or 'fit', got {self.terms!r}")
        for of_rows in self._scores(estimator):
            score = self._of_columns(of_rows)
            found = find_sum(score, x, plain.kept.tolist())
            if found is not None and self._decides(estimator, self._as_table(x), score(x)):
                return self._own_terms(estimator, plain, found, x)
        if self.terms == "auto":
            return None
        score = self._of_columns(self._fitted_score(estimator))
        return Prepared(estimator, plain, False, FITTED, 1, fitted_sum(score, x, plain), score)

    @staticmethod
    def _own_terms(estimator: Any, plain: Reduction, found: Sum, x: Floats) -> Prepared:
        size = 2 if found.pairs else 1
        return Prepared(
            estimator, plain, False, OWN, size, lambda degree: smoothed_sum(found, plain, degree, x), found.score
        )

    def _of_columns(self, of_rows: Callable[[Any], Floats]) -> Score:
        """A score of rows as they come, as one of numbers."""
        return lambda rows: of_rows(self._as_table(rows))

    def _chosen_degree(self, x: Floats, y: Any, sample_weight: Any, weight: Floats, fitted: Any) -> int:
        """By agreement on all rows and score on a fifth of them, which the base model did not see unless prefit."""
        labels = np.asarray(y) if hasattr(self, "classes_") else None
        train, test = degrees.held_out(len(x), labels, weight)
        part = None if sample_weight is None else np.asarray(sample_weight)[train]
        prepared = self._prepared(x[train], np.asarray(y)[train], part, weight[train], fitted)
        features = torch.from_numpy(prepared.reduction.features(x))
        seen = self._as_seen(prepared.reduction, prepared.on_axes, x)

        def tried(degree: int) -> tuple[float, float]:
            outputs = prepared.smoothed(degree)(features).numpy()
            agreement = self._agreement(prepared.estimator, seen, outputs)
            return agreement, self._held_out_score(outputs[test], np.asarray(y)[test])

        return degrees.choose(prepared.size, tried)

    # ---- predicting ----

    @property
    def head_(self) -> PolynomialHead:
        """The polynomials: a `SmoothedHead` on the features, or a `SumHead`."""
        check_is_fitted(self)
        return head_from_data(self._description, {name: torch.from_numpy(v) for name, v in self.tensors_.items()})

    @property
    def coefficients_(self) -> Floats:
        """(K, n_1+1, ...): those of the one polynomial; a sum has `terms_` instead."""
        if "coefficients" not in self.tensors_:
            raise AttributeError("a sum of terms has no coefficients_ of one polynomial; see terms_ and head_")
        found: Floats = self.tensors_["coefficients"]
        return found

    @property
    def terms_(self) -> list[tuple[Any, ...]] | None:
        """The columns, by name or number, of each term of a sum; None where the model is one polynomial."""
        head, names = self.head_, self._names()
        if head.affine is None:
            return None
        bent = [term.axes for term in head.terms]
        straight = [(axis,) for axis in np.flatnonzero((head.affine[0] != 0).any(dim=0).numpy()).tolist()]
        columns = self.reduction_.kept.tolist()
        return [
            tuple(columns[axis] if names is None else names[columns[axis]] for axis in axes)
            for axes in (*(axes for axes in straight if axes not in bent), *bent)
        ]

    def agreement(self, X: Any) -> float:  # noqa: N803
        """How far the smoothed model agrees with its base on these rows, measured as `agreement_` on the training rows.

        Of a classifier the share of rows with the same label, of a regressor the coefficient of determination.
        """
        x = self._rows(X)
        return self._agreement(self.estimator_, self._seen(x), self._outputs(x))

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

    def _seen(self, x: Floats) -> Any:
        return self._as_seen(self.reduction_, self.on_axes_, x)

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
        allowed = admissible(x, self.reduction_, self._names(), constraints)
        return row_ranges(self.head_, self.reduction_, allowed, x, radius, norm, **options)

    def _directions(self, output: int, lower: Any, upper: Any, **options: Any) -> list[ColumnDirection]:
        """Column by column, over the domain or the part of it between two rows."""
        return directions(self.head_, self.reduction_, self._names(), output, (lower, upper), **options)

    def save(self, path: Any) -> None:
        """Write the model to a skops file, which `berncert.estimators.load` reads without running any code of it."""
        from berncert.estimators.files import save

        save(self, path)
