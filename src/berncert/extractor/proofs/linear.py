"""Rules of layers that are linear (or affine) in their input, and of the block that a convex potential makes of one."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from berncert.extractor import layers
from berncert.extractor.normalised import export, geometry_of
from berncert.extractor.proofs.activations import ULPS
from berncert.extractor.proofs.facts import (
    RULES,
    Layer,
    Shape,
    absolute_norm,
    apply_rule,
    length,
    require_finite,
    root_of,
    rule_for,
)
from berncert.extractor.proofs.gains import INF, everywhere
from berncert.extractor.proofs.norms import (
    LARGEST_EXPLICIT,
    UNIT,
    conv_norm_bound,
    matrix_norm_bound,
    power_of_two,
    remembered,
    sums_over_inputs,
    sums_over_outputs,
)

_matrix_norm = remembered(matrix_norm_bound)


@rule_for(nn.Linear)
def linear(module: nn.Linear, shape: Shape) -> Layer:
    """Norms from 1 and to infinity are those of columns, rows and entries; the 2-norm is proven by Cholesky."""
    require_finite(weight=module.weight, bias=module.bias)
    w = module.weight.detach().cpu().double()
    scale = power_of_two(w)
    a, wider = (w / scale).abs(), scale * (1 + (sum(w.shape) + 8) * UNIT)
    known = {
        (1.0, 1.0): float(a.sum(dim=0).max()) * wider,
        (1.0, 2.0): float(a.norm(dim=0).max()) * wider,
        (1.0, INF): float(a.max()) * wider,
        (2.0, 2.0): _matrix_norm(w),
        (2.0, INF): float(a.norm(dim=1).max()) * wider,
        (INF, INF): float(a.sum(dim=1).max()) * wider,
    }
    copies = math.prod(shape[:-1])
    return Layer(known, length(module.bias, copies), w.shape[1] + 3, absolute_norm(known))


@rule_for(nn.Conv2d, maps=True)
def conv2d(module: nn.Conv2d, shape: Shape) -> Layer:
    """The 2-norm from frequencies, or the explicit matrix; the others from sums over what touches a pixel."""
    require_finite(weight=module.weight, bias=module.bias)
    geometry = geometry_of(module)
    w = module.weight.detach().cpu().double()
    fan, scale = w[0].numel(), power_of_two(w)
    wider = scale * (1 + 4 * (max(fan, w.numel() // w.shape[1]) + 8) * UNIT)
    absolute = partial(geometry.convolve, weight=(w / scale).abs())
    known = {
        (1.0, 1.0): sums_over_inputs(absolute, shape) * wider,
        (2.0, 2.0): conv_norm_bound(w, geometry, shape[1:]),
        (INF, INF): sums_over_outputs(absolute, shape) * wider,
    }
    if geometry.mode == "zeros":  # each entry of the matrix is one weight
        squares = partial(geometry.convolve, weight=(w / scale).square())
        known |= {
            (1.0, 2.0): math.sqrt(sums_over_inputs(squares, shape)) * wider,
            (1.0, INF): float((w / scale).abs().max()) * wider,
            (2.0, INF): math.sqrt(sums_over_outputs(squares, shape)) * wider,
        }
    outputs = math.prod(absolute(torch.zeros(1, *shape, dtype=torch.float64)).shape[2:])
    return Layer(known, length(module.bias, outputs), fan + 3, absolute_norm(known))


@rule_for(layers.PotentialStep)
def potential_step(module: layers.PotentialStep, shape: Shape) -> Layer:
    """The derivative I - 2 W D W^T, with 0 <= D <= I, is symmetric, its eigenvalues between 1 - 2 |W|^2 and 1."""
    inner = apply_rule(RULES[nn.Linear if isinstance(module.inner, nn.Linear) else nn.Conv2d], module.inner, shape)
    norm, one, greatest = (inner.known[n, n] for n in (2.0, 1.0, INF))
    wider = 1 + 8 * UNIT
    sides = (1 + 2 * one * greatest) * wider  # W^T has the l1 norm of W in l-inf, and the other way round
    assert inner.magnitude is not None
    fan_back = module.inner.weight.numel() / module.inner.weight.shape[1]
    return Layer(
        {(2.0, 2.0): max(1.0, (2 * norm * norm - 1) * wider), (1.0, 1.0): sides, (INF, INF): sides},
        2 * inner.magnitude * inner.offset * wider,
        inner.roundings + fan_back + 6,
        (1 + 2 * inner.magnitude**2) * wider,
    )


@rule_for(layers.Normalise)
def normalise(module: layers.Normalise, shape: Shape) -> Layer:
    """The least standard deviation decides."""
    require_finite(mean=module.mean, std=module.std)
    if len(module.std) not in (1, shape[0]):
        raise ValueError(f"expected {len(module.std)} channels, got a tensor of shape {shape}")
    mean, std = module.mean.double(), module.std.double()
    copies = math.prod(shape) // len(std)
    return Layer(everywhere(float((1 / std).max()) * (1 + 4 * UNIT)), length(mean / std, copies), 4)


@rule_for(layers.UnitCube)
def unit_cube(module: layers.UnitCube, shape: Shape) -> Layer:
    """1 / side."""
    return Layer(everywhere(1 / module.side * (1 + 2 * UNIT)), 0.5 * root_of(shape), 4, limits=(0.0, 1.0))


@rule_for(nn.BatchNorm1d, nn.BatchNorm2d)
def batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, shape: Shape) -> Layer:
    """In evaluation: |gamma| / sqrt(var + eps), the largest."""
    if module.running_var is None or module.running_mean is None:
        raise ValueError(f"expected running statistics, got none; {type(module).__name__} then mixes the batch")
    require_finite(weight=module.weight, bias=module.bias, mean=module.running_mean, var=module.running_var)
    scale = _scale(module)
    shift = -scale * module.running_mean.detach().cpu().double()
    steepest = float(scale.abs().max()) * (1 + 16 * UNIT)
    copies = math.prod(shape[1:])
    return Layer(everywhere(steepest), length(shift, copies) + length(module.bias, copies), ULPS + 4)


def folded_rule(module: nn.ModuleList, shape: Shape) -> Layer:
    """A convolution or linear layer and the batch normalisation after it, as one layer."""
    before, norm = cast(tuple[nn.Linear | nn.Conv2d, nn.BatchNorm2d], tuple(module))
    plain = export(before).double()
    scale = _scale(norm)
    plain.weight = nn.Parameter(plain.weight.detach().cpu() * scale.view(-1, *(1,) * (plain.weight.ndim - 1)))
    layer = apply_rule(RULES[nn.Linear if isinstance(plain, nn.Linear) else nn.Conv2d], plain, shape)
    assert layer.magnitude is not None
    slip = 16 * UNIT * layer.magnitude  # what rounding the product can have done
    return replace(layer, known={pair: factor * (1 + 16 * UNIT) + slip for pair, factor in layer.known.items()})


def _scale(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> Tensor:
    """gamma / sqrt(var + eps), for each channel."""
    assert norm.running_var is not None
    deviation = (norm.running_var.detach().cpu().double() + norm.eps).sqrt()
    if not (deviation > 0).all():
        raise ValueError("expected a running variance + eps > 0, got 0 or less; the layer divides by its root")
    return (1.0 if norm.weight is None else norm.weight.detach().cpu().double()) / deviation


@rule_for(nn.AvgPool2d, nn.AdaptiveAvgPool2d, maps=True)
def average_pool(module: nn.AvgPool2d | nn.AdaptiveAvgPool2d, shape: Shape) -> Layer:
    """A linear map without negative entries, the same for each channel."""
    if isinstance(module, nn.AvgPool2d) and module.divisor_override is not None and module.divisor_override <= 0:
        raise ValueError(f"expected a positive divisor_override, got {module.divisor_override}")
    image = (1, *shape[1:])
    fan = math.prod(image)
    wider = 1 + 4 * (fan + 8) * UNIT
    known = {
        (1.0, 1.0): sums_over_inputs(module, image) * wider,
        (INF, INF): sums_over_outputs(module, image) * wider,
    }
    if fan <= LARGEST_EXPLICIT:
        basis = torch.eye(fan, dtype=torch.float64).reshape(-1, *image)
        known[2.0, 2.0] = _matrix_norm(module(basis).flatten(1).T) * wider
    return Layer(known, 0.0, fan + 3, absolute_norm(known))


def mean_of(inputs: int, outputs: int) -> Layer:
    """Averages of disjoint groups of entries, all of the same size."""
    share = outputs / inputs
    known = {(1.0, 1.0): share, (2.0, 2.0): math.sqrt(share), (INF, INF): 1.0}
    return Layer({pair: factor * (1 + 8 * UNIT) for pair, factor in known.items()}, roundings=inputs / outputs + 3)
