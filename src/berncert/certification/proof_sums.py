"""The proofs of sums of small polynomials, written down: boxes, and within a box a look at each term by itself.

For a price of the margin the least of (weighted squared distance) + price * margin over a box separates, once each term
is given a quadratic function of its axes that takes over a part of the distance: what is left of the term is at least
its least value, and what is left of the distance is the same everywhere. Nothing here has to be sound: a checker looks
at every leaf in exact arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from berncert.certification.kernels.recorded_reason import FAR, PLANE, POSITIVE, QUADRATIC, ROOM, Claim
from berncert.foundation.arrays import Floats, Ints

GRIDS = {1: 65, 2: 33, 3: 17}
"""Points along each axis at which a term in so many is looked at; of more axes FEW."""
FEW = 9
PRICES = 40
SWEEPS = 3
CLOSE = 1e-4
"""How closely the price is looked for, relatively."""
EASY = 2.0**-9
"""A bound that is above what is needed by this part needs no better price."""
TURNS = 200
"""How often the shares of the terms are moved."""
AIM, MUCH = 0.6, 0.01
"""... aiming at this part of what can be hoped for, or of what is needed."""
PATIENCE, FASTER = 25, 0.6
"""After so many turns, what is missing must have become less by this factor."""
SPENT = 0.9
"""Of the room that a box leaves, terms may use up this part."""
DEEPEST = 14
"""Halvings of a term by itself, for each of its axes."""
DEEPEST_BOX = 100
MOST_BOXES = 500
"""For each rival of a row."""


class Group(NamedTuple):
    """Terms of the same degrees, side by side."""

    places: Ints
    """(T,): which terms of the head they are."""
    axes: Ints
    """(T, m)"""
    coefficients: Floats
    """(T, n_1 + 1, ..., n_m + 1), on the box at hand."""


@dataclass(frozen=True)
class SumBox:
    """A box, and the margin on it."""

    low: Floats
    high: Floats
    groups: list[Group]
    price: float
    point: Floats
    """Where a counterexample is likely."""
    depth: int = 0


class Look(NamedTuple):
    """What was found about a box: a tag, the tags of terms, hints; or, with the tag -1, the axis to halve."""

    tag: int
    tags: list[int]
    hints: list[float]
    axis: int = -1
    price: float = 0.0
    point: Floats | None = None


class Share(NamedTuple):
    """The Q of each term of a group: slopes (T, m), squares (T, m), products of pairs of its axes (T,)."""

    steep: Floats
    bent: Floats
    twist: dict[tuple[int, int], Floats]


class Bound(NamedTuple):
    """What is proven of a box with some shares."""

    room: float
    """By how much more than needed."""
    size: float
    shares: list[Share]
    rests: list[Floats]
    """The coefficients of the terms less Q."""
    gaps: list[Floats]
    """Their least values, about,"""
    where: list[Ints]
    """and the nodes nearest to them."""
    at: Floats


class SumTree:
    """The tree of one rival: of the margin slope . x + constant + the terms of the groups on the unit cube."""

    def __init__(self, slope: Floats, constant: float, groups: Sequence[Group], claim: Claim, near: Floats) -> None:
        self.slope, self.constant, self.claim, self.near = slope, constant, claim, near
        self.groups, self.terms = groups, sum(len(group.places) for group in groups)
        widest = max((group.axes.shape[1] for group in groups), default=1)
        self.nodes = np.linspace(-1.0, 1.0, GRIDS.get(widest, FEW))

    def write(self, most: int) -> tuple[list[int], list[float]] | None:
        """Tags and hints in preorder; None where no proof was found with so many boxes."""
        tags: list[int] = []
        hints: list[float] = []
        boxes = [self._first()]
        for _ in range(most):
            if not boxes:
                return tags, hints
            box = boxes.pop()
            found = self._look(box)
            if found.tag < 0:
                if box.depth >= DEEPEST_BOX or not 0 <= found.axis < POSITIVE:
                    return None
                tags.append(found.axis)
                boxes.extend(reversed(_halves(box, found)))
            else:
                tags += [found.tag, *found.tags]
                hints += found.hints
        return None

    def _first(self) -> SumBox:
        low, high = self.claim.low, self.claim.high
        groups = []
        for group in self.groups:
            c = group.coefficients
            for place in range(group.axes.shape[1]):
                n = c.shape[place + 1] - 1
                axes = group.axes[:, place]
                cut = np.array([_restriction(n, low[j], high[j]) for j in axes]).reshape(len(axes), n + 1, n + 1)
                c = np.moveaxis(np.einsum("tab,tb...->ta...", cut, np.moveaxis(c, place + 1, 1)), 1, place + 1)
            groups.append(group._replace(coefficients=c))
        return SumBox(low, high, groups, 0.0, np.clip(self.near, low, high))

    def _look(self, box: SumBox) -> Look:
        claim = self.claim
        half = 0.5 * (box.high - box.low)
        middle = 0.5 * (box.low + box.high)
        steep = self.slope * half
        constant = self.constant + float(self.slope @ middle) - claim.floor
        size = 1.0 + abs(constant) + float(np.abs(steep).sum())
        least = constant - float(np.abs(steep).sum())
        least += sum(float(g.coefficients.reshape(len(g.places), -1).min(axis=1).sum()) for g in box.groups)
        if least > ROOM * size:
            return Look(POSITIVE, [], [])
        c, h = claim.weight * (middle - claim.x0), claim.weight * half
        t = np.maximum(0.0, np.abs(c) - h)
        if claim.radius < math.inf and _length(t, claim.norm) > claim.radius * (1 + ROOM):
            return Look(FAR, [], [])
        return Relaxation(self, box, c, h, steep, constant).look()


class Relaxation:
    """A box, the margin steep . y + constant + terms on it, and its distances c + h y."""

    def __init__(self, tree: SumTree, box: SumBox, c: Floats, h: Floats, steep: Floats, constant: float) -> None:
        self.tree, self.box, self.c, self.h, self.steep, self.constant = tree, box, c, h, steep, constant
        self.nodes, d = tree.nodes, len(c)
        self.lines = steep[:, None] * self.nodes
        self.tables = []
        self.joined: list[list[tuple[Floats, Ints, int]]] = [[] for _ in range(d)]
        for group in box.groups:
            values = group.coefficients
            for place, size in enumerate(values.shape[1:]):
                values = np.moveaxis(
                    np.tensordot(values, _basis(size - 1, len(self.nodes)), (place + 1, 1)), -1, place + 1
                )
            self.tables.append(values)
            if group.axes.shape[1] == 1:
                np.add.at(self.lines, group.axes[:, 0], values)
            else:
                for axes, table in zip(group.axes, values, strict=True):
                    for place, j in enumerate(axes):
                        self.joined[j].append((table, axes, place))
        self.count = np.zeros(d)
        for group in box.groups:
            np.add.at(self.count, group.axes.reshape(-1), 1)
        width = np.where(half_width := 0.5 * (box.high - box.low), half_width, 1.0)
        start = np.clip((box.point - 0.5 * (box.low + box.high)) / width, -1, 1)
        self.index = np.rint((start + 1) / 2 * (len(self.nodes) - 1)).astype(np.int64)

    def look(self) -> Look:
        """A reason, or the axis to halve."""
        radius, p = self.tree.claim.radius, self.tree.claim.norm
        if radius == math.inf:
            self._sweep(np.zeros_like(self.lines), 1.0)
            return self._try(np.zeros(len(self.c)), 1.0, 0.0, self.value)
        squares = self._weights(p, radius)
        cost = squares[:, None] * (self.c[:, None] + self.h[:, None] * self.nodes) ** 2
        price, bound, ends = self._price(cost, radius * radius)
        return self._try(squares, price, radius * radius, bound - radius * radius, ends)

    def _weights(self, p: float, radius: float) -> Floats:
        """Of the squares: 1 in l2, else as they are where a counterexample is likely."""
        if p == 2:
            return np.ones(len(self.c))
        y = self.nodes[self.index]
        t = np.abs(self.c + self.h * y)
        if p < math.inf:
            found = (t / max(_length(t, p), 1e-300)) ** (p - 2)
        else:
            pull = np.abs(self._gradient(y)) / np.maximum(self.h, 1e-300) * (t >= 0.5 * radius)
            found = pull / max(float(pull.sum()), 1e-300) if pull.any() else np.full(len(t), 1 / len(t))
        return (found * (1 - 2.0**-20)).astype(np.float32).astype(np.float64)

    def _gradient(self, y: Floats) -> Floats:
        total = self.steep.copy()
        for group in self.box.groups:
            slopes, _ = _derivatives(group, y)
            np.add.at(total, group.axes, slopes)
        return total

    def _sweep(self, cost: Floats, price: float) -> float:
        """Move the indices to where cost + price * margin is least, axis by axis; that value."""
        base, every = cost + price * self.lines, np.arange(len(cost))
        alone = np.array([not joined for joined in self.joined])
        self.index = np.where(alone, base.argmin(axis=1), self.index)
        for _ in range(SWEEPS if not alone.all() else 0):
            before = self.index.copy()
            for j in np.flatnonzero(~alone):
                line = base[j].copy()
                for table, axes, place in self.joined[j]:
                    at: list[int | slice] = self.index[axes].tolist()
                    at[place] = slice(None)
                    line += price * table[tuple(at)]
                self.index[j] = line.argmin()
            if (before == self.index).all():
                break
        moved = self.lines[every, self.index]
        ends = [np.clip(self.index + way, 0, len(self.nodes) - 1) for way in (-1, 1)]
        left, here, right = base[every, ends[0]], base[every, self.index], base[every, ends[1]]
        bend = left - 2 * here + right
        inside = alone & (ends[1] - ends[0] == 2) & (bend > 0)
        step = np.where(inside, (left - right) / (2 * np.where(inside, bend, 1.0)), 0.0)
        fall = 0.5 * step**2 * np.where(inside, bend, 0.0)
        one, two = self.lines[every, ends[0]], self.lines[every, ends[1]]
        moved = moved + 0.5 * step * (two - one) + 0.5 * step**2 * (one - 2 * moved + two)
        self.value = self.constant + float(moved.sum())
        for group, table in zip(self.box.groups, self.tables, strict=True):
            if group.axes.shape[1] > 1:
                self.value += float(table[(np.arange(len(table)), *self.index[group.axes].T)].sum())
        margin = self.value - float(moved.sum()) + float(self.lines[every, self.index].sum())
        return float(cost[every, self.index].sum()) + price * margin - float(fall.sum())

    def _price(self, cost: Floats, needed: float) -> tuple[float, float, tuple[Ints, Ints]]:
        """The price of the greatest bound, that bound if terms lose nothing, and the points just below and above it."""
        low, high, price = 0.0, math.inf, self.box.price
        if not price > 0:
            pull = self._gradient(self.nodes[self.index])
            along = float(np.abs(pull).sum())
            price = 2 * needed / max(along, 1e-12) if along else 1.0
        before = after = self.index.copy()
        best, chosen, at = -math.inf, price, self.index.copy()
        for _ in range(PRICES):
            bound = self._sweep(cost, price)
            if bound > best:
                best, chosen, at = bound, price, self.index.copy()
            if best > needed * (1 + EASY):
                break
            if self.value > 0:
                low, before = price, self.index.copy()
            else:
                high, after = price, self.index.copy()
            if high <= low * (1 + CLOSE) or not 1e-100 < price < 1e100:
                break
            price = 2 * price if high == math.inf else (price / 2 if low == 0 else math.sqrt(low * high))
        self.index = at
        return float(np.float32(chosen)), best, (before, after)

    def _try(
        self, squares: Floats, price: float, needed: float, hoped: float = 0.0, ends: tuple[Ints, Ints] | None = None
    ) -> Look:
        """The reason at this price, or where to halve."""
        y, curved = self.nodes[self.index], needed > 0
        pull = 2 * squares * self.h * (self.c + self.h * y) / price  # the slope of the distance, in units of the margin
        bend = squares * self.h**2 / price if curved else np.zeros(len(y))
        shares = self._shares(y, bend, pull + self.steep if curved else self.steep)
        several = bool((self.count > 1).any())
        enough, tried, first = min(hoped, MUCH * needed), 0.0, -math.inf
        for turn in range(TURNS if several else 1):
            found = self._bound(shares, squares, price, needed, y)
            if turn % PATIENCE == 0:
                if found.room < min(0.0, FASTER * first) or (curved and hoped <= 0):
                    break
                first = found.room
            if found.room > 2 * tried:
                trees: list[list[int]] = [[] for _ in range(self.tree.terms)]
                part = SPENT * found.room / (price * self.tree.terms)
                each = zip(self.box.groups, found.rests, found.gaps, strict=True)
                if all(self._divide(group, rest, gap - part, trees) for group, rest, gap in each):
                    return self._leaf(found.shares, trees, price, found.at, squares, curved)
                tried = found.room
            if several:
                self._improve(shares, found, price, y, curved, max(0.1 * enough, AIM * enough - found.room))
        axis = self._axis(squares, price, found, ends)
        point = 0.5 * (self.box.low + self.box.high) + y * 0.5 * (self.box.high - self.box.low)
        return Look(-1, [], [], axis, price if curved else 0.0, point)

    def _bound(self, shares: list[Share], squares: Floats, price: float, needed: float, y: Floats) -> Bound:
        """What is proven with these shares, as they are written, about."""
        d, curved = len(y), needed > 0
        short = [Share(_short(s.steep), _short(s.bent), s.twist) for s in shares]
        slope, curvature, beside, twists = self.steep.copy(), np.zeros(d), np.zeros(d), []
        for group, share in zip(self.box.groups, short, strict=True):
            np.add.at(slope, group.axes, share.steep)
            np.add.at(curvature, group.axes, share.bent)
            for (i, j), v in share.twist.items():
                twists += list(zip(group.axes[:, i], group.axes[:, j], price * v / 2, strict=True))
        at = _short(y)
        linear, matrix = 2 * squares * self.c * self.h + price * slope, squares * self.h**2 + price * curvature
        along = matrix * at
        for i, j, v in twists:
            beside[i] += abs(v)
            beside[j] += abs(v)
            along[i] += v * at[j]
            along[j] += v * at[i]
        shift = np.maximum(0.0, beside - matrix)
        along += shift * at
        whole = float((squares * self.c**2 - shift - at * along - np.abs(linear + 2 * along)).sum())
        if not curved:
            whole = -float(np.abs(slope).sum())
        rests, gaps, where = [], [], []
        for group, share, table in zip(self.box.groups, short, self.tables, strict=True):
            rests.append(group.coefficients - _quadratic_net(group.coefficients.shape[1:], *share))
            left = table - _quadratic_values(self.nodes, group.axes.shape[1], *share)
            flat = left.reshape(len(left), -1)
            where.append(np.stack(np.unravel_index(flat.argmin(axis=1), left.shape[1:]), axis=1))
            gaps.append(flat.min(axis=1) - _between(left, where[-1]))
        total = whole + price * (self.constant + sum(float(gap.sum()) for gap in gaps))
        size = abs(whole) + price * (abs(self.constant) + sum(float(np.abs(gap).sum()) for gap in gaps)) + needed
        return Bound(total - needed - ROOM * size, size, short, rests, gaps, where, at)

    def _improve(
        self, shares: list[Share], found: Bound, price: float, y: Floats, curved: bool, missing: float
    ) -> None:
        """Move slopes and squares between the terms of an axis, such that terms are least nearer to the same point."""
        ways, size, d = [], 0.0, len(y)
        sums, squares, free_count = np.zeros(d), np.zeros(d), np.zeros(d)
        for group, where in zip(self.box.groups, found.where, strict=True):
            u, free = self.nodes[where] - y[group.axes], _free(group)
            np.add.at(sums, group.axes, u)
            np.add.at(squares, group.axes, u * u * free)
            np.add.at(free_count, group.axes, np.broadcast_to(free, u.shape).astype(float))
        for group, where in zip(self.box.groups, found.where, strict=True):
            axes, free = group.axes, _free(group) * curved
            u = self.nodes[where] - y[axes]
            tilt = (sums / np.maximum(self.count, 1))[axes] - u
            bow = ((squares / np.maximum(free_count, 1))[axes] - u * u) * free
            ways.append((tilt, bow))
            size += float((tilt**2).sum() + (bow**2).sum())
        if size > 0:
            for group, share, (tilt, bow) in zip(self.box.groups, shares, ways, strict=True):
                step = missing / (price * size)
                share.steep[:] += step * (tilt - 2 * bow * y[group.axes])
                share.bent[:] += step * bow

    def _shares(self, y: Floats, bend: Floats, slope: Floats) -> list[Share]:
        """For each group the slopes, squares and products of the Q of its terms.

        slope and bend of each axis are handed to its terms, with a minus: to each its own derivatives at the point y,
        and an equal part of what is left. Along an axis of degree 1 there are no squares; there Q has the products.
        """
        total, load, count, curved = slope.copy(), bend.copy(), np.zeros(len(y)), bool(bend.any())
        each = [_derivatives(group, y) for group in self.box.groups]
        strong, joint = 2 * bend, np.zeros(len(y))  # the second derivatives along each axis, and with others
        for group, (_, seconds) in zip(self.box.groups, each, strict=True):
            for j in range(len(seconds)):
                np.add.at(strong, group.axes[:, j], seconds[j, j])
                for i in range(j):
                    np.add.at(joint, group.axes[:, i], np.abs(seconds[i, j]))
                    np.add.at(joint, group.axes[:, j], np.abs(seconds[i, j]))
        bear, parts = np.clip(strong / np.maximum(joint, 1e-300), 1e-3, 1e3), []
        for group, (slopes, seconds) in zip(self.box.groups, each, strict=True):
            axes, free, own, twist = group.axes, _free(group), np.zeros_like(slopes), {}
            for j in range(axes.shape[1]):
                own[:, j] += 0.5 * seconds[j, j]
                for i in range(j):
                    harm = 0.5 * np.abs(seconds[i, j])
                    if free[i] and free[j] and curved:
                        ratio = np.sqrt(bear[axes[:, i]] / bear[axes[:, j]])
                        own[:, i] -= harm * ratio
                        own[:, j] -= harm / ratio
                    else:
                        twist[i, j] = _short(seconds[i, j] * curved)
                        np.add.at(load, axes[:, i], -harm * curved)  # what the products need stays with the distance
                        np.add.at(load, axes[:, j], -harm * curved)
            own = own * free
            parts.append((slopes, own, twist, free))
            np.add.at(total, axes, slopes)
            np.add.at(load, axes, own)
            np.add.at(count, axes, np.broadcast_to(free, axes.shape).astype(float))
        found = []
        for group, (slopes, own, twist, free) in zip(self.box.groups, parts, strict=True):
            axes = group.axes
            bent = (own - load[axes] / np.maximum(count[axes], 1)) * free * curved
            steep = slopes - (total / np.maximum(self.count, 1))[axes] - 2 * bent * y[axes]
            for (i, j), v in twist.items():  # a product has slopes at y, too
                steep[:, i] -= v * y[axes[:, j]]
                steep[:, j] -= v * y[axes[:, i]]
            found.append(Share(steep, bent, twist))
        return found

    def _divide(self, group: Group, rest: Floats, targets: Floats, trees: list[list[int]]) -> bool:
        """Halve each term by itself until no coefficient is below its target; False if that takes too many halvings."""
        m = group.axes.shape[1]
        if m == len(self.c):
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
            lower, upper = _split(nets, axes)
            nets, owner = np.concatenate([lower, upper]), np.concatenate([owner, owner])
            paths = [path + "0" for path in paths] + [path + "1" for path in paths]
            if len(nets) > 4096 * m:
                return False
        else:
            return False
        for place, cut in zip(group.places, cuts, strict=True):
            _preorder(cut, "", trees[place])
        return True

    def _leaf(
        self, shared: list[Share], trees: list[list[int]], price: float, y: Floats, squares: Floats, curved: bool
    ) -> Look:
        """Tags of the terms, and hints: for each term slopes and curvature, then the rest."""
        own: list[list[float]] = [[] for _ in range(self.tree.terms)]
        for group, (steep, bent, twist) in zip(self.box.groups, shared, strict=True):
            m = group.axes.shape[1]
            for term, place in enumerate(group.places):
                bends = [
                    float(bent[term, j]) if i == j else float(twist[i, j][term]) if (i, j) in twist else 0.0
                    for j in range(m)
                    for i in range(j + 1)
                ]
                own[place] = [*steep[term].tolist(), *(bends if curved else [])]
        hints = [value for part in own for value in part]
        if not curved:
            return Look(PLANE, [tag for tree in trees for tag in tree], hints)
        more = squares.tolist() if self.tree.claim.norm > 2 else []
        return Look(QUADRATIC, [tag for tree in trees for tag in tree], [*hints, price, *y.tolist(), *more])

    def _axis(self, squares: Floats, price: float, found: Bound, ends: tuple[Ints, Ints] | None) -> int:
        """The axis to halve: where terms lose most, away from the point; or where points at two prices differ."""
        harm = np.zeros(len(self.c))
        for group, at, gap in zip(self.box.groups, found.where, found.gaps, strict=True):
            away = np.abs(self.nodes[at] - self.nodes[self.index[group.axes]])
            lost = np.maximum(0.0, -gap + 0.0)[:, None] if group.axes.shape[1] > 1 else np.zeros((len(at), 1))
            np.add.at(harm, group.axes, price * lost * away**2)
        if ends is not None:
            every, (one, two) = np.arange(len(self.c)), ends
            cost = squares[:, None] * (self.c[:, None] + self.h[:, None] * self.nodes) ** 2 + price * self.lines
            between = (one + two) // 2
            jump = cost[every, between] - np.minimum(cost[every, one], cost[every, two])
            harm += np.maximum(0.0, jump) * (one != two)
        wide = (self.box.high - self.box.low) > 2.0**-44
        if not (harm * wide).any():
            reach = [np.abs(rest).reshape(len(rest), -1).max(axis=1) for rest in found.rests]
            for group, size in zip(self.box.groups, reach, strict=True):
                np.add.at(harm, group.axes, size[:, None])
        harm[POSITIVE:] = 0.0
        return int((harm * wide).argmax()) if (harm * wide).any() else -1


def _between(tables: Floats, where: Ints) -> Floats:
    """How far below their least entries the least values are about, by a parabola along each axis."""
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


def _short(values: Floats) -> Floats:
    """As hints are written."""
    return values.astype(np.float32).astype(np.float64)


def _free(group: Group) -> Floats:
    """Along which axes of the group its terms can have squares."""
    return np.array([float(size > 2) for size in group.coefficients.shape[1:]])


def _length(t: Floats, p: float) -> float:
    return float(np.linalg.norm(t, ord=p))


@cache
def _basis(degree: int, count: int) -> Floats:
    """(count, degree + 1): the Bernstein polynomials at points from 0 to 1."""
    x = np.linspace(0.0, 1.0, count)[:, None]
    k = np.arange(degree + 1)
    choose = np.array([math.comb(degree, i) for i in k], dtype=float)
    found: Floats = choose * x**k * (1 - x) ** (degree - k)
    return found


def _restriction(n: int, low: float, high: float) -> Floats:
    """The matrix from coefficients on [0, 1] to those on [low, high]."""
    out = np.zeros((n + 1, n + 1))
    for k in range(n + 1):
        line = np.zeros(n + 1)
        line[0] = 1.0
        for step in range(1, n + 1):
            x = high if step <= k else low
            line[1:] = (1 - x) * line[1:] + x * line[:-1]
            line[0] *= 1 - x
        out[k] = line
    return out


@cache
def _halving(n: int) -> tuple[Floats, Floats]:
    return _restriction(n, 0.0, 0.5), _restriction(n, 0.5, 1.0)


def _split(nets: Floats, axes: Ints) -> tuple[Floats, Floats]:
    """The lower and the upper half of each net along its own axis."""
    lower, upper = np.empty_like(nets), np.empty_like(nets)
    for place in set(axes.tolist()):
        which = axes == place
        for out, matrix in zip((lower, upper), _halving(nets.shape[place + 1] - 1), strict=True):
            out[which] = np.moveaxis(np.tensordot(nets[which], matrix, (place + 1, 1)), -1, place + 1)
    return lower, upper


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


def _halves(box: SumBox, found: Look) -> list[SumBox]:
    axis, middle = found.axis, 0.5 * (box.low[found.axis] + box.high[found.axis])
    parts: list[list[Group]] = [[], []]
    for group in box.groups:
        has = (group.axes == axis).any(axis=1)
        pair = [group.coefficients, group.coefficients]
        if has.any():
            place = (group.axes[has] == axis).argmax(axis=1)
            pair = [group.coefficients.copy(), group.coefficients.copy()]
            for out, half in zip(pair, _split(group.coefficients[has], place), strict=True):
                out[has] = half
        for side, c in enumerate(pair):
            parts[side].append(group._replace(coefficients=c))
    ends = []
    for side, groups in enumerate(parts):
        low, high = box.low.copy(), box.high.copy()
        (high if side == 0 else low)[axis] = middle
        assert found.point is not None
        point = np.clip(found.point, low, high)
        ends.append(
            replace(box, low=low, high=high, groups=groups, price=found.price, point=point, depth=box.depth + 1)
        )
    return ends


def _derivatives(group: Group, y: Floats) -> tuple[Floats, Floats]:
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
        n = nets.shape[1] - 1
        k = np.arange(n + 1)
        choose = np.array([math.comb(n, i) for i in k], dtype=float)
        weights = choose * at[:, place, None] ** k * (1 - at[:, place, None]) ** (n - k)
        nets = np.einsum("tk,tk...->t...", weights, nets)
    return nets


def _quadratic_net(sizes: Sequence[int], steep: Floats, bent: Floats, twist: dict[tuple[int, int], Floats]) -> Floats:
    """(T, n_1 + 1, ...): the coefficients of Q of each term."""
    lines = [(2 * np.arange(s) - (s - 1)) / (s - 1) for s in sizes]
    squares = [1 + 4 * np.arange(s) * (np.arange(s) - (s - 1)) / ((s - 1) * (s - 2)) if s > 2 else 0 * line
               for s, line in zip(sizes, lines, strict=True)]  # fmt: skip
    return _laid(lines, squares, steep, bent, twist)


def _quadratic_values(
    nodes: Floats, m: int, steep: Floats, bent: Floats, twist: dict[tuple[int, int], Floats]
) -> Floats:
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
