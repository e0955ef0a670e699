"""Compiled kernels: a proven lower bound on the distance to the points of a box where a sum is not positive.

For any price of the margin, the least of (norm / R)^p + price * margin over the box is at most (norm / R)^p at every
point where the margin is not positive. The left side separates: axis by axis it is a search on a line. As a function
of the price it is concave; `climb` looks for its top. For p = inf the points within a distance are a box.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import part
from berncert.certification.kernels.distance import length
from berncert.certification.kernels.sum_cells import (
    climb_ball_cells,
    climb_cells,
    lay_cells,
    least_of_cells,
    shave_cells,
    worst_axis_of_cells,
)
from berncert.certification.kernels.sum_problem import CELLS, SumMemory, SumProblem
from berncert.certification.kernels.sums import (
    cut_terms,
    lay_lines,
    least_of_lines,
    line_value,
    margin_at,
    share_bends,
    shave,
)
from berncert.certification.kernels.tensor import ROUNDOFF, copy
from berncert.foundation.arrays import Floats

CLIMBS = 40  # prices tried in one climb
ROUNDS = 4  # centres tried for one box
MOST_ROUNDS = 12  # ... while the box shrinks
CELL_ROUNDS = 6
SHAVED = 1.0  # of the logarithm of a box's volume is worth another round
BISECTIONS = 16  # distances tried, for p = inf
LINES = 0.05  # of the tolerance may be lost on the lines
STEEP = 30.0  # a power that float64 has of a tolerance
HUGE = 3e4  # from this p on, and where the tolerance's power is too steep, balls are bounded by boxes


@part
def trim(memory: SumMemory, x0: Floats, weight: Floats, reach: float) -> bool:
    """The part of the box at hand within `reach` along every axis, rounded outwards; False if there is none."""
    for j in range(x0.size):
        low, high = memory.box_low[j], memory.box_high[j]
        if reach < np.inf:
            far = reach / weight[j] * (1.0 + 4.0 * ROUNDOFF)
            low = max(low, np.nextafter(x0[j] - far, -np.inf))
            high = min(high, np.nextafter(x0[j] + far, np.inf))
        if low > high:
            return False
        memory.low[j] = low
        memory.high[j] = high
    return True


@part
def clip_centre(memory: SumMemory, to: Floats) -> None:
    """Put the centre of the minorant at a point, as near as the box allows."""
    for j in range(memory.low.size):
        memory.centre[j] = min(memory.high[j], max(memory.low[j], to[j]))


@part
def is_boxed(problem: SumProblem) -> bool:
    """Whether distances are bounded by those in l-inf, which are never greater, and for so large a p hardly less."""
    return problem.norm > HUGE or problem.norm * problem.tolerance > STEEP


@part
def bends_together(problem: SumProblem) -> bool:
    """Whether a term takes several features: if not, the minorant is the margin itself."""
    return problem.axes.size > problem.begin.size - 1


@part
def bound_distance(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    weight: Floats,
    limit: float,
    goal: float,
    known: float,
    price: float,
) -> tuple[float, float, int, float]:
    """A bound on the distance to the rival's points in the box at hand nearer than `limit`; price; where to halve.

    The bound is inf if there are no such points; the axis is -1 if nothing can be gained by halving. memory.centre
    is where to begin; memory.kept is left near where the bound's relaxation is nearest.
    """
    if not trim(memory, x0, weight, limit):
        return np.inf, price, -1, 0.0
    if is_boxed(problem):
        return bound_within(problem, memory, x0, weight, limit, goal, known)
    p = problem.norm
    span = limit
    if limit == np.inf:
        for j in range(x0.size):
            memory.least[j] = weight[j] * max(abs(memory.low[j] - x0[j]), abs(memory.high[j] - x0[j]))
        span = length(memory.least, p)
    if span == 0.0:
        span = 1.0
    for j in range(x0.size):
        memory.scale[j] = weight[j] / span
    top = (goal / span) ** p * (1.0 + (4.0 * p + 64.0) * ROUNDOFF) if goal < np.inf else np.inf
    bound, axis, place = known, -1, 0.0
    last, fallen = -1.0, 1.0
    for turn in range(MOST_ROUNDS):
        clip_centre(memory, memory.centre if turn == 0 else memory.kept)
        if fallen > 0.0:
            cut_terms(problem, memory)
        constant = lay_lines(problem, memory) - problem.rounding - problem.error
        share_bends(problem, memory, x0, 1.0, price)
        least, _, _ = least_of_lines(problem, memory, x0, constant, 0.0, 1.0, 0.0)
        if least > 0.0:
            return np.inf, price, -1, 0.0
        best, price, share = climb(problem, memory, x0, constant, top, price)
        found = span * best ** (1.0 / p) * (1.0 - (2.0 * p + 32.0) * ROUNDOFF) if best > 0.0 else 0.0
        bound = max(bound, found)
        axis, place = worst_axis(problem, memory, x0, 1.0, price, share)
        if bound >= goal or turn + 1 == MOST_ROUNDS:
            break
        fallen = 0.0
        if top < np.inf:
            total, _, _ = least_of_lines(problem, memory, x0, constant, 1.0, price, 0.0)
            fallen = shave(problem, memory, x0, 1.0, price, total, top)
            if fallen == np.inf:  # no point of the rival is nearer than the goal
                return goal, price, -1, 0.0
        stale = turn + 1 >= ROUNDS or best <= last * (1.0 + 0.01 * problem.tolerance)
        if fallen < SHAVED and (stale or not bends_together(problem)):
            break
        last = best
    if bound < goal and problem.pairs.size > 0:
        found, price, axis, place = bound_by_cells(problem, memory, x0, top, price, axis, place)
        if found > 0.0:
            bound = max(bound, span * found ** (1.0 / p) * (1.0 - (2.0 * p + 32.0) * ROUNDOFF))
    return bound, price, axis, place_inside(memory, axis, place)


@part
def bound_by_cells(
    problem: SumProblem, memory: SumMemory, x0: Floats, top: float, price: float, axis: int, place: float
) -> tuple[float, float, int, float]:
    """A bound of (norm / R)^p as in `climb`, by cells; its price; and where to halve."""
    best, tolerance = 0.0, LINES * problem.tolerance / x0.size / CELLS
    if not 1e-100 < price < 1e100:  # where the margin is worth about as much as its distance
        price = 1.0 / max(margin_at(problem, memory, memory.affine.start), 1e-9)
    memory.table.message[:] = 0.0
    for turn in range(CELL_ROUNDS):
        clip_centre(memory, memory.kept)
        cut_terms(problem, memory)
        constant = lay_lines(problem, memory) - problem.rounding - problem.error
        lay_cells(problem, memory)
        share_bends(problem, memory, x0, 1.0, price)
        found, price = climb_cells(problem, memory, x0, constant, top, price, tolerance)
        best = max(best, found)
        if best >= top:
            break
        total, noise = least_of_cells(problem, memory, x0, constant, 1.0, price, tolerance)
        best = max(best, total)
        axis, place = worst_axis_of_cells(problem, memory, x0, 1.0, price)
        if best >= top or top == np.inf or turn + 1 == CELL_ROUNDS:
            break
        fallen = shave_cells(problem, memory, x0, 1.0, price, total, noise, top)
        if fallen == np.inf:
            return top, price, -1, 0.0
        if fallen < SHAVED:
            break
    return best, price, axis, place


@part
def climb(
    problem: SumProblem, memory: SumMemory, x0: Floats, constant: float, goal: float, price: float
) -> tuple[float, float, float]:
    """The greatest bound found, its price (or one to go on from), and a share.

    The share is how far from memory.before to memory.after the margin is 0.

    It stops at the goal, or where tangents show that it cannot be reached or that little is left to be gained.
    """
    d = x0.size
    loss = LINES * problem.tolerance / d
    bound, slope, _ = least_of_lines(problem, memory, x0, constant, 1.0, 0.0, 0.0)
    copy(memory.least, d, memory.before)
    copy(memory.least, d, memory.after)
    copy(memory.least, d, memory.kept)
    best, chosen = bound, 0.0
    if slope <= 0.0 or best >= goal:
        return best, chosen, 0.0
    low, low_bound, low_slope = 0.0, bound, slope
    high, high_bound, high_slope = np.inf, 0.0, 0.0
    weight_low, weight_high = 1.0, 1.0  # of the secant, halved where an end stays
    if not 0.0 < price < np.inf:
        price = problem.norm / slope
    for step in range(CLIMBS):
        bound, slope, _ = least_of_lines(problem, memory, x0, constant, 1.0, price, loss * max(1e-4, min(1.0, best)))
        if bound > best:
            best, chosen = bound, price
            copy(memory.least, d, memory.kept)
        if best >= goal:
            break
        if slope > 0.0:
            low, low_bound, low_slope = price, bound, slope
            copy(memory.least, d, memory.before)
            weight_low, weight_high = 1.0, 0.5 * weight_high
        else:
            high, high_bound, high_slope = price, bound, slope
            copy(memory.least, d, memory.after)
            weight_low, weight_high = 0.5 * weight_low, 1.0
        if high == np.inf:
            copy(memory.least, d, memory.after)
            price *= 4.0
            if price > 1e200:
                break
            continue
        cross = (high_bound - low_bound + low_slope * low - high_slope * high) / (low_slope - high_slope)
        most = low_bound + low_slope * (cross - low)
        left = most - best
        if left <= 2.0 * LINES * problem.tolerance * abs(most) or (goal < np.inf and left <= 0.2 * (goal - most)):
            break
        if step % 3 == 2:
            price = cross
        else:
            one, two = weight_low * low_slope, -weight_high * high_slope
            price = (low * two + high * one) / (one + two)
        edge = 0.01 * (high - low)
        price = min(high - edge, max(low + edge, price))
        if not low < price < high:
            break
    share = low_slope / (low_slope - high_slope) if high < np.inf and low_slope > high_slope else 1.0
    return best, chosen if chosen > 0.0 else price, share


@part
def worst_axis(
    problem: SumProblem, memory: SumMemory, x0: Floats, pull: float, price: float, share: float
) -> tuple[int, float]:
    """The axis that loses most, and where to halve it; (-1, 0) if none can be.

    An axis loses where the best points below and above the best price differ, as no point between is as good; and
    where the relaxation's point is not the centre, by what axes do together.
    """
    axis, most, place = -1, 0.0, 0.0
    wide, widest = -1, 0.0
    for j in range(x0.size):
        width = memory.high[j] - memory.low[j]
        if not width > 2.0**-44:
            continue
        x = memory.kept[j]
        away = x - memory.centre[j]
        for other in (memory.before[j], memory.after[j]):
            if abs(other - memory.centre[j]) > abs(away):
                away = other - memory.centre[j]
        harm = price * memory.bend[j] * away * away
        at = memory.centre[j] + 0.5 * away
        between = memory.before[j] + share * (memory.after[j] - memory.before[j])
        if memory.before[j] != memory.after[j]:
            gap = line_value(problem, memory, x0, j, between, pull, price)
            gap -= line_value(problem, memory, x0, j, x, pull, price)
            gap -= price * memory.bend[j] * ((between - memory.centre[j]) ** 2 - (x - memory.centre[j]) ** 2)
            if gap > harm:
                at = between
            harm = max(harm, 0.0) + max(gap, 0.0)
        if harm > most:
            axis, most, place = j, harm, at
        bent = memory.bend[j] * width * width
        if problem.degree[j] > 1:
            bent += 1e-6 * width
        if bent > widest:
            wide, widest = j, bent
    if axis < 0 and wide >= 0:
        axis, place = wide, 0.5 * (memory.low[wide] + memory.high[wide])
    return axis, place_inside(memory, axis, place)


@part
def place_inside(memory: SumMemory, axis: int, place: float) -> float:
    """The place, moved away from the ends of the box's interval."""
    if axis < 0:
        return place
    width = memory.high[axis] - memory.low[axis]
    inside: float = min(memory.high[axis] - 0.1 * width, max(memory.low[axis] + 0.1 * width, place))
    return inside


@part
def least_margin(problem: SumProblem, memory: SumMemory, x0: Floats, tolerance: float) -> float:
    """A lower bound of the margin on the trimmed box; memory.kept is left where the relaxation is least."""
    d = x0.size
    cut_terms(problem, memory)
    clip_centre(memory, memory.centre)
    bound = -np.inf
    for turn in range(ROUNDS):
        constant = lay_lines(problem, memory) - problem.error
        share_bends(problem, memory, x0, 0.0, 1.0)
        found, _, _ = least_of_lines(problem, memory, x0, constant, 0.0, 1.0, tolerance / d)
        better = found > bound + 0.01 * abs(bound)
        if found > bound:
            bound = found
            copy(memory.least, d, memory.kept)
        if not bends_together(problem) or not better or turn + 1 == ROUNDS:
            break
        clip_centre(memory, memory.least)
    return bound


@part
def bound_within(
    problem: SumProblem, memory: SumMemory, x0: Floats, weight: Floats, limit: float, goal: float, known: float
) -> tuple[float, float, int, float]:
    """As `bound_distance`, for p = inf or a huge p: a distance within which the margin is positive on the box."""
    margin = margin_at(problem, memory, memory.affine.start)
    least = least_margin(problem, memory, x0, 1e-3 * problem.tolerance) - problem.rounding
    if least > 0.0:
        return limit if limit < np.inf else np.inf, 0.0, -1, 0.0
    copy(memory.kept, x0.size, memory.before)
    copy(memory.kept, x0.size, memory.after)
    axis, place = worst_axis(problem, memory, x0, 0.0, 1.0, 0.0)
    far = goal if goal < np.inf else limit
    if far == np.inf:
        far = 0.0
        for j in range(x0.size):
            far = max(far, weight[j] * max(abs(memory.low[j] - x0[j]), abs(memory.high[j] - x0[j])))
    best, at_best = known, margin
    at_far = least
    copy(memory.kept, x0.size, memory.before)
    for step in range(BISECTIONS):
        reach = far
        if step > 0:
            part = at_best / (at_best - at_far) if at_best > 0.0 > at_far else 0.5
            reach = best + min(0.98, max(0.02, part)) * (far - best)
        if not reach > best or far - best <= 0.1 * problem.tolerance * far:
            break
        value = np.inf
        if trim(memory, x0, weight, reach):
            value = least_margin(problem, memory, x0, 1e-3 * problem.tolerance) - problem.rounding
        if value > 0.0:
            best, at_best = reach, value
            at_far *= 0.5
            if step == 0:
                break
        else:
            far, at_far = reach, value
            at_best *= 0.5
            copy(memory.kept, x0.size, memory.before)
    copy(memory.before, x0.size, memory.kept)
    copy(memory.before, x0.size, memory.after)
    if best < goal and problem.pairs.size > 0:
        return within_by_cells(problem, memory, x0, weight, min(limit, goal), margin, best, axis, place)
    return best, 0.0, axis, place


@part
def within_by_cells(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    weight: Floats,
    reach: float,
    margin: float,
    best: float,
    axis: int,
    place: float,
) -> tuple[float, float, int, float]:
    """As `bound_within`, by cells: `best` is proven already, and parts of the box within reach may be cut off."""
    if not trim(memory, x0, weight, reach):
        return reach, 0.0, -1, 0.0
    memory.table.message[:] = 0.0
    least = -np.inf
    for turn in range(CELL_ROUNDS):
        least, noise = margin_by_cells(problem, memory, x0)
        if least > 0.0:
            return reach, 0.0, -1, 0.0
        axis, place = worst_axis_of_cells(problem, memory, x0, 0.0, 1.0)
        place = place_inside(memory, axis, place)
        if turn + 1 == CELL_ROUNDS:
            break
        fallen = shave_cells(problem, memory, x0, 0.0, 1.0, least, noise, 0.0)
        if fallen == np.inf:
            return reach, 0.0, -1, 0.0
        if fallen < SHAVED:
            break
    far, at_far, at_best = reach, least, margin
    if far == np.inf:
        far = 0.0
        for j in range(x0.size):
            far = max(far, weight[j] * max(abs(memory.low[j] - x0[j]), abs(memory.high[j] - x0[j])))
    for _ in range(CELL_ROUNDS):
        if not far - best > 0.1 * problem.tolerance * far:
            break
        piece = at_best / (at_best - at_far) if at_best > 0.0 > at_far else 0.5
        reach = best + min(0.95, max(0.05, piece)) * (far - best)
        value = np.inf
        if trim(memory, x0, weight, reach):
            value, _ = margin_by_cells(problem, memory, x0)
        if value > 0.0:
            best, at_best = reach, min(value, at_best)
            at_far *= 0.5
        else:
            far, at_far = reach, value
            at_best *= 0.5
            copy(memory.kept, x0.size, memory.after)
    copy(memory.after, x0.size, memory.kept)
    return best, 0.0, axis, place


@part
def margin_by_cells(problem: SumProblem, memory: SumMemory, x0: Floats) -> tuple[float, float]:
    """A lower bound of the margin on the trimmed box, rounding included, and twice what rounding may do to it.

    The centre is memory.kept, which is left where the bound's parts are least.
    """
    clip_centre(memory, memory.kept)
    cut_terms(problem, memory)
    constant = lay_lines(problem, memory) - problem.rounding - problem.error
    lay_cells(problem, memory)
    share_bends(problem, memory, x0, 0.0, 1.0)
    least, noise = least_of_cells(problem, memory, x0, constant, 0.0, 1.0, 1e-3 * problem.tolerance / x0.size)
    copy(memory.least, x0.size, memory.kept)
    copy(memory.least, x0.size, memory.before)
    copy(memory.least, x0.size, memory.after)
    return least, noise


@part
def bound_value(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    weight: Floats,
    target: float,
    tolerance: float,
    known: float,
    enough: float,
) -> tuple[float, int, float]:
    """Of the box at hand: a lower bound of the margin over its points within the target; the axis and place to halve.

    A multiplier of the ball takes the place of the price: margin + pull ((norm / target)^p - 1) is no more than the
    margin there. Parts of the box where the margin is at least `enough` may be cut off. The bound is inf if there are
    no points within the target.
    """
    if not trim(memory, x0, weight, target):
        return np.inf, -1, 0.0
    if is_boxed(problem):
        target = np.inf  # all points within it are in the trimmed box
    for j in range(x0.size):
        memory.scale[j] = weight[j] / target if target < np.inf else 0.0
    pull, bound = 0.0, known
    if target == np.inf:
        bound = max(known, least_margin(problem, memory, x0, tolerance))
        copy(memory.kept, x0.size, memory.before)
        copy(memory.kept, x0.size, memory.after)
    else:
        cut_terms(problem, memory)
        clip_centre(memory, memory.centre)
        for _ in range(ROUNDS):
            constant = lay_lines(problem, memory) - problem.error
            share_bends(problem, memory, x0, pull, 1.0)
            found, pull = climb_ball(problem, memory, x0, constant, tolerance, pull)
            better = found > bound + 0.1 * tolerance
            bound = max(bound, found)
            if bound >= enough or not better:
                break
            clip_centre(memory, memory.after)
    axis, place = worst_axis(problem, memory, x0, pull, 1.0, 0.5)
    if bound < enough and problem.pairs.size > 0:
        found, axis, place = value_by_cells(problem, memory, x0, target, tolerance, enough, pull, axis, place)
        bound = max(bound, found)
    return bound, axis, place_inside(memory, axis, place)


@part
def value_by_cells(
    problem: SumProblem,
    memory: SumMemory,
    x0: Floats,
    target: float,
    tolerance: float,
    enough: float,
    pull: float,
    axis: int,
    place: float,
) -> tuple[float, int, float]:
    """A bound of the margin over the box at hand and within the target, by cells; and where to halve."""
    best, allowed = -np.inf, tolerance / x0.size
    memory.table.message[:] = 0.0
    for turn in range(CELL_ROUNDS):
        clip_centre(memory, memory.kept)
        cut_terms(problem, memory)
        constant = lay_lines(problem, memory) - problem.error
        lay_cells(problem, memory)
        share_bends(problem, memory, x0, pull, 1.0)
        if target < np.inf:
            found, pull = climb_ball_cells(problem, memory, x0, constant, enough, pull, allowed)
            best = max(best, found)
        total, noise = least_of_cells(problem, memory, x0, constant, pull, 1.0, allowed)
        paid = pull * (1.0 + (4.0 * problem.norm + 64.0) * ROUNDOFF) if pull > 0.0 else 0.0
        if total - paid > best or target == np.inf:
            best = max(best, total - paid)
            copy(memory.least, x0.size, memory.kept)
        if target == np.inf:
            copy(memory.least, x0.size, memory.before)
            copy(memory.least, x0.size, memory.after)
        axis, place = worst_axis_of_cells(problem, memory, x0, pull, 1.0)
        if best >= enough or turn + 1 == CELL_ROUNDS:
            break
        fallen = shave_cells(problem, memory, x0, pull, 1.0, total, noise, enough + paid * (1.0 + 4.0 * ROUNDOFF))
        if fallen == np.inf:
            return enough, -1, 0.0
        if fallen < SHAVED:
            break
    return best, axis, place


@part
def climb_ball(
    problem: SumProblem, memory: SumMemory, x0: Floats, constant: float, tolerance: float, pull: float
) -> tuple[float, float]:
    """The greatest of the bounds that multipliers of the ball give, and its multiplier: concave, as in `climb`."""
    best, chosen, low, high, steep = -np.inf, 0.0, 0.0, np.inf, np.inf
    copy(memory.centre, x0.size, memory.after)
    for _ in range(CLIMBS):
        found, value, cost = least_of_lines(problem, memory, x0, constant, pull, 1.0, 0.1 * tolerance / x0.size)
        found -= pull * (1.0 + (4.0 * problem.norm + 64.0) * ROUNDOFF)
        if found > best:
            best, chosen = found, pull
            copy(memory.least, x0.size, memory.kept)
        if cost > 1.0:
            low, steep = pull, cost - 1.0
            copy(memory.least, x0.size, memory.before)
        else:
            high = pull
            copy(memory.least, x0.size, memory.after)
        if high < np.inf and ((high - low) * steep <= 0.05 * tolerance or high - low <= 1e-12 * high):
            break
        pull = max(2.0 * pull, abs(value) + tolerance) if high == np.inf else 0.5 * (low + high)
    return best, chosen
