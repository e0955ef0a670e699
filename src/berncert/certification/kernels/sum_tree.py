"""Compiled kernels: a tree of boxes, of which the one with the least bound is looked at next.

A box is kept as the cut that made it from its parent: a path back to the root says it all, in any dimension.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from berncert.certification.kernels.compiled import part
from berncert.certification.kernels.tensor import copy
from berncert.foundation.arrays import Floats, Ints

ROOT, FINAL = -2, -1
"""Instead of the axis to halve: a box that was not looked at yet, and one that cannot be halved."""


class Tree(NamedTuple):
    """Boxes by number; the heap holds the numbers of those that are open."""

    heap: Ints
    counts: Ints
    """(2,): of the boxes, and of those on the heap."""
    parent: Ints
    cut_axis: Ints
    cut_low: Floats
    cut_high: Floats
    """The part of the parent's box along the axis."""
    rival: Ints
    bound: Floats
    price: Floats
    axis: Ints
    """Where to halve it: the axis, ROOT or FINAL,"""
    place: Floats
    """and the place along it."""


def allocate_tree(boxes: int) -> Tree:
    """Room for so many boxes; what is never touched is never given by the operating system."""
    ints = [np.empty(boxes, np.int64) for _ in range(5)]
    floats = [np.empty(boxes) for _ in range(5)]
    counts = np.zeros(2, np.int64)
    return Tree(
        ints[0], counts, ints[1], ints[2], floats[0], floats[1], ints[3], floats[2], floats[3], ints[4], floats[4]
    )


@part
def plant(tree: Tree, parent: int, axis: int, low: float, high: float, rival: int, bound: float, price: float) -> int:
    """A new box: its number. It is not on the heap yet."""
    i = tree.counts[0]
    tree.counts[0] += 1
    tree.parent[i], tree.cut_axis[i], tree.cut_low[i], tree.cut_high[i] = parent, axis, low, high
    tree.rival[i], tree.bound[i], tree.price[i], tree.axis[i], tree.place[i] = rival, bound, price, ROOT, 0.0
    return int(i)


@part
def halve(tree: Tree, box: int, piece: int) -> int:
    """The lower (0) or the upper (1) half of a box, as a new one, which begins with what is proven of the whole."""
    place = tree.place[box]
    low, high = -np.inf if piece == 0 else place, place if piece == 0 else np.inf
    return plant(tree, box, tree.axis[box], low, high, tree.rival[box], tree.bound[box], tree.price[box])


@part
def before_in_heap(tree: Tree, one: int, two: int) -> bool:
    """Boxes with the least bound come first, of equal ones the older."""
    return bool(tree.bound[one] < tree.bound[two] or (tree.bound[one] == tree.bound[two] and one < two))


@part
def push(tree: Tree, box: int) -> None:
    """Put a box on the heap."""
    at = tree.counts[1]
    tree.counts[1] += 1
    while at > 0 and before_in_heap(tree, box, tree.heap[(at - 1) // 2]):
        tree.heap[at] = tree.heap[(at - 1) // 2]
        at = (at - 1) // 2
    tree.heap[at] = box


@part
def pop(tree: Tree) -> int:
    """Take the first box off the heap."""
    first = tree.heap[0]
    tree.counts[1] -= 1
    n = tree.counts[1]
    box = tree.heap[n]
    at = 0
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and before_in_heap(tree, tree.heap[child + 1], tree.heap[child]):
            child += 1
        if not before_in_heap(tree, tree.heap[child], box):
            break
        tree.heap[at] = tree.heap[child]
        at = child
    if n > 0:
        tree.heap[at] = box
    return int(first)


@part
def find_box(tree: Tree, box: int, low: Floats, high: Floats, box_low: Floats, box_high: Floats) -> None:
    """Write a box of the tree, whose root's box is low to high, to box_low and box_high."""
    copy(low, low.size, box_low)
    copy(high, high.size, box_high)
    while tree.parent[box] >= 0:
        j = tree.cut_axis[box]
        box_low[j] = max(box_low[j], tree.cut_low[box])
        box_high[j] = min(box_high[j], tree.cut_high[box])
        box = tree.parent[box]
