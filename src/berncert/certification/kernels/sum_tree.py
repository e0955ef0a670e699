"""Compiled kernels: a tree of boxes, of which the one with the least bound is looked at next.

A box is kept as the cut that made it from its parent: a path back to the root says it all, in any dimension.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from berncert.certification.kernels.compiled import part
from berncert.certification.kernels.sum_problem import SumMemory
from berncert.certification.kernels.tensor import copy
from berncert.foundation.arrays import Floats, Ints

ENDS = 8  # intervals that there is room for, for each box
KEPT = 0.9  # of its width; an interval that was shortened less is not kept
ROOT, FINAL = -2, -1
"""Instead of the axis to halve: a box that was not looked at yet, and one that cannot be halved."""


class Tree(NamedTuple):
    """Boxes by number; the heap holds the numbers of those that are open."""

    heap: Ints
    counts: Ints
    """(3,): of the boxes, of those on the heap, and of the intervals."""
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
    first_end: Ints
    last_end: Ints
    """Which of the intervals below belong to a box, inside which its ends were moved."""
    end_axis: Ints
    end_low: Floats
    end_high: Floats


def allocate_tree(boxes: int) -> Tree:
    """Room for so many boxes; what is never touched is never given by the operating system."""

    def ints(count: int = boxes) -> Ints:
        return np.empty(count, np.int64)

    def floats(count: int = boxes) -> Floats:
        return np.empty(count)

    ends = ENDS * boxes
    return Tree(
        heap=ints(), counts=np.zeros(3, np.int64), parent=ints(), cut_axis=ints(), cut_low=floats(), cut_high=floats(),
        rival=ints(), bound=floats(), price=floats(), axis=ints(), place=floats(), first_end=ints(), last_end=ints(),
        end_axis=ints(ends), end_low=floats(ends), end_high=floats(ends),
    )  # fmt: skip


@part
def plant(tree: Tree, parent: int, axis: int, low: float, high: float, rival: int, bound: float, price: float) -> int:
    """A new box: its number. It is not on the heap yet."""
    i = tree.counts[0]
    tree.counts[0] += 1
    tree.parent[i], tree.cut_axis[i], tree.cut_low[i], tree.cut_high[i] = parent, axis, low, high
    tree.rival[i], tree.bound[i], tree.price[i], tree.axis[i], tree.place[i] = rival, bound, price, ROOT, 0.0
    tree.first_end[i] = tree.last_end[i] = tree.counts[2]
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
def find_box(tree: Tree, box: int, low: Floats, high: Floats, memory: SumMemory) -> bool:
    """Make a box of the tree, whose root's box is low to high, the one at hand.

    Whether ends of it were moved: then it is less than was halved, without points that are not near enough to matter.
    """
    box_low, box_high = memory.box_low, memory.box_high
    copy(low, low.size, box_low)
    copy(high, high.size, box_high)
    moved = False
    while box >= 0:
        j = tree.cut_axis[box]
        if j >= 0:
            box_low[j] = max(box_low[j], tree.cut_low[box])
            box_high[j] = min(box_high[j], tree.cut_high[box])
        for i in range(tree.first_end[box], tree.last_end[box]):
            moved = True
            j = tree.end_axis[i]
            box_low[j] = max(box_low[j], tree.end_low[i])
            box_high[j] = min(box_high[j], tree.end_high[i])
        box = tree.parent[box]
    copy(box_low, low.size, memory.path_low)
    copy(box_high, low.size, memory.path_high)
    return moved


@part
def keep_ends(tree: Tree, box: int, memory: SumMemory) -> bool:
    """Remember where the ends of the box at hand were moved, as far as there is room; whether any were."""
    moved = False
    tree.first_end[box] = tree.counts[2]
    for j in range(memory.box_low.size):
        low, high = memory.box_low[j], memory.box_high[j]
        if low > memory.path_low[j] or high < memory.path_high[j]:
            moved = True
            much = high - low < KEPT * (memory.path_high[j] - memory.path_low[j])
            if much and tree.counts[2] < tree.end_axis.size:
                i = tree.counts[2]
                tree.counts[2] += 1
                tree.end_axis[i], tree.end_low[i], tree.end_high[i] = j, low, high
    tree.last_end[box] = tree.counts[2]
    return moved
