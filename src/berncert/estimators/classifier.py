"""`BernsteinClassifier`: any scikit-learn classifier, smoothed, with proven radii and nearest counterfactuals."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from berncert.certification.fingerprint import fingerprint_of
from berncert.certification.methods import Exact
from berncert.certification.proof_content import head_content
from berncert.certification.proof_file import checked_place, write_proofs
from berncert.estimators.base import FITTED, ONE, BernsteinEstimator, Prepared
from berncert.estimators.certifying import certify_table, nearest_wanted
from berncert.estimators.constraints import ConstraintOptions, check_order
from berncert.estimators.links import LINKS, find_link
from berncert.estimators.monotone import ColumnDirection
from berncert.estimators.results import Counterfactuals, TableCertificates
from berncert.estimators.table_proof import table_content, table_opening
from berncert.foundation.arguments import guess
from berncert.foundation.arrays import Floats
from berncert.foundation.rounding import floor_places
from berncert.polynomial.fidelity import warn_if_ruined

TOLERANCE = Exact.tolerance
LEAST = 0.01
"""Probabilities below count as this where a sum is fitted to their logarithms."""
LINKED_ROWS = 1000
"""Rows on which scores and probabilities of the base model are compared."""


def _has_probabilities(model: Any) -> bool:
    """Whether the base model gives probabilities."""
    if hasattr(model, "estimator_"):
        return hasattr(model.estimator_, "predict_proba") and (model.form_ == ONE or model.link_ is not None)
    return hasattr(model.estimator, "predict_proba")


class BernsteinClassifier(ClassifierMixin, BernsteinEstimator):  # type: ignore[misc]
    __doc__ = f"""{BernsteinEstimator.__doc__}
    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.ensemble import RandomForestClassifier
        >>> from berncert.estimators import BernsteinClassifier
        >>> x, y = load_iris(return_X_y=True)
        >>> model = BernsteinClassifier(RandomForestClassifier(random_state=0), degree=4).fit(x[::2], y[::2])
        >>> c = model.certify(x[1::50], fixed=[0])  # the first column cannot change
        >>> c.counterfactual[:, 0] == x[1::50, 0]
        array([ True,  True,  True])
        >>> bool((model.predict(c.counterfactual) != c.predicted).all())
        True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit the base classifier, unless it is fitted already, and smooth its probabilities, or its scores."""
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        if self.prefit and not hasattr(self.estimator, "classes_"):
            raise NotFittedError(
                f"expected a fitted model with prefit=True, got {type(self.estimator).__name__} without classes_; fit "
                "it first, or pass prefit=False"
            )
        classes = np.asarray(self.estimator.classes_) if self.prefit else np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"expected rows of at least two classes, got one class only: {classes.tolist()}")
        self.classes_ = classes
        self._fit(X, x, y, sample_weight)
        self._warn_if_ruined(x)
        return self

    def _warn_if_ruined(self, x: Floats) -> None:
        classes = self._outputs(x).argmax(axis=1)
        share, base = floor_places(100 * self.agreement_, 1), type(self.estimator_).__name__
        warn_if_ruined(
            self.degree_,
            agreement=self.agreement_,
            constant=bool((classes == classes[0]).all()),
            measured=f"the same class as {base} on {share} % of the {len(x)} rows",
            advice="raise the degree (degree='auto' chooses one), or lower dim",
        )

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """The label with the greatest polynomial."""
        x = self._rows(X)
        found: npt.NDArray[Any] = self.classes_[self._outputs(x).argmax(axis=1)]
        return found

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """(N, K): the smoothed probabilities; they are >= 0 and sum to 1, as the base model's do.

        Of a sum of terms, those that the base model's own link, such as the logistic function, makes of its scores.
        """
        outputs = self._outputs(self._rows(X))
        if self.link_ is None:
            return outputs
        name, factor = self.link_
        return LINKS[name](factor * outputs)

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """(N, K): the polynomials; of two classes (N,): by how much the second leads the first."""
        outputs = self._outputs(self._rows(X))
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def certify(
        self, X: Any, *, norm: float = 2.0, tolerance: float = TOLERANCE, max_boxes: int = Exact.max_boxes,  # noqa: N803
        max_seconds: float | None = None, threads: int | None = None, progress: bool | None = None,
        proof: str | PathLike[str] | None = None, **constraints: Unpack[ConstraintOptions],
    ) -> TableCertificates:  # fmt: skip
        """Prove, for each row, how far it is from the nearest admissible row that the smoothed model labels otherwise.

        Distances are p-norms of differences divided by `scale_`. Constraints say which rows are admissible: `fixed`,
        `increasing`, `decreasing` and `whole` columns, `lower` and `upper` limits, groups of `categories`. See
        `TableCertificates`; the other options are those of `berncert.certify`.

        proof: a file to write the proofs to, for `berncert-check`: the way from columns to features is in it, and the
            claim is about it in real arithmetic. With whole numbers or categories there is none yet.
        """
        method = Exact(
            norm=norm, tolerance=tolerance, max_boxes=max_boxes, max_seconds=max_seconds, proof=proof is not None
        )
        if proof is not None:
            checked_place(proof)
        x = self._rows(X)
        opening = [] if proof is None else table_opening(self.head_, self.reduction_, norm)
        found, rows = certify_table(self, X, x, method, constraints, threads=threads, progress=progress)
        if proof is not None:
            write_proofs(proof, [*opening, *rows])
        return found

    def fingerprint(self) -> str:
        """What `berncert-check` prints for proofs about this model; see `berncert.fingerprint`."""
        check_is_fitted(self)
        return fingerprint_of(head_content(self.head_), table_content(self.reduction_))

    def counterfactuals(
        self, X: Any, *, wanted: Any, norm: float = 2.0, tolerance: float = TOLERANCE,  # noqa: N803
        max_boxes: int = Exact.max_boxes, max_seconds: float | None = None, threads: int | None = None,
        progress: bool | None = None, **constraints: Unpack[ConstraintOptions],
    ) -> Counterfactuals:  # fmt: skip
        """For each row, the nearest admissible row that the smoothed model labels `wanted`, proven to be so.

        wanted: a label for all rows, or one for each. The other options are those of `certify`.
        """
        method = Exact(norm=norm, tolerance=tolerance, max_boxes=max_boxes, max_seconds=max_seconds)
        x = self._rows(X)
        labels = np.asarray(wanted)
        each = np.full(len(x), labels[()]) if labels.ndim == 0 else labels
        if each.shape != (len(x),):
            raise ValueError(f"expected one wanted label, or one for each of {len(x)} rows, got shape {labels.shape}")
        numbers = np.array([self._number(label) for label in each.tolist()], dtype=np.int64)
        return nearest_wanted(self, X, x, numbers, method, constraints, threads=threads, progress=progress)

    def bounds(
        self, X: Any, radius: float, *, norm: float = 2.0, tolerance: float = TOLERANCE,  # noqa: N803
        max_boxes: int = Exact.max_boxes, max_seconds: float | None = None, threads: int | None = None,
        progress: bool | None = None, **constraints: Unpack[ConstraintOptions],
    ) -> tuple[Floats, Floats]:  # fmt: skip
        """(low, high), (N, K) each: proven, no admissible row within the radius is given a score outside.

        Scores are the smoothed probabilities, or the smoothed decision function where there are none, or of a sum of
        terms. Whole numbers and categories are taken as continuous here, which only widens the range.
        """
        check_order(X, constraints)
        found = self._ranges(
            self._rows(X), radius, norm, constraints, tolerance=tolerance, max_boxes=max_boxes,
            max_seconds=max_seconds, threads=threads, progress=progress,
        )  # fmt: skip
        return found.lower, found.upper

    def monotonicity(
        self, *, label: Any = None, lower: Any = None, upper: Any = None, tolerance: float = TOLERANCE,
        max_boxes: int = Exact.max_boxes, threads: int | None = None,
    ) -> list[ColumnDirection]:  # fmt: skip
        """Column by column, whether the score of a label is proven to rise or to fall with it.

        label: by default the last of `classes_`. It is about the polynomial in real arithmetic, at rows of the domain
        or of the part of it between `lower` and `upper`.
        """
        check_is_fitted(self)
        number = len(self.classes_) - 1 if label is None else self._number(label)
        return self._directions(number, lower, upper, tolerance=tolerance, max_boxes=max_boxes, threads=threads)

    def _number(self, label: Any) -> int:
        places = np.flatnonzero(self.classes_ == label)
        if len(places) != 1:
            known = [str(value) for value in self.classes_.tolist()]
            raise ValueError(f"expected a label out of {', '.join(known)}, got {label!r}{guess(str(label), known)}")
        return int(places[0])

    def _base_outputs(self, estimator: Any, rows: Any) -> Floats:
        scores: Callable[[Any], Any] | None = getattr(estimator, "predict_proba", None)
        scores = scores if scores is not None else getattr(estimator, "decision_function", None)
        if scores is None:
            raise TypeError(
                f"expected a base model with predict_proba or decision_function, got {type(estimator).__name__}; wrap "
                "it in sklearn.calibration.CalibratedClassifierCV"
            )
        values = np.asarray(scores(rows), dtype=np.float64)
        values = np.stack([-values, values], axis=1) if values.ndim == 1 else values
        if values.shape[1] != len(self.classes_):
            raise ValueError(
                f"expected one score for each of {len(self.classes_)} classes, got {values.shape[1]}; for an SVC use "
                "decision_function_shape='ovr'"
            )
        return values

    def _scores(self, estimator: Any) -> list[Callable[[Any], Floats]]:
        """The decision function; or logarithms of probabilities, less their mean, or these themselves."""
        if hasattr(estimator, "decision_function"):
            return [lambda rows: _per_class(estimator.decision_function(rows))]
        found: list[Callable[[Any], Floats]] = []
        if hasattr(estimator, "predict_log_proba"):
            found.append(lambda rows: _centred(estimator.predict_log_proba, rows))
        return [*found, lambda rows: self._base_outputs(estimator, rows)]

    def _fitted_score(self, estimator: Any) -> Callable[[Any], Floats]:
        """What a sum is fitted to: logarithms of probabilities, none of which is 0."""
        if not hasattr(estimator, "predict_proba"):
            return lambda rows: self._base_outputs(estimator, rows)
        return lambda rows: _centred(lambda r: np.log(np.clip(estimator.predict_proba(r), LEAST, 1.0)), rows)

    def _decides(self, estimator: Any, rows: Any, scores: Floats) -> bool:
        """Whether the greatest score is that of the label."""
        return scores.shape[1] == len(self.classes_) and self._agreement(estimator, rows, scores) == 1

    def _link(self, prepared: Prepared, x: Floats) -> tuple[str, float] | None:
        """From the scores of a sum to probabilities."""
        if prepared.score is None or not hasattr(prepared.estimator, "predict_proba"):
            return None
        if prepared.form == FITTED:
            return "softmax", 1.0
        probabilities = np.asarray(prepared.estimator.predict_proba(self._as_table(x[:LINKED_ROWS])))
        return find_link(prepared.score(x[:LINKED_ROWS]), probabilities)

    def _base_labels(self, x: Floats) -> npt.NDArray[Any]:
        """What the base model itself says about rows of the user's columns."""
        return np.asarray(self.estimator_.predict(self._seen(x)))

    def _agreement(self, estimator: Any, rows: Any, outputs: Floats) -> float:
        """The share of rows that the smoothed model labels as its base does."""
        return float((self.classes_[outputs.argmax(axis=1)] == np.asarray(estimator.predict(rows))).mean())

    def _held_out_score(self, outputs: Floats, y: Any) -> float:
        return float((self.classes_[outputs.argmax(axis=1)] == y).mean())


def _per_class(scores: Any) -> Floats:
    """(N, K), of two classes from one score: half of it for one, half of it against the other."""
    values = np.asarray(scores, dtype=np.float64)
    return np.stack([-0.5 * values, 0.5 * values], axis=1) if values.ndim == 1 else values


def _centred(scores: Callable[[Any], Any], rows: Any) -> Floats:
    """(N, K), less their mean."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.asarray(scores(rows), dtype=np.float64)
        found: Floats = values - values.mean(axis=1, keepdims=True)
    return found
