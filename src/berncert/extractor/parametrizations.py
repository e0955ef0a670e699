"""Plain torch layers whose weight is kept at a norm of at most 1: `spectral`, `orthogonal`, `almost_orthogonal`.

Nothing has to be trusted: `lipschitz_bound` proves the norm of the weight that is in use, and `export` gives back
plain torch layers with that very weight.
"""

from __future__ import annotations

import copy
import math
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils import parametrizations, parametrize

from berncert.extractor.bounds.spectral_norm import (
    Geometry,
    Pair,
    cached_matrix_norm_bound,
    conv_norm_bound,
    regardless_of_size,
)

L = TypeVar("L", nn.Linear, nn.Conv2d)
M = TypeVar("M", bound=nn.Module)

HEADROOM = 1 + 2.0**-30
"""A factor on the proven norm, so that the divided weight has norm 1 or less after rounding."""
RIDGE = 1e-6  # of the mean square: keeps a Cholesky factor alive when columns grow alike; the norm stays below 1
PROBE = 16  # the size of the map, at least, on which power iteration steers a convolution


def spectral(layer: L, size: Pair | None = None) -> L:
    """The layer with its weight divided by its norm: in evaluation a proven bound, in training a power iteration.

    A convolution's bound holds on maps of every size, or, a little tighter, on maps of the given height and width.
    """
    geometry = geometry_of(layer) if isinstance(layer, nn.Conv2d) else None
    if geometry is not None and size is None:
        regardless_of_size(geometry, layer.weight.shape[2:])  # or an error that asks for a size
    return _parametrised(layer, _DividedByNorm(layer.weight, geometry, size))


def orthogonal(layer: L) -> L:
    """The layer with orthonormal rows or columns, whichever are fewer: it preserves norms as far as its shape allows.

    Linear layers, and convolutions whose windows do not overlap (1x1, or kernel = stride: downsampling).
    """
    if isinstance(layer, nn.Conv2d):
        apart = layer.kernel_size == (1, 1) or (layer.kernel_size == layer.stride and layer.dilation == (1, 1))
        if not apart or layer.groups != 1 or layer.padding_mode != "zeros":
            raise ValueError(
                "expected a convolution whose windows do not overlap (1x1, or kernel = stride), with one group and "
                f"zero padding, got {layer}; use almost_orthogonal"
            )
    nn.init.orthogonal_(layer.weight)
    return _parametrised(layer, _Orthogonal())


def almost_orthogonal(layer: L) -> L:
    """The layer rescaled so that W* W (or W W*, the smaller) is diagonally dominated by the identity: norm at most 1.

    Prach and Lampert's AOL: cheap, exact in training as in evaluation, and training tends to make it orthogonal.
    """
    if isinstance(layer, nn.Conv2d) and layer.padding_mode != "zeros":
        raise ValueError(f"expected zero padding, got padding_mode={layer.padding_mode!r}; use spectral")
    _init_near_identity(layer)
    return _parametrised(layer, _AlmostOrthogonal(layer.groups if isinstance(layer, nn.Conv2d) else 1))


def miyato(layer: L) -> L:
    """Miyato's spectral normalisation, as the paper used it: for a convolution it is *not* the norm of the layer."""
    return _picklable(cast(L, parametrizations.spectral_norm(layer)))


def narrow_weights(module: M) -> M:
    """The module, whose linear layers and convolutions now start so that intervals keep their width; biases at 0.

    Of a ReLU network: with the usual start intervals grow in each layer, and a training through `feature_box` has
    nothing to begin with (Shi, Wang, Zhang, Yi, Hsieh, 2021). Weights are normal, their rows' absolute sums about 2.

    Example:
        >>> import torch, berncert
        >>> network = berncert.narrow_weights(torch.nn.Sequential(torch.nn.Linear(1000, 5), torch.nn.ReLU()))
        >>> network[0].weight.detach().abs().sum(dim=1).round()
        tensor([2., 2., 2., 2., 2.])
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.init.normal_(part.weight, std=math.sqrt(2 * math.pi) / part.weight[0].numel())
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return module


def export(module: M) -> M:
    """A copy for evaluation in which every parametrised layer is a plain torch layer, its weight computed in float64.

    It is in float64, and what is certified of the module is certified of it: `freeze` starts from the same copy.
    """
    return cast(M, _plain(copy.deepcopy(module).double().eval(), {}))


def _plain(module: nn.Module, done: dict[nn.Module, nn.Module]) -> nn.Module:
    """The module with its parametrised weights as plain ones. Torch's way to do that spoils the original's class."""
    for name, child in module._modules.items():  # also those that are registered twice
        if child is not None and name != "parametrizations":
            module._modules[name] = done[child] if child in done else done.setdefault(child, _plain(child, done))
    if not parametrize.is_parametrized(module):
        return module
    values = {name: getattr(module, name).detach().clone() for name in module.parametrizations}  # type: ignore[union-attr]
    kind: Any = type(module).__bases__[0]
    plain: nn.Module = kind.__new__(kind)
    plain.__dict__.update({key: copy.copy(value) for key, value in vars(module).items()})
    del plain.parametrizations
    for name, value in values.items():
        plain.register_parameter(name, nn.Parameter(value))
    return plain


def geometry_of(conv: nn.Conv2d) -> Geometry:
    """Where this convolution reads."""
    if conv.padding_mode != "zeros":
        left, right, top, bottom = conv._reversed_padding_repeated_twice  # what torch pads by
    elif isinstance(conv.padding, str):
        taps = zip(conv.dilation, conv.weight.shape[2:], strict=True)
        reaches = (dilation * (kernel - 1) if conv.padding == "same" else 0 for dilation, kernel in taps)
        (top, bottom), (left, right) = ((r // 2, r - r // 2) for r in reaches)
    else:
        (top, left), (bottom, right) = conv.padding, conv.padding
    pairs = {name: cast(Pair, tuple(getattr(conv, name))) for name in ("stride", "dilation")}
    return Geometry(**pairs, padding=((top, bottom), (left, right)), groups=conv.groups, mode=conv.padding_mode)


def _parametrised(layer: L, parametrization: nn.Module) -> L:
    if parametrize.is_parametrized(layer, "weight"):
        raise ValueError(f"expected a plain layer, got one whose weight is parametrised already: {layer}")
    parametrize.register_parametrization(layer, "weight", parametrization, unsafe=True)
    return _picklable(layer)


def _picklable(layer: L) -> L:
    """The layer, which torch gives a class of its own that refuses to be pickled: its parts are pickled instead."""
    type(layer).__reduce_ex__ = _as_parts  # type: ignore[method-assign]
    return layer


def _as_parts(layer: Any, protocol: Any) -> tuple[Any, ...]:
    state = dict(vars(layer))
    lists = state["_modules"]["parametrizations"]
    state["_modules"] = {name: part for name, part in state["_modules"].items() if name != "parametrizations"}
    return _from_parts, (type(layer).__bases__[0], state, {name: (own.original, [*own]) for name, own in lists.items()})


def _from_parts(kind: type[L], state: dict[str, Any], lists: dict[str, tuple[Tensor, list[nn.Module]]]) -> L:
    layer = kind.__new__(kind)
    vars(layer).update(state)
    for name, (original, own) in lists.items():
        layer.register_parameter(name, cast(nn.Parameter, original))
        for part in own:
            parametrize.register_parametrization(layer, name, part, unsafe=True)
    return _picklable(layer)


class _DividedByNorm(nn.Module):
    """weight -> weight / norm."""

    vector: Tensor

    def __init__(self, weight: Tensor, geometry: Geometry | None, size: Pair | None) -> None:
        super().__init__()
        self.geometry, self.size = geometry, size
        shape: tuple[int, ...] = (1, weight.shape[1])
        if geometry is not None:
            reach = (d * (k - 1) + 1 for d, k in zip(geometry.dilation, weight.shape[2:], strict=True))
            shape = (1, weight.shape[1] * geometry.groups, *(size or (max(PROBE, r) for r in reach)))
        self.register_buffer("vector", torch.randn(shape, generator=torch.Generator().manual_seed(0)))
        for _ in range(20):
            self._estimate(weight.detach())

    def forward(self, weight: Tensor) -> Tensor:
        if self.training:
            return weight / self._estimate(weight)
        return weight / (self._proven(weight) * HEADROOM)

    def _proven(self, weight: Tensor) -> float:
        if self.geometry is None:
            bound = cached_matrix_norm_bound(weight)
        else:
            bound = conv_norm_bound(weight, self.geometry, self.size)
        return bound or 1.0

    def _estimate(self, weight: Tensor) -> Tensor:
        """One step of power iteration from where the last one stopped; differentiable in the weight."""
        with torch.enable_grad():
            x = self.vector.to(weight).requires_grad_()
            energy = self._image(x, weight.detach()).square().sum() / 2
            (back,) = torch.autograd.grad(energy, x)
        self.vector = (back / back.norm().clamp_min(1e-12)).to(self.vector)
        norm: Tensor = torch.linalg.vector_norm(self._image(self.vector.to(weight), weight))
        return norm.clamp_min(1e-12)

    def _image(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight) if self.geometry is None else self.geometry.convolve(x, weight)


class _Orthogonal(nn.Module):
    """weight -> its orthogonal factor, with orthonormal columns or, if these are more than the rows, rows."""

    def forward(self, weight: Tensor) -> Tensor:
        w = weight.flatten(1)
        tall = w if w.shape[0] >= w.shape[1] else w.T
        q: Tensor = _OrthogonalFactor.apply(tall)  # type: ignore[no-untyped-call]
        return torch.reshape(q if tall is w else q.T, weight.shape)


class _OrthogonalFactor(torch.autograd.Function):
    """W -> Q = W R^-1 with R* R = W* W, R upper triangular: a QR factorisation by way of Cholesky.

    The derivative is written out, which takes half the time of torch's, step by step. With X = dW R^-1 and P(S) the
    upper triangle of S with half its diagonal, dR = P(X* Q + Q* X) R, so dQ = X - Q P(X* Q + Q* X). The ridge, a
    millionth, is taken as constant. All in the precision of the weights: rounded to bfloat16, W* W may have no factor.
    """

    @staticmethod
    def forward(ctx: Any, tall: Tensor) -> Tensor:
        with torch.autocast(tall.device.type, enabled=False):
            factor = _cholesky(tall.T @ tall, RIDGE)
            q = torch.linalg.solve_triangular(factor.mH, tall, upper=True, left=False)
        ctx.save_for_backward(q, factor)
        return cast(Tensor, q)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,), (q, factor) = gradients, ctx.saved_tensors
        upper = torch.triu(q.T @ gradient)
        upper.diagonal().mul_(0.5)
        inner = gradient - q @ (upper + upper.T)
        return cast(Tensor, torch.linalg.solve_triangular(factor, inner, upper=False, left=False))


def _cholesky(gram: Tensor, ridge: float) -> Tensor:
    """A factor of gram + ridge * mean diagonal; the ridge grows where a singular value that passes 0 leaves none."""
    size = ridge * gram.diagonal().mean() + torch.finfo(gram.dtype).tiny
    raised = gram + size * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    factor, failed = torch.linalg.cholesky_ex(raised)
    if not failed:
        return cast(Tensor, factor)
    return _cholesky(gram, 10 * ridge) if ridge < 1e-2 else cast(Tensor, torch.linalg.cholesky(raised))


class _AlmostOrthogonal(nn.Module):
    """weight -> weight D^-1/2, D the absolute row sums of its Gram matrix: then D - W* W is diagonally dominant."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, weight: Tensor) -> Tensor:
        taps = weight.shape[2:] or (1, 1)
        kernels = weight.reshape(self.groups, -1, weight.shape[1], *taps)
        by_inputs = kernels.shape[2] <= kernels.shape[1]
        kernels = kernels.transpose(1, 2) if by_inputs else kernels
        sums = torch.stack([_gram_sums(kernel) for kernel in kernels])
        scaled = kernels / (sums * HEADROOM).clamp_min(torch.finfo(weight.dtype).tiny).sqrt()[..., None, None, None]
        return (scaled.transpose(1, 2) if by_inputs else scaled).reshape(weight.shape)


def _gram_sums(kernel: Tensor) -> Tensor:
    """For (a, b, kh, kw): over all (other a, shift), the sum of the absolute correlations with it."""
    if kernel.shape[2:] == (1, 1):
        flat = kernel.flatten(1)
        return (flat @ flat.T).abs().sum(dim=1)
    reach = (kernel.shape[2] - 1, kernel.shape[3] - 1)
    return F.conv2d(kernel, kernel, padding=reach).abs().sum(dim=(1, 2, 3))


def _init_near_identity(layer: nn.Linear | nn.Conv2d) -> None:
    """An orthogonal matrix at the kernel's centre: a network of such layers lets everything through from the start."""
    with torch.no_grad():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
            return
        layer.weight.mul_(0.01)
        centre = torch.empty(layer.weight.shape[:2])
        for group in centre.chunk(layer.groups):
            nn.init.orthogonal_(group)
        layer.weight[:, :, layer.kernel_size[0] // 2, layer.kernel_size[1] // 2] += centre.to(layer.weight)
