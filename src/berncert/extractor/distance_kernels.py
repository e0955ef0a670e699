"""Compiled loops over all distances |x_i - w_ij| of a batch to the weights of a layer, on the CPU.

Arrays are `x` (rows, inputs) and `weight` (inputs, outputs); every inner loop runs along the outputs, where numbers lie
side by side, for two rows at once: rows and inputs are even in number, and zeros may fill them up. `greatest`,
`sorted_greatest` and `attaining` also serve what is certified: they only subtract, compare and copy, in the order that
is written. The others are for training, with fast-math.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import numba
import numpy as np

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def exact(function: Kernel) -> Kernel:
    """Compiled when first called, and kept on disk; no operation is reordered."""
    return _compiled(function, fastmath=False)


def fast(function: Kernel) -> Kernel:
    """Compiled when first called, and kept on disk, with fast-math: for training only."""
    return _compiled(function, fastmath=True)


def _compiled(function: Kernel, **options: Any) -> Kernel:
    compiled: Any = None
    with suppress(RuntimeError):  # there is no folder to keep it in that can be written to
        compiled = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    if compiled is None:
        compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
    kernel: Kernel = compiled
    return kernel


@exact
def greatest(x: Any, weight: Any, out: Any) -> None:
    """out[b, j] = the greatest |x[b, i] - weight[i, j]|; a distance that is not a number counts as 0."""
    rows, inputs = x.shape
    for b in range(0, rows, 2):
        first, second = out[b], out[b + 1]
        first[:] = 0
        second[:] = 0
        for i in range(0, inputs, 2):
            v, w = weight[i], weight[i + 1]
            xv, xw, yv, yw = x[b, i], x[b, i + 1], x[b + 1, i], x[b + 1, i + 1]
            for j in range(len(v)):
                m = first[j]
                d = abs(xv - v[j])
                m = d if d > m else m
                d = abs(xw - w[j])
                first[j] = d if d > m else m
                m = second[j]
                d = abs(yv - v[j])
                m = d if d > m else m
                d = abs(yw - w[j])
                second[j] = d if d > m else m


@exact
def sorted_greatest(x: Any, weight: Any, out: Any) -> None:
    """out[b, k, j] = the k-th greatest |x[b, i] - weight[i, j]|, as many as out has room for; 0 where i runs out."""
    rows, inputs = x.shape
    moving = np.empty_like(weight[0])
    out[:] = 0
    for b in range(rows):
        for i in range(inputs):
            w, a = weight[i], x[b, i]
            for j in range(len(w)):
                moving[j] = abs(a - w[j])
            for k in range(out.shape[1]):  # the new distance takes its place, and the smaller one moves on
                kept = out[b, k]
                for j in range(len(w)):
                    d, m = moving[j], kept[j]
                    high = d if d > m else m
                    low = m if d > m else d
                    kept[j] = high
                    moving[j] = low


@exact
def attaining(x: Any, weight: Any, distance: Any, out: Any) -> None:
    """out[b, j] = an input i at which |x[b, i] - weight[i, j]| is the distance; out starts with zeros."""
    rows, inputs = x.shape
    for b in range(rows):
        wanted, found = distance[b], out[b]
        for i in range(inputs):
            w, a = weight[i], x[b, i]
            for j in range(len(w)):
                found[j] = i if abs(a - w[j]) == wanted[j] else found[j]


@exact
def spread_gradient(x: Any, weight: Any, index: Any, gradient: Any, to_x: Any, to_weight: Any) -> None:
    """Add each distance's gradient to the one input, and subtract it from the one weight, that attain the distance."""
    rows, outputs = index.shape
    for b in range(rows):
        for j in range(outputs):
            i = index[b, j]
            pull = np.copysign(gradient[b, j], x[b, i] - weight[i, j])
            pull = pull if gradient[b, j] >= 0 else -pull
            to_x[b, i] += pull
            to_weight[i, j] -= pull


@fast
def _power(r: Any, odd: int, squarings: int) -> Any:
    """r^(odd * 2^squarings); where both are constants, the multiplications are written out."""
    t = r
    for _ in range(odd - 1):
        t = t * r
    for _ in range(squarings):
        t = t * t
    return t


def _factors(exponent: int) -> tuple[int, int]:
    """(odd, k) with exponent = odd * 2^k."""
    squarings = (exponent & -exponent).bit_length() - 1
    return exponent >> squarings, squarings


@cache
def power_sums(exponent: int) -> Callable[..., None]:
    """The loop for out[b, j] = sum over i of max(|x[b, i] - weight[i, j]| / unit[b, j], least)^(exponent + 1)."""
    odd, squarings = _factors(exponent)

    @fast
    def sums(x: Any, weight: Any, unit: Any, least: Any, out: Any) -> None:
        rows, inputs = x.shape
        inverse = 1 / unit
        for b in range(0, rows, 2):
            first, second, f, s = out[b], out[b + 1], inverse[b], inverse[b + 1]
            first[:] = 0
            second[:] = 0
            for i in range(0, inputs, 2):
                v, w = weight[i], weight[i + 1]
                xv, xw, yv, yw = x[b, i], x[b, i + 1], x[b + 1, i], x[b + 1, i + 1]
                for j in range(len(v)):
                    c = max(abs(xv - v[j]) * f[j], least)
                    d = max(abs(xw - w[j]) * f[j], least)
                    first[j] += _power(c, odd, squarings) * c + _power(d, odd, squarings) * d
                    c = max(abs(yv - v[j]) * s[j], least)
                    d = max(abs(yw - w[j]) * s[j], least)
                    second[j] += _power(c, odd, squarings) * c + _power(d, odd, squarings) * d

    return sums


@cache
def power_gradients(exponent: int) -> Callable[..., None]:
    """The loop that adds gradient[b, j] * sign(d) max(|d|, least)^exponent, d = (x[b, i] - weight[i, j]) / unit[b, j].

    It is added to to_x[b, i] and subtracted from to_weight[i, j].
    """
    odd, squarings = _factors(exponent)

    @fast
    def gradients(x: Any, weight: Any, unit: Any, least: Any, gradient: Any, to_x: Any, to_weight: Any) -> None:
        rows, inputs = x.shape
        inverse = 1 / unit
        for b in range(0, rows, 2):
            f, s, g, h = inverse[b], inverse[b + 1], gradient[b], gradient[b + 1]
            for i in range(inputs):
                w, to_w, a, c = weight[i], to_weight[i], x[b, i], x[b + 1, i]
                first = second = a - a
                for j in range(len(w)):
                    d, e = (a - w[j]) * f[j], (c - w[j]) * s[j]
                    d = np.copysign(_power(max(abs(d), least), odd, squarings), d) * g[j]
                    e = np.copysign(_power(max(abs(e), least), odd, squarings), e) * h[j]
                    first += d
                    second += e
                    to_w[j] -= d + e
                to_x[b, i] += first
                to_x[b + 1, i] += second

    return gradients
