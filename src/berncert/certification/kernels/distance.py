"""Compiled kernels: proven lower bounds on the p-norm of t over the part of a box where a minorant is <= 0.

A box is t = centre + half * y, y in [-1, 1]^d, with the sample at t = 0. Bounds come from duality: whatever multiplier
is put in, the bound holds; the search for a good one needs no care about rounding, only the final sum does.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import inlined, part
from berncert.certification.kernels.tensor import ROUNDOFF
from berncert.foundation.arrays import Floats

NEAR_ONE = 1.05  # below it, powers of 1 / (p - 1) underflow


@inlined
def length(t: Floats, p: float) -> float:
    """The p-norm of t; its relative error is at most (d + 12) roundoffs."""
    largest = 0.0
    for v in t:
        largest = max(largest, abs(v))
    if largest == 0.0 or p == np.inf:
        return largest
    total = 0.0
    if p == 2.0:
        for v in t:
            total += (v / largest) * (v / largest)
        return float(largest * np.sqrt(total))
    for v in t:
        total += abs(v) / largest if p == 1.0 else (abs(v) / largest) ** p
    return largest * (total if p == 1.0 else total ** (1.0 / p))


@inlined
def distance(x: Floats, y: Floats, weight: Floats, p: float, work: Floats) -> float:
    """The p-norm of weight * (x - y); its relative error is at most (d + 14) roundoffs."""
    for j in range(x.size):
        work[j] = weight[j] * (x[j] - y[j])
    return length(work, p)


@inlined
def dual_exponent(p: float) -> float:
    """q with 1/p + 1/q = 1."""
    if p == 1.0:
        return np.inf
    return 1.0 if p == np.inf else p / (p - 1.0)


@part
def nearest(centre: Floats, half: Floats, slope: Floats, constant: float, p: float, rates: Floats, t: Floats) -> None:
    """The point t of the box nearest to 0 with constant + slope . y <= 0: written to t, up to rounding.

    Where the box has no such point, t is the corner where the function is least. On the way from 0,
    |t_j| = mu * rates[j] up to the box's faces, for one mu >= 0 (Lagrange); the constraint is piecewise linear in mu.
    """
    d = centre.size
    least = constant
    steepest = 0.0
    for j in range(d):
        least -= abs(slope[j])
        steepest = max(steepest, abs(slope[j]) / half[j])
    for j in range(d):  # as near as the box allows
        t[j] = min(max(0.0, centre[j] - half[j]), centre[j] + half[j])
    if least > 0.0:
        for j in range(d):
            if slope[j] != 0.0:
                t[j] = centre[j] - np.copysign(half[j], slope[j])
        return
    value = constant
    for j in range(d):
        value += slope[j] * ((t[j] - centre[j]) / half[j])
    if value <= 0.0:
        return
    if p == 1.0:
        _greedy(centre, half, slope, value, rates, t)
        return
    if p < NEAR_ONE:
        _bisect(centre, half, slope, constant, p, steepest, t)
        return
    low = 0.0
    high = 0.0
    for j in range(d):
        ratio = abs(slope[j]) / half[j] / steepest
        rates[j] = 1.0 if p == np.inf else (ratio if p == 2.0 else ratio ** (1.0 / (p - 1.0)))
        if slope[j] == 0.0:
            rates[j] = 0.0
        if rates[j] > 0.0:
            high = max(high, (half[j] - np.copysign(1.0, slope[j]) * centre[j]) / rates[j])
    mu = 0.0
    for _ in range(60):
        value = constant
        fall = 0.0
        for j in range(d):
            step = -np.copysign(mu * rates[j], slope[j])
            t[j] = min(max(step, centre[j] - half[j]), centre[j] + half[j])
            value += slope[j] * ((t[j] - centre[j]) / half[j])
            if t[j] == step:
                fall += abs(slope[j]) * rates[j] / half[j]
        if value > 0.0:
            low = mu
        else:
            high = mu
        if abs(value) <= 1e-12 * abs(constant) or high - low <= 1e-13 * high:
            break
        mu = mu + value / fall if fall > 0.0 else low
        if not low < mu < high:
            mu = 0.5 * (low + high)


@part
def _greedy(centre: Floats, half: Floats, slope: Floats, value: float, moved: Floats, t: Floats) -> None:
    """For p = 1: move along the axis with the steepest fall until its face, then along the next."""
    moved[:] = 0.0
    while value > 0.0:
        best = -1
        for j in range(centre.size):
            steeper = best < 0 or abs(slope[j]) * half[best] > abs(slope[best]) * half[j]
            if moved[j] == 0.0 and slope[j] != 0.0 and steeper:
                best = j
        if best < 0:
            return
        moved[best] = 1.0
        end = centre[best] - np.copysign(half[best], slope[best])
        step = -np.copysign(value * half[best] / abs(slope[best]), slope[best])
        if abs(end - t[best]) <= abs(step):
            value -= abs(slope[best]) * (abs(end - t[best]) / half[best])
            t[best] = end
        else:
            t[best] += step
            return


@part
def _bisect(centre: Floats, half: Floats, slope: Floats, constant: float, p: float, steepest: float, t: Floats) -> None:
    """For p close to 1: the same by bisection on the multiplier, as rates would underflow."""
    low = 0.0
    high = 0.0
    for j in range(t.size):
        if slope[j] != 0.0:
            end = abs(centre[j]) + half[j]
            high = max(high, end ** (p - 1.0) * steepest / (abs(slope[j]) / half[j]))
    for _ in range(60):
        middle = 0.5 * (low + high)
        value = constant
        for j in range(t.size):
            step = (middle * (abs(slope[j]) / half[j]) / steepest) ** (1.0 / (p - 1.0))
            t[j] = min(max(-np.copysign(step, slope[j]), centre[j] - half[j]), centre[j] + half[j])
            value += slope[j] * ((t[j] - centre[j]) / half[j])
        if value > 0.0:
            low = middle
        else:
            high = middle


@part
def support(t: Floats, centre: Floats, half: Floats, slope: Floats, p: float, z: Floats) -> float:
    """A vector z with dual norm <= 1, hence norm(.) >= z . (.), nearly tight at t; and its multiplier, returned.

    Stationarity asks z_j half_j + multiplier * slope_j = 0 where t_j is free, and the norm's gradient where a face
    holds it. Any z and multiplier make a valid bound; these make the best one where t is the nearest point.
    """
    d = t.size
    r = length(t, p)
    if r == 0.0:
        z[:] = 0.0
        return 0.0
    multiplier = _multiplier(t, centre, half, slope, p, r)
    for j in range(d):
        held = abs(t[j] - centre[j]) >= half[j] * (1.0 - 1e-12)
        # a face through the sample holds nothing if downhill lies inside
        if held and (t[j] != 0.0 or slope[j] * centre[j] >= 0.0):
            z[j] = np.copysign((abs(t[j]) / r) ** (p - 1.0), t[j]) if p < np.inf and t[j] != 0.0 else 0.0
            if p == np.inf and multiplier == 0.0 and abs(t[j]) == r:
                z[j] = np.copysign(1.0, t[j])
        elif p == np.inf and abs(t[j]) < r * (1.0 - 1e-12):
            z[j] = 0.0
        else:
            z[j] = -multiplier * slope[j] / half[j]
            if p == 1.0:
                z[j] = min(1.0, max(-1.0, z[j]))
    dual = length(z, dual_exponent(p)) * (1.0 + 2.0 * (d + 16) * ROUNDOFF)
    if dual > 1.0:
        for j in range(d):
            z[j] /= dual * (1.0 + 2.0 * ROUNDOFF)
    return multiplier


@part
def _multiplier(t: Floats, centre: Floats, half: Floats, slope: Floats, p: float, r: float) -> float:
    """The multiplier of the constraint at t: from an axis free to move, else the least that drives all that moved."""
    free = -1.0
    driven = 0.0
    farthest = 0.0
    for j in range(t.size):
        if t[j] * slope[j] < 0.0:  # away from 0, downhill
            inverse = half[j] / abs(slope[j])
            if abs(t[j] - centre[j]) >= half[j] * (1.0 - 1e-12):
                if (t[j] - centre[j]) * slope[j] < 0.0 and p < np.inf:  # as far as the box goes
                    driven = max(driven, (abs(t[j]) / r) ** (p - 1.0) * inverse)
            elif p == np.inf:
                if abs(t[j]) >= r * (1.0 - 1e-12):
                    free = max(free, 0.0) + 1.0 / inverse
            elif abs(t[j]) > farthest:
                farthest = abs(t[j])
                free = (abs(t[j]) / r) ** (p - 1.0) * inverse
    if p == np.inf:
        return 1.0 / free if free > 0.0 else 0.0
    return free if free >= 0.0 else driven


@part
def affine_bound(centre: Floats, half: Floats, slope: Floats, constant: float, z: Floats, multiplier: float) -> float:
    """norm(t) >= z . t >= z . t + multiplier * (constant + slope . y) >= this, where the function is <= 0."""
    total = multiplier * constant
    size = abs(total)
    for j in range(centre.size):
        a = z[j] * centre[j]
        w = multiplier * slope[j]
        c = z[j] * half[j]
        total += a - abs(c + w)
        size += abs(a) + abs(c) + abs(w)
    return total - (2 * centre.size + 8) * ROUNDOFF * size


@part
def quadratic_bound(
    centre: Floats,
    half: Floats,
    slope: Floats,
    curvature: Floats,
    constant: float,
    p: float,
    t: Floats,
    z: Floats,
    multiplier: float,
    y: Floats,
    linear: Floats,
    matrix: Floats,
) -> float:
    """A lower bound on norm(t), where constant + slope . y + (curvature terms) <= 0, from a convex quadratic program.

    norm(.)^2 is at least a quadratic function N that touches it at the given t, whatever t is: for p >= 2 a weighted
    sum of squares (Hoelder; for p = inf with the magnitudes of z as weights), for p < 2 an expansion with the gradient
    at t (half the squared norm is (p - 1)-strongly convex). N + multiplier * Q is made convex by adding
    sum shift_j (y_j^2 - 1) <= 0, roughly minimised by coordinate descent, and bounded below by its tangent.
    """
    d = centre.size
    r = length(t, p)
    lam = 2.0 * r * multiplier
    total = lam * constant
    size = abs(total)
    for j in range(d):
        y[j] = min(1.0, max(-1.0, (t[j] - centre[j]) / half[j]))
    if p >= 2.0:
        # the weights must have a dual norm of at most 1: the ratio's rounding counts p times
        safe = max(0.0, 1.0 - 2.0 * p * (d + 20) * ROUNDOFF)
        for j in range(d):
            w = abs(z[j]) if p == np.inf else (1.0 if p == 2.0 else (abs(t[j]) / r) ** (p - 2.0) * safe)
            matrix[j, j] = w * half[j] * half[j]
            linear[j] = 2.0 * w * centre[j] * half[j]
            total += w * centre[j] * centre[j]
            size += w * (abs(centre[j]) + half[j]) ** 2
    else:
        total += r * r
        size += r * r
        for j in range(d):
            away = centre[j] - t[j]
            w = p - 1.0
            g = 2.0 * r * np.copysign((abs(t[j]) / r) ** w, t[j]) if t[j] != 0.0 else 0.0  # of the squared norm at t
            matrix[j, j] = w * half[j] * half[j]
            linear[j] = (g + 2.0 * w * away) * half[j]
            total += away * (g + w * away)
            size += (abs(away) + half[j]) * (abs(g) + w * (abs(away) + half[j]))
    for j in range(d):
        linear[j] += lam * slope[j]
        size += lam * abs(slope[j])
        matrix[j, j] += lam * curvature[j, j]
        for i in range(j):
            matrix[i, j] = matrix[j, i] = 0.5 * lam * curvature[i, j]
    tangent = convex_least(matrix, linear, total, size, y)
    return np.sqrt(tangent) * (1.0 - 4.0 * ROUNDOFF) if tangent > 0.0 else 0.0


@part
def convex_least(matrix: Floats, linear: Floats, total: float, size: float, y: Floats) -> float:
    """A lower bound of total + linear . y + y . matrix y over [-1, 1]^d; y goes near to where the least is.

    size: the sum of the magnitudes of what was added up for total, linear and matrix, for the rounding.
    """
    d = y.size
    for j in range(d):  # diagonal dominance is convexity
        others = 0.0
        for i in range(d):
            if i != j:
                others += abs(matrix[i, j])
        size += abs(matrix[j, j]) + others
        others *= 1.0 + 4.0 * d * ROUNDOFF
        if matrix[j, j] < others:
            total -= (others - matrix[j, j]) * (1.0 + 4.0 * ROUNDOFF)
            matrix[j, j] = others
    _descend(matrix, linear, y)
    tangent = total
    for j in range(d):
        along = 0.0
        for i in range(d):
            along += matrix[i, j] * y[i]
        tangent += y[j] * (linear[j] + along)
        g = linear[j] + 2.0 * along
        tangent -= g * (1.0 + y[j]) if g > 0.0 else -g * (1.0 - y[j])
    tangent -= 4.0 * (12 * d + 80) * ROUNDOFF * size
    return tangent


@part
def _descend(matrix: Floats, linear: Floats, y: Floats) -> None:
    """Coordinate descent on y . matrix y + linear . y over [-1, 1]^d, a few sweeps."""
    d = y.size
    for _ in range(4):
        for j in range(d):
            if matrix[j, j] > 0.0:
                pull = linear[j]
                for i in range(d):
                    if i != j:
                        pull += 2.0 * matrix[i, j] * y[i]
                y[j] = min(1.0, max(-1.0, -0.5 * pull / matrix[j, j]))
