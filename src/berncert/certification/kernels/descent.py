"""Compiled kernels: upper bounds, that is, points of the sample's box close to it that get another class."""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import part
from berncert.certification.kernels.distance import distance, dual_exponent, length, nearest
from berncert.certification.kernels.problem import Memory, Problem
from berncert.certification.kernels.tensor import ROUNDOFF, value_and_gradient, value_at
from berncert.foundation.arrays import Floats, Ints

STEPS = 12  # of one descent: most end after four or five
FEW = 4  # rivals looked at for a first witness


@part
def first_witness(
    problem: Problem, memory: Memory, x0: Floats, target: float, predicted: int, witness: Floats
) -> tuple[float, int]:
    """(upper, rival) from the rivals that look nearest by value and slope; (inf, -1) if none is found.

    Rivals that look twice as far as the target are left out, and a witness within the target is enough.
    """
    upper = np.inf
    winner = -1
    few = min(FEW, memory.margins.size - 1)
    rivals = memory.rivals[:few]
    looks = memory.looks[:few]
    for i in range(few):
        rivals[i] = next_rival(memory.margins, rivals[:i])
        subtract(problem.coefficients, predicted, rivals[i], memory.margin)
        value = slope_at(problem, memory, memory.start)
        for j in range(x0.size):
            memory.t[j] = memory.gradient[j] / memory.weight[j]
        looks[i] = value / length(memory.t, dual_exponent(problem.norm))
    for _ in range(few):
        best = np.argmin(looks)
        if looks[best] < min(upper, 2.0 * target) and not upper < target < np.inf:
            for j in range(x0.size):
                memory.x[j] = memory.start[j]
            found = descend(problem, memory, x0, predicted, rivals[best], upper, witness)
            if found < upper:
                upper = found
                winner = rivals[best]
        looks[best] = np.inf
    return upper, winner


@part
def next_rival(margins: Floats, done: Ints) -> int:
    """The class of least margin among those not done; ties go to the lower number."""
    best = -1
    for k in range(margins.size):
        if margins[k] < np.inf and (best < 0 or margins[k] < margins[best]):
            fresh = True
            for i in done:
                fresh = fresh and i != k
            if fresh:
                best = k
    return best


@part
def subtract(coefficients: Floats, a: int, b: int, out: Floats) -> None:
    """The margin of class a over class b; its coefficients are within 2 roundoffs."""
    one = coefficients[a]
    two = coefficients[b]
    for i in range(one.size):
        out[i] = one[i] - two[i]


@part
def slope_at(problem: Problem, memory: Memory, x: Floats) -> float:
    """The value of memory.margin at x; its gradient goes to memory.gradient."""
    return value_and_gradient(
        memory.margin, problem.sizes, x, memory.gradient, memory.here, memory.there, memory.scratch
    )


@part
def descend(
    problem: Problem, memory: Memory, x0: Floats, predicted: int, rival: int, upper: float, witness: Floats
) -> float:
    """From memory.x, project x0 again and again onto the linearised margin inside its box, keeping the best witness.

    Each point is also moved along its ray from x0 to where the linearised margin vanishes: near the nearest point of
    the boundary that is second-order exact in every norm, and it converges where the projections jump to and fro.
    Returns the least of `upper` and what was found.
    """
    d = x0.size
    x, t = memory.x, memory.t
    subtract(problem.coefficients, predicted, rival, memory.margin)
    for _ in range(STEPS):
        value = slope_at(problem, memory, x)
        upper = record(problem, memory, x0, x, value, upper, witness)
        reached = distance(x, x0, memory.weight, problem.norm, t)
        fall = 0.0
        for j in range(d):
            fall -= memory.gradient[j] * (x[j] - x0[j])
        # aim behind the boundary: by a small part of the tolerance, as a fraction of the distance
        beyond = 4.0 * problem.rounding + 0.02 * problem.tolerance * max(abs(fall), abs(value))
        stretch = 1.0 + (value + beyond) / fall
        if 0.0 < stretch * reached < upper * (1.0 - 1e-2 * problem.tolerance):
            for j in range(d):
                memory.z[j] = min(memory.high[j], max(memory.low[j], x0[j] + stretch * (x[j] - x0[j])))
            there = value_at(memory.margin, problem.sizes, memory.z, memory.here, memory.there, memory.scratch)
            upper = record(problem, memory, x0, memory.z, there, upper, witness)
        moved = land(problem, memory, x0, x, value + beyond)
        if moved <= 1e-2 * problem.tolerance * reached or moved <= 4.0 * ROUNDOFF:
            break
    return upper


@part
def land(problem: Problem, memory: Memory, origin: Floats, x: Floats, value: float) -> float:
    """Move x to the point of the box nearest to `origin` where the margin's tangent at x is 0; how far it moved.

    The tangent has the given value at x and the slope memory.gradient.
    """
    constant = value
    for j in range(x.size):
        middle = 0.5 * (memory.low[j] + memory.high[j])
        half = 0.5 * (memory.high[j] - memory.low[j])
        memory.middle[j] = memory.weight[j] * (middle - origin[j])
        memory.halves[j] = memory.weight[j] * half
        memory.slope[j] = half * memory.gradient[j]
        constant += memory.gradient[j] * (middle - x[j])
    nearest(memory.middle, memory.halves, memory.slope, constant, problem.norm, memory.rates, memory.t)
    moved = 0.0
    for j in range(x.size):
        new = min(memory.high[j], max(memory.low[j], origin[j] + memory.t[j] / memory.weight[j]))
        moved = max(moved, abs(new - x[j]))
        x[j] = new
    return moved


@part
def record(
    problem: Problem, memory: Memory, x0: Floats, x: Floats, value: float, upper: float, witness: Floats
) -> float:
    """Take x as the witness if its margin is negative beyond rounding and it is the nearest so far."""
    if value < -2.0 * problem.rounding:
        reached = distance(x, x0, memory.weight, problem.norm, memory.t) * (1.0 + 2.0 * (x0.size + 16) * ROUNDOFF)
        if reached < upper:
            for j in range(x.size):
                witness[j] = x[j]
            return reached
    return upper


@part
def try_witness(
    problem: Problem,
    memory: Memory,
    x0: Floats,
    predicted: int,
    rival: int,
    b: Floats,
    sizes: Ints,
    centre: Floats,
    half: Floats,
    upper: float,
    witness: Floats,
) -> float:
    """From the point of the box at memory.y, if that looks nearer than `upper`, go to the boundary; the new `upper`."""
    u, x, gradient = memory.t, memory.x, memory.gradient
    for j in range(x0.size):
        u[j] = 0.5 + 0.5 * memory.y[j]
    value = value_and_gradient(b, sizes, u, gradient, memory.here, memory.there, memory.scratch)
    for j in range(x0.size):
        place = x0[j] + (centre[j] + half[j] * memory.y[j]) / memory.weight[j]
        x[j] = min(memory.high[j], max(memory.low[j], place))
        gradient[j] /= 2.0 * half[j]
    steepness = length(gradient, dual_exponent(problem.norm))
    reached = distance(x, x0, memory.weight, problem.norm, memory.t)
    ahead = value / steepness if value > 0.0 else 0.0
    if not reached + ahead < upper * (1.0 - 0.5 * problem.tolerance):
        return upper
    # the nearest way to the boundary first, which cannot lead far from here; then along it, towards x0
    for j in range(x0.size):
        memory.y[j] = x[j]
        gradient[j] *= memory.weight[j]
    land(problem, memory, memory.y, x, value + 4.0 * problem.rounding + 0.02 * problem.tolerance * reached * steepness)
    for j in range(x0.size):
        memory.landed[j] = x[j]
    found = descend(problem, memory, x0, predicted, rival, upper, witness)
    if found < upper or is_plain(memory):
        return found
    return pull_back(problem, memory, x0, upper, witness)


@part
def is_plain(memory: Memory) -> bool:
    """Whether the sample's box is the cube and all axes count alike."""
    for j in range(memory.low.size):
        if memory.low[j] > 0.0 or memory.high[j] < 1.0 or memory.weight[j] != 1.0:
            return False
    return True


@part
def pull_back(problem: Problem, memory: Memory, x0: Floats, upper: float, witness: Floats) -> float:
    """From memory.landed, behind the boundary, back towards memory.y as far as the rival's side goes, by bisection.

    Where the steepest axes are at their faces, or cost little, landing aims much too far.
    """
    near, far = 0.0, 1.0
    for _ in range(24):
        middle = 0.5 * (near + far)
        for j in range(x0.size):
            place = memory.y[j] + middle * (memory.landed[j] - memory.y[j])
            memory.z[j] = min(memory.high[j], max(memory.low[j], place))
        value = value_at(memory.margin, problem.sizes, memory.z, memory.here, memory.there, memory.scratch)
        if value < -2.0 * problem.rounding:
            far = middle
            upper = record(problem, memory, x0, memory.z, value, upper, witness)
        else:
            near = middle
    return upper
