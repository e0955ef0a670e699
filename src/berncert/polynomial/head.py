"""The smoothed head: a classifier's last stage, replaced by the Bernstein polynomial through its values on a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from berncert.polynomial import bernstein
from berncert.polynomial.fidelity import Comparison, chosen_points, warn_if_ruined
from berncert.polynomial.grid import check_fits, degrees_per_axis, grid_batches
from berncert.polynomial.polynomial_head import PolynomialHead, Term, check_coefficients
from berncert.polynomial.sampling import Head, Sampler

ADVICE = "raise the degree; berncert.choose_degree(head, dim, points) suggests one, for points of your own"
"""What to do about a ruined head. Where few points of the cube are like one's own, only those count."""


class SmoothedHead(PolynomialHead):
    """features (N, d) in [0,1]^d -> logits (N, K), each a Bernstein polynomial with the given coefficients.

    `coefficients` is a (K, n_1+1, ..., n_d+1) tensor, kept as a buffer, or as a parameter if it is one. Logits lie
    between the least and the greatest coefficient of their class; at the cube's corners they are the corner
    coefficients. Features and coefficients of different dtype meet in the wider one.

    Example:
        >>> import torch, berncert
        >>> head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [0.5, 0.5]]))  # two classes, one feature, degree 1
        >>> head(torch.tensor([[0.25]]))
        tensor([[0.2500, 0.5000]])
        >>> head
        SmoothedHead(classes=2, dim=1, degree=1, dtype=torch.float32)
    """

    coefficients: Tensor

    def __init__(self, coefficients: Tensor) -> None:
        super().__init__()
        check_coefficients(coefficients)
        self._keep("coefficients", coefficients)

    @property
    def classes(self) -> int:
        """The number of classes, K; 1 for a regression."""
        return self.coefficients.shape[0]

    @property
    def dim(self) -> int:
        """The number of features, d."""
        return self.coefficients.ndim - 1

    @property
    def degree(self) -> tuple[int, ...]:
        """The degree along each axis, (n_1, ..., n_d)."""
        return tuple(size - 1 for size in self.coefficients.shape[1:])

    @property
    def affine(self) -> None:
        """It has no affine part beside its coefficients."""

    @property
    def terms(self) -> tuple[Term, ...]:
        """One term, in all features."""
        return (Term(tuple(range(self.dim)), self.coefficients),)

    @property
    def description(self) -> dict[str, Any]:
        """The shape of its coefficients."""
        return {"coefficients": list(self.coefficients.shape)}

    @property
    def kind(self) -> str:
        """What it is, in a few words for people."""
        degree = self.degree[0] if len(set(self.degree)) == 1 else "x".join(map(str, self.degree))
        return f"Bernstein polynomial of degree {degree} on each axis"

    @property
    def layout(self) -> str:
        """How its coefficients are arranged."""
        if len(set(self.degree)) == 1:
            return f"{self.classes} x {self.degree[0] + 1}^{self.dim}"
        return "x".join(map(str, self.coefficients.shape))

    def forward(self, features: Tensor) -> Tensor:
        """The logits (N, K); see `bernstein.evaluate` for the bound on their rounding error."""
        return bernstein.evaluate(self.coefficients, features)

    def linearise(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (N, K) and derivatives (N, K, d) together, faster than one after the other."""
        return bernstein.linearise(self.coefficients, features)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The head with the coefficients that `change` makes of these."""
        return type(self)(change(self.coefficients))

    def extra_repr(self) -> str:
        degree = self.degree[0] if len(set(self.degree)) == 1 else self.degree
        return f"classes={self.classes}, dim={self.dim}, degree={degree}, dtype={self.coefficients.dtype}"


def smooth(
    head: Head,
    dim: int,
    degree: int | Sequence[int],
    *,
    differentiable: bool = False,
    points: Any = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    batch_size: int = 4096,
) -> SmoothedHead:
    """The Bernstein polynomial whose coefficients are the head's logits on the grid k/n of [0,1]^dim.

    Affine heads are reproduced; others are approached as the degree (one for all axes, or one for each) grows. The
    grid is sent in batches, in the given dtype and on the given device, by default those of a module's parameters,
    else float64 on the CPU; the coefficients keep the dtype and device of the logits.

    A module is sampled in evaluation mode, without gradients, and then returned to the mode that it was in. With
    `differentiable=True` it is sampled in the mode it is in, and gradients of the smoothed head reach its parameters.

    points: where the polynomial is then compared with the head, which `fidelity` of the result reports: features of
        your own, (M, dim) in [0, 1], or a number of points drawn from the cube, the same ones every time; by default
        1000, or fewer beside very many coefficients. A `SmoothingWarning` says when smoothing has ruined the head. 0
        compares nothing, and so does `differentiable=True`.

    Example:
        >>> import torch, berncert
        >>> head = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).double()
        >>> smoothed = berncert.smooth(head, dim=3, degree=2)
        >>> smoothed
        SmoothedHead(classes=4, dim=3, degree=2, dtype=torch.float64)
        >>> smoothed(torch.rand(5, 3)).shape
        torch.Size([5, 4])
    """
    sampler = Sampler(head, dtype=dtype, device=device, batch_size=batch_size, differentiable=differentiable)
    degrees = degrees_per_axis(dim, degree)
    check_fits(2, degrees, sampler.dtype, sampler.device)  # as for two classes, before anything is done
    chosen = chosen_points(0 if differentiable else points, dim)  # or an error, before the grid is sampled
    columns = sampler.columns(
        grid_batches(degrees, sampler.batch_size),
        check=lambda logits: check_fits(logits.shape[1], degrees, logits.dtype, logits.device),
    )
    smoothed = SmoothedHead(columns.reshape(-1, *(n + 1 for n in degrees)))
    if len(chosen.points):
        chosen = chosen.beside(columns.numel()) if points is None else chosen
        smoothed.fidelity = found = Comparison(sampler, chosen).fidelity(smoothed)
        warn_if_ruined(degrees, agreement=found.agreement, constant=found.constant, measured=str(found), advice=ADVICE)
    return smoothed
