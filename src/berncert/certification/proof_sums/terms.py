"""Terms of the same degrees, side by side: their values, slopes, and coefficients on smaller boxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch

from berncert.foundation.arrays import Floats, Ints
from berncert.polynomial import bernstein


class Group(NamedTuple):
    """Terms of the same degrees, side by side."""

    places: Ints
    """(T,): which terms of the head they are."""
    axes: Ints
    """(T, m)"""
    coefficients: Floats
    """(T, n_1 + 1, ..., n_m + 1), on the box at hand."""


def free_axes(group: Group) -> Floats:
    """Along which axes of the group its terms can have squares."""
    return np.array([float(size > 2) for size in group.coefficients.shape[1:]])


@cache
def basis(degree: int, count: int) -> Floats:
    """(count, degree + 1): the Bernstein polynomials at points from 0 to 1."""
    found: Floats = bernstein.basis(degree, torch.linspace(0, 1, count, dtype=torch.float64)).numpy()
    return found


def restrictions(degree: int, low: Floats, high: Floats) -> Floats:
    """(N, degree + 1, degree + 1): the matrices from coefficients on [0, 1] to those on [low, high], (N,) each."""
    ends = (torch.from_numpy(end)[:, None, None] for end in (low, high))
    found: Floats = bernstein.interval_weights(degree, *ends).numpy()
    return found


@cache
def _halving(n: int) -> tuple[Floats, Floats]:
    lower, upper = restrictions(n, np.array([0.0, 0.5]), np.array([0.5, 1.0]))
    return lower, upper


def split(nets: Floats, axes: Ints) -> tuple[Floats, Floats]:
    """The lower and the upper half of each net along its own axis."""
    lower, upper = np.empty_like(nets), np.empty_like(nets)
    for place in set(axes.tolist()):
        which = axes == place
        for out, matrix in zip((lower, upper), _halving(nets.shape[place + 1] - 1), strict=True):
            out[which] = np.moveaxis(np.tensordot(nets[which], matrix, (place + 1, 1)), -1, place + 1)
    return lower, upper


def derivatives(group: Group, y: Floats) -> tuple[Floats, Floats]:
    """Slopes (T, m) and second derivatives (m, m, T) of the terms at a point y in [-1, 1]^d."""
    count, m = group.axes.shape
    slopes, seconds = np.zeros((count, m)), np.zeros((m, m, count))
    at = 0.5 * (1 + y[group.axes])
    for i in range(m):
        slopes[:, i] = 0.5 * _value(_derived(group.coefficients, (i,)), at)
        for j in range(i, m):
            seconds[i, j] = seconds[j, i] = 0.25 * _value(_derived(group.coefficients, (i, j)), at)
    return slopes, seconds


def _derived(nets: Floats, places: Sequence[int]) -> Floats:
    for place in places:
        n = nets.shape[place + 1] - 1
        nets = n * np.diff(nets, axis=place + 1) if n else 0 * nets
    return nets


def _value(nets: Floats, at: Floats) -> Floats:
    """Each net at its own point, (T, m) in [0, 1]."""
    for place in range(at.shape[1]):
        weights = bernstein.basis(nets.shape[1] - 1, torch.from_numpy(at[:, place])).numpy()
        nets = np.einsum("tk,tk...->t...", weights, nets)
    return nets


def below_nodes(tables: Floats, where: Ints) -> Floats:
    """How far below their least entries on a grid the least values are about, by a parabola along each axis."""
    every, fall = np.arange(len(tables)), np.zeros(len(tables))
    for place in range(where.shape[1]):
        ends = []
        for way in (-1, 0, 1):
            at = where.copy()
            at[:, place] = np.clip(at[:, place] + way, 0, tables.shape[place + 1] - 1)
            ends.append(tables[(every, *at.T)])
        bend = ends[0] - 2 * ends[1] + ends[2]
        inside = (where[:, place] > 0) & (where[:, place] < tables.shape[place + 1] - 1) & (bend > 0)
        fall += np.where(inside, (ends[2] - ends[0]) ** 2 / (8 * np.where(inside, bend, 1.0)), 0.0)
    return fall
