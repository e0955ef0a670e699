"""Fidelity: how far a smoothed head still predicts what its head does. Too low a degree can ruin a head."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from berncert.foundation.arguments import checked_index, is_real
from berncert.foundation.rounding import ceil_digits, floor_places, trimmed
from berncert.polynomial.points import drawn_points, points_of_cube
from berncert.polynomial.sampling import Sampler

AGREED = 0.99
"""The share of points with the same class from which on polynomial and head are taken to agree."""
RUINED = 0.75
"""The share below which smoothing is taken to have ruined the head."""
DRAWN, LEAST_DRAWN = 1000, 100
"""Points of the cube at which they are compared: fewer where there are many coefficients, but no fewer than that."""
MOST_PRODUCTS = 2 * 10**7
"""Of drawn points and coefficients: some milliseconds."""


TIE = 64
"""Units in the last place, of the greatest output, within which two outputs of a head are equal."""


class SmoothingWarning(UserWarning):
    """A smoothed head predicts something else than its head does.

    Example:
        >>> import warnings, torch, berncert
        >>> def stripes(x):  # of a hundredth of the cube: no polynomial of degree 1 is like it
        ...     return torch.cat([torch.sin(200 * x), torch.zeros_like(x)], dim=1)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     smoothed = berncert.smooth(stripes, dim=1, degree=1)
        >>> caught[0].category.__name__
        'SmoothingWarning'
    """


@dataclass(frozen=True, repr=False)
class Fidelity:
    """How far a polynomial agrees with the head that it smooths, at some points of the cube. Measured, not proven.

    Example:
        >>> import torch, berncert
        >>> smoothed = berncert.smooth(torch.nn.Linear(2, 3).double(), dim=2, degree=1)  # affine: reproduced
        >>> smoothed.fidelity.agreement, smoothed.fidelity.constant
        (1.0, False)
    """

    points: int
    """At how many points they were compared."""
    drawn: bool
    """Whether these were drawn from the whole cube; else they were the caller's own."""
    agreement: float | None
    """The share of the points that both give the same class, up to ties; None for one output, which has no class."""
    largest_difference: float
    """Of an output of the polynomial from that of the head, over all points and outputs."""
    constant: bool
    """Whether the polynomial gives all of the points the same class; always so with one output."""

    def __str__(self) -> str:
        word = "point" if self.points == 1 else "points"
        where = f"{self.points} {word} of the cube" if self.drawn else f"{self.points} given {word}"
        difference = f"outputs differ by at most {ceil_digits(trimmed(self.largest_difference), 3)}"
        if self.agreement is None:
            return f"at {where} {difference}"
        return f"the same class at {floor_places(100 * self.agreement, 1)} % of {where}; {difference}"

    def __repr__(self) -> str:
        return f"Fidelity({self})"


class Chosen(NamedTuple):
    """The points at which a head and its polynomial are compared."""

    points: Tensor
    """(M, dim), in float64; M = 0 compares nothing."""
    drawn: bool

    def beside(self, coefficients: int) -> Chosen:
        """The first of them, so many that they take little time beside so many coefficients."""
        return self._replace(points=self.points[: max(LEAST_DRAWN, MOST_PRODUCTS // coefficients)])


def chosen_points(points: Any, dim: int) -> Chosen:
    """What `points` asks for: (M, dim) of the caller's own, a number of drawn ones, or for None the default number."""
    if points is None or is_real(points):
        return Chosen(drawn_points(DRAWN if points is None else checked_index("points", points), dim), drawn=True)
    given = points_of_cube(points, "points", dim)
    if not len(given):
        raise ValueError("expected at least one point to compare at, got none; pass 0 to compare nothing")
    return Chosen(torch.tensor(given), drawn=False)


class Comparison:
    """A head's outputs at some points, to be compared with those of polynomials."""

    def __init__(self, sampler: Sampler, chosen: Chosen) -> None:
        self.drawn = chosen.drawn
        self.points = sampler.placed(chosen.points).double().clone()  # a head may write into what it is given
        self.outputs = sampler.outputs(chosen.points)

    @torch.no_grad()
    def fidelity(self, polynomial: nn.Module) -> Fidelity:
        """How far the polynomial head agrees with the head; both as computed, it in float64."""
        device = next((tensor.device for tensor in polynomial.state_dict().values()), self.points.device)
        smoothed: Tensor = polynomial(self.points.to(device))
        if self.outputs.shape != smoothed.shape:
            raise ValueError(
                f"expected {smoothed.shape[1]} classes as on the grid, got {self.outputs.shape[1]}; the head must "
                "return as many logits for every point"
            )
        best, new = self.outputs.amax(dim=1), smoothed.argmax(dim=1)
        chosen = self.outputs.gather(1, new[:, None].to(self.outputs.device)).squeeze(1)
        tie = (
            TIE * torch.finfo(self.outputs.dtype).eps * self.outputs.abs().amax()
        )  # of outputs that only rounding parts
        return Fidelity(
            points=len(new),
            drawn=self.drawn,
            agreement=float((chosen >= best - tie).double().mean()) if smoothed.shape[1] > 1 else None,
            largest_difference=float((self.outputs - smoothed).abs().max()),
            constant=bool((new == new[0]).all()),
        )


def warn_if_ruined(
    degrees: tuple[int, ...],
    *,
    agreement: float | None,
    constant: bool,
    measured: str,
    advice: str,
) -> None:
    """A `SmoothingWarning` if more than a quarter of the classes are others, or if only one is left of several.

    measured: how far both agree. advice: what to do. They are parts of its sentence.
    """
    if agreement is None or agreement >= (AGREED if constant else RUINED):
        return
    degree = degrees[0] if len(set(degrees)) == 1 else degrees
    left = "; the polynomial gives all of them one class" if constant else ""
    warnings.warn(
        f"smoothing to degree {degree} has changed what is predicted: {measured}{left}; {advice}",
        SmoothingWarning,
        stacklevel=1 + _frames_of_berncert(),
    )


def _frames_of_berncert() -> int:
    """How many calls are the package's own, from the caller of this one outwards; a warning names the line behind."""
    count, frame = 0, inspect.currentframe()
    frame = frame and frame.f_back
    while frame is not None and frame.f_globals.get("__name__", "").startswith("berncert."):
        count, frame = count + 1, frame.f_back
    return count
