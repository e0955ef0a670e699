"""Bernstein polynomials on the unit cube: pure functions of their coefficients.

`coefficients` is a (K, n_1+1, ..., n_d+1) tensor: for each of K classes the control net of a polynomial of degree n_j
along axis j. Everything here is a convex combination of coefficients wherever x is in [0,1]^d, which is what keeps
rounding errors small and easily bounded. All of it is differentiable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

CPU_BUDGET = 2**20
"""Most elements of any one intermediate on a CPU: rows of x are taken in chunks that stay below, inside the cache."""
DEVICE_BUDGET = 2**24
"""The same on any other device, where few large steps are faster than many small ones."""


def basis(degree: int, x: Tensor) -> Tensor:
    """The degree + 1 Bernstein polynomials at x, last axis; for x in [0,1] they are >= 0 and sum to 1.

    Each value is exact up to 3 * degree roundings (one rounding: a factor within 1 +- eps / 2), underflow aside.
    """
    if degree < 0:
        raise ValueError(f"expected degree >= 0, got {degree}; a polynomial of degree n has n + 1 coefficients")
    x = x.unsqueeze(-1)
    values = torch.ones_like(x)
    for _ in range(degree):
        values = _raise_degree(values, x)
    return values


def evaluate(coefficients: Tensor, x: Tensor) -> Tensor:
    """The K polynomials at the N rows of x: (N, d) -> (N, K).

    For x in [0,1]^d the float64 result obeys, whatever the order of the sum along each axis,

        |computed - exact| <= (d * (4 * max(n) + 3) + 2) * 2^-53 * 1.01 * max|coefficients|,

    since each axis costs at most 3 n roundings in its basis and n + 1 in its dot product, with weights that are >= 0
    and sum to 1. (Underflow costs more only when max|coefficients| < 1e-290.)
    """
    coefficients, x = _prepare(coefficients, x)
    elements = len(coefficients) * prod(coefficients.shape[2:])  # the first contraction leaves the largest result
    return torch.cat(_in_chunks(_evaluate, coefficients, x, elements))


def gradient(coefficients: Tensor, x: Tensor) -> Tensor:
    """The derivatives of the K polynomials at the N rows of x: (N, d) -> (N, K, d); see `linearise`."""
    return linearise(coefficients, x)[1]


def linearise(coefficients: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The K polynomials at the N rows of x and all their derivatives: (N, d) -> (N, K) and (N, K, d).

    The axes are taken in two groups, so that a few matrix products do all of it: what training needs at each step. For
    x in [0,1]^d a value differs from the exact one by at most (3 (n_1 + ... + n_d) + d + P + Q) * 2^-53 * 1.01 *
    max|coefficients| in float64, P and Q the numbers of coefficients along either group, and a derivative along axis j
    by at most 2 n_j + 1 times that. `evaluate` is tighter.
    """
    coefficients, x = _prepare(coefficients, x)
    sizes = coefficients.shape[1:]
    cut = _balanced_cut(sizes)
    elements = (len(coefficients) + len(sizes)) * max(prod(sizes[:cut]), prod(sizes[cut:]))
    chunks = _in_chunks(_linearise, coefficients, x, elements)
    return torch.cat([values for values, _ in chunks]), torch.cat([slopes for _, slopes in chunks])


def restrict(coefficients: Tensor, lower: Tensor | Sequence[float], upper: Tensor | Sequence[float]) -> Tensor:
    """The coefficients on the sub-box [lower, upper], itself taken as the unit cube.

    evaluate(restrict(c, lower, upper), t) = evaluate(c, lower + t * (upper - lower)). For a box inside the cube each
    new coefficient is a convex combination of the old ones.
    """
    lower = torch.as_tensor(lower, dtype=coefficients.dtype, device=coefficients.device)
    upper = torch.as_tensor(upper, dtype=coefficients.dtype, device=coefficients.device)
    dim = _dim(coefficients)
    if lower.shape != (dim,) or upper.shape != (dim,):
        raise ValueError(
            f"expected lower and upper of shape ({dim},), got {tuple(lower.shape)} and {tuple(upper.shape)}; "
            "give one number for each axis of the cube"
        )
    for axis in range(1, dim + 1):
        weights = interval_weights(coefficients.shape[axis] - 1, lower[axis - 1], upper[axis - 1])
        coefficients = (coefficients.movedim(axis, -1) @ weights.T).movedim(-1, axis)
    return coefficients


def restrict_rows(coefficients: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """`restrict` to a box for each row, (N, d) each: (N, K, n_1+1, ..., n_d+1); differentiable in all three."""
    rows, sizes = len(lower), coefficients.shape[1:]
    values = coefficients.movedim(0, -1).flatten(1).expand(rows, -1, -1)  # (N, n_1+1, the rest)
    for axis, size in enumerate(sizes):
        weights = interval_weights(size - 1, lower[:, axis, None, None], upper[:, axis, None, None])
        following = sizes[axis + 1] if axis + 1 < len(sizes) else len(coefficients)
        values = (weights @ values).transpose(1, 2).reshape(rows, following, -1)  # this axis goes to the end
    return values.reshape(rows, len(coefficients), *sizes)


def split(coefficients: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The coefficients on the two halves of the cube, cut at the middle of one of its d axes (0 is the first).

    De Casteljau: only means of neighbours are taken, so each coefficient of degree n costs at most n roundings.
    """
    dim = _dim(coefficients)
    if not 0 <= axis < dim:
        raise ValueError(f"expected 0 <= axis < {dim}, got {axis}; axis counts the cube's axes, not the classes'")
    row = coefficients.movedim(axis + 1, 0)
    low, high = [row[0]], [row[-1]]
    while row.shape[0] > 1:
        row = 0.5 * row[:-1] + 0.5 * row[1:]  # halved first: the sum of two large numbers could overflow
        low.append(row[0])
        high.append(row[-1])
    return torch.stack(low, dim=axis + 1), torch.stack(high[::-1], dim=axis + 1)


def enclose(coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest coefficient of each class, (K,) each: no value on the cube lies outside them."""
    _dim(coefficients)
    flat = coefficients.flatten(1)
    return flat.amin(dim=1), flat.amax(dim=1)


def _raise_degree(values: Tensor, x: Tensor) -> Tensor:
    """One step of b_k <- (1 - x) b_k + x b_{k-1}: nothing is subtracted but in 1 - x, so nothing cancels."""
    zero = torch.zeros_like(x)
    return torch.cat([(1 - x) * values, zero], dim=-1) + torch.cat([zero, x * values], dim=-1)


def _slopes(degree: int, x: Tensor) -> Tensor:
    """The derivatives of the degree + 1 Bernstein polynomials at x, last axis; they sum to 0."""
    zero = torch.zeros_like(x).unsqueeze(-1)
    if degree == 0:
        return zero
    lower = basis(degree - 1, x)
    return degree * (torch.cat([zero, lower], dim=-1) - torch.cat([lower, zero], dim=-1))


def interval_weights(degree: int, lower: Tensor, upper: Tensor) -> Tensor:
    """Row i holds the weights of the old coefficients in the i-th new one on [lower, upper].

    That coefficient is the polynomial's polar form at i times upper and degree - i times lower: the recursion of the
    basis with a different point at each step.
    """
    rows = torch.arange(degree + 1, device=lower.device).unsqueeze(1)
    weights = torch.ones(*lower.shape[:-2], degree + 1, 1, dtype=lower.dtype, device=lower.device)
    for step in range(degree):
        weights = _raise_degree(weights, torch.where(rows > step, upper, lower))
    return weights


def _evaluate(coefficients: Tensor, x: Tensor) -> Tensor:
    first, *others = _per_axis(basis, coefficients, x)
    values = first @ coefficients.movedim(0, -1).flatten(1)  # classes last: contractions run along contiguous memory
    for weights in others:  # one axis at a time: the full basis is never built
        values = _contract(values, weights)
    return values


def _linearise(coefficients: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    sizes = coefficients.shape[1:]
    cut = _balanced_cut(sizes)
    bases, slopes = _per_axis(basis, coefficients, x), _per_axis(_slopes, coefficients, x)
    (front, front_slopes), (back, back_slopes) = (
        _products(x, bases[group], slopes[group]) for group in (slice(cut), slice(cut, None))
    )
    matrix = coefficients.reshape(coefficients.shape[0], front.shape[1], -1)
    by_front = torch.einsum("np,kpq->nkq", front, matrix)
    values = torch.einsum("nkq,nq->nk", by_front, back)
    along_back = torch.einsum("nkq,njq->nkj", by_front, back_slopes)
    by_back = torch.einsum("nq,kpq->nkp", back, matrix)
    along_front = torch.einsum("nkp,njp->nkj", by_back, front_slopes)
    return values, torch.cat([along_front, along_back], dim=2)


def _balanced_cut(sizes: Sequence[int]) -> int:
    """Where to cut the axes in two groups, so that neither has many more coefficients than the other."""
    return min(range(1, len(sizes) + 1), key=lambda cut: prod(sizes[:cut]) + prod(sizes[cut:]))


def _products(x: Tensor, bases: Sequence[Tensor], slopes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The tensor products of the bases, (N, P), and their derivatives along each of the j axes, (N, j, P)."""
    product: Tensor = x.new_ones(len(x), 1)
    derivatives: list[Tensor] = []
    for weights, slope in zip(bases, slopes, strict=True):
        derivatives = [_outer(derivative, weights) for derivative in derivatives] + [_outer(product, slope)]
        product = _outer(product, weights)
    return product, torch.stack(derivatives, dim=1) if derivatives else x.new_empty(len(x), 0, 1)


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return (a.unsqueeze(2) * b.unsqueeze(1)).flatten(1)


def _contract(values: Tensor, weights: Tensor) -> Tensor:
    """(N, (n+1) * rest) and (N, n+1) -> (N, rest): each row's next axis, summed with that row's weights."""
    rows, size = weights.shape
    return (weights.unsqueeze(1) @ values.reshape(rows, size, values.shape[1] // size)).squeeze(1)


def _per_axis(weigh: Callable[[int, Tensor], Tensor], coefficients: Tensor, x: Tensor) -> list[Tensor]:
    """weigh(n_j, x_j) for each axis j: (N, n_j + 1) each. Axes of the same degree share one call."""
    degrees = [size - 1 for size in coefficients.shape[1:]]
    weighed = {degree: weigh(degree, x) for degree in set(degrees)}
    return [weighed[degree][:, axis] for axis, degree in enumerate(degrees)]


def _in_chunks(kernel: Callable[[Tensor, Tensor], T], coefficients: Tensor, x: Tensor, elements: int) -> list[T]:
    """kernel(coefficients, x), over so many rows of x at once that no intermediate, of so many elements for each row,
    exceeds the budget."""
    budget = CPU_BUDGET if x.device.type == "cpu" else DEVICE_BUDGET
    sizes = coefficients.shape[1:]
    rows = max(1, budget // max(1, elements, len(sizes) * max(sizes)))
    if torch.compiler.is_compiling() or x.shape[0] <= rows:  # a traced graph must not depend on the number of rows
        return [kernel(coefficients, x)]
    return [kernel(coefficients, x[i : i + rows]) for i in range(0, x.shape[0], rows)]


def _prepare(coefficients: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the wider of their two dtypes, once their shapes are known to agree."""
    dim = _dim(coefficients)
    if x.ndim != 2 or x.shape[1] != dim:
        raise ValueError(
            f"expected points of shape (N, {dim}), got {tuple(x.shape)}; "
            f"the coefficients have {dim} axes after the classes': give one number for each, one row for each point"
        )
    dtype = torch.promote_types(coefficients.dtype, x.dtype)
    return coefficients.to(dtype), x.to(dtype)


def _dim(coefficients: Tensor) -> int:
    if coefficients.ndim < 2:
        raise ValueError(
            f"expected coefficients of shape (K, n_1+1, ..., n_d+1), got {tuple(coefficients.shape)}; "
            "for a single polynomial add a class axis in front: coefficients.unsqueeze(0)"
        )
    return coefficients.ndim - 1
