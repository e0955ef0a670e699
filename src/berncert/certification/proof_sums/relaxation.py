"""One box: the price of the margin, the shares of the terms, and the reason or the axis to halve."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from berncert.certification.kernels.recorded_reason import PLANE, POSITIVE, QUADRATIC, ROOM, Claim
from berncert.certification.proof_sums.boxes import Look, SumBox, length
from berncert.certification.proof_sums.halvings import divide
from berncert.certification.proof_sums.shares import (
    Share,
    as_written,
    first_shares,
    improve,
    quadratic_net,
    quadratic_values,
)
from berncert.certification.proof_sums.terms import basis, below_nodes, derivatives
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


class Relaxation:
    """A box, the margin steep . y + constant + terms on it, and its distances c + h y."""

    def __init__(self, claim: Claim, box: SumBox, c: Floats, h: Floats, steep: Floats, constant: float) -> None:
        self.claim, self.box, self.c, self.h, self.steep, self.constant = claim, box, c, h, steep, constant
        widest, d = max((group.axes.shape[1] for group in box.groups), default=1), len(c)
        self.nodes, self.terms = np.linspace(-1.0, 1.0, GRIDS.get(widest, FEW)), sum(len(g.places) for g in box.groups)
        self.lines = steep[:, None] * self.nodes
        self.tables = []
        self.joined: list[list[tuple[Floats, Ints, int]]] = [[] for _ in range(d)]
        for group in box.groups:
            values = group.coefficients
            for place, size in enumerate(values.shape[1:]):
                values = np.moveaxis(
                    np.tensordot(values, basis(size - 1, len(self.nodes)), (place + 1, 1)), -1, place + 1
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
        radius, p = self.claim.radius, self.claim.norm
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
            found = (t / max(length(t, p), 1e-300)) ** (p - 2)
        else:
            pull = np.abs(self._gradient(y)) / np.maximum(self.h, 1e-300) * (t >= 0.5 * radius)
            found = pull / max(float(pull.sum()), 1e-300) if pull.any() else np.full(len(t), 1 / len(t))
        return (found * (1 - 2.0**-20)).astype(np.float32).astype(np.float64)

    def _gradient(self, y: Floats) -> Floats:
        total = self.steep.copy()
        for group in self.box.groups:
            slopes, _ = derivatives(group, y)
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
        shares = first_shares(self.box.groups, self.count, y, bend, pull + self.steep if curved else self.steep)
        several = bool((self.count > 1).any())
        enough, tried, first = min(hoped, MUCH * needed), 0.0, -math.inf
        for turn in range(TURNS if several else 1):
            found = self._bound(shares, squares, price, needed, y)
            if turn % PATIENCE == 0:
                if found.room < min(0.0, FASTER * first) or (curved and hoped <= 0):
                    break
                first = found.room
            if found.room > 2 * tried:
                trees: list[list[int]] = [[] for _ in range(self.terms)]
                part = SPENT * found.room / (price * self.terms)
                each = zip(self.box.groups, found.rests, found.gaps, strict=True)
                if all(divide(group, len(y), rest, gap - part, trees) for group, rest, gap in each):
                    return self._leaf(found.shares, trees, price, found.at, squares, curved)
                tried = found.room
            if several:
                least = [self.nodes[at] for at in found.where]
                missing = max(0.1 * enough, AIM * enough - found.room)
                improve(shares, self.box.groups, self.count, least, y, missing=missing, price=price, curved=curved)
        axis = self._axis(squares, price, found, ends)
        point = 0.5 * (self.box.low + self.box.high) + y * 0.5 * (self.box.high - self.box.low)
        return Look(-1, [], [], axis, price if curved else 0.0, point)

    def _bound(self, shares: list[Share], squares: Floats, price: float, needed: float, y: Floats) -> Bound:
        """What is proven with these shares, as they are written, about."""
        d, curved = len(y), needed > 0
        short = [Share(as_written(s.steep), as_written(s.bent), s.twist) for s in shares]
        slope, curvature, beside, twists = self.steep.copy(), np.zeros(d), np.zeros(d), []
        for group, share in zip(self.box.groups, short, strict=True):
            np.add.at(slope, group.axes, share.steep)
            np.add.at(curvature, group.axes, share.bent)
            for (i, j), v in share.twist.items():
                twists += list(zip(group.axes[:, i], group.axes[:, j], price * v / 2, strict=True))
        at = as_written(y)
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
            rests.append(group.coefficients - quadratic_net(group.coefficients.shape[1:], *share))
            left = table - quadratic_values(self.nodes, group.axes.shape[1], *share)
            flat = left.reshape(len(left), -1)
            where.append(np.stack(np.unravel_index(flat.argmin(axis=1), left.shape[1:]), axis=1))
            gaps.append(flat.min(axis=1) - below_nodes(left, where[-1]))
        total = whole + price * (self.constant + sum(float(gap.sum()) for gap in gaps))
        size = abs(whole) + price * (abs(self.constant) + sum(float(np.abs(gap).sum()) for gap in gaps)) + needed
        return Bound(total - needed - ROOM * size, size, short, rests, gaps, where, at)

    def _leaf(
        self, shared: list[Share], trees: list[list[int]], price: float, y: Floats, squares: Floats, curved: bool
    ) -> Look:
        """Tags of the terms, and hints: for each term slopes and curvature, then the rest."""
        own: list[list[float]] = [[] for _ in range(self.terms)]
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
        more = squares.tolist() if self.claim.norm > 2 else []
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
