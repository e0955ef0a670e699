"""What is proven of each layer: how much it stretches, between which norms, and what rounding can add."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from berncert.extractor import layers
from berncert.extractor.gains import INF, Known, copying, everywhere
from berncert.extractor.normalised import export, geometry_of
from berncert.extractor.norms import (
    LARGEST_EXPLICIT,
    UNIT,
    conv_norm_bound,
    matrix_norm_bound,
    remembered,
    sums_over_inputs,
    sums_over_outputs,
)

Shape = tuple[int, ...]
ULPS = 8.0  # of a result, that the elementary functions of any common library may be off by


@dataclass(frozen=True)
class Layer:
    """The proven facts of one layer f, for one shape of input."""

    known: Known
    """(s, t) -> a bound on norm_t(f(x) - f(y)) / norm_s(x - y), for as many pairs as are known."""
    offset: float = 0.0
    """At least norm_2(f(0))."""
    roundings: float = 0.0
    """The computed f(x) differs from the true one by at most this many units of (magnitude norm_2(x) + offset)."""
    magnitude: float | None = None
    """The 2-norm of the layer with absolute weights; by default that of the layer."""
    limits: tuple[float, float] = (-INF, INF)
    """Between which all entries of f(x) lie, for every x."""
    keeps_limits: bool = False
    """Whether every entry of f(x) lies between two entries of x."""
    deviation: float = 0.0
    """How far, in norm_2, the layer as torch defines it may be from the Lipschitz function f, rounding aside."""


REARRANGED = Layer(everywhere(1.0), keeps_limits=True)
"""The same numbers in another order, or some of them."""

Rule = Callable[[Any, Shape], "Layer | Known | float"]
"""From a module and the shape of its input (without batch) to what is proven of it; a number is a bound in l2."""

RULES: dict[type[nn.Module], Rule] = {}
MAPS: set[Rule] = set()
"""Rules that hold for maps, (channels, height, width), only: torch would take the batch for the channels of less."""
R = TypeVar("R", bound=Rule)


def rule_for(*kinds: type[nn.Module], maps: bool = False) -> Callable[[R], R]:
    """Register a rule for these modules, of maps only or of anything."""

    def register(rule: R) -> R:
        RULES.update(dict.fromkeys(kinds, rule))
        if maps:
            MAPS.add(rule)
        return rule

    return register


def find_rule(module: nn.Module) -> Rule | None:
    """The rule for this module; a subclass that computes something else does not inherit one."""
    if "forward" in vars(module):
        return None
    for kind in type(module).__mro__:
        if kind in RULES:
            computed_by = ("forward", "_conv_forward")
            same = all(getattr(type(module), name, None) is getattr(kind, name, None) for name in computed_by)
            return RULES[kind] if same else None
    return None


def apply_rule(rule: Rule, module: nn.Module, shape: Shape) -> Layer:
    """What the rule says, in full."""
    if rule in MAPS and len(shape) != 3:
        raise ValueError(f"expected a map (channels, height, width), got shape {shape}; check input_shape")
    said = rule(module, shape)
    layer = said if isinstance(said, Layer) else Layer(said if isinstance(said, dict) else {(2.0, 2.0): float(said)})  # type: ignore[arg-type]
    known = {(float(s), float(t)): float(factor) for (s, t), factor in layer.known.items()}
    if not known or not all(factor >= 0 for factor in known.values()):  # NaN is not
        raise ValueError(f"expected bounds >= 0, got {dict(layer.known)}; a bound that is not a number proves nothing")
    return replace(layer, known=known)


def absolute_norm(known: Known) -> float:
    """A bound on the 2-norm of a linear map with its entries made positive, from its l1 and l-inf norms (Schur)."""
    return math.sqrt(known[1.0, 1.0] * known[INF, INF]) * (1 + 4 * UNIT)


def length(values: Tensor | None, copies: int = 1) -> float:
    """The 2-norm of so many copies of the values, rounded up; 0 for None."""
    if values is None:
        return 0.0
    values = values.detach().cpu().double()
    return float(values.norm()) * math.sqrt(copies) * (1 + (values.numel() + 8) * UNIT)


def require_finite(**tensors: Tensor | None) -> None:
    """An error that names the first of these that holds NaN or infinity."""
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.isfinite().all():
            raise ValueError(f"expected a finite {name}, got NaN or infinity; nothing can be proven of such a layer")


_matrix_norm = remembered(matrix_norm_bound)


@rule_for(nn.Linear)
def linear(module: nn.Linear, shape: Shape) -> Layer:
    """Norms from 1 and to infinity are those of columns, rows and entries; the 2-norm is proven by Cholesky."""
    require_finite(weight=module.weight, bias=module.bias)
    w = module.weight.detach().cpu().double()
    a, wider = w.abs(), 1 + (sum(w.shape) + 8) * UNIT
    known = {
        (1.0, 1.0): float(a.sum(dim=0).max()) * wider,
        (1.0, 2.0): float(w.norm(dim=0).max()) * wider,
        (1.0, INF): float(a.max()),
        (2.0, 2.0): _matrix_norm(w),
        (2.0, INF): float(w.norm(dim=1).max()) * wider,
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
    fan = w[0].numel()
    wider = 1 + 4 * (max(fan, w.numel() // w.shape[1]) + 8) * UNIT
    absolute = partial(geometry.convolve, weight=w.abs())
    known = {
        (1.0, 1.0): sums_over_inputs(absolute, shape) * wider,
        (2.0, 2.0): conv_norm_bound(w, geometry, shape[1:]),
        (INF, INF): sums_over_outputs(absolute, shape) * wider,
    }
    if geometry.mode == "zeros":  # each entry of the matrix is one weight
        squares = partial(geometry.convolve, weight=w.square())
        known |= {
            (1.0, 2.0): math.sqrt(sums_over_inputs(squares, shape)) * wider,
            (1.0, INF): float(w.abs().max()),
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


def entrywise(
    constant: float, at_zero: float = 0.0, limits: tuple[float, float] = (-INF, INF), *, ulps: float = ULPS
) -> Rule:
    """A function of each entry with this Lipschitz constant, its value at 0, and limits of its values."""

    def rule(module: nn.Module, shape: Shape) -> Layer:
        return Layer(everywhere(constant), abs(at_zero) * root_of(shape), ulps, limits=limits)

    return rule


def root_of(shape: Shape) -> float:
    """The 2-norm of a tensor of ones, rounded up."""
    return math.sqrt(math.prod(shape)) * (1 + 4 * UNIT)


# the derivative of x Phi(x) is largest at sqrt 2, where it is Phi(sqrt 2) + exp(-1) / sqrt pi
GELU = (0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi)) * (1 + 1e-12)
# for those below the largest derivative was enclosed numerically; tests check it again
TANH_GELU = 1.12901
SILU = 1.0998394
MISH = 1.0885

RULES |= {
    nn.ReLU: entrywise(1.0, limits=(0.0, INF), ulps=0),
    nn.ReLU6: entrywise(1.0, limits=(0.0, 6.0), ulps=0),
    nn.Tanh: entrywise(1.0, limits=(-1.0, 1.0)),
    nn.Sigmoid: entrywise(0.25, at_zero=0.5, limits=(0.0, 1.0)),
    nn.Hardsigmoid: entrywise(1 / 6 * (1 + 1e-15), at_zero=0.5, limits=(0.0, 1.0)),
    nn.Hardswish: entrywise(1.5),
    nn.SiLU: entrywise(SILU),
    nn.Mish: entrywise(MISH),
    nn.Softsign: entrywise(1.0, limits=(-1.0, 1.0)),
    nn.LogSigmoid: entrywise(1.0, at_zero=math.log(2)),
    layers.MaxMin: entrywise(1.0, ulps=0),  # sorting permutes: an isometry of each piece, and continuous
    layers.GroupSort: entrywise(1.0, ulps=0),
}


@rule_for(nn.LeakyReLU, nn.RReLU)
def leaky(module: nn.LeakyReLU | nn.RReLU, shape: Shape) -> Layer:
    """The steeper of the two pieces."""
    slopes = [module.negative_slope] if isinstance(module, nn.LeakyReLU) else [module.lower, module.upper]
    return Layer(everywhere(max(1.0, *map(abs, slopes))), roundings=2)


@rule_for(nn.PReLU)
def prelu(module: nn.PReLU, shape: Shape) -> Layer:
    """The steepest piece."""
    require_finite(weight=module.weight)
    return Layer(everywhere(max(1.0, float(module.weight.abs().max()))), roundings=2)


@rule_for(nn.ELU, nn.CELU, nn.SELU)
def elu(module: nn.ELU | nn.CELU | nn.SELU, shape: Shape) -> Layer:
    """scale max(1, alpha), and CELU has slope 1 at 0 whatever its alpha."""
    if isinstance(module, nn.SELU):
        return Layer(everywhere(1.0507009873554805 * 1.6732632423543772 * (1 + 1e-12)), roundings=ULPS)
    if isinstance(module, nn.CELU) and not module.alpha > 0:
        raise ValueError(f"expected a CELU with alpha > 0, got {module.alpha}")
    steepest = abs(module.alpha) if isinstance(module, nn.ELU) else 1.0
    return Layer(everywhere(max(1.0, steepest)), roundings=ULPS * max(1.0, abs(module.alpha)))


@rule_for(nn.Softplus)
def softplus(module: nn.Softplus, shape: Shape) -> Layer:
    """Beyond its threshold torch takes x itself, a jump of at most exp(-threshold) / beta in each entry."""
    if not module.beta > 0:
        raise ValueError(f"expected a Softplus with beta > 0, got {module.beta}")
    jump = math.log1p(math.exp(-module.threshold)) / module.beta * (1 + 8 * UNIT)
    return Layer(everywhere(1.0), math.log(2) / module.beta * root_of(shape), ULPS, deviation=jump * root_of(shape))


@rule_for(nn.GELU)
def gelu(module: nn.GELU, shape: Shape) -> Layer:
    """Steeper than 1 to the right of 0."""
    return Layer(everywhere(GELU if module.approximate == "none" else TANH_GELU), roundings=2 * ULPS)


@rule_for(nn.Hardtanh, nn.Threshold)
def hardtanh(module: nn.Hardtanh | nn.Threshold, shape: Shape) -> Layer:
    """A clamp; a threshold is continuous only if the value is the threshold."""
    if isinstance(module, nn.Threshold) and module.value != module.threshold:
        raise ValueError(f"expected a Threshold whose value is its threshold, got {module}; it jumps elsewhere")
    limits = (module.min_val, module.max_val) if isinstance(module, nn.Hardtanh) else (module.value, INF)
    return clamp(*limits, shape)


def clamp(low: float, high: float, shape: Shape) -> Layer:
    """What lies outside is moved to the limit."""
    return Layer(everywhere(1.0), max(0.0, low, -high) * root_of(shape), limits=(low, high))


@rule_for(nn.Softmax)
def softmax(module: nn.Softmax, shape: Shape) -> Layer:
    """The derivative diag(s) - s s^T has absolute row and column sums 2 s (1 - s) <= 1/2."""
    if module.dim is None or module.dim % (len(shape) + 1) == 0:
        raise ValueError(f"expected a Softmax over a dimension other than the batch's, got dim={module.dim}")
    half = {(1.0, 1.0): 0.5, (2.0, 2.0): 0.5, (INF, INF): 0.5}
    return Layer(half, root_of(shape), ULPS + math.prod(shape), limits=(0.0, 1.0))


@rule_for(layers.Householder)
def householder(module: layers.Householder, shape: Shape) -> Layer:
    """A reflection or nothing, glued where they agree; in l1 and l-inf a reflection can stretch by |cos| + |sin|."""
    require_finite(angle=module.angle)
    angle = module.angle.detach().double()
    sides = float((angle.cos().abs() + angle.sin().abs()).max()) * (1 + 16 * UNIT)
    return Layer({(1.0, 1.0): max(1.0, sides), (2.0, 2.0): 1.0 + 64 * UNIT, (INF, INF): max(1.0, sides)}, roundings=32)


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


@rule_for(nn.MaxPool2d, maps=True)
def max_pool(module: nn.MaxPool2d, shape: Shape) -> Layer:
    """Each output is an input; one that lies in many windows may be used so many times."""
    if module.return_indices:
        raise ValueError("expected a MaxPool2d that returns its maxima only, got return_indices=True")
    kernel, stride, padding, dilation = (
        (v, v) if isinstance(v, int) else tuple(v)
        for v in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    outputs = module(torch.zeros(1, *shape)).shape[2:]
    axes = zip(shape[1:], outputs, kernel, stride, padding, dilation, strict=True)
    return Layer(copying(math.prod(_most_windows(*axis) for axis in axes)), keeps_limits=True)


def _most_windows(size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    windows = ([i * stride + j * dilation - padding for j in range(kernel)] for i in range(outputs))
    return _most_common(size, windows)


@rule_for(nn.AdaptiveMaxPool2d, maps=True)
def adaptive_max_pool(module: nn.AdaptiveMaxPool2d, shape: Shape) -> Layer:
    """As above; windows run from floor(i n / m) to ceil((i + 1) n / m)."""
    if module.return_indices:
        raise ValueError("expected an AdaptiveMaxPool2d that returns its maxima only, got return_indices=True")
    outputs = module(torch.zeros(1, *shape)).shape[2:]
    return Layer(
        copying(
            math.prod(
                _most_common(n, (range(i * n // m, -(-(i + 1) * n // m)) for i in range(m)))
                for n, m in zip(shape[1:], outputs, strict=True)
            )
        ),
        keeps_limits=True,
    )


def _most_common(size: int, windows: Iterable[Iterable[int]]) -> int:
    counts = [0] * size
    for window in windows:
        for i in window:
            if 0 <= i < size:
                counts[i] += 1
    return max(1, *counts)


@rule_for(nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d, nn.UpsamplingNearest2d, maps=True)
def copies_of_pixels(module: nn.Module, shape: Shape) -> Layer:
    """Every output is an input, or 0."""
    return Layer(copying(max(1.0, sums_over_inputs(module, (1, *shape[1:])))))


@rule_for(
    nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelUnshuffle, nn.PixelShuffle, nn.ChannelShuffle,
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
def rearrangement(module: nn.Module, shape: Shape) -> Layer:
    """The same numbers in another order; dropout does nothing in evaluation."""
    return REARRANGED
