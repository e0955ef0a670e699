"""Compiled kernels: the distance to the decision boundary of an affine head, within a box, in closed form.

A rival's margin is m + g . u for points s + u of the box, s the point of the box nearest to the sample. The nearest
point of the rival moves every axis by an amount that one multiplier gives, as far as the box goes: a search over that
number finds it. The proof is by duality: any multiplier gives a bound, so the search needs no care about rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from berncert.certification.kernels.compiled import kernel, part
from berncert.certification.kernels.distance import dual_exponent, length
from berncert.certification.kernels.problem import Samples
from berncert.certification.kernels.rows import BOXES, ROW, expired
from berncert.certification.kernels.search import BUDGET, PROVEN, ROUNDING, TIE, TIME, WHOLE_CUBE
from berncert.certification.kernels.tensor import ROUNDOFF, copy, least
from berncert.foundation.arrays import Flags, Floats, Ints

MOST_STEPS = 200  # of the search for the multiplier, which halves; it ends where float64 does
PUSHES = 12  # how often a witness is pushed farther beyond the boundary, until rounding cannot hide that it is there


class AffineProblem(NamedTuple):
    """An affine head whose weights and biases are scaled, by a power of two, to magnitudes of at most 1."""

    weight: Floats
    """(K, d)"""
    bias: Floats
    """(K,)"""
    norm: float
    tolerance: float
    max_boxes: int
    rounding: float
    """No margin computed in float64, here or by `SumHead`, is further than this from the exact one."""


class AffineMemory(NamedTuple):
    """Room for one thread to work in: (K,) each, then (d,) each."""

    values: Floats
    quick: Floats
    start: Floats
    away: Floats
    low: Floats
    high: Floats
    slope: Floats
    steps: Floats
    steps_below: Floats
    vector: Floats
    point: Floats


@kernel
def affine_value(problem: AffineProblem, k: int, x: Floats) -> float:
    """`logit`, for Python."""
    return logit(problem, k, x)


@part
def logit(problem: AffineProblem, k: int, x: Floats) -> float:
    """The logit of class k at x, added up in a fixed order."""
    total = problem.bias[k]
    for j in range(x.size):
        total += problem.weight[k, j] * x[j]
    return float(total)


@kernel
def certify_affine_rows(
    problem: AffineProblem,
    memory: AffineMemory,
    samples: Samples,
    first: int,
    last: int,
    stop: Flags,
    clock: Floats,
    predicted: Ints,
    radius: Floats,
    upper: Floats,
    witness: Floats,
    rival: Ints,
    status: Ints,
    boxes: Ints,
) -> None:
    """Certify the rows first..last - 1; predicted is the class to hold, or -1 for the one that the sample is given."""
    for i in range(first, last):
        clock[BOXES] = 0.0
        clock[ROW] = i
        for j in range(memory.start.size):
            x0, low, high = samples.features[i, j], samples.low[i, j], samples.high[i, j]
            s = min(high, max(low, x0))
            memory.start[j] = s
            memory.away[j] = s - x0
            memory.low[j] = low - s
            memory.high[j] = high - s
        predicted[i], radius[i], upper[i], rival[i], status[i], boxes[i] = certify_affine(
            problem, memory, samples.features[i], samples.low[i], samples.high[i], samples.weight[i],
            samples.target[i], predicted[i], witness[i], stop, clock,
        )  # fmt: skip
        if stop[0]:
            return


@part
def certify_affine(
    problem: AffineProblem,
    memory: AffineMemory,
    x0: Floats,
    low: Floats,
    high: Floats,
    scale: Floats,
    target: float,
    given: int,
    witness: Floats,
    stop: Flags,
    clock: Floats,
) -> tuple[int, float, float, int, int, int]:
    """One sample: (predicted, radius, upper, rival, status, boxes); the witness is written.

    Rivals are taken in the order of a bound that ignores the box, until that of the next is beyond what is known.
    """
    values, quick = memory.values, memory.quick
    for k in range(values.size):
        values[k] = logit(problem, k, memory.start)
    predicted = int(np.argmax(values)) if given < 0 else given
    witness[:] = np.nan
    lead = quick_bounds(problem, memory, predicted, scale)
    radius, upper = np.inf, np.inf
    winner = -1
    boxes = 0
    short, late = False, False
    while True:
        k = int(np.argmin(quick))
        if quick[k] >= min(upper, target) or quick[k] == np.inf:
            break
        late = expired(clock, 1.0)
        short = boxes >= problem.max_boxes or stop[0]
        if late or short:
            break
        boxes += 1
        clock[BOXES] = boxes
        quick[k] = np.inf
        bound, far = nearest_of_rival(problem, memory, x0, low, high, scale, predicted, k)
        radius = min(radius, bound)
        if far < upper:
            upper = far
            winner = k
            copy(memory.point, witness.size, witness)
    radius = min(radius, least(quick, quick.size), upper, target)
    if given < 0 and lead <= 2.0 * problem.rounding:
        return predicted, 0.0, upper, winner, TIE, boxes
    if radius == np.inf:
        return predicted, radius, upper, winner, WHOLE_CUBE, boxes
    if upper - radius <= problem.tolerance * upper < np.inf:
        return predicted, radius, upper, winner, PROVEN, boxes
    return predicted, radius, upper, winner, TIME if late else (BUDGET if short else ROUNDING), boxes


@part
def quick_bounds(problem: AffineProblem, memory: AffineMemory, predicted: int, scale: Floats) -> float:
    """A proven distance to each rival, whatever the box: its margin by the dual norm of its slope. Returns the lead."""
    values, quick, slope = memory.values, memory.quick, memory.slope
    q = dual_exponent(problem.norm)
    d = slope.size
    lead = np.inf
    for k in range(values.size):
        quick[k] = np.inf
        if k == predicted:
            continue
        margin = values[predicted] - values[k]
        lead = min(lead, margin)
        for j in range(d):
            slope[j] = (problem.weight[predicted, j] - problem.weight[k, j]) / scale[j]
        steepness = length(slope, q)
        room = margin - 2.0 * problem.rounding
        if room <= 0.0:
            quick[k] = 0.0
        elif steepness > 0.0:
            quick[k] = room / steepness * (1.0 - 2.0 * (d + 24) * ROUNDOFF)
    return lead


@part
def nearest_of_rival(
    problem: AffineProblem,
    memory: AffineMemory,
    x0: Floats,
    low: Floats,
    high: Floats,
    scale: Floats,
    predicted: int,
    k: int,
) -> tuple[float, float]:
    """A proven distance to rival k within the box, and that of a point that is its own, written to memory.point."""
    d = scale.size
    slope, vector = memory.slope, memory.vector
    margin = memory.values[predicted] - memory.values[k]
    least = margin
    for j in range(d):
        slope[j] = problem.weight[predicted, j] - problem.weight[k, j]
        least += min(slope[j] * memory.low[j], slope[j] * memory.high[j])
    if least - 2.0 * problem.rounding > (2 * d + 16) * ROUNDOFF * 4.0 * d:  # no product exceeds 2, nor margin 2 (d + 1)
        return np.inf, np.inf
    multiplier = move(memory, scale, margin, problem.norm)
    bound = dual_bound(memory, scale, margin - 2.0 * problem.rounding, problem.norm, multiplier)
    far = np.inf
    push = 4.0 * problem.rounding
    for _ in range(PUSHES):
        move(memory, scale, margin + push, problem.norm)
        for j in range(d):
            memory.point[j] = min(high[j], max(low[j], memory.start[j] + memory.steps[j]))
        ahead = logit(problem, predicted, memory.point) - logit(problem, k, memory.point)
        if ahead < -2.0 * problem.rounding:
            for j in range(d):
                vector[j] = scale[j] * (memory.point[j] - x0[j])
            far = length(vector, problem.norm) * (1.0 + 2.0 * (d + 20) * ROUNDOFF)
            break
        push *= 2.0
    return bound, far


@part
def move(memory: AffineMemory, scale: Floats, margin: float, p: float) -> float:
    """The steps u within the box, nearest to the sample, that take the margin to 0, or as low as it goes; a multiplier.

    Axis j lies |away + u| = multiplier * ratio^(1 / (p - 1)) / scale from the sample, downhill, if the box allows; for
    p < 2, (multiplier * ratio)^(1 / (p - 1)) / scale, which neither underflows. Ratio is |slope| / scale over the
    greatest of them. Between the last two multipliers the margin is linear.
    """
    slope, steps, below = memory.slope, memory.steps, memory.steps_below
    d = slope.size
    steepest = 0.0
    for j in range(d):
        steps[j] = 0.0
        below[j] = 0.0
        steepest = max(steepest, abs(slope[j]) / scale[j])
    if margin <= 0.0 or steepest == 0.0:
        return 0.0
    low, high = 0.0, 1.0
    at_low = margin
    at_high = step_all(memory, scale, high, steepest, margin, p, steps)
    while at_high > 0.0 and high < 2.0**1000:
        low, at_low = high, at_high
        copy(steps, d, below)
        high *= 2.0**20
        at_high = step_all(memory, scale, high, steepest, margin, p, steps)
    if at_high > 0.0:
        return high
    for _ in range(MOST_STEPS):
        middle = 0.5 * (low + high) if low > 0.0 else high * 2.0**-20
        if not low < middle < high or at_high == 0.0:
            break
        value = step_all(memory, scale, middle, steepest, margin, p, memory.vector)
        if value > 0.0:
            low, at_low = middle, value
            copy(memory.vector, d, below)
        else:
            high, at_high = middle, value
            copy(memory.vector, d, steps)
    share = at_low / (at_low - at_high)
    for j in range(d):
        steps[j] = below[j] + share * (steps[j] - below[j])
    return high


@part
def step_all(
    memory: AffineMemory, scale: Floats, multiplier: float, steepest: float, margin: float, p: float, steps: Floats
) -> float:
    """The steps that this multiplier gives, and the margin there."""
    for j in range(steps.size):
        ratio = abs(memory.slope[j]) / scale[j] / steepest
        if ratio == 0.0:
            reach = 0.0
        elif p == 1.0:
            reach = np.inf if multiplier * ratio > 1.0 else 0.0
        elif p == 2.0:
            reach = multiplier * ratio / scale[j]
        elif p < 2.0:
            reach = (multiplier * ratio) ** (1.0 / (p - 1.0)) / scale[j]
        else:
            reach = multiplier * ratio ** (1.0 / (p - 1.0)) / scale[j]
        downhill = -np.copysign(reach, memory.slope[j]) - memory.away[j]
        steps[j] = min(memory.high[j], max(memory.low[j], downhill))
        margin += memory.slope[j] * steps[j]
    return margin


@part
def dual_bound(memory: AffineMemory, scale: Floats, margin: float, p: float, multiplier: float) -> float:
    """A proven distance to the points s + u of the box with margin + slope . u <= 0.

    norm(scale * (away + u)) >= z . (scale * (away + u)) + lambda (margin + slope . u), for any z of dual norm at most
    1 and lambda >= 0, and the right side is least at a corner. Both are taken from the steps, which are nearly best.
    """
    slope, steps, away, z = memory.slope, memory.steps, memory.away, memory.vector
    d = slope.size
    for j in range(d):
        z[j] = scale[j] * away[j]
    nearest = length(z, p) * (1.0 - 2.0 * (d + 20) * ROUNDOFF)  # of the box itself
    for j in range(d):
        z[j] = scale[j] * (away[j] + steps[j])
    r = length(z, p)
    if r == 0.0:
        return nearest
    lam = multiplier_at(memory, scale, p, multiplier, r)
    for j in range(d):
        if p == 1.0:
            z[j] = min(1.0, max(-1.0, -lam * slope[j] / scale[j])) if z[j] == 0.0 else np.copysign(1.0, z[j])
        elif p == np.inf:
            held = abs(z[j]) < r * (1.0 - 1e-12) or not memory.low[j] < steps[j] < memory.high[j]
            z[j] = 0.0 if held or z[j] * slope[j] >= 0.0 else -lam * slope[j] / scale[j]
        else:
            z[j] = np.copysign((abs(z[j]) / r) ** (p - 1.0), z[j])
            push = z[j] * scale[j] + lam * slope[j]
            if not ((steps[j] == memory.low[j] and push >= 0.0) or (steps[j] == memory.high[j] and push <= 0.0)):
                z[j] = -lam * slope[j] / scale[j]  # no face holds it: what rounding does to a power is undone
    dual = length(z, dual_exponent(p)) * (1.0 + 2.0 * (d + 16) * ROUNDOFF)
    shrink = 1.0 / (dual * (1.0 + 4.0 * ROUNDOFF)) if dual > 1.0 else 1.0
    total = lam * margin
    size = abs(total)
    for j in range(d):
        pull = shrink * z[j] * scale[j]
        fall = lam * slope[j]
        total += pull * away[j] + min((pull + fall) * memory.low[j], (pull + fall) * memory.high[j])
        size += abs(pull * away[j]) + (abs(pull) + abs(fall)) * max(-memory.low[j], memory.high[j])
    bound = total - (2 * d + 16) * ROUNDOFF * size
    return bound if bound > nearest else nearest  # nor does one that is no number count


@part
def multiplier_at(memory: AffineMemory, scale: Floats, p: float, multiplier: float, r: float) -> float:
    """The multiplier of the constraint, for the norm; memory.vector holds scale * (away + steps), of length r."""
    slope, steps, z = memory.slope, memory.steps, memory.vector
    steepest, free, farthest = 0.0, 0.0, 0.0
    lam = 0.0
    for j in range(slope.size):
        steepest = max(steepest, abs(slope[j]) / scale[j])
        if z[j] * slope[j] < 0.0 and memory.low[j] < steps[j] < memory.high[j]:  # moved, and still free to
            if abs(z[j]) >= r * (1.0 - 1e-12):
                free += abs(slope[j]) / scale[j]
            if 1.0 < p < np.inf and abs(z[j]) > farthest:
                farthest = abs(z[j])
                lam = (farthest / r) ** (p - 1.0) * scale[j] / abs(slope[j])
    if p == np.inf:
        return 1.0 / free if free > 0.0 else 0.0
    if p == 1.0:
        return multiplier / steepest
    if lam > 0.0:
        return lam
    return float(multiplier * r ** (1.0 - p) if p < 2.0 else (multiplier / r) ** (p - 1.0)) / steepest
