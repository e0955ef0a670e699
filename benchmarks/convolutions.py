"""Convolutions to take the norm of, the truth, and every way to compute it that is compared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg
import torch
from torch import Tensor

from berncert.extractor.bounds.spectral_norm import Geometry, Pair, conv_norm_bound, frequency_bounds

GRAM_STEPS = 6
STARTS = 3  # of the Lanczos iteration that stands for the truth where the matrix is too large


@dataclass(frozen=True)
class Case:
    """A square convolution, padded by half its kernel, on a square map."""

    kind: str
    kernel: int
    stride: int
    mode: str
    inputs: int
    outputs: int
    map: int
    large: bool = False

    @property
    def geometry(self) -> Geometry:
        half = self.kernel // 2
        return Geometry((self.stride, self.stride), ((half, half), (half, half)), mode=self.mode)

    @property
    def size(self) -> Pair:
        return self.map, self.map

    def weight(self) -> Tensor:
        """Always the same one, in float64."""
        return KINDS[self.kind](self, torch.Generator().manual_seed(self.kernel + 10 * self.map))


def gaussian(case: Case, generator: torch.Generator) -> Tensor:
    """Independent, of variance 1 / fan-in: a fresh network."""
    shape = (case.outputs, case.inputs, case.kernel, case.kernel)
    return torch.randn(shape, generator=generator, dtype=torch.float64) / math.sqrt(math.prod(shape[1:]))


def trained_like(case: Case, generator: torch.Generator) -> Tensor:
    """Two smooth filters that mix the channels by rank-one matrices, and a tenth of noise."""
    noise = gaussian(case, generator)
    at = torch.arange(case.kernel, dtype=torch.float64) - case.kernel // 2
    bump = torch.exp(-at.square() / max(1.0, case.kernel / 2))
    filters = torch.stack([torch.outer(bump, bump), torch.outer(bump, bump * at.sign())])
    left, right = (torch.randn(2, n, generator=generator, dtype=torch.float64) for n in (case.outputs, case.inputs))
    smooth = torch.einsum("ro,ri,rab->oiab", left, right, filters)
    return smooth / smooth.norm() + 0.1 * noise / noise.norm()


def ones(case: Case, generator: torch.Generator) -> Tensor:
    """All ones: everything adds up, where Miyato's value is furthest from the norm."""
    return torch.ones(case.outputs, case.inputs, case.kernel, case.kernel, dtype=torch.float64)


def wave(case: Case, generator: torch.Generator) -> Tensor:
    """A wave whose frequency lies in the middle between two of the map's own."""
    along = torch.cos(math.pi * (2 * (case.map // 4) + 1) / case.map * torch.arange(case.kernel, dtype=torch.float64))
    return torch.outer(along, along).expand(case.outputs, case.inputs, -1, -1).clone()


KINDS: dict[str, Callable[[Case, torch.Generator], Tensor]] = {
    "gaussian": gaussian, "trained-like": trained_like, "ones": ones, "wave": wave,
}  # fmt: skip
SMALL = [
    Case(kind, kernel, stride, mode, channels, channels, size)
    for kind, kernel, stride, mode, (channels, size) in product(
        KINDS, (1, 3, 5, 7), (1, 2), ("zeros", "circular"), ((8, 8), (4, 16))
    )
]
LARGE = [
    Case(kind, kernel, stride, mode, inputs, 64, 16, large=True)
    for kind, mode, (inputs, kernel, stride) in product(
        ("gaussian", "trained-like"), ("zeros", "circular"), ((64, 3, 1), (64, 3, 2), (32, 5, 1))
    )
]


def true_norm(case: Case) -> float:
    """From the explicit matrix; of a large convolution by Lanczos iterations, which approach it from below."""
    weight = case.weight()
    shape = (case.inputs, *case.size)
    if not case.large:
        basis = torch.eye(math.prod(shape), dtype=torch.float64).reshape(-1, *shape)
        matrix = case.geometry.convolve(basis, weight).flatten(1)
        gram = matrix.T @ matrix if matrix.shape[0] > matrix.shape[1] else matrix @ matrix.T
        return math.sqrt(float(torch.linalg.eigvalsh(gram)[-1]))

    def gram_times(x: np.ndarray) -> np.ndarray:
        return _back_and_forth(case, weight, torch.from_numpy(x.copy()).reshape(1, *shape)).flatten().numpy()

    columns = math.prod(shape)
    operator = scipy.sparse.linalg.LinearOperator((columns, columns), matvec=gram_times, dtype=np.float64)
    starts = np.random.default_rng(0).normal(size=(STARTS, columns))
    values = [scipy.sparse.linalg.eigsh(operator, k=1, v0=v, tol=1e-12, return_eigenvectors=False) for v in starts]
    return math.sqrt(max(float(value[0]) for value in values))


def _back_and_forth(case: Case, weight: Tensor, x: Tensor) -> Tensor:
    """A^T A x, the derivative of |A x|^2 / 2."""
    with torch.enable_grad():
        x = x.requires_grad_()
        return torch.autograd.grad(case.geometry.convolve(x, weight).square().sum() / 2, x)[0]


def frequencies_only(case: Case, weight: Tensor) -> float:
    return min(frequency_bounds(weight[None], case.geometry, case.size))


def power_iteration(case: Case, weight: Tensor, steps: int) -> float:
    """From a random start, on the convolution itself."""
    x = torch.randn(1, case.inputs, *case.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for _ in range(steps):
        x = _back_and_forth(case, weight, x.detach())
        x = x / x.norm()
    return float(case.geometry.convolve(x, weight).norm())


def gram_iteration(case: Case, weight: Tensor) -> float:
    """Delattre et al. (2023): for each of the map's own frequencies |G^(2^t)|_F^(1/2^t); a stride leaves rows out."""
    blocks = torch.fft.rfft2(weight, s=case.size).permute(2, 3, 0, 1).flatten(0, 1)
    logarithm = torch.zeros(len(blocks), dtype=torch.float64)
    for _ in range(GRAM_STEPS):
        norms = torch.linalg.matrix_norm(blocks)
        alive = norms > 0
        blocks, norms, logarithm = blocks[alive], norms[alive], logarithm[alive]
        blocks = blocks / norms[:, None, None]
        logarithm = 2 * (logarithm + norms.log())
        blocks = blocks.mH @ blocks
    logarithm = logarithm + torch.linalg.matrix_norm(blocks).log()
    return math.exp(float(logarithm.max()) / 2**GRAM_STEPS)


def reshaped(case: Case, weight: Tensor) -> float:
    """Miyato et al. (2018): the largest singular value of the (out, in x kh x kw) matrix."""
    return float(torch.linalg.matrix_norm(weight.flatten(1), 2))


OURS = "`conv_norm_bound`, map size given"
METHODS: dict[str, Callable[[Case, Tensor], float]] = {
    OURS: lambda case, weight: conv_norm_bound(weight, case.geometry, case.size),
    "`conv_norm_bound`, any map size": lambda case, weight: conv_norm_bound(weight, case.geometry),
    "frequencies only, map size given": frequencies_only,
    "Gram iteration, n x n frequencies": gram_iteration,
    "power iteration, 100 steps": lambda case, weight: power_iteration(case, weight, 100),
    "power iteration, 10 steps": lambda case, weight: power_iteration(case, weight, 10),
    "Miyato's reshaped matrix": reshaped,
}


class Measured(NamedTuple):
    case: Case
    truth: float
    values: dict[str, float]
    seconds: dict[str, float]

    def ratio(self, method: str) -> float:
        return self.values[method] / self.truth


def measure(case: Case, rounds: int) -> Measured:
    """Every method in turn, round after round; each round on other weights, as ours remembers its answers."""
    weight, values, seconds = case.weight(), {}, {name: [] for name in METHODS}
    for turn in range(rounds):
        scaled = weight * (1 + turn / 64)
        for name, method in METHODS.items():
            start = time.perf_counter()
            value = method(case, scaled)
            seconds[name].append(time.perf_counter() - start)
            values.setdefault(name, value)
    return Measured(case, true_norm(case), values, {name: median(times) for name, times in seconds.items()})


class Summary(NamedTuple):
    """One method over many convolutions."""

    method: str
    ratios: list[float]
    relative_times: list[float]

    @classmethod
    def all_of(cls, measured: Iterable[Measured]) -> list[Summary]:
        rows = list(measured)
        return [
            cls(name, [m.ratio(name) for m in rows], [m.seconds[name] / m.seconds[OURS] for m in rows])
            for name in METHODS
        ]
