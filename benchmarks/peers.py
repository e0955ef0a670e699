"""Layers with a norm of at most 1, ours and those of other packages, after the same training steps.

Each layer takes Adam steps that reward large output differences; then its true norm is taken from the explicit matrix
of what it computes in evaluation. Packages that are not installed are left out.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from benchmarks.timing import shown
from berncert import lipschitz_bound
from berncert.extractor import almost_orthogonal, export, orthogonal, spectral

PACKAGES = {"orthogonium": "orthogonium", "deel-torchlip": "deel"}
SAME, HALF = {"kernel_size": 3, "padding": 1}, {"kernel_size": 2, "stride": 2}
SHAPES = [(3, 8, 8), (8, 8, 6), (16, 32, 4)]  # inputs, outputs, height and width
LEARNING_RATE, BATCH = 1e-2, 8
FLOAT64_STEPS = 5

Make = Callable[[int, int], nn.Module]


class Peer(NamedTuple):
    name: str
    package: str
    geometry: str
    make: Make
    plain: Callable[[Any], nn.Module]
    """The package's way to a plain torch layer."""


def without_parametrization(layer: nn.Module) -> nn.Module:
    """In place: removed from a copy, it would vanish from the class that the copy shares with the original."""
    return parametrize.remove_parametrizations(layer, "weight")


def rebuilt(layer: Any) -> nn.Module:
    """For a layer whose kernel is larger than the one it was made for."""
    outputs, inputs, *kernel = layer.weight.shape
    plain = nn.Conv2d(inputs, outputs, kernel, padding="same")
    plain.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    return plain


def peers() -> Iterator[Peer]:
    """Those whose package is there."""
    same, half = "3x3", "2x2, stride 2"
    yield Peer("spectral", "berncert", same, lambda i, o: spectral(nn.Conv2d(i, o, **SAME)), export)
    yield Peer("almost_orthogonal", "berncert", same, lambda i, o: almost_orthogonal(nn.Conv2d(i, o, **SAME)), export)
    yield Peer("orthogonal", "berncert", half, lambda i, o: orthogonal(nn.Conv2d(i, o, **HALF)), export)
    miyato = parametrizations.spectral_norm
    yield Peer("spectral_norm", "torch", same, lambda i, o: miyato(nn.Conv2d(i, o, **SAME)), without_parametrization)
    if installed("deel-torchlip"):
        from deel.torchlip import SpectralConv2d

        def vanilla(layer: Any) -> nn.Module:
            return layer.vanilla_export()

        for name, geometry in ((same, SAME), (half, HALF)):
            yield Peer("SpectralConv2d", "deel-torchlip", name, _maker(SpectralConv2d, geometry), vanilla)
    if installed("orthogonium"):
        from orthogonium.layers.conv.adaptiveSOC.ortho_conv import AdaptiveSOCConv2d
        from orthogonium.layers.conv.AOC import AdaptiveOrthoConv2d
        from orthogonium.layers.conv.AOL.aol import AOLConv2D

        from_orthogonium = [
            (same, AdaptiveOrthoConv2d, SAME, without_parametrization),
            (half, AdaptiveOrthoConv2d, HALF | {"padding": 0}, without_parametrization),
            (same, AdaptiveSOCConv2d, SAME | {"padding": "same"}, rebuilt),
            (same, AOLConv2D, SAME, without_parametrization),
        ]
        for name, kind, geometry, plain in from_orthogonium:
            yield Peer(kind.__name__, "orthogonium", name, _maker(kind, geometry | {"padding_mode": "zeros"}), plain)


def _maker(kind: Any, options: dict[str, Any]) -> Make:
    return lambda inputs, outputs: kind(inputs, outputs, **options)


def installed(package: str) -> bool:
    return find_spec(PACKAGES[package]) is not None


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class Trained(NamedTuple):
    """What was seen of one peer, over all shapes and seeds."""

    peer: Peer
    norms: list[float]
    proven: list[float]
    """`lipschitz_bound` of its plain torch layer."""
    float64: str
    repeat: float
    """The largest difference between the outputs of two evaluations, relative to the output."""
    stale: float
    """The same between evaluating right after an optimiser's step, and after one more forward in training."""
    exported: float
    """The same between the layer and its plain torch layer."""
    step: float
    """Forward and backward in training, relative to a plain Conv2d of the same geometry."""


def compare(steps: int, seeds: int, rounds: int) -> list[Trained]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(peers())
        times = step_times(found, rounds)
        return [
            study(peer, steps, seeds, time) for peer, time in shown("training peers", zip(found, times, strict=True))
        ]


def study(peer: Peer, steps: int, seeds: int, step_time: float) -> Trained:
    norms, proven, repeats, stale, exported = [], [], [], [], []
    for inputs, outputs, size in SHAPES:
        for seed in range(seeds):
            torch.manual_seed(seed)
            layer, shape = peer.make(inputs, outputs), (inputs, size, size)
            train(layer, shape, steps)
            x = torch.randn(4, *shape)
            with torch.no_grad():
                early = layer.eval()(x)
                layer.train()(x)
                first, second = layer.eval()(x), layer(x)
                norms.append(true_norm(layer, shape))
                plain = peer.plain(layer).eval()
                scale = float(first.abs().max())
                for differences, other in ((stale, early), (repeats, second), (exported, plain(x))):
                    differences.append(float((other - first).abs().max()) / scale)
            proven.append(lipschitz_bound(plain, shape, progress=False))
    return Trained(peer, norms, proven, in_float64(peer), max(repeats), max(stale), max(exported), step_time)


def train(layer: nn.Module, shape: tuple[int, ...], steps: int, dtype: torch.dtype = torch.float32) -> None:
    """Steps that push the differences of outputs up: what a constraint on the norm has to hold against."""
    layer.train()
    optimiser = torch.optim.Adam(layer.parameters(), lr=LEARNING_RATE)
    direction = torch.randn(BATCH, *shape, dtype=dtype)
    for _ in range(steps):
        x = torch.randn(BATCH, *shape, dtype=dtype)
        loss = -(layer(x + direction) - layer(x)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def true_norm(layer: nn.Module, shape: tuple[int, ...]) -> float:
    """The largest singular value of the layer's matrix, in the arithmetic that it runs in."""
    bias = layer.bias
    layer.bias = None  # so that nothing cancels
    matrix = layer(torch.eye(math.prod(shape)).reshape(-1, *shape)).double().flatten(1)
    layer.bias = bias
    gram = matrix.T @ matrix if matrix.shape[0] > matrix.shape[1] else matrix @ matrix.T
    return math.sqrt(float(torch.linalg.eigvalsh(gram)[-1]))


def in_float64(peer: Peer) -> str:
    """Whether it trains in float64."""
    torch.manual_seed(0)
    try:
        train(peer.make(8, 8).double(), (8, 8, 8), FLOAT64_STEPS, torch.float64)
    except RuntimeError as error:
        return type(error).__name__
    return "trains"


def step_times(found: list[Peer], rounds: int) -> list[float]:
    """Medians of interleaved rounds, 16 -> 32 channels at 16 x 16, 32 images, each over the plain layer's."""
    plain = {"3x3": nn.Conv2d(16, 32, **SAME), "2x2, stride 2": nn.Conv2d(16, 32, **HALF)}
    layers = [*plain.values(), *(peer.make(16, 32) for peer in found)]
    for layer in layers:  # off the point where they are orthogonal already
        for p in layer.parameters():
            if p.requires_grad and p.ndim > 1:
                p.data += 0.3 * p.data.std() * torch.randn(p.shape)
    x = torch.randn(32, 16, 16, 16)
    seconds = [[_step_seconds(layer, x) for layer in layers] for _ in shown("timing steps", range(rounds + 2))][2:]
    medians = [median(times) for times in zip(*seconds, strict=True)]
    base = dict(zip(plain, medians, strict=False))
    return [taken / base[peer.geometry] for peer, taken in zip(found, medians[len(plain) :], strict=True)]


def _step_seconds(layer: nn.Module, x: Tensor) -> float:
    start = time.perf_counter()
    layer(x).square().mean().backward()
    return time.perf_counter() - start
