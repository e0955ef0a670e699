"""Extractors by name, each written once, in three constructions.

`lipschitz` has the bound 1 / side, `paper` is as published, `ordinary` has plain weights.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from berncert.extractor.layers import Clip, LinfDistance, MaxMin, Normalise, PotentialStep, SortedDistance, UnitCube
from berncert.extractor.parametrizations import L, almost_orthogonal, miyato, narrow_weights, orthogonal


class Extractor(nn.Module):
    """A network from images to [0,1]^dim that remembers how it was built: `build(**description)` builds it again."""

    def __init__(self, layers: Sequence[nn.Module], description: Mapping[str, Any], norm: float = 2.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.norm = norm  # in which the construction aims at its bound: 2 or infinity
        self.description = dict(description)  # plain JSON, every default spelt out
        self.input_shape: tuple[int, ...] = tuple(description["input_shape"])
        self.dim: int = description["dim"]

    @property
    def lipschitz_estimate(self) -> float | None:
        """The bound that the construction aims at in its norm, not a proven one: for training. None without an aim."""
        side, std = self.description["side"], self.description["std"]
        return None if side is None else 1 / (side * min(std or [1.0]))

    def forward(self, image: Tensor) -> Tensor:
        return self.layers(image)  # type: ignore[no-any-return]


class Residual(nn.Module):
    """branch(x) + skip(x)."""

    def __init__(self, branch: Construction, skip: Construction) -> None:
        super().__init__()
        self.branch, self.skip = nn.Sequential(*branch.layers), nn.Sequential(*skip.layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) + self.skip(x)  # type: ignore[no-any-return]


class Concatenation(nn.Module):
    """keep x beside grow branch(x): 1-Lipschitz if the branch is and keep^2 + grow^2 = 1."""

    def __init__(self, branch: Construction, keep: float, grow: float) -> None:
        super().__init__()
        self.branch, self.keep, self.grow = nn.Sequential(*branch.layers), keep, grow

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.keep * x, self.grow * self.branch(x)], dim=1)


@dataclass
class Construction:
    """A network being built: its layers so far, and the shape of their output. Halving a map rounds up."""

    shape: tuple[int, ...]
    layers: list[nn.Module] = field(default_factory=list)

    def add(self, *layers: nn.Module, channels: int | None = None, stride: int = 1) -> Self:
        """Append layers that give this many channels, on maps that are smaller by the stride."""
        self.layers += layers
        self.shape = (channels or self.shape[0], *(-(-n // stride) for n in self.shape[1:]))
        return self

    def begin(self, mean: Sequence[float] | None, std: Sequence[float] | None) -> Self:
        """Append what images pass first: the normalisation of each channel, if there is any."""
        return self.add(Normalise(mean, std)) if mean and std else self

    def fork(self) -> Self:
        """An empty branch that starts from the current shape."""
        return replace(self, layers=[])

    def flatten(self) -> Self:
        """Append what makes one row of numbers of a map."""
        if len(self.shape) > 1:
            self.layers.append(nn.Flatten())
            self.shape = (math.prod(self.shape),)
        return self


@dataclass
class Lipschitz(Construction):
    """Every piece is 1-Lipschitz in l2 and preserves lengths as far as it can; the cube at the end makes that 1 / side.

    A residual block is one `PotentialStep`: two convolutions W^T and W, with its nonlinearity and its skip inside.
    Pooling of either kind is an orthogonal 2x2 convolution with stride 2, which learns what to keep at full length: a
    maximum lets one pixel in four through, an average halves most differences. Convolutions start orthogonal, blocks
    thus as isometries; biases start at 0, so that a black image (with `mean`, the mean) is the middle of the cube.
    """

    side: float = field(default=1.0, kw_only=True)
    norm: float = field(default=2.0, init=False)

    def distance(self, outputs: int, *, negative: bool = False, identity: float = 0.0, decay: float = 0.0) -> Self:
        """Append distances to learnt points: from here on the network is 1-Lipschitz in l-inf, and not in l2."""
        self.norm, inputs = math.inf, self.flatten().shape[0]
        layer = partial(SortedDistance, decay=decay) if decay else LinfDistance
        return self.add(layer(inputs, outputs, negative=negative, identity=identity), channels=outputs)

    def conv(self, outputs: int, kernel: int = 3, stride: int = 1) -> Self:
        kernel, padding = (kernel, [kernel // 2] * 2) if stride == 1 else (stride, [n % stride for n in self.shape[1:]])
        normalised = almost_orthogonal if kernel > stride else orthogonal  # the latter where windows do not overlap
        layer = nn.Conv2d(self.shape[0], outputs, kernel, stride, (padding[0], padding[1]))
        return self.add(normalised(_blank(layer)), channels=outputs, stride=stride)

    def linear(self, outputs: int) -> Self:
        return self.add(orthogonal(_blank(nn.Linear(self.flatten().shape[0], outputs))), channels=outputs)

    def activate(self) -> Self:
        if self.shape[0] % 2:
            raise ValueError(f"expected an even number of channels for MaxMin, got {self.shape[0]}; choose even widths")
        return self.add(MaxMin())

    def block(self, outputs: int, stride: int = 1) -> Self:
        if (outputs, stride) != (self.shape[0], 1):
            self.conv(outputs, 1, stride)
        return self.add(PotentialStep(almost_orthogonal(_blank(nn.Conv2d(outputs, outputs, 3, padding=1)))))

    pre_activated_block = block

    def pool(self, kind: type[nn.MaxPool2d] | type[nn.AvgPool2d]) -> Self:
        return self.conv(self.shape[0], stride=2)

    def concatenate(self, branch: Construction) -> Self:
        channels = self.shape[0] + branch.shape[0]  # of which old and new have their share
        keep, grow = (math.sqrt(part.shape[0] / channels) for part in (self, branch))
        return self.add(Concatenation(branch, keep, grow), channels=channels)

    def end(self, dim: int) -> Self:
        last = self.linear(dim) if self.norm == 2 else self.distance(dim, negative=True)
        return last.add(UnitCube(self.side))


def _blank(layer: L) -> L:
    """The layer with its bias at 0 and its weight near 0: more noise would make a deep network start dead."""
    with torch.no_grad():
        layer.weight.mul_(0.01)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return layer


@dataclass
class Paper(Construction):
    """The usual networks for CIFAR with Miyato's normalisation of every weight, and a sigmoid at the end (AAAI-21).

    Nothing bounds them: a 3x3 convolution may stretch 3 times, a skip adds 1, a concatenation adds in squares.
    """

    batch_norm: bool = field(default=True, kw_only=True)
    norm: float = field(default=2.0, init=False)

    def weighted(self, layer: L) -> L:
        """A new layer with weights, as this construction has it."""
        return miyato(layer)

    def distance(self, outputs: int, *, negative: bool = False, identity: float = 0.0, decay: float = 0.0) -> Self:
        raise ValueError("expected distnet in the lipschitz construction, got one that has no distance layer")

    def conv(self, outputs: int, kernel: int = 3, stride: int = 1) -> Self:
        layer = nn.Conv2d(self.shape[0], outputs, kernel, stride, kernel // 2, bias=not self.batch_norm)
        return self.add(self.weighted(layer), channels=outputs, stride=stride)

    def linear(self, outputs: int) -> Self:
        layer = nn.Linear(self.flatten().shape[0], outputs)
        return self.add(self.weighted(layer), channels=outputs)

    def normalise(self) -> Self:
        kind = nn.BatchNorm1d if len(self.shape) == 1 else nn.BatchNorm2d
        return self.add(kind(self.shape[0])) if self.batch_norm else self

    def activate(self) -> Self:
        return self.normalise().add(nn.ReLU())

    def block(self, outputs: int, stride: int = 1) -> Self:
        branch, skip = self.fork().conv(outputs, 3, stride).activate().conv(outputs).normalise(), self.fork()
        if (outputs, stride) != (self.shape[0], 1):
            skip.conv(outputs, 1, stride).normalise()
        return self.add(Residual(branch, skip), nn.ReLU(), channels=outputs, stride=stride)

    def pre_activated_block(self, outputs: int, stride: int = 1) -> Self:
        if (outputs, stride) == (self.shape[0], 1):
            branch, skip = self.fork().activate(), self.fork()
        else:  # both ways start from the activated value
            branch, skip = self.activate().fork(), self.fork().conv(outputs, 1, stride)
        branch.conv(outputs, 3, stride).activate().conv(outputs)
        return self.add(Residual(branch, skip), channels=outputs, stride=stride)

    def pool(self, kind: type[nn.MaxPool2d] | type[nn.AvgPool2d]) -> Self:
        return self.add(kind(2, ceil_mode=True), stride=2)

    def concatenate(self, branch: Construction) -> Self:
        return self.add(Concatenation(branch, 1.0, 1.0), channels=self.shape[0] + branch.shape[0])

    def end(self, dim: int) -> Self:
        if len(self.shape) == 3:
            self.add(nn.AdaptiveAvgPool2d(1), stride=max(self.shape[1:]))
        return self.linear(dim).add(nn.Sigmoid())


@dataclass
class Ordinary(Paper):
    """The same networks with plain weights, which start narrow, for training by intervals.

    With `clip` inputs are clipped to [0, 1] first. That changes no image whose pixels are there, and keeps the boxes
    around it there: around a black pixel they are half as wide.
    """

    clip: bool = field(default=False, kw_only=True)

    def begin(self, mean: Sequence[float] | None, std: Sequence[float] | None) -> Self:
        if self.clip:
            self.add(Clip())
        return super().begin(mean, std)

    def weighted(self, layer: L) -> L:
        return narrow_weights(layer)


def mlp(net: Net, *, depth: int = 3, width: int = 256) -> None:
    """Fully connected: depth hidden layers of the same width."""
    for _ in range(depth):
        net.linear(width).activate()


def cnn(net: Net, *, depth: int = 2, width: int = 16, hidden: int = 100, convolutions: int = 1) -> None:
    """`depth` stages of so many convolutions, of which the first halves the map; `width` channels in the first stage,
    twice as many in each further one; then a hidden layer."""
    for stage in range(depth):
        for i in range(convolutions):
            net.conv(width << stage, stride=2 if i == 0 else 1).activate()
    net.linear(hidden).activate()


def distnet(
    net: Net, *, depth: int = 3, width: int = 512, pool: int = 1, identity: float = 0.0, decay: float = 0.0
) -> None:
    """Zhang et al., 2021, for l-inf: in every layer distances to learnt points, `width` of them in hidden layers.

    `pool` takes means of so many by so many pixels first, which are 1-Lipschitz in l-inf, too: large images cost less.
    `identity` is that of `LinfDistance`; with `decay`, hidden layers are `SortedDistance`: a SortNet.
    """
    if pool > 1:
        net.add(nn.AvgPool2d(pool, ceil_mode=True), stride=pool)
    for _ in range(depth):
        net.distance(width, identity=identity, decay=decay)


def patchnet(net: Net, *, depth: int = 2, width: int = 48, dense: int = 2, hidden: int = 512) -> None:
    """Patches of 2x2 pixels as channels, three stages of `depth` blocks, each of half the size and `width` more
    channels, then `dense` hidden layers: little arithmetic for each image, so that it trains on a CPU."""
    if any(n % 2 for n in net.shape[1:]):
        raise ValueError(f"expected an even height and width for patchnet, got {net.shape[1:]}; pad or crop the images")
    net.add(nn.PixelUnshuffle(2), channels=4 * net.shape[0], stride=2)
    for stage in range(3):
        net.conv((stage + 1) * width, kernel=1, stride=1 if stage == 0 else 2)
        for _ in range(depth):
            net.block((stage + 1) * width)
    for _ in range(dense):
        net.linear(hidden).activate()


def lipconvnet(net: Net, *, depth: int = 10, width: int = 16) -> None:
    """Singla and Feizi, 2021: five stages, each of depth / 5 convolutions, the last of which halves the map."""
    for stage in range(5):
        for _ in range(_repeats(depth, 5, 0) - 1):
            net.conv(width << stage).activate()
        net.conv(width << stage + 1, stride=2).activate()


def resnet(net: Net, *, depth: int = 20, width: int = 16) -> None:
    """He et al., 2016, for CIFAR: three stages of n blocks, depth 6n + 2."""
    net.conv(width).activate()
    for stage in range(3):
        for i in range(_repeats(depth, 6, 2)):
            net.block(width << stage, 2 if i == 0 < stage else 1)


def wide_resnet(net: Net, *, depth: int = 28, widen: int = 10) -> None:
    """Zagoruyko and Komodakis, 2016: three stages of n pre-activated blocks, `widen` times as wide, depth 6n + 4."""
    net.conv(16)
    for stage in range(3):
        for i in range(_repeats(depth, 6, 4)):
            net.pre_activated_block(16 * widen << stage, 2 if i == 0 < stage else 1)
    net.activate()


def vgg(net: Net, *, depth: int = 11, width: int = 64) -> None:
    """Simonyan and Zisserman, 2015, as used for CIFAR: one linear layer after the convolutions."""
    stages = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
    if depth not in stages:
        raise ValueError(f"expected a depth out of {', '.join(map(str, stages))}, got {depth}; choose one of them")
    for stage, convolutions in enumerate(stages[depth]):
        for _ in range(convolutions):
            net.conv(width << min(stage, 3)).activate()
        net.pool(nn.MaxPool2d)


def densenet(net: Net, *, depth: int = 40, growth: int = 12) -> None:
    """Huang et al., 2017, DenseNet-BC: three stages of n bottlenecked layers, channels halved between, depth 6n + 4."""
    net.conv(2 * growth)
    for stage in range(3):
        if stage > 0:
            net.activate().conv(net.shape[0] // 4 * 2, kernel=1).pool(nn.AvgPool2d)
        for _ in range(_repeats(depth, 6, 4)):
            net.concatenate(net.fork().activate().conv(4 * growth, kernel=1).activate().conv(growth))
    net.activate()


def _repeats(depth: int, each: int, rest: int) -> int:
    """n, where depth = each n + rest."""
    if depth < each + rest or (depth - rest) % each:
        raise ValueError(f"expected a depth of {each}n + {rest}, got {depth}; choose e.g. {3 * each + rest}")
    return (depth - rest) // each


ARCHITECTURES: dict[str, Callable[..., None]] = {  # functions that add layers; their keywords are options
    "mlp": mlp, "cnn": cnn, "distnet": distnet, "patchnet": patchnet, "lipconvnet": lipconvnet, "densenet": densenet,
    "resnet": resnet, "resnet20": partial(resnet, depth=20), "resnet110": partial(resnet, depth=110),
    "wide_resnet": wide_resnet, "wide_resnet10_2": partial(wide_resnet, depth=10, widen=2),
    "wide_resnet28_10": partial(wide_resnet, depth=28, widen=10),
    "vgg": vgg, "vgg11": partial(vgg, depth=11), "vgg19": partial(vgg, depth=19),
}  # fmt: skip

ANY_SHAPE = ("mlp", "distnet")
"""Those that flatten the image first, and take any shape."""

Net = Lipschitz | Paper
_STARTS: dict[str, Callable[..., Net]] = {"lipschitz": Lipschitz, "paper": Paper, "ordinary": Ordinary}
CONSTRUCTIONS = tuple(_STARTS)


def build(
    name: str, input_shape: Sequence[int], dim: int, *, construction: str = "lipschitz", side: float | None = None,
    mean: Sequence[float] | None = None, std: Sequence[float] | None = None, **options: Any,
) -> Extractor:  # fmt: skip
    """The extractor of this name for images of this shape (without the batch), with features in [0,1]^dim.

    `side` is that of the cube at the end of `lipschitz`, 1 unless given: the bound is 1 / side. `mean` and `std`
    normalise each channel first; the bound is then divided by the least std. `default_options` lists the other options.

    Example:
        >>> import berncert
        >>> extractor = berncert.build("mlp", (1, 8, 8), dim=3, side=2.0).eval()
        >>> round(berncert.lipschitz_bound(extractor, (1, 8, 8)), 3)  # proven: at most 1 / side, up to the last places
        0.5
    """
    settings = {"dim": 1, **default_options(name, construction)}
    chosen = {"dim": dim, **options} | ({} if side is None else {"side": float(side)})
    for key, value in chosen.items():
        if key not in settings:
            raise TypeError(f"expected options of {construction} {name}: {', '.join(settings)}; got {key}={value!r}")
        if type(value) is not type(settings[key]) or (type(value) is int and value < 1):
            expected = {int: "a whole number >= 1", float: "a number", bool: "True or False"}[type(settings[key])]
            raise ValueError(f"expected {key} to be {expected}, got {value!r}")
    settings, shape = settings | chosen, tuple(map(int, input_shape)) if isinstance(input_shape, Sequence) else ()
    if min(shape, default=0) < 1 or (len(shape) != 3 and name not in ANY_SHAPE):
        raise ValueError(
            f"expected input_shape (channels, height, width), got {input_shape!r}; {' and '.join(ANY_SHAPE)} take any"
        )
    start, architecture = _STARTS[construction], ARCHITECTURES[name]
    net = start(shape, **{key: settings[key] for key in _keywords(start)})
    if mean or std:
        mean, std = [float(v) for v in mean or [0] * shape[0]], [float(v) for v in std or [1] * shape[0]]
        if len(mean) != shape[0]:
            raise ValueError(f"expected a mean for each of the {shape[0]} channels, got {mean}; give as many")
    net.begin(mean, std)
    architecture(net, **{key: settings[key] for key in _keywords(architecture)})
    about = {"name": name, "input_shape": list(shape), "dim": dim, "construction": construction}
    return Extractor(net.end(dim).layers, about | {"side": None, "mean": mean, "std": std} | settings, net.norm)


def default_options(name: str, construction: str = "lipschitz") -> dict[str, Any]:
    """The options of `build` for this architecture in this construction, with their defaults."""
    for argument, value, table in (("name", name, ARCHITECTURES), ("construction", construction, _STARTS)):
        if value not in table:
            raise ValueError(f"expected a {argument} out of {', '.join(table)}; got {value!r}")
    return _keywords(_STARTS[construction]) | _keywords(ARCHITECTURES[name])


def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """Keyword-only parameters and their defaults, without those that a partial has fixed: resnet110 has its depth."""
    fixed = function.keywords if isinstance(function, partial) else {}
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in fixed}
