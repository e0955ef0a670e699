"""Rules of functions of each entry, or of a few of them at a time."""

from __future__ import annotations

import math

from torch import nn

from berncert.extractor import layers
from berncert.extractor.proofs.facts import RULES, Layer, Rule, Shape, require_finite, root_of, rule_for
from berncert.extractor.proofs.gains import INF, everywhere
from berncert.extractor.proofs.norms import UNIT

ULPS = 8.0  # of a result, that the elementary functions of any common library may be off by


def entrywise(
    constant: float, at_zero: float = 0.0, limits: tuple[float, float] = (-INF, INF), *, ulps: float = ULPS
) -> Rule:
    """A function of each entry with this Lipschitz constant, its value at 0, and limits of its values."""

    def rule(module: nn.Module, shape: Shape) -> Layer:
        return Layer(everywhere(constant), abs(at_zero) * root_of(shape), ulps, limits=limits)

    return rule


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
    return Layer(everywhere(max(1.0, float(module.weight.detach().abs().max()))), roundings=2)


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
    if not (module.beta > 0 and module.threshold <= 80):
        raise ValueError(f"expected beta > 0 and threshold <= 80, beyond which float32 overflows, got {module}")
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
