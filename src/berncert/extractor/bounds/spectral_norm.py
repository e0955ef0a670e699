"""Proven upper bounds on the largest singular value: of matrices, and of convolutions through their frequencies.

Power iteration and a plain SVD approach the value with no guarantee from which side. Here they only guess: a Cholesky
factorisation of (guess I - A* A), with the classical bound on its rounding error, proves (docs/layers.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import torch
import torch.nn.functional as F
from torch import Tensor

UNIT = 2.0**-53  # the unit roundoff of float64
LARGEST_EXPLICIT = 1024  # columns (or rows) up to which a convolution is also written out as a matrix
MOST_ENTRIES = 2**22  # of such matrices together
CHUNK_ENTRIES = 2**24  # of the frequencies looked at together
DENSE_GUESS = 768  # up to this size all eigenvalues are computed, beyond it the largest few approached
BLOCK, ROUNDS = 8, 60  # how many vectors that takes, and how often they are multiplied
SLACKS = (1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1, 1.0)
TORUS_GRID = 64  # points for each axis when the size of the map is not known

Pair = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """Where a 2-D convolution reads: all that decides its norm besides the weights."""

    stride: Pair = (1, 1)
    padding: tuple[Pair, Pair] = ((0, 0), (0, 0))
    """The padding before and after, for height and width."""
    dilation: Pair = (1, 1)
    groups: int = 1
    mode: str = "zeros"
    """The kind of padding, as in torch: zeros, circular, reflect or replicate."""

    def pad(self, images: Tensor) -> Tensor:
        """The images with their padding."""
        (top, bottom), (left, right) = self.padding
        mode = "constant" if self.mode == "zeros" else self.mode
        return F.pad(images, (left, right, top, bottom), mode=mode) if any((top, bottom, left, right)) else images

    def convolve(self, images: Tensor, weight: Tensor) -> Tensor:
        """The convolution itself, as torch computes it."""
        groups = images.shape[1] // weight.shape[1]  # the weights may be those of one group only
        return F.conv2d(self.pad(images), weight, stride=self.stride, dilation=self.dilation, groups=groups)


def cached_by_weights(function: Callable[..., float], kept: int = 4096) -> Callable[..., float]:
    """The function with a cache, whose keys are the numbers of the weights: an edit in place is never missed."""
    answers: dict[tuple[object, ...], float] = {}

    def lookup(weight: Tensor, *rest: object) -> float:
        weight = weight.detach().cpu().double().contiguous()
        key = (sha256(weight.numpy().tobytes()).digest(), tuple(weight.shape), *rest)
        if key not in answers:
            if len(answers) >= kept:
                answers.pop(next(iter(answers)))
            answers[key] = function(weight, *rest)
        return answers[key]

    lookup.__doc__ = function.__doc__
    return lookup


def matrix_norm_bound(matrices: Tensor) -> float:
    """Proven: no singular value of any of the (..., m, n) matrices, real or complex, is greater.

    The matrices are taken as exact. The bound is at most 1e-9 above the truth, relatively, while one side is at most
    768, and seldom more than 1e-4 beyond.
    """
    a = matrices.detach().cpu()
    if not a.numel():
        return 0.0
    a = a.to(torch.complex128 if a.is_complex() else torch.float64).reshape(-1, *a.shape[-2:])
    if not a.isfinite().all():
        raise ValueError("expected finite weights, got NaN or infinity; the layer cannot be bounded")
    if not a.any():
        return 0.0
    scale = power_of_two(a)
    a = a / scale
    if a.shape[-2] < a.shape[-1]:
        a = a.mH
    gram = a.mH @ a
    rows, size = a.shape[-2:]
    energy = float(a.abs().square().sum(dim=(-2, -1)).max())
    guess = max(_largest_eigenvalue(gram), float(gram.diagonal(dim1=-2, dim2=-1).real.max()))
    for slack in SLACKS:
        shift = guess * (1 + slack)
        if _is_definite(gram, shift):
            # both products and the factorisation err by at most this: see docs/layers.md
            error = 16 * (rows + size + 8) * UNIT * (size * shift + energy)
            return math.nextafter(math.sqrt(shift + error) * (1 + 8 * UNIT) * scale, math.inf)
    return math.sqrt(energy) * (1 + 4 * (rows * size + 8) * UNIT) * scale  # the Frobenius norm, always a bound


cached_matrix_norm_bound = cached_by_weights(matrix_norm_bound)


def power_of_two(values: Tensor) -> float:
    """The power of two near the largest of the values: dividing by it is exact, and nothing overflows afterwards."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    return math.ldexp(1.0, max(-1000, min(1000, math.frexp(largest)[1])))


def _is_definite(gram: Tensor, shift: float) -> bool:
    """Whether shift I - gram has a Cholesky factorisation, for every one of the matrices."""
    shifted = -gram
    shifted.diagonal(dim1=-2, dim2=-1).add_(shift)
    return not torch.linalg.cholesky_ex(shifted).info.any()


def _largest_eigenvalue(gram: Tensor) -> float:
    """A guess of the largest eigenvalue, good to many digits: no proof relies on it."""
    size = gram.shape[-1]
    if size <= DENSE_GUESS:
        return float(torch.linalg.eigvalsh(gram)[..., -1].max())
    start = torch.randn(size, BLOCK, generator=torch.Generator().manual_seed(0), dtype=torch.float64)  # always the same
    block = torch.linalg.qr(gram @ start.to(gram.dtype)).Q
    for _ in range(ROUNDS):
        block = torch.linalg.qr(gram @ block).Q
    return float(torch.linalg.eigvalsh(block.mH @ (gram @ block))[..., -1].max())


@cached_by_weights
def conv_norm_bound(weight: Tensor, geometry: Geometry, size: Pair | None = None) -> float:
    """Proven: the 2-norm of the convolution with these (out, in / groups, kh, kw) weights is not greater.

    `size` is the height and width of the map. Without one the bound holds for maps of every size, which is possible
    for zero padding and for circular padding by less than the kernel reaches. Groups: the maximum.
    """
    if not weight.isfinite().all():
        raise ValueError("expected finite weights, got NaN or infinity; the convolution cannot be bounded")
    kernels = weight.reshape(geometry.groups, -1, *weight.shape[1:])
    if size is None:
        return _torus_bound(kernels, regardless_of_size(geometry, kernels.shape[3:]))
    bounds = list(frequency_bounds(kernels, geometry, size))
    small = _explicit(kernels, geometry, size)
    if small is not None:
        bounds.append(matrix_norm_bound(small) + _cancelled(kernels, geometry, size))
    return min(bounds)


def frequency_bounds(kernels: Tensor, geometry: Geometry, size: Pair) -> Iterator[float]:
    """Bounds from the frequencies of a circular convolution of which this one is a part."""
    axes = [_Axis.of(i, kernels.shape[3 + i], geometry, size[i]) for i in (0, 1)]
    if geometry.mode == "zeros":
        yield _grid_bound(kernels, axes, [axis.padded_grid() for axis in axes])
        return
    if geometry.mode == "circular" and all(n % axis.stride == 0 for n, axis in zip(size, axes, strict=True)):
        # rows beyond the first n / stride repeat earlier ones
        grids = [n // axis.stride for n, axis in zip(size, axes, strict=True)]
        repeats = math.prod(-(-axis.outputs // grid) for axis, grid in zip(axes, grids, strict=True))
        yield _grid_bound(kernels, axes, grids) * math.sqrt(repeats) * (1 + 4 * UNIT)
    if geometry.mode == "circular" and geometry.stride != (1, 1):  # some rows of the convolution with stride 1
        yield from frequency_bounds(kernels, replace(geometry, stride=(1, 1)), size)
    # a padding that copies pixels, each at most `copies` times, and then a convolution without padding
    copies = sums_over_inputs(geometry.pad, (1, *size))
    bare = Geometry(geometry.stride, ((0, 0), (0, 0)), geometry.dilation, geometry.groups)
    padded = tuple(n + sum(geometry.padding[i]) for i, n in enumerate(size))
    inner = [_Axis.of(i, kernels.shape[3 + i], bare, padded[i]) for i in (0, 1)]
    yield _grid_bound(kernels, inner, [a.padded_grid() for a in inner]) * math.sqrt(copies) * (1 + 4 * UNIT)


@dataclass(frozen=True)
class _Axis:
    """One axis of a strided convolution as a plain one on interleaved phases: tap j reads phase[j] at shift[j]."""

    stride: int
    phase: list[int]
    shift: list[int]
    inputs: int
    outputs: int

    @classmethod
    def of(cls, axis: int, taps: int, geometry: Geometry, size: int) -> _Axis:
        stride, dilation, (before, after) = geometry.stride[axis], geometry.dilation[axis], geometry.padding[axis]
        reads = [j * dilation - before for j in range(taps)]
        outputs = (size + before + after - dilation * (taps - 1) - 1) // stride + 1
        return cls(stride, [r % stride for r in reads], [r // stride for r in reads], -(-size // stride), outputs)

    @property
    def span(self) -> int:
        return max(self.shift) - min(self.shift) + 1

    def padded_grid(self) -> int:
        """Enough points that nothing is read twice around the circle."""
        reach = max(self.inputs, self.outputs + max(self.shift)) - min(0, *self.shift)
        return min(self.inputs + self.span - 1, reach) if self.span > 1 else self.inputs


def _grid_bound(kernels: Tensor, axes: list[_Axis], grids: list[int]) -> float:
    """The largest norm of the (out, in x phases) matrices over all frequencies of the grid, for every group."""
    groups, outputs, inputs, kh, kw = kernels.shape
    high, wide = (_twiddles(axis.shift, grid) for axis, grid in zip(axes, grids, strict=True))
    # by symmetry (the weights are real) half of the frequencies are enough
    high = high[: grids[0] // 2 + 1]
    phases = [
        (torch.tensor(axes[0].phase) == r, torch.tensor(axes[1].phase) == s)
        for r in sorted(set(axes[0].phase))
        for s in sorted(set(axes[1].phase))
    ]
    at_once = max(1, CHUNK_ENTRIES // (groups * outputs * inputs * len(phases) * grids[1]))
    values = kernels.to(torch.complex128)
    bound = 0.0
    for part in torch.split(high, at_once):
        blocks = [
            torch.einsum("goiab,fa,wb->gfwoi", values[..., rows, :][..., columns], part[:, rows], wide[:, columns])
            for rows, columns in phases
        ]
        bound = max(bound, matrix_norm_bound(torch.cat(blocks, dim=-1)))
    mass = float(kernels.abs().sum(dim=(-2, -1)).square().sum(dim=(-2, -1)).max().sqrt())
    return bound + 4 * (kh * kw + 32) * UNIT * mass  # what rounding can have done to the frequencies' matrices


def _twiddles(shifts: list[int], grid: int) -> Tensor:
    """exp(2 pi i f shift / grid), (grid, len(shifts)); angles reduced exactly, so that each is good to 16 units."""
    turns = torch.outer(torch.arange(grid), torch.tensor(shifts)) % grid
    turns = torch.where(2 * turns > grid, turns - grid, turns)
    return torch.polar(torch.ones((), dtype=torch.float64), turns.double() * (2 * math.pi / grid))


def _torus_bound(kernels: Tensor, geometry: Geometry) -> float:
    """For maps of every size: the greatest value of the symbol, between the points of the grid too.

    |u* K(w) v|^2 is a trigonometric polynomial of degree span - 1 in each frequency; such a polynomial is nowhere more
    than 1 / cos(pi degree / grid) times its largest absolute value on the grid (Ehlich and Zeller).
    """
    axes = [_Axis.of(i, kernels.shape[3 + i], geometry, 1) for i in (0, 1)]
    grids = [1 if axis.span == 1 else max(TORUS_GRID, 8 * axis.span) for axis in axes]
    between = math.prod(math.cos(math.pi * (a.span - 1) / grid) for a, grid in zip(axes, grids, strict=True))
    return _grid_bound(kernels, axes, grids) / math.sqrt(between) * (1 + 16 * UNIT)


def regardless_of_size(geometry: Geometry, kernel: Sequence[int]) -> Geometry:
    """A geometry whose symbol bounds this one on every map; a circle that the stride does not divide has no phases."""
    if geometry.mode == "zeros":
        return geometry
    reaches = (d * (k - 1) for d, k in zip(geometry.dilation, kernel, strict=True))
    if geometry.mode == "circular" and all(sum(p) <= r for p, r in zip(geometry.padding, reaches, strict=True)):
        return replace(geometry, stride=(1, 1))
    raise ValueError(
        f"expected a size for a convolution with padding_mode={geometry.mode!r} and padding {geometry.padding}, got "
        "none; its norm depends on the height and width of the map"
    )


def _explicit(kernels: Tensor, geometry: Geometry, size: Pair) -> Tensor | None:
    """The convolution written out as matrices, one for each group, where they are small; None where they are not."""
    groups, _, inputs = kernels.shape[:3]
    pixels = math.prod(size)
    probe = torch.zeros(1, inputs, *size, dtype=torch.float64)
    outputs = geometry.convolve(probe, kernels[0]).numel()
    if min(inputs * pixels, outputs) > LARGEST_EXPLICIT or groups * inputs * pixels * outputs > MOST_ENTRIES:
        return None
    basis = torch.eye(inputs * pixels, dtype=torch.float64).reshape(-1, inputs, *size)
    return torch.stack([geometry.convolve(basis, kernel).flatten(1).T for kernel in kernels])


def _cancelled(kernels: Tensor, geometry: Geometry, size: Pair) -> float:
    """What rounding can have done to the entries of the matrix, where several taps read one pixel and are added."""
    if geometry.mode == "zeros":
        return 0.0
    absolute = _explicit(kernels.abs(), geometry, size)
    assert absolute is not None
    largest = max(float(absolute.sum(dim=-1).max()), float(absolute.sum(dim=-2).max()))  # both norms, so the 2-norm
    return 8 * (kernels[0, 0, 0].numel() + sum(absolute.shape)) * UNIT * largest


def sums_over_inputs(linear: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> float:
    """The largest column sum of a linear map without negative entries, on inputs of this shape; not rounded up."""
    with torch.enable_grad():
        x = torch.zeros(1, *shape, dtype=torch.float64, requires_grad=True)
        (sums,) = torch.autograd.grad(linear(x).sum(), x)
    return float(sums.max())


def sums_over_outputs(linear: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> float:
    """The largest row sum of a linear map without negative entries, on inputs of this shape; not rounded up."""
    with torch.no_grad():
        return float(linear(torch.ones(1, *shape, dtype=torch.float64)).max())
