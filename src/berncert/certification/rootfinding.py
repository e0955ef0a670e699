"""The paper's Algorithm 2: look for a boundary point with a least-squares solver and measure how far away it is.

The names of the paper: boundary_residuals is Phi, boundary_point is sol, slack is xi, conservatism is C.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast, overload

import numpy as np
import torch
from scipy.optimize import least_squares
from scipy.special import expit, softmax
from torch import Tensor, nn
from torch.autograd import functional

from berncert.certification.classifier import Classifier
from berncert.certification.inputs import checked_features, checked_images, tried_on
from berncert.certification.methods import Batch, Estimate
from berncert.certification.prepared_model import PreparedModel
from berncert.certification.results import Estimates, ImageEstimates
from berncert.foundation.arrays import Floats, Ints
from berncert.foundation.progress import Bar
from berncert.polynomial import PolynomialHead

TOLERANCE = 1.49012e-8  # scipy's leastsq: both the sum of squares' and the solution's; the paper ran with these
SMALLEST_TOLERANCE = float(np.finfo(np.float64).eps)  # leastsq has gtol = 0; this is as close as least_squares goes


def boundary_residuals(ranked_logits: Floats, slack: float, dim: int) -> Floats:
    """Phi = (phi_0, ..., phi_dim): zero where the two best classes differ by the slack and share all probability.

    The logits come in the order of their rank at x0. The paper assumes dim <= K; where K < dim, there is no class for
    the last dim - K equations, and zeros stand in: they change nothing in F = 1/2 |Phi|^2, but `lm` wants at least as
    many residuals as unknowns.
    """
    demanded = np.zeros_like(ranked_logits)
    demanded[:2] = expit(slack), expit(-slack)
    residuals = np.zeros(dim + 1)
    residuals[0] = ranked_logits[0] - ranked_logits[1] - slack
    residuals[1 : len(ranked_logits) + 1] = (softmax(ranked_logits) - demanded)[:dim]
    return residuals


def boundary_jacobian(ranked_logits: Floats, ranked_gradient: Floats) -> Floats:
    """The derivative of `boundary_residuals` by the features, (dim + 1, dim), from that of the logits, (K, dim)."""
    classes, dim = ranked_gradient.shape
    probabilities = softmax(ranked_logits)
    jacobian = np.zeros((dim + 1, dim))
    jacobian[0] = ranked_gradient[0] - ranked_gradient[1]
    jacobian[1 : classes + 1] = (probabilities[:, None] * (ranked_gradient - probabilities @ ranked_gradient))[:dim]
    return jacobian


class PlainHead:
    """A head that is not smoothed, in float64, with what the equations need of it."""

    def __init__(self, head: nn.Module, dim: int) -> None:
        self.head = copy.deepcopy(head).to("cpu", torch.float64).eval().requires_grad_(False)
        self.dim = dim
        logits = tried_on(self.head, "head", (dim,), torch.float64, torch.device("cpu"))
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 2:
            raise ValueError(f"expected (N, K) logits from the head, got {getattr(logits, 'shape', type(logits))}")
        self.classes = int(logits.shape[1])

    def __call__(self, features: Tensor) -> Tensor:
        return cast(Tensor, self.head(features))

    def gradient(self, features: Tensor) -> Tensor:
        """The derivative of every logit by every feature, (N, K, d)."""
        return torch.stack([functional.jacobian(lambda x: self(x[None])[0], row) for row in features])  # type: ignore[no-untyped-call]


class BoundarySystem:
    """Phi as a function of the features, with ranks and slack fixed at x0; counts its evaluations."""

    def __init__(self, head: PolynomialHead | PlainHead, start: Floats, conservatism: float | None) -> None:
        self.head = head
        self.start = start
        logits = self._logits(start)
        self.ranks: Ints = np.argsort(-logits, kind="stable")  # of equal logits the first class wins, as in argmax
        predicted, runner_up = logits[self.ranks[:2]]
        self.slack = 0.0 if conservatism is None else float(predicted - runner_up) / conservatism
        self.evaluations = 0

    def residuals(self, x: Floats) -> Floats:
        self.evaluations += 1
        return boundary_residuals(self._logits(x)[self.ranks], self.slack, self.head.dim)

    def jacobian(self, x: Floats) -> Floats:
        self.evaluations += 1
        gradient: Floats = self.head.gradient(torch.tensor(x[None]))[0].detach().numpy()
        return boundary_jacobian(self._logits(x)[self.ranks], gradient[self.ranks])

    def boundary_part(self, residuals: Floats) -> Floats:
        """Those residuals that vanish on the boundary."""
        return residuals

    def _logits(self, x: Floats) -> Floats:
        logits: Floats = self.head(torch.tensor(x[None]))[0].detach().numpy()
        return logits


class RegularisedSystem(BoundarySystem):
    """The paper's 2-D variant F^(x) = 1/2 phi_0(x)^2 + |x0 - x|_2^2, written as half a sum of squares."""

    def residuals(self, x: Floats) -> Floats:
        return np.append(np.sqrt(2) * (x - self.start), super().residuals(x)[0])

    def jacobian(self, x: Floats) -> Floats:
        return np.vstack([np.sqrt(2) * np.eye(len(x)), super().jacobian(x)[0]])

    def boundary_part(self, residuals: Floats) -> Floats:
        return residuals[-1:]


class Solver(NamedTuple):
    system: type[BoundarySystem]
    method: Literal["lm", "dogbox", "trf"]
    x_scale: Literal["jac"] | float


SOLVERS = {
    "lm": Solver(BoundarySystem, "lm", "jac"),  # leastsq's own scaling
    "dogbox": Solver(BoundarySystem, "dogbox", 1.0),
    "trf": Solver(BoundarySystem, "trf", 1.0),
    # F^ is a sum of squares, so the paper's trust region (model J'J, steps within a Euclidean ball) is trf without
    # bounds; scipy.optimize.minimize would have to guess the second derivative
    "regularised": Solver(RegularisedSystem, "trf", 1.0),
}


@overload
def estimate(
    model: PolynomialHead, inputs: Any, *, solver: str = ..., norm: float = ..., conservatism: float | None = ...,
    jacobian: str = ..., progress: bool | None = ...,
) -> Estimates: ...  # fmt: skip
@overload
def estimate(
    model: Classifier, inputs: Any, *, solver: str = ..., norm: float = ..., conservatism: float | None = ...,
    jacobian: str = ..., progress: bool | None = ...,
) -> ImageEstimates: ...  # fmt: skip
def estimate(
    model: PolynomialHead | Classifier,
    inputs: Any,
    *,
    solver: str = Estimate.solver,
    norm: float = Estimate.norm,
    conservatism: float | None = None,
    jacobian: str = Estimate.jacobian,
    progress: bool | None = None,
) -> Estimates | ImageEstimates:
    """The paper's "certified radius" (Algorithm 2): the distance from each input's features to where a solver stops.

    It is an estimate, not a radius: points of another class may be closer than it says. Of a `SmoothedHead`, inputs are
    features of the cube; of a `Classifier`, images, and the distance is divided by the proven bound of the extractor
    (the paper takes that bound to be 1, which Miyato's normalisation does not make it). The head of a `Classifier` need
    not be smoothed: the solver takes any head that is defined, and differentiable, on all of R^d.

    - At best the solver stops at *a* point of the boundary, not at the closest: its distance is then an upper bound of
      the true one. Only `regularised` takes the distance into account, and it trades it against the margin, so that
      it stops short of the boundary. The norm measures the point that was found; it has no part in finding it.
    - Only the runner-up at x0 is looked at; a class of lower rank may be nearer.
    - With more than two classes no finite logits have the softmax values that are demanded. A least-squares solution
      (`residual` > 0) need not be on the boundary at all, and the solver often wanders off, to where the other classes
      are less likely, until scipy's budget of 100 d steps is spent.
    - Where the equations are nearly met they all describe one surface, so the Jacobian is nearly singular (with two
      classes it has rank one everywhere): rounding errors then choose the step along the boundary, and even two affine
      classes are left at an arbitrary point of it.
    - The search is over all of R^d. Projecting onto the cube afterwards can put the point back on the side of x0, and
      a constant margin gives a finite estimate although there is no boundary.

    solver: `lm` (the paper's for l2), `dogbox` (its for l-inf), `trf`, or `regularised` (its 2-D variant: half the
        squared margin plus the squared distance).
    norm: any p with 1 <= p <= inf.
    conservatism: C of the paper; the system then asks for a margin of 1/C of that at x0. None asks for no margin.
    jacobian: "2-point" (finite differences, as the paper ran it) or "exact" (closed form; the same system, faster).
    progress: a bar on stderr; None shows one when stderr is a terminal and two seconds have passed.

    Example:
        >>> import torch, berncert
        >>> head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [0.5, 0.5]]).double())  # logits x and 0.5
        >>> berncert.estimate(head, [[0.2]]).distance_estimate.round(3)
        array([0.3])
    """
    method = Estimate(solver=solver, norm=norm, conservatism=conservatism, jacobian=jacobian)
    if isinstance(model, Classifier):
        images = checked_images(inputs)
        return ImageEstimator(method, model, images.shape[1:], progress=progress)(Batch(images))
    return estimate_features(model, inputs, method, progress)


def estimate_features(
    head: PolynomialHead | PlainHead, features: Any, method: Estimate, progress: bool | None = None
) -> Estimates:
    """The estimates of features of the cube."""
    head = _in_float64(head)
    start = checked_features(head, features)
    with torch.no_grad():
        found = [_solve(head, start[i], method) for i in _shown(len(start), progress)]
    points = np.array([f.point for f in found]).reshape(start.shape)
    ranks = np.array([f.ranks[:2] for f in found], dtype=np.int64).reshape(-1, 2)
    boundary_point = points.clip(0, 1)
    return Estimates(
        predicted=ranks[:, 0],
        runner_up=ranks[:, 1],
        distance_estimate=_lengths(start - boundary_point, method.norm),
        boundary_point=boundary_point,
        residual=np.array([f.residual for f in found], dtype=np.float64),
        evaluations=np.array([f.evaluations for f in found], dtype=np.int64),
    )


class ImageEstimator(PreparedModel):
    """`Estimate`, prepared: estimates for images of one shape, batch after batch."""

    def __init__(
        self,
        method: Estimate,
        model: Classifier,
        input_shape: Sequence[int],
        *,
        threads: int | None = None,
        batch_size: int = 256,
        progress: bool | None = None,
    ) -> None:
        super().__init__(model, input_shape, norm=method.norm, batch_size=batch_size, progress=progress, any_head=True)
        self.method = method
        head, dim = model.head, self.extractor.dim
        self.searched = head if isinstance(head, PolynomialHead) else PlainHead(head, dim)

    def __call__(self, batch: Batch) -> ImageEstimates:
        """The estimate of each image; as in `certify`, by the norm of the features that gives it most."""
        features, routes = self.features(checked_images(batch.images)), self.routes()
        found = estimate_features(self.searched, features, self.method, self.progress)
        # the norm has no part in finding the points
        lengths = np.array([_lengths(features - found.boundary_point, q) for q in routes])
        bounds = np.array([self.bound(q) for q in routes])
        with np.errstate(invalid="ignore"):
            quotients = np.nan_to_num(lengths / bounds[:, None])  # an infinite bound leaves nothing
        best, rows = quotients.argmax(axis=0), np.arange(len(features))
        return ImageEstimates(
            predicted=found.predicted,
            distance_estimate=quotients[best, rows],
            feature_distance_estimate=lengths[best, rows],
            feature_norm=np.array(routes)[best],
            lipschitz_bound=bounds[best],
            in_features=replace(found, distance_estimate=lengths[best, rows]),
        )


class _Found(NamedTuple):
    ranks: Ints
    point: Floats
    residual: float
    evaluations: int


def _solve(head: PolynomialHead | PlainHead, start: Floats, method: Estimate) -> _Found:
    """Minimise the solver's sum of squares from x0 over all of R^d."""
    choice = SOLVERS[method.solver]
    system = choice.system(head, start, method.conservatism)
    with np.errstate(over="ignore", invalid="ignore"):  # a step far out of the cube may overflow; solvers reject it
        result = least_squares(
            system.residuals,
            start,
            jac=system.jacobian if method.jacobian == "exact" else "2-point",
            method=choice.method,
            x_scale=choice.x_scale,
            ftol=TOLERANCE,
            xtol=TOLERANCE,
            gtol=SMALLEST_TOLERANCE,
        )
    residual = 0.5 * float(np.sum(system.boundary_part(result.fun) ** 2))
    return _Found(system.ranks, result.x, residual, system.evaluations)


def _lengths(differences: Floats, norm: float) -> Floats:
    """The p-norm of each row; scaled first, as powers of small numbers vanish for large p."""
    largest = np.abs(differences).max(axis=1)
    scale = np.where(largest > 0, largest, 1.0)
    lengths: Floats = scale * np.linalg.norm(differences / scale[:, None], ord=norm, axis=1)
    return lengths


def _in_float64(head: PolynomialHead | PlainHead) -> PolynomialHead | PlainHead:
    """The same head in float64 on the CPU: finite differences of float32 values would be noise."""
    if isinstance(head, PlainHead):
        return head
    if not isinstance(head, PolynomialHead):
        got = type(head).__name__
        raise TypeError(f"expected a SmoothedHead, or a Classifier with one, got {got}; make one with berncert.smooth")
    return head.in_float64()


def _shown(total: int, progress: bool | None) -> Iterator[int]:
    """The numbers below total, with a bar."""
    with Bar("root finding", total=total, progress=progress) as bar:
        for i in range(total):
            bar.update(i)
            yield i
        bar.update(total)
