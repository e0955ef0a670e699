"""Compiled kernels: affine and quadratic functions that stay below a Bernstein polynomial on its box.

The box has coordinates y in [-1, 1]^d. A quadratic function without squares on axes of degree 1,

    Q(y) = constant + slope . y + sum over i <= j of curvature[i, j] y_i y_j,

is itself a Bernstein polynomial of the same degrees, so p >= Q + min over k of (b_k - Q_k): the gap on the control
net bounds the gap on the box. `fit` takes Q by least squares on the net: any Q is sound, a close one is tight.
"""

from __future__ import annotations

import numpy as np

from berncert.certification.kernels.compiled import inlined, part
from berncert.certification.kernels.tensor import ROUNDOFF, contract, least
from berncert.foundation.arrays import Floats, Ints


@inlined
def node(k: int, n: int) -> float:
    """The k-th Bernstein coefficient, of degree n, of y."""
    return (2 * k - n) / n


@inlined
def squared_node(k: int, n: int) -> float:
    """The k-th Bernstein coefficient, of degree n, of y^2; 0 where the degree is 1, which has no y^2."""
    return (4 * k * (k - n)) / (n * (n - 1)) + 1.0 if n > 1 else 0.0


@inlined
def nodes(size: int, linear: Floats, square: Floats) -> None:
    """The Bernstein coefficients of y and of y^2 on an axis."""
    n = size - 1
    for k in range(size):
        linear[k] = node(k, n)
        square[k] = squared_node(k, n)


@part
def fit(
    b: Floats, sizes: Ints, slope: Floats, curvature: Floats, here: Floats, there: Floats, scratch: Floats
) -> float:
    """Q nearest to the control net in least squares: its constant is returned, the rest written.

    One axis at a time, carrying the moments of total degree <= 2: the net's mean, its first moments, its second ones.
    Curvature is symmetric; the product y_i y_j, i != j, stands in Q once.
    """
    d = sizes.size
    linear, square, mean = scratch[0], scratch[1], scratch[2]
    seconds = 0
    rest = b.size
    source = b
    for j in range(d):
        size = sizes[j]
        old = rest
        rest //= size
        moment_weights(size, mean, linear, square)
        contract(source, 1 + j, size, rest, mean, here)
        contract(source, 1, size, rest, linear, here[(1 + j) * rest :])
        at = 2 + j
        contract(source[(1 + j) * old :], seconds, size, rest, mean, here[at * rest :])
        at += seconds
        contract(source[old:], j, size, rest, linear, here[at * rest :])
        seconds += j
        if size > 2:
            contract(source, 1, size, rest, square, here[(at + j) * rest :])
            seconds += 1
        source = here
        here, there = there, here
    constant = source[0]
    at = 1 + d
    for j in range(d):
        slope[j] = source[1 + j]
        for i in range(j):
            curvature[i, j] = curvature[j, i] = source[at]
            at += 1
        curvature[j, j] = 0.0
        if sizes[j] > 2:
            curvature[j, j] = source[at]
            at += 1
            nodes(sizes[j], linear, square)
            for k in range(sizes[j]):
                constant -= curvature[j, j] * square[k] / sizes[j]
    return float(constant)


@inlined
def moment_weights(size: int, mean: Floats, linear: Floats, square: Floats) -> None:
    """Weights that take an axis' coefficients to their mean and to the least-squares factors of y and of y^2."""
    nodes(size, linear, square)
    offset = 0.0
    for k in range(size):
        offset += square[k] / size
    across = 0.0
    along = 0.0
    for k in range(size):
        mean[k] = 1.0 / size
        square[k] -= offset
        across += linear[k] * linear[k]
        along += square[k] * square[k]
    for k in range(size):
        linear[k] /= across
        if size > 2:
            square[k] /= along


@part
def gaps(
    b: Floats, sizes: Ints, constant: float, slope: Floats, curvature: Floats, net: Floats, prefix: Floats, index: Ints,
    most: int = 64,
) -> tuple[float, float]:  # fmt: skip
    """min over k of b_k - Q_k, for Q's affine part alone and for the whole of Q, both rounded down.

    The last axes make a block, of up to `most` coefficients; what they contribute to Q by themselves is the same in
    every block.
    """
    d = sizes.size
    inner = d - 1  # axes inner..d-1 make a block
    block = sizes[inner]
    while inner > 0 and block * sizes[inner - 1] <= most:
        inner -= 1
        block *= sizes[inner]
    affine = net[d, :block]
    quadratic = net[d + 1, :block]
    whole = net[d + 2, :block]
    plane = net[d + 3, :block]
    bowl = net[d + 4, :block]
    lay_block(sizes, inner, block, slope, curvature, net)
    for k in range(block):
        affine[k] = quadratic[k] = np.inf
    # prefix[j]: what the indices of the axes before j decide: the slopes of the later axes, Q's value, its plane's
    for j in range(d):
        prefix[0, j] = slope[j]
        index[j] = 0
    prefix[0, d] = prefix[0, d + 1] = constant
    at = 0
    level = 0
    while level >= 0:
        for j in range(level, inner):
            n = sizes[j] - 1
            y = node(index[j], n)
            square = squared_node(index[j], n)
            prefix[j + 1, d] = prefix[j, d] + prefix[j, j] * y + curvature[j, j] * square
            prefix[j + 1, d + 1] = prefix[j, d + 1] + slope[j] * y
            for i in range(j + 1, d):
                prefix[j + 1, i] = prefix[j, i] + curvature[j, i] * y
        base = prefix[inner, d]
        flat = prefix[inner, d + 1]
        for k in range(block):
            whole[k] = base + bowl[k]
        for j in range(inner, d):
            steep = prefix[inner, j]
            coordinate = net[j, :block]
            for k in range(block):
                whole[k] += steep * coordinate[k]
        part = b[at : at + block]
        for k in range(block):
            gap = part[k] - (flat + plane[k])
            affine[k] = gap if gap < affine[k] else affine[k]
            gap = part[k] - whole[k]
            quadratic[k] = gap if gap < quadratic[k] else quadratic[k]
        at += block
        level = inner - 1
        while level >= 0:
            index[level] += 1
            if index[level] < sizes[level]:
                break
            index[level] = 0
            level -= 1
    # at most 3 roundings in a node, then 2 for each of the (d + 1)(d + 2) / 2 terms, each of at most `magnitude`
    magnitude = abs(constant) + 2.0
    for j in range(d):
        magnitude += abs(slope[j])
        for i in range(j + 1):
            magnitude += abs(curvature[i, j])
    slack = (d + 4) * (d + 4) * ROUNDOFF * magnitude
    return least(affine, block) - slack, least(quadratic, block) - slack


@part
def lay_block(sizes: Ints, inner: int, block: int, slope: Floats, curvature: Floats, net: Floats) -> None:
    """The nodes of each inner axis, laid out over the block, and the block's own part of the plane and of Q."""
    d = sizes.size
    plane = net[d + 3, :block]
    bowl = net[d + 4, :block]
    for k in range(block):
        plane[k] = bowl[k] = 0.0
    stride = block
    for j in range(inner, d):
        n = sizes[j] - 1
        stride //= sizes[j]
        coordinate = net[j, :block]
        turn = 0
        for start in range(0, block, stride):
            y = node(turn, n)
            square = squared_node(turn, n)
            for k in range(start, start + stride):
                coordinate[k] = y
                plane[k] += slope[j] * y
                bowl[k] += curvature[j, j] * square
            turn = turn + 1 if turn < n else 0
        for i in range(inner, j):
            other = net[i, :block]
            for k in range(block):
                bowl[k] += curvature[i, j] * other[k] * coordinate[k]
