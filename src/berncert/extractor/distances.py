"""Distances between rows in the l-inf norm, and in the p-norms that approach it, with gradients for training."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from berncert.extractor import distance_kernels as kernels

INF = math.inf
LEAST_BITS = 50.0
"""Powers are kept above 2^-50: what is smaller adds nothing, and products near the least float32, 2^-126, are slow."""
TINY = 1e-30
MOST = 2**20
"""No power is greater. Ratios that are 1 but for a rounding stay near 1 with it, and the norm is that of l-inf to 1 in
10^5 or less."""
CHUNK = 2**26
"""The most differences that the plain path holds in memory at once."""


def distances(x: Tensor, weight: Tensor, p: float = INF) -> Tensor:
    """(rows, outputs): the p-norm of each x[b] - weight[j]; differentiable in both.

    With p = inf the only rounding is that of each difference. A finite p is rounded to one that is cheap, see
    `cheap_norm`, on the CPU in compiled loops.
    """
    _require_rows(x, weight)
    if _is_compiled(x, weight):
        return _Compiled.apply(x, weight, p)  # type: ignore[no-any-return, no-untyped-call]
    return plain_distances(x, weight, p)


def _require_rows(x: Tensor, weight: Tensor) -> None:
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(
            f"expected rows of {weight.shape[-1]} numbers, as the points have, got shape {tuple(x.shape)}; flatten "
            "images first, and build the layer for their size"
        )


def _is_compiled(x: Tensor, weight: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and x.dtype == weight.dtype


def cheap_norm(p: float) -> float:
    """The largest p' <= p of the form 1 + 2^k or 1 + 3 * 2^k, from 3 to 1 + 2^20; inf for inf.

    Gradients then are powers p' - 1 = 2^k or 3 * 2^k, which take k and k + 2 multiplications.
    """
    if p == INF:
        return p
    exponent = min(MOST, max(2, int(p - 1)))
    power = 1 << exponent.bit_length() - 1
    return float(1 + (power * 3 // 2 if 2 * exponent >= 3 * power else power))


def plain_distances(x: Tensor, weight: Tensor, p: float = INF) -> Tensor:
    """`distances` in torch's own operations: for GPUs, and to check the compiled loops with."""
    p = cheap_norm(p)
    step = max(1, CHUNK // max(1, x.numel()))
    return torch.cat([_plain(x, part, p) for part in torch.split(weight, step)], dim=1)


def _plain(x: Tensor, weight: Tensor, p: float) -> Tensor:
    differences = (x[:, None] - weight).abs()
    greatest = differences.amax(dim=2)
    if p == INF:
        return greatest
    unit = greatest.detach().clamp_min(TINY)
    ratios = (differences / unit[:, :, None]).clamp_min(2 ** (-LEAST_BITS / (p - 1)))
    return unit * ratios.pow(p).sum(dim=2).pow(1 / p)


def sorted_distances(x: Tensor, weight: Tensor, shares: Tensor) -> Tensor:
    """(rows, outputs): the sum of shares[k] times the k-th greatest |x[b, i] - weight[j, i]|; differentiable in both.

    Where there are fewer inputs than shares, the rest counts as 0. The terms are added in the order of the shares.
    """
    greatest = sorted_differences(x, weight, len(shares))
    total: Tensor = shares[0] * greatest[:, 0]
    for k in range(1, len(shares)):
        total = total + shares[k] * greatest[:, k]
    return total


def sorted_differences(x: Tensor, weight: Tensor, ranks: int) -> Tensor:
    """(rows, ranks, outputs): the greatest |x[b, i] - weight[j, i]|, downwards; 0 where there are too few inputs."""
    _require_rows(x, weight)
    if _is_compiled(x, weight):
        return _CompiledSort.apply(x, weight, ranks)  # type: ignore[no-any-return, no-untyped-call]
    return plain_sorted_differences(x, weight, ranks)


def plain_sorted_differences(x: Tensor, weight: Tensor, ranks: int) -> Tensor:
    """`sorted_differences` in torch's own operations: for GPUs, and to check the compiled loops with."""
    found, step = min(ranks, x.shape[1]), max(1, CHUNK // max(1, x.numel()))
    parts = [(x[:, None] - part).abs().topk(found, dim=2).values for part in torch.split(weight, step)]
    return F.pad(torch.cat(parts, dim=1), (0, ranks - found)).transpose(1, 2)


class _Compiled(torch.autograd.Function):
    """`distances` in compiled loops; the weights are turned so that the loops run along the outputs.

    Rows are shared out among torch's threads. The gradient of the weights is the sum of the threads' in their order.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, p: float) -> Tensor:
        p = cheap_norm(p)
        rows, turned = _even(x.detach()), _even(weight.detach().T)[:, : len(weight)].contiguous()
        out = torch.empty(len(rows), len(weight), dtype=x.dtype)
        x_, w_, out_ = rows.numpy(), turned.numpy(), out.numpy()
        shares = _shares(len(rows))
        _each(shares, lambda _, part: kernels.greatest(x_[part], w_, out_[part]))
        if p < INF:
            unit, sums = out.clamp_(min=TINY), torch.empty_like(out)
            unit_, sums_, least, kernel = unit.numpy(), sums.numpy(), _least(p, x.dtype), kernels.power_sums(int(p) - 1)
            _each(shares, lambda _, part: kernel(x_[part], w_, unit_[part], least, sums_[part]))
            out = unit * sums.pow(1 / p)
        ctx.p, ctx.shape = p, x.shape
        ctx.save_for_backward(rows, turned, out)
        result = out[: len(x)].clone()
        result[x.detach().isnan().any(dim=1)] = math.nan  # the loops skip what is not a number
        result[:, weight.detach().isnan().any(dim=1)] = math.nan
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, turned, out = ctx.saved_tensors
        count, inputs = ctx.shape
        shares = _shares(len(rows))
        to_x, to_weight = torch.zeros_like(rows), turned.new_zeros(len(shares), *turned.shape)
        gradient = F.pad(gradients[0], (0, 0, 0, len(rows) - count)).contiguous().numpy()
        x_, w_, out_, to_x_, to_w_ = (value.numpy() for value in (rows, turned, out, to_x, to_weight))

        def add_gradients(number: int, part: slice) -> None:
            ends = gradient[part], to_x_[part], to_w_[number]
            if ctx.p == INF:
                index = np.zeros(out_[part].shape, np.int32)
                kernels.attaining(x_[part], w_, out_[part], index)
                kernels.spread_gradient(x_[part], w_, index, *ends)
            else:
                kernel = kernels.power_gradients(int(ctx.p) - 1)
                kernel(x_[part], w_, out_[part], _least(ctx.p, out.dtype), *ends)

        _each(shares, add_gradients)
        return to_x[:count, :inputs], to_weight.sum(dim=0)[:inputs].T, None


class _CompiledSort(torch.autograd.Function):
    """The greatest differences, downwards, in compiled loops; a gradient goes to the one input that attains each."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ranks: int) -> Tensor:
        rows, turned = x.detach().contiguous(), weight.detach().T.contiguous()
        out = torch.empty(len(rows), ranks, len(weight), dtype=x.dtype)
        x_, w_, out_ = rows.numpy(), turned.numpy(), out.numpy()
        _each(_shares(len(rows)), lambda _, part: kernels.sorted_greatest(x_[part], w_, out_[part]))
        ctx.save_for_backward(rows, turned, out)
        result = out.clone()
        result[x.detach().isnan().any(dim=1)] = math.nan  # the loops skip what is not a number
        result[:, :, weight.detach().isnan().any(dim=1)] = math.nan
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, turned, out = ctx.saved_tensors
        to_x, to_weight = torch.zeros_like(rows), torch.zeros_like(turned)
        x_, w_ = rows.numpy(), turned.numpy()
        for k in range(min(out.shape[1], rows.shape[1])):
            index = np.zeros(out[:, k].shape, np.int32)
            kernels.attaining(x_, w_, out[:, k].contiguous().numpy(), index)
            gradient = gradients[0][:, k].contiguous().numpy()
            kernels.spread_gradient(x_, w_, index, gradient, to_x.numpy(), to_weight.numpy())
        return to_x, to_weight.T, None


def _shares(rows: int) -> list[slice]:
    """The rows in as many even parts as torch has threads, the last odd if they are; a few rows are not worth one."""
    parts = max(1, min(torch.get_num_threads(), rows // 16))
    ends = [2 * (rows // 2 * part // parts) for part in range(parts)]
    return [slice(start, end) for start, end in pairwise([*ends, rows])]


def _each(shares: list[slice], work: Callable[[int, slice], None]) -> None:
    """Work on every share, each in a thread of its own: compiled loops run beside each other."""
    if len(shares) == 1:
        work(0, shares[0])
        return
    with ThreadPoolExecutor(len(shares)) as threads:
        list(threads.map(work, range(len(shares)), shares))


def _even(x: Tensor) -> Tensor:
    """The matrix with a row and a column of zeros more where their number is odd: they add a distance of 0."""
    return F.pad(x, (0, x.shape[1] % 2, 0, x.shape[0] % 2)).contiguous()


def _least(p: float, dtype: torch.dtype) -> Any:
    return (np.float32 if dtype == torch.float32 else np.float64)(2 ** (-LEAST_BITS / (p - 1)))
