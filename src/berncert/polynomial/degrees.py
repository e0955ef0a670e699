"""The choice of a degree: the least at which the polynomial agrees with its head."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, TypeVar

import torch

from berncert.foundation.arguments import checked_count, is_real
from berncert.foundation.rounding import ceil_digits, floor_places
from berncert.polynomial.fidelity import AGREED, Comparison, Fidelity, chosen_points
from berncert.polynomial.grid import check_fits
from berncert.polynomial.head import smooth
from berncert.polynomial.sampling import Head, Sampler

HIGHEST = 32
LARGEST_GRID = 70_000
"""Points at which a head is evaluated for one degree, at most, unless asked otherwise: about a second for a forest."""
Trial = TypeVar("Trial")


def choose_degree(
    head: Head,
    dim: int,
    points: Any = None,
    *,
    agreement: float = AGREED,
    difference: float | None = None,
    max_degree: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    batch_size: int = 4096,
) -> int:
    """The least degree whose polynomial gives the head's own class to at least this share of the points.

    Degrees are tried from 1 on, the same for all axes; a ValueError says how far the best one came if none agrees. It
    is measured, not proven: at other points they may agree less. The points should be like those to be certified.

    points: features of your own, (M, dim) in [0, 1]; or a number of points drawn from the cube, by default 1000.
    agreement: the share, above 0 and at most 1. With one output there is no class: give `difference`.
    difference: if given, no output may differ by more than this at any of the points.
    max_degree: by default the highest degree up to 32 whose grid, (degree + 1)^dim, has at most 70,000 points.
    dtype, device, batch_size: as in `smooth`.

    Example:
        >>> import torch, berncert
        >>> def circle(x):  # inside or outside
        ...     return torch.stack([((x - 0.5) ** 2).sum(dim=1), torch.full_like(x[:, 0], 0.09)], dim=1)
        >>> berncert.choose_degree(circle, 2, agreement=0.9)
        14
    """
    share, most = _checked_share(agreement), _checked_difference(difference)
    highest = (
        highest_degree(checked_count("dim", dim)) if max_degree is None else checked_count("max_degree", max_degree)
    )
    chosen = chosen_points(points, dim)
    if not len(chosen.points):
        raise ValueError("expected at least one point to compare at, got 0; leave points out to draw 1000")
    compared = Comparison(Sampler(head, dtype=dtype, device=device, batch_size=batch_size), chosen)
    if compared.outputs.shape[1] == 1 and math.isinf(most):
        raise ValueError("expected a difference with a head of one output, which has no class; pass difference=...")

    def tried(degree: int) -> Fidelity:
        smoothed = smooth(head, dim, degree, points=0, dtype=dtype, device=device, batch_size=batch_size)
        return compared.fidelity(smoothed)

    def agrees(found: Fidelity) -> bool:
        return (found.agreement is None or found.agreement >= share) and found.largest_difference <= most

    def fits(degree: int) -> bool:
        try:
            check_fits(compared.outputs.shape[1], (degree,) * dim, compared.outputs.dtype, compared.outputs.device)
        except MemoryError:
            return degree == 1  # for which `smooth` says so
        return True

    trials = tried_until(takewhile(fits, range(1, highest + 1)), tried, agrees)
    last = max(trials)
    if agrees(trials[last]):
        return last
    raise ValueError(_none_agrees(trials, share, most))


def tried_until(
    degrees: Iterable[int], tried: Callable[[int], Trial], agrees: Callable[[Trial], bool]
) -> dict[int, Trial]:
    """Degree -> its trial, of these degrees in turn, up to the first that agrees."""
    trials: dict[int, Trial] = {}
    for degree in degrees:
        trials[degree] = tried(degree)
        if agrees(trials[degree]):
            break
    return trials


def highest_degree(dim: int) -> int:
    """The highest degree whose grid is not too large; 1 where every grid is."""
    return next((n for n in range(HIGHEST, 1, -1) if (n + 1) ** dim <= LARGEST_GRID), 1)


def _none_agrees(trials: dict[int, Fidelity], share: float, most: float) -> str:
    """What was asked for, how far the best degree came, and what can be done."""
    best = max(trials, key=lambda n: (trials[n].agreement or 0.0, -trials[n].largest_difference, -n))
    wanted = [f"on {floor_places(100 * share, 1)} % of the points"] if trials[best].agreement is not None else []
    wanted += [] if math.isinf(most) else [f"to {ceil_digits(most, 3)} in every output"]
    return (
        f"expected a degree up to {max(trials)} whose polynomial agrees with the head {' and '.join(wanted)}, got "
        f"none; the best is degree {best}: {trials[best]}; ask for less, or allow more with max_degree (a grid of "
        "(degree + 1)^dim points), or take fewer features"
    )


def _checked_share(agreement: Any) -> float:
    """A share of points, above 0 and at most 1; anything else is a ValueError."""
    if not is_real(agreement) or not 0 < agreement <= 1:
        raise ValueError(f"expected an agreement above 0 and at most 1, got {agreement!r}; 0.99 is 99 % of the points")
    return float(agreement)


def _checked_difference(difference: Any) -> float:
    """How far outputs may differ, >= 0; None is any distance."""
    if difference is None:
        return math.inf
    if not is_real(difference) or not difference >= 0:
        raise ValueError(f"expected a difference >= 0, got {difference!r}; it is in the units of the head's outputs")
    return float(difference)
