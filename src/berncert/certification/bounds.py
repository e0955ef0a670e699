"""`bounds`: the proven range of every output of a smoothed head over a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from berncert.certification.box_search import Questions
from berncert.certification.feature_space import STATUS, posed
from berncert.certification.inputs import checked_box, checked_points
from berncert.certification.methods import Exact
from berncert.certification.results import Rows
from berncert.foundation.arrays import Floats, Ints
from berncert.polynomial import PolynomialHead


@dataclass(frozen=True, eq=False, repr=False)
class Ranges(Rows):
    """For every row's box and every output: lower <= each value on the box <= upper, proven.

    It holds for the polynomial in real arithmetic and for `SmoothedHead` in float64. The true least value lies
    between `lower` and `least_found`, the true greatest one between `greatest_found` and `upper`.

    Example:
        >>> import berncert
        >>> parabola = berncert.smooth(lambda x: x * x, dim=1, degree=2)  # x^2 / 2 + x / 2, as its polynomial
        >>> b = berncert.bounds(parabola)
        >>> bool(b.lower <= 0 <= b.least_found), bool(b.greatest_found <= 1 <= b.upper), b.status[0, 0].name
        (True, True, 'PROVEN')
    """

    lower: Floats
    """(N, K): proven; no value on the box is below."""
    upper: Floats
    """(N, K): proven; no value on the box is above."""
    argmin: Floats
    """(N, K, d): a point of the box where the value is `least_found`."""
    argmax: Floats
    """(N, K, d): a point of the box where the value is `greatest_found`."""
    least_found: Floats
    """(N, K): the value at argmin, as computed."""
    greatest_found: Floats
    """(N, K): the value at argmax, as computed."""
    status: npt.NDArray[np.object_]
    """(N, K): a `Status`; PROVEN if both ends are within the tolerance of the best possible."""
    boxes: Ints
    """(N, K): how many boxes the proof looked at."""

    def __repr__(self) -> str:
        names = ", ".join(self.__dataclass_fields__)
        return f"Ranges({' x '.join(map(str, self.lower.shape))} outputs; each with {names})"


def bounds(
    head: PolynomialHead,
    lower: Any = 0.0,
    upper: Any = 1.0,
    *,
    tolerance: float = Exact.tolerance,
    max_boxes: int = Exact.max_boxes,
    max_seconds: float | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Ranges:
    """Prove the least and the greatest value of every output over a box, each with the point where it is nearly taken.

    lower, upper: the box, (d,) or (N, d), inside the cube; a single number stands for all axes.
    tolerance: stop when a bound is within this share of the range of the coefficients on the box.
    max_boxes, max_seconds: of one end of one output, and of one row; then the bound is as far as the proof has come,
        which still holds, and the status says so. threads, progress: as in `certify`.

    Example:
        >>> import berncert
        >>> product = berncert.smooth(lambda x: x[:, :1] * x[:, 1:], dim=2, degree=1)
        >>> b = berncert.bounds(product, [0.5, 0.5], [1.0, 0.75])
        >>> b.lower.round(3), b.upper.round(3), b.argmax
        (array([[0.25]]), array([[0.75]]), array([[[1.  , 0.75]]]))
    """
    method = Exact(tolerance=tolerance, max_boxes=max_boxes, max_seconds=max_seconds)
    low, high = _boxes(head, lower, upper)
    around = Questions.plain(low)._replace(low=low, high=high)
    return ranges(head, around, method, threads=threads, progress=progress)


def ranges(
    head: PolynomialHead,
    around: Questions,
    method: Exact,
    *,
    threads: int | None = None,
    progress: bool | None = None,
) -> Ranges:
    """The ranges over the part of each row's box whose weighted distance from its features is at most its target."""
    if method.norm == math.inf:  # the points within the target are a box
        reach = around.target[:, None] / around.weight * (1 + 2.0**-50) + 2.0**-50
        low, high = np.maximum(around.low, around.features - reach), np.minimum(around.high, around.features + reach)
        around = around._replace(low=low, high=np.maximum(low, high), target=np.full_like(around.target, math.inf))
    search = posed(head, method)
    found = search.ranges(around, threads=threads, max_seconds=method.max_seconds, progress=progress)
    with np.errstate(over="ignore"):
        ends = np.nextafter(np.ldexp(found.bound, search.exponent), -math.inf)
        values = np.ldexp(found.value, search.exponent)
    return Ranges(
        lower=ends[..., 0],
        upper=-ends[..., 1],
        argmin=found.point[:, :, 0],
        argmax=found.point[:, :, 1],
        least_found=values[..., 0],
        greatest_found=-values[..., 1],
        status=_worse(found.status),
        boxes=found.boxes.sum(axis=2),
    )


def _boxes(head: PolynomialHead, lower: Any, upper: Any) -> tuple[Floats, Floats]:
    """(N, d) each, in float64, inside the cube; N = 1 for a single box."""
    low, high = (checked_points(side, name, head.dim) for side, name in ((lower, "lower"), (upper, "upper")))
    shape = np.broadcast_shapes(low.shape, high.shape)
    if ((low < 0) | (high > 1)).any():
        raise ValueError(
            f"expected a box inside the cube [0, 1]^{head.dim}, got lower down to {low.min()} and upper up to "
            f"{high.max()}; nothing is known of the head outside the cube"
        )
    return checked_box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), shape)


def _worse(status: Ints) -> npt.NDArray[np.object_]:
    """(N, K): PROVEN where both ends are, else how the other ended."""
    worst = status.max(axis=2)
    named = np.empty(worst.shape, dtype=object)
    for index, code in np.ndenumerate(worst):
        named[index] = STATUS[int(code)]
    return named
