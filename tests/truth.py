"""What a layer really does, computed from its matrix or its derivatives: the oracle of the bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from berncert.extractor import lipschitz_table
from berncert.extractor.bounds.layer_bound import LayerBound
from berncert.extractor.bounds.norm_gains import NormGains
from berncert.extractor.freezing.registration import operations_of

INF = math.inf
PLAIN = (1.0, 2.0, INF)
ROUNDING = 1e-12  # of the oracle, which is float64


def matrix_of(linear: Callable[[Tensor], Tensor], shape: Sequence[int]) -> Tensor:
    """The (outputs, inputs) matrix of an affine map of one image, its constant left out."""
    basis = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
    with torch.no_grad():
        return (linear(basis) - linear(torch.zeros_like(basis[:1]))).reshape(len(basis), -1).T


def jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The (outputs, inputs) derivative at one image (1, ...): a batch of copies, each asked for one output."""
    outputs = function(x).numel()
    copies = x.repeat(outputs, *(1,) * (x.ndim - 1)).requires_grad_()
    (rows,) = torch.autograd.grad(function(copies * 1.0).reshape(outputs, -1).diagonal().sum(), copies)
    return rows.flatten(1)


def norm_between(matrix: Tensor, s: float, t: float, seed: int = 0) -> float:
    """norm_t(A x) / norm_s(x) at its greatest where that can be computed, else at the greatest found."""
    if s == 1:
        return float(torch.linalg.vector_norm(matrix, t, dim=0).max())
    if t == INF:
        return float(torch.linalg.vector_norm(matrix, dual(s), dim=1).max())
    if s == t == 2:
        return float(torch.linalg.matrix_norm(matrix, 2))
    if s == INF and matrix.shape[1] <= 10:
        corners = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=matrix.shape[1])), dtype=torch.float64)
        return float(torch.linalg.vector_norm(corners @ matrix.T, t, dim=1).max())
    x = torch.tensor(np.random.default_rng(seed).normal(size=(8, matrix.shape[1])))
    for _ in range(12):  # Boyd's power method: it climbs, from below
        x = _steepest((_gradient(x @ matrix.T, t) @ matrix), s)
    ratio = torch.linalg.vector_norm(x @ matrix.T, t, dim=1) / torch.linalg.vector_norm(x, s, dim=1)
    return float(ratio.nan_to_num(0.0).max())


def dual(p: float) -> float:
    return INF if p == 1 else 1.0 if p == INF else p / (p - 1)


def _gradient(y: Tensor, t: float) -> Tensor:
    """Of norm_t at y, up to a positive factor."""
    y = y / y.abs().amax(dim=1, keepdim=True).clamp_min(1e-300)
    return y.sign() * y.abs() ** (t - 1)


def _steepest(z: Tensor, s: float) -> Tensor:
    """The x of norm_s 1 with the greatest z . x, up to a positive factor."""
    if s == INF:
        return torch.where(z < 0, -1.0, 1.0).double()
    z = z / z.abs().amax(dim=1, keepdim=True).clamp_min(1e-300)
    return z.sign() * z.abs() ** (1 / (s - 1)) + 1e-300


def assert_matrix_bounded(
    module: nn.Module, shape: Sequence[int], matrices: Sequence[Tensor], gains: NormGains
) -> float:
    """No pair of norms is bounded below what a matrix does; returns the 2-norm's bound over the truth."""
    for s, t in itertools.product(gains.norms, gains.norms):
        truth = max(norm_between(m, s, t) for m in matrices)
        bound = gains.factor(s, t)
        assert bound >= truth * (1 - ROUNDING), f"{module}, {tuple(shape)}: {bound} from {s} to {t}, true {truth}"
    truth = max(norm_between(m, 2, 2) for m in matrices)
    return gains.factor(2.0, 2.0) / truth if truth else 1.0


def assert_linear_bounded(module: nn.Module, shape: Sequence[int], p: float) -> float:
    """As above, of a module that is affine."""
    return assert_matrix_bounded(module, shape, [matrix_of(module, shape)], gains_of(module, shape, p))


def assert_smooth_bounded(
    module: nn.Module, shape: Sequence[int], p: float, *, seed: int = 0, points: int = 4, spread: float = 2.0
) -> float:
    """As above, of a module that is differentiable almost everywhere; and of pairs of points, near and far."""
    rng = np.random.default_rng(seed)
    xs = [torch.tensor(rng.normal(scale=spread, size=(1, *shape))) for _ in range(points)]
    gains = gains_of(module, shape, p)
    with torch.no_grad():
        for (i, a), (_, b) in itertools.combinations(enumerate(xs), 2):
            near = a + (b - a) * 10.0 ** -(i % 4)
            step, change = (near - a).flatten(), (module(near.clone()) - module(a.clone())).flatten()
            for s, t in itertools.product(gains.norms, gains.norms):
                moved = float(torch.linalg.vector_norm(change, t) / torch.linalg.vector_norm(step, s))
                assert gains.factor(s, t) >= moved * (1 - 1e-9), f"{module}: from {s} to {t}, pair moved {moved}"
    return assert_matrix_bounded(module, shape, [jacobian(module, x) for x in xs], gains)


def gains_of(module: nn.Module, shape: Sequence[int], p: float) -> NormGains:
    """What is proven of a network between norms, p included."""
    return lipschitz_table(module, shape, p).value.gains


def odd_norm(rng: np.random.Generator) -> float:
    """One that has to be interpolated."""
    return float(rng.choice([1.5, 3.0, 1.1, 6.0]))


def layer_bound(module: nn.Module, shape: tuple[int, ...]) -> LayerBound:
    """What is proven of a module that is one operation."""
    with torch.no_grad():  # as `freeze` does
        (operation,) = operations_of(module, shape)
    return operation.layer_bound(shape)
