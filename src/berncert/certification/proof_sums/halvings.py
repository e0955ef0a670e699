"""Terms halved by themselves within a box, until no coefficient is below what is claimed of their least values."""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.recorded_reason import POSITIVE
from berncert.certification.proof_sums.terms import Group, split
from berncert.foundation.arrays import Floats

DEEPEST = 14
"""Halvings of a term by itself, for each of its axes."""
MOST = 4096
"""Parts of the terms of a group at once, for each of their axes."""


def divide(group: Group, dim: int, rest: Floats, targets: Floats, trees: list[list[int]]) -> bool:
    """Halve each term by itself until no coefficient is below its target; False if that takes too many halvings.

    rest: the terms less Q, (T, n_1 + 1, ...). trees: where the tags of each term of the head go. Terms in all `dim`
    axes of the box are not halved by themselves.
    """
    m = group.axes.shape[1]
    if m == dim:
        return bool((rest.reshape(len(rest), -1).min(axis=1) >= targets).all())
    nets, owner, paths = rest, np.arange(len(rest)), [""] * len(rest)
    cuts: list[dict[str, int]] = [{} for _ in range(len(rest))]
    for _ in range(DEEPEST * m):
        low = nets.reshape(len(nets), -1).min(axis=1) < targets[owner]
        if not low.any():
            break
        which = np.flatnonzero(low)
        nets, owner, paths = nets[which], owner[which], [paths[i] for i in which]
        bends = np.stack([_bend(nets, place) for place in range(m)], axis=1)
        axes = bends.argmax(axis=1)
        for i, path in enumerate(paths):
            cuts[owner[i]][path] = int(axes[i])
        lower, upper = split(nets, axes)
        nets, owner = np.concatenate([lower, upper]), np.concatenate([owner, owner])
        paths = [path + "0" for path in paths] + [path + "1" for path in paths]
        if len(nets) > MOST * m:
            return False
    else:
        return False
    for place, cut in zip(group.places, cuts, strict=True):
        _preorder(cut, "", trees[place])
    return True


def _bend(nets: Floats, place: int) -> Floats:
    """How much each net bends, or along axes of degree 1 how much it turns, along one axis."""
    first = np.diff(nets, axis=place + 1)
    every = tuple(range(1, nets.ndim))
    turned = first.shape[place + 1] == 1
    second = first - first.mean(axis=every, keepdims=True) if turned else np.diff(first, axis=place + 1)
    found: Floats = np.abs(second).sum(axis=every)
    return found


def _preorder(cut: dict[str, int], path: str, out: list[int]) -> None:
    if path in cut:
        out.append(cut[path])
        _preorder(cut, path + "0", out)
        _preorder(cut, path + "1", out)
    else:
        out.append(POSITIVE)
