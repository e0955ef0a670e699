"""What each term takes over of the distance: a quadratic function Q of its axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from berncert.certification.proof_sums.terms import Group, derivatives, free_axes
from berncert.foundation.arrays import Floats


class Share(NamedTuple):
    """The Q of each term of a group: slopes (T, m), squares (T, m), products of pairs of its axes (T,)."""

    steep: Floats
    bent: Floats
    twist: dict[tuple[int, int], Floats]


def as_written(values: Floats) -> Floats:
    """As hints are written: in single precision."""
    return values.astype(np.float32).astype(np.float64)


def first_shares(groups: list[Group], terms: Floats, y: Floats, bend: Floats, slope: Floats) -> list[Share]:
    """For each group the slopes, squares and products of the Q of its terms.

    slope and bend of each axis are handed to its terms, with a minus: to each its own derivatives at the point y,
    and an equal part of what is left. Along an axis of degree 1 there are no squares; there Q has the products.
    terms: how many of them each axis has.
    """
    total, load, count, curved = slope.copy(), bend.copy(), np.zeros(len(y)), bool(bend.any())
    each = [derivatives(group, y) for group in groups]
    strong, joint = 2 * bend, np.zeros(len(y))  # the second derivatives along each axis, and with others
    for group, (_, seconds) in zip(groups, each, strict=True):
        for j in range(len(seconds)):
            np.add.at(strong, group.axes[:, j], seconds[j, j])
            for i in range(j):
                np.add.at(joint, group.axes[:, i], np.abs(seconds[i, j]))
                np.add.at(joint, group.axes[:, j], np.abs(seconds[i, j]))
    bear, parts = np.clip(strong / np.maximum(joint, 1e-300), 1e-3, 1e3), []
    for group, (slopes, seconds) in zip(groups, each, strict=True):
        axes, free, own, twist = group.axes, free_axes(group), np.zeros_like(slopes), {}
        for j in range(axes.shape[1]):
            own[:, j] += 0.5 * seconds[j, j]
            for i in range(j):
                harm = 0.5 * np.abs(seconds[i, j])
                if free[i] and free[j] and curved:
                    ratio = np.sqrt(bear[axes[:, i]] / bear[axes[:, j]])
                    own[:, i] -= harm * ratio
                    own[:, j] -= harm / ratio
                else:
                    twist[i, j] = as_written(seconds[i, j] * curved)
                    np.add.at(load, axes[:, i], -harm * curved)  # what the products need stays with the distance
                    np.add.at(load, axes[:, j], -harm * curved)
        own = own * free
        parts.append((slopes, own, twist, free))
        np.add.at(total, axes, slopes)
        np.add.at(load, axes, own)
        np.add.at(count, axes, np.broadcast_to(free, axes.shape).astype(float))
    found = []
    for group, (slopes, own, twist, free) in zip(groups, parts, strict=True):
        axes = group.axes
        bent = (own - load[axes] / np.maximum(count[axes], 1)) * free * curved
        steep = slopes - (total / np.maximum(terms, 1))[axes] - 2 * bent * y[axes]
        for (i, j), v in twist.items():  # a product has slopes at y, too
            steep[:, i] -= v * y[axes[:, j]]
            steep[:, j] -= v * y[axes[:, i]]
        found.append(Share(steep, bent, twist))
    return found


def improve(
    shares: list[Share], groups: list[Group], terms: Floats, least: list[Floats], y: Floats,
    *, missing: float, price: float, curved: bool,
) -> None:  # fmt: skip
    """Move slopes and squares between the terms of an axis, such that terms are least nearer to the same point.

    least: for each group where its terms are, (T, m). They move about so far that nothing is missing at this price.
    """
    ways, size, d = [], 0.0, len(y)
    sums, squares, free_count = np.zeros(d), np.zeros(d), np.zeros(d)
    for group, where in zip(groups, least, strict=True):
        u, free = where - y[group.axes], free_axes(group)
        np.add.at(sums, group.axes, u)
        np.add.at(squares, group.axes, u * u * free)
        np.add.at(free_count, group.axes, np.broadcast_to(free, u.shape).astype(float))
    for group, where in zip(groups, least, strict=True):
        axes, free = group.axes, free_axes(group) * curved
        u = where - y[axes]
        tilt = (sums / np.maximum(terms, 1))[axes] - u
        bow = ((squares / np.maximum(free_count, 1))[axes] - u * u) * free
        ways.append((tilt, bow))
        size += float((tilt**2).sum() + (bow**2).sum())
    if size > 0:
        for group, share, (tilt, bow) in zip(groups, shares, ways, strict=True):
            step = missing / (price * size)
            share.steep[:] += step * (tilt - 2 * bow * y[group.axes])
            share.bent[:] += step * bow


def quadratic_net(sizes: Sequence[int], steep: Floats, bent: Floats, twist: dict[tuple[int, int], Floats]) -> Floats:
    """(T, n_1 + 1, ...): the coefficients of Q of each term."""
    lines = [(2 * np.arange(s) - (s - 1)) / (s - 1) for s in sizes]
    squares = [1 + 4 * np.arange(s) * (np.arange(s) - (s - 1)) / ((s - 1) * (s - 2)) if s > 2 else 0 * line
               for s, line in zip(sizes, lines, strict=True)]  # fmt: skip
    return _laid(lines, squares, steep, bent, twist)


def quadratic_values(
    nodes: Floats, m: int, steep: Floats, bent: Floats, twist: dict[tuple[int, int], Floats]
) -> Floats:
    """(T, nodes, ..., nodes): its values."""
    return _laid([nodes] * m, [nodes**2] * m, steep, bent, twist)


def _laid(
    lines: list[Floats], squares: list[Floats], steep: Floats, bent: Floats, twist: dict[tuple[int, int], Floats]
) -> Floats:
    m = len(lines)

    def along(values: Floats, place: int) -> Floats:
        return values.reshape((1,) + (1,) * place + (-1,) + (1,) * (m - 1 - place))

    def each(values: Floats) -> Floats:
        return values.reshape((-1,) + (1,) * m)

    total: Floats = np.zeros((len(steep), *(len(line) for line in lines)))
    for j in range(m):
        total = total + each(steep[:, j]) * along(lines[j], j) + each(bent[:, j]) * along(squares[j], j)
    for (i, j), v in twist.items():
        total = total + each(v) * along(lines[i], i) * along(lines[j], j)
    return total
